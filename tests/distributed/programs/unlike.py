"""Ranks that differ in what makes a step: the error of each case, which is one on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from ranks import joined, tell

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.data import ArrayDataset, DataLoader, DistributedSampler, Subset, WeightedRandomSampler
from alpha.distributed.engines.exchange import nothing
from alpha.distributed.optim import ZeroRedundancyOptimizer
from alpha.distributed.process_group import current
from alpha.errors import AlphaError
from alpha.train import Trainer

ITEMS = ArrayDataset(np.random.default_rng(0).random((12, 3), np.float32), np.arange(12, dtype=np.int32) % 3)
early = DistributedSampler(ITEMS, seed=0)  # before the ranks meet
device = joined()
rank = dist.rank()
group = current()
assert group is not None
assert group.engine is not None
group.engine.begin = nothing  # the watch would end the ranks at the first case


class Own:
    """A sampler with random numbers of its own."""

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng(rank).permutation(12).tolist())

    def __len__(self) -> int:
        return 12


def network() -> Any:
    alpha.manual_seed(0)
    return nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)]).to(device)


def passes(step: Callable[[Any], Any]) -> None:
    """A pass in which ranks reach different parameters."""
    net = network()
    parallel = alpha.DataParallel(net)
    parallel.skip_unused()
    step(parallel.module).backward()


def frozen() -> None:
    net = network()
    parallel = alpha.DataParallel(net)
    net[rank].requires_grad_(False)
    parallel(alpha.ones(2, 3, device=device)).sum().backward()


def shared_out(first: bool) -> None:
    net = network()
    parallel = alpha.DataParallel(net) if first else None
    weights = [layer.weight for layer in net] if rank else [net[n].weight for n in (1, 0, 2, 3)]
    optimizer = ZeroRedundancyOptimizer(weights, alpha.optim.SGD, lr=0.1)
    alpha.DataParallel(net) if parallel is None else None
    del optimizer


def trains(loader: Any = None, test: Any = None, optimizer: Any = None, **settings: Any) -> None:
    net = network()
    chosen = alpha.optim.SGD(net.parameters(), lr=0.1) if optimizer is None else optimizer(net)
    trainer = Trainer(net, chosen, device, **settings)
    trainer.train_epoch(loader or DataLoader(ITEMS, 2))
    if test is not None:
        trainer.evaluate(test)


def sampled(sampler: Any) -> DataLoader:
    return DataLoader(ITEMS, 2, sampler=sampler)


def with_weights() -> DataLoader:
    return sampled(WeightedRandomSampler(np.arange(1.0, 13.0) if rank else np.ones(12), 12, seed=1))


CASES: dict[str, Callable[[], Any]] = {
    "parameters that are reached": lambda: passes(lambda net: net[rank](alpha.ones(2, 3, device=device)).sum()),
    "parameters that are frozen": frozen,
    "order of a shared optimizer, model first": lambda: shared_out(True),
    "order of a shared optimizer, optimizer first": lambda: shared_out(False),
    "sampler of a group of one": lambda: trains(sampled(early)),
    "sampler of another rank": lambda: trains(sampled(DistributedSampler(ITEMS, 2, 1 - rank, seed=0))),
    "random numbers of a sampler": lambda: trains(sampled(Own())),
    "indices as a sampler": lambda: trains(sampled([*range(rank, 12), *range(rank)])),
    "weights of a sampler": lambda: trains(with_weights()),
    "items of a subset": lambda: trains(DataLoader(Subset(ITEMS, [*range(rank, rank + 8)]), 2)),
    "items of a subset of a subset": lambda: trains(
        DataLoader(Subset(Subset(ITEMS, [*range(rank, rank + 8)]), [0, 1, 2, 3, 4, 5]), 2)
    ),
    "items of a test set": lambda: trains(test=DataLoader(ITEMS if rank else Subset(ITEMS, range(6)), 2)),
    "order of a test set": lambda: trains(test=sampled(Own())),
    "rate": lambda: trains(optimizer=lambda net: alpha.optim.SGD(net.parameters(), lr=0.1 * (1 + rank))),
    "kind of optimizer": lambda: trains(
        optimizer=lambda net: [alpha.optim.SGD, alpha.optim.Adam][rank](net.parameters(), lr=0.1)
    ),
    "betas": lambda: trains(optimizer=lambda net: alpha.optim.Adam(net.parameters(), betas=(0.9, 0.9 + rank / 100))),
    "parameters of the optimizer": lambda: trains(
        optimizer=lambda net: alpha.optim.SGD([*net.parameters()][: 8 - rank], lr=0.1)
    ),
    "order of its parameters": lambda: trains(
        optimizer=lambda net: alpha.optim.SGD([*net.parameters()][:: 1 - 2 * rank], lr=0.1)
    ),
    "clip_norm": lambda: trains(clip_norm=0.1 * (rank + 1)),
    "accumulate": lambda: trains(accumulate=rank + 1),
    "ema": lambda: trains(ema=0.9 + rank / 100),
    "memory_mode": lambda: trains(memory_mode=["fast", "least"][rank]),
    "nothing": lambda: trains(sampled(WeightedRandomSampler(np.ones(12), 12, seed=1)), test=sampled(range(12))),
}


def error_of(case: Callable[[], Any]) -> str:
    try:
        case()
    except AlphaError as error:
        return f"{type(error).__name__}: {error}"
    return ""


tell({name: error_of(case) for name, case in CASES.items()})
