"""Convolution by its formula, for tests: in float64, without trimming, so that zeros are multiplied."""

from __future__ import annotations

import numpy as np

from alpha.ops.conv2d.shape import ConvShape
from alpha.primitive import Array


def _padded(s: ConvShape, X: Array | None) -> Array:
    """X with its padding in float64, large enough for the last filter; all zeros if X is None."""
    height = max(s.IH + s.ph, (s.OH - 1) * s.sh + (s.FH - 1) * s.dh + 1 - s.ph) + s.ph
    width = max(s.IW + s.pw, (s.OW - 1) * s.sw + (s.FW - 1) * s.dw + 1 - s.pw) + s.pw
    padded = np.zeros((s.N, height, width, s.IC))
    if X is not None:
        padded[:, s.ph : s.ph + s.IH, s.pw : s.pw + s.IW] = X
    return padded


def _window(s: ConvShape, padded: Array, fh: int, fw: int) -> Array:
    first, column = fh * s.dh, fw * s.dw
    return padded[:, first : first + s.OH * s.sh : s.sh, column : column + s.OW * s.sw : s.sw][:, : s.OH, : s.OW]


def _grouped(s: ConvShape, A: Array) -> Array:
    """Rows of channels by group   A (..., C) -> (pixels, groups, C / groups)"""
    return A.reshape(-1, s.groups, A.shape[-1] // s.groups).astype(np.float64)


def _filters(s: ConvShape, W: Array, fh: int, fw: int) -> Array:
    """One tap of W   W (OC, FH, FW, IC / groups) -> (groups, OC / groups, IC / groups)"""
    return W[:, fh, fw].reshape(s.groups, s.OC // s.groups, s.IC // s.groups).astype(np.float64)


def forward(X: Array, W: Array, s: ConvShape) -> Array:
    """Y[n, oh, ow, oc] = sum over fh, fw, ic of X[n, oh sh - ph + fh dh, ow sw - pw + fw dw, ic] W[oc, fh, fw, ic]"""
    padded, Y = _padded(s, X), np.zeros(s.Y)
    for fh in range(s.FH):
        for fw in range(s.FW):
            x, w = _grouped(s, _window(s, padded, fh, fw)), _filters(s, W, fh, fw)
            Y += np.einsum("pgi,goi->pgo", x, w, optimize=s.groups == 1).reshape(s.Y)
    return Y


def backward_input(dY: Array, W: Array, s: ConvShape) -> Array:
    """The adjoint of `forward` in X."""
    padded, g = _padded(s, None), _grouped(s, dY)
    for fh in range(s.FH):
        for fw in range(s.FW):
            window = _window(s, padded, fh, fw)
            window += np.einsum("pgo,goi->pgi", g, _filters(s, W, fh, fw), optimize=s.groups == 1).reshape(window.shape)
    return padded[:, s.ph : s.ph + s.IH, s.pw : s.pw + s.IW]


def backward_weight(X: Array, dY: Array, s: ConvShape) -> Array:
    """The adjoint of `forward` in W."""
    padded, dW, g = _padded(s, X), np.zeros(s.W), _grouped(s, dY)
    for fh in range(s.FH):
        for fw in range(s.FW):
            x = _grouped(s, _window(s, padded, fh, fw))
            dW[:, fh, fw] = np.einsum("pgo,pgi->goi", g, x, optimize=s.groups == 1).reshape(s.OC, -1)
    return dW
