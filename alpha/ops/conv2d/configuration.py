"""A kernel configuration: one row of the table of convolution algorithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.ops.conv2d.problem import MathMode, Target
from alpha.ops.conv2d.shape import ConvShape

Condition = Callable[[ConvShape, Target], bool]


def always(s: ConvShape, target: Target) -> bool:
    return True


@dataclass(frozen=True)
class Configuration:
    """One way to compute one operator on one device: an algorithm, and on cuda the kernel and its tile.

    Attributes:
        make: on cuda `make(problem, configuration, target)` gives the plan; on cpu `make(first, second, shape)` gives
            the result.
        reason: a few words that say why it is chosen.
        supports: whether it can compute a shape at all.
        preferred: whether it may be the fastest. `choose` takes no other by prediction; one that is forced, or measured
            to be the fastest (ALPHA_TUNE=1), need not be preferred.
        tile: the macros of the kernel besides the math mode.
        pack: channels that come in whole packs of so many. Other numbers are computed on padded copies (padded.py).
        registers: the most registers that a thread of the kernel may need.
        supports_epilogue: whether the bias and the activation are computed with the product.
        supports_statistics: whether the channel statistics are computed with the product.
        base: the configuration whose kernel it launches with other operands (few_outputs.py); the constants of its
            prediction are those of the base.
    """

    name: str
    operator: str
    device: str
    make: Callable[..., Any]
    reason: str
    supports: Condition = always
    preferred: Condition = always
    tile: Mapping[str, Any] = field(default_factory=dict)
    math: MathMode = MathMode.FP32
    pack: int = 1
    registers: int = 128
    supports_epilogue: bool = False
    supports_statistics: bool = False
    base: Configuration | None = None

    def __hash__(self) -> int:
        return hash((self.name, self.operator))

    @property
    def precision(self) -> str:
        """ "float32", "tf32" or "bf16"."""
        return self.math.precision

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the operands that a configuration on cuda takes."""
        return BFLOAT16 if self.math is MathMode.BF16 else FLOAT32

    @property
    def is_ffma(self) -> bool:
        """True for a configuration on cuda without tensor cores."""
        return self.device == "cuda" and self.math is MathMode.FP32

    @property
    def macros(self) -> dict[str, Any]:
        """The macros of a kernel on tensor cores."""
        return {**self.tile, "MATH": self.math.name}
