"""Boxes of the elements of a tensor: read, as a view if the elements are neighbours and else as a copy, and written."""

from __future__ import annotations

from typing import Any

from alpha.autograd.function import Function
from alpha.core.primitive import Array, device_of, shares_memory, span
from alpha.core.tensor import Tensor
from alpha.ops.array.parts.assemble import Assemble, read
from alpha.ops.array.parts.copied_parts import linked
from alpha.ops.array.parts.view_parts import SCALAR
from alpha.ops.kernel.elementwise import add
from alpha.ops.kernel.operands import operand_of, sum_to
from alpha.ops.kernel.views import View, read_view, write_view


class Block(Function):
    """Neighbouring elements, a view   X (...) -> Y view.shape"""

    is_view = is_writable = adds_gradient = True

    def forward(self, X: Array, *, view: View) -> Array:
        self.shape, self.view = tuple(X.shape), view
        return self._part(X)

    def _part(self, X: Array) -> Array:
        start = self.view.offset if self.view.size else 0  # of an empty X there is no other place
        return span(X, start, self.view.shape)

    def backward(self, dY: Array) -> Any:
        dX = device_of(dY).zeros(self.shape, dY.dtype)
        write_view(dX, self.view, dY, View.whole(self.view.shape))
        return dX

    def add_gradient(self, dY: Array, total: Array) -> None:
        if dY.size:
            part = self._part(total)
            add(part, dY, out=part)


class Slice(Assemble):
    """A box of elements   X (...) -> Y (...)"""


class SetBlock(Function):
    """A box of X becomes V, which is repeated along it   X (...), V (...) -> X"""

    inplace, written_as = True, "x[..] = value"

    def forward(self, X: Array, V: Array, *, box: View) -> Array:
        self.box, self.operand = box, operand_of(V)
        V = device_of(V).copy(V) if shares_memory(X, (V,)) else V
        write_view(X, box, V, View.whole(tuple(V.shape)).broadcast(box.shape))
        return X

    def backward(self, dY: Array) -> Any:
        dX = dV = None
        if self.needs_input_grad[0]:
            device = device_of(dY)
            dX = device.copy(dY)
            write_view(dX, self.box, device.zeros((), dY.dtype), SCALAR.broadcast(self.box.shape))
        if self.needs_input_grad[1]:
            dV = sum_to(read_view(dY, self.box), self.operand)
        return dX, dV


def block_or_copy(x: Tensor, view: View) -> Tensor:
    """The box of x that the view names: a view of its memory if the elements are neighbours, else a copy."""
    return Block.apply(x, view=view) if view.is_contiguous else linked(read(Slice, x, view), x, view)
