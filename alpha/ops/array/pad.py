"""Tensors made longer at the ends of their axes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import lengths_of
from alpha.ops.array.parts.assemble import Assemble, Piece
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.elementwise import add
from alpha.ops.kernel.operands import NUMBERS, sum_to
from alpha.ops.kernel.views import View, read_view, write_view

__all__ = ["pad"]

MODES = ("constant", "reflect", "replicate", "circular")


class Pad(Assemble):
    """A number around X   X (...) -> Y (...)"""


class PadRepeated(Assemble):
    """Elements of X around X   X (...) -> Y (...)"""

    def gradient(self, dY: Array, i: int) -> Array:
        """An element that was read several times adds the gradients of all."""
        dX = device_of(dY).zeros(self.shapes[i], dY.dtype)
        for _, source, target in self.pieces:
            once = tuple([1 if stride == 0 else n for n, stride in zip(source.shape, source.strides, strict=True)])
            added = sum_to(read_view(dY, target), (once, dY.dtype))
            box = View(once, source.strides, source.offset)
            write_view(dX, box, add(read_view(dX, box), added), View.whole(once))
        return dX


@check_arguments
def pad(x: AnyTensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """x made longer, or shorter by negative numbers, at both ends of its last axes

    x (.., D) -> (.., before + D + after)

    Args:
        pad: (before, after) of the last axis, then of the axis before it, and so on. Images are NHWC, so the first pair
            is that of the channels: (0, 0, left, right, top, bottom) pads the maps.
        mode: what stands in the new places: "constant", a number; "reflect", x mirrored at its first and last element;
            "replicate", the first and last element; "circular", x again from its other end.
        value: the number of mode "constant", 0 by default.

    Warns if four numbers that would surround a map in PyTorch are given for images of at most 4 channels.

    Raises:
        ShapeError: there are more pairs than axes, or an axis is too short for its numbers.

    Examples:
        >>> import alpha
        >>> import alpha.nn.functional as F
        >>> F.pad(alpha.ones(1, 4, 4, 8), (0, 0, 1, 1, 1, 1)).shape  # rows and columns
        (1, 6, 6, 8)
    """
    numbers = lengths_of("pad", "pad", pad, -(2**62))
    if mode not in MODES:
        raise ValueError(f"pad: mode={mode!r} is not one of {', '.join(MODES)}")
    if len(numbers) % 2 or len(numbers) > 2 * x.ndim:
        raise ShapeError(f"pad: pad={numbers} must be pairs, one for each of the last axes of shape {x.shape}")
    if value is not None and not isinstance(value, NUMBERS):
        raise TypeError(f"pad: value={value!r} is not a number")
    if x.ndim == len(numbers) == 4 and x.shape[-1] <= 4 and numbers[0] == numbers[1] > 0 < numbers[2] == numbers[3]:
        warnings.warn(
            f"pad: pad={numbers} adds {numbers[0]} channels on both sides of the images {x.shape}, which are NHWC, and "
            f"none of their rows; pad={(0, 0, *numbers)} pads rows and columns",
            stacklevel=3,
        )
    pairs = [(x.ndim - 1 - i, numbers[2 * i], numbers[2 * i + 1]) for i in range(len(numbers) // 2)]
    if mode == "constant":
        return _constant(x, pairs, 0 if value is None else value)
    if value is not None:
        raise ValueError(f"pad: value={value} is for mode='constant', not for mode={mode!r}")
    if mode == "circular" and min(numbers, default=0) < 0:  # what is taken away does not come in at the other end
        x = _constant(x, [(axis, min(0, before), min(0, after)) for axis, before, after in pairs], 0)
        pairs = [(axis, max(0, before), max(0, after)) for axis, before, after in pairs]
    for axis, before, after in pairs:
        x = _repeated(x, axis, before, after, mode)
    return x


def _constant(x: Tensor, pairs: Sequence[tuple[int, int, int]], value: float) -> Tensor:
    source = target = View.whole(x.shape)
    shape = list(x.shape)
    for axis, before, after in pairs:
        shape[axis] += before + after
        if shape[axis] < 0:
            raise ShapeError(f"pad: axis {axis} of shape {x.shape} is shorter than {before} and {after} take away")
    target = View.whole(tuple(shape))
    for axis, before, _ in pairs:
        start = max(0, -before)
        length = max(0, min(x.shape[axis] - start, shape[axis] - max(0, before)))
        source = source.sliced(axis, start, length)
        target = target.sliced(axis, max(0, before), length)
    return Pad.apply(x, shape=tuple(shape), pieces=[Piece(0, source, target)], fill=value)


def _repeated(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """One axis, made longer by its own elements."""
    length = x.shape[axis]
    most = {"reflect": length - 1, "circular": length, "replicate": 2**62 if length else 0}[mode]
    total = length + before + after
    if max(before, after) > most or total < 0:
        raise ShapeError(
            f"pad: {before} and {after} do not fit axis {axis} of shape {x.shape} with mode={mode!r}; "
            f"each may be at most {max(most, 0)}"
        )
    whole, target = View.whole(x.shape), View.whole((*x.shape[:axis], total, *x.shape[axis + 1 :]))
    start, stop = max(0, -before), min(length, length + after)
    head, tail = min(max(0, before), total), max(length, -before)  # elements of the head; where the tail would be in x
    first = {"reflect": (before, -1), "replicate": (0, 0), "circular": (length - before, 1)}[mode]
    last = {"reflect": (2 * (length - 1) - tail, -1), "replicate": (length - 1, 0), "circular": (tail - length, 1)}[
        mode
    ]
    parts = [  # where the part is in the result; its length; its first element in x, and the step from there
        (start + before, max(0, stop - start), (start, 1)),
        (0, head, first),
        (tail + before, max(0, length + after - tail), last),
    ]
    pieces = [
        Piece(0, whole.sliced(axis, source, count, step), target.sliced(axis, to, count))
        for to, count, (source, step) in parts
        if count
    ]
    return PadRepeated.apply(x, shape=target.shape, pieces=pieces)
