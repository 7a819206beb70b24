"""Random numbers of further distributions: normal ones of given means, and methods that give a tensor other ones.

The rules are those of `uniform_`: they follow from `alpha.manual_seed`, and a captured step draws them anew.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.core.generators import Generator, next_stream
from alpha.core.host_values import DTypeLike
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.rng import Stream
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.creation import Size, Where, device_of, shape_of
from alpha.ops.array.random_tensors import INTEGERS, NORMAL, UNIFORM, drawn, floating_dtype
from alpha.ops.kernel.arguments import unchecked
from alpha.ops.kernel.options import real
from alpha.ops.math.clamp import clamp
from alpha.ops.math.unary import log1p
from alpha.runtime.recording import StepValue


def normal(
    mean: float | Tensor,
    std: float | Tensor = 1.0,
    size: Size | None = None,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike = None,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """Random numbers of a normal distribution   -> size, or as the tensors mean and std, which broadcast

    Args:
        mean, std: numbers, or tensors, from which no gradient flows back; std is at least 0.
        size, dtype, device: only if both are numbers; by default float32 on cpu.
    """
    tensors = [value for value in (mean, std) if isinstance(value, Tensor)]
    if not tensors:
        if size is None:
            raise TypeError("normal: size is needed if mean and std are numbers")
        middle, deviation = real("normal", "mean", mean), _deviation(std)
        shape = shape_of("normal", (size,))
        with no_grad():
            kind, where = floating_dtype("normal", FLOAT32 if dtype is None else dtype), device_of(device)
            made = standard_numbers("normal", NORMAL, shape, kind, where, generator) * deviation + middle
        return Tensor(made.array, requires_grad)
    if size is not None or dtype is not None or device is not None:
        raise TypeError("normal: size, dtype and device are those of the tensors mean and std")
    for name, value in (("mean", mean), ("std", std)):
        if isinstance(value, Tensor) and not is_floating(value.dtype):
            raise TypeError(f"normal: {name} has dtype {value.dtype.name}; use .astype('float32')")
    try:
        shape = np.broadcast_shapes(*[x.shape for x in tensors])
    except ValueError:
        raise ShapeError(
            f"normal: the shapes do not broadcast  (shapes {tensors[0].shape}, {tensors[1].shape})"
        ) from None
    with no_grad():
        numbers = standard_numbers("normal", NORMAL, shape, tensors[0].dtype, tensors[0].device, generator)
        made = numbers * (std if isinstance(std, Tensor) else _deviation(std))
        return Tensor(
            (made + (mean if isinstance(mean, Tensor) else real("normal", "mean", mean))).array, requires_grad
        )


def standard_numbers(
    operator: str, kind: int, shape: tuple[int, ...], dtype: Any, device: Any, generator: Generator | None
) -> Tensor:
    """Numbers from 0 up to 1, or of a normal distribution of mean 0 and deviation 1."""
    return Tensor(drawn(shape, kind, 0.0, 1.0, dtype, device, next_stream(operator, generator)))


def _deviation(std: Any) -> float:
    value = real("normal", "std", std)
    if value < 0:
        raise ValueError(f"normal: std={std} must be at least 0")
    return value


def exponential(x: Tensor, stream: StepValue[Stream] | None = None) -> Tensor:
    """Random numbers of an exponential distribution of mean 1, float32 and more than 0, in the shape of x."""
    words = Tensor(drawn(x.shape, INTEGERS, 0, 2**32, FLOAT32, x.device, stream))
    shares = unchecked(clamp)((words + 0.5) * 2.0**-32, None, 1 - 2.0**-24)
    return -unchecked(log1p)(-shares)


def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """x becomes random numbers of the density lambd exp(-lambd y)   x (...) of floats -> x

    Raises:
        TypeError: x is not floating.
        ValueError: lambd is not above 0.
    """
    return x.copy_(_waiting("exponential_", x, generator) / _above("exponential_", "lambd", lambd))


def geometric_(x: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """x becomes the numbers of trials up to the first success, each of probability p   x (...) -> x

    Raises:
        ValueError: p is not between 0 and 1.
    """
    chance = real("geometric_", "p", p)
    if not 0 < chance < 1:
        raise ValueError(f"geometric_: p={chance} is not between 0 and 1")
    uniform = _for("geometric_", UNIFORM, x, generator)
    # ln(1 - p) is below 0, and so is ln(1 - u)
    failures = (1 - uniform).log() / math.log1p(-chance)
    return x.copy_(failures.ceil().clamp(min=1).astype(x.dtype))


def cauchy_(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """x becomes random numbers of the density sigma / (pi ((y - median)^2 + sigma^2))   x (...) of floats -> x

    Raises:
        TypeError: x is not floating.
        ValueError: sigma is not above 0.
    """
    middle, width = real("cauchy_", "median", median), _above("cauchy_", "sigma", sigma)
    _floating("cauchy_", x)
    angle = (_for("cauchy_", UNIFORM, x, generator) - 0.5) * math.pi
    return x.copy_((angle.tan() * width + middle).astype(x.dtype))


def log_normal_(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
    """x becomes exp of random numbers of N(mean, std)   x (...) of floats -> x

    Raises:
        TypeError: x is not floating.
        ValueError: std is not above 0.
    """
    middle, width = real("log_normal_", "mean", mean), _above("log_normal_", "std", std)
    _floating("log_normal_", x)
    return x.copy_((_for("log_normal_", NORMAL, x, generator) * width + middle).exp().astype(x.dtype))


def _waiting(operator: str, x: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of the density exp(-y), in the dtype of x."""
    _floating(operator, x)
    return (-(1 - _for(operator, UNIFORM, x, generator)).log()).astype(x.dtype)


def _for(operator: str, kind: int, x: Tensor, generator: Generator | None) -> Tensor:
    """Numbers in the shape of x, in float32 unless x is float64."""
    dtype = x.dtype if is_floating(x.dtype) and x.dtype != BFLOAT16 else FLOAT32
    return standard_numbers(operator, kind, x.shape, dtype, x.device, generator)


def _floating(operator: str, x: Tensor) -> None:
    if not is_floating(x.dtype):
        raise TypeError(f"{operator}: x has dtype {x.dtype.name}; float32, float64 or bfloat16 is needed")


def _above(operator: str, name: str, value: float) -> float:
    checked = real(operator, name, value)
    if checked <= 0:
        raise ValueError(f"{operator}: {name}={checked} is not above 0")
    return checked
