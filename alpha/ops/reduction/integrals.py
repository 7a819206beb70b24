"""Integrals by trapezoids, the distance of two tensors, and parts with a largest norm."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.options import real
from alpha.ops.reduction.scan import cumsum
from alpha.ops.reduction.var_norm import norm

__all__ = ["cumulative_trapezoid", "dist", "renorm", "trapezoid", "trapz"]


@check_arguments
def trapezoid(y: AnyTensor, x: AnyTensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
    """The integral along an axis by trapezoids; of integers in float32   y (.., D, ..) -> without that axis

    Args:
        x: the places of the values: (D,), or a tensor that broadcasts to y.
        dx: the distance of neighbours, by default 1; not together with x.

    Raises:
        ShapeError: x does not fit y, or y has no axis.
        ValueError: both x and dx are given.
    """
    return _areas("trapezoid", y, x, dx, dim).sum(axis_of("trapezoid", y, dim))


@check_arguments
def trapz(y: AnyTensor, x: AnyTensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
    """Another name of `trapezoid`."""
    return _areas("trapz", y, x, dx, dim).sum(axis_of("trapz", y, dim))


@check_arguments
def cumulative_trapezoid(y: AnyTensor, x: AnyTensor | None = None, *, dx: float | None = None, dim: int = -1) -> Tensor:
    """The integrals up to each element but the first one; arguments as of `trapezoid`

    y (.., D, ..) -> (.., D - 1, ..)
    """
    areas = _areas("cumulative_trapezoid", y, x, dx, dim)
    return unchecked(cumsum)(areas, axis_of("cumulative_trapezoid", y, dim))


def _areas(operator: str, y: Tensor, x: Tensor | None, dx: float | None, dim: int) -> Tensor:
    """The area between each two neighbours of an axis."""
    if not y.ndim:
        raise ShapeError(f"{operator}: y has no axis; one is needed")
    axis = axis_of(operator, y, dim)
    before = (slice(None),) * axis
    later, earlier = (*before, slice(1, None)), (*before, slice(None, -1))
    sums = y[later] + y[earlier]
    if x is None:
        return sums * (0.5 if dx is None else real(operator, "dx", dx) / 2)
    if dx is not None:
        raise ValueError(f"{operator}: x and dx={dx} are given; give one of them")
    wide = y.ndim - axis  # axes from this one on
    places = reshaped(x, (*x.shape, *[1] * (wide - 1))) if x.ndim == 1 else x
    fits = wide <= places.ndim <= y.ndim and places.shape[-wide] == y.shape[axis]
    if not fits or any(n not in (1, m) for n, m in zip(places.shape[::-1], y.shape[::-1], strict=False)):
        raise ShapeError(f"{operator}: x {x.shape} has not the places of y {y.shape} along axis {axis}")
    own = places.ndim - wide
    front = (slice(None),) * own
    return sums * (places[(*front, slice(1, None))] - places[(*front, slice(None, -1))]) / 2


@check_arguments
def dist(x: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of x - other with broadcasting; p is a number, which may be infinite   x (...), other (...) -> ()"""
    return unchecked(norm)(x - other, p)


@check_arguments
def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """x with each part along an axis whose p-norm is larger scaled down to `maxnorm`   x (.., D, ..) -> the same

    Raises:
        ValueError: p is not above 0, or maxnorm is below 0.
        ShapeError: x has fewer than two axes.
    """
    power, most = real("renorm", "p", p), real("renorm", "maxnorm", maxnorm)
    if power <= 0 or most < 0:
        raise ValueError(f"renorm: p={power} must be above 0 and maxnorm={most} at least 0")
    if x.ndim < 2:
        raise ShapeError(f"renorm: x of at least two axes is needed  (x {x.shape})")
    axis = axis_of("renorm", x, dim)
    sizes = unchecked(norm)(x, power, [i for i in range(x.ndim) if i != axis], True)
    factors: Tensor = where(sizes > most, most / (sizes + 1e-7), 1.0)
    return x * factors
