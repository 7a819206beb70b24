"""Elements chosen from two tensors: by a mask, or the larger or the smaller ones; and finite numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor, full
from alpha.errors import type_name
from alpha.ops.indexing.gather_scatter import nonzero
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcast import broadcast_operands
from alpha.ops.kernel.elementwise import elementwise, subtract
from alpha.ops.kernel.operands import NUMBERS, OPERANDS, like, operand_of, sum_to
from alpha.ops.kernel.promotion import BOOL, common_dtype, promoted
from alpha.ops.math.compare import compare

__all__ = ["masked_fill", "maximum", "minimum", "nan_to_num", "where"]

select = elementwise("select", "a ? b : c", lambda y, a, b, c: np.copyto(y, np.where(a, b, c)), 3, mask=True)
larger = elementwise("larger", "a != a || a > b ? a : b", lambda y, a, b: np.maximum(a, b, out=y), 2)
smaller = elementwise("smaller", "a != a || a < b ? a : b", lambda y, a, b: np.minimum(a, b, out=y), 2)


def _larger_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where(b == c, a / 2, np.where(b < c, 0, a))


def _smaller_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    dx[...] = np.where(b == c, a / 2, np.where(b > c, 0, a))


# a is dY, b the operand, c the other one; equal ones share the gradient
larger_slope = elementwise("larger_slope", "b == c ? a / 2 : b < c ? 0 : a", _larger_slope_cpu, 3)
smaller_slope = elementwise("smaller_slope", "b == c ? a / 2 : b > c ? 0 : a", _smaller_slope_cpu, 3)


LARGEST = {BFLOAT16: (2 - 2.0**-7) * 2.0**127, **{t: float(np.finfo(t).max) for t in (FLOAT32, np.dtype(np.float64))}}


def _finite_cpu(y: Array, a: Array, p: float, q: float, r: float) -> None:
    number = a.dtype.type
    np.copyto(y, np.where(np.isfinite(a), a, np.where(a > 0, number(q), np.where(a < 0, number(r), number(p)))))


# a - a is NaN unless a is finite
made_finite = elementwise("made_finite", "a - a == 0 ? a : a > 0 ? q : a < 0 ? r : p", _finite_cpu, 1)


class Where(Function):
    """Y = M ? A : B with broadcasting   M (...) of bools, A (...), B (...) -> the broadcast shape"""

    def forward(self, M: Array, A: Array, B: Array) -> Array:
        self.M, self.operands = M, (operand_of(A), operand_of(B))
        return select(*broadcast_operands("where", M, A, B), out=None)

    def backward(self, dY: Array) -> Any:
        return (None, *self.parts(dY, self.needs[1:]))

    def parts(self, dY: Array, needs: Sequence[bool]) -> Any:
        """The gradients of A and B: no product, so that what was not chosen is 0 also if dY is not finite."""
        zero = Tensor(dY).device.zeros((1,), dY.dtype)
        for chosen, operand, needed in zip(((dY, zero), (zero, dY)), self.operands, needs, strict=True):
            yield sum_to(select(*broadcast_operands("where", self.M, *chosen)), operand) if needed else None


class FillWhere(Where):
    """X becomes V where M is true   X (...), V (...) that repeats along X -> X"""

    inplace, written_as = True, "masked_fill_"

    def forward(self, X: Array, V: Array, *, M: Array) -> Array:  # type: ignore[override]
        self.M, self.operands = M, (operand_of(V), operand_of(X))
        return select(*broadcast_operands("where", M, V, X), out=X)

    def backward(self, dY: Array) -> Any:
        dV, dX = self.parts(dY, self.needs[::-1])
        return dX, dV


class _Choice(Function):
    """The larger or the smaller of two operands."""

    operator: ClassVar[str]
    primitive: ClassVar[Primitive]
    slope: ClassVar[Primitive]

    def forward(self, A: Array, B: Array) -> Array:
        self.operands = operand_of(A), operand_of(B)
        self.save(A, B)
        return self.primitive(*broadcast_operands(self.operator, A, B))

    def backward(self, dY: Array) -> Any:
        A, B = self.saved
        return tuple(
            sum_to(self.slope(*broadcast_operands(self.operator, dY, *pair)), operand) if needed else None
            for pair, operand, needed in zip(((A, B), (B, A)), self.operands, self.needs, strict=True)
        )


class Maximum(_Choice):
    """Y = max(A, B) with broadcasting   A (...), B (...) -> the broadcast shape"""

    operator, primitive, slope = "maximum", larger, larger_slope


class Minimum(_Choice):
    """Y = min(A, B) with broadcasting   A (...), B (...) -> the broadcast shape"""

    operator, primitive, slope = "minimum", smaller, smaller_slope


class NanToNum(Function):
    """Y = X with numbers in place of NaN and of infinities   X (...) -> Y (...)"""

    def forward(self, X: Array, *, p: float, q: float, r: float) -> Array:
        self.save(X)
        return made_finite(X, p=p, q=q, r=r)

    def backward(self, dY: Array) -> Any:
        (X,) = self.saved
        zero = Tensor(dY).device.zeros((), X.dtype)
        finite = compare(subtract(X, X), zero, "==")
        return select(finite, dY, zero, out=None)


@check_arguments
def where(condition: AnyTensor, x: Any = None, other: Any = None) -> Any:
    """x where the condition is true, else other, with broadcasting; x and other are tensors or numbers.

    condition (...) of bools, x (...), other (...) -> the broadcast shape
    Without x and other it is `nonzero(condition, as_tuple=True)`.
    """
    if x is None and other is None:
        return nonzero(condition, as_tuple=True)
    if condition.dtype != BOOL:
        raise TypeError(f"where: the condition has dtype {condition.dtype.name}; bools are needed, as of x > 0")
    return Where.apply(condition, *_pair("where", condition, x, other))


def _pair(operator: str, near: Tensor, x: Any, other: Any) -> list[Tensor]:
    """Two tensors or numbers as tensors of one dtype, on the device of `near`."""
    for value in (x, other):
        if not isinstance(value, OPERANDS):
            raise TypeError(f"{operator}: a {type_name(value)} is no operand; a Tensor or a number is needed")
    dtype = common_dtype(*[v if isinstance(v, (Tensor, *NUMBERS)) else like(near, v) for v in (x, other)])
    return [
        v.astype(dtype)
        if isinstance(v, Tensor)
        else full((), v, dtype, near.device)
        if isinstance(v, NUMBERS)
        else like(near, v).astype(dtype)
        for v in (x, other)
    ]


@check_arguments
def masked_fill(x: AnyTensor, mask: AnyTensor, value: Any) -> Tensor:
    """x with a number in the places where the mask is true   x (...), mask (...) of bools -> the broadcast shape"""
    if mask.dtype != BOOL:
        raise TypeError(f"masked_fill: the mask has dtype {mask.dtype.name}; bools are needed, as of x > 0")
    if not isinstance(value, (Tensor, *NUMBERS)) or (isinstance(value, Tensor) and value.ndim):
        raise TypeError("masked_fill: value is not a number or a 0-d Tensor")
    return Where.apply(mask, like(x, value).astype(x.dtype), x)


@check_arguments
def maximum(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The larger of two elements with broadcasting; NaN if one is NaN, and equal ones share the gradient.

    x (...), other (...) -> the broadcast shape
    """
    return Maximum.apply(*promoted(x, other))


@check_arguments
def minimum(x: AnyTensor, other: AnyTensor) -> Tensor:
    """The smaller of two elements with broadcasting; NaN if one is NaN, and equal ones share the gradient.

    x (...), other (...) -> the broadcast shape
    """
    return Minimum.apply(*promoted(x, other))


@check_arguments
def nan_to_num(
    x: AnyTensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with numbers in place of NaN and of infinities, whose gradient is 0   x (...) -> (...)

    Args:
        nan: None is 0.
        posinf, neginf: by default the largest and the least number of the dtype.
    """
    if not is_floating(x.dtype):
        return x.clone()
    most = LARGEST[x.dtype]
    numbers = {"nan": (nan, 0.0), "posinf": (posinf, most), "neginf": (neginf, -most)}
    for name, (number, _) in numbers.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, NUMBERS)):
            raise TypeError(f"nan_to_num: {name}={number!r} is not a number")
    p, q, r = (usual if number is None else float(number) for number, usual in numbers.values())
    return NanToNum.apply(x, p=p, q=q, r=r)
