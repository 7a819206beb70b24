"""Random backward passes, with and without an exchange, that reach some parameters each: the gradients they leave.

Each pass of rank r that reaches a parameter adds c (r + 1) to it, with a number c of the pass; so the mean over all
ranks is known. Tells the largest difference from it, by kind.
"""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

from ranks import joined, tell

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.autograd.shares import share_of
from alpha.distributed.optim import ZeroRedundancyOptimizer

PARAMETERS, SEQUENCES = 5, 12
device = joined()
rank, world = dist.rank(), dist.world_size()


class Sums(nn.Module):
    """The sum of c p over some of the parameters p."""

    def __init__(self) -> None:
        for number in range(PARAMETERS):
            setattr(self, f"p{number}", nn.Parameter(alpha.zeros(3 + number)))

    def forward(self, reached: list[int], c: Any) -> Any:
        return alpha.stack([(getattr(self, f"p{number}") * c).sum() for number in reached]).sum()


def sequence(rng: random.Random) -> list[tuple[bool, list[int], float]]:
    """Passes: whether they exchange, what they reach, and c. The last one exchanges."""
    passes = []
    for number in range(count := rng.randint(1, 4)):
        reached = rng.sample(range(PARAMETERS), rng.randint(1, PARAMETERS))
        passes.append((number == count - 1 or rng.random() < 0.4, reached, rng.randint(1, 9) / 4))
    return passes


def worst(kind: str, captured: bool) -> float:
    """The largest difference of a gradient from the mean over all ranks."""
    found, rng = 0.0, random.Random(7)
    for _ in range(SEQUENCES):
        net = Sums().to(device)
        parallel = alpha.DataParallel(net, find_unused_parameters=kind == "zeros")
        if kind != "zeros":
            parallel.skip_unused()
        if kind == "shared out":
            kept = ZeroRedundancyOptimizer(net.parameters(), alpha.optim.SGD, lr=0.1)
        passes = sequence(rng)

        def backward(exchanges: bool, reached: list[int], c: Any, parallel: Any = parallel) -> None:
            with nullcontext() if exchanges else parallel.no_sync():
                parallel(reached, c).backward()

        # each pass is a step of its own, so what a replay leaves behind is seen by others; or all are one step
        together = rng.random() < 0.5

        def whole(*numbers: Any, passes: Any = passes) -> None:
            for (exchanges, reached, _), c in zip(passes, numbers, strict=True):
                backward(exchanges, reached, c)

        step: Any = whole if together else backward
        if captured:
            step = alpha.capture(strict=True)(step)
        for _ in range(6 if captured else 1):
            net.zero_grad()
            numbers = [alpha.tensor(c * (rank + 1), device=device) for *_, c in passes]
            if together:
                step(*numbers)
            else:
                for (exchanges, reached, _), number in zip(passes, numbers, strict=True):
                    step(exchanges, reached, number)
            for number in range(PARAMETERS):
                parameter = getattr(net, f"p{number}")
                share = share_of(parameter)
                wanted = sum(c for _, reached, c in passes if number in reached) * (world + 1) / 2
                if share is not None and share.owner != rank:
                    found = max(found, float(parameter.grad is not None))
                elif wanted:
                    found = max(found, float(abs(parameter.grad.numpy() - wanted).max()))
        if kind == "shared out":
            del kept
    return found


def worst_of_another_state() -> float:
    """The difference behind a captured step that finds gradients of no_sync, without which it was captured before."""
    net = Sums().to(device)
    parallel = alpha.DataParallel(net)
    parallel.skip_unused()
    step = alpha.capture(strict=True)(lambda c: parallel([0], c).backward())
    c = alpha.tensor(rank + 1.0, device=device)
    for _ in range(6):
        net.zero_grad()
        step(c)
    net.zero_grad()
    with parallel.no_sync():
        parallel([1], c).backward()
    step(c)
    return float(abs(net.p1.grad.numpy() - (world + 1) / 2).max())


kinds = ("skipped", "zeros", "shared out")
on_cpu = device == "cpu"
found = {kind: [worst(kind, captured) for captured in ((False,) if on_cpu else (False, True))] for kind in kinds}
tell({**found, "another state": [] if on_cpu else [worst_of_another_state()]})
