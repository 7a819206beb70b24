"""Reductions: sums and means over axes. Order of addition is fixed, so two runs agree bit for bit."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.host_values import Dims, DTypeLike
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array, device_of, primitive
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_to
from alpha.ops.kernel.casts import (
    BLOCK,
    CUDA_TYPES,
    as_dtype,
    as_float32,
    require_floating,
    vector_width,
    widest_vector,
)
from alpha.ops.kernel.elementwise import divide_by_number
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, State
from alpha.ops.kernel.rows.row_tile import RowTile, row_tile
from alpha.ops.kernel.views import Shape
from alpha.runtime import workers

__all__ = ["mean", "sum"]


@primitive
def sum_axis1(X: Array) -> Array:
    """Y = sum over the middle axis, float32 if X is bfloat16   X (A, R, B) of floats or int64 -> Y (A, B)"""


@sum_axis1.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array) -> Array:
    X = as_float32(X)
    A, R, B = X.shape
    if not is_floating(X.dtype):
        return X.sum(axis=1, dtype=X.dtype)
    if B == 1:  # numpy adds a contiguous row pairwise
        return X.reshape(A, R).sum(axis=1, dtype=X.dtype).reshape(A, 1)
    if A == 1:
        return column_sums(X.reshape(R, B)).reshape(1, B)
    return X.sum(axis=1, dtype=X.dtype)


def column_sums(X: Array) -> Array:
    """Sum over rows in cache-sized chunks, the chunks in float64 and in order   X (R, B) -> (B,)"""
    R, B = X.shape
    grain = max(1, workers.CHUNK_BYTES // max(1, B * X.itemsize))
    parts = np.zeros((max(1, -(-R // grain)), B), np.float64)

    def chunk(start: int, stop: int) -> None:
        parts[start // grain] = np.ones(stop - start, X.dtype) @ X[start:stop]

    workers.parallel_for(R, grain, chunk, blas=True)
    return parts.sum(axis=0).astype(X.dtype)


FLOAT64 = np.dtype(np.float64)
WARP = 32  # threads
LINE_BYTES = 128  # that neighbouring threads read at least, of a row that is long enough
LAST_BLOCKS = 8  # that add up the parts of many rows, if columns are enough
COLUMN_THREADS = 512  # at most, of a block of common/columns.cuh
LEAST_ROW_BYTES = 1 << 16  # of an array whose rows have a kernel of their own
# A word for each tile whose blocks meet (common/last_block.cuh): fewer than a GPU has SMs. Or two words in which all
# blocks find the largest number (common/largest.cuh). No launch does both, and each leaves them zero.
MEETING_STATE = State(lambda: np.zeros(1024, np.uint32))
_ACROSS = 16  # packs of columns a block takes at least: 256 contiguous bytes


def column_block(A: int, R: int, packs: int) -> tuple[int, int, int]:
    """(packs of columns, rows, slabs): threads of a block that reduces R rows in A slabs."""
    across = min(_ceil_power(packs), _ACROSS)
    # a lane has about four loads in flight, so fewer rows need fewer lanes
    lanes = min(_ceil_power(max(1, R // 4)), COLUMN_THREADS // across)
    across = min(_ceil_power(packs), COLUMN_THREADS // lanes)
    return across, lanes, min(_ceil_power(A), COLUMN_THREADS // (across * lanes), 64)


def column_splits(num_sms: int, R: int, lanes: int, blocks: int) -> tuple[int, int]:
    """(segments, rows of each): how R rows are cut so that the blocks fill the device."""
    wanted = 2 * num_sms // blocks
    splits = max(1, min(wanted, R // (8 * lanes)))
    rows = -(-R // splits)
    return -(-R // rows), rows


def _ceil_power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


@sum_axis1.impl("cuda")
def _(X: Array) -> Array:
    if X.size == 0:
        return X.device.zeros((X.shape[0], X.shape[2]), sum_dtype(X.dtype))
    A, R, B = X.shape
    tile = tile_of_rows(X)
    if tile is not None:
        return _plan_sum_rows(A, R, X.dtype, tile).launch(X.device, {"X": X})["Y"]
    plan = plan_sum(A, R, B, X.dtype, vector_width(X, along=neighbours(A, R, B)), X.device.properties.num_sms)
    return plan.launch(X.device, {"X": X})["Y"]


def neighbours(A: int, R: int, B: int) -> int:
    """The elements that packs divide; a single row may have a rest that is no pack."""
    return B if B > 1 else R if A > 1 else 0


def tile_of_rows(X: Array) -> RowTile | None:
    """The tile with which reduce/rows.cu reduces X (A, R, B), if it does: floats, rows of neighbours that fit.

    It is compiled for each length of rows, which does not pay for a small array.
    """
    if X.shape[2] > 1 or not is_floating(X.dtype) or X.nbytes < LEAST_ROW_BYTES:
        return None
    vector, most = vector_width(X, along=X.shape[1]), held_elements(X.dtype)
    return row_tile(X.shape[1], vector, X.dtype.itemsize, elements=most, widened=False)


def held_elements(dtype: np.dtype[Any]) -> int:
    """Elements of a row that a thread holds at most as they lie in memory; two of bfloat16 share a register."""
    return 32 if dtype == BFLOAT16 else 24


@functools.lru_cache(maxsize=4096)
def _plan_sum_rows(A: int, R: int, dtype: np.dtype[Any], tile: RowTile) -> Plan:
    arguments = ArrayArg("Y"), ArrayArg("X"), np.int64(A), R
    macros = {"TYPE": CUDA_TYPES[dtype], **tile.macros}
    launch = KernelLaunch("reduce/rows.cu", "sum_rows", tile.blocks(A), BLOCK, arguments, macros)
    return Plan("sum of rows", (launch,), {"Y": Buffer((A, 1), sum_dtype(dtype))})


@functools.lru_cache(maxsize=4096)
def plan_sum(
    A: int, R: int, B: int, dtype: np.dtype[Any], vector: int, num_sms: int, squares: bool | None = None
) -> Plan:
    """Sums over the middle axis, "Y", of an array "X"   (A, R, B) -> (A, B)"""
    launches, workspaces = sum_launches("X", "Y", (A, R, B), dtype, vector, num_sms, squares=squares)
    return Plan("sum", tuple(launches), {"Y": Buffer((A, B), sum_dtype(dtype, squares is not None))}, workspaces)


def sum_dtype(dtype: np.dtype[Any], wide: bool = False) -> np.dtype[Any]:
    return FLOAT64 if wide else FLOAT32 if dtype == BFLOAT16 else dtype


def sum_launches(
    source: str,
    result: str,
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    vector: int,
    num_sms: int,
    output: np.dtype[Any] | None = None,
    squares: bool | None = None,
) -> tuple[list[KernelLaunch], dict[str, Buffer]]:
    """Launches of a plan that sum an array over its middle axis, and their workspaces   (A, R, B) -> (A, B)

    Many rows are cut into segments, whose sums the last block of each tile of columns adds. `vector`: of columns; of
    neighbours in a row if B is 1. `output`: the dtype of the result, by default that of the sums. `squares`:
    if not None, the sums are in float64, and of the squares of the elements if True.
    """
    A, R, B = shape
    if B == 1:
        vector = vector if vector <= R else 1
        R, tail = divmod(R, vector)
    packs = -(-B // vector)
    across, lanes, slabs = column_block(A, R, packs)

    def tiles_of(across: int) -> int:
        return -(-packs // across) * -(-A // slabs)

    while across > WARP and tiles_of(across) < num_sms:  # smaller blocks, so that each SM has one
        across //= 2
    line = max(1, LINE_BYTES // (vector * dtype.itemsize))
    while across > line and tiles_of(across) < LAST_BLOCKS and 64 * lanes <= R:  # the parts are added by several blocks
        across, lanes = across // 2, 2 * lanes
    block, tiles = (across, lanes, slabs), tiles_of(across)
    splits, rows = column_splits(num_sms, R, lanes, tiles)
    parts = f"{result} in parts"
    several = splits > 1  # then there are fewer tiles than SMs
    arrays = (
        ArrayArg(result),
        ArrayArg(parts) if several else None,
        MEETING_STATE if several else None,
        ArrayArg(source),
    )
    numbers = A, R, tail if B == 1 else B, rows
    macros = {
        "TYPE": CUDA_TYPES[dtype],
        "OUTPUT": CUDA_TYPES[output or sum_dtype(dtype, squares is not None)],
        "VECTOR": vector,
        "WIDE": int(squares is not None),
        "SQUARED": int(bool(squares)),
    }
    entry = "sum_long_rows" if B == 1 else "sum_columns"
    launch = KernelLaunch("reduce/sum.cu", entry, (tiles, splits), block, (*arrays, *numbers), macros)
    return [launch], {parts: Buffer((splits, A, B), sum_dtype(dtype, squares is not None))} if several else {}


def plan_reduce_splits(part: str, result: str, splits: int, made: Buffer, num_sms: int) -> Plan:
    """The sums over the leading axis of a plan's float32 array `part` (splits, ..), as a plan without outputs.

    made: the result, float32 or bfloat16, to which the sums are rounded once.
    """
    vector = widest_vector(FLOAT32, made.size)
    launches, workspaces = sum_launches(part, result, (1, splits, made.size), FLOAT32, vector, num_sms, made.dtype)
    return Plan("sum of parts", tuple(launches), {}, workspaces)


def sum_axes(X: Array, axes: tuple[int, ...], first: Callable[[Array], Array] = sum_axis1) -> Array:
    """Sum over axes, which stay as length 1; float32 where X is bfloat16   X (D0, .., Dk) -> Y with D = 1 at `axes`

    first: what adds up the elements of X; `sum_axis1` adds up its results.
    """
    shape = list(X.shape)
    runs: list[tuple[int, int]] = []  # neighbouring axes are one sum
    for axis in sorted(axes):
        if runs and runs[-1][1] == axis:
            runs[-1] = (runs[-1][0], axis + 1)
        else:
            runs.append((axis, axis + 1))
    for start, stop in reversed(runs):
        before, length = math.prod(shape[:start]), math.prod(shape[start:stop])
        X = first(X.reshape(before, length, math.prod(shape[stop:])))
        first = sum_axis1
        shape[start:stop] = [1] * (stop - start)
    return X.reshape(tuple(shape))


class Sum(Function):
    """Y = sum over axes / count   X (...) -> Y with the axes of length 1, or dropped"""

    def forward(self, X: Array, *, axes: tuple[int, ...], count: int, keepdim: bool) -> Array:
        self.count = count
        self.shape = self.kept = tuple(X.shape)
        if not axes:
            return device_of(X).copy(X)
        Y = sum_axes(X, axes)
        if self.count != 1:
            Y = divide_by_number(Y, p=self.count, out=Y)
        Y = as_dtype(Y, X.dtype)
        self.kept = tuple(Y.shape)
        if keepdim:
            return Y
        return Y.reshape(tuple([n for i, n in enumerate(self.shape) if i not in axes]))

    def backward(self, dY: Array) -> Any:
        dY = dY.reshape(self.kept)
        if self.count != 1:
            dY = divide_by_number(dY, p=self.count)
        return broadcast_to(dY, self.shape)


def axes_of(name: str, x: Tensor, dim: Dims) -> tuple[int, ...]:
    """The axes that `dim` names, as PyTorch does: all of them for None and (), and 0 or -1 of a 0-d tensor for none."""
    if dim is None:
        return tuple(range(x.ndim))
    try:
        wanted = [_index(d) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    except TypeError:
        raise TypeError(f"{name}: dim={dim!r} is not an integer, a tuple of integers or None") from None
    rank = max(x.ndim, 1)
    axes = tuple([d + rank if d < 0 else d for d in wanted])
    if any([not 0 <= d < rank for d in axes]) or len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: dim={dim} are not distinct axes of shape {x.shape}")
    return axes[: x.ndim] if axes else tuple(range(x.ndim))


def _index(dim: Any) -> int:
    if isinstance(dim, (bool, np.bool_)):
        raise TypeError
    return operator.index(dim)


def shape_without(x: Tensor, axes: Shape, keepdim: bool) -> Shape:
    return tuple([1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes])


@check_arguments
def sum(x: AnyTensor, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """Sum over axes (all by default)   x (...) -> the other axes, or 1 in place of each with keepdim.

    Args:
        dtype: cast x to it first; the sum has it, too, and overflows as it does. Default: that of x, and int64 for
            integers and bools.
    """
    if dtype is not None:
        x = x.astype(dtype)
    if is_floating(x.dtype):
        return Sum.apply(x, axes=axes_of("sum", x, dim), count=1, keepdim=keepdim)
    wanted = np.dtype(np.int64) if dtype is None else x.dtype
    total = Sum.apply(x.astype(np.int64), axes=axes_of("sum", x, dim), count=1, keepdim=keepdim)
    return total.astype(wanted)


@check_arguments
def mean(x: AnyTensor, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeLike = None) -> Tensor:
    """Mean over axes (all by default)   x (...) -> the other axes, or 1 in place of each with keepdim.

    Args:
        dtype: cast x to it first. The mean of no elements is NaN.
    """
    if dtype is not None:
        x = x.astype(dtype)
    require_floating("mean", x.dtype)
    axes = axes_of("mean", x, dim)
    return Sum.apply(x, axes=axes, count=math.prod([x.shape[d] for d in axes]), keepdim=keepdim)
