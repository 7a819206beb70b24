"""The colours of images: brightness, contrast, saturation, hue, gray, and channels scaled to a mean and a deviation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.core.host_values import is_torch
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.parameter import Buffer
from alpha.nn import functional as F
from alpha.ops.kernel.options import integer, only_offered, real
from alpha.transforms.images import (
    FixedTransform,
    Interval,
    Transform,
    chosen,
    drawn,
    interval,
    numbers_as_text,
    probability,
)

__all__ = ["ColorJitter", "Grayscale", "Normalize", "RandomGrayscale"]


GRAY = (0.2989, 0.587, 0.114)  # the shares of red, green and blue, of ITU-R BT.601


def _three_channels(transform: str, x: Tensor) -> list[Tensor]:
    """Red, green and blue   x (N, H, W, 3) -> 3 of (N, H, W, 1)"""
    if x.shape[3] != 3:
        raise ShapeError(f"{transform}: images (N, H, W, 3) of red, green and blue are needed  (x {x.shape})")
    return list(F.split(x, 1, 3))


def gray_of(transform: str, x: Tensor) -> Tensor:
    """The brightness of each pixel   x (N, H, W, 3) -> (N, H, W, 1)"""
    red, green, blue = (c * share for c, share in zip(_three_channels(transform, x), GRAY, strict=True))
    return red + green + blue


class Grayscale(FixedTransform):
    """The brightness of each pixel   (N, H, W, 3) -> (N, H, W, num_output_channels)

    Args:
        num_output_channels: 1, or 3 equal ones.
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        name = type(self).__name__
        self.num_output_channels = integer(name, "num_output_channels", num_output_channels)
        if self.num_output_channels not in (1, 3):
            raise ValueError(f"{name}: num_output_channels={num_output_channels} is neither 1 nor 3")

    def apply_to(self, x: Tensor) -> Tensor:
        gray = gray_of(type(self).__name__, x)
        return gray if self.num_output_channels == 1 else F.cat([gray] * 3, 3)

    def extra_repr(self) -> str:
        return f"num_output_channels={self.num_output_channels}"


class RandomGrayscale(Transform):
    """Each image loses its colours with probability p   (N, H, W, 3) -> the same"""

    def __init__(self, p: float = 0.1) -> None:
        self.p = probability(type(self).__name__, p)

    def apply_to(self, x: Tensor) -> Tensor:
        return x.where(F.logical_not(chosen(x, self.p)), gray_of(type(self).__name__, x))

    def extra_repr(self) -> str:
        return f"p={self.p:g}"


class Normalize(FixedTransform):
    """(x - mean) / std for each channel   (N, H, W, C) -> the same

    mean and std are Buffers that no state dict has: move the transform to the device of the images with `.to(device)`.

    Args:
        mean, std: a number per channel; a list, an array or a tensor.
        inplace: only False is offered.

    Raises:
        ShapeError: the images have another number of channels.
        ValueError: mean and std have different lengths, or a std is 0.
    """

    def __init__(self, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor, inplace: bool = False) -> None:
        name = type(self).__name__
        only_offered(name, inplace=(inplace, False))
        means, stds = (self._numbers(name, *pair) for pair in (("mean", mean), ("std", std)))
        if means.shape != stds.shape or not stds.all():
            raise ValueError(f"{name}: mean={mean!r} and std={std!r} must be as many, and no std may be 0")
        self.mean, self.std = Buffer(means, persistent=False), Buffer(stds, persistent=False)

    @staticmethod
    def _numbers(transform: str, name: str, values: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        listed = values.tolist() if isinstance(values, Tensor) or is_torch(values) else values
        given = listed if isinstance(listed, (tuple, list, np.ndarray)) else (listed,)
        return np.array([real(transform, name, value) for value in given], np.float32)

    def apply_to(self, x: Tensor) -> Tensor:
        if self.mean.shape not in ((1,), (x.shape[3],)):
            raise ShapeError(f"Normalize: {self.mean.size} means for {x.shape[3]} channels  (x {x.shape})")
        return (x - self.mean.astype(x.dtype)) / self.std.astype(x.dtype)

    def extra_repr(self) -> str:
        return f"mean={numbers_as_text(self.mean.tolist())}, std={numbers_as_text(self.std.tolist())}"


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue of each image are changed, in this order   (N, H, W, 3) -> the same

    Unlike torchvision's, the order is always the same, so that a captured step is.

    Args:
        brightness, contrast, saturation: (low, high) of a factor, or a number r for 1 - r (at least 0) to 1 + r.
        hue: (low, high) of a turn of the colours between -0.5 and 0.5, a whole turn being 1; or a number for both.
        bounds: the values of black and white, to which results are clipped; (-1, 1) after `F.normalize_pixels`.

    Raises:
        ValueError: an argument means nothing.
    """

    def __init__(
        self,
        brightness: float | Interval = 0,
        contrast: float | Interval = 0,
        saturation: float | Interval = 0,
        hue: float | Interval = 0,
        bounds: Interval = (0.0, 1.0),
    ) -> None:
        name = type(self).__name__
        self.brightness = interval(name, "brightness", brightness, 0.0, around=1.0)
        self.contrast = interval(name, "contrast", contrast, 0.0, around=1.0)
        self.saturation = interval(name, "saturation", saturation, 0.0, around=1.0)
        self.hue = interval(name, "hue", hue, -0.5, around=0.0)
        self.bounds = interval(name, "bounds", bounds, -float("inf"))
        if self.hue[1] > 0.5 or self.bounds[0] == self.bounds[1]:
            raise ValueError(f"{name}: hue={hue!r} must be between -0.5 and 0.5, and bounds={bounds!r} must differ")

    def apply_to(self, x: Tensor) -> Tensor:
        name, (black, white) = type(self).__name__, self.bounds
        y = x if self.bounds == (0.0, 1.0) else (x - black) * (1 / (white - black))
        if self.brightness != (1.0, 1.0):
            y = clipped(y * drawn(x, *self.brightness))
        if self.contrast != (1.0, 1.0):
            mean = gray_of(name, y).mean((1, 2, 3), keepdim=True)
            y = clipped((y - mean) * drawn(x, *self.contrast) + mean)
        if self.saturation != (1.0, 1.0):
            gray = gray_of(name, y)
            y = clipped((y - gray) * drawn(x, *self.saturation) + gray)
        if self.hue != (0.0, 0.0):
            y = _turned(name, y, drawn(x, *self.hue))
        y = y if self.bounds == (0.0, 1.0) else y * (white - black) + black
        return y.astype(x.dtype)

    def extra_repr(self) -> str:
        names = "brightness", "contrast", "saturation", "hue", "bounds"
        return ", ".join(f"{name}={numbers_as_text(getattr(self, name))}" for name in names)


def clipped(y: Tensor) -> Tensor:
    return F.clamp(y, 0.0, 1.0)


def _turned(transform: str, y: Tensor, turn: Tensor) -> Tensor:
    """Colours of another hue, through hue, saturation and value   y (N, H, W, 3), turn (N, 1, 1, 1) -> the same"""
    red, green, blue = _three_channels(transform, y)
    value = y.amax(3, keepdim=True)
    spread = value - y.amin(3, keepdim=True)
    some = F.where(spread == 0, 1.0, spread)
    from_red, from_green, from_blue = ((value - c) / some for c in (red, green, blue))
    hue = F.where(
        value == red,
        from_blue - from_green,
        F.where(value == green, from_red - from_blue + 2, from_green - from_red + 4),
    )
    sixths = (hue / 6 + 1 + turn).remainder(1.0) * 6
    # each channel is a trapezoid of the hue: its value, less as much of the spread as the hue is off
    shifts = (5.0, 3.0, 1.0)
    off = [(sixths + shift).remainder(6.0) for shift in shifts]
    return F.cat([value - spread * F.clamp(F.minimum(k, 4 - k), 0.0, 1.0) for k in off], 3)
