"""Operations that each image draws by chance: RandAugment and TrivialAugment.

All images go through all operations, and each keeps what it has drawn, so that a captured step is always the same. The
five that move pixels are one map; brightness, colour, contrast and sharpness are one blend with another image.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.nn import functional as F
from alpha.ops.array.creation import arange
from alpha.ops.kernel.options import integer, real
from alpha.transforms.color import clipped, gray_of
from alpha.transforms.geometry import Entry, Map, check_interpolation, warp
from alpha.transforms.images import Interval, Transform, chosen, drawn, interval, number_type, numbers_as_text

__all__ = ["RandAugment", "TrivialAugmentWide"]

OPERATIONS = (
    *("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"),  # one map of the pixels
    *("Brightness", "Color", "Contrast", "Sharpness"),  # one blend
    *("AutoContrast", "Posterize", "Solarize", "Equalize"),
)
NEARLY = 1e-3  # levels of 255, within which a level counts as reached


class Strengths(NamedTuple):
    """Operations at their largest magnitude.

    Attributes:
        shear: pixels that a row or column moves for each one from the first.
        right, down: pixels that an image moves.
        degrees: the turn.
        blend: how far the factor of a blend is from 1.
        bits: how many of the 8 bits of a level Posterize takes away.
    """

    shear: float
    right: float
    down: float
    degrees: float
    blend: float
    bits: float


class _AutoAugment(Transform):
    """Operations drawn by each image: a subclass says how strong they are."""

    moves = True

    num_ops = 1
    num_magnitude_bins: int
    interpolation: str
    fill: float | None
    bounds: Interval

    def _take(self, num_magnitude_bins: int, interpolation: str, fill: float | None, bounds: Interval) -> None:
        name = type(self).__name__
        self.num_magnitude_bins = integer(name, "num_magnitude_bins", num_magnitude_bins, least=2)
        self.interpolation = check_interpolation(name, interpolation)
        self.fill = None if fill is None else real(name, "fill", fill)
        self.bounds = interval(name, "bounds", bounds, -math.inf)
        if self.bounds[0] == self.bounds[1]:
            raise ValueError(f"{name}: bounds={bounds!r} must differ")

    def strengths(self, H: int, W: int) -> Strengths:
        """The largest magnitudes for images of H rows and W columns."""
        raise NotImplementedError

    def magnitudes(self, x: Tensor) -> Entry:
        """Magnitudes as shares of the largest: one number, or one for each image (N, 1, 1, 1)."""
        raise NotImplementedError

    def apply_to(self, x: Tensor) -> Tensor:
        if x.shape[3] not in (1, 3):
            raise ShapeError(f"{type(self).__name__}: images of 1 or 3 channels are needed  (x {x.shape})")
        black, white = self.bounds
        scale = 1 / (white - black)
        fill = 0.0 if self.fill is None else (self.fill - black) * scale
        strengths = self.strengths(*x.shape[1:3])
        y = x.astype(number_type(x))
        y = y if self.bounds == (0.0, 1.0) else (y - black) * scale
        for _ in range(self.num_ops):
            operation = drawn(x, 0, len(OPERATIONS)).floor()
            magnitude, negative = self.magnitudes(x), chosen(x, 0.5)
            y = operated(y, operation, magnitude, negative, strengths, self.interpolation, fill)
        y = y if self.bounds == (0.0, 1.0) else y * (white - black) + black
        return y.astype(x.dtype)

    def extra_repr(self) -> str:
        common = f"num_magnitude_bins={self.num_magnitude_bins}, interpolation={self.interpolation!r}"
        return f"{common}, fill={self.fill}, bounds={numbers_as_text(self.bounds)}"


class RandAugment(_AutoAugment):
    """Each image goes through some operations that it draws, all of one magnitude (Cubuk et al. 2020)

    x (N, H, W, C), C = 1 or 3 -> the same

    Operations are torchvision's, each drawn equally often: Identity, ShearX, ShearY, TranslateX, TranslateY, Rotate,
    Brightness, Color, Contrast, Sharpness, Posterize, Solarize, AutoContrast, Equalize; those from ShearX to Sharpness
    have both signs. The largest magnitudes are a shear of 0.3, 150 / 331 of the width or height, 30 degrees, a factor
    of 1 - 0.9 or 1 + 0.9, 4 bits less, and the threshold 0.

    Unlike torchvision's, which works on bytes, images are floats: a level between two of the 256 stays where it is.
    Only Posterize and Equalize round to the nearest level first. In evaluation mode images stay as they are.

    Args:
        num_ops: operations of an image, one after the other.
        magnitude: from 0 to num_magnitude_bins - 1, which is the largest.
        num_magnitude_bins: how many magnitudes there are, at least 2.
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: the value of pixels that lie outside of the image, in the unit of the images; None: black.
        bounds: the values of black and white, to which colours are clipped; (-1, 1) after `F.normalize_pixels`.

    Raises:
        ShapeError: (in a call) the images have another number of channels.
        ValueError: an argument means nothing.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: str = "nearest",
        fill: float | None = None,
        bounds: Interval = (0.0, 1.0),
    ) -> None:
        name = type(self).__name__
        self.num_ops = integer(name, "num_ops", num_ops, least=0)
        self.magnitude = integer(name, "magnitude", magnitude, least=0)
        self._take(num_magnitude_bins, interpolation, fill, bounds)
        if self.magnitude >= self.num_magnitude_bins:
            raise ValueError(f"{name}: magnitude={magnitude} must be below num_magnitude_bins={num_magnitude_bins}")

    def strengths(self, H: int, W: int) -> Strengths:
        return Strengths(0.3, 150 / 331 * W, 150 / 331 * H, 30.0, 0.9, 4.0)

    def magnitudes(self, x: Tensor) -> Entry:
        return self.magnitude / (self.num_magnitude_bins - 1)

    def extra_repr(self) -> str:
        return f"num_ops={self.num_ops}, magnitude={self.magnitude}, {super().extra_repr()}"


class TrivialAugmentWide(_AutoAugment):
    """Each image goes through one operation of a magnitude that it draws, too (Müller and Hutter 2021)

    x (N, H, W, C), C = 1 or 3 -> the same

    Operations are those of RandAugment, and so is what differs from torchvision. The largest magnitudes are a shear of
    0.99, 32 pixels, 135 degrees, a factor of 1 - 0.99 or 1 + 0.99, 6 bits less, and the threshold 0. In evaluation mode
    images stay as they are.

    Args:
        num_magnitude_bins: how many magnitudes there are, from none to the largest; at least 2.
        interpolation, fill, bounds: as of RandAugment.

    Raises:
        ShapeError: (in a call) the images have another number of channels.
        ValueError: an argument means nothing.
    """

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: str = "nearest",
        fill: float | None = None,
        bounds: Interval = (0.0, 1.0),
    ) -> None:
        self._take(num_magnitude_bins, interpolation, fill, bounds)

    def strengths(self, H: int, W: int) -> Strengths:
        return Strengths(0.99, 32.0, 32.0, 135.0, 0.99, 6.0)

    def magnitudes(self, x: Tensor) -> Entry:
        return drawn(x, 0, self.num_magnitude_bins).floor() * (1 / (self.num_magnitude_bins - 1))


def operated(
    y: Tensor,
    operation: Tensor,
    magnitude: Entry,
    negative: Tensor,
    strengths: Strengths,
    interpolation: str,
    fill: float,
) -> Tensor:
    """Images of one operation each   y (N, H, W, C), from 0 black to 1 white -> the same

    Args:
        operation: (N, 1, 1, 1), places in OPERATIONS, as floats.
        magnitude: the share of the largest one, a number or (N, 1, 1, 1).
        negative: (N, 1, 1, 1) of bools, for operations of both signs.
        fill: what is outside of an image.
    """
    signed = F.where(negative, -1.0, 1.0).astype(y.dtype) * magnitude
    size = y.shape[1], y.shape[2]
    moved = warp(y, _map(y, operation, signed, strengths), size, interpolation, fill=fill)
    gray = y if y.shape[3] == 1 else gray_of("RandAugment", y)
    base = F.where(_is(operation, "Color"), gray, 0.0)
    base = F.where(_is(operation, "Contrast"), gray.mean((1, 2, 3), keepdim=True), base)
    base = F.where(_is(operation, "Sharpness"), smoothed(y), base)
    blended = clipped(base + (y - base) * (signed * strengths.blend + 1))
    dark, light = y.amin((1, 2), keepdim=True), y.amax((1, 2), keepdim=True)
    spread = light - dark
    stretched = F.where(spread == 0, y, clipped((y - dark) / F.where(spread == 0, 1.0, spread)))
    levels = clipped(y) * 255
    solarized = F.where(levels >= (1 - magnitude) * 255 - NEARLY, 1 - y, y)
    levels = levels.round()
    step = _power_of_two(magnitude * strengths.bits)
    posterized = (levels / step).floor() * step * (1 / 255)
    result = equalized(levels)
    for last, changed in (
        ("Solarize", solarized),
        ("Posterize", posterized),
        ("AutoContrast", stretched),
        ("Sharpness", blended),
        ("Rotate", moved),
        ("Identity", y),
    ):
        result = F.where(operation <= OPERATIONS.index(last), changed, result)
    return result


def _is(operation: Tensor, name: str) -> Tensor:
    return operation == OPERATIONS.index(name)


def _map(y: Tensor, operation: Tensor, signed: Tensor, strengths: Strengths) -> Map:
    """The map of `warp` for each image: shears keep the first row or column, and the other numbers are 0 or 1."""

    def only(name: str, most: float) -> Tensor:
        return (signed * most).where(_is(operation, name), 0.0)

    along_x, along_y = only("ShearX", strengths.shear), only("ShearY", strengths.shear)
    right, down = (_whole(only(*each)) for each in (("TranslateX", strengths.right), ("TranslateY", strengths.down)))
    angle = only("Rotate", math.radians(strengths.degrees))
    sin, cos = F.sin(angle), F.cos(angle)
    height, width = y.shape[1:3]
    return (cos, along_x - sin, along_x * (height / 2) - right), (along_y + sin, cos, along_y * (width / 2) - down)


def _whole(pixels: Tensor) -> Tensor:
    """Pixels rounded to whole ones towards 0; `NEARLY` keeps both devices together."""
    return (pixels - NEARLY).ceil().where(pixels < 0, (pixels + NEARLY).floor())


def _power_of_two(exponent: Entry) -> Entry:
    """2 to the exponent rounded to an integer, exactly."""
    return exponent.round().exp2().round() if isinstance(exponent, Tensor) else 2.0 ** round(exponent)


def smoothed(y: Tensor) -> Tensor:
    """Each pixel in a mean with its 8 neighbours, in which it counts for five; the outermost pixels stay

    y (N, H, W, C) -> the same
    """
    H, W = y.shape[1:3]
    if min(H, W) < 3:
        return y
    rows = y[:, :-2] + y[:, 1:-1] + y[:, 2:]
    around = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]
    mean = (around + y[:, 1:-1, 1:-1] * 4) * (1 / 13)
    places = (
        arange(n, dtype=y.dtype, device=y.device).reshape(shape) for n, shape in ((H, (1, H, 1, 1)), (W, (1, 1, W, 1)))
    )
    inner = [F.logical_and(place > 0, place < n - 1) for place, n in zip(places, (H, W), strict=True)]
    return F.pad(mean, (0, 0, 1, 1, 1, 1)).where(F.logical_and(*inner), y)


def equalized(levels: Tensor) -> Tensor:
    """Levels that all come up as often as can be, for each image and channel

    levels (N, H, W, C) of whole numbers from 0 to 255 -> the same shape, from 0 to 1
    """
    N, H, W, C = levels.shape
    rows = levels.astype(np.uint8).reshape(N, H * W, C).transpose(1, 2).reshape(N * C, H * W)
    ordered = F.sort(rows, 1).values
    every = arange(256, dtype=np.int64, device=levels.device).reshape(1, 256)
    below = F.searchsorted(ordered, every.astype(np.uint8).expand(N * C, 256))  # pixels darker than each level
    step = F.gather(below, 1, ordered[:, -1:].astype(np.int64)) // 255
    table = F.where(step > 0, (below + step // 2) // F.clamp(step, min=1), every)
    found = F.gather(F.clamp(table, max=255).astype(levels.dtype), 1, rows.astype(np.int64))
    return found.reshape(N, C, H * W).transpose(1, 2).reshape(N, H, W, C) * (1 / 255)
