"""Elementwise losses: of the three expressions of a loss this makes operators, reductions and gradients.

    mse = PointwiseLoss(
        "mse_loss",
        loss=("(a - b) * (a - b)", lambda a, b: (a - b) ** 2),
        slope=("2 * (a - b)", lambda a, b: 2 * (a - b)),
        target_slope=("2 * (b - a)", lambda a, b: 2 * (b - a)))

In an expression `a` is an element of x, `b` of the target, `c` of a third operand if there is one, and `p` and `q` are
numbers of the loss. The function in numpy takes those that the expression names, in this order. A loss is computed in
float32 if its operands are bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.versions import array_of
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array, Primitive, device_of
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import expand
from alpha.ops.kernel.arguments import unchecked
from alpha.ops.kernel.broadcasting import broadcast_operands
from alpha.ops.kernel.casts import as_dtype, result_type
from alpha.ops.kernel.elementwise import divide, divide_by_number, elementwise, multiply
from alpha.ops.kernel.function_layer import Check, FunctionLayer
from alpha.ops.kernel.operands import without_axes
from alpha.ops.kernel.options import only_offered
from alpha.ops.kernel.sums import sum_axis1

Rule = tuple[str, Callable[..., Any]]  # (CUDA expression, numpy function)
REDUCTIONS = ("mean", "sum", "none")


class PointwiseLoss:
    """An elementwise loss of x and a target: call it on two tensors of one shape, or of two if it `broadcasts`.

    Args:
        name: of the user's function, for errors.
        loss: the loss of an element.
        slope, target_slope: its derivatives by a and by b; None where there is none.
        third: the expressions name c, which has the shape of x or repeats along it.
        primitive: the name of the primitives, by default `name`.
        broadcasts: x and the target repeat along each other, as those of PyTorch's loss.
    """

    def __init__(
        self,
        name: str,
        loss: Rule,
        slope: Rule,
        target_slope: Rule | None = None,
        *,
        third: bool = False,
        primitive: str = "",
        broadcasts: bool = False,
    ) -> None:
        self.name, self.third, self.broadcasts, primitive = name, third, broadcasts, primitive or name
        self.forward = elementwise(f"{primitive}_forward", loss[0], _filled(loss[1]), 3 if third else 2)
        self._step: type[Function] = type(name, (_Step,), {"loss": self})
        self.slopes = (self._slope(f"{primitive}_slope", slope), self._slope(f"{primitive}_target_slope", target_slope))

    def _slope(self, name: str, rule: Rule | None) -> Primitive | None:
        """Product of r and the slope, and of dY, which is c, if there is no third operand."""
        if rule is None:
            return None
        if self.third:
            return elementwise(name, f"r * ({rule[0]})", _scaled(rule[1]), 3)
        return elementwise(name, f"c * (r * ({rule[0]}))", _scaled_by_third(rule[1]), 3)

    def __call__(
        self,
        x: Tensor,
        target: Tensor,
        reduction: str,
        *,
        p: float = 0.0,
        q: float = 0.0,
        third: Tensor | None = None,
        weight: Tensor | None = None,
        weighted_mean: bool = False,
    ) -> Tensor:
        """The loss   x, target (...) -> (), or (...) if the reduction is "none"

        Args:
            reduction: "mean", "sum", "none", or "batchmean", the sum divided by the length of the first axis of x.
            p, q: the numbers of the loss.
            third: the third operand.
            weight: multiplies the loss of each element; it has the shape of x or repeats along it.
            weighted_mean: a mean is divided by the sum of the weights, not by the number of elements.

        Raises:
            ShapeError: x and target have two shapes, or, if the loss broadcasts, two that do not fit; or weight or the
                third operand does not repeat along x.
        """
        shape = x.shape
        if shape != target.shape:
            if not self.broadcasts:
                raise ShapeError(f"{self.name}: x and target need one shape  (x {x.shape}, target {target.shape})")
            shape = common_shape(self.name, x=x, target=target)
        for name, other in (("weight", weight), ("pos_weight", third)):
            if other is not None and not _repeats(other.shape, x.shape):
                raise ShapeError(f"{self.name}: {name} {other.shape} does not repeat along x {x.shape}")
            if other is not None and other._requires_grad:
                raise ValueError(f"{self.name}: {name} requires a gradient, which is not offered; .detach() it")
        count = math.prod(x.shape[:1] if reduction == "batchmean" else shape)
        x, target = without_axes(x, target)
        return self._step.apply(
            repeated(x, shape),
            repeated(target, shape),
            third=None if third is None else array_of(third),
            weight=None if weight is None else array_of(weight),
            weighted_mean=weighted_mean,
            numbers={"p": p, "q": q},
            reduction=reduction,
            count=count,
        )


class _Step(Function):
    """Y = mean, sum or each of weight f(X, T)   X, T (...) -> () or (...)"""

    loss: PointwiseLoss

    def forward(
        self,
        X: Array,
        T: Array,
        *,
        third: Array | None,
        weight: Array | None,
        weighted_mean: bool,
        numbers: dict[str, float],
        reduction: str,
        count: int,
    ) -> Array:
        self.numbers = numbers
        met = result_type(self.loss.name, (X, T))
        dtype = FLOAT32 if met == BFLOAT16 else met
        self.save(X, T)
        self.third = None if third is None else self._fitting(as_dtype(third, dtype), X)
        self.weight = None if weight is None else self._fitting(as_dtype(weight, dtype), X)
        operands = (X, T) if self.third is None else (X, T, self.third)
        Y = self.loss.forward(*operands, **numbers, out=_empty(X, dtype))
        if self.weight is not None:
            Y = multiply(Y, self.weight, out=Y)
        self.scale, self.total = 1.0, None
        if reduction == "none":
            return Y
        total = _sum(Y)
        if reduction == "sum":
            return total
        if weighted_mean and weight is not None:
            self.total = _sum(as_dtype(weight, dtype))
            return divide(total, self.total)
        self.scale = 1 / count if count else math.nan
        return divide_by_number(total, p=count)

    def _fitting(self, operand: Array, X: Array) -> Array:
        return broadcast_operands(self.loss.name, X, operand)[1]

    def backward(self, dY: Array) -> Any:
        X, T = self.saved
        if self.total is not None:
            dY = divide(dY, self.total)
        if self.weight is not None:
            dY = multiply(dY, self.weight) if dY.shape else multiply(self.weight, dY)
        return tuple(
            self._gradient(slope, dY, X, T, like) if wanted and slope is not None else None
            for slope, like, wanted in zip(self.loss.slopes, (X, T), self.needs_input_grad, strict=True)
        )

    def _gradient(self, slope: Primitive, dY: Array, X: Array, T: Array, like: Array) -> Array:
        if self.third is None:
            return slope(X, T, dY, **self.numbers, r=self.scale, out=_empty(like, like.dtype))
        G = slope(X, T, self.third, **self.numbers, r=self.scale, out=_empty(like, dY.dtype))
        return as_dtype(multiply(G, dY, out=G), like.dtype)


def _filled(function: Callable[..., Any]) -> Callable[..., None]:
    return lambda y, *operands: np.copyto(y, function(*operands))


def _scaled(function: Callable[..., Any]) -> Callable[..., None]:
    def fill(y: Array, *operands: Any) -> None:
        *others, r = operands
        np.copyto(y, y.dtype.type(r) * function(*others))

    return fill


def _scaled_by_third(function: Callable[..., Any]) -> Callable[..., None]:
    def fill(y: Array, a: Array, b: Array, c: Array, *numbers: float) -> None:
        *others, r = numbers
        np.copyto(y, c * (y.dtype.type(r) * function(a, b, *others)))

    return fill


def _repeats(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """True if an array of this shape broadcasts to the whole one."""
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in zip(shape[::-1], whole[::-1], strict=False))


def _empty(like: Array, dtype: np.dtype[Any]) -> Array:
    return device_of(like).empty(like.shape, dtype)


def _sum(X: Array) -> Array:
    return sum_axis1(X.reshape(1, X.size, 1)).reshape(())


def common_shape(operator: str, **tensors: Tensor) -> tuple[int, ...]:
    """The shape in which tensors meet; `ShapeError` names them all if there is none."""
    try:
        return np.broadcast_shapes(*(tensor.shape for tensor in tensors.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {tensor.shape}" for name, tensor in tensors.items())
        raise ShapeError(f"{operator}: the shapes do not broadcast  ({shapes})") from None


def check_axes(operator: str, **tensors: Tensor) -> None:
    """`ShapeError` unless all tensors have as many axes, and broadcast."""
    if len({tensor.ndim for tensor in tensors.values()}) > 1:
        shapes = ", ".join(f"{name} {tensor.shape}" for name, tensor in tensors.items())
        raise ShapeError(f"{operator}: all need as many axes  ({shapes})")
    common_shape(operator, **tensors)


def repeated(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """x in a shape in which it meets others; itself if it has that."""
    return x if x.shape == shape else unchecked(expand)(x, shape)


def check_reduction(
    operator: str, size_average: None, reduce: None, reduction: str, reductions: tuple[str, ...] = REDUCTIONS
) -> None:
    """Refuse arguments of a loss that mean nothing or are not offered (`ValueError`)."""
    only_offered(operator, size_average=(size_average, None), reduce=(reduce, None))
    one_of(*reductions)(operator, "reduction", reduction)


def one_of(*names: str) -> Check:
    """Returns a check that refuses all but these names (`ValueError`)."""

    def check(operator: str, argument: str, value: str) -> str:
        if value not in names:
            raise ValueError(f"{operator}: {argument}={value!r} is not {', '.join(names[:-1])} or {names[-1]}")
        return value

    return check


def as_bool(layer: str, name: str, value: Any) -> bool:
    return bool(value)


def widened(x: Tensor) -> Tensor:
    """x, in float32 if it is bfloat16, for a loss that is made of single operators"""
    return x.astype(FLOAT32) if x.dtype == BFLOAT16 else x


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of a loss, or the loss itself   (...) -> () or (...)"""
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


class LossLayer(FunctionLayer):
    """Base of layers of losses."""

    _checks: ClassVar[Mapping[str, Check]] = {"reduction": one_of(*REDUCTIONS)}

    def extra_repr(self) -> str:
        """Returns the arguments that are not None, the reduction last, and of a tensor its shape."""
        given = {name: getattr(self, name, None) for name in sorted(self._arguments, key="reduction".__eq__)}
        return ", ".join(
            f"{name}={tuple(value.shape) if isinstance(value, Tensor) else repr(value)}"
            for name, value in given.items()
            if value is not None
        )
