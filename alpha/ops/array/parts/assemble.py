"""A result that is made of boxes of its inputs: the common part of slices, permutations, joins and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alpha.autograd.function import Function
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.ops.kernel.views import Shape, View, read_view, write_view


class Piece(NamedTuple):
    """Box `target` of the result is box `source` of input number `input`."""

    input: int
    source: View
    target: View


class Assemble(Function):
    """Y = boxes of the inputs, next to each other, and `fill` elsewhere   X0 (...), X1 (...), .. -> Y shape

    No element of an input is read twice, so a gradient is copied back in the same way.
    """

    def forward(self, *arrays: Array, shape: Shape, pieces: Sequence[Piece], fill: float | None = None) -> Array:
        self.shapes = [tuple(X.shape) for X in arrays]
        self.pieces = pieces
        first = pieces[0] if pieces else None
        if first is not None and len(pieces) == 1 and first.target == View.whole(shape):
            return read_view(arrays[first.input], first.source)
        device = device_of(arrays[0])
        Y = device.empty(shape, arrays[0].dtype)
        if fill is not None:
            device.fill(Y, fill)
        for piece in pieces:
            write_view(Y, piece.target, arrays[piece.input], piece.source)
        return Y

    def backward(self, dY: Array) -> Any:
        return [self.gradient(dY, i) if needed else None for i, needed in enumerate(self.needs_input_grad)]

    def gradient(self, dY: Array, i: int) -> Array:
        """The gradient of input i, which is 0 at elements that were not read."""
        shape, pieces = self.shapes[i], [piece for piece in self.pieces if piece.input == i]
        whole = View.whole(shape)
        if len(pieces) == 1 and pieces[0].source == whole:
            return read_view(dY, pieces[0].target)
        device = device_of(dY)
        covered = sum(piece.source.size for piece in pieces) == whole.size
        dX = (device.empty if covered else device.zeros)(shape, dY.dtype)
        for piece in pieces:
            write_view(dX, piece.source, dY, piece.target)
        return dX


def read(kind: type[Assemble], x: Tensor, view: View) -> Tensor:
    """The box of x that the view names, a copy; `kind` names the operator."""
    return kind.apply(x, shape=view.shape, pieces=[Piece(0, view, View.whole(view.shape))])
