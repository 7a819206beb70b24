"""Powers; an exponent is a number or a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, device_of, shares_memory
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.ops.kernel import elementwise as ew
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import result_type
from alpha.ops.kernel.common_dtype import common_dtype
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.in_place import in_place, kept, place
from alpha.ops.kernel.operands import NUMBERS, OPERANDS, beside, like, operand_of, room_in, sum_to, without_axes
from alpha.ops.math.integers import combined, integral
from alpha.ops.math.unary import square_root
from alpha.ops.math.written_results import written


def _power_cpu(y: Array, a: Array, p: float) -> None:
    np.power(a, a.dtype.type(p), out=y)


def _cube_cpu(y: Array, a: Array) -> None:
    np.multiply(a * a, a, out=y)


def _base_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where(c == 0, 0, a * (c * np.power(b, c - 1)))


def _exponent_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where((b == 0) & (c >= 0), 0, a * (np.power(b, c) * np.log(b)))


power = elementwise("power", "pow(a, p)", _power_cpu, 1)
square = elementwise("square", "a * a", lambda y, a: np.multiply(a, a, out=y), 1)
cube = elementwise("cube", "a * a * a", _cube_cpu, 1)
inverse_square = elementwise("inverse_square", "1 / (a * a)", lambda y, a: np.divide(1, a * a, out=y), 1)
inverse_root = elementwise("inverse_root", "1 / sqrt(a)", lambda y, a: np.divide(1, np.sqrt(a), out=y), 1)
tensor_power = elementwise("tensor_power", "pow(a, b)", lambda y, a, b: np.power(a, b, out=y), 2)
# a is dY, b the base, c the exponent
base_slope = elementwise("base_slope", "c == 0 ? 0 : a * (c * pow(b, c - 1))", _base_slope_cpu, 3)
exponent_slope = elementwise(
    "exponent_slope", "b == 0 && c >= 0 ? 0 : a * (pow(b, c) * log(b))", _exponent_slope_cpu, 3
)

# As in PyTorch, these are not left to pow, which is slower and gives infinity for the root of -infinity.
_SPECIAL = {2.0: square, 3.0: cube, 0.5: square_root, -0.5: inverse_root, -2.0: inverse_square}


def _power(X: Array, exponent: float, out: Array | None = None) -> Array:
    """X to the power of a number; X itself if that is 1"""
    if exponent == 1:
        return X
    if exponent == -1:
        return ew.divide_number(X, p=1.0, out=out)
    return _SPECIAL[exponent](X, out=out) if exponent in _SPECIAL else power(X, p=exponent, out=out)


class Power(Function):
    """Y = X^e, the exponent fixed   X (...) -> Y (...)"""

    def forward(self, X: Array, *, exponent: float) -> Array:
        self.exponent = exponent
        self.save(kept(self, X))
        return ew.affine(X, p=1.0) if exponent == 1 and not self.inplace else _power(X, exponent, place(self, X))

    def backward(self, dY: Array) -> Any:
        (X,) = self.saved
        if self.exponent == 0:
            return device_of(X).zeros(X.shape, X.dtype)
        slope = _power(X, self.exponent - 1.0)
        slope = ew.affine(slope, p=self.exponent, out=None if slope is X else slope)
        return ew.multiply(slope, dY, out=slope)


class TensorPower(Function):
    """Y = X^E with broadcasting   X (...), E (...) -> the broadcast shape

    At X = 0 the gradient of E is 0 if E >= 0, and at E = 0 the gradient of X is 0, as in PyTorch.
    """

    def forward(self, base: Array, exponent: Array) -> Array:
        dtype = result_type("pow", (base, exponent))
        self.operands = operand_of(base), operand_of(exponent)
        if self.inplace and shares_memory(base, (exponent,)):
            exponent = device_of(exponent).copy(exponent)  # which is read while base is written
        left, right = broadcast_operands("pow", base, exponent)
        if self.inplace and left is not base:
            raise ShapeError(f"pow_: {tuple(exponent.shape)} does not fit into {tuple(base.shape)}")
        self.save(kept(self, base), exponent)
        return tensor_power(left, right, out=base if self.inplace else room_in(dtype, left))

    def backward(self, dY: Array) -> Any:
        return tuple(
            sum_to(slope(*broadcast_operands("pow", dY, *self.saved)), operand) if needed else None
            for slope, operand, needed in zip(
                (base_slope, exponent_slope), self.operands, self.needs_input_grad, strict=True
            )
        )


PowerInPlace = in_place(Power, "pow_")
TensorPowerInPlace = in_place(TensorPower, "pow_")


def pow(x: Tensor, exponent: Any) -> Tensor:
    """x to the power of a number or a tensor; integers give integers, which wrap around

    x (...), exponent (...) or a number -> the broadcast shape

    Raises:
        ValueError: x is of integers, and the exponent is an integer below 0.
    """
    if not is_floating(x.dtype):
        if integral(x, exponent):
            return _integer_power(x, exponent)
        x = x.astype(common_dtype(x, beside("pow", x, exponent)))
    if isinstance(exponent, NUMBERS):
        return Power.apply(x, exponent=float(exponent))
    return TensorPower.apply(*without_axes(x, _exponent("pow", x, exponent)))


def pow_(x: Tensor, exponent: Any) -> Tensor:
    """`pow` written into x, whose shape must be the broadcast one; a copy of x is kept if a gradient is needed."""
    if not is_floating(x.dtype):
        return written("pow_", x, pow(x, exponent))
    if isinstance(exponent, NUMBERS):
        return PowerInPlace.apply(x, exponent=float(exponent))
    met, by = without_axes(x, _exponent("pow_", x, exponent))
    return TensorPowerInPlace.apply(x, by) if met is x else written("pow_", x, pow(x, exponent))


def _exponent(operator: str, x: Tensor, exponent: Any) -> Tensor:
    if not isinstance(exponent, OPERANDS):
        raise TypeError(f"{operator}: {type_name(exponent)} is no exponent; a number or a Tensor is needed")
    given = like(x, exponent)
    return given if is_floating(given.dtype) else given.astype(x.dtype)


def _integer_power(x: Tensor, exponent: Any) -> Tensor:
    if isinstance(exponent, NUMBERS) and exponent < 0:
        raise ValueError(f"pow: {x.dtype.name} to the power of {exponent} is no integer; use x.float()")
    return combined("pow", "**", x, beside("pow", x, exponent))


def reversed_pow(x: Tensor, base: Any) -> Tensor:
    """base to the power of x, the base a number, a list or a numpy array"""
    if not is_floating(x.dtype):
        given = beside("pow", x, base)
        if integral(x, given):
            return combined("pow", "**", given, x)
        x = x.astype(given.dtype)
    return TensorPower.apply(like(x, base), x)
