"""Functions of two floating operands with broadcasting, whose gradients read the operands and the result."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor, full, tensor
from alpha.ops.kernel.broadcast import broadcast_operands
from alpha.ops.kernel.operands import NUMBERS, like, no_operand, operand_of, sum_to
from alpha.ops.kernel.promotion import as_floating, common_dtype, promoted


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
        slopes = zip(self.slopes(dY, *self.saved), self.operands, self.needs, strict=True)
        return tuple(sum_to(slope(), operand) if needed else None for slope, operand, needed in slopes)

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        """What computes the gradient of A, and what computes that of B, both of the shape of dY."""
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


def beside(operator: str, x: Tensor, other: Any) -> Tensor:
    """The other operand as a tensor; a number has the dtype in which it meets x."""
    if isinstance(other, Tensor):
        return other
    if isinstance(other, (np.ndarray, list)):
        return tensor(other, device=x.device)
    if not isinstance(other, NUMBERS):
        raise no_operand(operator, other)
    dtype = common_dtype(x, other)
    value = other if is_floating(dtype) else np.int64(other).astype(dtype)  # -1 is 255 as uint8
    return full((), value, dtype, x.device)
