"""Common part of the updates of optimizers: one launch updates many parameters (a multi-tensor kernel)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from alpha.core.primitive import Array
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg
from alpha.ops.kernel.tables.chunk_tables import CHUNK, prepared_chunk_table
from alpha.ops.kernel.tables.deferred import make
from alpha.runtime import workers
from alpha.runtime.recording import StepValue
from alpha.runtime.work import Work

PART = 4 * CHUNK  # elements of one tensor that a worker of the cpu updates before those of the next one
PIECES = 8  # of such parts, that a worker takes at once


def in_chunks(arrays: list[list[Array]], update: Callable[..., None]) -> None:
    """`update(*chunks)` over all tensors, a cache-sized chunk at a time, on all workers."""
    pieces: list[tuple[Array, ...]] = []
    for group in zip(*arrays, strict=True):
        flat = [a.reshape(-1) for a in group]
        for start in range(0, flat[0].size, PART):
            pieces.append(tuple(a[start : start + PART] for a in flat))

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
    table, chunks = prepared_chunk_table(arrays, "optimizer", beside)
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
