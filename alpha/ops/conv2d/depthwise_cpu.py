"""Depthwise convolutions on numpy: groups of one input channel, tap by tap over the outputs whose tap meets the input.

A tap is a product of two views, so no padded zero and no gap of a dilated filter is multiplied. Each image is computed
by one worker.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alpha.core.primitive import Array
from alpha.ops.conv2d.cpu import scratch
from alpha.ops.conv2d.shape import ConvShape, valid_outputs
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

Window = tuple[slice, slice]  # rows, columns


def taps(s: ConvShape) -> Iterator[tuple[int, int, Window, Window]]:
    """Each tap (fh, fw) that meets the input, with its windows of X and of Y."""
    for fh in range(s.FH):
        rows = _windows(fh * s.dh, s.OH, s.IH, s.sh, s.ph)
        for fw in range(s.FW):
            columns = _windows(fw * s.dw, s.OW, s.IW, s.sw, s.pw)
            if rows and columns:
                yield fh, fw, (rows[0], columns[0]), (rows[1], columns[1])


def _windows(f: int, O: int, size: int, stride: int, p: int) -> tuple[slice, slice] | None:
    """The inputs and the outputs of an axis that a tap at distance f from the first connects, or None."""
    begin, end = valid_outputs(f, O, size, stride, p)
    if begin >= end:
        return None
    first = begin * stride - p + f
    return slice(first, first + (end - begin - 1) * stride + 1, stride), slice(begin, end)


def _by_channel(A: Array, s: ConvShape) -> Array:
    """Y or dY of one image, with an axis for the output channels of each input channel if there are several."""
    return A if s.OC == s.IC else A.reshape(*A.shape[:-1], s.IC, s.OC // s.IC)


def _filters(W: Array, s: ConvShape) -> Array:
    """W (OC, FH, FW, 1) -> (FH, FW, IC, [OC / IC])"""
    return np.ascontiguousarray(_by_channel(W[..., 0].transpose(1, 2, 0), s))


def forward(X: Array, W: Array, s: ConvShape) -> Array:
    """ConvV2   X, W -> Y"""
    Y, filters = cpu_empty(s.Y, X.dtype), _filters(W, s)

    def image(n: int, _: int) -> None:
        x, y = X[n] if s.OC == s.IC else X[n][..., None], _by_channel(Y[n], s)
        y.fill(0)
        for fh, fw, inputs, outputs in taps(s):
            target = y[outputs]
            target += np.multiply(x[inputs], filters[fh, fw], out=scratch("product", target.shape, X.dtype))

    workers.parallel_for(s.N, 1, image)
    return Y


def backward_input(dY: Array, W: Array, s: ConvShape) -> Array:
    """KS-deconv   dY, W -> dX"""
    dX, filters = cpu_empty(s.X, dY.dtype), _filters(W, s)

    def image(n: int, _: int) -> None:
        x, y = dX[n], _by_channel(dY[n], s)
        x.fill(0)
        for fh, fw, inputs, outputs in taps(s):
            g = y[outputs]
            product = np.multiply(g, filters[fh, fw], out=scratch("product", g.shape, dY.dtype))
            target = x[inputs]
            target += product if s.OC == s.IC else product.sum(-1)

    workers.parallel_for(s.N, 1, image)
    return dX


def backward_weight(X: Array, dY: Array, s: ConvShape) -> Array:
    """Sk-dilated   X, dY -> dW; the images' sums are added in order"""
    dW = cpu_empty(s.W, X.dtype)
    dW.fill(0)
    letters = "hwc,hwc->c" if s.OC == s.IC else "hwc,hwcm->cm"

    def part(n: int) -> Array:
        found = np.zeros(s.W, X.dtype)
        y = _by_channel(dY[n], s)
        for fh, fw, inputs, outputs in taps(s):
            found[:, fh, fw, 0] = np.einsum(letters, X[n][inputs], y[outputs]).reshape(-1)
        return found

    def add(_: int, found: Array) -> None:
        np.add(dW, found, out=dW)

    workers.sum_in_order(s.N, part, add)
    return dW
