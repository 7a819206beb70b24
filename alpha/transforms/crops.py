"""Parts of images, and images of another size."""

from __future__ import annotations

import math
from typing import Any

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.nn import functional as F
from alpha.ops.kernel.options import Pair, integer, only_offered, pair, real
from alpha.transforms.geometry import check_interpolation, warp
from alpha.transforms.images import FixedTransform, Interval, Transform, drawn, interval, numbers_as_text

__all__ = ["CenterCrop", "RandomCrop", "RandomResizedCrop", "Resize"]

# padding_mode: those of `F.grid_sample`, and whether a reflection is about the centre of the last pixel
PADDING_MODES = {
    "constant": ("zeros", False),
    "edge": ("border", False),
    "reflect": ("reflection", True),
    "symmetric": ("reflection", False),
}


def center_crop(x: Tensor, size: tuple[int, int], fill: float = 0) -> Tensor:
    """The middle of images, with `fill` around those that are too small   x (N, H, W, C) -> (N, *size, C)"""
    slices, pads = [], []
    for length, wanted in zip(x.shape[1:3], size, strict=True):
        first = _middle(length, wanted)
        slices.append(slice(max(0, first), max(0, first) + wanted))
        missing = max(0, wanted - length)
        pads.append((missing // 2, missing - missing // 2))
    part = x[:, slices[0], slices[1]] if x.shape[1:3] != size else x
    return F.pad(part, (0, 0, *pads[1], *pads[0]), value=fill) if any(map(any, pads)) else part


def _middle(length: int, wanted: int) -> int:
    """The first pixel of the middle of an axis; negative if more pixels are wanted than there are."""
    return round((length - wanted) / 2) if length > wanted else -((wanted - length) // 2)


class CenterCrop(FixedTransform):
    """The middle of each image, with zeros around those that are too small   (N, H, W, C) -> (N, *size, C)

    Args:
        size: (height, width), or one number for both.
    """

    moves = True

    def __init__(self, size: Pair) -> None:
        self.size = pair(type(self).__name__, "size", size, least=1)

    def apply_to(self, x: Tensor) -> Tensor:
        return center_crop(x, self.size)

    def extra_repr(self) -> str:
        return f"size={self.size}"


class RandomCrop(Transform):
    """A part of each image, at a place of its own   (N, H, W, C) -> (N, *size, C)

    In evaluation mode it is the middle of the image, and has padding only around an image that is smaller than size.

    Args:
        size: (height, width), or one number for both.
        padding: pixels that are put around an image first: one number, (left and right, top and bottom), or
            (left, top, right, bottom).
        pad_if_needed: only False is offered.
        fill: the value of these pixels if padding_mode is "constant".
        padding_mode: "constant", "edge" (the nearest pixel), "reflect" (without repeating the outermost pixel) or
            "symmetric" (with it).

    Raises:
        ShapeError: an image with its padding is smaller than size.
        ValueError: an argument means nothing.
    """

    moves = True

    def __init__(
        self,
        size: Pair,
        padding: int | tuple[int, ...] | None = None,
        pad_if_needed: bool = False,
        fill: float = 0,
        padding_mode: str = "constant",
    ) -> None:
        name = type(self).__name__
        only_offered(name, pad_if_needed=(pad_if_needed, False))
        self.size = pair(name, "size", size, least=1)
        self.padding = _four(name, padding)
        if padding_mode not in PADDING_MODES:
            raise ValueError(f"{name}: padding_mode={padding_mode!r} is not one of {', '.join(PADDING_MODES)}")
        self.fill, self.padding_mode = real(name, "fill", fill), padding_mode

    def apply_to(self, x: Tensor) -> Tensor:
        left, top, right, bottom = self.padding
        H, W = x.shape[1] + top + bottom, x.shape[2] + left + right  # with the padding
        if self.size[0] > H or self.size[1] > W:
            raise ShapeError(
                f"RandomCrop: size={self.size} is larger than the images with padding {self.padding}  (x {x.shape})"
            )
        if self.fill and self.padding_mode == "constant":  # outside of what is sampled there are only zeros
            x, left, top = F.pad(x, (0, 0, left, right, top, bottom), value=self.fill), 0, 0
        moves = [
            drawn(x, 0, whole - wanted + 1).floor() + ((wanted - length) / 2 - before)
            for whole, wanted, length, before in zip((H, W), self.size, x.shape[1:3], (top, left), strict=True)
        ]
        padding = PADDING_MODES[self.padding_mode]
        return warp(x, ((1.0, 0.0, moves[1]), (0.0, 1.0, moves[0])), self.size, "nearest", padding)

    def still(self, x: Tensor) -> Tensor:
        lengths = [*zip(x.shape[1:3], self.size, strict=True)]
        if self.padding_mode == "constant" or all(wanted <= length for length, wanted in lengths):
            return center_crop(x, self.size, self.fill)
        moves = [_middle(length, wanted) + (wanted - length) / 2 for length, wanted in lengths]
        padding = PADDING_MODES[self.padding_mode]
        return warp(x, ((1.0, 0.0, moves[1]), (0.0, 1.0, moves[0])), self.size, "nearest", padding)

    def extra_repr(self) -> str:
        return f"size={self.size}, padding={self.padding}, fill={self.fill:g}, padding_mode={self.padding_mode!r}"


def _four(transform: str, padding: Any) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of a padding."""
    given = padding if isinstance(padding, (tuple, list)) else (0 if padding is None else padding,)
    if len(given) not in (1, 2, 4):
        raise ValueError(f"{transform}: padding={padding!r} is neither one number nor 2 or 4 of them")
    left, top, right, bottom = [integer(transform, "padding", n, least=0) for n in tuple(given) * (4 // len(given))]
    return left, top, right, bottom


class RandomResizedCrop(Transform):
    """A part of each image, of its own size and place, enlarged or reduced to `size`   (N, H, W, C) -> (N, *size, C)

    Unlike torchvision's, a part may begin between two pixels, and nothing is averaged when an image is reduced. In
    evaluation mode it is the largest part in the middle that has the shape of `size`.

    Args:
        size: (height, width), or one number for both.
        scale: (low, high) of the part's area, as a share of the image's.
        ratio: (low, high) of the part's width over its height, drawn on a logarithmic scale.
        interpolation: "nearest", "bilinear" or "bicubic".

    Raises:
        ValueError: an argument means nothing.
    """

    moves = True

    def __init__(
        self,
        size: Pair,
        scale: Interval = (0.08, 1.0),
        ratio: Interval = (3 / 4, 4 / 3),
        interpolation: str = "bilinear",
    ) -> None:
        name = type(self).__name__
        self.size = pair(name, "size", size, least=1)
        self.scale = interval(name, "scale", scale, 0.0)
        self.ratio = interval(name, "ratio", ratio, 0.0)
        if self.scale[0] == 0 or self.scale[1] > 1 or self.ratio[0] == 0:
            raise ValueError(f"{name}: scale={scale!r} must be above 0 and up to 1, and ratio={ratio!r} above 0")
        self.interpolation = check_interpolation(name, interpolation)

    def apply_to(self, x: Tensor) -> Tensor:
        H, W = x.shape[1:3]
        area = drawn(x, *self.scale) * (H * W)
        ratio = drawn(x, *map(math.log, self.ratio)).exp()
        lengths = F.clamp((area / ratio).sqrt(), max=float(H)), F.clamp((area * ratio).sqrt(), max=float(W))
        # the middle of the part, from that of the image
        moves = [(drawn(x, 0, 1) - 0.5) * (n - part) for n, part in zip((H, W), lengths, strict=True)]
        rows, columns = (part * (1 / n) for n, part in zip(self.size, lengths, strict=True))
        return warp(x, ((columns, 0.0, moves[1]), (0.0, rows, moves[0])), self.size, self.interpolation, EDGE)

    def still(self, x: Tensor) -> Tensor:
        step = min(n / wanted for n, wanted in zip(x.shape[1:3], self.size, strict=True))
        if step == 1:
            return center_crop(x, self.size)
        return warp(x, ((step, 0.0, 0.0), (0.0, step, 0.0)), self.size, self.interpolation, EDGE)

    def extra_repr(self) -> str:
        own = f"scale={numbers_as_text(self.scale)}, ratio={numbers_as_text(self.ratio)}"
        return f"size={self.size}, {own}, interpolation={self.interpolation!r}"


EDGE = PADDING_MODES["edge"]


class Resize(FixedTransform):
    """Images of another size, by `F.interpolate`   (N, H, W, C) -> (N, OH, OW, C)

    Args:
        size: (height, width); or the length of the shorter side, and the other one keeps the ratio, rounded down.
        interpolation: "nearest", "bilinear" or "bicubic".
        max_size: the most that the longer side may have, if size is one number; the shorter one is then less than size.
        antialias: a reduced image is the mean of what each of its pixels covers. "nearest" reads one pixel anyway.

    Raises:
        ValueError: an argument means nothing, or max_size is not above size or stands beside two lengths.
    """

    def __init__(
        self, size: Pair, interpolation: str = "bilinear", max_size: int | None = None, antialias: bool = True
    ) -> None:
        name = type(self).__name__
        alone = not isinstance(size, (tuple, list)) or len(size) == 1
        both = pair(name, "size", size[0] if isinstance(size, (tuple, list)) and alone else size, least=1)
        self.size: Pair = both[0] if alone else both
        self.max_size = None if max_size is None else integer(name, "max_size", max_size)
        if self.max_size is not None and not (alone and self.max_size > both[0]):
            raise ValueError(f"{name}: max_size={max_size} needs a size of one number below it  (size={size!r})")
        self.interpolation = check_interpolation(name, interpolation)
        self.antialias = bool(antialias)

    def apply_to(self, x: Tensor) -> Tensor:
        size = self._size_of(*x.shape[1:3])
        if size == x.shape[1:3]:
            return x
        antialias = self.antialias and self.interpolation != "nearest"
        return F.interpolate(x, size, mode=self.interpolation, antialias=antialias)

    def _size_of(self, H: int, W: int) -> tuple[int, int]:
        """The size of what an image (H, W) becomes."""
        if not isinstance(self.size, int):
            return self.size
        if not H * W:
            raise ShapeError(f"{type(self).__name__}: images of {H} x {W} have no pixels, so none can be scaled")
        short, long = self.size, self.size * max(H, W) // min(H, W)
        if self.max_size is not None and long > self.max_size:
            short, long = max(1, self.max_size * short // long), self.max_size
        return (long, short) if W <= H else (short, long)

    def extra_repr(self) -> str:
        most = "" if self.max_size is None else f", max_size={self.max_size}"
        return f"size={self.size}, interpolation={self.interpolation!r}{most}, antialias={self.antialias}"
