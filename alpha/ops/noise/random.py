"""Random choices: bernoulli, multinomial, gumbel_softmax and random orders.

They follow from the seed and the number of the draw alone, as the random numbers of new tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.versions import array_of
from alpha.core.generators import Generator, next_stream
from alpha.core.host_values import DTypeLike
from alpha.core.numerics import FLOAT32
from alpha.core.tensor import Tensor, as_dtype
from alpha.errors import ShapeError
from alpha.ops.activation.softmax import softmax
from alpha.ops.array.axes import axis_of, unsqueeze
from alpha.ops.array.creation import Where, device_of
from alpha.ops.array.random_tensors import INTEGERS, UNIFORM, drawn, random_integers
from alpha.ops.indexing.gather_scatter import scatter
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.common_dtype import INT64
from alpha.ops.kernel.options import integer, real
from alpha.ops.math.unary import round as rounded
from alpha.ops.noise.distributions import exponential, standard_numbers
from alpha.ops.reduction.extremes import amax, argmax
from alpha.ops.reduction.scan import cumsum
from alpha.ops.reduction.sort import argsort, searchsorted, topk

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
        numbers = standard_numbers("bernoulli", UNIFORM, x.shape, FLOAT32, x.device, generator)
        below: Tensor = numbers < given
        return below.astype(x.dtype)


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
