"""Images flipped, turned, moved, stretched and sheared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from alpha.core.tensor import Tensor
from alpha.nn import functional as F
from alpha.ops.array.creation import full
from alpha.ops.kernel.options import only_offered, real
from alpha.transforms.images import (
    Interval,
    Transform,
    chosen,
    drawn,
    interval,
    number_type,
    numbers_as_text,
    probability,
)

__all__ = ["RandomAffine", "RandomHorizontalFlip", "RandomRotation", "RandomVerticalFlip"]


INTERPOLATIONS = ("nearest", "bilinear", "bicubic")


class _RandomFlip(Transform):
    moves = True
    axis: ClassVar[int]

    def __init__(self, p: float = 0.5) -> None:
        self.p = probability(type(self).__name__, p)

    def apply_to(self, x: Tensor) -> Tensor:
        return x.flip(self.axis).where(chosen(x, self.p), x)

    def extra_repr(self) -> str:
        return f"p={self.p:g}"


class RandomHorizontalFlip(_RandomFlip):
    """Each image is mirrored, left to right, with probability p   (N, H, W, C) -> the same

    Raises:
        ValueError: p is not between 0 and 1.
    """

    axis = 2


class RandomVerticalFlip(_RandomFlip):
    """Each image is turned upside down with probability p   (N, H, W, C) -> the same

    Raises:
        ValueError: p is not between 0 and 1.
    """

    axis = 1


def check_interpolation(transform: str, interpolation: str) -> str:
    if interpolation not in INTERPOLATIONS:
        raise ValueError(f"{transform}: interpolation={interpolation!r} is not one of {', '.join(INTERPOLATIONS)}")
    return interpolation


Entry = Tensor | float
Map = Sequence[tuple[Entry, Entry, Entry]]  # two rows


def warp(
    x: Tensor,
    matrix: Map,
    size: tuple[int, int],
    mode: str,
    padding: tuple[str, bool] = ("zeros", False),
    fill: float = 0,
) -> Tensor:
    """Images whose pixels are read where a map says   x (N, H, W, C) -> (N, *size, C)

    Args:
        matrix: ((a, b, c), (d, e, f)): the output at (u, v) pixels from its centre shows (a u + b v + c, d u + e v + f)
            pixels from the centre of its image; u counts to the right, v downwards. Tensors are (N, 1, 1, 1), one
            number per image.
        mode: as of `F.grid_sample`.
        padding: its padding_mode and align_corners, which is how a reflection turns.
        fill: what is outside of an image if padding_mode is "zeros".
    """
    padding_mode, align_corners = padding
    # `F.affine_grid` counts in halves of an image, or of the distance between its first and last pixel
    right, down = (max(n - align_corners, 1) / 2 for n in reversed(size))
    rows = []
    for row, length in zip(matrix, reversed(x.shape[1:3]), strict=True):
        half = max(length - align_corners, 1) / 2
        rows += [_per_image(x, entry, f / half) for entry, f in zip(row, (right, down, 1.0), strict=True)]
    theta = F.cat(rows, 1).reshape(x.shape[0], 2, 3)
    grid = F.affine_grid(theta, (x.shape[0], *size, x.shape[3]), align_corners)
    y = F.grid_sample(x - fill if fill else x, grid, mode, padding_mode, align_corners)
    return y + fill if fill else y


def _per_image(x: Tensor, entry: Entry, factor: float) -> Tensor:
    """An entry of the matrix times a factor   -> (N, 1, 1, 1)"""
    if isinstance(entry, Tensor):
        return entry * factor
    return full((x.shape[0], 1, 1, 1), entry * factor, dtype=number_type(x), device=x.device)


class RandomAffine(Transform):
    """Each image is turned, moved, scaled and sheared about its centre   (N, H, W, C) -> the same

    Args:
        degrees: (low, high) of the angle, clockwise, or one number for -degrees to degrees.
        translate: the largest moves (to the right, downwards), as shares of the width and the height; both directions.
        scale: (low, high) of the factor by which an image grows.
        shear: (low, high) of the shear along x in degrees, or one number, or (low, high, low, high) for x and y.
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: the value of pixels that lie outside of the image.
        center: only None, the middle of the image, is offered.

    Raises:
        ValueError: an argument means nothing.
    """

    moves = True

    def __init__(
        self,
        degrees: float | Interval,
        translate: Sequence[float] | None = None,
        scale: Interval | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: str = "nearest",
        fill: float = 0,
        center: None = None,
    ) -> None:
        name = type(self).__name__
        only_offered(name, center=(center, None))
        self.degrees = interval(name, "degrees", degrees, -math.inf, around=0.0)
        self.translate = None if translate is None else tuple([real(name, "translate", t) for t in translate])
        if self.translate is not None and (len(self.translate) != 2 or not all(0 <= t <= 1 for t in self.translate)):
            raise ValueError(f"{name}: translate={translate!r} is no pair of shares between 0 and 1")
        self.scale = None if scale is None else interval(name, "scale", scale, 0.0)
        if self.scale is not None and self.scale[0] == 0:
            raise ValueError(f"{name}: scale={scale!r} must be above 0")
        self.shear = None if shear is None else _shears(name, shear)
        self.interpolation = check_interpolation(name, interpolation)
        self.fill = real(name, "fill", fill)

    def apply_to(self, x: Tensor) -> Tensor:
        angle = drawn(x, *self.degrees) * (math.pi / 180)
        moves: list[Entry] = [0.0, 0.0]
        if self.translate is not None:
            lengths = x.shape[2], x.shape[1]
            moves = [drawn(x, -t * n, t * n).round() for t, n in zip(self.translate, lengths, strict=True)]
        growth: Entry = 1.0 if self.scale is None else drawn(x, *self.scale)
        shears: list[Entry] = [0.0, 0.0]
        if self.shear is not None:
            shears = [drawn(x, *each) * (math.pi / 180) for each in self.shear]
        size = x.shape[1], x.shape[2]
        return warp(x, inverse_map(angle, moves, growth, shears), size, self.interpolation, fill=self.fill)

    def extra_repr(self) -> str:
        parts = [f"degrees={numbers_as_text(self.degrees)}"]
        parts += [f"translate={numbers_as_text(self.translate)}"] if self.translate is not None else []
        parts += [f"scale={numbers_as_text(self.scale)}"] if self.scale is not None else []
        parts += [f"shear={numbers_as_text([*self.shear[0], *self.shear[1]])}"] if self.shear is not None else []
        return ", ".join([*parts, f"interpolation={self.interpolation!r}", f"fill={self.fill:g}"])


def _shears(transform: str, shear: Any) -> tuple[Interval, Interval]:
    """The intervals along x and y, in degrees."""
    if isinstance(shear, (tuple, list)) and len(shear) == 4:
        x, y = (interval(transform, "shear", shear[at : at + 2], -math.inf) for at in (0, 2))
        return x, y
    return interval(transform, "shear", shear, -math.inf, around=0.0), (0.0, 0.0)


def _sin_cos_tan(angle: Entry) -> tuple[Any, Any, Any]:
    if isinstance(angle, Tensor):
        return F.sin(angle), F.cos(angle), F.tan(angle)
    return math.sin(angle), math.cos(angle), math.tan(angle)


def inverse_map(angle: Tensor, moves: Sequence[Entry], growth: Entry, shears: Sequence[Entry]) -> Map:
    """Map from an output pixel of a turned, scaled, sheared and moved image to its source, by torchvision's formula.

    angle and shears (along x, along y) are in radians, moves in pixels; tensors are (N, 1, 1, 1).
    """
    _, cos_y, _ = _sin_cos_tan(shears[1])
    _, _, tan_x = _sin_cos_tan(shears[0])
    sin, cos, _ = _sin_cos_tan(angle)
    sin_less, cos_less, _ = _sin_cos_tan(angle - shears[1])
    a, b = cos_less / cos_y, -cos_less * tan_x / cos_y - sin
    c, d = sin_less / cos_y, -sin_less * tan_x / cos_y + cos
    first, second = (d / growth, -b / growth), (-c / growth, a / growth)
    return [(p, q, -(p * moves[0] + q * moves[1])) for p, q in (first, second)]


class RandomRotation(Transform):
    """Each image is turned about its centre, and keeps its size   (N, H, W, C) -> the same

    Args:
        degrees: (low, high) of the angle, counter-clockwise, or one number for -degrees to degrees.
        interpolation: "nearest", "bilinear" or "bicubic".
        expand, center: only False and None are offered.
        fill: the value of pixels that lie outside of the image.

    Raises:
        ValueError: an argument means nothing, or is not offered.
    """

    moves = True

    def __init__(
        self,
        degrees: float | Interval,
        interpolation: str = "nearest",
        expand: bool = False,
        center: None = None,
        fill: float = 0,
    ) -> None:
        name = type(self).__name__
        only_offered(name, expand=(expand, False), center=(center, None))
        self.degrees = interval(name, "degrees", degrees, -math.inf, around=0.0)
        self.interpolation = check_interpolation(name, interpolation)
        self.fill = real(name, "fill", fill)

    def apply_to(self, x: Tensor) -> Tensor:
        angle = drawn(x, *self.degrees) * (-math.pi / 180)
        size = x.shape[1], x.shape[2]
        return warp(x, inverse_map(angle, (0.0, 0.0), 1.0, (0.0, 0.0)), size, self.interpolation, fill=self.fill)

    def extra_repr(self) -> str:
        return f"degrees={numbers_as_text(self.degrees)}, interpolation={self.interpolation!r}, fill={self.fill:g}"
