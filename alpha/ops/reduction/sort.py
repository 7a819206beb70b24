"""Elements in their order along an axis, and the largest of them."""

from __future__ import annotations

from alpha.autograd.versions import array_of
from alpha.core.primitive import Array
from alpha.core.results import Sorted
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.reductions import around
from alpha.ops.kernel.row_indices import places, sort_order, take_rows
from alpha.ops.kernel.views import View, read_view
from alpha.ops.reduction.extremes import Along

__all__ = ["argsort", "sort", "topk"]


def _order(X: Array, sizes: tuple[int, int, int], descending: bool) -> Array:
    """The places along the middle axis in sorted order   X (...) of A R B elements -> (A, R, B) of int64"""
    A, R, B = sizes
    if B == 1:
        return sort_order(X.reshape((A, R)), descending).reshape(sizes)
    rows = read_view(X, View.whole(sizes).permuted((0, 2, 1))).reshape((A * B, R))
    return read_view(sort_order(rows, descending), View.whole((A, B, R)).permuted((0, 2, 1)))


def _sorted(x: Tensor, axis: int, count: int, descending: bool) -> Sorted:
    """The first `count` elements in sorted order."""
    own = x.shape or (1,)
    sizes = around(own, axis)
    _, R, B = sizes
    index = _order(array_of(x), sizes, descending)
    if count < R:
        index = read_view(index, View.whole(sizes).sliced(1, 0, count))
    shape = (*own[:axis], count, *own[axis + 1 :]) if x.ndim else ()
    F = places(index.reshape(index.size), R, B, None, (B, max(1, count * B), R * B))
    values = take_rows(x.array.reshape((1, x.size, 1)), F)
    return Sorted(Along.apply(x, values=values, index=index, sizes=sizes, shape=shape), Tensor(index.reshape(shape)))


@check_arguments
def sort(x: AnyTensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Sorted:
    """The elements of each row along an axis in ascending order, and their places   x (...) -> values, indices (...)

    NaN is the largest number. Equal elements keep their order, whether `stable` is True or not.
    """
    axis = axis_of("sort", x, dim)
    return _sorted(x, axis, (x.shape or (1,))[axis], bool(descending))


@check_arguments
def argsort(x: AnyTensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The places of the elements along an axis in ascending order, as `sort` gives them   x (...) -> (...)"""
    sizes = around(x.shape or (1,), axis_of("argsort", x, dim))
    return Tensor(_order(array_of(x), sizes, bool(descending)).reshape(x.shape))


@check_arguments
def topk(x: AnyTensor, k: int, dim: int | None = None, largest: bool = True, sorted: bool = True) -> Sorted:
    """The k largest, or smallest, elements along an axis (by default the last), and their places

    x (.., D, ..) -> values, indices (.., k, ..)

    They come in sorted order, also if `sorted` is False. NaN is the largest number; of equal elements the first counts.
    """
    axis = axis_of("topk", x, -1 if dim is None else dim)
    length, count = (x.shape or (1,))[axis], integer("topk", "k", k)
    if not 0 <= count <= length:
        raise ShapeError(f"topk: k={count} of the {length} elements along axis {axis} of shape {x.shape}")
    return _sorted(x, axis, count, bool(largest))
