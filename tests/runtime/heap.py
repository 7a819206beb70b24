"""Many replays of a captured step, to see whether anything damages the heap of the host.

    MALLOC_CHECK_=3 MALLOC_PERTURB_=165 PYTHONMALLOC=malloc LD_PRELOAD=libc_malloc_debug.so.0 \\
        python tests/runtime/heap.py --replays 10000 --batch 512 --profile

Without LD_PRELOAD, glibc from 2.34 on ignores MALLOC_CHECK_. Or preload libasan.so with ASAN_OPTIONS=detect_leaks=0.

It trains the paper's ResNet18 in bfloat16 on 32x32 images by replays of one graph. Now and then it captures anew, for
another batch size, drops a graph, gives memory back, uploads, reads, and holds results for a while. With `--profile`
PyTorch's profiler runs in the process for some of the time, so that CUPTI is loaded. If the heap is damaged, the
process aborts; otherwise it prints OK. `--tiny` takes a network for the emulated device.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from alpha import nn
from alpha.models import resnet18
from alpha.nn import functional as F

PROFILED, EVERY = 50, 500  # of EVERY replays so many are profiled


def network(tiny: bool) -> nn.Module:
    """The network on the cuda device."""
    if not tiny:
        return resnet18(num_classes=10, image_size=32).to("cuda")
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 10)).to("cuda")


def training(tiny: bool) -> Callable[[Any, Any], Any]:
    """A captured step, which returns its loss and its scores."""
    net = network(tiny)
    optimizer = alpha.optim.Adam(net.parameters(), lr=1e-3)

    @alpha.capture(strict=True)
    def step(x: Any, y: Any) -> Any:
        scores = net(x)
        loss = F.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, scores

    return step


def batch(draw: np.random.Generator, size: int, tiny: bool) -> tuple[Any, Any]:
    """Random images and labels on the device."""
    side = 8 if tiny else 32
    images = draw.standard_normal((size, side, side, 3)).astype(np.float32)
    return alpha.tensor(images, device="cuda"), alpha.tensor(draw.integers(0, 10, size).astype(np.int32), device="cuda")


def replay(options: argparse.Namespace) -> tuple[int, float]:
    """Do the replays; how many graphs were captured, and the last loss."""
    draw = np.random.default_rng(0)
    step, captures, held = training(options.tiny), 1, deque[Any](maxlen=8)
    sizes = [options.batch, max(1, options.batch // 2), max(1, options.batch - 1)]
    profiler: Any = contextlib.nullcontext
    if options.profile:
        from torch import profiler as torch_profiler

        profiler = torch_profiler.profile
    for begin in range(0, options.replays, EVERY):
        count = min(EVERY, options.replays - begin)
        x, y = batch(draw, sizes[begin // EVERY % 3], options.tiny)
        with profiler():
            for _ in range(min(PROFILED, count)):
                held.append(step(x, y))
        for _ in range(count - PROFILED):
            held.append(step(x, y))
        if begin // EVERY % 4 == 3:  # a graph that has just been launched goes
            step, captures = training(options.tiny), captures + 1
            gc.collect()
            alpha.cuda.empty_cache()
        losses = [loss.item() for loss, _ in held]
        assert np.isfinite(losses).all(), losses
        assert all(np.isfinite(scores.numpy().astype(np.float32)).all() for _, scores in held)
    return captures, losses[-1]


def main() -> None:
    """Do the replays and print OK."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--replays", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--profile", action="store_true", help="PyTorch's profiler runs for a tenth of the time")
    parser.add_argument("--tiny", action="store_true", help="a small network and 8x8 images")
    options = parser.parse_args()
    begun = time.perf_counter()
    with alpha.precision(options.precision):
        captures, loss = replay(options)
    seconds = time.perf_counter() - begun
    alpha.get_device("cuda").close()  # type: ignore[attr-defined]
    gc.collect()
    print(
        f"OK: {options.replays} replays, {captures} steps, loss {loss:.4f}, {seconds:.1f} s, profile {options.profile}"
    )


if __name__ == "__main__":
    main()
