"""New tensors of one number, and the primitives that fill ranges and draw random numbers.

Nothing is copied from the host, so a captured step may make them; it draws other random numbers at each replay. Random
numbers follow from the seed (`alpha.manual_seed`) and the number of the draw alone. Both devices draw the same ones;
normal ones may differ in the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.core import rng
from alpha.core.host_values import check_fits
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.rng import Stream, stream_numbers
from alpha.core.tensor import Tensor, as_dtype, tensor
from alpha.core.tensor import full as filled
from alpha.core.tensor_operators import DTypeLike
from alpha.ops.array.axes import lengths_of
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.dtypes import BLOCK, CUDA_TYPES, DType
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
        values = low + (words * np.uint64(scale) >> np.uint64(32)).astype(np.int64)
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
    """A tensor of zeros of that shape, by default float32 on cpu."""
    return Tensor(device_of(device).zeros(shape_of("zeros", lengths, size), as_dtype(dtype)), requires_grad)


def ones(
    *lengths: Size,
    size: Size | None = None,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of ones of that shape, by default float32 on cpu."""
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
    return Tensor(
        filled(shape_of("full", (size,)), number(fill_value, kind), kind, device_of(device)).array, requires_grad
    )


def as_tensor(data: Any, dtype: DTypeLike = None, device: Where = None) -> Tensor:
    """A Tensor of that dtype and device as it is; anything else as `alpha.tensor`, which copies also a numpy array."""
    return data.to(device, dtype) if isinstance(data, Tensor) else tensor(data, dtype=dtype, device=device)


def from_numpy(array: Any) -> Tensor:
    """A tensor with the values of a numpy array; unlike PyTorch's it is a copy."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: a {type(array).__name__} is no numpy array; use alpha.tensor(..)")
    return tensor(array)


def number(value: Any, dtype: DType) -> Any:
    """The value in that dtype; `ValueError` for an integer that does not fit."""
    values = np.asarray(value)
    check_fits("full", values, dtype)
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
    return Tensor(filled(x.shape, number(fill_value, kind), kind, where).array, requires_grad)


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
    array = filled(shape_of("new_full", (size,)), number(fill_value, kind), kind, where).array
    return Tensor(array, requires_grad)


def new_tensor(
    x: Tensor, data: Any, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False
) -> Tensor:
    """A copy of values as `alpha.tensor` makes it, by default in the dtype of x and on its device."""
    kind, where = like(x, dtype, device)
    return tensor(data, dtype=kind, device=where, requires_grad=requires_grad)
