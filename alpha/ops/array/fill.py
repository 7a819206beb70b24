"""Methods that give a tensor other values: zero_, fill_, copy_, and random numbers.

They follow the rules of every operator in place: what they write is recorded, and a leaf that requires a gradient is
written under `no_grad` only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.generators import Generator, next_stream
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, type_name
from alpha.ops.array.parts.boxes import SetBlock
from alpha.ops.array.random_tensors import INTEGERS, NORMAL, UNIFORM, fill_random
from alpha.ops.kernel.operands import NUMBERS, like
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.views import View


class ZeroInPlace(SetBlock):
    written_as = "zero_"


class FillInPlace(SetBlock):
    written_as = "fill_"


class CopyInPlace(SetBlock):
    written_as = "copy_"


class FillDiagonalInPlace(SetBlock):
    written_as = "fill_diagonal_"


class BernoulliInPlace(SetBlock):
    written_as = "bernoulli_"


class Draw(Function):
    """X becomes random numbers   X (...) -> X"""

    inplace = True

    def forward(self, X: Array, *, kind: int, low: float, scale: float, generator: Generator | None = None) -> Array:
        fill_random(X, next_stream(self.written_as, generator), kind, low, scale)
        return X

    def backward(self, dY: Array) -> Any:
        return device_of(dY).zeros(dY.shape, dY.dtype)


class NormalInPlace(Draw):
    written_as = "normal_"


class UniformInPlace(Draw):
    written_as = "uniform_"


class RandomInPlace(Draw):
    written_as = "random_"


def _put(step: type[SetBlock], x: Tensor, value: Tensor) -> Tensor:
    """x with all of its elements replaced by a value that broadcasts to it."""
    return step.apply(x, value, box=View.whole(x.shape))


def number_for(operator: str, x: Tensor, value: Any) -> Tensor:
    """A number or a 0-d tensor in the dtype of x."""
    if not isinstance(value, (Tensor, *NUMBERS)) or (isinstance(value, Tensor) and value.ndim):
        raise TypeError(f"{operator}: value is not a number or a 0-d Tensor")
    return like(x, value).astype(x.dtype)


def check_fits(what: str, given: Tensor, x: Tensor) -> None:
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
    return _put(FillInPlace, x, number_for("fill_", x, value))


def copy_(x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """x becomes src, which broadcasts to x and may have another dtype or device; gradients flow back to src.

    Args:
        non_blocking: has no effect.
    """
    if not isinstance(src, Tensor):
        raise TypeError(f"copy_: src is a {type_name(src)}, a Tensor is needed; use alpha.tensor(src)")
    check_fits("copy_: src", src, x)
    return _put(CopyInPlace, x, src.to(x.device).astype(x.dtype))


def fill_diagonal_(x: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """The elements of x whose indices are equal become a number   x (M, N), or of more axes of one length -> x

    Args:
        wrap: begin the diagonal of a high matrix again, one row below its end.
    """
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise ShapeError(f"fill_diagonal_: a matrix, or axes of one length, are needed, not shape {x.shape}")
    step = sum(View.whole(x.shape).strides)
    count = min(x.shape)
    if wrap and x.ndim == 2 and count:
        count = -(-x.numel() // step)
    return FillDiagonalInPlace.apply(x, number_for("fill_diagonal_", x, fill_value), box=View((count,), (step,)))


def _draw(step: type[Draw], x: Tensor, **how: Any) -> Tensor:
    if not is_floating(x.dtype):
        raise TypeError(f"{step.written_as}: x has dtype {x.dtype.name}, a floating one is needed")
    return step.apply(x, **how)


def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """x becomes random numbers of a normal distribution, which follow from `alpha.manual_seed`."""
    center, deviation = real("normal_", "mean", mean), real("normal_", "std", std)
    if deviation < 0:
        raise ValueError(f"normal_: std={std} is below 0")
    return _draw(NormalInPlace, x, kind=NORMAL, low=center, scale=deviation, generator=generator)


def uniform_(x: Tensor, low: float = 0.0, to: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """x becomes random numbers from `low` up to `to`, equally distributed, which follow from `alpha.manual_seed`."""
    first, last = real("uniform_", "low", low), real("uniform_", "to", to)
    if first > last:
        raise ValueError(f"uniform_: low={low} is above to={to}")
    return _draw(UniformInPlace, x, kind=UNIFORM, low=first, scale=last - first, generator=generator)


_WHOLE = {"float32": 2**24, "bfloat16": 2**8, "int32": 2**31, "uint8": 2**8, "bool": 2}  # numbers that random_() draws


def random_(x: Tensor, from_: int = 0, to: int | None = None, *, generator: Generator | None = None) -> Tensor:
    """x becomes random integers from `from_` up to, and without, `to`, which follow from `alpha.manual_seed`.

    `random_(to)` begins with 0. Without `to`, they are all integers from 0 that the dtype holds exactly.

    Raises:
        ValueError: there is no integer from `from_` to `to`, or there are more than 2^32; without `to` this means
            float64 and int64.
    """
    least, most = integer("random_", "from_", from_), to
    if most is None and least:
        least, most = 0, least
    if most is None:
        most = _WHOLE.get(x.dtype.name)
    if most is None:
        raise ValueError(f"random_: give the numbers from and to; dtype {x.dtype.name} holds more than 2^32 integers")
    count = integer("random_", "to", most) - least
    if not 0 < count <= 2**32:
        raise ValueError(f"random_: {count} integers from {least} to {most}; 1 to 2^32 are needed")
    return RandomInPlace.apply(x, kind=INTEGERS, low=least, scale=count, generator=generator)


def bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """x becomes 1 with probability p, else 0; the random numbers follow from `alpha.manual_seed`.

    Args:
        p: a number from 0 to 1, or a tensor of them that broadcasts to x, which is not checked and has no gradient.
    """
    if isinstance(p, Tensor):
        check_fits("bernoulli_: p", p, x)
        chance: Any = p.detach().to(x.device)
    elif not 0 <= (chance := real("bernoulli_", "p", p)) <= 1:
        raise ValueError(f"bernoulli_: p={p} is not between 0 and 1")
    drawn = Tensor(x.device.empty(x.shape, FLOAT32))
    fill_random(drawn.array, next_stream("bernoulli_", generator), UNIFORM, 0.0, 1.0)
    return _put(BernoulliInPlace, x, (drawn < chance).astype(x.dtype))
