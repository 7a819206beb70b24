"""Layers that make images larger at their borders, under PyTorch's names; the channels are the last axis."""

from __future__ import annotations

from typing import ClassVar

from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.nn import functional as F
from alpha.ops.kernel.options import Lengths, integer, real
from alpha.ops.pooling.pool_shape import image_sizes

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """Base of all padding layers.

    Attributes:
        rank: the number of axes between images and channels.
        mode: of `alpha.nn.functional.pad`.
        value: the number of mode "constant".
        padding: (before, after) of the last axis but the channels, then of the axis before it, and so on.
    """

    rank: ClassVar[int]
    mode: ClassVar[str]
    value: float | None = None

    def __init__(self, padding: Lengths) -> None:
        self.padding = self._checked(padding)

    def _checked(self, padding: Lengths) -> tuple[int, ...]:
        layer, count = type(self).__name__, 2 * self.rank
        many = isinstance(padding, (tuple, list))
        given = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * count
        if many and len(given) != count:
            raise ValueError(f"{layer}: padding={padding!r} is neither an integer nor {count} of them")
        return tuple([integer(layer, "padding", n) for n in given])

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(x, Tensor):
            image_sizes(type(self).__name__, self.rank, x)
        padding = self.padding if type(self.padding) is tuple else self._checked(self.padding)
        return F.pad(x, (0, 0, *padding), self.mode, self.value)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: Lengths, value: float) -> None:
        super().__init__(padding)
        self.value = real(type(self).__name__, "value", value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_Pad):
    mode = "constant"
    value = 0.0


class _ReflectionPad(_Pad):
    mode = "reflect"


class _ReplicationPad(_Pad):
    mode = "replicate"


class _CircularPad(_Pad):
    mode = "circular"


class ConstantPad1d(_ConstantPad):
    """A number around each sequence   (N, L, C) -> (N, left + L + right, C)

    The arguments are those of `ConstantPad2d`; padding has (left, right).
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """A number around each image   (N, H, W, C) -> (N, top + H + bottom, left + W + right, C)

    Args:
        padding: one number, or (left, right, top, bottom); negative ones take away.
        value: the number.
    """

    rank = 2


class ConstantPad3d(_ConstantPad):
    """A number around each volume   (N, D, H, W, C) -> (N, front + D + back, top + H + bottom, left + W + right, C)

    The arguments are those of `ConstantPad2d`; padding has (left, right, top, bottom, front, back).
    """

    rank = 3


class ZeroPad1d(_ZeroPad):
    """Zeros around each sequence   (N, L, C) -> (N, left + L + right, C)

    The arguments are those of `ZeroPad2d`; padding has (left, right).
    """

    rank = 1


class ZeroPad2d(_ZeroPad):
    """Zeros around each image   (N, H, W, C) -> (N, top + H + bottom, left + W + right, C)

    Args:
        padding: one number, or (left, right, top, bottom); negative ones take away.
    """

    rank = 2


class ZeroPad3d(_ZeroPad):
    """Zeros around each volume   (N, D, H, W, C) -> (N, front + D + back, top + H + bottom, left + W + right, C)

    The arguments are those of `ZeroPad2d`; padding has (left, right, top, bottom, front, back).
    """

    rank = 3


class ReflectionPad1d(_ReflectionPad):
    """Each sequence mirrored at its ends   (N, L, C) -> (N, left + L + right, C)

    The arguments are those of `ReflectionPad2d`; padding has (left, right).
    """

    rank = 1


class ReflectionPad2d(_ReflectionPad):
    """Each image mirrored at its borders   (N, H, W, C) -> (N, top + H + bottom, left + W + right, C)

    The border itself is not repeated.

    Args:
        padding: one number, or (left, right, top, bottom); negative ones take away.
    """

    rank = 2


class ReflectionPad3d(_ReflectionPad):
    """Each volume mirrored   (N, D, H, W, C) -> (N, front + D + back, top + H + bottom, left + W + right, C)

    The arguments are those of `ReflectionPad2d`; padding has (left, right, top, bottom, front, back).
    """

    rank = 3


class ReplicationPad1d(_ReplicationPad):
    """The ends of each sequence repeated   (N, L, C) -> (N, left + L + right, C)

    The arguments are those of `ReplicationPad2d`; padding has (left, right).
    """

    rank = 1


class ReplicationPad2d(_ReplicationPad):
    """The border of each image repeated around it   (N, H, W, C) -> (N, top + H + bottom, left + W + right, C)

    Args:
        padding: one number, or (left, right, top, bottom); negative ones take away.
    """

    rank = 2


class ReplicationPad3d(_ReplicationPad):
    """Each volume's border repeated   (N, D, H, W, C) -> (N, front + D + back, top + H + bottom, left + W + right, C)

    The arguments are those of `ReplicationPad2d`; padding has (left, right, top, bottom, front, back).
    """

    rank = 3


class CircularPad1d(_CircularPad):
    """Each sequence again from its other end   (N, L, C) -> (N, left + L + right, C)

    The arguments are those of `CircularPad2d`; padding has (left, right).
    """

    rank = 1


class CircularPad2d(_CircularPad):
    """Each image again from its other end   (N, H, W, C) -> (N, top + H + bottom, left + W + right, C)

    Args:
        padding: one number, or (left, right, top, bottom); negative ones take away.
    """

    rank = 2


class CircularPad3d(_CircularPad):
    """Each volume from its other end   (N, D, H, W, C) -> (N, front + D + back, top + H + bottom, left + W + right, C)

    The arguments are those of `CircularPad2d`; padding has (left, right, top, bottom, front, back).
    """

    rank = 3
