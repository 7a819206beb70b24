"""Functions of two floating operands with broadcasting, whose gradients read the operands and the result."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.common_dtype import as_floating, promoted
from alpha.ops.kernel.operands import NUMBERS, beside, like, operand_of, sum_to


class OfTwo(Function):
    """A function of two operands   A (...), B (...) -> the broadcast shape"""

    operator: ClassVar[str]
    primitive: ClassVar[Primitive]
    numbers: ClassVar[dict[str, float]] = {}  # that the primitive and its slopes take

    def forward(self, A: Array, B: Array) -> Array:
        self.operands = operand_of(A), operand_of(B)
        Y = self.run(self.primitive, A, B)
        self.save(A, B, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        slopes = zip(self.slopes(dY, *self.saved), self.operands, self.needs_input_grad, strict=True)
        return tuple(sum_to(slope(), operand) if needed else None for slope, operand, needed in slopes)

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        """Functions that compute the gradient of A and that of B, both of the shape of dY."""
        raise NotImplementedError

    def run(self, primitive: Primitive, *operands: Array) -> Array:
        """A primitive of operands that are broadcast."""
        result: Array = primitive(*broadcast_operands(self.operator, *operands), **self.numbers)
        return result


def floating_pair(operator: str, x: Tensor, other: Any) -> list[Tensor]:
    """x and what stands beside it, a tensor, an array or a number, as floating tensors of one dtype."""
    if isinstance(other, NUMBERS) or (is_floating(x.dtype) and isinstance(other, (np.ndarray, list))):
        x = as_floating(x)
        other = like(x, other)
    pair = x, beside(operator, x, other)
    if not any(is_floating(operand.dtype) for operand in pair):
        return [as_floating(operand) for operand in pair]  # not of their common dtype, in which -1 may be 255
    return promoted(*pair)
