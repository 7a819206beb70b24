"""Random choices whose probabilities are tensors: bernoulli, multinomial, gumbel_softmax; and normal numbers.

They follow from the seed and the number of the draw alone, as those of `creation.py`.

This file also has: methods that give a tensor random numbers of further distributions, made of equally distributed
ones.

The rules are those of `uniform_`: they follow from `alpha.manual_seed`, and a captured step draws them anew.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.versions import array_of
from alpha.core.generators import Generator, next_stream
from alpha.core.host_values import DTypeLike
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.rng import Stream
from alpha.core.tensor import Tensor, as_dtype
from alpha.errors import ShapeError
from alpha.ops.activation.softmax import softmax
from alpha.ops.array.axes import axis_of, unsqueeze
from alpha.ops.array.creation import (
    INTEGERS,
    NORMAL,
    UNIFORM,
    Size,
    Where,
    device_of,
    drawn,
    floating_dtype,
    random_integers,
    shape_of,
)
from alpha.ops.indexing.gather_scatter import scatter
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.operands import INT64
from alpha.ops.kernel.options import integer, real
from alpha.ops.math.clamp import clamp
from alpha.ops.math.unary import log1p
from alpha.ops.math.unary import round as rounded
from alpha.ops.reduction.extremes import amax, argmax
from alpha.ops.reduction.scan import cumsum
from alpha.ops.reduction.sort import argsort, searchsorted, topk
from alpha.runtime.recording import StepValue

__all__ = ["bernoulli", "gumbel_softmax", "multinomial"]

STEPS = 2.0**30  # of the largest weight: the others are counted in such steps
HALF = 31  # bits of the lower half of a sum of weights


@check_arguments
def bernoulli(x: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that x says, else 0; of the dtype of x and without a gradient   x (...) -> (...)

    A probability out of range is an error on cpu; on cuda nothing waits for the device.

    Args:
        p: one probability for all elements, instead of x.

    Raises:
        ValueError: on cpu, x is not within 0 and 1; or p is not.
    """
    if p is not None and not 0 <= real("bernoulli", "p", p) <= 1:
        raise ValueError(f"bernoulli: p={p} is not within 0 and 1")
    with no_grad():
        given: Any = x.detach() if p is None else p
        if p is None and isinstance(array_of(x), np.ndarray):
            wrong = ~((x.array >= 0) & (x.array <= 1))
            if wrong.any():
                raise ValueError(f"bernoulli: x has {x.array[wrong].flat[0]}; a probability is within 0 and 1")
        numbers = _numbers("bernoulli", UNIFORM, x.shape, FLOAT32, x.device, generator)
        below: Tensor = numbers < given
        return below.astype(x.dtype)


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
            made = _numbers("normal", NORMAL, shape, kind, where, generator) * deviation + middle
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
        numbers = _numbers("normal", NORMAL, shape, tensors[0].dtype, tensors[0].device, generator)
        made = numbers * (std if isinstance(std, Tensor) else _deviation(std))
        return Tensor(
            (made + (mean if isinstance(mean, Tensor) else real("normal", "mean", mean))).array, requires_grad
        )


def _numbers(
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


@check_arguments
def multinomial(
    x: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Random places along the last axis, by the weights that x has there   x (C,) -> (S,), x (N, C) -> (N, S)

    Weights need not add up to 1. Without replacement the places are those of the least exponential numbers over weights
    (Efraimidis and Spirakis 2006), which both devices draw alike up to the last bit. With replacement both draw the
    same places; weights count in steps of 2^-30 of the largest one of their row.

    Wrong weights are an error on cpu; on cuda nothing waits for the device, and the places mean nothing.

    Args:
        replacement: whether a place may be drawn several times.
        generator: draws the random numbers, by default those of the program, which `alpha.manual_seed` begins.

    Raises:
        ShapeError: x has not one or two axes, or more places are asked for than there are, without replacement.
        ValueError: on cpu, a weight is below 0, infinite or NaN, or too few weights of a row are not 0.
    """
    if x.ndim not in (1, 2) or not x.shape[-1]:
        raise ShapeError(f"multinomial: weights (C,) or (N, C) are needed  (x {x.shape})")
    count = integer("multinomial", "num_samples", num_samples, 1)
    if not replacement and count > x.shape[-1]:
        raise ShapeError(f"multinomial: {count} places of {x.shape[-1]} need replacement=True")
    _check_weights(x, 1 if replacement else count)
    stream = next_stream("multinomial", generator)
    with no_grad():
        weights = x.detach().astype(FLOAT32) if x.dtype != np.float64 else x.detach()
        if not replacement:
            keys = where(weights > 0, exponential(weights, stream).astype(weights.dtype) / weights, float("inf"))
            return unchecked(topk)(keys, count, -1, False).indices
        rows = weights.reshape(-1, x.shape[-1])
        steps = unchecked(rounded)(rows / unchecked(amax)(rows, 1, True) * STEPS).astype(np.int64)
        sums = unchecked(cumsum)(steps, 1)
        total = sums[:, -1:]
        words = Tensor(drawn((rows.shape[0], count), INTEGERS, 0, 2**32, np.dtype(np.int64), x.device, stream))
        # floor(words total / 2^32), of which no part exceeds 63 bits
        low = (words * (total & (2**HALF - 1))) >> HALF
        chosen = (words * (total >> HALF) + low) >> (32 - HALF)
        return searchsorted(sums, chosen, right=True).reshape(*x.shape[:-1], count)


def _check_weights(x: Tensor, least: int) -> None:
    """`ValueError` for weights on cpu of which no random place can be drawn."""
    if not isinstance(array_of(x), np.ndarray) or not x.size:
        return
    weights = x.array.astype(np.float64)
    wrong = ~np.isfinite(weights) | (weights < 0)
    if wrong.any():
        raise ValueError(f"multinomial: a weight is {weights[wrong].flat[0]}; finite ones of at least 0 are needed")
    fewest = int((weights > 0).sum(-1).min())
    if fewest < least:
        raise ValueError(f"multinomial: a row has {fewest} weights above 0 for {least} places")


@check_arguments
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """The softmax of (logits + Gumbel noise) / tau along an axis   logits (...) -> (...)

    These are random shares, of which each is the largest one as often as softmax(logits) says.

    Args:
        tau: the temperature; the smaller it is, the nearer are the shares to 0 and 1.
        hard: whether the result is 1 at the largest share and 0 elsewhere, with the gradient of the shares.
        eps: it has no effect, as in PyTorch.
        dim: the axis.
    """
    real("gumbel_softmax", "eps", eps)
    axis = axis_of("gumbel_softmax", logits, dim)
    temperature = real("gumbel_softmax", "tau", tau)
    if temperature <= 0:
        raise ValueError(f"gumbel_softmax: tau={tau} must be more than 0")
    with no_grad():
        noise = -exponential(logits).log()
    shares = softmax((logits + noise.astype(logits.dtype)) / temperature, axis)
    if not hard:
        return shares
    with no_grad():
        fixed = shares.detach()
        largest = unchecked(argmax)(fixed, axis)
        place = unchecked(unsqueeze)(largest, axis) if logits.ndim else largest
        ones = unchecked(scatter)(fixed * 0, axis, place, 1.0)
    return ones - fixed + shares


def randperm(n: int, *, generator: Generator | None = None, dtype: DTypeLike = INT64, device: Where = None) -> Tensor:
    """The integers from 0 up to, and without, n in random order   -> (n,)"""
    count, kind = integer("randperm", "n", n, 0), as_dtype(dtype)
    keys = Tensor(random_integers("randperm", 0, 2**32, (count,), INT64, device_of(device), generator))
    return argsort(keys).astype(kind)


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
    return _numbers(operator, kind, x.shape, dtype, x.device, generator)


def _floating(operator: str, x: Tensor) -> None:
    if not is_floating(x.dtype):
        raise TypeError(f"{operator}: x has dtype {x.dtype.name}; float32, float64 or bfloat16 is needed")


def _above(operator: str, name: str, value: float) -> float:
    checked = real(operator, name, value)
    if checked <= 0:
        raise ValueError(f"{operator}: {name}={checked} is not above 0")
    return checked
