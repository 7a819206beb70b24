"""Boxes of elements in an array, and their copies: what slices, permutations, joins and padding are made of.

Arrays are contiguous, so a `View` is no array. It says where the elements of a box lie in one, with any strides. Two
primitives copy such boxes: `read_view` into a new array, `write_view` into an existing one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from alpha.core.primitive import Array, primitive
from alpha.ops.kernel.view_copy import plan_copy
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

Shape = tuple[int, ...]


class View(NamedTuple):
    """A box of elements of an array: element (i0, i1, ..) is number offset + i0 strides[0] + i1 strides[1] + .."""

    shape: Shape
    strides: Shape
    offset: int = 0

    @classmethod
    def whole(cls, shape: Shape) -> View:
        """All elements of an array of that shape."""
        strides, step = [], 1
        for length in reversed(shape):
            strides.append(step)
            step *= length
        return cls(shape, tuple(reversed(strides)))

    @property
    def size(self) -> int:
        """Elements of the box."""
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """True if the elements are neighbours in memory, in C order."""
        step = 1
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != step:
                return self.size == 0
            step *= length
        return True

    def permuted(self, order: Shape) -> View:
        """The axes in another order."""
        return View(tuple([self.shape[i] for i in order]), tuple([self.strides[i] for i in order]), self.offset)

    def sliced(self, axis: int, start: int, length: int, step: int = 1) -> View:
        """Elements start, start + step, .. of an axis, `length` of them; the step may be negative."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + (start * strides[axis] if length else 0)
        shape[axis], strides[axis] = length, strides[axis] * step
        return View(tuple(shape), tuple(strides), offset)

    def dropped(self, axis: int, position: int) -> View:
        """The elements at one position of an axis, without this axis."""
        offset = self.offset + position * self.strides[axis]
        return View(self.shape[:axis] + self.shape[axis + 1 :], self.strides[:axis] + self.strides[axis + 1 :], offset)

    def inserted(self, axis: int, length: int = 1) -> View:
        """A new axis, along which the elements repeat."""
        shape, strides = self.shape, self.strides
        return View((*shape[:axis], length, *shape[axis:]), (*strides[:axis], 0, *strides[axis:]), self.offset)

    def flipped(self, axis: int) -> View:
        """An axis from its end to its beginning."""
        return self.sliced(axis, self.shape[axis] - 1, self.shape[axis], -1)

    def broadcast(self, shape: Shape) -> View:
        """The box repeated along axes of length 1 and along new leading axes; the shapes must fit."""
        lead = len(shape) - len(self.shape)
        own = (1,) * lead + self.shape
        strides = (0,) * lead + self.strides
        repeats = [0 if n == 1 and length != 1 else s for n, s, length in zip(own, strides, shape, strict=True)]
        return View(shape, tuple(repeats), self.offset)


@primitive
def read_view(X: Array, view: View) -> Array:
    """Y = the box of X that the view names   X (...) -> Y view.shape"""


@primitive
def write_view(Y: Array, view: View, X: Array, source: View) -> None:
    """The box `view` of Y becomes the box `source` of X, in place   Y (...), X (...) of one dtype

    The boxes have one shape, the elements of `view` are distinct, and X is other memory than Y.
    """


# -- cpu --------------------------------------------------------------------------------------------


@read_view.impl("cpu")
def _(X: Array, view: View) -> Array:
    Y = cpu_empty(view.shape, X.dtype)
    _copy_cpu(Y, X, view)
    return Y


@write_view.impl("cpu")
def _(Y: Array, view: View, X: Array, source: View) -> None:
    if view.size:
        _copy_cpu(_strided(Y, view), X, source)


def _copy_cpu(target: Array, X: Array, view: View) -> None:
    if not view.size:
        return
    source = _strided(X, view)
    if not view.shape or target.nbytes <= workers.CHUNK_BYTES:
        target[...] = source
        return

    def chunk(start: int, stop: int) -> None:
        target[start:stop] = source[start:stop]

    workers.parallel_for(len(target), max(1, workers.CHUNK_BYTES * len(target) // target.nbytes), chunk)


def _strided(X: Array, view: View) -> Array:
    strides = [stride * X.itemsize for stride in view.strides]
    return np.lib.stride_tricks.as_strided(X.reshape(-1)[view.offset :], view.shape, strides)


# -- cuda -------------------------------------------------------------------------------------------


@read_view.impl("cuda")
def _(X: Array, view: View) -> Array:
    Y = X.device.empty(view.shape, X.dtype)
    _copy_cuda(Y, View.whole(view.shape), X, view)
    return Y


@write_view.impl("cuda")
def _(Y: Array, view: View, X: Array, source: View) -> None:
    _copy_cuda(Y, view, X, source)


def _copy_cuda(Y: Array, target: View, X: Array, source: View) -> None:
    if target.size:
        aligned = math.gcd(16, Y.address, X.address)
        plan_copy(target, source, X.dtype.itemsize, aligned).launch(X.device, {"Y": Y, "X": X})
