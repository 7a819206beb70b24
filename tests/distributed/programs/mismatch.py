"""Ranks that make different exchanges: mismatch.py PLACE.

"each" tries all pairs of some, and tells which of them were errors. "watch" lets rank 0 compare texts, for which MPI is
not asked, and rank 1 wait for all; "later" lets the ranks work on after exchanges that fit by chance.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from ranks import joined, tell

import alpha
from alpha import distributed as dist
from alpha.distributed.engines.exchange import nothing
from alpha.distributed.process_group import current
from alpha.errors import DistributedError

device = joined()
group = current()
assert group is not None


def tensor(shape: tuple[int, ...] = (4,), dtype: str = "float32") -> Any:
    return alpha.tensor(np.ones(shape, dtype)).to(device)


def many(last: int) -> Callable[[], Any]:
    arrays = [tensor((2,)).array for _ in range(9)] + [tensor((last,)).array]
    return lambda: group.engine.all_reduce(arrays, "sum")  # type: ignore[union-attr]


CALLS: dict[str, Callable[[], Any]] = {
    "sum": lambda: dist.all_reduce(tensor()),
    "max": lambda: dist.all_reduce(tensor(), "max"),
    "another dtype": lambda: dist.all_reduce(tensor(dtype="int32")),
    "another width": lambda: dist.all_reduce(tensor(dtype="float64")),
    "another shape": lambda: dist.all_reduce(tensor((2, 2))),
    "from 0": lambda: dist.broadcast(tensor(), 0),
    "from 1": lambda: dist.broadcast(tensor(), 1),
    "gather": lambda: dist.all_gather(tensor()),
    "gather more": lambda: dist.all_gather(tensor((8,))),
    "scatter": lambda: dist.reduce_scatter(tensor()),
    "scatter the mean": lambda: dist.reduce_scatter(tensor(), "mean"),
    "to 0": lambda: group.engine.reduce([tensor().array], [0], "sum"),  # type: ignore[union-attr]
    "to 1": lambda: group.engine.reduce([tensor().array], [1], "sum"),  # type: ignore[union-attr]
    "many": many(3),
    "many others": many(4),
    "barrier": dist.barrier,
    "numbers": lambda: dist.gather_numbers(1.0),
}
own = dist.rank()
if sys.argv[1] == "each":
    assert group.engine is not None
    group.engine.begin = nothing  # the watch would end the ranks at the first
    found = []
    for pair in [(first, second) for first in CALLS for second in CALLS]:
        try:
            CALLS[pair[own]]()
            found.append([*pair, ""])
        except DistributedError as error:
            found.append([*pair, str(error)])
    tell(found)
elif sys.argv[1] == "watch":
    group.told("a text") if own == 0 else dist.barrier()
else:
    CALLS["max" if own else "sum"]()
    time.sleep(10_000)
