"""Tables of the chunks of many tensors, which a kernel for all of them reads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from alpha.core.primitive import Array
from alpha.ops.kernel.casts import require_float32
from alpha.ops.kernel.tables.kept_tables import KeptTables
from alpha.runtime import recording
from alpha.runtime.device import HostArray

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice

CHUNK = 1 << 14  # elements of one tensor that a block updates
TABLES = 4  # of a list of parameters, at once
MOST_LISTS = 16  # of parameters, whose tables are kept
Addresses: TypeAlias = tuple[tuple[int, ...], ...]  # those of all weights, of all gradients, ..


def chunk_table(
    arrays: list[list[Array]], operator: str = "optimizer", beside: Sequence[Sequence[Array | None]] = ()
) -> tuple[Array, int]:
    """Device table of (addresses of one tensor's arrays, start, length) a chunk, and how many; see `chunk_writer`."""
    table, chunks = prepared_chunk_table(arrays, operator, beside)
    return table(), chunks


def prepared_chunk_table(
    arrays: list[list[Array]], operator: str, beside: Sequence[Sequence[Array | None]] = ()
) -> tuple[Callable[[], Array], int]:
    """See `chunk_writer`; all `arrays` must be float32."""
    for same in arrays:
        require_float32(operator, *same)
    return chunk_writer(arrays, beside)


def chunk_writer(
    arrays: list[list[Array]], beside: Sequence[Sequence[Array | None]] = ()
) -> tuple[Callable[[], Array], int]:
    """Function that writes the table, for which there is memory already, and the number of chunks in it.

    Args:
        beside: more columns, in which a tensor may have no array and its address is 0.
    """
    device = arrays[0][0].device
    columns = [*arrays, *beside]
    used = [array for same in columns for array in same if array is not None]
    addresses = tuple(
        [tuple([0 if a is None else a.block.address + a.offset for a in same]) for same in columns]
    )  # `address`, without a call
    sizes = tuple([a.size for a in arrays[0]])
    return table_writer(device, addresses, sizes, used), count_chunks(sizes)


# tables of captured steps, which read them at each replay, so nothing else is ever written there
CONSTANTS = KeptTables()


def _constant_table(device: CudaDevice, addresses: Addresses, sizes: tuple[int, ...]) -> Array:
    return CONSTANTS.get((device, addresses, sizes), lambda: device.constant(_table(addresses, sizes)))


class _Tables:
    """Device memory for a few tables of one list of parameters.

    Gradients lie where they lay in an earlier step, once steps repeat, so the table is mostly there already. Else it
    replaces the one that was used longest ago: to ask for other memory would change where the next gradients lie.
    """

    def __init__(self, device: CudaDevice, shape: tuple[int, ...]) -> None:
        places = device.empty((TABLES, *shape), np.dtype(np.int64))
        self._places = [places.slice_rows(i, i + 1).reshape(shape) for i in range(TABLES)]
        self._held: dict[Addresses, Array] = {}  # those places that have a table

    def of(self, addresses: Addresses, sizes: tuple[int, ...]) -> Array:
        """The table of these addresses."""
        held = self._held
        table = held.pop(addresses, None)
        if table is None:
            if len(held) == TABLES:
                del held[next(iter(held))]
            taken = set(map(id, held.values()))
            table = next(place for place in self._places if id(place) not in taken)
            table.device.write(table, _table(addresses, sizes))
        held[addresses] = table  # as the one that was used last
        return table


def table_writer(
    device: CudaDevice, addresses: Addresses, sizes: tuple[int, ...], used: Sequence[Array]
) -> Callable[[], Array]:
    """Function that gives the table of these addresses; a new table is written into memory that is there now.

    A table that is given is right until `TABLES` others of the same sizes were given. A launch that reads it comes
    next. If a step is recorded, it notes that this launch uses the arrays `used`.
    """
    if recording.active() is not None:
        constant = _constant_table(device, addresses, sizes)

        def table() -> Array:
            device.use(*used)
            return constant

        return table
    kept = _kept.setdefault(device, {})
    tables = kept.get((sizes, len(addresses)))
    if tables is None:
        if len(kept) >= MOST_LISTS:
            del kept[next(iter(kept))]
        tables = kept[sizes, len(addresses)] = _Tables(device, (count_chunks(sizes), len(addresses) + 2))
    return functools.partial(tables.of, addresses, sizes)


def count_chunks(sizes: tuple[int, ...]) -> int:
    return sum([-(-size // CHUNK) for size in sizes])


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
