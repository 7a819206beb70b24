"""Arithmetic of tensors: add, subtract, multiply, divide, powers; with numbers, with broadcasting, in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from alpha.autograd import Function, _share_memory
from alpha.errors import ShapeError
from alpha.numerics import is_floating
from alpha.ops import elementwise as ew
from alpha.ops.dtypes import DType, as_dtype, met_dtype
from alpha.ops.reduce import sum_axes
from alpha.primitive import Array, Primitive
from alpha.tensor import Tensor, tensor

Operand = tuple[tuple[int, ...], DType]  # the shape and dtype that its gradient has


def _operand(x: Array) -> Operand:
    return tuple(x.shape), x.dtype


def sum_to(dY: Array, operand: Operand) -> Array:
    """Sum a broadcast gradient back to the operand's shape, in its dtype."""
    shape, dtype = operand
    if tuple(dY.shape) == shape:
        return as_dtype(dY, dtype)
    lead = dY.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1 and dY.shape[lead + i] != 1)
    return as_dtype(sum_axes(dY, axes) if axes else dY, dtype).reshape(shape)


def _operands(name: str, a: Array, b: Array) -> tuple[Array, Array]:
    """Both operands so that the first has the output's shape and the second repeats along it."""
    if a.shape == b.shape:
        return a, b
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ShapeError(f"{name}: shapes {tuple(a.shape)} and {tuple(b.shape)} do not broadcast") from None
    return _repeatable(a, shape, True), _repeatable(b, shape, False)


def _repeatable(x: Array, shape: tuple[int, ...], whole: bool) -> Array:
    if tuple(x.shape) == shape:
        return x
    core = tuple(x.shape)
    while core and core[0] == 1:
        core = core[1:]
    if not whole and (core == shape[len(shape) - len(core) :] and math.prod(core) > 0):
        return x
    return ew.broadcast_to(x, shape)


class _Binary(Function):
    """Common part of the two-operand operators: broadcasting and the way back."""

    primitive: ClassVar[Primitive]

    def forward(self, *arrays: Array, **options: Any) -> Array:
        a, b = arrays
        met_dtype(self.name.lower(), arrays)
        self.operands = _operand(a), _operand(b)
        self.keep(a, b)
        if self.in_place and b is not a and _share_memory(a, b):
            b = Tensor(b).device.copy(b)  # a part of a, which is written while b is read
        left, right = _operands(self.name.lower(), a, b)
        out = a if self.in_place else None
        if out is not None and left is not a:
            raise ShapeError(f"{self.name.lower()}: {tuple(b.shape)} does not fit into {a.shape}")
        return self.primitive(left, right, out=out)

    def keep(self, a: Array, b: Array) -> None:
        pass


class Add(_Binary):
    primitive = ew.add

    def backward(self, dY: Array) -> Any:
        return tuple(
            sum_to(dY, operand) if needed else None for operand, needed in zip(self.operands, self.needs, strict=True)
        )


class AddInPlace(Add):
    in_place = True


class Subtract(_Binary):
    primitive = ew.subtract

    def backward(self, dY: Array) -> Any:
        return (
            sum_to(dY, self.operands[0]) if self.needs[0] else None,
            ew.affine(sum_to(dY, self.operands[1]), p=-1.0) if self.needs[1] else None,
        )


class Multiply(_Binary):
    primitive = ew.multiply

    def keep(self, a: Array, b: Array) -> None:
        self.save(a, b)

    def backward(self, dY: Array) -> Any:
        a, b = self.saved
        return (
            sum_to(ew.multiply(*_operands("multiply", dY, b)), self.operands[0]) if self.needs[0] else None,
            sum_to(ew.multiply(*_operands("multiply", dY, a)), self.operands[1]) if self.needs[1] else None,
        )


class MultiplyInPlace(Multiply):
    """X *= b with b a constant of the graph: dX = dY b needs no X."""

    in_place = True

    def keep(self, a: Array, b: Array) -> None:
        if self.needs[1]:
            raise TypeError("mul_: the factor requires a gradient, which needs X; use x * b")
        self.save(b)

    def backward(self, dY: Array) -> Any:
        (b,) = self.saved
        return as_dtype(ew.multiply(*_operands("multiply", dY, b)), dY.dtype), None


class Divide(_Binary):
    primitive = ew.divide

    def keep(self, a: Array, b: Array) -> None:
        self.save(a, b)

    def backward(self, dY: Array) -> Any:
        a, b = self.saved
        da = ew.divide(*_operands("divide", dY, b))
        db = None
        if self.needs[1]:  # d(a/b)/db = -a/b^2
            quotient = ew.divide(*_operands("divide", da, b))
            db = sum_to(ew.affine(ew.multiply(*_operands("divide", quotient, a)), p=-1.0), self.operands[1])
        return sum_to(da, self.operands[0]) if self.needs[0] else None, db


class Affine(Function):
    """Y = alpha X + beta, the numbers fixed   X (...) -> Y (...)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        self.alpha = options["alpha"]
        X = arrays[0]
        return ew.affine(X, p=self.alpha, q=options["beta"], out=X if self.in_place else None)

    def backward(self, dY: Array) -> Any:
        return ew.affine(dY, p=self.alpha)


class AffineInPlace(Affine):
    in_place = True


class Power(Function):
    """Y = X^e, the exponent fixed   X (...) -> Y (...)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        self.exponent = options["exponent"]
        self.save(arrays[0])
        return ew.power(arrays[0], p=self.exponent)

    def backward(self, dY: Array) -> Any:
        (X,) = self.saved
        slope = ew.power(X, p=self.exponent - 1.0)
        return ew.multiply(ew.affine(slope, p=self.exponent, out=slope), dY, out=slope)


class Exponential(Function):
    """Y = exp(X)   X (...) -> Y (...)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        Y = ew.exponential(arrays[0])
        self.save(Y)
        return Y

    def backward(self, dY: Array) -> Any:
        return ew.multiply(dY, self.saved[0])


class Logarithm(Function):
    """Y = log(X)   X (...) -> Y (...)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        self.save(arrays[0])
        return ew.logarithm(arrays[0])

    def backward(self, dY: Array) -> Any:
        return ew.divide(dY, self.saved[0])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _like(x: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return tensor(np.asarray(value, x.dtype), device=x.device)


def _floating(name: str, x: Tensor) -> None:
    if not is_floating(x.dtype):
        raise TypeError(f"{name}: the tensor has dtype {x.dtype.name}; use .astype('float32')")


def install(cls: type[Tensor]) -> None:
    """The arithmetic operators of Tensor, in one place."""

    def operator(
        name: str, numeric: Callable[[Tensor, float], Tensor], function: type[Function], swap: bool = False
    ) -> None:
        def method(self: Tensor, other: Any) -> Any:
            _floating(name, self)
            if _is_number(other):
                return numeric(self, float(other))
            if not isinstance(other, (Tensor, np.ndarray, list)):
                return NotImplemented
            other = _like(self, other)
            return function.apply(other, self) if swap else function.apply(self, other)

        method.__name__ = name
        setattr(cls, name, method)

    def scaled(alpha: Callable[[float], float], beta: Callable[[float], float]) -> Any:
        return lambda x, n: Affine.apply(x, alpha=alpha(n), beta=beta(n))

    def in_place(alpha: Callable[[float], float], beta: Callable[[float], float]) -> Any:
        return lambda x, n: AffineInPlace.apply(x, alpha=alpha(n), beta=beta(n))

    one, zero, same = (lambda n: 1.0), (lambda n: 0.0), (lambda n: n)
    operator("__add__", scaled(one, same), Add)
    operator("__radd__", scaled(one, same), Add)
    operator("__sub__", scaled(one, lambda n: -n), Subtract)
    operator("__rsub__", scaled(lambda n: -1.0, same), Subtract, swap=True)
    operator("__mul__", scaled(same, zero), Multiply)
    operator("__rmul__", scaled(same, zero), Multiply)
    operator("__truediv__", scaled(lambda n: 1.0 / n, zero), Divide)
    operator("__rtruediv__", lambda x, n: Power.apply(x, exponent=-1.0) * n, Divide, swap=True)
    operator("add_", in_place(one, same), AddInPlace)
    operator("__iadd__", in_place(one, same), AddInPlace)
    operator("mul_", in_place(same, zero), MultiplyInPlace)
    operator("__imul__", in_place(same, zero), MultiplyInPlace)

    def negate(self: Tensor) -> Tensor:
        return Affine.apply(self, alpha=-1.0, beta=0.0)

    def to_power(self: Tensor, exponent: float) -> Tensor:
        _floating("__pow__", self)
        return Power.apply(self, exponent=float(exponent))

    for name, method in {
        "__neg__": negate,
        "__pow__": to_power,
        "exp": lambda self: Exponential.apply(self),
        "log": lambda self: Logarithm.apply(self),
        "sqrt": lambda self: Power.apply(self, exponent=0.5),
    }.items():
        setattr(cls, name, method)


def add(a: Tensor, b: Tensor | float) -> Tensor:
    """a + b with broadcasting   a (...), b (...) -> the broadcast shape"""
    return a + b


def mul(a: Tensor, b: Tensor | float) -> Tensor:
    """a b elementwise with broadcasting   a (...), b (...) -> the broadcast shape"""
    return a * b


install(Tensor)
