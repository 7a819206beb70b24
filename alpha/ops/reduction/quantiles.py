"""Elements at a place of the sorted order along an axis: kthvalue, medians and quantiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.versions import array_of
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array
from alpha.core.results import Extremes
from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of, movedim
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.gather_scatter import gather, index_select
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.common_dtype import INT64
from alpha.ops.kernel.elementwise import divide, elementwise, multiply
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.sums import sum, sum_axes
from alpha.ops.math.clamp import clamp
from alpha.ops.math.comparison import isnan, relate
from alpha.ops.math.lerp import lerp
from alpha.ops.math.unary import ceil, floor, round
from alpha.ops.reduction.sort import argsort, sort

__all__ = ["kthvalue", "median", "nanmedian", "nanquantile", "quantile"]

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _same_cpu(y: Array, a: Array, b: Array) -> None:
    np.copyto(y, (a == b) | (np.isnan(a) & np.isnan(b)))


same = elementwise("same", "a == b || (a != a && b != b) ? 1 : 0", _same_cpu, 2)


class Shared(Function):
    """Y = an element of X that is known, whose gradient all equal ones share; NaN is equal to NaN   X (...) -> ()"""

    def forward(self, X: Array, *, value: Array) -> Array:
        self.save(X, value)
        return value

    def backward(self, dY: Array) -> Any:
        X, Y = self.saved
        equal = same(X, Y)
        count = as_dtype(sum_axes(equal, tuple(range(X.ndim))), dY.dtype).reshape(())
        return multiply(equal, divide(dY, count))


def _length(operator: str, x: Tensor, axis: int) -> int:
    length = (x.shape or (1,))[axis]
    if length == 0:
        raise ShapeError(f"{operator}: axis {axis} of shape {x.shape} is empty")
    return length


def _at(x: Tensor, axis: int, place: int | Tensor, keepdim: bool) -> Extremes:
    """The elements at a place in sorted order, the same one in each row or one for each; and where they were."""
    order = argsort(x, axis)
    if isinstance(place, Tensor):
        indices = gather(order, axis, place)
    else:
        indices = order[(*[slice(None)] * axis, slice(place, place + 1))] if x.ndim else order
    values = gather(x, axis, indices)
    if keepdim or not x.ndim:
        return Extremes(values, indices)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return Extremes(reshaped(values, shape), reshaped(indices, shape))


@check_arguments
def kthvalue(x: AnyTensor, k: int, dim: int | None = None, keepdim: bool = False) -> Extremes:
    """The k-th smallest element along an axis (by default the last), counted from 1, and its place

    x (.., D, ..) -> values, indices of the other axes, or 1 in place of the axis with keepdim. NaN is the largest.
    """
    axis = axis_of("kthvalue", x, -1 if dim is None else dim)
    length, count = _length("kthvalue", x, axis), integer("kthvalue", "k", k)
    if not 1 <= count <= length:
        raise ShapeError(f"kthvalue: k={count} of the {length} elements along axis {axis} of shape {x.shape}")
    return _at(x, axis, count - 1, keepdim)


@check_arguments
def median(x: AnyTensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median, of an even number of elements the lower one; with `dim` those along an axis and their places.

    x (...) -> (), or (values, indices) of the other axes, or 1 in place of the axis with keepdim. It is NaN if an
    element is. Without `dim` equal elements share the gradient.
    """
    return _median("median", x, dim, keepdim)


@check_arguments
def nanmedian(x: AnyTensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of what is not NaN, as `median` gives it; NaN where all elements are."""
    return _median("nanmedian", x, dim, keepdim)


def _median(operator: str, x: Tensor, dim: int | None, keepdim: bool) -> Any:
    if dim is not None:
        return _median_along(operator, x, axis_of(operator, x, dim), keepdim)
    if keepdim:
        raise TypeError(f"{operator}: keepdim needs dim")
    if not x.size and is_floating(x.dtype):
        return sum(x) + math.nan  # of nothing
    value = _median_along(operator, reshaped(x.detach(), (x.size,)), 0, False).values
    return Shared.apply(x, value=array_of(value))


def _median_along(operator: str, x: Tensor, axis: int, keepdim: bool) -> Extremes:
    length = _length(operator, x, axis)
    if not is_floating(x.dtype):
        return _at(x, axis, (length - 1) // 2, keepdim)
    missing = sum(isnan(x), axis, keepdim=True)  # they are the last ones in sorted order
    if operator == "median":
        place = where(relate(missing, 0, ">"), length - 1, (length - 1) // 2)
    else:
        place = clamp((length - 1 - missing) // 2, min=0)
    return _at(x, axis, place, keepdim)


@check_arguments
def quantile(
    x: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The elements below which a share q of all lies, along an axis or of x as one axis; NaN if an element is

    x (.., D, ..), q () or a number -> the other axes, or 1 in place of the axis with keepdim
    x (.., D, ..), q (K,) of x's dtype -> K in front of that

    Args:
        q: within 0 and 1, which is not checked on cuda: there it is clamped, so that nothing waits for the device.
        interpolation: what is between two elements: "linear", "lower", "higher", "midpoint" or "nearest".
    """
    return _quantile("quantile", x, q, dim, keepdim, interpolation)


@check_arguments
def nanquantile(
    x: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """`quantile` of what is not NaN, with the same arguments; NaN where all elements are."""
    return _quantile("nanquantile", x, q, dim, keepdim, interpolation)


def _quantile(operator: str, x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Tensor:
    if interpolation not in INTERPOLATIONS:
        raise ValueError(f"{operator}: interpolation={interpolation!r} is none of {', '.join(INTERPOLATIONS)}")
    axis = None if dim is None else axis_of(operator, x, dim)
    if not x.size:
        raise ShapeError(f"{operator}: x of shape {x.shape} is empty")
    wide = x.astype(FLOAT32) if x.dtype == BFLOAT16 else x
    shares = _shares(operator, x, wide, q)
    rows = reshaped(wide, (x.size,)) if axis is None or not x.ndim else movedim(wide, axis, -1)
    between = _interpolated if operator == "quantile" else _interpolated_numbers
    found = between(sort(rows).values, reshaped(shares, (shares.size,)), interpolation)
    kept = [1 if axis is None or i == axis else n for i, n in enumerate(x.shape)]
    shape = kept if keepdim else [n for i, n in enumerate(x.shape) if axis is not None and i != axis]
    return reshaped(movedim(found, -1, 0), (*shares.shape, *shape)).astype(x.dtype)


def _shares(operator: str, x: Tensor, wide: Tensor, q: Any) -> Tensor:
    """q as a tensor of the dtype that is computed in."""
    if isinstance(q, Tensor):
        if q.ndim > 1:
            raise ShapeError(f"{operator}: q has shape {q.shape}; a number or one axis is needed")
        if q.dtype != x.dtype:
            raise TypeError(f"{operator}: x has dtype {x.dtype.name} and q {q.dtype.name}; use .astype")
        if q.device.name == "cpu" and not ((q.numpy() >= 0) & (q.numpy() <= 1)).all():
            raise ValueError(f"{operator}: an element of q is not within 0 and 1")
        return clamp(q.astype(wide.dtype), 0, 1)
    share = real(operator, "q", q)
    if not 0 <= share <= 1:
        raise ValueError(f"{operator}: q={share} is not within 0 and 1")
    return full((), share, wide.dtype, x.device)


def _interpolated(values: Tensor, shares: Tensor, interpolation: str) -> Tensor:
    """values (.., D) in sorted order, shares (K,) -> (.., K)"""
    rank = shares * (values.shape[-1] - 1)
    nearest = {"higher": ceil, "nearest": round}.get(interpolation, floor)(rank)
    found = index_select(values, -1, nearest.astype(INT64))
    if interpolation in ("linear", "midpoint"):
        above = index_select(values, -1, ceil(rank).astype(INT64))
        found = lerp(found, above, rank - nearest if interpolation == "linear" else 0.5)
    last = values[..., -1:]  # NaN if any element is
    whole: Tensor = where(isnan(last), last, found)
    return whole


def _interpolated_numbers(values: Tensor, shares: Tensor, interpolation: str) -> Tensor:
    """Result of `_interpolated` for the elements of each row that are not NaN, which are the first ones"""
    numbers = values.shape[-1] - sum(isnan(values), -1, keepdim=True)
    rank = clamp(numbers - 1, min=0).astype(values.dtype) * shares
    nearest = {"higher": ceil, "nearest": round}.get(interpolation, floor)(rank)
    found = gather(values, -1, nearest.astype(INT64))
    if interpolation in ("linear", "midpoint"):
        above = gather(values, -1, ceil(rank).astype(INT64))
        found = lerp(found, above, rank - nearest if interpolation == "linear" else 0.5)
    return found
