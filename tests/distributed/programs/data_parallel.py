"""Steps of DataParallel: beside one process with the whole batch, captured and not, accumulated, compressed."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from ranks import joined, tell

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.nn import functional as F

BATCH, STEPS = 4, 20

device = joined()
rank, world = dist.rank(), dist.world_size()
dtype = "float64" if device == "cpu" else "float32"


def network(norm: bool) -> Any:
    layers = [nn.Conv2d(3, 6, 3, padding=1, bias=False), *([nn.BatchNorm2d(6)] if norm else []), nn.ReLU()]
    # gradients of the second and third filter run on a second stream of a captured step
    layers += [nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 6, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(6 * 16, 4)).to(dtype)


def batches(steps: int) -> Any:
    rng = np.random.default_rng(5)
    for _ in range(steps):
        yield rng.standard_normal((BATCH * world, 4, 4, 3)).astype(dtype), rng.integers(0, 4, BATCH * world)


def own(values: Any) -> Any:
    part = values[rank * BATCH : (rank + 1) * BATCH]
    return alpha.tensor(part if part.dtype.kind == "f" else part.astype(np.int32), device=device)


def step_of(model: Any, optimizer: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def beside_one_process(norm: bool) -> float:
    """The largest difference of the losses of STEPS steps between all ranks, and one with the whole batch."""
    alpha.manual_seed(0)
    alone = network(norm)
    shared = network(norm)
    shared.load_state_dict(alone.state_dict())
    if rank:  # what other ranks begin with does not count
        for parameter in shared.parameters():
            parameter.data = parameter.data * 0 + 9
    shared = dist.convert_sync_batchnorm(shared).to(device)
    alone.to(device)
    parallel = alpha.DataParallel(shared, bucket_cap_mb=1e-3)
    steps = [step_of(model, alpha.optim.Adam(model.parameters(), lr=1e-2)) for model in (alone, parallel)]
    worst = 0.0
    for x, y in batches(STEPS):
        whole = steps[0](alpha.tensor(x, device=device), alpha.tensor(y.astype(np.int32), device=device))
        part = dist.all_reduce(steps[1](own(x), own(y)), "mean")
        worst = max(worst, abs(whole.item() - part.item()))
    return worst


def trained(captured: bool, **options: Any) -> tuple[list[float], list[Any]]:
    """Losses and weights after some steps, one of which averages nothing."""
    alpha.manual_seed(0)
    parallel = alpha.DataParallel(network(True).to(device), bucket_cap_mb=1e-3, **options)
    step = step_of(parallel, alpha.optim.SGD(parallel.parameters(), lr=0.1))
    if captured:
        step = alpha.capture(strict=True)(step)
    losses = []
    for number, (x, y) in enumerate(batches(7)):
        if number == 5:
            with parallel.no_sync():
                losses.append(step(own(x), own(y)).item())
        else:
            losses.append(step(own(x), own(y)).item())
    return losses, [parameter.numpy().tolist() for parameter in parallel.parameters()]


def accumulated() -> bool:
    """True if two halves, the first one under no_sync, give the gradients of the whole batch."""
    alpha.manual_seed(0)
    model = network(False).to(device)
    parallel = alpha.DataParallel(model)
    x, y = map(own, next(batches(1)))
    F.cross_entropy(parallel(x), y).backward()
    wanted = [parameter.grad.numpy() for parameter in model.parameters()]
    parallel.zero_grad()
    with parallel.no_sync():
        (F.cross_entropy(parallel(x[:2]), y[:2]) / 2).backward()
    (F.cross_entropy(parallel(x[2:]), y[2:]) / 2).backward()
    found = [parameter.grad.numpy() for parameter in model.parameters()]
    return all(np.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(wanted, found, strict=True))


def gathered(captured: bool) -> list[Any]:
    """Gradients of rounds of two passes, in memory that is the program's own or that of a captured pass."""
    alpha.manual_seed(0)
    model = nn.Linear(2, 2).to(device)
    parallel = alpha.DataParallel(model)
    buffer = alpha.zeros(6, device=device)

    def forward_and_back(x: Any) -> None:
        parallel(x).sum().backward()

    step = alpha.capture(strict=True)(forward_and_back) if captured else forward_and_back
    found = []
    for round_ in range(4):
        parallel.zero_grad()
        if not captured and device == "cpu":
            buffer.zero_()
            model.weight.grad, model.bias.grad = buffer[:4].reshape(2, 2), buffer[4:]
        for number in range(2):
            step(alpha.ones(1, 2, device=device) * (rank + 1 + number + round_))
        found.append([parameter.grad.numpy().tolist() for parameter in model.parameters()])
        if not captured and device == "cpu":
            assert buffer.numpy().tolist() == np.concatenate([np.ravel(values) for values in found[-1]]).tolist()
    return found


class Branches(nn.Module):
    def __init__(self) -> None:
        self.used, self.sometimes, self.never = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        y = self.used(x) + self.used(2 * x)  # twice
        return y + self.sometimes(x) if rank == 0 else y


def unused() -> dict[str, Any]:
    model = Branches()
    model.never.requires_grad_(False)
    parallel = alpha.DataParallel(model.to(device), find_unused_parameters=True)
    parallel(alpha.ones(5, 3, device=device)).sum().backward()
    grads = {name: None if p.grad is None else p.grad.numpy().tolist() for name, p in model.named_parameters()}
    return {name: value for name, value in grads.items() if name.endswith("bias")}


def buffers() -> list[float]:
    """A running mean before and after the model goes into evaluation mode."""
    norm = nn.BatchNorm2d(1)
    parallel = alpha.DataParallel(nn.Sequential(norm, nn.Conv2d(1, 1, 1)).to(device))
    parallel(alpha.ones(2, 2, 2, 1, device=device) * (rank + 1) + alpha.randn(2, 2, 2, 1, device=device) * 0.1)
    before = norm.running_mean.numpy().tolist()
    parallel.eval()
    parallel.take_buffers()
    return before + norm.running_mean.numpy().tolist()


found: dict[str, Any] = {"unused": unused(), "buffers": buffers(), "accumulated": accumulated()}
found["norm"] = beside_one_process(True)
found["plain"] = beside_one_process(False)
for name, options in {"plain": {}, "bf16": {"compression": "bf16"}}.items():
    runs = [trained(captured, **options) for captured in ((False, True, True) if device == "cuda" else (False, False))]
    found[f"runs {name}"] = runs[0]
    found[f"equal {name}"] = all(run == runs[0] for run in runs)
found["gathered"] = gathered(False)
found["gathered captured"] = gathered(device == "cuda")
if "gone" in sys.argv:
    model = nn.Linear(2, 2).to(device)
    alpha.DataParallel(model)
    model(alpha.ones(1, 2, device=device) * (rank + 1)).sum().backward()
    found["gone"] = model.weight.grad.numpy().tolist()
tell(found)
