"""New tensors of one number, of ranges, and unit matrices.

Nothing is copied from the host, so a captured step may make them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.core.host_values import DTypeLike, check_fits
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor, as_dtype, tensor
from alpha.core.tensor import full as filled
from alpha.ops.array.axes import lengths_of
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, DType
from alpha.ops.kernel.common_dtype import INT64
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.views import View, write_view
from alpha.runtime import Device, get_device

Size = int | Sequence[int]
Where = str | Device | None


@primitive
def fill_range(Y: Array, first: float, last: float, step: float, both: bool) -> None:
    """Y_i = first + i step, in place; if `both`, the upper half is counted from `last`   Y (n,)"""


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


# -- cuda -------------------------------------------------------------------------------------------


@fill_range.impl("cuda")
def _(Y: Array, first: float, last: float, step: float, both: bool) -> None:
    floats = is_floating(Y.dtype)
    entry = "range_of_floats" if floats else "range_of_integers"
    numbers = (*map(np.float64, (first, last, step)), int(both)) if floats else (np.int64(first), np.int64(step))
    if Y.size:
        macros = {"TYPE": CUDA_TYPES[Y.dtype]}
        Y.device.launch("creation/range.cu", entry, -(-Y.size // BLOCK), BLOCK, (Y, np.int64(Y.size), *numbers), macros)


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
