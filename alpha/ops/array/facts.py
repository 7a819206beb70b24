"""Facts about tensors, shapes and dtypes, and copies, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.core.host_values import DTypeLike
from alpha.core.tensor import Tensor, as_dtype
from alpha.errors import ShapeError
from alpha.ops.array.axes import axis_of, lengths_of
from alpha.ops.array.creation import ones_like
from alpha.ops.array.layout import view as reshaped
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.common_dtype import BOOL, common_dtype, kind_of
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.kernel.sums import sum as total


@check_arguments
def clone(x: AnyTensor) -> Tensor:
    """A copy of x; gradients flow back through it   x (...) -> the same"""
    return x.clone()


@check_arguments
def detach(x: AnyTensor) -> Tensor:
    """`x.detach()`: the same memory outside the graph   x (...) -> the same"""
    return x.detach()


@check_arguments
def ravel(x: AnyTensor) -> Tensor:
    """x as one axis, a view   x (...) -> (number of elements,)"""
    return reshaped(x, (x.size,))


@check_arguments
def is_nonzero(x: AnyTensor) -> bool:
    """True if the only element is not 0; waits for the device.

    Raises:
        ShapeError: x has not one element.
    """
    if x.size != 1:
        raise ShapeError(f"is_nonzero: the tensor has {x.size} elements, one is needed  (x {x.shape})")
    return bool(x)


@check_arguments
def is_same_size(x: AnyTensor, other: AnyTensor) -> bool:
    """True if both have one shape."""
    return x.shape == other.shape


@check_arguments
def is_complex(x: AnyTensor) -> bool:
    """False: all dtypes of Alpha are real."""
    return False


@check_arguments
def is_signed(x: AnyTensor) -> bool:
    """True if the dtype has negative numbers: not uint8 and bool."""
    return x.dtype.kind not in "ub"


@check_arguments
def isreal(x: AnyTensor) -> Tensor:
    """True for each element, since all dtypes of Alpha are real   x (...) -> the same, bool"""
    return ones_like(x, dtype=BOOL)


def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """The shape to which all of these shapes broadcast; a number is a shape of one axis.

    Raises:
        ShapeError: there is none.
    """
    given = [lengths_of("broadcast_shapes", "shapes", (s,) if isinstance(s, int) else s, 0) for s in shapes]
    try:
        return np.broadcast_shapes(*given)
    except ValueError:
        raise ShapeError(f"broadcast_shapes: {', '.join(map(str, given))} do not broadcast to one shape") from None


def result_type(tensor1: Any, tensor2: Any) -> np.dtype[Any]:
    """The dtype in which two tensors or numbers meet in an operator; float32 and bfloat16 give float32.

    Raises:
        TypeError: float64 meets float32 or bfloat16, which no operator does; or one is no tensor and no number.
    """
    for name, value in (("tensor1", tensor1), ("tensor2", tensor2)):
        if not isinstance(value, (Tensor, *NUMBERS)):
            raise TypeError(f"result_type: {name} is a {type(value).__name__}; a Tensor or a number is needed")
    return common_dtype(tensor1, tensor2)


def promote_types(type1: DTypeLike, type2: DTypeLike) -> np.dtype[Any]:
    """The dtype in which tensors with axes of these dtypes meet; errors as of `result_type`."""
    return common_dtype(*[Tensor(np.empty(0, as_dtype(kind))) for kind in (type1, type2)])


def can_cast(from_: DTypeLike, to: DTypeLike) -> bool:
    """True if a cast keeps the kind of the numbers, or makes it larger: bool, integer, floating."""
    return kind_of(as_dtype(from_)) <= kind_of(as_dtype(to))


@check_arguments
def unravel_index(indices: AnyTensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """The index along each axis of elements numbered in C order   indices (...) of integers -> int64 (...) each

    An index that is out of range is not noticed.

    Raises:
        TypeError: indices are not integers.
    """
    if indices.dtype.kind not in "iu":
        raise TypeError(f"unravel_index: indices has dtype {indices.dtype.name}; int64 or int32 is needed")
    lengths = lengths_of("unravel_index", "shape", (shape,) if isinstance(shape, int) else shape, 0)
    indices = indices.astype(np.int64)
    found: list[Tensor] = []
    for length in reversed(lengths):
        found.append(indices % length)
        indices = indices // length
    return tuple(reversed(found))


# -- methods ----------------------------------------------------------------------------------------------


def stride(x: Tensor, dim: int | None = None) -> Any:
    """Number of elements from one place of an axis to the next, for each axis or for one; arrays are contiguous."""
    steps = [1]
    for length in reversed(x.shape[1:]):
        steps.append(steps[-1] * max(1, length))
    strides = tuple(reversed(steps[: x.ndim]))
    return strides if dim is None else strides[axis_of("stride", x, dim, x.ndim)]


def get_device(x: Tensor) -> int:
    """The number of the GPU, 0, or -1 for the cpu."""
    return 0 if x.is_cuda else -1


def sum_to_size(x: Tensor, *size: Any) -> Tensor:
    """The sums over axes that `size` has not, or has with length 1   x (...) -> size

    Raises:
        ShapeError: size does not broadcast to the shape of x.
    """
    wanted = lengths_of("sum_to_size", "size", size[0] if len(size) == 1 and not isinstance(size[0], int) else size, 0)
    lead = x.ndim - len(wanted)
    if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, x.shape[lead:], strict=True)):
        raise ShapeError(f"sum_to_size: {wanted} does not broadcast to the shape {x.shape} of x")
    axes = [i for i, m in enumerate(x.shape) if i < lead or (wanted[i - lead] == 1 and m != 1)]
    if not axes and x.ndim:
        return reshaped(x, wanted)
    return reshaped(total(x, axes or None), wanted)  # which is int64 of integers, also of one number
