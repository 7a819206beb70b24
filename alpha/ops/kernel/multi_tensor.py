"""Common part of the updates of optimizers: one launch updates many parameters (a multi-tensor kernel).

This file also has: the norm of many gradients, and limits for them, each in one launch for all.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array, primitive
from alpha.ops.kernel.casts import require_float32
from alpha.ops.kernel.kept_tables import KeptTables
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg
from alpha.runtime import recording, workers
from alpha.runtime.device import HostArray
from alpha.runtime.recording import StepValue
from alpha.runtime.work import Work

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice

CHUNK = 1 << 14  # elements of one tensor that a block updates
PIECES = 8  # of four such chunks, that a worker of the cpu takes at once
TABLES = 4  # of a list of parameters, at once
MOST_LISTS = 16  # of parameters, whose tables are kept

Addresses: TypeAlias = tuple[tuple[int, ...], ...]  # those of all weights, of all gradients, ..


Update: TypeAlias = Callable[[], object]


class _Waiting(threading.local):
    updates: list[Update] | None = None


_waiting = _Waiting()


def deferred(function: Callable[[], object]) -> list[Update]:
    """Call `function`; the updates in place that it asks for, each with all memory that it needs, wait in the list.

    So a step that finds no memory for one of its updates has made none of them.
    """
    before: list[Update] | None = _waiting.updates
    updates: list[Update] = []
    try:
        _waiting.updates = updates
        function()
        _waiting.updates = before
    except BaseException:  # no context manager: an interrupt in its own code would let later updates wait for ever
        _waiting.updates = before
        raise
    return updates


def make(update: Update) -> None:
    """Make an update in place, which asks for no memory any more; inside of `deferred` it waits."""
    if _waiting.updates is None:
        update()
    else:
        _waiting.updates.append(update)


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

    workers.parallel_for(len(pieces), PIECES, run)


def launch_update(
    kernel: str,
    arrays: list[list[Array]],
    held: int,
    rule: StepValue[Any],
    pack: Callable[[Any], Any],
    beside: Sequence[Sequence[Array | None]] = (),
) -> None:
    """Update all parameters by one launch of cuda/optimizer/<kernel>.cu.

    Args:
        arrays: the parameters, their gradients, and lists of state arrays, as `chunk_table` takes them.
        held: a bit for each list of state arrays that the parameters have.
        pack: makes of `rule.now()` the structure that the kernel takes.
        beside: what it writes beside the parameters, see `chunk_writer`.
    """
    table, chunks = _chunk_table(arrays, "optimizer", beside)
    if not chunks:
        return
    device = arrays[0][0].device
    numbers, address = device.step_value(rule, pack)
    plan = _plan(kernel, chunks, numbers.dtype)
    plan.prepare(device)
    named = {"held": np.uint32(held), "rule": numbers, "address": address, "updated": arrays, "beside": beside}

    def launch() -> None:  # it holds the arrays until then: the table has only their addresses
        plan.launch(device, {"table": table(), **named})

    make(launch)


@functools.lru_cache(maxsize=256)
def _plan(kernel: str, chunks: int, rule: np.dtype[Any]) -> Plan:
    arguments = (
        ArrayArg("table"),
        ScalarArg("held", np.dtype(np.uint32)),
        ScalarArg("rule", rule),
        ArrayArg("address", optional=True),
    )
    launch = KernelLaunch(f"optimizer/{kernel}.cu", kernel, chunks, 256, arguments, does=_work)
    return Plan(kernel, (launch,), {})


def _work(named: Mapping[str, Any]) -> Work:
    """The work of an update: it reads all arrays that the parameters have, and writes all but the gradients.

    It also writes what lies beside the parameters.
    """
    sizes = [sum(array.nbytes for array in same) for same in named["updated"]]
    states = sum(size for bit, size in enumerate(sizes[2:]) if int(named["held"]) >> bit & 1)
    beside = sum(array.nbytes for column in named["beside"] for array in column if array is not None)
    return Work(read=sizes[0] + sizes[1] + states, written=sizes[0] + states + beside)


def chunk_table(
    arrays: list[list[Array]], operator: str = "optimizer", beside: Sequence[Sequence[Array | None]] = ()
) -> tuple[Array, int]:
    """Device table of (addresses of one tensor's arrays, start, length) a chunk, and how many; see `chunk_writer`."""
    table, chunks = _chunk_table(arrays, operator, beside)
    return table(), chunks


def _chunk_table(
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


@primitive
def gradient_norm(gradients: list[Array], p: float) -> Array:
    """The p-norm of all elements of all arrays, () of their dtype; p > 0, and an infinite p is the largest magnitude"""


@primitive
def clip_gradients(gradients: list[Array], norm: Array | None, most: float, bound: float) -> None:
    """G = G min(1, most / (norm + 1e-6)), without a norm G, and then limited to [-bound, bound], in place; norm ()"""


@gradient_norm.impl("cpu")
@np.errstate(all="ignore")
def _(gradients: list[Array], p: float) -> Array:
    parts: list[list[np.float64]] = [[] for _ in gradients]

    def add(part: list[np.float64], g: Array) -> None:
        size = np.abs(g, dtype=np.float64)
        part.append(size.max(initial=0) if math.isinf(p) else (size**p).sum())

    for part, gradient in zip(parts, gradients, strict=True):
        flat = gradient.reshape(-1)
        for start in range(0, flat.size, 1 << 16):
            add(part, flat[start : start + (1 << 16)])
    values = np.array([value for part in parts for value in part], np.float64)
    norm = values.max(initial=0) if math.isinf(p) else values.sum() ** (1 / p)
    return np.asarray(norm, np.result_type(*gradients))


@clip_gradients.impl("cpu")
@np.errstate(all="ignore")
def _(gradients: list[Array], norm: Array | None, most: float, bound: float) -> None:
    factor = 1.0 if norm is None else np.minimum(most / (norm + norm.dtype.type(1e-6)), 1)

    def clip(g: Array) -> None:
        if norm is not None:
            g *= g.dtype.type(factor)
        if not math.isinf(bound):
            np.clip(g, -bound, bound, out=g)

    in_chunks([gradients], clip)


@gradient_norm.impl("cuda")
def _(gradients: list[Array], p: float) -> Array:
    table, chunks = chunk_table([gradients], "clip_grad_norm_")
    device = table.device
    parts, norm = device.empty(max(1, chunks), np.float64), device.empty((), FLOAT32)
    if chunks:
        device.launch("optimizer/clip.cu", "norms", chunks, 256, (parts, table, np.float32(p)))
    device.launch("optimizer/clip.cu", "total_norm", 1, 256, (norm, parts, chunks, np.float32(p)))
    return norm


@clip_gradients.impl("cuda")
def _(gradients: list[Array], norm: Array | None, most: float, bound: float) -> None:
    table, chunks = chunk_table([gradients], "clip_grad_norm_")
    if chunks:
        arguments = (table, norm, np.float32(most), np.float32(bound))
        table.device.launch("optimizer/clip.cu", "clip", chunks, 256, arguments)
