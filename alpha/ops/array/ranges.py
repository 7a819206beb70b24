"""Tensors of ranges and of random numbers, and unit matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.core import rng
from alpha.core.generators import Generator, next_stream
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array
from alpha.core.rng import Stream
from alpha.core.tensor import Tensor, as_dtype
from alpha.core.tensor import full as filled
from alpha.core.tensor_operators import DTypeLike
from alpha.ops.array.creation import (
    INTEGERS,
    NORMAL,
    UNIFORM,
    Size,
    Where,
    device_of,
    fill_random,
    fill_range,
    like,
    shape_of,
)
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.operands import INT64
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.views import View, write_view
from alpha.runtime.recording import StepValue


def arange(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike = None,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, .. below `end`; with one number from 0 up to it   -> (ceil((end - start) / step),)

    Args:
        dtype: by default int64 if all numbers are integers, else float32.
    """
    first, last = (0, start) if end is None else (start, end)
    numbers = [real("arange", name, v) for name, v in (("start", first), ("end", last), ("step", step))]
    if step == 0 or (last - first) * step < 0:
        raise ValueError(f"arange: step={step} does not lead from {first} to {last}")
    whole = all(isinstance(v, (int, np.integer)) for v in (first, last, step))
    kind = as_dtype((INT64 if whole else FLOAT32) if dtype is None else dtype)
    count = -((first - last) // step) if whole else math.ceil((numbers[1] - numbers[0]) / numbers[2])
    array = device_of(device).empty((int(count),), kind)
    fill_range(array, first, last, step, False)
    return Tensor(array, requires_grad)


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers from `start` to `end` in equal steps, both included   -> (steps,)"""
    first, last = real("linspace", "start", start), real("linspace", "end", end)
    count = integer("linspace", "steps", steps, 0)
    array = device_of(device).empty((count,), FLOAT32 if not is_floating(as_dtype(dtype)) else as_dtype(dtype))
    fill_range(array, first, last, (last - first) / max(1, count - 1), count > 1)
    result = Tensor(array).astype(dtype)
    return Tensor(result.array, requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: DTypeLike = FLOAT32, device: Where = None, requires_grad: bool = False
) -> Tensor:
    """Ones on the diagonal and zeros elsewhere   -> (n, m), by default (n, n)"""
    M = integer("eye", "n", n, 0)
    N = M if m is None else integer("eye", "m", m, 0)
    where, kind = device_of(device), as_dtype(dtype)
    array = where.zeros((M, N), kind)
    diagonal = (min(M, N),)
    if diagonal[0]:
        write_view(array, View(diagonal, (N + 1,)), filled((), 1, kind, where).array, View((), ()).broadcast(diagonal))
    return Tensor(array, requires_grad)


# -- random numbers ---------------------------------------------------------------------------------


def drawn(
    shape: tuple[int, ...],
    kind: int,
    low: float,
    scale: float,
    dtype: Any,
    device: Any,
    stream: StepValue[Stream] | None = None,
) -> Array:
    """Random numbers as `fill_random` says, by default of the program's next draw."""
    array = device.empty(shape, dtype)
    fill_random(array, rng.default.step_stream() if stream is None else stream, kind, low, scale)
    return array


def _floating(operator: str, dtype: DTypeLike) -> Any:
    kind = as_dtype(dtype)
    if not is_floating(kind):
        raise TypeError(f"{operator}: dtype={kind.name} is not a floating one")
    return kind


def rand(
    *lengths: Size,
    size: Size | None = None,
    generator: Generator | None = None,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """Random numbers from 0 up to, and without, 1, equally distributed."""
    shape, kind = shape_of("rand", lengths, size), _floating("rand", dtype)
    stream = next_stream("rand", generator)
    return Tensor(drawn(shape, UNIFORM, 0.0, 1.0, kind, device_of(device), stream), requires_grad)


def randn(
    *lengths: Size,
    size: Size | None = None,
    generator: Generator | None = None,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """Random numbers of a normal distribution of mean 0 and deviation 1."""
    shape, kind = shape_of("randn", lengths, size), _floating("randn", dtype)
    stream = next_stream("randn", generator)
    return Tensor(drawn(shape, NORMAL, 0.0, 1.0, kind, device_of(device), stream), requires_grad)


def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike = INT64,
    device: Where = None,
) -> Tensor:
    """Random integers from `low` up to, and without, `high`; randint(high, size) begins with 0.

    Raises:
        ValueError: there is no integer from low to high, or there are more than 2^32.
    """
    if size is None:
        low, high, size = 0, low, high
    shape = shape_of("randint", (size,))
    found = as_dtype(dtype), device_of(device)
    return Tensor(_integers("randint", low, high, shape, *found, generator))


def _integers(
    operator: str,
    low: Any,
    high: Any,
    shape: tuple[int, ...],
    dtype: Any,
    device: Any,
    generator: Generator | None = None,
) -> Array:
    least, most = integer(operator, "low", low), integer(operator, "high", high)
    if not 0 < most - least <= 2**32:
        raise ValueError(f"{operator}: {most - least} integers from low={least} to high={most}; 1 to 2^32 are needed")
    return drawn(shape, INTEGERS, least, most - least, dtype, device, next_stream(operator, generator))


@check_arguments
def rand_like(x: AnyTensor, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False) -> Tensor:
    """`rand` in the shape of x, and by default in its dtype and on its device."""
    kind, where = like(x, dtype, device)
    return Tensor(drawn(x.shape, UNIFORM, 0.0, 1.0, _floating("rand_like", kind), where), requires_grad)


@check_arguments
def randn_like(x: AnyTensor, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False) -> Tensor:
    """`randn` in the shape of x, and by default in its dtype and on its device."""
    kind, where = like(x, dtype, device)
    return Tensor(drawn(x.shape, NORMAL, 0.0, 1.0, _floating("randn_like", kind), where), requires_grad)


@check_arguments
def randint_like(x: AnyTensor, low: int, high: Any = None, *, dtype: DTypeLike = None, device: Where = None) -> Tensor:
    """`randint` in the shape of x, and by default in its dtype and on its device."""
    least, most = (0, low) if high is None else (low, high)
    return Tensor(_integers("randint_like", least, most, x.shape, *like(x, dtype, device)))
