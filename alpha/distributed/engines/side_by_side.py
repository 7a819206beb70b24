"""Copies of many arrays at once, side by side or anywhere, in another dtype if need be: one launch for all."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from alpha.core.primitive import Array, device_of, primitive, span
from alpha.ops.kernel.casts import CUDA_TYPES
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan
from alpha.ops.kernel.tables.chunk_tables import chunk_writer

BLOCK = 256
ALIGNED = 64  # elements, so that each part begins as an array of its own does


@primitive
def copy_arrays(targets: list[Array], sources: list[Array]) -> None:
    """Each target = its source, in place   (...) of one dtype for all targets, and of one for all sources"""


@copy_arrays.impl("cpu")
@np.errstate(all="ignore")
def _(targets: list[Array], sources: list[Array]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target[...] = source


@copy_arrays.impl("cuda")
def _(targets: list[Array], sources: list[Array]) -> None:
    table, chunks = chunk_writer([targets, sources])
    if chunks:
        plan = _plan(chunks, sources[0].dtype, targets[0].dtype)
        plan.launch(targets[0].device, {"table": table()})
        for target in targets:
            target.magnitude = None


@functools.lru_cache(maxsize=256)
def _plan(chunks: int, dtype: np.dtype[Any], wanted: np.dtype[Any]) -> Plan:
    macros = {"FROM": CUDA_TYPES[dtype], "TO": CUDA_TYPES[wanted]}
    launch = KernelLaunch("elementwise/copy_arrays.cu", "copy_arrays", chunks, BLOCK, (ArrayArg("table"),), macros)
    return Plan("copy_arrays", (launch,), {})


def pack(arrays: Sequence[Array], dtype: np.dtype[Any]) -> tuple[Array, list[Array]]:
    """Copies of some arrays of one dtype, side by side in a new array (n,) of another dtype or of theirs.

    Returns:
        That array, with zeros between the copies, and the copies: parts of it, of the shapes that were given.
    """
    rooms = [-(-array.size // ALIGNED) * ALIGNED for array in arrays]
    *starts, size = accumulate(rooms, initial=0)
    device = device_of(arrays[0])
    full = size == sum(array.size for array in arrays)
    packed = (device.empty if full else device.zeros)((size,), dtype)
    parts = [span(packed, start, tuple(array.shape)) for start, array in zip(starts, arrays, strict=True)]
    copy_arrays(parts, list(arrays))
    return packed, parts
