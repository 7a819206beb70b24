"""Alpha against PyTorch: training steps of the paper's ResNet18, in one run on the same device.

    python examples/compare_pytorch.py              # speed (images a second, in turns) and memory
    python examples/compare_pytorch.py --losses     # the losses of ten steps, side by side

Both train the same network from the same weights on the same batches of CIFAR-10 (the sample), with
Adam. On a CPU PyTorch must be its CPU build (pip install torch --index-url
https://download.pytorch.org/whl/cpu). Like is compared with like: float32 with PyTorch's strict float32
(no TF32), tf32 with its TF32, bf16 with its autocast to bfloat16, all three on a GPU. On a CPU Alpha computes in
float32 whatever is asked, and its name says so: "Alpha bf16 (float32)". A round is some steps of each; the median over
the rounds counts. Memory is the most that tensors of one side take in a step.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import alpha
from alpha import models, nn
from alpha.data import resolve
from alpha.errors import AlphaError
from alpha.numerics import PRECISIONS, computed_precision
from alpha.runtime import Device
from alpha.train.options import Parser, positive_int

Batch = tuple[np.ndarray, np.ndarray]  # pixels (N, 32, 32, 3) in [-1, 1], labels (N,)


class AlphaSide:
    """Alpha's ResNet18 with the weights of `model`."""

    def __init__(self, model: nn.Module, device: Device, dtype: str = "float32", precision: str = "float32") -> None:
        self.device, self.dtype, self.precision = device, dtype, precision
        self.others = device.memory_stats().live  # bytes before there is anything of this side
        self.model = models.resnet18()
        self.model.load_state_dict(model.state_dict())
        set_dropout(self.model, model)
        self.model.astype(dtype).to(device)
        self.optimizer = alpha.optim.Adam(self.model.parameters(), lr=1e-3)

    def put(self, batch: Batch) -> Any:
        images, labels = batch
        x = alpha.tensor(images.astype(self.dtype), device=self.device)
        return x, alpha.tensor(labels, device=self.device)

    def step(self, batch: Any) -> Any:
        """One training step; the loss stays on the device."""
        x, y = batch
        with alpha.precision(self.precision):
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.detach()

    def wait(self) -> None:
        self.device.synchronize()

    def peak_bytes(self, batch: Any) -> int:
        """The most that arrays of this side take during a step."""
        device: Any = self.device
        device.arena.reset_peak()
        self.step(batch)
        return int(device.memory_stats().peak) - self.others


class TorchSide:
    """The same network in PyTorch."""

    def __init__(
        self,
        torch: Any,
        model: nn.Module,
        device: str,
        channels_last: bool,
        dtype: str = "float32",
        precision: str = "float32",
    ) -> None:
        self.torch, self.device, self.precision = torch, device, precision
        self.others = torch.cuda.memory_allocated() if device == "cuda" else 0
        self.dtype = getattr(torch, dtype)
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        twin = torch_resnet18(torch)
        twin.load_state_dict(
            {
                name: torch.from_numpy(value.transpose(0, 3, 1, 2) if value.ndim == 4 else value)
                for name, value in model.state_dict().items()
            },
            strict=False,  # PyTorch's BN counts its batches
        )
        for layer in twin.modules():
            if isinstance(layer, torch.nn.Dropout):
                layer.p = dropout_of(model)
        self.model = twin.to(device, self.dtype, memory_format=self.layout)
        self.optimizer = torch.optim.Adam(twin.parameters(), lr=1e-3)

    def put(self, batch: Batch) -> Any:
        images, labels = (self.torch.from_numpy(values) for values in batch)
        x = images.permute(0, 3, 1, 2).contiguous(memory_format=self.layout)
        return x.to(self.device, self.dtype), labels.long().to(self.device)

    def step(self, batch: Any) -> Any:
        x, y = batch
        self._set_backends()
        with self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.precision == "bf16"):
            loss = self.torch.nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def _set_backends(self) -> None:
        backends = self.torch.backends
        backends.cudnn.benchmark = True
        tf32 = self.precision != "float32"
        backends.cudnn.allow_tf32 = backends.cuda.matmul.allow_tf32 = tf32

    def peak_bytes(self, batch: Any) -> int:
        """The most that tensors of this side take during a step; 0 on a CPU, where PyTorch does not count them."""
        if self.device != "cuda":
            self.step(batch)  # so that both sides have made as many steps
            return 0
        self.torch.cuda.reset_peak_memory_stats()
        self.step(batch)
        return int(self.torch.cuda.max_memory_allocated()) - self.others


def dropout_of(model: nn.Module) -> float:
    return next(layer.p for layer in model.modules() if isinstance(layer, nn.Dropout))


def set_dropout(model: nn.Module, like: nn.Module | float) -> None:
    p = like if isinstance(like, float) else dropout_of(like)
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = p


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
            self.blocks = nn.Sequential(*(block for i, o, s in widths for block in (Block(i, o, s), Block(o, o, 1))))
            self.pool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Sequential(
                nn.Flatten(),
                nn.Dropout(0.1),
                nn.Linear(512, 128),
                nn.LeakyReLU(inplace=True),
                nn.Dropout(0.1),
                nn.Linear(128, 10),
            )

        def forward(self, x: Any) -> Any:
            return self.fc(self.pool(self.blocks(self.act(self.bn1(self.conv1(x))))))

    return ResNet18()


Make = Callable[[], Any]  # an AlphaSide or a TorchSide


def measure(makes: dict[str, Make], batch: Batch, rounds: int, length: int) -> None:
    """Prints memory and images a second of each: every round, the medians, and ratios to the fastest of PyTorch's."""
    sides: dict[str, Any] = {}
    held: dict[str, Any] = {}
    peaks: dict[str, int] = {}
    for name, make in makes.items():
        gc.collect()
        side = sides[name] = make()
        held[name] = side.put(batch)
        for _ in range(3):  # the first steps allocate, compile and choose kernels
            side.step(held[name])
        peaks[name] = side.peak_bytes(held[name])
        memory = f"  peak {peaks[name] / 1e6:,.0f} MB" if peaks[name] else ""
        loss = side.step(held[name]).item()
        print(f"{name:28} fifth loss {loss:.4f}{memory}", flush=True)
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, side in sides.items():
            side.wait()
            start = time.perf_counter()
            for _ in range(length):
                side.step(held[name])
            side.wait()
            rates[name].append(len(batch[0]) * length / (time.perf_counter() - start))
        line = "   ".join(f"{name} {values[-1]:.1f}" for name, values in rates.items())
        print(f"round {turn + 1}/{rounds}: {line}", flush=True)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, median in medians.items():
        low, high = min(rates[name]), max(rates[name])
        step = 1e3 * len(batch[0]) / median
        print(f"{name:28} {median:9.1f} images/s  ({low:.1f} to {high:.1f})  {step:8.2f} ms a step")
    for own, side in sides.items():
        peers = [n for n, s in sides.items() if s.precision == side.precision and n != own]
        if isinstance(side, AlphaSide) and peers:
            best = max(peers, key=lambda name: medians[name])
            less = f", with {peaks[own] / peaks[best]:.2f}x of its memory" if peaks[best] else ""
            print(f"{own} is at {medians[own] / medians[best]:.2f}x of {best}, PyTorch's faster layout{less}")


def compare_losses(makes: dict[str, Make], batches: list[Batch]) -> None:
    """Prints each step's losses, and the largest relative distance of each side to the first."""
    sides = {name: make() for name, make in makes.items()}
    first = next(iter(sides))
    worst = dict.fromkeys(sides, 0.0)
    print("step  " + "".join(f"{name:>28}" for name in sides))
    for number, batch in enumerate(batches, 1):
        losses = {name: float(side.step(side.put(batch)).item()) for name, side in sides.items()}
        for name, loss in losses.items():
            worst[name] = max(worst[name], abs(loss - losses[first]) / losses[first])
        print(f"{number:4}  " + "".join(f"{loss:28.7f}" for loss in losses.values()), flush=True)
    for name, distance in worst.items():
        if name != first:
            print(f"{name}: at most {distance:.1e} from {first}, relative")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="compare_pytorch", description="Alpha against PyTorch, ResNet18.")
    add = parser.add_argument
    add("--device", choices=["auto", "cpu", "cuda"], default="auto")
    add("--batch-size", type=positive_int, help="default: 512 on a GPU, 128 on a CPU")
    add("--precision", choices=[*PRECISIONS, "all"], help="default: all on a GPU, float32 on a CPU and with --losses")
    add("--rounds", type=positive_int, default=5)
    add("--steps", type=positive_int, help="of each in a round (default: 20 on a GPU, 3 on a CPU)")
    add("--losses", action="store_true", help="ten steps' losses in place of speed, without dropout")
    return parser.parse_args(arguments)


def compare(args: argparse.Namespace, torch: Any) -> None:
    device = alpha.get_device(args.device)
    gpu = device.name == "cuda" and torch.cuda.is_available()
    size = args.batch_size or (512 if gpu else 128)
    where = torch.cuda.get_device_name() if gpu else processor()
    print(
        f"ResNet18, batch {size}, {where}: alpha {alpha.__version__}, numpy {np.__version__}, torch {torch.__version__}"
    )
    if not gpu:
        torch.set_num_threads(cores())
        if (load := os.getloadavg()[0]) > 0.5:  # PyTorch's threads wait by spinning, and suffer most
            print(f"the machine is busy (load average {load:.1f}): speeds are not comparable")
    alpha.manual_seed(0)
    model = models.resnet18()
    train_set, _ = resolve("sample", has_gpu=False).load()
    order = np.random.default_rng(0).permutation(len(train_set))
    place = "cuda" if gpu else "cpu"
    if args.losses:
        set_dropout(model, 0.0)
    chosen = args.precision or ("all" if gpu and not args.losses else "float32")
    makes: dict[str, Make] = {}
    for precision in PRECISIONS if chosen == "all" else (chosen,):
        suffix = "" if precision == "float32" else f" {precision}"
        torch_side = partial(TorchSide, torch, model, place, precision=precision)
        makes[f"PyTorch NCHW{suffix}"] = partial(torch_side, channels_last=False)
        makes[f"PyTorch channels_last{suffix}"] = partial(torch_side, channels_last=True)
        computed = computed_precision(device.name, precision)
        note = "" if computed == precision else f" ({computed})"
        makes[f"Alpha{suffix}{note}"] = partial(AlphaSide, model, device, precision=precision)
    if args.losses:
        if device.name == "cpu":  # in float64 rounding is out of the way
            makes = {
                "PyTorch float64": partial(TorchSide, torch, model, place, False, "float64"),
                "Alpha float64": partial(AlphaSide, model, device, "float64"),
                **makes,
            }
        rows = [np.take(order, range(i * size, (i + 1) * size), mode="wrap") for i in range(10)]
        compare_losses(makes, [pixels(train_set, r) for r in rows])
        return
    batch = pixels(train_set, np.take(order, range(size), mode="wrap"))
    measure(makes, batch, args.rounds, args.steps or (20 if gpu else 3))


def pixels(data: Any, rows: np.ndarray) -> Batch:
    images = data.images[rows].astype(np.float32) * np.float32(2 / 255) - 1
    return images, data.labels[rows].astype(np.int32)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """How many cores of which CPU, where Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{cores()} cores of {names[0] if names else platform.machine()}"


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        import torch
    except ImportError:
        print("compare_pytorch: skipped, PyTorch is not installed (pip install torch)")
        return 0
    try:
        compare(args, torch)
    except AlphaError as error:
        print(f"compare_pytorch: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
