"""What a row of the table of convolution algorithms says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alpha.numerics import BFLOAT16, FLOAT32
from alpha.ops.conv2d.problem import Target
from alpha.ops.conv2d.shape import ConvShape

Condition = Callable[[ConvShape, Target], bool]


@dataclass
class ChannelMoments:
    """Moments of the channels of a result, for the batch normalisation that comes next, where a row finds them.

    part (2, parts, C): mean and sum of squared deviations over some rows; counts (parts,): how many.
    """

    part: Any = None
    counts: Any = None


def always(s: ConvShape, target: Target) -> bool:
    return True


@dataclass(frozen=True)
class Variant:
    """One way to compute one operator on one device.

    On cuda `make(problem, variant, target)` gives the plan; on cpu `make(first, second, shape)` gives the result. `can`
    says whether it computes a shape at all, `pays` whether it is worth it; `why` is the reason in words. No kernel of
    the row may need more than `registers` per thread. A row that `fuses` computes the bias and the activation of the
    problem with the product, one that `finds_moments` its moments. `ffma`: a CUDA row without tensor cores.
    """

    name: str
    operator: str
    device: str
    make: Callable[..., Any]
    why: str
    can: Condition = always
    pays: Condition = always
    tile: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "float32"
    registers: int = 128
    fuses: bool = False
    finds_moments: bool = False
    ffma: bool = False

    def __hash__(self) -> int:
        return hash((self.name, self.operator))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the operands that a row on cuda takes."""
        return BFLOAT16 if self.precision == "bf16" else FLOAT32
