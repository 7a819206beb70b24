"""Integrals by trapezoids along an axis."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of
from alpha.ops.array.layout import view as reshaped
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.options import real
from alpha.ops.reduction.scan import cumsum

__all__ = ["cumulative_trapezoid", "trapezoid"]


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
