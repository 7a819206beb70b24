"""Training in bf16 with and without copies beside the weights, which exchanges with the other ranks write, too."""

from __future__ import annotations

from typing import Any

import numpy as np
from beside.checks import nothing_beside, right_values, values_of
from ranks import joined, tell

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.distributed.optim import ZeroRedundancyOptimizer
from alpha.nn import functional as F

device = joined()
rank, world = dist.rank(), dist.world_size()


def trained(shared: bool, captured: bool) -> tuple[list[bytes], int]:
    """Losses and weights of some steps, and how many weights have a copy."""
    alpha.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.Flatten(), nn.Linear(128, 8), nn.Tanh(), nn.Linear(8, 4))
    model, parameters = alpha.DataParallel(net.to(device)), list(net.parameters())
    if shared:
        optimizer: Any = ZeroRedundancyOptimizer(parameters, alpha.optim.Adam, lr=1e-2)
    else:
        optimizer = alpha.optim.Adam(parameters, lr=1e-2)
    rng = np.random.default_rng(rank)
    x = alpha.tensor(rng.standard_normal((2, 4, 4, 4)).astype(np.float32), device=device)
    y = alpha.tensor([0, 1], device=device)

    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    call, weights = alpha.capture(step) if captured else step, [p for p in parameters if p.ndim > 1]
    seen = []
    for exchange in (None, dist.broadcast, dist.all_reduce):
        if exchange is not None:
            with alpha.no_grad():
                for weight in weights:
                    weight.mul_(0.25 * (1 + rank))
                    exchange(weight.detach())
        seen += [call(x, y).numpy().tobytes() for _ in range(5)]
    return [*seen, *(p.numpy().tobytes() for p in parameters)], sum(bool(values_of(weight)) for weight in weights)


told = {}
with alpha.precision("bf16"), right_values():
    for shared in (False, True):
        with nothing_beside():
            wanted, _ = trained(shared, False)
        for captured in (False, True):
            found, copies = trained(shared, captured)
            told[f"{shared} {captured}"] = found == wanted, copies
tell(told)
