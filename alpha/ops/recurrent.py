"""One direction of a recurrent layer: steps of an RNN, a GRU or an LSTM one after the other, with one gradient rule.

The products with the input are made for all steps at once before this; here is what must wait for the step before. The
gates of a step lie next to each other in PyTorch's order, i f g o of an LSTM and r z n of a GRU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.numerics import get_precision
from alpha.ops.activation import relu_backward, relu_forward
from alpha.ops.activation_smooth import tanh_backward, tanh_forward
from alpha.ops.dtypes import BLOCK, require_float32
from alpha.ops.elementwise import add
from alpha.ops.matmul import matmul_batch
from alpha.ops.reduce import sum_axis1
from alpha.ops.views import View, write_view
from alpha.primitive import Array, primitive
from alpha.tensor import Tensor

Shape = tuple[int, ...]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@primitive
def lstm_cell(X: Array, G: Array, C: Array, K: Array, C1: Array, Y: Array) -> None:
    """C1 = f C + i g and Y = o tanh(C1), in place, with the gates i f g o of X + G, which K keeps

    X, G, K (N, 4 H), C, C1, Y (N, H)
    """


@primitive
def lstm_cell_gradient(dY: Array, dC1: Array, K: Array, C: Array, C1: Array, dG: Array, dC: Array) -> None:
    """The gradients of X + G and of C, in place   dY, dC1, C, C1, dC (N, H), K, dG (N, 4 H)"""


@primitive
def gru_cell(X: Array, G: Array, S: Array, K: Array, Y: Array) -> None:
    """Y = n + z (S - n) with n = tanh(X_n + r G_n), in place; K keeps r z n and G_n

    X, G (N, 3 H), K (N, 4 H), S, Y (N, H)
    """


@primitive
def gru_cell_gradient(dY: Array, K: Array, S: Array, dX: Array, dG: Array, dS: Array) -> None:
    """The gradients of X and G, and that of S but for its part through G, in place

    dY, S, dS (N, H), K (N, 4 H), dX, dG (N, 3 H)
    """


# -- cpu --------------------------------------------------------------------------------------------


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


@lstm_cell.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, G: Array, C: Array, K: Array, C1: Array, Y: Array) -> None:
    H = C.shape[1]
    K[...] = X + G
    g = np.tanh(K[:, 2 * H : 3 * H])
    K[...] = _sigmoid(K)
    K[:, 2 * H : 3 * H] = g
    i, f, g, o = np.split(K, 4, axis=1)
    C1[...] = f * C + i * g
    Y[...] = o * np.tanh(C1)


@lstm_cell_gradient.impl("cpu")
@np.errstate(all="ignore")
def _(dY: Array, dC1: Array, K: Array, C: Array, C1: Array, dG: Array, dC: Array) -> None:
    i, f, g, o = np.split(K, 4, axis=1)
    t = np.tanh(C1)
    dc = dC1 + dY * o * (1 - t * t)
    parts = dc * g * i * (1 - i), dc * C * f * (1 - f), dc * i * (1 - g * g), dY * t * o * (1 - o)
    np.concatenate(parts, axis=1, out=dG)
    dC[...] = dc * f


@gru_cell.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, G: Array, S: Array, K: Array, Y: Array) -> None:
    H = S.shape[1]
    K[:, : 2 * H] = _sigmoid(X[:, : 2 * H] + G[:, : 2 * H])
    r, z, n, own = np.split(K, 4, axis=1)
    own[...] = G[:, 2 * H :]
    n[...] = np.tanh(X[:, 2 * H :] + r * own)
    Y[...] = n + z * (S - n)


@gru_cell_gradient.impl("cpu")
@np.errstate(all="ignore")
def _(dY: Array, K: Array, S: Array, dX: Array, dG: Array, dS: Array) -> None:
    r, z, n, own = np.split(K, 4, axis=1)
    dn = dY * (1 - z) * (1 - n * n)
    dr, dz = dn * own * r * (1 - r), dY * (S - n) * z * (1 - z)
    np.concatenate((dr, dz, dn), axis=1, out=dX)
    np.concatenate((dr, dz, dn * r), axis=1, out=dG)
    dS[...] = dY * z


# -- cuda -------------------------------------------------------------------------------------------


@lstm_cell.impl("cuda")
def _(X: Array, G: Array, C: Array, K: Array, C1: Array, Y: Array) -> None:
    _launch("lstm", C, K, C1, Y, X, G, C)


@lstm_cell_gradient.impl("cuda")
def _(dY: Array, dC1: Array, K: Array, C: Array, C1: Array, dG: Array, dC: Array) -> None:
    _launch("lstm_gradient", C, dG, dC, dY, dC1, K, C, C1)


@gru_cell.impl("cuda")
def _(X: Array, G: Array, S: Array, K: Array, Y: Array) -> None:
    _launch("gru", S, K, Y, X, G, S)


@gru_cell_gradient.impl("cuda")
def _(dY: Array, K: Array, S: Array, dX: Array, dG: Array, dS: Array) -> None:
    _launch("gru_gradient", S, dX, dG, dS, dY, K, S)


def _launch(entry: str, state: Array, *arrays: Array) -> None:
    require_float32(entry, *arrays)
    if state.size:
        sizes = map(np.int64, (state.shape[1], state.size))
        state.device.launch("recurrent/cells.cu", entry, -(-state.size // BLOCK), BLOCK, (*arrays, *sizes), {})


# -- operator ---------------------------------------------------------------------------------------


def span(X: Array, start: int, shape: Shape) -> Array:
    """Neighbouring elements of an array from number `start` on, under a shape of their own; a view."""
    flat, stop = X.reshape(X.size), start + math.prod(shape)
    found = flat[start:stop] if isinstance(flat, np.ndarray) else flat.slice_rows(start, stop)
    return found.reshape(shape)


def product(A: Array, B: Array, precision: str, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """A B of two matrices, each of which may be transposed."""
    Y = matmul_batch(A.reshape(1, *A.shape), B.reshape(1, *B.shape), transpose_a, transpose_b, precision)
    return Y.reshape(*Y.shape[1:])


class Recurrent(Function):
    """All steps of one direction

    X (T, N, gates H), W (gates H, R), b (gates H,) or None, h (N, R), of an LSTM c (N, H) and maybe P (R, H)
    -> Y (T N R,), the states one after the other; of an LSTM (T N R + N H,), with the last c behind them.

    A step computes G = h W^T + b, then the next state from X_t and G. R is H, or the rows of P, by which the state of
    an LSTM is multiplied. With "bf16" the states are float32, and the products of a step have the precision "tf32".

    Args of forward:
        kind: "RNN", "GRU" or "LSTM".
        relu: of an RNN, max(X, 0) in place of tanh.
    """

    def forward(
        self, X: Array, W: Array, b: Array | None, h: Array, c: Array | None, P: Array | None, *, kind: str, relu: bool
    ) -> Array:
        precision = get_precision()
        self.precision = "tf32" if precision == "bf16" else precision
        self.kind, self.relu, self.projected = kind, relu, P is not None
        (T, N, width), R = X.shape, h.shape[1]
        H = width // GATES[kind]
        self.sizes = T, N, H, R
        self.flops = 2 * T * N * R * (width + (0 if P is None else H))
        empty = Tensor(X).device.empty
        Y = empty(T * N * R + (0 if c is None else N * H), X.dtype)
        self.K = empty((T, N, 4 * H) if kind != "RNN" else 0, X.dtype)
        self.C = empty((T, N, H) if c is not None else 0, X.dtype)
        self.full = empty((T, N, H) if self.projected else 0, X.dtype)  # the states before the product with P
        self.save(Y, W, h, *[array for array in (c, P) if array is not None])
        for t in range(T):
            before = self._state(Y, h, t)
            G = product(before, W, self.precision, transpose_b=True)
            self._step(t, span(X, t * N * width, (N, width)), G if b is None else add(G, b, out=G), before)
        return Y

    def _state(self, Y: Array, h: Array, t: int) -> Array:
        """The state before step t."""
        _, N, _, R = self.sizes
        return h if t == 0 else span(Y, (t - 1) * N * R, (N, R))

    def _cell(self, Y: Array, c: Array, t: int) -> Array:
        """The c of an LSTM before step t; the last one is part of the result."""
        T, N, H, R = self.sizes
        if t == 0:
            return c
        return span(Y, T * N * R, (N, H)) if t == T else span(self.C, (t - 1) * N * H, (N, H))

    def _step(self, t: int, X: Array, G: Array, before: Array) -> None:
        Y, _, h, *more = self.saved
        _, N, H, _ = self.sizes
        after = self._state(Y, h, t + 1)
        K = span(self.K, t * N * 4 * H, (N, 4 * H)) if self.kind != "RNN" else None
        if self.kind == "RNN":
            (relu_forward if self.relu else tanh_forward)(add(X, G, out=G), out=after)
        elif self.kind == "GRU":
            gru_cell(X, G, before, K, after)
        else:
            cells = self._cell(Y, more[0], t), self._cell(Y, more[0], t + 1)
            full = span(self.full, t * N * H, (N, H)) if self.projected else after
            lstm_cell(X, G, cells[0], K, cells[1], full)
            if self.projected:
                made = product(full, more[1], self.precision, transpose_b=True)
                write_view(after, View.whole(after.shape), made, View.whole(after.shape))

    def backward(self, dY: Array) -> Any:
        Y, W, h, *more = self.saved
        T, N, H, R = self.sizes
        width, device = W.shape[0], Tensor(dY).device
        dX = device.empty((T, N, width), dY.dtype)
        dG = device.empty((T, N, width), dY.dtype) if self.kind == "GRU" else dX
        full = device.empty((T, N, R) if self.projected else 0, dY.dtype)  # the gradients of what P made
        dh = device.zeros((N, R), dY.dtype)
        dc = span(dY, T * N * R, (N, H)) if more else None
        for t in reversed(range(T)):
            d = add(span(dY, t * N * R, (N, R)), dh)
            if self.projected:
                target = span(full, t * N * R, (N, R))
                write_view(target, View.whole(target.shape), d, View.whole(d.shape))
                d = product(d, more[1], self.precision)
            rows = [span(array, t * N * width, (N, width)) for array in (dX, dG)]
            direct, dc = self._step_back(t, d, dc, rows)
            dh = product(rows[1], W, self.precision)
            dh = dh if direct is None else add(dh, direct, out=dh)
        dW = None
        if self.needs[1]:
            dW = product(span(dG, 0, (N, width)), h, self.precision, transpose_a=True)
            if T > 1:
                later = span(dG, N * width, ((T - 1) * N, width)), span(Y, 0, ((T - 1) * N, R))
                dW = add(dW, product(*later, self.precision, transpose_a=True), out=dW)
        db = sum_axis1(dG.reshape(1, T * N, width)).reshape(width) if self.needs[2] else None
        dP = None
        if self.projected:
            dP = product(full.reshape(T * N, R), self.full.reshape(T * N, H), self.precision, transpose_a=True)
        return dX, dW, db, dh, dc, dP

    def _step_back(self, t: int, d: Array, dc: Array | None, rows: list[Array]) -> tuple[Array | None, Array | None]:
        """Write the gradients of X and G of a step; the direct one of the state before, and that of c."""
        Y, _, h, *more = self.saved
        _, N, H, _ = self.sizes
        device = Tensor(d).device
        if self.kind == "RNN":
            (relu_backward if self.relu else tanh_backward)(d, self._state(Y, h, t + 1), out=rows[0])
            return None, None
        K = span(self.K, t * N * 4 * H, (N, 4 * H))
        if self.kind == "GRU":
            direct = device.empty(d.shape, d.dtype)
            gru_cell_gradient(d, K, self._state(Y, h, t), *rows, direct)
            return direct, None
        cells = self._cell(Y, more[0], t), self._cell(Y, more[0], t + 1)
        before = device.empty((N, H), d.dtype)
        lstm_cell_gradient(d, dc, K, *cells, rows[0], before)
        return None, before
