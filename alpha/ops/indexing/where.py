"""Elements chosen from two tensors by a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.versions import array_of
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError, type_name
from alpha.ops.array.axes import expand
from alpha.ops.array.fill import check_fits, number_for
from alpha.ops.indexing.gather_scatter import nonzero
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.common_dtype import BOOL, common_dtype
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.operands import NUMBERS, OPERANDS, like, operand_of, sum_to

__all__ = ["masked_fill", "where"]

select = elementwise("select", "a ? b : c", lambda y, a, b, c: np.copyto(y, np.where(a, b, c)), 3, mask=True)


class Where(Function):
    """Y = M ? A : B with broadcasting   M (...) of bools, A (...), B (...) -> the broadcast shape"""

    def forward(self, M: Array, A: Array, B: Array) -> Array:
        self.M, self.operands = M, (operand_of(A), operand_of(B))
        return select(*broadcast_operands("where", M, A, B), out=None)

    def backward(self, dY: Array) -> Any:
        return (None, *self.parts(dY, self.needs_input_grad[1:]))

    def parts(self, dY: Array, needs: Sequence[bool]) -> Any:
        """The gradients of A and B: no product, so that what was not chosen is 0 also if dY is not finite."""
        zero = device_of(dY).zeros((1,), dY.dtype)
        for chosen, operand, needed in zip(((dY, zero), (zero, dY)), self.operands, needs, strict=True):
            yield sum_to(select(*broadcast_operands("where", self.M, *chosen)), operand) if needed else None


class FillWhere(Where):
    """X becomes V where M is true   X (...), V (...) that repeats along X -> X"""

    inplace, written_as = True, "masked_fill_"

    def forward(self, X: Array, V: Array, *, M: Array) -> Array:  # type: ignore[override]
        self.M, self.operands = M, (operand_of(V), operand_of(X))
        return select(*broadcast_operands("where", M, V, X), out=X)

    def backward(self, dY: Array) -> Any:
        dV, dX = self.parts(dY, self.needs_input_grad[::-1])
        return dX, dV


def with_mask(operator: str, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """x and a mask of bools in their common shape."""
    if mask.dtype != BOOL:
        raise TypeError(f"{operator}: the mask has dtype {mask.dtype.name}; bools are needed, as of x > 0")
    try:
        shape = np.broadcast_shapes(x.shape, mask.shape)
    except ValueError:
        raise ShapeError(f"{operator}: the shapes do not broadcast  (x {x.shape}, mask {mask.shape})") from None
    first, second = (v if v.shape == shape else unchecked(expand)(v, shape) for v in (x, mask))
    return first, second


@check_arguments
def where(condition: AnyTensor, x: Any = None, other: Any = None) -> Any:
    """x where the condition is true, else other, with broadcasting; x and other are tensors or numbers.

    condition (...) of bools, x (...), other (...) -> the broadcast shape
    Without x and other it is `nonzero(condition, as_tuple=True)`.

    Examples:
        >>> import alpha
        >>> x = alpha.tensor([-1.0, 2.0])
        >>> alpha.where(x > 0, x, 0.0).tolist()
        [0.0, 2.0]
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
def masked_fill_(x: AnyTensor, mask: AnyTensor, value: Any) -> Tensor:
    """`masked_fill` written into x   x (...), mask (...) of bools that broadcasts to x -> x"""
    if mask.dtype != BOOL:
        raise TypeError(f"masked_fill_: the mask has dtype {mask.dtype.name}; bools are needed, as of x > 0")
    check_fits("masked_fill_: mask", mask, x)
    return FillWhere.apply(x, number_for("masked_fill_", x, value), M=array_of(mask))
