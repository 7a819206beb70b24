"""Milliseconds of an eager training step, Alpha beside PyTorch: both launch each kernel from Python.

    python examples/bench_eager.py                                     # ResNet18, tf32, batch 512
    python examples/bench_eager.py --models resnet18,vgg16 --precision bf16 --batch-size 64

The batch lies on the GPU. PyTorch's side is channels_last with cudnn.benchmark and a fused Adam, neither compiled nor
captured. The sides run in turns; each figure is the median of the rounds. A captured step, which does not wait for
Python, is measured by bench_step.py. The cpu computes in float32 whatever is asked for, so its lines say float32.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from compare.networks import EPOCHS, network, twin

import alpha
from alpha.core.numerics import PRECISIONS, computed_precision
from alpha.errors import ConfigError
from alpha.nn import functional as F
from alpha.train.commands.command_line import Parser, command, names, positive_int

LINE = "{:14} {:9} {:>9} {:>9} {:>7}"
WARM_STEPS, CLASSES, IMAGE_SIZE = 5, 10, 32
Side = tuple[Callable[[], object], Callable[[], object]]  # a step, and what waits until the device has finished


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="bench_eager", description="Milliseconds of an eager training step beside PyTorch's.")
    add = parser.add_argument
    add("--models", type=names(tuple(EPOCHS)), default=["resnet18"], help=f"with commas between, of {','.join(EPOCHS)}")
    add("--precision", type=names(PRECISIONS), default=["tf32"], help="with commas between")
    add("--batch-size", type=positive_int, default=512)
    add("--steps", type=positive_int, default=30, help="of one round (default: %(default)s)")
    add("--rounds", type=positive_int, default=5, help="of each side, in turns (default: %(default)s)")
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    return parser.parse_args(arguments)


def images(batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers (batch_size, IMAGE_SIZE, IMAGE_SIZE, 3) and labels (batch_size,)."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((batch_size, IMAGE_SIZE, IMAGE_SIZE, 3), np.float32), rng.integers(
        0, CLASSES, batch_size
    )


def alpha_step(name: str, precision: str, device: Any, batch_size: int) -> Side:
    """Alpha's side."""
    model = network(name, CLASSES, IMAGE_SIZE).to(device)
    optimizer = alpha.optim.Adam(model.parameters(), lr=1e-3)
    pixels, labels = (alpha.tensor(array, device=device) for array in images(batch_size))

    def step() -> None:
        optimizer.zero_grad()
        with alpha.precision(precision):
            F.cross_entropy(model(pixels), labels).backward()
        optimizer.step()

    if device.name == "cuda":
        alpha.compile_kernels(step)
    return step, device.synchronize


def torch_step(name: str, precision: str, device: Any, batch_size: int) -> Side:
    """PyTorch's side."""
    import torch

    gpu = device.name == "cuda"
    model = twin(name, CLASSES, IMAGE_SIZE).to(device.name, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True if gpu else None)
    pixels, labels = (torch.from_numpy(array).to(device.name) for array in images(batch_size))
    pixels = pixels.permute(0, 3, 1, 2)
    torch.backends.cudnn.benchmark = True
    tf32 = precision != "float32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.name, torch.bfloat16, enabled=precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(model(pixels), labels)
        loss.backward()
        optimizer.step()

    return step, torch.cuda.synchronize if gpu else lambda: None


def milliseconds(step: Callable[[], object], wait: Callable[[], object], steps: int) -> float:
    """Milliseconds of one of `steps` steps in a row."""
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - start) / steps * 1e3


def measure(name: str, precision: str, args: argparse.Namespace) -> tuple[float, float]:
    """Alpha's and PyTorch's milliseconds per step."""
    device = alpha.get_device(args.device)
    sides = [make(name, precision, device, args.batch_size) for make in (alpha_step, torch_step)]
    for step, wait in sides:
        milliseconds(step, wait, WARM_STEPS)
    rounds = [[milliseconds(*side, args.steps) for side in sides] for _ in range(args.rounds)]
    ours, theirs = (statistics.median(times) for times in zip(*rounds, strict=True))
    return ours, theirs


@command("bench_eager")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        device = alpha.get_device(args.device).name
        precisions = dict.fromkeys(computed_precision(device, asked) for asked in args.precision)
        print(LINE.format("network", "precision", "Alpha ms", "PyTorch", "ratio"))
        for precision in precisions:
            for name in args.models:
                ours, theirs = measure(name, precision, args)
                print(LINE.format(name, precision, f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.2f}x"), flush=True)
    except ImportError as error:
        raise ConfigError("the other side needs PyTorch (pip install torch)") from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
