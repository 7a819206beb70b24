"""Load of the GPU while a captured step is trained: the sum of the times of its kernels over the time of an epoch.

    python examples/bench_step.py                                      # CIFAR-10's size, all four networks, float32
    python examples/bench_step.py --models vit_tiny --kernels 20       # which kernels take the time
    python examples/bench_step.py --models vgg16 --image-size 128 --precision all --kernels 12
    taskset --cpu-list 0 python examples/bench_step.py                 # on a host of one core

The images lie on the GPU; they are random unless --data names a set. The time of a step is the median of the epochs but
the first two. The times of the kernels come from one more epoch, under the profiler of PyTorch, which must be
installed: it sees the kernels of the whole process.
"""

from __future__ import annotations

import argparse
import collections
import re
import statistics
import sys
from typing import Any

from compare.networks import EPOCHS, PAPER_EPOCHS, network
from compare.spec import load

import alpha
from alpha.core.numerics import PRECISIONS
from alpha.data import DataLoader
from alpha.errors import ConfigError, DeviceError
from alpha.train import Trainer
from alpha.train.commands.command_line import Parser, command, names, natural_int, positive_int

BATCH = {32: 512, 128: 256}
LINE = "{:10} {:9} {:>10} {:>10} {:>8}"


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
    return parser.parse_args(arguments)


def kernel_times(trainer: Trainer, loader: DataLoader, steps: int | None) -> collections.Counter[str]:
    """Nanoseconds of each kernel in one epoch, by its name."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        trainer.train_epoch(loader, steps)
    results: Any = profiler.profiler
    found: collections.Counter[str] = collections.Counter()
    for event in results.kineto_results.events():
        if event.device_type() == DeviceType.CUDA and not event.name().startswith(("Memcpy", "Memset")):
            found[event.name()] += event.duration_ns()
    return found


def measure(model: str, precision: str, args: argparse.Namespace) -> None:
    """Prints the line of one network in one precision."""
    train_set, *_ = load(args.data, args.image_size)
    alpha.manual_seed(0)
    trained = network(model, len(train_set.classes), args.image_size).to("cuda")
    optimizer = alpha.optim.Adam(trained.parameters(), lr=1e-3)
    trainer = Trainer(trained, optimizer, "cuda", precision=precision, capture=True, resident=True)
    loader = DataLoader(train_set, args.batch_size or BATCH[args.image_size], shuffle=True)
    steps = min(len(loader), args.steps or len(loader))
    seconds = [trainer.train_epoch(loader, steps).seconds for _ in range(args.epochs + 2)][2:]
    step = statistics.median(seconds) / steps * 1e3
    kernels = kernel_times(trainer, loader, steps)
    busy = sum(kernels.values()) / steps / 1e6
    print(LINE.format(model, precision, f"{step:.3f}", f"{busy:.3f}", f"{busy / step:.1%}"), flush=True)
    for name, time in kernels.most_common(args.kernels):
        print(f"    {time / steps / 1e6:8.3f} ms  {re.sub(r'[(<].*', '', name)}", flush=True)


@command("bench_step")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        alpha.get_device("cuda")
        import torch

        if not torch.cuda.is_available():
            raise DeviceError("its times of kernels need PyTorch's CUDA build and a GPU")
        torch.zeros(1, device="cuda")  # the profiler needs PyTorch's context
        print(LINE.format("network", "precision", "ms / step", "kernels", "busy"))
        for precision in PRECISIONS if args.precision == "all" else [args.precision]:
            for model in args.models:
                measure(model, precision, args)
    except ImportError as error:
        raise ConfigError("its times of kernels need PyTorch (pip install torch)") from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
