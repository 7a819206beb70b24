"""Problems and configurations: what is asked of a convolution, and one row of the table of kernels that compute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, TypeAlias

import numpy as np

from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.step_form import StepForm
from alpha.ops.kernel.plan import Buffer
from alpha.runtime import Device

FORWARD, INPUT, WEIGHT = "conv2d_forward", "conv2d_backward_input", "conv2d_backward_weight"

# The names of each operator's operands and result. ConvShape has their sizes under the same names, without the d.
OPERANDS = {FORWARD: ("X", "W"), INPUT: ("dY", "W"), WEIGHT: ("X", "dY")}
RESULT = {FORWARD: "Y", INPUT: "dX", WEIGHT: "dW"}


class MathMode(Enum):
    """Way in which products are computed, and their precision: see docs/glossary.md.

    For tensor cores a float32 operand is a sum of terms: tf32, or scaled fp16 (cuda/common/fp16_terms.cuh).
    """

    FP32 = "float32"  # FFMA; on cpu the arrays' own arithmetic
    TF32X3 = "float32 by three products of tf32 terms"
    FP16X3 = "float32 by three products of fp16 terms"
    FP16 = "tf32 by one product of fp16 terms"
    BF16X3 = "tf32 by three products of bfloat16 terms"
    TF32 = "tf32"
    BF16 = "bf16"

    @property
    def precision(self) -> str:
        """The precision of `alpha.set_precision` for which these products are exact enough."""
        return self.value.split()[0]

    @property
    def terms(self) -> int:
        """The number of terms into which each operand is split."""
        return 2 if self in (MathMode.TF32X3, MathMode.FP16X3, MathMode.BF16X3) else 1

    @property
    def in_fp16(self) -> bool:
        """True if float32 operands are scaled and split into fp16 terms."""
        return self in (MathMode.FP16X3, MathMode.FP16)

    @property
    def in_terms(self) -> bool:
        """True if float32 operands are split into terms of 16 bits."""
        return self.in_fp16 or self is MathMode.BF16X3


@dataclass(frozen=True)
class Target:
    """The device for which a kernel configuration is chosen and a plan is made."""

    device: str  # "cpu" or "cuda"
    compute_capability: tuple[int, int] = (0, 0)
    num_sms: int = 0
    # shared memory of a block: 64 KiB on sm_75, 99 on sm_86, 89 and 120, 163 on sm_80, 227 on sm_90 and 100
    shared_bytes: int = 163 << 10
    gpu: Device | None = field(default=None, compare=False)  # for the measurements of ALPHA_TUNE=1
    name: str = ""  # of the GPU


def seen_by_kernels(s: ConvShape, target: Target) -> ConvShape:
    """The shape for which a kernel is chosen and planned: on cuda a 1x1 convolution is a matrix product."""
    return s.as_product if target.device == "cuda" else s


@dataclass(frozen=True)
class Epilogue:
    """Operations on the results before they are written.

    Attributes:
        bias: whether each channel gets a bias.
        activation: whether a rectifier follows; its slope, 0 to 1, is given at the launch.
        statistics: whether the channel statistics are computed, too, if the kernel can.
        step: the first step of the gradient behind, which is taken, too, if the kernel can.
        magnitude: whether the largest magnitude of Y is found, too, if the kernel can.
    """

    bias: bool = False
    activation: bool = False
    statistics: bool = False
    step: StepForm | None = None
    magnitude: bool = False

    @property
    def changes_results(self) -> bool:
        return self.bias or self.activation


PACK = 8  # channels of 16 bits that TMA and tensor cores read together, at least
PLAIN = Epilogue()
WITH_STATISTICS, WITH_MAGNITUDE = Epilogue(statistics=True), Epilogue(magnitude=True)


class Given(IntEnum):
    """The most that there is of an operand of floats besides its array."""

    NOTHING = 0
    MAGNITUDE = 1  # the largest
    HALF = 2  # a limit of the magnitudes, and a copy in fp16 by the scale that follows from it, for "tf32"
    HALF_ALONE = 3  # the same, and the array itself is gone


Known: TypeAlias = tuple[Given, Given]  # of the first and of the second operand
UNKNOWN: Known = (Given.NOTHING, Given.NOTHING)


@dataclass(frozen=True)
class ConvProblem:
    """One of the three operators of a convolution.

    Attributes:
        precision: "float32", "tf32" or "bf16": how exact the products must be.
        dtype: bfloat16 or float32, for both operands, and for the result unless that is the gradient of the weight.
        gradient: the dtype of the gradient of the weight, which is that of the weight: bfloat16 or float32.
        known: for each operand, what there is of it already, so that no launch has to compute it.
    """

    operator: str
    shape: ConvShape
    precision: str = "float32"
    epilogue: Epilogue = PLAIN
    dtype: np.dtype[Any] = FLOAT32
    gradient: np.dtype[Any] = FLOAT32
    known: Known = UNKNOWN

    @property
    def result(self) -> Buffer:
        """The array of the result."""
        return Buffer(self.sizes(RESULT[self.operator]), self.gradient if self.operator == WEIGHT else self.dtype)

    def sizes(self, name: str) -> tuple[int, ...]:
        """The sizes of X, W, Y or of one of their gradients."""
        found: tuple[int, ...] = getattr(self.shape, name.removeprefix("d"))
        return found


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
        pack: channels that come in whole packs of so many. Other numbers are computed on padded copies (prepare.py).
        registers: the most registers that a thread of the kernel may need.
        supports_epilogue: whether the bias and the activation are computed with the product.
        supports_statistics: whether the channel statistics are computed with the product.
        supports_step: whether the first step of the gradient behind is taken with the product.
        base: the configuration whose kernel it launches with other operands (direct.py); the constants of its
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
    supports_step: bool = False
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
    def reads_half(self) -> bool:
        """True if there must be an fp16 copy of its first operand, or for dW of the second one; see `Given.HALF`."""
        return bool(self.tile.get("PREPARED", 0) >= (2 if self.operator == WEIGHT else 1))

    @property
    def reads_half_of_X(self) -> bool:
        """True for dW if it multiplies one fp16 term of X, which it makes if there is no copy."""
        return self.operator == WEIGHT and self.math is MathMode.FP16 and bool(self.tile["PREPARED"])

    @property
    def is_ffma(self) -> bool:
        """True for a configuration on cuda without tensor cores."""
        return self.device == "cuda" and self.math is MathMode.FP32

    @property
    def macros(self) -> dict[str, Any]:
        """The macros of a kernel on tensor cores."""
        return {**self.tile, "MATH": self.math.name}
