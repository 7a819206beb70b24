"""Every exchange, for each dtype and some shapes: what each rank got."""

from __future__ import annotations

from typing import Any

import numpy as np
from ranks import joined, tell

import alpha
from alpha import distributed as dist

DTYPES = ("float64", "float32", "bfloat16", "int64", "int32", "uint8")
SHAPES = ((), (1,), (3,), (2, 3, 4))


def values(rank: int, shape: tuple[int, ...], dtype: str) -> Any:
    """Small whole numbers, whose sums are exact in each dtype."""
    found = (np.arange(max(1, np.prod(shape, dtype=int))).reshape(shape) * (rank + 1)) % 7 + rank
    return alpha.tensor(found.astype(np.float32)).astype(dtype)


device = joined()
world = dist.world_size()
found: dict[str, Any] = {}
for dtype in DTYPES:
    for shape in SHAPES:
        own = values(dist.rank(), shape, dtype).to(device)
        name = f"{dtype} {shape}"
        for op in ("sum", "min", "max", *(["mean"] if "float" in dtype else [])):
            reduced = own.clone()
            same = dist.all_reduce(reduced, op)
            found[f"{name} {op}"] = reduced.astype("float64").numpy().tolist() if same is reduced else "another tensor"
        for source in range(world):
            found[f"{name} broadcast {source}"] = dist.broadcast(own.clone(), source).astype("float64").numpy().tolist()
        found[f"{name} all_gather"] = dist.all_gather(own).astype("float64").numpy().tolist()
        rows = alpha.tensor(np.arange(2 * world * 3).reshape(2 * world, 3) % 5 + dist.rank()).astype(dtype).to(device)
        found[f"{name} reduce_scatter"] = dist.reduce_scatter(rows).astype("float64").numpy().tolist()
dist.barrier()
found["numbers"] = dist.gather_numbers(dist.rank() + 0.5)
flags = alpha.tensor(np.array([dist.rank() == 0, False, True])).to(device)
found["bool max"] = dist.all_reduce(flags, "max").numpy().tolist()
leaf = alpha.tensor([1.0, 2.0]).to(device)
leaf.requires_grad = True
y = leaf * 2
dist.all_reduce(y)
y.sum().backward()
found["gradient of all_reduce"] = leaf.grad.numpy().tolist()
tell(found)
