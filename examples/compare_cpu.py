"""Alpha against PyTorch on this CPU: images a second of training steps of the paper's ResNet18.

    pip install torch --index-url https://download.pytorch.org/whl/cpu
    python examples/compare_cpu.py

Both train the same network from the same weights on the same batch, with Adam, in float32, on the
same cores, in turns: a round is some steps of each. The median over the rounds counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import alpha
from alpha import models, nn
from alpha.train.options import Parser, positive_int

Step = Callable[[], float]  # one training step; its loss


def alpha_step(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> Step:
    optimizer = alpha.optim.Adam(model.parameters(), lr=1e-3)
    x, y = alpha.tensor(images), alpha.tensor(labels)

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def torch_step(
    torch: Any, model: nn.Module, images: np.ndarray, labels: np.ndarray, channels_last: bool
) -> Step:
    twin = torch_resnet18(torch)
    twin.load_state_dict(
        {
            name: torch.from_numpy(value.transpose(0, 3, 1, 2) if value.ndim == 4 else value)
            for name, value in model.state_dict().items()
        },
        strict=False,  # PyTorch's BN counts its batches
    )
    layout = torch.channels_last if channels_last else torch.contiguous_format
    twin.to(memory_format=layout)
    optimizer = torch.optim.Adam(twin.parameters(), lr=1e-3)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(memory_format=layout)
    y = torch.from_numpy(labels).long()

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(twin(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def torch_resnet18(torch: Any) -> Any:
    """The network of `alpha.models.resnet18()` in PyTorch, under the same names."""
    nn = torch.nn

    def conv(inputs: int, outputs: int, size: int, stride: int) -> Any:
        return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
            self.conv2, self.bn2 = conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
            self.act = nn.LeakyReLU(inplace=True)
            self.downsample = (
                nn.Sequential(conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs))
                if stride > 1
                else nn.Identity()
            )

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(self.act(self.bn1(self.conv1(x)))))
            return self.act(y + self.downsample(x))

    class ResNet18(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = conv(3, 64, 7, 2), nn.BatchNorm2d(64)
            self.act = nn.LeakyReLU(inplace=True)
            widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
            self.blocks = nn.Sequential(
                *(block for i, o, s in widths for block in (Block(i, o, s), Block(o, o, 1)))
            )
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Sequential(
                nn.Flatten(), nn.Dropout(0.1), nn.Linear(512, 128), nn.LeakyReLU(inplace=True),
                nn.Dropout(0.1), nn.Linear(128, 10),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return self.fc(self.pool(self.blocks(self.act(self.bn1(self.conv1(x))))))

    return ResNet18()


def measure(steps: dict[str, Step], batch: int, rounds: int, length: int) -> dict[str, list[float]]:
    """Images a second of each, one figure a round."""
    for name, step in steps.items():  # the first step allocates and chooses kernels
        print(f"{name:24} first loss {step():.4f}", flush=True)
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(length):
                step()
            rates[name].append(batch * length / (time.perf_counter() - start))
        line = "   ".join(f"{name} {values[-1]:.1f}" for name, values in rates.items())
        print(f"round {turn + 1}/{rounds}: {line}", flush=True)
    return rates


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="compare_cpu", description="Alpha against PyTorch on this CPU.")
    parser.add_argument("--batch-size", type=positive_int, default=128)
    parser.add_argument("--rounds", type=positive_int, default=5)
    parser.add_argument("--steps", type=positive_int, default=3, help="of each in a round")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        import torch
    except ImportError:
        print("compare_cpu: skipped, PyTorch is not installed (pip install torch)")
        return 0
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    print(
        f"ResNet18, batch {args.batch_size}, {cores} cores of {processor()}: alpha "
        f"{alpha.__version__}, numpy {np.__version__}, torch {torch.__version__}"
    )
    if (load := os.getloadavg()[0]) > 0.5:  # PyTorch's threads wait by spinning, and suffer most
        print(f"the machine is busy (load average {load:.1f}): these figures are not comparable")
    alpha.manual_seed(0)
    model = models.resnet18()
    images = alpha.rng.uniform((args.batch_size, 32, 32, 3), -1.0, 1.0)
    labels = np.arange(args.batch_size, dtype=np.int32) % 10
    steps = {
        "PyTorch NCHW": torch_step(torch, model, images, labels, channels_last=False),
        "PyTorch channels_last": torch_step(torch, model, images, labels, channels_last=True),
        "Alpha": alpha_step(model, images, labels),
    }
    rates = measure(steps, args.batch_size, args.rounds, args.steps)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, median in medians.items():
        low, high = min(rates[name]), max(rates[name])
        print(f"{name:24} {median:7.1f} images/s   ({low:.1f} to {high:.1f})")
    own = medians.pop("Alpha")
    best = max(medians, key=lambda name: medians[name])
    print(f"Alpha is at {own / medians[best]:.2f}x of {best}, the faster of PyTorch's two layouts")
    return 0


def processor() -> str:
    """The CPU's name where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
