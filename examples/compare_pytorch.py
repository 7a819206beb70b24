"""Alpha against PyTorch: the paper's Experiment 2.

    python examples/compare_pytorch.py                                      # on a GPU: all of Table IV
    python examples/compare_pytorch.py --data FOLDER --image-size 128       # all of Table V, on images of your own
    python examples/compare_pytorch.py --models googlenet,vit_tiny           # other networks, in the same way
    python examples/compare_pytorch.py --data random --epochs 3 --precision all      # speed and memory alone
    python examples/compare_pytorch.py --precision all --gpus 4              # each network on a GPU of its own
    python examples/compare_pytorch.py --models resnet18 --ranks 2           # each network on two GPUs together
    python examples/compare_pytorch.py --losses                              # the losses of ten steps, side by side

Each network is trained by three sides from the same weights on the same batches, with Adam: Alpha; PyTorch as its
users get it; and PyTorch at its best, channels_last, compiled with CUDA graphs (torch.compile, mode="reduce-overhead")
and with a fused Adam. Like is compared with like: float32 with PyTorch's strict float32 (no TF32), tf32 with its TF32,
bf16 with its autocast. Each side runs in a process of its own, so that its memory is its own. On all sides the images
lie on the device if they take at most a quarter of its memory; else, or with --stream, each batch is copied there while
the step before runs. The images of a FOLDER are decoded once, into a packed file.

With --ranks N each side trains a network on N GPUs together, or without a GPU in N processes: Alpha by DataParallel,
PyTorch by DistributedDataParallel. Each GPU takes --batch-size images of a step, the same ones on all sides. Seconds
are those of the slowest GPU, memory is that of the one with the most, losses of epochs and accuracies are of all.

The folder gets table.csv, table.md and table.png (Tables IV and V: seconds per epoch, acceleration, accuracies, memory
that is live, reserved and held by the process, size of the weights) and the loss curves of Figures 15 to 22. Seconds
are the median over the epochs but the first. On a CPU the same runs with fewer and smaller steps, in float32; PyTorch
must be its CPU build there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from compare.networks import EPOCHS, PAPER_EPOCHS, epochs
from compare.ranks import join_torch, launcher, leave_torch
from compare.report import Runs, busy_of, markdown, rows, save_pictures, save_tables
from compare.sides import train
from compare.spec import SIDES, Outcome, Spec, busy, load

import alpha
from alpha.autograd.memory_mode import MODES
from alpha.core.numerics import PRECISIONS, computed_precision
from alpha.distributed.membership.environment import place_of
from alpha.errors import DeviceError, TrainingError
from alpha.run import number_of_gpus
from alpha.train import make_folder, new_folder
from alpha.train.commands.command_line import Parser, command, join_ranks, names, natural_int, path, positive_int

GPU_BATCH = {32: 512, 128: 256}
CAUSE = re.compile(r"^(compare_pytorch: .*|[\w.]*(?:Error|Exception): .*)$", re.MULTILINE)  # of ranks that end together
CPU_EPOCHS, CPU_STEPS, CPU_BATCH = 2, 3, 32


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="compare_pytorch", description="Alpha against PyTorch: the paper's Experiment 2.")
    add = parser.add_argument
    add(
        "--models",
        type=names(tuple(EPOCHS)),
        help=f"with commas between, of {','.join(EPOCHS)} (default: the paper's first four on a GPU, else resnet18)",
    )
    add(
        "--data",
        default="cifar10",
        metavar="cifar10|sample|random|PATH",
        help="PATH: a folder of images for each class",
    )
    add("--image-size", type=int, choices=[32, 128], default=32)
    add("--precision", choices=[*PRECISIONS, "all"], default="float32")
    add("--memory-mode", choices=MODES, default="fast", help="of Alpha (default: fast)")
    add(
        "--epochs",
        type=positive_int,
        help="default: the paper's on a GPU (25, 30, 35, 40, at 128x128 50, 50, 30, 40; for others 25), 2 on a CPU",
    )
    most = f"at most so many per epoch (default: all, {CPU_STEPS} on a CPU)"
    add("--steps", type=positive_int, help=f"{most}; random images have 40 batches of 512, or 16 of 256 at 128x128")
    add(
        "--batch-size",
        type=positive_int,
        help=f"of each rank (default: 512, at 128x128 256, on a GPU, {CPU_BATCH} on a CPU)",
    )
    add("--stream", action="store_true", help="copy images batch by batch, also where the device has room for all")
    add("--seeds", type=positive_int, default=1, help="runs of each side, with seeds 0, 1, ..; tables show their means")
    add("--seed", type=natural_int, default=0, help="the first seed")
    add("--sides", type=names(SIDES), default=list(SIDES), help=f"with commas between (default: {','.join(SIDES)})")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add("--gpus", type=positive_int, default=1, help="train so many networks at a time, each on a GPU of its own")
    add(
        "--ranks",
        type=positive_int,
        default=1,
        metavar="N",
        help="train each network on N GPUs together (without a GPU in N processes), with a --batch-size each",
    )
    add("--output", type=path, metavar="DIR", help="default: runs/compare, or runs/compare-2 and so on if that exists")
    add("--losses", action="store_true", help="only the losses of ten (or --steps) steps of each side, without dropout")
    add("--worker", nargs=2, metavar=("SPEC", "RESULT"), help=argparse.SUPPRESS)
    add("--meeting", default="", help=argparse.SUPPRESS)  # of the ranks of --losses
    args = parser.parse_args(arguments)
    if args.ranks > 1 and args.gpus > 1:
        parser.error("--ranks trains one network at a time, on all of its GPUs: leave --gpus out")
    return args  # type: ignore[no-any-return]


def specs(args: argparse.Namespace, device: str) -> Iterator[Spec]:
    """The runs of one side, for each network, precision and seed."""
    gpu = device == "cuda"
    for model in args.models or (PAPER_EPOCHS if gpu else ["resnet18"]):
        for precision in PRECISIONS if args.precision == "all" else [args.precision]:
            for seed in range(args.seed, args.seed + args.seeds):
                yield Spec(
                    side="Alpha",
                    model=model,
                    data=args.data,
                    image_size=args.image_size,
                    device=device,
                    precision=precision,
                    epochs=args.epochs or (epochs(model, args.image_size) if gpu else CPU_EPOCHS),
                    batch_size=args.batch_size or (GPU_BATCH[args.image_size] if gpu else CPU_BATCH),
                    seed=seed,
                    steps=args.steps or (None if gpu else CPU_STEPS),
                    stream=args.stream,
                    ranks=args.ranks,
                    meeting=args.meeting,
                    memory_mode=args.memory_mode,
                )


def run(spec: Spec, gpu: str | None = None) -> Outcome:
    """Train in a process of its own, which sees only that GPU (None: all that are visible here), or in its ranks."""
    environment = None if gpu is None else {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "spec.json", Path(folder) / "result.json"
        many = spec.ranks > 1
        spec = replace(spec, meeting=meeting_in(folder)) if many else spec
        given.write_text(json.dumps(asdict(spec)))
        python = launcher(spec.device, spec.ranks) if many else [sys.executable]
        command = [*python, __file__, "--worker", str(given), str(result)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode or not result.exists():
            reason = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            reason = CAUSE.findall(done.stderr)[:1] or reason if many else reason
            raise TrainingError(f"{spec.side}, {spec.model}, {spec.precision}: {reason[0]}")
        return Outcome(**json.loads(result.read_text()))


def meeting_in(folder: str) -> str:
    """The URL of a file of that folder by which ranks of PyTorch find each other."""
    return (Path(folder) / "meeting").as_uri()


def check_ranks(args: argparse.Namespace, device: str) -> None:
    """Prepare what several ranks share: fetch and decode the data set, which each of them reads then.

    Raises:
        DeviceError: there are fewer GPUs.
    """
    if args.ranks == 1:
        return
    found = number_of_gpus(os.environ) if device == "cuda" else None
    if found is not None and found < args.ranks:
        raise DeviceError(f"--ranks {args.ranks}: each rank needs a GPU of its own, and {found} can be used")
    if args.data != "random":
        load(args.data, args.image_size)


def compare(args: argparse.Namespace) -> None:
    device = device_of(args)
    # without a GPU there are no CUDA graphs, and no compiler may be there
    sides = [side for side in args.sides if device == "cuda" or side != "PyTorch best"]
    if not sides:
        raise DeviceError("--sides: PyTorch at its best needs a GPU")
    check_ranks(args, device)
    idle: SimpleQueue[str | None] = SimpleQueue()
    for gpu in gpus(args.gpus, device):
        idle.put(gpu)
    folder = args.output or new_folder(Path("runs/compare"))
    make_folder(folder)
    used = busy(device, args.ranks)
    if used:
        print(
            f"the machine is busy ({used}): speeds are not comparable, which the table and the pictures say", flush=True
        )
    todo = [replace(spec, busy=used) for spec in specs(args, device)]
    runs: Runs = {(spec.model, computed_precision(device, spec.precision)): {} for spec in todo}
    saving = Lock()

    def train_network(model: str) -> None:
        gpu = idle.get()
        try:
            for spec in (replace(spec, side=side) for spec in todo if spec.model == model for side in sides):
                outcome = run(spec, gpu)
                with saving:
                    runs[model, computed_precision(device, spec.precision)].setdefault(spec.side, []).append(outcome)
                    print(progress(spec, outcome), flush=True)
                    save_tables(folder, runs, title(runs, args.image_size))  # stays if a later side fails
        finally:
            idle.put(gpu)

    with ThreadPoolExecutor(args.gpus) as pool:
        networks = [pool.submit(train_network, model) for model in dict.fromkeys(spec.model for spec in todo)]
    for network in networks:
        network.result()
    heading = title(runs, args.image_size)
    print("\n" + markdown(rows(runs), heading))
    saved = ["table.csv", "table.md", *save_pictures(folder, runs, heading, todo[0])]
    print(f"saved in {folder}: {', '.join(saved)}")


def gpus(count: int, device: str) -> Sequence[str | None]:
    """The first `count` of the visible GPUs, as CUDA_VISIBLE_DEVICES names them; None stands for the default GPU."""
    if count == 1:
        return [None]
    if device == "cpu":
        raise DeviceError(f"--gpus {count}: there is no GPU")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = visible.split(",") if visible else [str(number) for number in range(count)]
    if len(found) < count:
        raise DeviceError(f"--gpus {count}: CUDA_VISIBLE_DEVICES is {visible}, so {len(found)} can be used")
    return found[:count]


def progress(spec: Spec, outcome: Outcome) -> str:
    accuracy = f", test {outcome.test_accuracy:.2%}" if spec.steps is None else ""
    line = f"{spec.model} {spec.precision} seed {spec.seed} {spec.side:13} {outcome.epoch_seconds:.3f} s per epoch"
    return f"{line}, loss {outcome.losses[-1]:.4f}{accuracy}  {outcome.note}".rstrip()


def title(runs: Runs, image_size: int) -> str:
    """The data set, the device and the versions of what was compared."""
    outcomes = {side: seeds[0] for sides in runs.values() for side, seeds in sides.items()}
    found = {side.split()[0]: outcome.version for side, outcome in outcomes.items()}
    any_one = next(iter(outcomes.values()))
    each = "" if any_one.ranks == 1 else f" {on_each(any_one.ranks, any_one.gpu)}"
    versions = [f"{name} {version}" for name, version in found.items()]
    streamed = ["streamed"] if any_one.streamed else []
    steps = [f"{any_one.steps} steps per epoch"] if any_one.steps else []
    what = f"{any_one.data} at {image_size}x{image_size}", f"batch {any_one.batch_size}{each}", *steps, *streamed
    marks = [f"THE MACHINE WAS BUSY ({found}): its speeds are not comparable" for found in busy_of(runs)[:1]]
    return ", ".join([*what, where(any_one), *versions, *marks])


def on_each(ranks: int, gpu: object) -> str:
    """Text behind the size of a batch that each of several ranks has."""
    return f"on each of {ranks} GPUs" if gpu else f"in each of {ranks} processes"


def device_of(args: argparse.Namespace) -> str:
    """The device to run on, found by another process: this one would hold memory of the GPU."""
    command = f"import alpha; print(alpha.get_device({args.device!r}).name)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeviceError(done.stderr.strip().splitlines()[-1].partition(": ")[2])
    return done.stdout.strip()


def where(outcome: Outcome) -> str:
    """The GPU, or how many of them; or how many cores of which CPU."""
    if outcome.gpu:
        return outcome.gpu if outcome.ranks == 1 else f"{outcome.ranks} x {outcome.gpu}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{cores} cores of {models[0] if models else platform.machine()}"


def losses(args: argparse.Namespace) -> None:
    """Print losses of all sides, which run in this process, or in each of the ranks that a launcher has started."""
    from compare.losses import compare_losses

    if args.ranks > 1:
        join_ranks(args.device)
        join_torch(args.device, args.meeting)
    chosen = list(specs(args, alpha.get_device(args.device).name))
    each = "" if args.ranks == 1 else f" {on_each(args.ranks, chosen[0].device == 'cuda')},"
    print(f"batch {chosen[0].batch_size}{each} on {chosen[0].device}")
    train_set, _, _ = load(args.data, args.image_size)
    for model in dict.fromkeys(spec.model for spec in chosen):
        print(model)
        print("\n".join(compare_losses([s for s in chosen if s.model == model], train_set, args.steps or 10)))
    if args.ranks > 1:
        leave_torch()


def losses_of_ranks(args: argparse.Namespace, arguments: list[str]) -> int:
    """The status of this program with the same arguments as several ranks."""
    device = device_of(args)
    check_ranks(args, device)
    with tempfile.TemporaryDirectory() as folder:
        own = [*arguments, "--device", device, "--meeting", meeting_in(folder)]
        return subprocess.run([*launcher(device, args.ranks), __file__, *own], check=False).returncode


@command("compare_pytorch")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    if find_spec("torch") is None:
        print("compare_pytorch: skipped, PyTorch is not installed (pip install torch)")
        return 0
    if args.worker:
        spec = Spec(**json.loads(Path(args.worker[0]).read_text()))
        outcome = train(spec)
        if spec.ranks == 1 or place_of().rank == 0:
            Path(args.worker[1]).write_text(json.dumps(asdict(outcome)))
    elif args.losses and args.ranks > 1 and not args.meeting:
        return losses_of_ranks(args, sys.argv[1:] if arguments is None else arguments)
    elif args.losses:
        losses(args)
    else:
        compare(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
