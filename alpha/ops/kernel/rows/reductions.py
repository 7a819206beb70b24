"""Products, extremes and truth along the middle axis of an array, in a fixed order; `sums.py` has the sums."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from alpha.core.primitive import Array, primitive
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, DType, as_float32
from alpha.ops.kernel.common_dtype import BOOL, INT64
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan
from alpha.ops.kernel.rows.row_tile import RowTile
from alpha.ops.kernel.sums import column_block, column_splits, sum_dtype, tile_of_rows
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

LONG_ROWS = 1 << 30  # from which on row numbers have 64 bits


@primitive
def product_axis1(X: Array) -> Array:
    """Y = product over the middle axis, float32 if X is bfloat16   X (A, R, B) of floats or int64 -> Y (A, B)"""


@primitive
def extreme_axis1(X: Array, largest: bool) -> tuple[Array, Array]:
    """The largest, or smallest, element along the middle axis, and the row of the first one; NaN is an extreme

    X (A, R, B), R > 0 -> Y (A, B), rows (A, B) of int64
    """


@primitive
def truth_axis1(X: Array, every: bool) -> Array:
    """Y = any(X != 0) along the middle axis, or all(X != 0) if `every`   X (A, R, B) -> Y (A, B) of bools"""


# -- cpu --------------------------------------------------------------------------------------------


@product_axis1.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array) -> Array:
    X = as_float32(X)
    return np.multiply.reduce(X, axis=1, dtype=X.dtype)


@extreme_axis1.impl("cpu")
def _(X: Array, largest: bool) -> tuple[Array, Array]:
    A, R, B = X.shape
    rows = cpu_empty((A, B), INT64)
    wide, find = as_float32(X), np.argmax if largest else np.argmin

    def chunk(start: int, stop: int) -> None:
        rows[start:stop] = find(wide[start:stop], axis=1)

    workers.parallel_for(A, max(1, workers.CHUNK_BYTES // max(1, R * B * X.itemsize)), chunk)
    return np.take_along_axis(X, rows[:, None], axis=1)[:, 0], rows


@truth_axis1.impl("cpu")
def _(X: Array, every: bool) -> Array:
    found: Array = (np.all if every else np.any)(X != 0, axis=1)
    return found


# -- cuda -------------------------------------------------------------------------------------------


@product_axis1.impl("cuda")
def _(X: Array) -> Array:
    return _reduce(X, "Product", sum_dtype(X.dtype), 0)[0]


@extreme_axis1.impl("cuda")
def _(X: Array, largest: bool) -> tuple[Array, Array]:
    tile = tile_of_rows(X) if X.size else None
    if tile is not None:
        made = _plan_extreme_rows(*X.shape[:2], X.dtype, int(largest), tile).launch(X.device, {"X": X})
        return made["Y"], made["at"]
    return _reduce(X, "Extreme", X.dtype, int(largest))


@truth_axis1.impl("cuda")
def _(X: Array, every: bool) -> Array:
    return _reduce(X, "Truth", BOOL, int(every))[0]


def _reduce(X: Array, reduction: str, dtype: DType, flag: int) -> tuple[Array, Any]:
    A, R, B = X.shape
    if X.size == 0:  # the product of nothing is 1, and all of nothing is true
        Y = X.device.empty((A, B), dtype)
        X.device.fill(Y, 1 if reduction == "Product" else flag)
        return Y, X.device.empty((A, B), np.int64)
    made = _plan(reduction, (A, R, B), X.dtype, flag, X.device.properties.num_sms).launch(X.device, {"X": X})
    return made["Y"], made.get("at")


@functools.lru_cache(maxsize=4096)
def _plan(reduction: str, shape: tuple[int, int, int], dtype: DType, flag: int, num_sms: int) -> Plan:
    """Many rows are cut into segments, whose results are folded again."""
    results = {"Product": sum_dtype(dtype), "Extreme": dtype, "Truth": BOOL}[reduction]
    launches: list[KernelLaunch] = []
    workspaces: dict[str, Buffer] = {}
    source, given = "X", None
    while True:
        A, R, B = shape
        number = int if R < LONG_ROWS else np.int64
        block = column_block(A, R, B)
        tiles = -(-B // block[0]) * -(-A // block[2])
        splits, rows = column_splits(num_sms, R, block[1], tiles)
        part = "" if splits == 1 else f" in parts, {len(launches)}"
        arrays = ArrayArg(f"Y{part}"), ArrayArg(f"at{part}", optional=True), ArrayArg(source), given
        launches.append(
            KernelLaunch(
                "reduce/fold.cu",
                "fold",
                (tiles, splits),
                block,
                (*arrays, A, number(R), B, number(rows), flag),
                {"TYPE": CUDA_TYPES[dtype], "FOLD": reduction, "ROW": "int" if number is int else "long long"},
            )
        )
        made = {f"Y{part}": results, **({f"at{part}": INT64} if reduction == "Extreme" else {})}
        if splits == 1:
            return Plan(reduction.lower(), tuple(launches), {n: Buffer((A, B), t) for n, t in made.items()}, workspaces)
        workspaces |= {name: Buffer((splits, A, B), kind) for name, kind in made.items()}
        source, given = f"Y{part}", ArrayArg(f"at{part}", optional=True)
        shape, dtype = (1, splits, A * B), results


@functools.lru_cache(maxsize=4096)
def _plan_extreme_rows(A: int, R: int, dtype: DType, largest: int, tile: RowTile) -> Plan:
    arguments = ArrayArg("Y"), ArrayArg("at"), ArrayArg("X"), np.int64(A), R, largest
    macros = {"TYPE": CUDA_TYPES[dtype], **tile.macros}
    launch = KernelLaunch("reduce/rows.cu", "extreme_rows", tile.blocks(A), BLOCK, arguments, macros)
    return Plan("extreme of rows", (launch,), {"Y": Buffer((A, 1), dtype), "at": Buffer((A, 1), INT64)})


def around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """The lengths before, of and behind an axis, as one each."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
