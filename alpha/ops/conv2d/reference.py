"""Convolution by its formula, for tests: in float64, without trimming, so that zeros are multiplied."""

from __future__ import annotations

import numpy as np

from alpha.ops.conv2d.shape import ConvShape
from alpha.primitive import Array


def _padded(s: ConvShape, X: Array | None) -> Array:
    """X with its padding in float64, large enough for the last filter; all zeros if X is None."""
    height = max(s.IH + s.ph, (s.OH - 1) * s.sh + s.FH - s.ph) + s.ph
    width = max(s.IW + s.pw, (s.OW - 1) * s.sw + s.FW - s.pw) + s.pw
    padded = np.zeros((s.N, height, width, s.IC))
    if X is not None:
        padded[:, s.ph : s.ph + s.IH, s.pw : s.pw + s.IW] = X
    return padded


def _window(s: ConvShape, padded: Array, fh: int, fw: int) -> Array:
    return padded[:, fh : fh + s.OH * s.sh : s.sh, fw : fw + s.OW * s.sw : s.sw][:, : s.OH, : s.OW]


def forward(X: Array, W: Array, s: ConvShape) -> Array:
    """Y[n, oh, ow, oc] = sum over fh, fw, ic of X[n, oh sh - ph + fh, ow sw - pw + fw, ic] W[oc, fh, fw, ic]"""
    padded, Y = _padded(s, X), np.zeros(s.Y)
    for fh in range(s.FH):
        for fw in range(s.FW):
            Y += _window(s, padded, fh, fw) @ W[:, fh, fw].T.astype(np.float64)
    return Y


def backward_input(dY: Array, W: Array, s: ConvShape) -> Array:
    """The adjoint of `forward` in X."""
    padded = _padded(s, None)
    for fh in range(s.FH):
        for fw in range(s.FW):
            _window(s, padded, fh, fw)[...] += dY @ W[:, fh, fw].astype(np.float64)
    return padded[:, s.ph : s.ph + s.IH, s.pw : s.pw + s.IW]


def backward_weight(X: Array, dY: Array, s: ConvShape) -> Array:
    """The adjoint of `forward` in W."""
    padded, dW = _padded(s, X), np.zeros(s.W)
    g = dY.reshape(-1, s.OC).astype(np.float64)
    for fh in range(s.FH):
        for fw in range(s.FW):
            dW[:, fh, fw] = g.T @ _window(s, padded, fh, fw).reshape(-1, s.IC)
    return dW
