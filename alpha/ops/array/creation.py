"""New tensors of one number, and the primitives that fill ranges and draw random numbers.

Nothing is copied from the host, so a captured step may make them; it draws other random numbers at each replay. Random
numbers follow from the seed (`alpha.manual_seed`) and the number of the draw alone. Both devices draw the same ones;
normal ones may differ in the last bit.

This file also has: tensors of ranges and of random numbers, and unit matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.core import rng
from alpha.core.generators import Generator, next_stream
from alpha.core.host_values import DTypeLike, check_fits
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.rng import Stream, stream_numbers
from alpha.core.tensor import Tensor, as_dtype, tensor
from alpha.core.tensor import full as filled
from alpha.ops.array.axes import lengths_of
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, DType
from alpha.ops.kernel.operands import INT64
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.views import View, write_view
from alpha.runtime import Device, get_device
from alpha.runtime.recording import StepValue

Size = int | Sequence[int]
Where = str | Device | None
UNIFORM, NORMAL, INTEGERS = range(3)


@primitive
def fill_range(Y: Array, first: float, last: float, step: float, both: bool) -> None:
    """Y_i = first + i step, in place; if `both`, the upper half is counted from `last`   Y (n,)"""


@primitive
def fill_random(Y: Array, stream: StepValue[Stream], kind: int, low: float, scale: float) -> None:
    """Y becomes random numbers of the stream, in place   Y (...)

    kind 0: uniform in [low, low + scale). kind 1: normal, of mean low and deviation scale. kind 2: integers in
    [low, low + scale), scale at most 2^32.
    """


# -- cpu --------------------------------------------------------------------------------------------


@fill_range.impl("cpu")
def _(Y: Array, first: float, last: float, step: float, both: bool) -> None:
    kind = np.float64 if is_floating(Y.dtype) else np.int64
    i = np.arange(Y.size, dtype=kind)
    values = kind(first) + i * kind(step)
    if both:
        half = Y.size // 2
        values[half:] = kind(last) - (Y.size - 1 - i[half:]) * kind(step)
    Y[...] = values


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


@fill_range.impl("cuda")
def _(Y: Array, first: float, last: float, step: float, both: bool) -> None:
    floats = is_floating(Y.dtype)
    entry = "range_of_floats" if floats else "range_of_integers"
    numbers = (*map(np.float64, (first, last, step)), int(both)) if floats else (np.int64(first), np.int64(step))
    if Y.size:
        macros = {"TYPE": CUDA_TYPES[Y.dtype]}
        Y.device.launch("creation/range.cu", entry, -(-Y.size // BLOCK), BLOCK, (Y, np.int64(Y.size), *numbers), macros)


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


# -- of one number ----------------------------------------------------------------------------------


def shape_of(operator: str, size: tuple[Any, ...], named: Size | None = None) -> tuple[int, ...]:
    """`zeros(2, 3)`, `zeros((2, 3))` or `zeros(size=(2, 3))`; `TypeError` for two of them."""
    if named is not None:
        if size:
            raise TypeError(f"{operator}: the lengths are given twice, as {size} and as size={named!r}")
        size = (named,)
    lengths = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    return lengths_of(operator, "size", tuple(lengths))


def device_of(device: Where) -> Device:
    return get_device("cpu" if device is None else device)


def zeros(
    *lengths: Size,
    size: Size | None = None,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of zeros of that shape, by default float32 on cpu.

    Examples:
        >>> import alpha
        >>> alpha.zeros(2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]], float32, device='cpu')
    """
    return Tensor(device_of(device).zeros(shape_of("zeros", lengths, size), as_dtype(dtype)), requires_grad)


def ones(
    *lengths: Size,
    size: Size | None = None,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones of that shape, by default float32 on cpu.

    Examples:
        >>> import alpha
        >>> alpha.ones((2, 2), dtype="int64")
        tensor([[1, 1],
                [1, 1]], int64, device='cpu')
    """
    return Tensor(filled(shape_of("ones", lengths, size), 1, dtype, device_of(device)).array, requires_grad)


def empty(
    *lengths: Size,
    size: Size | None = None,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of that shape whose values are not specified, by default float32 on cpu."""
    return Tensor(device_of(device).empty(shape_of("empty", lengths, size), as_dtype(dtype)), requires_grad)


def full(
    size: Size, fill_value: Any, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of one number; its dtype is that of the number by default: bool, int64 or float32."""
    kind = np.asarray(fill_value).dtype if dtype is None else as_dtype(dtype)
    kind = FLOAT32 if dtype is None and kind.kind == "f" else kind
    shape, value = shape_of("full", (size,)), number_of_dtype("full", fill_value, kind)
    return Tensor(filled(shape, value, kind, device_of(device)).array, requires_grad)


def as_tensor(data: Any, dtype: DTypeLike = None, device: Where = None) -> Tensor:
    """A Tensor of that dtype and device as it is; anything else as `alpha.tensor`, which copies also a numpy array."""
    return data.to(device, dtype) if isinstance(data, Tensor) else tensor(data, dtype=dtype, device=device)


def from_numpy(array: Any) -> Tensor:
    """A tensor with the values of a numpy array; unlike PyTorch's it is a copy.

    Examples:
        >>> import alpha
        >>> import numpy as np
        >>> alpha.from_numpy(np.arange(3)).tolist()
        [0, 1, 2]
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: a {type(array).__name__} is no numpy array; use alpha.tensor(..)")
    return tensor(array)


def number_of_dtype(operator: str, value: Any, dtype: DType) -> Any:
    """The value in that dtype; `ValueError` for an integer that does not fit."""
    values = np.asarray(value)
    check_fits(operator, values, dtype)
    return values.astype(dtype)[()]


def like(x: Tensor, dtype: DTypeLike, device: Where) -> tuple[DType, Device]:
    return (x.dtype if dtype is None else as_dtype(dtype)), (x.device if device is None else get_device(device))


@check_arguments
def zeros_like(x: AnyTensor, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False) -> Tensor:
    """Zeros of the shape of x, and by default of its dtype and device."""
    kind, where = like(x, dtype, device)
    return Tensor(where.zeros(x.shape, kind), requires_grad)


@check_arguments
def ones_like(x: AnyTensor, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False) -> Tensor:
    """Ones of the shape of x, and by default of its dtype and device."""
    return full_like(x, 1, dtype=dtype, device=device, requires_grad=requires_grad)


@check_arguments
def full_like(
    x: AnyTensor, fill_value: Any, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False
) -> Tensor:
    """One number in the shape of x, and by default in its dtype and on its device."""
    kind, where = like(x, dtype, device)
    return Tensor(filled(x.shape, number_of_dtype("full_like", fill_value, kind), kind, where).array, requires_grad)


@check_arguments
def empty_like(x: AnyTensor, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False) -> Tensor:
    """Unspecified values in the shape of x, and by default in its dtype and on its device."""
    kind, where = like(x, dtype, device)
    return Tensor(where.empty(x.shape, kind), requires_grad)


# -- methods: x.new_zeros(2, 3) has by default the dtype and the device of x ---------------------------


def new_zeros(
    x: Tensor, *size: Size, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False
) -> Tensor:
    """Zeros of that shape, by default in the dtype of x and on its device."""
    kind, where = like(x, dtype, device)
    return Tensor(where.zeros(shape_of("new_zeros", size), kind), requires_grad)


def new_ones(
    x: Tensor, *size: Size, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False
) -> Tensor:
    """Ones of that shape, by default in the dtype of x and on its device."""
    kind, where = like(x, dtype, device)
    return Tensor(filled(shape_of("new_ones", size), 1, kind, where).array, requires_grad)


def new_empty(
    x: Tensor, *size: Size, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False
) -> Tensor:
    """Unspecified values of that shape, by default in the dtype of x and on its device."""
    kind, where = like(x, dtype, device)
    return Tensor(where.empty(shape_of("new_empty", size), kind), requires_grad)


def new_full(
    x: Tensor,
    size: Size,
    fill_value: Any,
    *,
    dtype: DTypeLike = None,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """One number in that shape, by default in the dtype of x and on its device."""
    kind, where = like(x, dtype, device)
    array = filled(shape_of("new_full", (size,)), number_of_dtype("new_full", fill_value, kind), kind, where).array
    return Tensor(array, requires_grad)


def new_tensor(
    x: Tensor, data: Any, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False
) -> Tensor:
    """A copy of values as `alpha.tensor` makes it, by default in the dtype of x and on its device."""
    kind, where = like(x, dtype, device)
    return tensor(data, dtype=kind, device=where, requires_grad=requires_grad)


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

    Examples:
        >>> import alpha
        >>> alpha.arange(4)
        tensor([0, 1, 2, 3], int64, device='cpu')
        >>> alpha.arange(0, 1, 0.25).tolist()
        [0.0, 0.25, 0.5, 0.75]
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
    return Tensor(spaced("linspace", start, end, steps, dtype, device).array, requires_grad)


def spaced(operator: str, start: float, end: float, steps: int, dtype: DTypeLike, device: Where) -> Tensor:
    """Result of `linspace`, whose errors name the operator."""
    first, last = real(operator, "start", start), real(operator, "end", end)
    count = integer(operator, "steps", steps, 0)
    array = device_of(device).empty((count,), FLOAT32 if not is_floating(as_dtype(dtype)) else as_dtype(dtype))
    fill_range(array, first, last, (last - first) / max(1, count - 1), count > 1)
    return Tensor(array).astype(dtype)


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
