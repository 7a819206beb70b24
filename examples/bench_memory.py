"""The plan of a training's memory beside what it takes: `Trainer.memory_plan`, `alpha.memory_stats` and NVML.

    python examples/bench_memory.py                            # the paper's networks at 32x32 and 128x128, on the GPU
    python examples/bench_memory.py --models vgg16 --modes captured --precision bf16
    python examples/bench_memory.py --gpu sm_90a               # the plans alone, for a GPU that need not be there

Each network is planned and then trained for some steps in a process of its own, with Adam and random images on the GPU.
The plan is made before the first step. Numbers are MB of 10^6 bytes; an error is that of the plan, in percent.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from compare.networks import EPOCHS, PAPER_EPOCHS, network
from compare.spec import load, process_bytes

import alpha
from alpha.core.numerics import PRECISIONS
from alpha.data import DataLoader
from alpha.errors import AlphaError
from alpha.train import Trainer
from alpha.train.commands.command_line import Parser, command, names, positive_int

BATCH = {32: 512, 128: 256}
MODES = ("captured", "eager")
LINE = "{:10} {:>4} {:>5} {:9} {:>20} {:>20} {:>20} {:>8} {:>9}"
STEPS = 8  # from the sixth on a captured step replays


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="bench_memory", description="The plan of a training's memory beside what it takes.")
    add = parser.add_argument
    add(
        "--models",
        type=names(tuple(EPOCHS)),
        default=list(PAPER_EPOCHS),
        help=f"with commas between, of {','.join(EPOCHS)} (default: the paper's first four)",
    )
    add("--image-size", type=int, choices=[32, 128], help="default: both")
    add("--modes", type=names(MODES), default=list(MODES), help="captured,eager (default: both)")
    add("--precision", choices=PRECISIONS, default="float32")
    add("--batch-size", type=positive_int, help="default: 512 (128x128: 256)")
    add("--gpu", metavar="ARCH", help="plan for this architecture, such as sm_90a, and train nothing")
    add("--one", action="store_true", help=argparse.SUPPRESS)  # the first of them, in this process
    return parser.parse_args(arguments)


def measure(model: str, size: int, mode: str, args: argparse.Namespace) -> dict[str, Any]:
    """Bytes by the plan, and by the device and NVML if it was trained."""
    train_set, *_ = load("random", size)
    alpha.manual_seed(0)
    trained = network(model, len(train_set.classes), size).to("cpu" if args.gpu else "cuda")
    optimizer = alpha.optim.Adam(trained.parameters(), lr=1e-3)
    captured = mode == "captured"
    device = "cpu" if args.gpu else "cuda"
    trainer = Trainer(trained, optimizer, device, precision=args.precision, capture=captured, resident=True)
    loader = DataLoader(train_set, args.batch_size or BATCH[size], shuffle=True)
    opened = process_bytes(True)
    plan = trainer.memory_plan(loader, gpu=args.gpu or None)
    found = {"plan": (plan.live, plan.reserved, plan.process), "batch": plan.batch}
    if not args.gpu:
        alpha.reset_peak_memory_stats("cuda")
        trainer.train_epoch(loader, STEPS)
        stats = alpha.memory_stats("cuda")
        process = process_bytes(True)
        beside = process - stats.reserved if process else 0
        found |= {"seen": (stats.peak, stats.reserved, process), "beside": beside, "opened": opened}
    return found


def in_a_process(model: str, size: int, mode: str, args: argparse.Namespace) -> dict[str, Any]:
    """The same as `measure`, in a process of its own."""
    given = ["--models", model, "--image-size", str(size), "--modes", mode, "--precision", args.precision, "--one"]
    given += ["--gpu", args.gpu] if args.gpu else []
    given += ["--batch-size", str(args.batch_size)] if args.batch_size else []
    run = subprocess.run([sys.executable, __file__, *given], stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise AlphaError(f"{model} at {size}x{size}, {mode}: its process ended with {run.returncode}")
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def row(model: str, size: int, mode: str, found: dict[str, Any]) -> str:
    """The line of one network."""
    seen = found.get("seen", (0, 0, 0))
    cells = [
        f"{planned / 1e6:,.0f} {real / 1e6:,.0f} {planned / real - 1:+.1%}" if real else f"{planned / 1e6:,.0f}"
        for planned, real in zip(found["plan"], seen, strict=True)
    ]
    others = [f"{found[key] / 1e6:,.0f}" if found.get(key) else "-" for key in ("opened", "beside")]
    return LINE.format(model, size, found["batch"], mode, *cells, *others)


@command("bench_memory")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    if args.one:
        print(json.dumps(measure(args.models[0], args.image_size, args.modes[0], args)))
        return 0
    print("plan, seen and error of each; opened: the process before the plan; beside: NVML less what is reserved")
    print(LINE.format("network", "size", "batch", "mode", "live", "reserved", "process", "opened", "beside"))
    worst = 0.0
    for size in [args.image_size] if args.image_size else list(BATCH):
        for model in args.models:
            for mode in args.modes:
                found = in_a_process(model, size, mode, args)
                print(row(model, size, mode, found), flush=True)
                pairs = zip(found["plan"], found.get("seen", (0, 0, 0)), strict=True)
                worst = max([worst, *(abs(planned / real - 1) for planned, real in pairs if real)])
    if not args.gpu:
        print(f"largest error of a plan: {worst:.2%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
