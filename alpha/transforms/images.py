"""Common part of transforms: the check of their images, their random numbers, and their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.module.module import Module
from alpha.ops.array.random_tensors import rand
from alpha.ops.kernel.options import real

FLOAT64 = np.dtype(np.float64)


Interval = tuple[float, float]


class Transform(Module):
    """The base of transforms: a subclass defines `apply_to(x)`, and `still(x)` if evaluation changes images, too.

    Attributes:
        moves: whether what a pixel shows goes to another place of the image, so that a mask has to follow. A change
            of the size alone is no move: what is learned may be the image, or a mask, of the old size.
    """

    moves: ClassVar[bool] = False

    def forward(self, x: Tensor) -> Tensor:
        """x (N, H, W, C), a floating tensor   -> images of the same dtype

        Raises:
            ShapeError: x has other axes.
            TypeError: x is no floating tensor.
        """
        check_images(type(self).__name__, x)
        return self.apply_to(x) if self.training else self.still(x)

    def apply_to(self, x: Tensor) -> Tensor:
        """The images of training mode."""
        raise NotImplementedError

    def still(self, x: Tensor) -> Tensor:
        """The images of evaluation mode."""
        return x


class FixedTransform(Transform):
    """A transform without randomness, which does the same in both modes."""

    def still(self, x: Tensor) -> Tensor:
        return self.apply_to(x)


def check_images(transform: str, x: Any) -> None:
    """Refuse what is no floating tensor (N, H, W, C)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{transform}: x is a {type_name(x)}, a Tensor (N, H, W, C) is needed")
    if x.ndim != 4:
        raise ShapeError(f"{transform}: images (N, H, W, C) are needed  (x {x.shape})")
    if not is_floating(x.dtype):
        raise TypeError(
            f"{transform}: x has dtype {x.dtype.name}; use x.float() / 255, or F.normalize_pixels(x) for -1 to 1"
        )


def number_type(x: Tensor) -> np.dtype[Any]:
    """The dtype of the numbers that change x: float64 if x has it, else float32."""
    return FLOAT64 if x.dtype == FLOAT64 else FLOAT32


def drawn(x: Tensor, low: float, high: float) -> Tensor:
    """A uniform number of [low, high) for each image, or `low` if both are equal   -> (N, 1, 1, 1)"""
    return rand((x.shape[0], 1, 1, 1), dtype=number_type(x), device=x.device) * (high - low) + low


def chosen(x: Tensor, p: float) -> Tensor:
    """True for each image with probability p   -> (N, 1, 1, 1) of bools"""
    return drawn(x, 0.0, 1.0) < p


def interval(transform: str, name: str, value: Any, least: float, around: float | None = None) -> Interval:
    """A pair (low, high) of numbers; a number r alone means from `around` - r to `around` + r, if that is offered.

    Raises:
        TypeError: the value is neither.
        ValueError: it has another length, goes down, or begins below `least`.
    """
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{transform}: {name}={value!r} is no pair (low, high)")
        low, high = (real(transform, name, each) for each in value)
    elif around is None:
        raise TypeError(f"{transform}: {name}={value!r} is no pair (low, high)")
    else:
        reach = real(transform, name, value)
        if reach < 0:
            raise ValueError(f"{transform}: {name}={value!r} is negative")
        low, high = max(around - reach, least), around + reach
    if not least <= low <= high:
        raise ValueError(f"{transform}: {name}={value!r} must go up from {least:g} or more")
    return low, high


def probability(transform: str, p: Any) -> float:
    """p, a number from 0 to 1; `ValueError` otherwise."""
    value = real(transform, "p", p)
    if not 0 <= value <= 1:
        raise ValueError(f"{transform}: p={p!r} is not between 0 and 1")
    return value


def numbers_as_text(values: Sequence[Any]) -> str:
    """Numbers in parentheses, for `extra_repr`."""
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"
