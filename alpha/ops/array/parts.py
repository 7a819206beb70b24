"""A part of a tensor that `x[index]` gave as a view of its memory: what a write to the part means for x.

`h[0] += 1` reads the part `v = h[0]`, writes v in place, and assigns it to `h[0]`. If the write is recorded, h gets a
node of its own, which takes the gradient at the part from h as it was and gives it to v as it is. So h and v both have
right gradients, and a part of a part does, too. Only these parts can do so: they know their tensor, and no copy of it.
Other views of h, taken before, do not know of the write and are refused, as after any other one.

This file also has: parts of a tensor that are copies of its memory, and what is written to one of the two is seen in
the other.

`x[:, 0]`, `x.T` or `x.chunk(3, 1)` are views in PyTorch. Here their elements are copied, because every array is
contiguous, and the memory of the copy has a `PartVersion`: it knows of which memory it is which part. A write to the
copy is counted there, as all writes are, and goes on to the other memory. Before an operator or the host reads the
copy, its version looks whether the other memory was written since, and reads the part again. Both ask only the versions
of copies, so all other tensors pay nothing.

The link ends when no tensor has the other memory any more, and where PyTorch copies: `contiguous`, and a `reshape` that
no strides can give (`apart`). Code that reads an array without an operator of the tensor asks `array_of`.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, cast

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.versions import ALWAYS, Version, knows_history, part_of
from alpha.core.no_effect import check_memory_format
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import GradientError
from alpha.ops.kernel.operands import operand_of
from alpha.ops.kernel.views import Shape, View, read_view, write_view

SCALAR = View((), ())


class WritePart(Function):
    """X, a part of which has become V in the same memory   X (...), V (...) -> X"""

    inplace, written_as = True, "x[..] = value"

    def backward(self, dY: Array) -> Any:
        dX = dV = None
        if self.needs_input_grad[0]:
            device = Tensor(dY).device
            dX = device.copy(dY)
            write_view(dX, self.box, device.zeros((), dY.dtype), SCALAR.broadcast(self.box.shape))
        if self.needs_input_grad[1]:
            dV = read_view(dY, self.box).reshape(self.shape)
        return dX, dV

    box: View
    shape: Shape


class ReadPart(Function):
    """A box of X, which has been copied before   X (...) -> V (...)"""

    def backward(self, dY: Array) -> Any:
        dX = Tensor(dY).device.zeros(self.whole_shape, dY.dtype)
        write_view(dX, self.box, dY, View.whole(tuple(dY.shape)))
        return dX

    box: View
    whole_shape: Shape


class Part:
    """Place of a view: the tensor in which it lies, by a weak reference, and its box of that tensor."""

    __slots__ = ("_above", "_held", "_whole", "box", "copied")

    copied: bool

    def __init__(self, whole: Tensor, box: View, copied: bool = False) -> None:
        self._whole, self.box, self._above = weakref.ref(whole), box, cast("Part | None", part_of(whole))
        # a copy whose memory lives for this view of it anyway, and which alone knows of which tensor it is a part
        self._held = whole if not copied and self._above is not None and self._above.copied else None
        self.copied = copied  # whether it has other memory than the tensor, as alpha/ops/array/parts.py says

    def whole(self, part: Tensor) -> Tensor | None:
        """The tensor of which `part` is this part; None if it is gone or has other memory by now.

        If it is gone and was a part itself, as `h[0]` in `h[0][1:].add_(1)`, that of which it was one takes its place.
        """
        whole = self._whole()
        while whole is None and (above := self._above) is not None and not above.copied:
            self.box = self.box._replace(offset=self.box.offset + above.box.offset)
            self._whole, self._above = above._whole, above._above
            whole = self._whole()
        version = part._version.base() if self.copied else part._version
        return whole if whole is not None and whole._version is version else None

    def take_again(self, part: Tensor) -> bool:
        """Give the part, if it is a copy, the history of the whole tensor as it is now; whether that was done."""
        whole = self.whole(part)
        if whole is None or not self.copied or not knows_history(whole):
            return False
        part._node, part._requires_grad, part._base_version = None, False, part._version.recorded
        if whole._requires_grad:
            node = ReadPart()
            node.needs_input_grad = (True,)
            node.box, node.whole_shape = self.box, whole.shape
            node._record((whole,), (whole,), part.array)
            part._node, part._requires_grad = node, True
        return True

    def written(self, part: Tensor) -> None:
        """Record in the whole tensor that an operator has written the part."""
        whole = self.whole(part)
        if whole is None:
            return
        node = WritePart()
        node.needs_input_grad = (whole._requires_grad, True)
        node.box, (node.shape, _) = self.box, operand_of(part.array)
        node._record((whole, part), (whole, part), whole.array)
        node.take_over(whole._node)
        whole._node, whole._requires_grad, whole._base_version = node, True, whole._version.recorded
        if (above := part_of(whole)) is not None:
            above.written(whole)


class _Memory(weakref.ref[Version]):
    """The version of a memory, which does not live for it, and its array as long as the version lives."""

    __slots__ = ("array",)
    array: Array


def _drop(memory: Any) -> None:
    memory.array = None


class _Link:
    """Link from a copy to the memory of which it is a box, with the state in which both were last the same.

    Attributes:
        above: of which memory that one is a copy; it takes its place if no tensor has it any more.
    """

    __slots__ = ("above", "box", "memory", "recorded", "value")

    def __init__(self, memory: _Memory, box: View, above: _Link | None) -> None:
        self.memory, self.box, self.above = memory, box, above
        self.settle()

    def copy(self) -> _Link:
        return _Link(self.memory, self.box, None if self.above is None else self.above.copy())

    def settle(self) -> None:
        """Note that the copy is what the memory has now."""
        version = self.memory()
        if version is not None:
            self.recorded, self.value = version.recorded, version.value
        elif self.above is not None:
            self.above.settle()

    def is_there(self) -> bool:
        """True if a tensor has the memory."""
        return self.memory() is not None or (self.above is not None and self.above.is_there())

    def news(self) -> int:
        """State of the memory: 0 if it was not written since, 1 if it was, 2 if a recorded operator has written it."""
        version = self.memory()
        if version is None:
            return 0 if self.above is None else self.above.news()
        recorded = version.recorded  # which reads that memory again if it is a copy itself
        return 0 if version.value == self.value else 1 + (recorded != self.recorded)

    def read(self) -> Array | None:
        """The part as the memory has it now; None if no tensor has the memory."""
        whole = self.memory.array if self.memory() is not None else self.above and self.above.read()
        return None if whole is None else read_view(whole, self.box)

    def write(self, values: Array, writer: str, recorded: bool) -> None:
        """Let the memory have the values of the part, if a tensor has it."""
        version, whole = self.memory(), View.whole(self.box.shape)
        if version is not None:
            write_view(self.memory.array, self.box, values, whole)
            version.bump(writer, recorded)
        elif self.above is not None and (array := self.above.read()) is not None:
            write_view(array, self.box, values, whole)
            self.above.write(array, writer, recorded)


class PartVersion(Version):
    """The version of memory that is a copy of a part of other memory.

    Attributes:
        repeats: whether an element of the other memory is there more than once, so that the copy cannot be written.
    """

    unaware = ALWAYS
    array: Array

    def __init__(self, x: Tensor, box: View, array: Array, repeats: bool) -> None:
        version, whole, above = x._version, x.array, None
        if isinstance(version, PartVersion) and version.link is not None:
            above = version.link.copy()
            offset = (_address(whole) - _address(version.array)) // whole.dtype.itemsize
            whole, box = version.array, box._replace(offset=box.offset + offset)
        memory = _Memory(version, _drop)
        memory.array = whole
        self.link: _Link | None = _Link(memory, box, above)
        self.array, self.repeats = array, repeats
        self._recorded = 0

    @property
    def recorded(self) -> int:
        """The recorded writes; whoever reads an array asks for them before, so it is as the other memory is now."""
        if self.link is not None and (news := self.link.news()):
            self._read_again(self.link, news)
        return self._recorded

    @recorded.setter
    def recorded(self, recorded: int) -> None:
        self._recorded = recorded

    def refresh(self) -> None:
        self.recorded  # noqa: B018

    def base(self) -> Version | None:
        return None if self.link is None else self.link.memory()

    def _read_again(self, link: _Link, news: int) -> None:
        link.settle()
        values, whole = link.read(), View.whole(tuple(self.array.shape))
        write_view(self.array, whole, values, whole)
        self.value, self.writer = self.value + 1, "a write to the tensor of which this is a part"
        self._recorded += news == 2

    def bump(self, writer: str, recorded: bool = False) -> None:
        self.check_writable(writer)
        self.value, self._recorded, self.writer = self.value + 1, self._recorded + recorded, writer
        if self.link is not None:
            self.link.write(self.array, writer, recorded)
            self.link.settle()

    def check_writable(self, name: str) -> None:
        if self.repeats and self.is_linked():
            raise GradientError(
                f"{name}: several elements of this part are one element of the tensor that it was taken of, as after "
                "expand or unfold; write a .clone() of it, or that tensor"
            )

    def is_linked(self) -> bool:
        return self.link is not None and self.link.is_there()

    def __reduce__(self) -> Any:
        return Version, ()  # in another process, or in a copy, it is a memory of its own


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.address
    return address


def linked(part: Tensor, x: Tensor, box: View, repeats: bool = False) -> Tensor:
    """The copy of a box of x, which knows that it is one; `repeats` says whether an element of x is there twice."""
    part._version = PartVersion(x, box, part.array, repeats)
    part._part = Part(x, box, copied=True)
    return part


def apart(x: Tensor, shape: Shape | None, unnamed: bool) -> Tensor:
    """A tensor that PyTorch would have copied here: x is that copy if nothing else refers to it, else it is copied.

    Args:
        shape: that of the result of a reshape. x itself is returned if strides can give it, so that it is a view.
        unnamed: whether the caller alone refers to x.
    """
    version = x._version
    if not isinstance(version, PartVersion) or version.link is None or not version.is_linked():
        return x
    box = version.link.box
    if shape is not None and (x.size != box.size or _strides_give(box, shape)):
        return x
    if unnamed and sys.getrefcount(version) <= _OF_ONE_TENSOR:
        version.link = x._part = None
        return x
    return clone(x)


_OF_ONE_TENSOR = 3  # references to a version: of the tensor, of a variable, of the call that counts them


def _strides_give(box: View, shape: Shape) -> bool:
    """True if the elements of a box in the order of memory have some strides under another shape."""
    if not box.size:
        return True
    runs: list[tuple[int, int]] = []  # lengths and strides of axes, joined where they are one run of memory
    for length, stride in zip(box.shape, box.strides, strict=True):
        if length == 1:
            continue
        if runs and runs[-1][1] == length * stride:
            runs[-1] = runs[-1][0] * length, stride
        else:
            runs.append((length, stride))
    lengths = iter([n for n in shape if n != 1])
    for count, _ in runs:
        while count > 1:
            n = next(lengths, 0)
            if not n or count % n:
                return False
            count //= n
    return True


class _Probe:
    def references(self, *shape: Any) -> int:
        return sys.getrefcount(self)


def _references() -> tuple[int, int]:
    probe = _Probe()
    return _Probe().references(1), probe.references(1)


# what a method counts of an object that nothing else refers to; 0 if this Python does not tell it, as from 3.14 on
_WITHOUT_NAME, _WITH_NAME = _references() if hasattr(sys, "getrefcount") else (0, 0)


UNNAMED = _WITHOUT_NAME if _WITHOUT_NAME < _WITH_NAME else 0


class Clone(Function):
    """Y = X in memory of its own   X (...) -> Y (...)"""

    copies = True

    def forward(self, X: Array) -> Array:
        return Tensor(X).device.copy(X)

    def backward(self, dY: Array) -> Any:
        return dY


def clone(x: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy; gradients flow back. memory_format has no effect."""
    check_memory_format("clone", memory_format)
    return Clone.apply(x)
