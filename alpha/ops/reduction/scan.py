"""Running sums and products along an axis: cumsum and cumprod; and diff, which undoes a running sum."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.function import Function
from alpha.core.host_values import DTypeLike
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of
from alpha.ops.array.joining import cat
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, DType, as_dtype, as_float32, vector_width, widest_vector
from alpha.ops.kernel.common_dtype import BOOL
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan
from alpha.ops.kernel.rows.reductions import around
from alpha.ops.kernel.rows.row_tile import RowTile, row_tile
from alpha.ops.kernel.sums import LEAST_ROW_BYTES, WARP, held_elements, sum_dtype
from alpha.ops.math.bitwise import logical_xor

__all__ = ["cumprod", "cumsum", "diff"]

Sizes = tuple[int, int, int]
LEAST_SEGMENT = 64  # rows of reduce/scan.cu


@primitive
def running_sum(X: Array, reverse: bool) -> Array:
    """Y[a, r, b] = sum of X[a, s, b] over s <= r, or s >= r   X (A, R, B) of floats or int64 -> Y (A, R, B)"""


@primitive
def running_product(X: Array) -> Array:
    """Y[a, r, b] = product of X[a, s, b] over s <= r   X (A, R, B) of floats or int64 -> Y (A, R, B)"""


@primitive
def running_product_gradient(dY: Array, X: Array, Y: Array) -> Array:
    """The gradient of X. No product is divided, so X may be 0   dY, X, Y (A, R, B) of floats -> dX (A, R, B)

    dX_r = Y_(r-1) S_r with S_r = dY_r + X_(r+1) S_(r+1), along the middle axis.
    """


# -- cpu --------------------------------------------------------------------------------------------


@running_sum.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, reverse: bool) -> Array:
    wide = as_float32(X)[:, :: -1 if reverse else 1]
    return as_dtype(
        np.ascontiguousarray(np.cumsum(wide, axis=1, dtype=wide.dtype)[:, :: -1 if reverse else 1]), X.dtype
    )


@running_product.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array) -> Array:
    wide = as_float32(X)
    return as_dtype(np.cumprod(wide, axis=1, dtype=wide.dtype), X.dtype)


@running_product_gradient.impl("cpu")
@np.errstate(all="ignore")
def _(dY: Array, X: Array, Y: Array) -> Array:
    dy, x, y = as_float32(dY), as_float32(X), as_float32(Y)
    dX = dy.copy()  # S first
    for r in reversed(range(x.shape[1] - 1)):
        dX[:, r] += x[:, r + 1] * dX[:, r + 1]
    dX[:, 1:] *= y[:, :-1]
    return as_dtype(dX, X.dtype)


# -- cuda -------------------------------------------------------------------------------------------


@running_sum.impl("cuda")
def _(X: Array, reverse: bool) -> Array:
    return _scan(X, reverse, product=False)


@running_product.impl("cuda")
def _(X: Array) -> Array:
    return _scan(X, reverse=False, product=True)


def _scan(X: Array, reverse: bool, product: bool) -> Array:
    if not X.size:
        return X.device.empty(X.shape, X.dtype)
    vector = vector_width(X, along=X.shape[1]) if X.shape[2] == 1 else 1
    plan = _plan_scan(X.shape, X.dtype, reverse, product, vector, X.device.properties.num_sms)
    return plan.launch(X.device, {"X": X})["Y"]


@functools.lru_cache(maxsize=4096)
def _plan_scan(sizes: Sizes, dtype: DType, reverse: bool, product: bool, vector: int, num_sms: int) -> Plan:
    launches, workspaces = _scan_launches("X", "Y", sizes, dtype, Way(reverse, product), vector, num_sms)
    return Plan("scan", tuple(launches), {"Y": Buffer(sizes, dtype)}, workspaces)


class Way(NamedTuple):
    """Way in which elements are scanned: from the last one on if `reverse`, and multiplied if `product`."""

    reverse: bool
    product: bool


def _scan_launches(
    source: str, result: str, sizes: Sizes, dtype: DType, way: Way, vector: int, num_sms: int
) -> tuple[list[KernelLaunch], dict[str, Buffer]]:
    """Launches of a plan that scan an array along its middle axis, and their workspaces   (A, R, B) -> (A, R, B)

    Few long rows are cut into segments, each of which needs the sum of all before it: a scan of their sums.
    """
    A, R, B = sizes
    arrays = ArrayArg(result), ArrayArg(source)
    macros: dict[str, int | str] = {"TYPE": CUDA_TYPES[dtype]}
    if B == 1:
        tile = tile_of_scan(A, R, dtype, vector)
        source_file, blocks, packs = "reduce/scan_rows.cu", tile.blocks(A), R // tile.vector
        segment = _segment(packs, 4 * BLOCK * tile.packs, blocks, num_sms) if tile.lanes == BLOCK else packs
        segments, kind = -(-packs // segment), "rows"
        numbers: tuple[Any, ...] = (np.int64(A), np.int64(R), np.int64(segment))
        macros |= {**tile.macros, "REVERSE": int(way.reverse), "PRODUCT": int(way.product)}
    else:
        source_file, blocks = "reduce/scan.cu", -(-A * B // BLOCK)
        segment = _segment(R, LEAST_SEGMENT, blocks, num_sms)
        segments, kind = -(-R // segment), "columns"
        numbers = (*map(np.int64, (A * B, R, B, segment)), int(way.reverse), int(way.product))

    def launch(name: str, arguments: tuple[Any, ...]) -> KernelLaunch:
        return KernelLaunch(source_file, f"{name}_{kind}", (blocks, segments), BLOCK, (*arguments, *numbers), macros)

    if segments == 1:
        return [launch("scan", (*arrays, None))], {}
    wide, parts = sum_dtype(dtype), (A, segments, B)
    sums, before = f"sums of {source}", f"before {source}"
    width = widest_vector(wide, segments) if B == 1 else 1
    middle, workspaces = _scan_launches(sums, before, parts, wide, way._replace(reverse=False), width, num_sms)
    workspaces |= {sums: Buffer(parts, wide), before: Buffer(parts, wide)}
    first, last = launch("segment", (ArrayArg(sums), arrays[1])), launch("scan", (*arrays, ArrayArg(before)))
    return [first, *middle, last], workspaces


def _segment(length: int, least: int, blocks: int, num_sms: int) -> int:
    """The length of segments of an axis, at least `least`, with which so many blocks each fill the device."""
    segments = min(8 * num_sms // blocks, length // least) if 2 * blocks < num_sms else 1
    return -(-length // max(1, segments))


def tile_of_scan(A: int, K: int, dtype: DType, vector: int) -> RowTile:
    """Elements that a thread of reduce/scan_rows.cu holds: a whole row if it fits, else a part in each turn.

    A small array takes one of two tiles, because a kernel for the length of its rows does not pay.
    """
    if A * K * dtype.itemsize < LEAST_ROW_BYTES:
        return RowTile(1, WARP, 4, 1) if K <= 8 * WARP else RowTile(1, BLOCK, 4, 1)
    most = held_elements(dtype) if vector > 1 else 8  # each pack of a lane is a scan of its own over the lanes
    found = row_tile(K, vector, dtype.itemsize, elements=most, widened=False)
    return found or RowTile(vector, BLOCK, 8 if vector == 1 else min(64 // dtype.itemsize, most) // vector, 1)


@running_product_gradient.impl("cuda")
def _(dY: Array, X: Array, Y: Array) -> Array:
    dX = X.device.empty(X.shape, X.dtype)
    if X.size:
        A, R, B = X.shape
        sizes, macros = map(np.int64, (A * B, R, B)), {"TYPE": CUDA_TYPES[X.dtype]}
        arrays = dX, as_dtype(dY, X.dtype), X, Y
        X.device.launch("reduce/scan.cu", "product_gradient", -(-A * B // BLOCK), BLOCK, (*arrays, *sizes), macros)
    return dX


# -- operators ----------------------------------------------------------------------------------------


class RunningSum(Function):
    """Y = the sums of all elements so far along an axis   X (...) -> Y (...)"""

    def forward(self, X: Array, *, sizes: Sizes) -> Array:
        self.sizes = sizes
        return running_sum(X.reshape(sizes), False).reshape(X.shape)

    def backward(self, dY: Array) -> Any:
        return running_sum(dY.reshape(self.sizes), True).reshape(dY.shape)


class RunningProduct(Function):
    """Y = the products of all elements so far along an axis   X (...) -> Y (...)"""

    def forward(self, X: Array, *, sizes: Sizes) -> Array:
        self.sizes = sizes
        Y = running_product(X.reshape(sizes)).reshape(X.shape)
        self.save(X, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        arrays = (array.reshape(self.sizes) for array in (dY, *self.saved))
        return running_product_gradient(*arrays).reshape(dY.shape)


@check_arguments
def cumsum(x: AnyTensor, dim: int, *, dtype: DTypeLike = None) -> Tensor:
    """The sum of all elements so far along an axis   x (...) -> (...)

    Args:
        dtype: cast x to it first. Default: that of x, and int64 for integers and bools.
    """
    return _running("cumsum", RunningSum, x, dim, dtype)


@check_arguments
def cumprod(x: AnyTensor, dim: int, *, dtype: DTypeLike = None) -> Tensor:
    """The product of all elements so far along an axis   x (...) -> (...)

    Args:
        dtype: as of `cumsum`.
    """
    return _running("cumprod", RunningProduct, x, dim, dtype)


@check_arguments
def diff(
    x: AnyTensor, n: int = 1, dim: int = -1, prepend: AnyTensor | None = None, append: AnyTensor | None = None
) -> Tensor:
    """Each element less the one before it along an axis; of bools whether they differ

    x (.., D, ..) -> (.., D - n, ..), or no elements if D is less than n

    Args:
        n: how often differences are taken; with 0 the result is a copy of x.
        prepend, append: tensors that are joined to x along the axis first.
    """
    if not x.ndim:
        raise ShapeError("diff: x has no axis; one is needed")
    axis, times = axis_of("diff", x, dim), integer("diff", "n", n, 0)
    if times == 0:
        return x.clone()
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = cat(parts, axis)
    for _ in range(min(times, x.shape[axis])):
        before = (slice(None),) * axis
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = logical_xor(later, earlier) if x.dtype == BOOL else later - earlier
    return x


def _running(operator: str, kind: type[Function], x: Tensor, dim: int, dtype: DTypeLike) -> Tensor:
    axis = axis_of(operator, x, dim)
    wide = x if dtype is None else x.astype(dtype)
    wide = wide if is_floating(wide.dtype) else wide.astype(np.int64)
    y = kind.apply(wide, sizes=around(x.shape or (1,), axis))
    return y if dtype is None else y.astype(dtype)
