"""Elements that an index names, combined with those of another tensor: scatter_reduce."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor, full
from alpha.ops.array.creation import ones_like
from alpha.ops.indexing.gather_scatter import ScatterAdd, scatter, scatter_add, scattered
from alpha.ops.indexing.parse_index import Places
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import DType, as_dtype
from alpha.ops.kernel.elementwise import unless_zero
from alpha.ops.kernel.rows.row_indices import add_rows, put_rows, reduce_rows, take_rows
from alpha.ops.kernel.views import View, read_view, write_view
from alpha.ops.math.comparison import compare
from alpha.ops.math.division import floor_divide
from alpha.ops.reduction.prod import product_slope

__all__ = ["scatter_reduce"]

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _neutral(reduction: str, dtype: DType) -> Any:
    """The number that changes nothing in a product, or as one of several numbers of which an extreme is taken."""
    if reduction == "prod":
        return 1
    if is_floating(dtype):
        return -np.inf if reduction == "amax" else np.inf
    if dtype == np.bool_:
        return reduction == "amin"
    return np.iinfo(dtype).min if reduction == "amax" else np.iinfo(dtype).max


class ScatterFold(Function):
    """A copy of X, with elements that an index names combined with those of V in its order   X (...), V (...) -> Y as X

    The gradient of an extreme is shared by all elements that are equal to it.
    """

    def forward(self, X: Array, V: Array, *, at: Places, reduction: str, include_self: bool) -> Array:
        self.at, self.reduction, self.include_self = at, reduction, include_self
        Y = self._written(X, V)
        self.save(X, V, Y)
        return Y

    def _written(self, X: Array, V: Array) -> Array:
        """A copy of X combined with V."""
        Y = X if self.include_self else self._filled(X, _neutral(self.reduction, X.dtype))
        return self._changed(Y, lambda rows: reduce_rows(rows, self.at.F, self._rows(V), self.reduction))

    def _filled(self, X: Array, number: Any) -> Array:
        """A copy of X with a number where the index says."""
        V = self._rows(full(self.at.shape, number, X.dtype, device_of(X)).array)
        return self._changed(X, lambda rows: put_rows(rows, self.at.F, V, True))

    def _changed(self, X: Array, change: Any) -> Array:
        """A copy of X whose elements in the box of the index were changed in place, as (A, R, C)."""
        box, sizes, _, _ = self.at
        Y = device_of(X).copy(X)
        if box == View.whole(tuple(X.shape)):
            change(Y.reshape(sizes))
            return Y
        window = read_view(Y, box)
        change(window.reshape(sizes))
        write_view(Y, box, window, View.whole(box.shape))
        return Y

    def _rows(self, V: Array) -> Array:
        A, _, C = self.at.sizes
        return V.reshape((A, self.at.F.size, C))

    def _named(self, X: Array) -> Array:
        """The elements of X that the index names."""
        box, sizes, F, shape = self.at
        window = X if box == View.whole(tuple(X.shape)) else read_view(X, box)
        return take_rows(window.reshape(sizes), F).reshape(shape)

    def _counted(self, own: Array, named: Array) -> Array:
        """Number of elements at each place that are marked by 1: the one of X, if it counts, and those of V."""
        start = own if self.include_self else self._filled(own, 0)
        return self._changed(start, lambda rows: add_rows(rows, self.at.F, self._rows(named)))

    def backward(self, dY: Array) -> Any:
        X, V, Y = self.saved
        dX, dV = self._of_product(dY, X, V) if self.reduction == "prod" else self._of_extreme(dY, X, V, Y)
        return dX if self.include_self else self._filled(dX, 0), dV

    def _of_product(self, dY: Array, X: Array, V: Array) -> tuple[Array, Array]:
        """No product of several elements is divided by one that is 0."""
        zeros = [_equal(A, device_of(A).zeros((1,), A.dtype)) for A in (X, V)]
        count = self._counted(*zeros)
        rest = ew.multiply(dY, self._written(unless_zero(X, X, p=1.0), unless_zero(V, V, p=1.0)))
        return product_slope(rest, X, count), product_slope(self._named(rest), V, self._named(count))

    def _of_extreme(self, dY: Array, X: Array, V: Array, Y: Array) -> tuple[Array, Array]:
        own, named = _equal(X, Y), _equal(V, self._named(Y))
        share = ew.divide(dY, self._counted(own, named))
        return ew.multiply(own, share), ew.multiply(named, self._named(share))


def _equal(A: Array, B: Array) -> Array:
    """1 where A is equal to B, else 0, in the dtype of A."""
    return as_dtype(compare(*broadcast_operands("scatter_reduce", A, B), "=="), A.dtype)


@check_arguments
def scatter_reduce(
    x: AnyTensor, dim: int, index: AnyTensor, src: AnyTensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy of x, whose elements are combined with those of src where an index says

    y[i, index[i, j, k], k] = the sum of x[i, index[i, j, k], k] and all src[i, j, k] of this place, for dim=1.
    x (..), index (..) of as many axes, src (..) at least as long on each axis -> as x. src is cast to the dtype of x.
    The elements of one place are combined in the order of the index.

    Args:
        reduce: "sum", "prod", "mean", "amax" or "amin". Elements that are equal to an extreme share its gradient.
        include_self: False: an element of x that the index names does not count; others stay.
    """
    if reduce not in REDUCTIONS:
        raise ValueError(f"scatter_reduce: reduce={reduce!r} is not one of {', '.join(REDUCTIONS)}")
    if reduce not in ("sum", "mean"):
        options = {"reduction": reduce, "include_self": bool(include_self)}
        return scattered("scatter_reduce", ScatterFold, x, dim, index, src, **options)
    base = x if include_self else unchecked(scatter)(x, dim, index, 0)
    total = scattered("scatter_reduce", ScatterAdd, base, dim, index, src)
    if reduce == "sum":
        return total
    ones = ones_like(x, dtype="int64")
    start = ones if include_self else unchecked(scatter)(ones, dim, index, 0)
    count = unchecked(scatter_add)(start, dim, index, ones_like(src, dtype="int64"))
    count = count.where(count > 0, 1)
    return (
        total / count.astype(x.dtype) if is_floating(x.dtype) else unchecked(floor_divide)(total, count).astype(x.dtype)
    )
