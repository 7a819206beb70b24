"""What the updates of optimizers share: one launch updates many parameters (a multi-tensor kernel)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from alpha.ops.dtypes import require_float32
from alpha.ops.plan import KernelLaunch, Named, Plan, Value
from alpha.primitive import Array
from alpha.runtime import recording, workers
from alpha.runtime.device import HostArray
from alpha.runtime.recording import StepValue

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice

CHUNK = 1 << 14  # elements of one tensor that a block updates
TABLES = 4  # of a list of parameters, at once
MOST_LISTS = 16  # of parameters, whose tables are kept

Addresses: TypeAlias = tuple[tuple[int, ...], ...]  # those of all weights, of all gradients, ..


def in_chunks(arrays: list[list[Array]], update: Callable[..., None]) -> None:
    """`update(*chunks)` over all tensors, a cache-sized chunk at a time, on all workers."""
    pieces: list[tuple[Array, ...]] = []
    for group in zip(*arrays, strict=True):
        flat = [a.reshape(-1) for a in group]
        for start in range(0, flat[0].size, 4 * CHUNK):
            pieces.append(tuple(a[start : start + 4 * CHUNK] for a in flat))

    def run(start: int, stop: int) -> None:
        for piece in pieces[start:stop]:
            update(*piece)

    workers.parallel_for(len(pieces), 8, run)


def launch_update(
    kernel: str, table: Array, chunks: int, held: int, rule: StepValue[Any], pack: Callable[[Any], Any]
) -> None:
    """Update all parameters by one launch of cuda/optimizer/<kernel>.cu.

    Args:
        table, chunks: what `chunk_table` returns.
        held: a bit for each list of state arrays that the parameters have.
        pack: makes of `rule.now()` the structure that the kernel takes.
    """
    numbers, address = table.device.step_value(rule, pack)
    plan = _plan(kernel, chunks, numbers.dtype)
    plan.launch(table.device, {"table": table, "held": np.uint32(held), "rule": numbers, "address": address})


@functools.lru_cache(maxsize=256)
def _plan(kernel: str, chunks: int, rule: np.dtype[Any]) -> Plan:
    arguments = Named("table"), Value("held", np.dtype(np.uint32)), Value("rule", rule), Named("address", optional=True)
    return Plan(kernel, (KernelLaunch(f"optimizer/{kernel}.cu", kernel, chunks, 256, arguments),), {})


def chunk_table(arrays: list[list[Array]], operator: str = "optimizer") -> tuple[Array, int]:
    """Device table of (addresses of one tensor's arrays, start, length) a chunk, and how many."""
    for same in arrays:
        require_float32(operator, *same)
    device = arrays[0][0].device
    device.use(*itertools.chain(*arrays))
    addresses = tuple(
        [tuple([a.block.address + a.offset for a in same]) for same in arrays]
    )  # `address`, without a call
    table = _device_table(device, addresses, tuple([a.size for a in arrays[0]]))
    return table, len(table)


# a captured step reads its table at each replay, so nothing else is ever written there
@functools.lru_cache(maxsize=16)
def _constant_table(device: CudaDevice, addresses: Addresses, sizes: tuple[int, ...]) -> Array:
    return device.constant(_table(addresses, sizes))


class _Tables:
    """Device memory for a few tables of one list of parameters.

    Gradients lie where they lay in an earlier step, once steps repeat, so the table is mostly there already. Else it
    replaces the one that was used longest ago: to ask for other memory would change where the next gradients lie.
    """

    def __init__(self, device: CudaDevice, shape: tuple[int, ...]) -> None:
        places = device.empty((TABLES, *shape), np.dtype(np.int64))
        self._free = [places.slice_rows(i, i + 1).reshape(shape) for i in range(TABLES)]
        self._held: dict[Addresses, Array] = {}

    def of(self, addresses: Addresses, sizes: tuple[int, ...]) -> Array:
        """The table of these addresses."""
        held = self._held
        table = held.pop(addresses, None)
        if table is None:
            table = self._free.pop() if self._free else held.pop(next(iter(held)))
            table.device.write(table, _table(addresses, sizes))
        held[addresses] = table  # as the one that was used last
        return table


def _device_table(device: CudaDevice, addresses: Addresses, sizes: tuple[int, ...]) -> Array:
    if recording.active() is not None:
        return _constant_table(device, addresses, sizes)
    kept = _kept.setdefault(device, {})
    tables = kept.get((sizes, len(addresses)))
    if tables is None:
        if len(kept) >= MOST_LISTS:
            del kept[next(iter(kept))]
        chunks = sum(-(-size // CHUNK) for size in sizes)
        tables = kept[sizes, len(addresses)] = _Tables(device, (chunks, len(addresses) + 2))
    return tables.of(addresses, sizes)


_kept: WeakKeyDictionary[CudaDevice, dict[tuple[tuple[int, ...], int], _Tables]] = WeakKeyDictionary()


def _table(addresses: Addresses, sizes: tuple[int, ...]) -> HostArray:
    """(addresses of one tensor's arrays, start, length) of each chunk, int64."""
    counts = -(-np.array(sizes, np.int64) // CHUNK)
    tensor = np.repeat(np.arange(len(sizes)), counts)
    chunk = np.arange(len(tensor)) - np.repeat(counts.cumsum() - counts, counts)
    table = np.empty((len(tensor), len(addresses) + 2), np.int64)
    table[:, :-2] = np.array(addresses, np.int64).T[tensor]
    table[:, -2] = chunk * CHUNK
    table[:, -1] = np.minimum(CHUNK, np.array(sizes, np.int64)[tensor] - table[:, -2])
    return table
