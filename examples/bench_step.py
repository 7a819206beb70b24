"""Load of the GPU while a captured step is trained: the sum of the times of its kernels over the time of an epoch.

    python examples/bench_step.py                                      # CIFAR-10's size, all four networks, float32
    python examples/bench_step.py --models vit_tiny --kernels 20       # which kernels take the time
    python examples/bench_step.py --models vgg16 --image-size 128 --precision all --kernels 12
    python examples/bench_step.py --models resnet18 --precision bf16 --profile  # its layers, captured and eager
    taskset --cpu-list 0 python examples/bench_step.py                 # on a host of one core

The images lie on the GPU; they are random unless --data names a set. The time of a step is the median of the epochs but
the first two. The times of the kernels come from one more epoch, under `alpha.profile`, which needs `cupti-python`
(pip install "alpha-cks[profile]"). With --profile its tables are printed, of captured and of eager steps.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from compare.networks import EPOCHS, PAPER_EPOCHS, network
from compare.spec import load

import alpha
from alpha.core.numerics import PRECISIONS
from alpha.data import DataLoader
from alpha.errors import DeviceError
from alpha.runtime.cuda.graphs import CudaRecording
from alpha.step import Profile
from alpha.train import Trainer
from alpha.train.commands.command_line import Parser, command, names, natural_int, positive_int

BATCH = {32: 512, 128: 256}
LINE = "{:14} {:9} {:>10} {:>10} {:>8}"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="bench_step", description="How busy the GPU is while a captured step is trained.")
    add = parser.add_argument
    add(
        "--models",
        type=names(tuple(EPOCHS)),
        default=list(PAPER_EPOCHS),
        help=f"with commas between, of {','.join(EPOCHS)} (default: the paper's first four)",
    )
    add("--data", default="random", metavar="SET", help="random (default), cifar10, or what compare_pytorch.py takes")
    add("--image-size", type=int, choices=[32, 128], default=32)
    add("--precision", choices=[*PRECISIONS, "all"], default="float32")
    add("--batch-size", type=positive_int, help="default: 512 (128x128: 256)")
    add("--epochs", type=positive_int, default=5, help="that are timed (default: 5)")
    add("--steps", type=positive_int, help="at most so many per epoch (default: all)")
    add("--kernels", type=natural_int, default=0, metavar="N", help="print the N kernels that take most of the time")
    add("--profile", action="store_true", help="print tables by layer and operator, of captured and of eager steps")
    add("--one-stream", action="store_true", help="no gradients of filters beside the other work")
    add("--trace", metavar="FILE", help="write a trace of the last epoch of each, for ui.perfetto.dev")
    return parser.parse_args(arguments)


def profiled(trainer: Trainer, loader: DataLoader, steps: int) -> Profile:
    """The profile of one epoch, with the times of single kernels."""
    with alpha.profile() as profile:
        trainer.train_epoch(loader, steps)
    if not profile.of_kernels:
        raise DeviceError(profile.title)
    return profile


def measure(model: str, precision: str, args: argparse.Namespace, capture: bool = True) -> None:
    """Prints the line of one network in one precision."""
    train_set, *_ = load(args.data, args.image_size)
    alpha.manual_seed(0)
    trained = network(model, len(train_set.classes), args.image_size).to("cuda")
    optimizer = alpha.optim.Adam(trained.parameters(), lr=1e-3)
    trainer = Trainer(trained, optimizer, "cuda", precision=precision, capture=capture, resident=True)
    loader = DataLoader(train_set, args.batch_size or BATCH[args.image_size], shuffle=True)
    steps = min(len(loader), args.steps or len(loader))
    seconds = [trainer.train_epoch(loader, steps).seconds for _ in range(args.epochs + 2)][2:]
    step = statistics.median(seconds) / steps * 1e3
    profile = profiled(trainer, loader, steps)
    busy = sum(event.ms for event in profile.events if event.kind == "kernel") / steps
    name = model if capture else f"{model} eager"
    print(LINE.format(name, precision, f"{step:.3f}", f"{busy:.3f}", f"{busy / step:.1%}"), flush=True)
    if args.kernels:
        print(profile.table("kernel", args.kernels, steps), flush=True)
    if args.profile:
        print(profile.table("layer", steps=steps), profile.table("operator", steps=steps), sep="\n\n", flush=True)
        print(f"{profile.total_ms / steps:.3f} ms per step under the profile, {step:.3f} without\n", flush=True)
    if args.trace:
        profile.save_trace(args.trace)


@command("bench_step")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    alpha.get_device("cuda")
    CudaRecording.one_stream = args.one_stream
    print(LINE.format("network", "precision", "ms / step", "kernels", "busy"))
    for precision in PRECISIONS if args.precision == "all" else [args.precision]:
        for model in args.models:
            measure(model, precision, args)
            if args.profile:
                measure(model, precision, args, capture=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
