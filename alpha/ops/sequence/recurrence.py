"""One direction of a recurrent layer: steps of an RNN, a GRU or an LSTM one after the other, with one gradient rule.

The products with the input are made for all steps at once before this; here is what must wait for the step before.
What a step does with its gates is in `recurrent_cells.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from alpha.autograd.function import Function
from alpha.core.numerics import get_precision
from alpha.core.primitive import Array, device_of, span
from alpha.ops.activation.smooth import tanh_backward, tanh_forward
from alpha.ops.kernel.elementwise import add
from alpha.ops.kernel.rectifier import relu_backward, relu_forward
from alpha.ops.kernel.sums import sum_axis1
from alpha.ops.kernel.views import View, write_view
from alpha.ops.matmul.matmul import matmul_batch
from alpha.ops.sequence.packing import Counts, starts_of
from alpha.ops.sequence.recurrent_cells import gru_cell, gru_cell_gradient, lstm_cell, lstm_cell_gradient

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


Shape = tuple[int, ...]


class Steps(NamedTuple):
    """Steps of one direction.

    Attributes:
        kind: "RNN", "GRU" or "LSTM".
        relu: of an RNN, max(X, 0) in place of tanh.
        sizes: how many sequences have each step, which never grows. X has so many rows for it, one step after the
            other, and the sequences that go on are the first ones. So the states before a step are the first rows of
            those behind the step before: no mask is needed, and nothing beyond the end of a sequence is computed.
    """

    kind: str
    relu: bool
    sizes: Counts


def product(A: Array, B: Array, precision: str, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """A B of two matrices, each of which may be transposed."""
    Y = matmul_batch(A.reshape(1, *A.shape), B.reshape(1, *B.shape), transpose_a, transpose_b, precision)
    return Y.reshape(*Y.shape[1:])


def joined(A: Array, B: Array) -> Array:
    """The rows of two matrices, one below the other   (M, C), (N, C) -> (M + N, C)"""
    Y = device_of(A).empty((A.shape[0] + B.shape[0], A.shape[1]), A.dtype)
    put(span(Y, 0, A.shape), A)
    put(span(Y, A.size, B.shape), B)
    return Y


def put(Y: Array, X: Array) -> None:
    """Y becomes X, in place   both (...)"""
    write_view(Y, View.whole(Y.shape), X, View.whole(X.shape))


class Recurrent(Function):
    """All steps of one direction

    X (T, N, gates H) or (rows, gates H), W (gates H, R), b (gates H,) or None, h (N, R), of an LSTM c (N, H) and maybe
    P (R, H) -> Y (rows R,), the states one after the other; of an LSTM (rows R + N H,), with each last c behind them.

    A step computes G = h W^T + b, then the next state from X_t and G. R is H, or the rows of P, by which the state of
    an LSTM is multiplied. With "bf16" the states are float32, and the products of a step have the precision "tf32".

    Args of forward:
        steps: the kind of the steps, and how many sequences have each.
    """

    def forward(
        self, X: Array, W: Array, b: Array | None, h: Array, c: Array | None, P: Array | None, *, steps: Steps
    ) -> Array:
        precision = get_precision()
        self.precision = "tf32" if precision == "bf16" else precision
        (kind, self.relu, sizes), self.projected, self.shape = steps, P is not None, X.shape
        width, (N, R) = X.shape[-1], h.shape
        H, rows = width // GATES[kind], sum(sizes)
        self.kind, self.dims, self.sizes, self.starts = kind, (H, R, rows), sizes, tuple(starts_of(sizes).tolist())
        self.flops = 2 * rows * R * (width + (0 if P is None else H))
        empty = device_of(X).empty
        Y = empty(rows * R + (0 if c is None else N * H), X.dtype)
        self.K = empty((rows, 4 * H) if kind != "RNN" else 0, X.dtype)
        self.C = empty((rows - sizes[-1], H) if c is not None else 0, X.dtype)
        self.full = empty((rows, H) if self.projected else 0, X.dtype)  # the states before the product with P
        self.save(Y, W, h, *[array for array in (c, P) if array is not None])
        for t in range(len(sizes)):
            before = self._before(Y, h, t)
            G = product(before, W, self.precision, transpose_b=True)
            self._step(t, self._rows(X, t, width), G if b is None else add(G, b, out=G), before)
        return Y

    def _rows(self, X: Array, t: int, width: int) -> Array:
        """The rows of step t of an array that has a row for each sequence that has the step."""
        return span(X, self.starts[t] * width, (self.sizes[t], width))

    def _before(self, Y: Array, h: Array, t: int) -> Array:
        """The states before step t of the sequences that have it."""
        R = self.dims[1]
        return h if t == 0 else span(Y, self.starts[t - 1] * R, (self.sizes[t], R))

    def _cells(self, Y: Array, c: Array, t: int) -> tuple[Array, Array]:
        """The c of an LSTM before and after step t; those of the last step are part of the result."""
        (H, R, rows), n = self.dims, self.sizes[t]
        before = c if t == 0 else span(self.C, self.starts[t - 1] * H, (n, H))
        last = t == len(self.sizes) - 1
        return before, span(Y, rows * R, (n, H)) if last else span(self.C, self.starts[t] * H, (n, H))

    def _ended(self, Y: Array, t: int) -> Array:
        """The part of the result, or of its gradient, for the last c of the sequences that end with step t."""
        H, R, rows = self.dims
        after = self.sizes[t + 1]
        return span(Y, rows * R + after * H, (self.sizes[t] - after, H))

    def _step(self, t: int, X: Array, G: Array, before: Array) -> None:
        Y, _, _, *more = self.saved
        H, R, _ = self.dims
        after = self._rows(Y, t, R)
        K = self._rows(self.K, t, 4 * H) if self.kind != "RNN" else None
        if self.kind == "RNN":
            (relu_forward if self.relu else tanh_forward)(add(X, G, out=G), out=after)
        elif self.kind == "GRU":
            gru_cell(X, G, before, K, after)
        else:
            cell, next_cell = self._cells(Y, more[0], t)
            full = self._rows(self.full, t, H) if self.projected else after
            lstm_cell(X, G, cell, K, next_cell, full)
            if self.projected:
                put(after, product(full, more[1], self.precision, transpose_b=True))
            if t + 1 < len(self.sizes) and self.sizes[t + 1] != self.sizes[t]:
                ended = self._ended(Y, t)
                put(ended, span(next_cell, self.sizes[t + 1] * H, ended.shape))

    def backward(self, dY: Array) -> Any:
        Y, W, h, *more = self.saved
        (H, R, rows), width, sizes, device = self.dims, W.shape[0], self.sizes, device_of(dY)
        dX = device.empty(self.shape, dY.dtype)
        dG = device.empty((rows, width), dY.dtype) if self.kind == "GRU" else dX
        full = device.empty((rows, R) if self.projected else 0, dY.dtype)  # the gradients of what P made
        dh = device.zeros((sizes[-1], R), dY.dtype)
        dc = span(dY, rows * R, (sizes[-1], H)) if more else None
        for t in reversed(range(len(sizes))):
            if sizes[t] != dh.shape[0]:
                dh = joined(dh, device.zeros((sizes[t] - dh.shape[0], R), dY.dtype))
                dc = joined(dc, self._ended(dY, t)) if more else None
            d = add(self._rows(dY, t, R), dh)
            if self.projected:
                put(self._rows(full, t, R), d)
                d = product(d, more[1], self.precision)
            gradients = [self._rows(array, t, width) for array in (dX, dG)]
            direct, dc = self._step_back(t, d, dc, gradients)
            dh = product(gradients[1], W, self.precision)
            dh = dh if direct is None else add(dh, direct, out=dh)
        dW = self._weight_gradient(Y, h, dG) if self.needs_input_grad[1] else None
        db = sum_axis1(dG.reshape(1, rows, width)).reshape(width) if self.needs_input_grad[2] else None
        dP = None
        if self.projected:
            dP = product(full, self.full, self.precision, transpose_a=True)
        return dX, dW, db, dh, dc, dP

    def _weight_gradient(self, Y: Array, h: Array, dG: Array) -> Array:
        """The sum over all rows of dG^T times the state before   dG (.., width) -> (width, R)"""
        (_, R, rows), N, width = self.dims, self.sizes[0], dG.shape[-1]
        dW = product(span(dG, 0, (N, width)), h, self.precision, transpose_a=True)
        if rows == N:
            return dW
        before = span(Y, 0, (rows - N, R))
        if self.sizes[-1] != N:
            before = device_of(Y).empty((rows - N, R), Y.dtype)
            for t in range(1, len(self.sizes)):
                put(span(before, (self.starts[t] - N) * R, (self.sizes[t], R)), self._before(Y, h, t))
        later = span(dG, N * width, (rows - N, width))
        return add(dW, product(later, before, self.precision, transpose_a=True), out=dW)

    def _step_back(self, t: int, d: Array, dc: Array | None, rows: list[Array]) -> tuple[Array | None, Array | None]:
        """Write the gradients of X and G of a step, and return the direct one of the states before, and that of c."""
        Y, _, h, *more = self.saved
        H, R, _ = self.dims
        device = device_of(d)
        if self.kind == "RNN":
            (relu_backward if self.relu else tanh_backward)(d, self._rows(Y, t, R), out=rows[0])
            return None, None
        K = self._rows(self.K, t, 4 * H)
        if self.kind == "GRU":
            direct = device.empty(d.shape, d.dtype)
            gru_cell_gradient(d, K, self._before(Y, h, t), *rows, direct)
            return direct, None
        before = device.empty((self.sizes[t], H), d.dtype)
        lstm_cell_gradient(d, dc, K, *self._cells(Y, more[0], t), rows[0], before)
        return None, before
