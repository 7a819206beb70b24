"""New tensors of random numbers, and the primitive that draws them.

They follow from the seed (`alpha.manual_seed`) and the number of the draw alone. Both devices draw the same ones;
normal ones may differ in the last bit. A captured step draws other ones at each replay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core import rng
from alpha.core.generators import Generator, next_stream
from alpha.core.host_values import DTypeLike
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.rng import Stream, stream_numbers
from alpha.core.tensor import Tensor, as_dtype
from alpha.ops.array.creation import Size, Where, device_of, like, shape_of
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES
from alpha.ops.kernel.common_dtype import INT64
from alpha.ops.kernel.options import integer
from alpha.runtime.recording import StepValue

UNIFORM, NORMAL, INTEGERS = range(3)


@primitive
def fill_random(Y: Array, stream: StepValue[Stream], kind: int, low: float, scale: float) -> None:
    """Y becomes random numbers of the stream, in place   Y (...)

    kind 0: uniform in [low, low + scale). kind 1: normal, of mean low and deviation scale. kind 2: integers in
    [low, low + scale), scale at most 2^32.
    """


# -- cpu --------------------------------------------------------------------------------------------


@fill_random.impl("cpu")
def _(Y: Array, stream: StepValue[Stream], kind: int, low: float, scale: float) -> None:
    per = 2 if kind == NORMAL else 4
    words = rng.philox(*stream.now(), -(-Y.size // per))
    values: Any
    if kind == NORMAL:
        radius = np.sqrt(-2.0 * np.log((words[:, 0] + 1.0) * 2.0**-32))
        angle = words[:, 1] * (2.0**-32 * 6.283185307179586)
        values = low + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1) * scale
    elif kind == UNIFORM:
        values = low + (words >> np.uint32(8)) * 2.0**-24 * scale
    else:
        wide = np.multiply(words, np.uint64(scale), dtype=np.uint64)  # numpy 1 would keep 32 bits
        values = low + (wide >> np.uint64(32)).astype(np.int64)
    Y.reshape(-1)[...] = values.reshape(-1)[: Y.size]


# -- cuda -------------------------------------------------------------------------------------------


@fill_random.impl("cuda")
def _(Y: Array, stream: StepValue[Stream], kind: int, low: float, scale: float) -> None:
    if not Y.size:
        return
    numbers, address = Y.device.step_value(stream, stream_numbers)
    whole = kind == INTEGERS
    given = (np.float64(low), np.float64(scale), np.int64(low if whole else 0), np.uint64(scale if whole else 0))
    Y.device.launch(
        "creation/random.cu",
        "draw",
        -(-Y.size // (BLOCK * (2 if kind == NORMAL else 4))),
        BLOCK,
        (Y, np.int64(Y.size), numbers, address, *given),
        {"TYPE": CUDA_TYPES[Y.dtype], "KIND": kind},
    )


# -- methods: x.new_zeros(2, 3) has by default the dtype and the device of x ---------------------------


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


def floating_dtype(operator: str, dtype: DTypeLike) -> Any:
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
    """Random numbers from 0 up to, and without, 1, equally distributed.

    Examples:
        >>> import alpha
        >>> alpha.manual_seed(0)
        >>> x = alpha.rand(2, 3)
        >>> x.shape, bool((0 <= x).all() and (x < 1).all())
        ((2, 3), True)
    """
    shape, kind = shape_of("rand", lengths, size), floating_dtype("rand", dtype)
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
    """Random numbers of a normal distribution of mean 0 and deviation 1.

    Examples:
        >>> import alpha
        >>> alpha.manual_seed(0)
        >>> alpha.randn(2, 3).shape
        (2, 3)
    """
    shape, kind = shape_of("randn", lengths, size), floating_dtype("randn", dtype)
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

    Examples:
        >>> import alpha
        >>> alpha.randint(0, 10, (3,)).dtype
        dtype('int64')
    """
    if size is None:
        low, high, size = 0, low, high
    shape = shape_of("randint", (size,))
    found = as_dtype(dtype), device_of(device)
    return Tensor(random_integers("randint", low, high, shape, *found, generator))


def random_integers(
    operator: str,
    low: Any,
    high: Any,
    shape: tuple[int, ...],
    dtype: Any,
    device: Any,
    generator: Generator | None = None,
) -> Array:
    """Draw integers from `low` up to, and without, `high`; errors name the operator.

    Raises:
        ValueError: there is no integer from low to high, or there are more than 2^32.
    """
    least, most = integer(operator, "low", low), integer(operator, "high", high)
    if not 0 < most - least <= 2**32:
        raise ValueError(f"{operator}: {most - least} integers from low={least} to high={most}; 1 to 2^32 are needed")
    return drawn(shape, INTEGERS, least, most - least, dtype, device, next_stream(operator, generator))


@check_arguments
def rand_like(x: AnyTensor, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False) -> Tensor:
    """`rand` in the shape of x, and by default in its dtype and on its device."""
    kind, where = like(x, dtype, device)
    return Tensor(drawn(x.shape, UNIFORM, 0.0, 1.0, floating_dtype("rand_like", kind), where), requires_grad)


@check_arguments
def randn_like(x: AnyTensor, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False) -> Tensor:
    """`randn` in the shape of x, and by default in its dtype and on its device."""
    kind, where = like(x, dtype, device)
    return Tensor(drawn(x.shape, NORMAL, 0.0, 1.0, floating_dtype("randn_like", kind), where), requires_grad)


@check_arguments
def randint_like(x: AnyTensor, low: int, high: Any = None, *, dtype: DTypeLike = None, device: Where = None) -> Tensor:
    """`randint` in the shape of x, and by default in its dtype and on its device."""
    least, most = (0, low) if high is None else (low, high)
    return Tensor(random_integers("randint_like", least, most, x.shape, *like(x, dtype, device)))
