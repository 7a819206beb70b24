"""Command alpha-bench: measure how fast this machine trains and predicts with networks of Alpha.

    alpha-bench                                              # ResNet18 on images of 32x32
    alpha-bench resnet18,vgg16 --image-size 128 --precision all
    alpha-bench resnet18 --profile layer                     # and where a step goes
    alpha-bench torchvision.resnet50 --image-size 224 --batch-size 64 --device cuda

Images are random and lie on the device. A step is forward, backward and an update by Adam, captured where the device
can; its time is the median of several windows. To see PyTorch beside Alpha, use examples/compare_pytorch.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import alpha
from alpha.core.numerics import PRECISIONS, computed_precision
from alpha.errors import OutOfMemoryError
from alpha.module.module import Module
from alpha.nn import functional as F
from alpha.runtime import Device
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.train.commands.chosen_network import arguments_of, built, names_as_help, networks
from alpha.train.commands.command_line import Parser, command, positive_float, positive_int

BATCHES = {"cuda": 512, "cpu": 32}  # images of 32x32; of larger ones so many pixels, at least 16 images
LEAST_BATCH = 16
PROFILED = 3  # steps
WARM, WINDOWS = 4, 5  # steps that are not timed: a captured step is one from its third call on
LINE = "{:22} {:>5} {:9} {:>9} {:>9} {:>9} {:>8}"
HEAD = LINE.format("network", "batch", "precision", "ms/step", "trained", "predicted", "peak MB")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="alpha-bench", description="Measure training steps of networks on this machine.")
    add = parser.add_argument
    add(
        "networks",
        type=networks,
        nargs="?",
        default=["resnet18"],
        metavar="NETWORKS",
        help=f"with commas between; default: resnet18; also {names_as_help()}",
    )
    add("--image-size", type=positive_int, default=32, metavar="N", help="height and width in pixels; default: 32")
    add("--classes", type=positive_int, default=10, metavar="N", help="default: 10")
    add("--batch-size", type=positive_int, metavar="N", help="default: 512 on a GPU, 32 on a CPU, fewer large images")
    add("--precision", choices=[*PRECISIONS, "all"], default="float32", help="default: float32; a CPU has no other")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: auto")
    add("--seconds", type=positive_float, default=2.0, metavar="S", help="of each measurement; default: 2")
    add("--profile", choices=["layer", "operator", "kernel"], metavar="BY", help="print where a step goes: %(choices)s")
    args: argparse.Namespace = parser.parse_args(arguments)
    return args


def batch_of(device: Device, image_size: int) -> int:
    """The default batch for images of a size."""
    largest = BATCHES[device.name]
    return max(min(LEAST_BATCH, largest), min(largest, largest * 32**2 // image_size**2))


def milliseconds(device: Device, step: Callable[[], Any], seconds: float) -> float:
    """Median time of a step over windows that take so many seconds in all."""

    def window(steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            step()
        device.synchronize()
        return 1e3 * (time.perf_counter() - start) / steps

    window(WARM)
    steps = max(1, round(1e3 * seconds / WINDOWS / window(1)))
    return statistics.median(window(steps) for _ in range(WINDOWS))


class Measured(NamedTuple):
    """Measurements of a network.

    Attributes:
        numbers: milliseconds of a step, images per second trained and predicted, and the peak in MB.
        table: where a step goes, if that was asked for.
    """

    numbers: tuple[str, ...]
    table: str


def measured(model: Module, precision: str, device: Device, batch: int, args: argparse.Namespace) -> Measured:
    """Measurements of a network.

    Raises:
        OutOfMemoryError: the batch is too large.
    """
    size = args.image_size
    model = model.to(device).train()
    optimizer = alpha.optim.Adam(model.parameters())
    rng = np.random.default_rng(0)
    x = alpha.tensor(rng.random((batch, size, size, 3), dtype=np.float32) * 2 - 1, device=device)
    y = alpha.tensor(rng.integers(0, args.classes, batch).astype(np.int32), device=device)

    @alpha.capture
    def train() -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    @alpha.capture
    def predict() -> Any:
        with alpha.no_grad():
            return model(x)

    with alpha.precision(precision):
        if isinstance(device, CudaDevice):
            alpha.compile_kernels(train)
        device.reset_peak()
        step = milliseconds(device, train, args.seconds)
        peak = device.memory_stats().peak / 1e6
        table = ""
        if args.profile:
            with alpha.profile() as profile:
                for _ in range(PROFILED):
                    train()
            table = profile.table(args.profile, steps=PROFILED)
        model.eval()
        forward = milliseconds(device, predict, args.seconds)
    rates = [f"{1e3 * batch / ms:,.0f}" for ms in (step, forward)]
    return Measured((f"{step:.2f}", *rates, f"{peak:,.0f}"), table)


@command("alpha-bench")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    device = alpha.get_device(args.device)
    wanted = PRECISIONS if args.precision == "all" else (args.precision,)
    precisions = list(dict.fromkeys(computed_precision(device.name, precision) for precision in wanted))
    batch = args.batch_size or batch_of(device, args.image_size)
    alpha.manual_seed(0)
    size = args.image_size
    models = {name: built(name, arguments_of(name, args.classes, size), size) for name in args.networks}
    where = device.properties.name if isinstance(device, CudaDevice) else "the CPU"
    print(f"Alpha {alpha.__version__} on {where}, images of {size}x{size}, images/s\n{HEAD}")
    failed = False
    for name, model in models.items():
        for precision in precisions:
            try:
                found = measured(model, precision, device, batch, args)
                print(LINE.format(name.removeprefix("torchvision."), batch, precision, *found.numbers), flush=True)
                if found.table:
                    print(found.table, flush=True)
            except OutOfMemoryError as error:
                failed = True
                print(f"{name} {precision}: {error}; give a smaller --batch-size", file=sys.stderr, flush=True)
            device.trim()
        model.to("cpu")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
