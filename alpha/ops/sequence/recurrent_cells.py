"""Cells of an LSTM and of a GRU: what a step computes after its two matrix products, and the gradients of that.

The gates of a step lie next to each other in PyTorch's order, i f g o of an LSTM and r z n of a GRU. N is the number of
sequences that have the step.
"""

from __future__ import annotations

import numpy as np

from alpha.core.primitive import Array, primitive
from alpha.ops.kernel.casts import BLOCK, require_float32


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
