"""Convolutions with groups and dilation of any shape on numpy: for each tap one product of matrices per group."""

from __future__ import annotations

import numpy as np

from alpha.core.primitive import Array
from alpha.ops.conv2d.cpu import Window, taps
from alpha.ops.conv2d.shape import ConvShape


def _part(A: Array, window: Window) -> Array:
    """A view of a window of all images."""
    return A[(slice(None), *window)]


def _by_group(A: Array, s: ConvShape) -> Array:
    """A window (N, H, W, C) -> (groups, N H W, C / groups)"""
    return A.reshape(-1, s.groups, A.shape[-1] // s.groups).transpose(1, 0, 2)


def _filters(W: Array, s: ConvShape) -> Array:
    """W (OC, FH, FW, IC / groups) -> (FH, FW, groups, OC / groups, IC / groups)"""
    return W.reshape(s.groups, s.OC // s.groups, s.FH, s.FW, -1).transpose(2, 3, 0, 1, 4)


def _together(A: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of `_by_group`."""
    return A.transpose(1, 0, 2).reshape(shape)


def forward(X: Array, W: Array, s: ConvShape) -> Array:
    """ConvV2   X, W -> Y"""
    Y, filters = np.zeros(s.Y, X.dtype), _filters(W, s)
    for fh, fw, inputs, outputs in taps(s):
        target = _part(Y, outputs)
        target += _together(_by_group(_part(X, inputs), s) @ filters[fh, fw].swapaxes(1, 2), target.shape)
    return Y


def backward_input(dY: Array, W: Array, s: ConvShape) -> Array:
    """KS-deconv   dY, W -> dX"""
    dX, filters = np.zeros(s.X, dY.dtype), _filters(W, s)
    for fh, fw, inputs, outputs in taps(s):
        target = _part(dX, inputs)
        target += _together(_by_group(_part(dY, outputs), s) @ filters[fh, fw], target.shape)
    return dX


def backward_weight(X: Array, dY: Array, s: ConvShape) -> Array:
    """Sk-dilated   X, dY -> dW"""
    dW = np.zeros(s.W, X.dtype)
    for fh, fw, inputs, outputs in taps(s):
        product = _by_group(_part(dY, outputs), s).swapaxes(1, 2) @ _by_group(_part(X, inputs), s)
        dW[:, fh, fw] = product.reshape(s.OC, -1)
    return dW
