"""Methods that give a tensor other values: zero_, fill_, copy_, clamp_, masked_fill_, normal_ and uniform_.

They follow the rules of every operator in place: what they write is recorded, and a leaf that requires a gradient is
written under `no_grad` only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import rng
from alpha.autograd import Function
from alpha.errors import ShapeError, type_name
from alpha.grad_mode import is_grad_enabled
from alpha.numerics import is_floating
from alpha.ops.arguments import AnyTensor, check_arguments
from alpha.ops.bounds import clamp
from alpha.ops.creation import NORMAL, UNIFORM, fill_random
from alpha.ops.indexing import SetBlock
from alpha.ops.operands import NUMBERS, like
from alpha.ops.options import real
from alpha.ops.promotion import BOOL, kind_of
from alpha.ops.selection import FillWhere
from alpha.ops.views import View
from alpha.primitive import Array
from alpha.tensor import Tensor


class ZeroInPlace(SetBlock):
    written_as = "zero_"


class FillInPlace(SetBlock):
    written_as = "fill_"


class CopyInPlace(SetBlock):
    written_as = "copy_"


class ClampInPlace(SetBlock):
    written_as = "clamp_"


class Draw(Function):
    """X becomes random numbers   X (...) -> X"""

    inplace = True

    def forward(self, X: Array, *, kind: int, low: float, scale: float) -> Array:
        fill_random(X, rng.default.step_stream(), kind, low, scale)
        return X

    def backward(self, dY: Array) -> Any:
        return Tensor(dY).device.zeros(dY.shape, dY.dtype)


class NormalInPlace(Draw):
    written_as = "normal_"


class UniformInPlace(Draw):
    written_as = "uniform_"


def _put(step: type[SetBlock], x: Tensor, value: Tensor) -> Tensor:
    """x with all of its elements replaced by a value that broadcasts to it."""
    return step.apply(x, value, box=View.whole(x.shape))


def _number(operator: str, x: Tensor, value: Any) -> Tensor:
    """A number or a 0-d tensor in the dtype of x."""
    if not isinstance(value, (Tensor, *NUMBERS)) or (isinstance(value, Tensor) and value.ndim):
        raise TypeError(f"{operator}: value is not a number or a 0-d Tensor")
    return like(x, value).astype(x.dtype)


def _check_fits(what: str, given: Tensor, x: Tensor) -> None:
    """`ShapeError` for a tensor that does not broadcast to x."""
    try:
        fits = np.broadcast_shapes(given.shape, x.shape) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"{what} {given.shape} does not fit x {x.shape}")


def zero_(x: Tensor) -> Tensor:
    """x becomes 0."""
    return _put(ZeroInPlace, x, like(x, 0))


def fill_(x: Tensor, value: Any) -> Tensor:
    """x becomes a number, or the number of a 0-d tensor, whose gradient is the sum of that of x."""
    return _put(FillInPlace, x, _number("fill_", x, value))


def copy_(x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """x becomes src, which broadcasts to x and may have another dtype or device; gradients flow back to src.

    Args:
        non_blocking: has no effect.
    """
    if not isinstance(src, Tensor):
        raise TypeError(f"copy_: src is a {type_name(src)}, a Tensor is needed; use alpha.tensor(src)")
    _check_fits("copy_: src", src, x)
    return _put(CopyInPlace, x, src.to(x.device).astype(x.dtype))


def clamp_(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """`clamp` written into x; the gradient reads x, so a copy of x is kept if a gradient is needed."""
    value = clamp(x.clone() if is_grad_enabled() and x.requires_grad else x, min, max)
    if kind_of(value.dtype) > kind_of(x.dtype):
        raise TypeError(f"clamp_: x of dtype {x.dtype.name} cannot hold bounds of dtype {value.dtype.name}; use clamp")
    if value.shape != x.shape:
        raise ShapeError(f"clamp_: the result {value.shape} does not fit x {x.shape}")
    return _put(ClampInPlace, x, value.astype(x.dtype))


@check_arguments
def masked_fill_(x: AnyTensor, mask: AnyTensor, value: Any) -> Tensor:
    """`masked_fill` written into x   x (...), mask (...) of bools that broadcasts to x -> x"""
    if mask.dtype != BOOL:
        raise TypeError(f"masked_fill_: the mask has dtype {mask.dtype.name}; bools are needed, as of x > 0")
    _check_fits("masked_fill_: mask", mask, x)
    return FillWhere.apply(x, _number("masked_fill_", x, value), M=mask.array)


def _draw(operator: str, step: type[Draw], x: Tensor, kind: int, low: float, scale: float) -> Tensor:
    if not is_floating(x.dtype):
        raise TypeError(f"{operator}: x has dtype {x.dtype.name}, a floating one is needed")
    return step.apply(x, kind=kind, low=low, scale=scale)


def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """x becomes random numbers of a normal distribution, which follow from `alpha.manual_seed`."""
    center, deviation = real("normal_", "mean", mean), real("normal_", "std", std)
    if deviation < 0:
        raise ValueError(f"normal_: std={std} is below 0")
    return _draw("normal_", NormalInPlace, x, NORMAL, center, deviation)


def uniform_(x: Tensor, low: float = 0.0, to: float = 1.0) -> Tensor:
    """x becomes random numbers from `low` up to `to`, equally distributed, which follow from `alpha.manual_seed`."""
    first, last = real("uniform_", "low", low), real("uniform_", "to", to)
    if first > last:
        raise ValueError(f"uniform_: low={low} is above to={to}")
    return _draw("uniform_", UniformInPlace, x, UNIFORM, first, last - first)
