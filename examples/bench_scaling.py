"""Weak scaling on several GPUs of one machine: a step of training on one GPU and on N, beside PyTorch's DDP.

    python examples/bench_scaling.py --gpus 2
    python examples/bench_scaling.py --gpus 2 --models resnet18/128,vgg16/32 --precision bf16 --sides Alpha
    python -m alpha.run --gpus 2 examples/bench_scaling.py --here Alpha        # only this many processes, no ratio

Each GPU has a batch of its own, of random images that lie there. Alpha's step is captured, with the exchange of the
gradients in it; PyTorch's is compiled, channels_last, with a fused Adam and DistributedDataParallel. Milliseconds are
the median of windows of steps, of the slowest process. Efficiency is the step on one GPU over the step on N.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import alpha
from alpha import distributed, models
from alpha.core.numerics import PRECISIONS
from alpha.errors import DeviceError
from alpha.nn import functional as F
from alpha.train.commands.command_line import Parser, command, join_ranks, names, positive_int

BATCHES = {32: 512, 128: 256, 224: 128}  # a GPU, by the size of the images
NETWORKS = {
    "resnet18/32": ("resnet18", 32),
    "vgg16/32": ("vgg16", 32),
    "resnet18/128": ("resnet18", 128),
    "vgg16/128": ("vgg16", 128),
    "resnet50/224": ("torchvision.resnet50", 224),
}
SIDES = ("Alpha", "DDP")
Step = tuple[Callable[[], Any], Callable[[], None]]  # a step, and what waits for it
WARM, WINDOWS = 8, 5


@dataclass(frozen=True)
class Row:
    """One measured step."""

    network: str
    precision: str
    side: str
    gpus: int
    ms: float
    loss: float  # of the last step


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(prog="bench_scaling", description="Weak scaling of a training step, beside PyTorch's DDP.")
    add = parser.add_argument
    add("--gpus", type=positive_int, default=2, help="of this machine (default: 2)")
    add("--models", type=names(tuple(NETWORKS)), default=list(NETWORKS), help=f"of {','.join(NETWORKS)}")
    add("--precision", choices=[*PRECISIONS, "all"], default="all", help="default: all")
    add("--sides", type=names(SIDES), default=list(SIDES), help=f"default: {','.join(SIDES)}")
    add("--batch-size", type=positive_int, help="of each GPU (default: 512, 256, 128 at 32, 128, 224 pixels)")
    add("--steps", type=positive_int, default=20, help="in a window (default: 20)")
    add("--device", choices=["cuda", "cpu"], default="cuda")
    add("--here", choices=SIDES, help="measure this side in the processes that a launcher has started")
    add("--output", metavar="FILE", help="write what was measured as JSON, too")
    return parser.parse_args(arguments)


# -- the sides -------------------------------------------------------------------------------------


def network(name: str, classes: int = 1000) -> Any:
    """Alpha's network of one of NETWORKS, on the cpu."""
    kind, size = NETWORKS[name]
    alpha.manual_seed(0)
    if kind.startswith("torchvision."):
        return getattr(models.torchvision, kind.partition(".")[2])(num_classes=classes)
    return getattr(models, kind)(classes if size > 32 else 10, size)


def images_of(name: str, batch: int, rank: int) -> tuple[Any, Any]:
    """Pixels (N, H, W, 3) in [-1, 1] and labels (N,) of a rank."""
    size, rng = NETWORKS[name][1], np.random.default_rng(rank)
    pixels = rng.random((batch, size, size, 3), dtype=np.float32) * 2 - 1
    return pixels, rng.integers(0, 10, batch).astype(np.int32)


def alpha_step(name: str, precision: str, batch: int, device: str) -> Step:
    """Step of Alpha."""
    model = network(name).to(device)
    parallel = alpha.DataParallel(model) if distributed.is_initialized() else model
    optimizer = alpha.optim.Adam(model.parameters(), lr=1e-3)
    x, y = (alpha.tensor(values, device=device) for values in images_of(name, batch, distributed.rank()))

    @alpha.capture
    def step() -> Any:
        loss = F.cross_entropy(parallel(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def in_precision() -> Any:
        with alpha.precision(precision):
            return step()

    if device == "cuda":
        with alpha.precision(precision):
            alpha.compile_kernels(step)
    return in_precision, alpha.get_device(device).synchronize


def torch_step(name: str, precision: str, batch: int, device: str) -> Step:
    """Step of PyTorch with DDP."""
    import torch
    from compare.networks import twin
    from compare.twins import copy_weights
    from torch.nn.parallel import DistributedDataParallel

    kind, size = NETWORKS[name]
    own = network(name)
    if kind.startswith("torchvision."):
        from torchvision import models as torchvision_models

        other: Any = getattr(torchvision_models, kind.partition(".")[2])(num_classes=1000)
    else:
        other = copy_weights(own, twin(kind, 1000 if size > 32 else 10, size))
    model = other.to(device, memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
    if torch.distributed.is_initialized():
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    run = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    pixels, labels = images_of(name, batch, rank)
    x = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    y = torch.from_numpy(labels).to(device).long()

    def step() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(run(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, torch.cuda.synchronize


def measure(step: Callable[[], Any], wait: Callable[[], None], steps: int) -> tuple[float, float]:
    """Median milliseconds of a step over windows, and the last loss."""
    for _ in range(WARM):
        loss = step()
    wait()
    windows = []
    for _ in range(WINDOWS):
        start = time.perf_counter()
        for _ in range(steps):
            loss = step()
        wait()
        windows.append(1e3 * (time.perf_counter() - start) / steps)
    return statistics.median(windows), float(loss)


# -- processes -------------------------------------------------------------------------------------


def here(args: argparse.Namespace) -> list[Row]:
    """Rows that this process, one of those that a launcher started, has measured."""
    if args.here == "Alpha":
        join_ranks(args.device)
        count, make = distributed.world_size(), alpha_step
    else:
        if args.device == "cpu":
            raise DeviceError(
                "--sides DDP: its processes talk through NCCL, which needs GPUs; --sides Alpha runs on CPUs"
            )
        count, make = int(os.environ.get("WORLD_SIZE", 1)), torch_step
        join_torch(count)
    rows = []
    for name in args.models:
        for precision in PRECISIONS if args.precision == "all" else [args.precision]:
            batch = args.batch_size or BATCHES[NETWORKS[name][1]]
            ms, loss = measure(*make(name, precision, batch, args.device), args.steps)
            rows.append(Row(name, precision, args.here, count, slowest(ms, args.here), loss))
            print(f"{name} {precision} {args.here}, {count} GPUs: {rows[-1].ms:.3f} ms", flush=True)
    return rows


def join_torch(count: int) -> None:
    """Let PyTorch join the processes of the launcher, of which one alone needs no group."""
    if count > 1:
        import torch

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
        if torch.distributed.get_rank():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123


def slowest(ms: float, side: str) -> float:
    """The milliseconds of the slowest rank."""
    if side == "Alpha":
        return max(distributed.gather_numbers(ms))
    import torch

    if not torch.distributed.is_initialized():
        return ms
    found = [0.0] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, ms)
    return max(found)


def started(args: argparse.Namespace, side: str, count: int) -> Iterator[Row]:
    """Rows of a side on so many GPUs, measured by processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "rows.json"
        options = ["--here", side, "--models", ",".join(args.models), "--precision", args.precision]
        options += ["--steps", str(args.steps), "--device", args.device, "--output", str(result)]
        options += ["--batch-size", str(args.batch_size)] if args.batch_size else []
        launcher = ["-m", "alpha.run", "--gpus" if args.device == "cuda" else "--cpus", str(count)]
        done = subprocess.run([sys.executable, *launcher, __file__, *options], check=False)
        if done.returncode or not result.exists():
            raise DeviceError(f"{side} on {count} GPUs ended with status {done.returncode}")
        yield from (Row(**row) for row in json.loads(result.read_text()))


def table(rows: list[Row], gpus: int) -> str:
    """The measured steps as a table of Markdown."""
    found = {(row.network, row.precision, row.side, row.gpus): row.ms for row in rows}
    sides = list(dict.fromkeys(row.side for row in rows))
    head = [f"{side}: ms on 1 / {gpus} GPUs | efficiency" for side in sides]
    lines = [f"| network | precision | {' | '.join(head)} |", f"|---|---|{'---:|---:|' * len(sides)}"]
    for name, precision in dict.fromkeys((row.network, row.precision) for row in rows):
        cells = []
        for side in sides:
            one, many = (found.get((name, precision, side, count)) for count in (1, gpus))
            cells.append(f"{one:.2f} / {many:.2f} | {one / many:.3f}" if one and many else " | ")
        lines.append(f"| {name} | {precision} | {' | '.join(cells)} |")
    return "\n".join(lines)


@command("bench_scaling")
def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    if args.here:
        rows = here(args)
        if args.output and int(os.environ.get("RANK", 0)) == 0 and distributed.rank() == 0:
            Path(args.output).write_text(json.dumps([asdict(row) for row in rows]))
        return 0
    rows = [row for side in args.sides for count in dict.fromkeys((1, args.gpus)) for row in started(args, side, count)]
    print(table(rows, args.gpus))
    if args.output:
        Path(args.output).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
