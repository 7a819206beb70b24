"""Images made larger or smaller: nearest, linear and cubic interpolation of one to three axes, channels last.

Interpolation is a product with a sparse matrix for each axis (`resampling.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from alpha.autograd.function import Function
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module
from alpha.ops.image.resampling import Resampling, is_identity, resample_axis1
from alpha.ops.kernel.arguments import NoImages, check_arguments, unchecked
from alpha.ops.kernel.options import Lengths, integer, lengths, real
from alpha.ops.pooling.adaptive_pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

__all__ = [
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
    "interpolate",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]


# mode: (the interpolation along one axis, the numbers of axes that it has, align_corners has a meaning)
MODES: dict[str, tuple[str, tuple[int, ...], bool]] = {
    "nearest": ("nearest", (1, 2, 3), False),
    "nearest-exact": ("nearest-exact", (1, 2, 3), False),
    "area": ("area", (1, 2, 3), False),
    "linear": ("linear", (1,), True),
    "bilinear": ("linear", (2,), True),
    "trilinear": ("linear", (3,), True),
    "bicubic": ("cubic", (2,), True),
}
ANTIALIASED = ("bilinear", "bicubic")
AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
Scale = float | Sequence[float]


class Interpolate(Function):
    """Y = one interpolation after the other along the axes between   X (N, *I, C) -> Y (N, *O, C)"""

    def forward(self, X: Array, *, axes: Sequence[Resampling]) -> Array:
        self.axes = axes
        for axis, r in enumerate(axes, 1):
            X = _along(X, axis, r)
        return X

    def backward(self, dY: Array) -> Any:
        for axis, r in reversed(list(enumerate(self.axes, 1))):
            dY = _along(dY, axis, r._replace(transposed=True))
        return dY


def _along(X: Array, axis: int, r: Resampling) -> Array:
    if is_identity(r):
        return X
    before, after = tuple(X.shape[:axis]), tuple(X.shape[axis + 1 :])
    Y = resample_axis1(X.reshape((math.prod(before), X.shape[axis], math.prod(after))), r)
    return Y.reshape((*before, r.rows, *after))


def _factors(operator: str, scale_factor: Scale, rank: int) -> tuple[float, ...]:
    """A number for each axis, from one for all or one for each."""
    given = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * rank
    if len(given) != rank:
        raise ValueError(f"{operator}: scale_factor={scale_factor!r} is neither a number nor {rank} of them")
    factors = tuple([real(operator, "scale_factor", factor) for factor in given])
    if min(factors) <= 0:
        raise ValueError(f"{operator}: scale_factor={scale_factor!r} is not positive")
    return factors


def check_sizes(operator: str, size: Any, scale_factor: Any) -> None:
    """`ValueError` unless one of both is given."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"{operator}: size={size!r} and scale_factor={scale_factor!r}; one of them is needed, and the other is None"
        )


def check_mode(operator: str, mode: str, align_corners: bool | None) -> None:
    """`ValueError` for a mode that there is not, or for `align_corners` of a mode without it."""
    if mode not in MODES:
        raise ValueError(f"{operator}: mode={mode!r} is not one of {', '.join(MODES)}")
    if align_corners is not None and not MODES[mode][2]:
        raise ValueError(f"{operator}: align_corners={align_corners} has no meaning for mode={mode!r}")


@check_arguments
def interpolate(
    x: Tensor,
    size: Lengths | None = None,
    scale_factor: Scale | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Images sampled at other places   x (N, L, C), (N, H, W, C) or (N, D, H, W, C) -> (N, *size, C)

    One axis is interpolated after the other, so a bfloat16 result is rounded once for each axis.

    Args:
        size: the lengths of the axes between images and channels, or one number for all.
        scale_factor: instead of size; a length becomes floor(length scale_factor).
        mode: "nearest" (of whose places all are moved by half a pixel), "nearest-exact" and "area" (the mean of what an
            output covers) for any x; "linear" for (N, L, C), "bilinear" and "bicubic" for (N, H, W, C), "trilinear" for
            (N, D, H, W, C).
        align_corners: True: the first and the last output are the first and the last input. Otherwise the borders of
            the images meet. Only for linear and cubic modes; None is False.
        recompute_scale_factor: True: the distance between outputs follows from the two lengths, not from scale_factor.
        antialias: True: if the images become smaller, each output is the mean of all that it covers, weighted by the
            filter of the mode, as Pillow does. Only for "bilinear" and "bicubic".

    Raises:
        ShapeError: x has not the axes of the mode, or is or would be empty.
        ValueError: not one of size and scale_factor, or an argument has a value that is not offered.

    Examples:
        >>> import alpha
        >>> import alpha.nn.functional as F
        >>> F.interpolate(alpha.ones(1, 8, 8, 3), scale_factor=2).shape
        (1, 16, 16, 3)
    """
    if antialias and mode not in ANTIALIASED:
        raise ValueError(
            f"interpolate: antialias=True needs mode={' or '.join(map(repr, ANTIALIASED))}  (mode={mode!r})"
        )
    return _sampled("interpolate", x, size, scale_factor, mode, align_corners, recompute_scale_factor, bool(antialias))


@check_arguments
def upsample(
    x: Tensor,
    size: Lengths | None = None,
    scale_factor: Scale | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` without its last arguments   x (N, L, C), (N, H, W, C) or (N, D, H, W, C) -> (N, *size, C)"""
    return _sampled("upsample", x, size, scale_factor, mode, align_corners)


@check_arguments
def upsample_nearest(x: Tensor, size: Lengths | None = None, scale_factor: Scale | None = None) -> Tensor:
    """`interpolate` with mode="nearest"   x (N, L, C), (N, H, W, C) or (N, D, H, W, C) -> (N, *size, C)"""
    return _sampled("upsample_nearest", x, size, scale_factor, "nearest", None)


@check_arguments
def upsample_bilinear(x: Tensor, size: Lengths | None = None, scale_factor: Scale | None = None) -> Tensor:
    """`interpolate` with mode="bilinear" and align_corners=True   x (N, H, W, C) -> (N, *size, C)"""
    return _sampled("upsample_bilinear", x, size, scale_factor, "bilinear", True)


def _sampled(
    operator: str,
    x: Tensor,
    size: Lengths | None,
    scale_factor: Scale | None,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Result of `interpolate`, with the name of the operator in errors."""
    check_mode(operator, mode, align_corners)
    check_sizes(operator, size, scale_factor)
    kind, ranks, _ = MODES[mode]
    rank = x.ndim - 2
    if rank not in ranks:
        known = " or ".join(f"{n + 2}" for n in ranks)
        raise ShapeError(
            f"{operator}: mode={mode!r} needs x of {known} axes, images first and channels last  (x {x.shape})"
        )
    I = x.shape[1:-1]
    factors: Sequence[float | None] = (None,) * rank
    if scale_factor is not None:
        found = _factors(operator, scale_factor, rank)
        O = tuple([math.floor(n * factor) for n, factor in zip(I, found, strict=True)])
        factors = factors if recompute_scale_factor else found
    elif recompute_scale_factor:
        raise ValueError(f"{operator}: recompute_scale_factor=True needs scale_factor, and size is given")
    else:
        O = lengths(operator, "size", size, rank)  # type: ignore[arg-type]
    if min(*x.shape[1:], *O) < 1:
        raise ShapeError(f"{operator}: x {x.shape} to the lengths {O}: neither may be empty")
    if not x.shape[0]:
        return NoImages.apply(x, shape=(0, *O, x.shape[-1]))
    if kind == "area":
        return unchecked(AREA[rank])(x, O)
    corners = bool(align_corners)
    axes = []
    for i, o, factor in zip(I, O, factors, strict=True):
        distance = _distance(kind, i, o, None if corners else factor, corners, antialias)
        axes.append(Resampling(kind, i, o, distance, corners, antialias=antialias))
    return Interpolate.apply(x, axes=tuple(axes))


def _distance(kind: str, i: int, o: int, factor: float | None, align_corners: bool, antialias: bool) -> float:
    """The distance between two outputs, in inputs.

    As in PyTorch on the cpu, an axis that keeps its length, or is doubled by "nearest", is so whatever the factor is.
    """
    if align_corners:
        return (i - 1) / (o - 1) if o > 1 else 0.0
    whole = (o == i and (antialias or kind in ("nearest", "linear"))) or (o == 2 * i and kind == "nearest")
    return i / o if factor is None or whole else 1 / factor


def _each(value: Any, check: Callable[[Any], Any]) -> Any:
    """Result of `check` for a number, or for each of several; None for None."""
    if isinstance(value, (tuple, list)):
        return tuple([check(part) for part in value])
    return None if value is None else check(value)


class Upsample(Module):
    """Images sampled at other places, with `alpha.nn.functional.interpolate`   (N, *I, C) -> (N, *O, C)

    Args:
        size: the lengths of the axes between images and channels, or one number for all.
        scale_factor: instead of size.
        mode, align_corners, recompute_scale_factor: as of `interpolate`.
    """

    def __init__(
        self,
        size: Lengths | None = None,
        scale_factor: Scale | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        layer = type(self).__name__
        check_sizes(layer, size, scale_factor)
        check_mode(layer, mode, align_corners)
        self.size = _each(size, lambda n: integer(layer, "size", n))
        self.scale_factor = _each(scale_factor, lambda factor: real(layer, "scale_factor", factor))
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        own = self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        return interpolate(x, *own)

    def extra_repr(self) -> str:
        to = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        corners = "" if self.align_corners is None else f", align_corners={self.align_corners}"
        recompute = ", recompute_scale_factor=True" if self.recompute_scale_factor else ""
        return f"{to}, mode={self.mode!r}{corners}{recompute}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` with mode="nearest"   (N, H, W, C) -> (N, OH, OW, C)"""

    def __init__(self, size: Lengths | None = None, scale_factor: Scale | None = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` with mode="bilinear" and align_corners=True   (N, H, W, C) -> (N, OH, OW, C)"""

    def __init__(self, size: Lengths | None = None, scale_factor: Scale | None = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)
