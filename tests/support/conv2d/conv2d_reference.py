"""Convolution by its formula: in float64, without trimming, so that zeros are multiplied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from alpha.core.primitive import Array
from alpha.ops.conv2d.shape import ConvShape


def _axes(s: ConvShape) -> tuple[tuple[int, ...], ...]:
    """Inputs, taps, strides, paddings, dilations and outputs, each of depth, height and width."""
    return tuple(zip(s.depth, s.height, s.width, strict=True))


def _padded(s: ConvShape, X: Array | None) -> Array:
    """X (N, depth, height, width, IC) with its padding in float64, large enough for the last filter; zeros for None."""
    lengths = [max(a.I + a.p, (a.O - 1) * a.s + (a.F - 1) * a.d + 1 - a.p) + a.p for a in (s.depth, s.height, s.width)]
    padded = np.zeros((s.N, *lengths, s.IC))
    if X is not None:
        _inside(s, padded)[...] = X.reshape(s.N, s.ID, s.IH, s.IW, s.IC)
    return padded


def _inside(s: ConvShape, padded: Array) -> Array:
    """The part without the padding."""
    return padded[:, s.pd : s.pd + s.ID, s.ph : s.ph + s.IH, s.pw : s.pw + s.IW]


def _taps(s: ConvShape) -> Iterator[tuple[int, int, int]]:
    return itertools.product(range(s.FD), range(s.FH), range(s.FW))


def _window(s: ConvShape, padded: Array, tap: tuple[int, int, int]) -> Array:
    """Part of the padded input that the outputs read for a tap."""
    _, _, strides, _, gaps, outputs = _axes(s)
    for axis, (f, step, gap, O) in enumerate(zip(tap, strides, gaps, outputs, strict=True), 1):
        first = f * gap
        padded = padded[(slice(None),) * axis + (slice(first, first + (O - 1) * step + 1, step),)]
    return padded


def _grouped(s: ConvShape, A: Array) -> Array:
    """Rows of channels by group   A (..., C) -> (pixels, groups, C / groups)"""
    return A.reshape(-1, s.groups, A.shape[-1] // s.groups).astype(np.float64)


def _filters(s: ConvShape, W: Array, tap: tuple[int, int, int]) -> Array:
    """One tap of W   W (OC, FD FH, FW, IC / groups) -> (groups, OC / groups, IC / groups)"""
    fd, fh, fw = tap
    return W[:, fd * s.FH + fh, fw].reshape(s.groups, s.OC // s.groups, s.IC // s.groups).astype(np.float64)


def forward(X: Array, W: Array, s: ConvShape) -> Array:
    """Y[n, oh, ow, oc] = sum over fh, fw, ic of X[n, oh sh - ph + fh dh, ow sw - pw + fw dw, ic] W[oc, fh, fw, ic]

    With a depth also over fd, for each od. Arrays have the shapes of `ConvShape`.
    """
    padded, Y = _padded(s, X), np.zeros(s.Y)
    for tap in _taps(s):
        x, w = _grouped(s, _window(s, padded, tap)), _filters(s, W, tap)
        Y += np.einsum("pgi,goi->pgo", x, w, optimize=s.groups == 1).reshape(s.Y)
    return Y


def backward_input(dY: Array, W: Array, s: ConvShape) -> Array:
    """The adjoint of `forward` in X."""
    padded, g = _padded(s, None), _grouped(s, dY)
    for tap in _taps(s):
        window = _window(s, padded, tap)
        window += np.einsum("pgo,goi->pgi", g, _filters(s, W, tap), optimize=s.groups == 1).reshape(window.shape)
    return _inside(s, padded).reshape(s.X)


def backward_weight(X: Array, dY: Array, s: ConvShape) -> Array:
    """The adjoint of `forward` in W."""
    padded, dW, g = _padded(s, X), np.zeros(s.W), _grouped(s, dY)
    for tap in _taps(s):
        x, (fd, fh, fw) = _grouped(s, _window(s, padded, tap)), tap
        dW[:, fd * s.FH + fh, fw] = np.einsum("pgo,pgi->goi", g, x, optimize=s.groups == 1).reshape(s.OC, -1)
    return dW
