"""The C-K-S algorithms on numpy and BLAS: they skip the same zeros as the CUDA kernels.

Each algorithm has two forms. "Patches" gathers the output pixels that share one trimmed filter into a matrix and
multiplies it by the filter in one product, which is good for large maps and few channels. "Pixels" (or "taps")
multiplies strided views and gathers nothing. This is good for small maps and many channels, if the product of one
output pixel is large enough.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from alpha.core.primitive import Array
from alpha.ops.conv2d.shape import ConvShape, Segment, SplitSegment, valid_outputs
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

PATCH_BYTES = 1 << 22  # of a gathered matrix; the matrices of all workers fit the last-level cache
LEAST_ROWS = 512  # of a gathered matrix, if the images have as many: BLAS packs the filters again for each matrix
TASKS = 16  # per rectangle, if it has as many images; more workers than these find nothing to do in it

_scratch = threading.local()


def scratch(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Memory that this worker uses again and again, because new pages cost more than the gather itself."""
    size = int(np.prod(shape, dtype=np.int64))
    held = getattr(_scratch, name, None)
    if held is None or held.nbytes < size * dtype.itemsize:
        held = np.empty(size * dtype.itemsize, np.uint8)
        setattr(_scratch, name, held)
    return held[: size * dtype.itemsize].view(dtype).reshape(shape)


def run_tasks(tasks: list[Callable[[], None]]) -> None:
    """Run all tasks on the workers, with one BLAS thread each."""
    workers.parallel_for(len(tasks), 1, lambda start, stop: tasks[start](), blas=True)


def gather(A: Array, row: int, column: int, shape: tuple[int, ...], step: tuple[int, int]) -> Array:
    """Gather patches of A as the rows of a matrix.

    A (N, H, W, C); the patches, of shape (n, rows, columns, h, w), start at (row, column) and move by `step`
    -> (n rows columns, h w C) in this worker's scratch.
    """
    n, rows, columns, h, w = shape
    C, s = A.shape[3], A.strides
    patches = as_strided(
        A[:, row:, column:], (n, rows, columns, h, w * C), (s[0], step[0] * s[1], step[1] * s[2], s[1], s[3])
    )
    matrix = scratch("patches", patches.shape, A.dtype)
    np.copyto(matrix, patches)
    return matrix.reshape(n * rows * columns, h * w * C)


def _images_per_task(N: int, positions: int, floats: int, itemsize: int) -> int:
    """The number of images whose patches fill the scratch, or fewer to make more tasks.

    It depends on the shape and not on the number of workers.

    Args:
        positions: the output pixels of one image.
        floats: the elements of its patches.
    """
    fit = max(1, PATCH_BYTES // max(1, floats * itemsize))
    return min(fit, max(-(-N // TASKS), -(-LEAST_ROWS // positions)))


# -- ConvV2: forward (Algorithm 1) ----------------------------------------------------------------


def conv_v2_patches(X: Array, W: Array, s: ConvShape) -> Array:
    """Y by rectangles of output pixels that share one trimmed filter   X, W -> Y"""
    Y = cpu_empty(s.Y, X.dtype)
    tasks = []
    for row in s.row_segments:
        for column in s.column_segments:
            tasks += _conv_v2_rectangle(X, W, Y, s, row, column)
    run_tasks(tasks)
    return Y


def _conv_v2_rectangle(
    X: Array, W: Array, Y: Array, s: ConvShape, row: Segment, column: Segment
) -> list[Callable[[], None]]:
    h, w = row.f_e - row.f_s, column.f_e - column.f_s
    rows, columns = row.stop - row.start, column.stop - column.start
    if h * w == 0:
        Y[:, row.start : row.stop, column.start : column.stop] = 0
        return []
    trimmed = W[:, row.f_s : row.f_e, column.f_s : column.f_e].reshape(s.OC, -1)
    images = _images_per_task(s.N, rows * columns, rows * columns * h * w * s.IC, X.itemsize)

    def task(n: int) -> None:
        x = X[n : n + images]
        shape = (len(x), rows, columns, h, w)
        patches = gather(x, row.first, column.first, shape, (s.sh, s.sw))
        product = scratch("product", (len(patches), s.OC), X.dtype)
        np.matmul(patches, trimmed.T, out=product)
        Y[n : n + images, row.start : row.stop, column.start : column.stop] = product.reshape(
            len(x), rows, columns, s.OC
        )

    return [lambda n=n: task(n) for n in range(0, s.N, images)]  # type: ignore[misc]


def conv_v2_pixels(X: Array, W: Array, s: ConvShape) -> Array:
    """Y by output pixels, tap by tap over the trimmed filter   X, W -> Y"""
    Y = cpu_empty(s.Y, X.dtype)

    def task(position: int) -> None:
        oh, ow = divmod(position, s.OW)
        taps = [
            (X[:, oh * s.sh - s.ph + fh, ow * s.sw - s.pw + fw], W[:, fh, fw].T)
            for fh in _taps(s.row_segments, oh)
            for fw in _taps(s.column_segments, ow)
        ]
        Y[:, oh, ow] = _sum_of_products(taps, (s.N, s.OC), X.dtype)

    workers.parallel_for(s.OH * s.OW, 1, lambda start, stop: task(start), blas=True)
    return Y


def _taps(axis: tuple[Segment, ...], o: int) -> range:
    return next(range(g.f_s, g.f_e) for g in axis if g.start <= o < g.stop)


def _sum_of_products(pairs: list[tuple[Array, Array]], shape: tuple[int, int], dtype: np.dtype[Any]) -> Array | float:
    """The sum of A B over the pairs, in this worker's scratch."""
    if not pairs:
        return 0.0
    total, product = scratch("total", shape, dtype), scratch("product", shape, dtype)
    np.matmul(*pairs[0], out=total)
    for A, B in pairs[1:]:
        np.matmul(A, B, out=product)
        np.add(total, product, out=total)
    return total


# -- KS-deconv: input gradient (Algorithms 2 and 2B) ----------------------------------------------


def split_filter(W: Array, s: ConvShape, y: int, x: int) -> Array:
    """Stage 1: the split filter of residue (y, x), rotated   W -> C (CH, CW, OC, IC)"""
    split = W[:, y :: s.sh, x :: s.sw][:, ::-1, ::-1]
    return np.ascontiguousarray(split.transpose(1, 2, 0, 3))


def ks_deconv_patches(dY: Array, W: Array, s: ConvShape) -> Array:
    """Stages 2 and 3: a stride-1 convolution per residue, stored in the residue's pixels   dY, W -> dX"""
    dX = cpu_empty(s.X, dY.dtype)
    tasks = []
    for y in range(s.sh):
        for x in range(s.sw):
            C = split_filter(W, s, y, x)
            for row in (g for g in s.row_splits if g.residue == y):
                for column in (g for g in s.column_splits if g.residue == x):
                    tasks += _ks_deconv_rectangle(dY, C, dX, s, row, column)
    run_tasks(tasks)
    return dX


def _ks_deconv_rectangle(
    dY: Array, C: Array, dX: Array, s: ConvShape, row: SplitSegment, column: SplitSegment
) -> list[Callable[[], None]]:
    h, w = row.c_e - row.c_s, column.c_e - column.c_s
    target = dX[:, row.start :: s.sh, column.start :: s.sw][:, : row.length, : column.length]
    if h * w == 0:
        target[...] = 0
        return []
    trimmed = C[row.c_s : row.c_e, column.c_s : column.c_e].reshape(-1, s.IC)
    positions = row.length * column.length
    images = _images_per_task(s.N, positions, positions * h * w * s.OC, dY.itemsize)

    def task(n: int) -> None:
        g = dY[n : n + images]
        shape = (len(g), row.length, column.length, h, w)
        patches = gather(g, row.first, column.first, shape, (1, 1))
        product = scratch("product", (len(patches), s.IC), dY.dtype)
        np.matmul(patches, trimmed, out=product)
        target[n : n + images] = product.reshape(len(g), row.length, column.length, s.IC)

    return [lambda n=n: task(n) for n in range(0, s.N, images)]  # type: ignore[misc]


def ks_deconv_pixels(dY: Array, W: Array, s: ConvShape) -> Array:
    """dX by pixels, over the taps of the pixel's residue that fall inside of dY   dY, W -> dX"""
    dX = cpu_empty(s.X, dY.dtype)

    def hits(i: int, p: int, stride: int, F: int, O: int) -> list[tuple[int, int]]:
        """(f, o) for each tap f that meets input pixel i, and the output o that it belongs to."""
        return [
            (f, (i + p - f) // stride) for f in range((i + p) % stride, F, stride) if 0 <= (i + p - f) // stride < O
        ]

    def task(position: int) -> None:
        ih, iw = divmod(position, s.IW)
        taps = [
            (dY[:, oh, ow], W[:, fh, fw])
            for fh, oh in hits(ih, s.ph, s.sh, s.FH, s.OH)
            for fw, ow in hits(iw, s.pw, s.sw, s.FW, s.OW)
        ]
        dX[:, ih, iw] = _sum_of_products(taps, (s.N, s.IC), dY.dtype)

    workers.parallel_for(s.IH * s.IW, 1, lambda start, stop: task(start), blas=True)
    return dX


# -- Sk-dilated: filter gradient (Algorithms 3 and 3B) --------------------------------------------


def sk_dilated_patches(X: Array, dY: Array, s: ConvShape) -> Array:
    """dW over the rectangles of ConvV2: dY^T times the patches of some images, added in order   X, dY -> dW"""
    rectangles = [
        (row, column, n, images)
        for row in s.row_segments
        for column in s.column_segments
        if row.f_e > row.f_s and column.f_e > column.f_s
        for images in [_rectangle_images(s, row, column, X.itemsize)]
        for n in range(0, s.N, images)
    ]
    dW = cpu_empty(s.W, X.dtype)
    dW.fill(0)

    def part(i: int) -> Array:
        row, column, n, images = rectangles[i]
        x, h, w = X[n : n + images], row.f_e - row.f_s, column.f_e - column.f_s
        rows, columns = row.stop - row.start, column.stop - column.start
        shape = (len(x), rows, columns, h, w)
        patches = gather(x, row.first, column.first, shape, (s.sh, s.sw))
        g = scratch("gradient", (len(x), rows, columns, s.OC), X.dtype)
        np.copyto(g, dY[n : n + images, row.start : row.stop, column.start : column.stop])
        product = cpu_empty((s.OC, patches.shape[1]), X.dtype)
        return np.matmul(g.reshape(-1, s.OC).T, patches, out=product)

    def add(i: int, product: Array) -> None:
        row, column, _, _ = rectangles[i]
        target = dW[:, row.f_s : row.f_e, column.f_s : column.f_e]
        target += product.reshape(target.shape)

    workers.sum_in_order(len(rectangles), part, add)
    return dW


def _rectangle_images(s: ConvShape, row: Segment, column: Segment, itemsize: int) -> int:
    positions = (row.stop - row.start) * (column.stop - column.start)
    taps = (row.f_e - row.f_s) * (column.f_e - column.f_s)
    return _images_per_task(s.N, positions, positions * taps * s.IC, itemsize * 2)


def sk_dilated_taps(X: Array, dY: Array, s: ConvShape) -> Array:
    """dW tap by tap over the output pixels valid for the tap; X is read in leaping steps   X, dY -> dW"""
    dW = cpu_empty(s.W, X.dtype)

    def task(tap: int) -> None:
        fh, fw = divmod(tap, s.FW)
        h_s, h_e = valid_outputs(fh, s.OH, s.IH, s.sh, s.ph)
        w_s, w_e = valid_outputs(fw, s.OW, s.IW, s.sw, s.pw)
        rows = s.N * (h_e - h_s) * (w_e - w_s)
        if rows == 0:
            dW[:, fh, fw] = 0
            return
        g = scratch("gradient", (s.N, h_e - h_s, w_e - w_s, s.OC), X.dtype)
        np.copyto(g, dY[:, h_s:h_e, w_s:w_e])
        x = scratch("patches", (s.N, h_e - h_s, w_e - w_s, s.IC), X.dtype)
        ih, iw = h_s * s.sh + fh - s.ph, w_s * s.sw + fw - s.pw
        np.copyto(x, X[:, ih :: s.sh, iw :: s.sw][:, : h_e - h_s, : w_e - w_s])
        product = scratch("product", (s.OC, s.IC), X.dtype)
        np.matmul(g.reshape(rows, s.OC).T, x.reshape(rows, s.IC), out=product)
        dW[:, fh, fw] = product

    workers.parallel_for(s.FH * s.FW, 1, lambda start, stop: task(start), blas=True)
    return dW


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
