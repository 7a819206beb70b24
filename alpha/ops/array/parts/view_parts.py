"""A part of a tensor that `x[index]` gave as a view of its memory: what a write to the part means for x.

`h[0] += 1` reads the part `v = h[0]`, writes v in place, and assigns it to `h[0]`. If the write is recorded, h gets a
node of its own, which takes the gradient at the part from h as it was and gives it to v as it is. So h and v both have
right gradients, and a part of a part does, too. Only these parts can do so: they know their tensor, and no copy of it.
Other views of h, taken before, do not know of the write and are refused, as after any other one.
"""

from __future__ import annotations

import weakref
from typing import Any, cast

from alpha.autograd.function import Function
from alpha.autograd.versions import knows_history, part_of
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.ops.kernel.operands import operand_of
from alpha.ops.kernel.views import Shape, View, read_view, write_view

SCALAR = View((), ())


class WritePart(Function):
    """X, a part of which has become V in the same memory   X (...), V (...) -> X"""

    inplace, written_as = True, "x[..] = value"

    def backward(self, dY: Array) -> Any:
        dX = dV = None
        if self.needs_input_grad[0]:
            device = device_of(dY)
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
        dX = device_of(dY).zeros(self.whole_shape, dY.dtype)
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
        self.copied = copied  # whether it has other memory than the tensor, as `copied_parts.py` says

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
        """Give the part, if it is a copy, the present history of the whole tensor, and return True if that was done."""
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
