"""Parts of a tensor that are copies of its memory; what is written to one of the two is seen in the other.

`x[:, 0]`, `x.T` or `x.chunk(3, 1)` are views in PyTorch. Here their elements are copied, because every array is
contiguous, and the memory of the copy has a `PartVersion`: it knows of which memory it is which part. A write to the
copy is counted there, as all writes are, and goes on to the other memory. Before an operator or the host reads the
copy, its version looks whether the other memory was written since, and reads the part again. Both ask only the versions
of copies, so all other tensors pay nothing.

The link ends when no tensor has the other memory any more, and where PyTorch copies: `contiguous`, and a `reshape` that
no strides can give (`apart.py`). Code that reads an array without an operator of the tensor asks `array_of`.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from alpha.autograd.versions import ALWAYS, Version
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import GradientError
from alpha.ops.array.parts.view_parts import Part
from alpha.ops.kernel.views import View, read_view, write_view


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
