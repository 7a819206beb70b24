"""Parts of images that are erased."""

from __future__ import annotations

import math

from alpha.core.tensor import Tensor
from alpha.nn import functional as F
from alpha.ops.array.creation import arange
from alpha.ops.array.random_tensors import randn_like
from alpha.ops.kernel.options import only_offered, real
from alpha.transforms.images import Interval, Transform, chosen, drawn, interval, numbers_as_text, probability

__all__ = ["RandomErasing"]


class RandomErasing(Transform):
    """A rectangle of each image erased with probability p (Zhong et al. 2020)   (N, H, W, C) -> the same

    Args:
        p: how often an image loses a part.
        scale: (low, high) of the part's area, as a share of the image's.
        ratio: (low, high) of the part's width over its height, drawn on a logarithmic scale.
        value: what replaces the part: a number, or "random" for normal numbers.
        inplace: only False is offered.

    Raises:
        ValueError: an argument means nothing, or is not offered.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Interval = (0.02, 0.33),
        ratio: Interval = (0.3, 3.3),
        value: float | str = 0,
        inplace: bool = False,
    ) -> None:
        name = type(self).__name__
        only_offered(name, inplace=(inplace, False))
        self.p = probability(name, p)
        self.scale = interval(name, "scale", scale, 0.0)
        self.ratio = interval(name, "ratio", ratio, 0.0)
        if self.scale[1] > 1 or self.ratio[0] == 0:
            raise ValueError(f"{name}: scale={scale!r} must be up to 1, and ratio={ratio!r} above 0")
        if isinstance(value, str) and value != "random":
            raise ValueError(f"{name}: value={value!r} is neither a number nor 'random'")
        self.value = value if isinstance(value, str) else real(name, "value", value)

    def apply_to(self, x: Tensor) -> Tensor:
        lengths = x.shape[1:3]
        area = drawn(x, *self.scale) * math.prod(lengths)
        ratio = drawn(x, *map(math.log, self.ratio)).exp()
        erased = chosen(x, self.p)
        for axis, (length, part) in enumerate(
            zip(lengths, ((area / ratio).sqrt(), (area * ratio).sqrt()), strict=True), 1
        ):
            part = F.clamp(part.round(), max=float(length))
            first = (drawn(x, 0, 1) * (length - part + 1)).floor()
            shape = (1, length, 1, 1) if axis == 1 else (1, 1, length, 1)
            place = arange(length, dtype=first.dtype, device=x.device).reshape(shape)
            erased = F.logical_and(erased, F.logical_and(place >= first, place < first + part))
        return x.where(F.logical_not(erased), randn_like(x) if isinstance(self.value, str) else self.value)

    def extra_repr(self) -> str:
        own = f"scale={numbers_as_text(self.scale)}, ratio={numbers_as_text(self.ratio)}"
        return f"p={self.p:g}, {own}, value={self.value!r}"
