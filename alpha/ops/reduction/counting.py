"""Elements counted: one-hot vectors, counts of integers, and histograms."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.versions import array_of
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError
from alpha.ops.array.creation import arange
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.common_dtype import INT64
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.rows.row_indices import add_rows
from alpha.ops.math.comparison import relate
from alpha.ops.reduction.extremes import amax, amin
from alpha.runtime.recording import refuse

__all__ = ["bincount", "histc", "one_hot"]


@check_arguments
def one_hot(x: AnyTensor, num_classes: int = -1) -> Tensor:
    """Zeros with a 1 at the place of each class   x (...) of integers -> (..., num_classes) of int64

    A class out of range is an error on cpu. On cuda nothing waits for the device, so its row is all zeros.

    Args:
        num_classes: -1: the largest class and one more. This waits for the device and is refused in a captured step.

    Raises:
        TypeError: x has no integers.
        ValueError: on cpu, a class is below 0 or at least num_classes.
    """
    if x.dtype.kind != "i":
        raise TypeError(f"one_hot: x has dtype {x.dtype.name}; classes of int64 or int32 are needed")
    count = integer("one_hot", "num_classes", num_classes, -1)
    if count == 0 or (count == -1 and not x.size):
        raise ValueError(f"one_hot: num_classes={count} for {x.size} elements; at least 1 is needed")
    if count == -1:
        refuse("one_hot has a number of classes that only the host can count: give num_classes")
        count = int(unchecked(amax)(x).item()) + 1
    if isinstance(array_of(x), np.ndarray) and x.size and not (x.array.min() >= 0 and x.array.max() < count):
        wrong = x.array.min() if x.array.min() < 0 else x.array.max()
        raise ValueError(f"one_hot: class {wrong} is out of range for num_classes={count}")
    classes = arange(count, dtype=x.dtype, device=x.device)
    return relate(reshaped(x, (*x.shape, 1)), classes, "==").astype(INT64)


@check_arguments
def bincount(x: AnyTensor, weights: AnyTensor | None = None, minlength: int = 0) -> Tensor:
    """Count of each number 0, 1, .., or the sum of its weights   x (N,) -> (max(largest + 1, minlength),)

    It waits for the device, because only the host can find the largest number; so it is refused in a captured step. The
    weights of a number are added in the order of x. Counts are int64; sums have the dtype of floating weights, and are
    float64 of integers.

    Args:
        weights: (N,), one for each element.
        minlength: the least length of the result.

    Raises:
        TypeError: x has no integers.
        ValueError: x has a number below 0.
    """
    if x.dtype.kind not in "iu":
        raise TypeError(f"bincount: x has dtype {x.dtype.name}; integers are needed")
    if x.ndim != 1 or (weights is not None and weights.shape != x.shape):
        given = "" if weights is None else f", weights {weights.shape}"
        raise ShapeError(f"bincount: x (N,) and weights (N,) are needed  (x {x.shape}{given})")
    least = integer("bincount", "minlength", minlength, 0)
    refuse("bincount has a number of bins that only the host can count: use scatter_add")
    numbers = x.astype(INT64)
    first, last = (int(f(numbers).item()) if x.size else 0 for f in (unchecked(amin), unchecked(amax)))
    if first < 0:
        raise ValueError(f"bincount: x has {first}; no number may be below 0")
    length = max(least, last + 1 if x.size else 0)
    if weights is None:
        return _counted(numbers, full(x.shape, 1, INT64, x.device), length)
    return _counted(numbers, weights if is_floating(weights.dtype) else weights.astype(np.float64), length)


def _counted(places: Tensor, weights: Tensor, length: int) -> Tensor:
    """The sum of the weights of each place; a place -1 counts for nothing   places, weights (N,) -> (length,)"""
    Y = places.device.zeros((1, length, 1), weights.dtype)
    if length:
        add_rows(Y, array_of(places), array_of(weights).reshape((1, weights.size, 1)))
    return Tensor(Y.reshape((length,)))


@check_arguments
def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Number of elements in each of equal ranges from min to max, in the dtype of x   x (...) -> (bins,)

    The last range has its end, too. Elements out of bounds and NaN count for nothing.

    Args:
        min, max: the bounds; if they are equal, the least and the largest element, or 1 less and 1 more if these are
            equal, too.
    """
    count = integer("histc", "bins", bins, 1)
    low, high = real("histc", "min", min), real("histc", "max", max)
    if low > high:
        raise ValueError(f"histc: min={min} is more than max={max}")
    with no_grad():
        flat = reshaped(x.detach(), (x.size,))
        flat = flat.astype(FLOAT32) if x.dtype == BFLOAT16 else flat
        if not x.size:
            return Tensor(x.device.zeros((count,), x.dtype))
        first, last = (full((), bound, flat.dtype, x.device) for bound in (low, high))
        if low == high:
            first, last = unchecked(amin)(flat), unchecked(amax)(flat)
            alone = first == last
            first, last = where(alone, first - 1, first), where(alone, last + 1, last)
        at = ((flat - first) * count / (last - first)).astype(INT64)
        inside = (flat >= first).logical_and(flat <= last)
        at = where(inside, where(at >= count, count - 1, at), -1)
        ones: Any = full((x.size,), 1, INT64, x.device)
        return Tensor(as_dtype(_counted(at, ones, count).array, x.dtype))
