"""Pooling on NHWC arrays: max, average, adaptive average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.ops.conv2d.shape import Pair, pair
from alpha.ops.dtypes import BLOCK, CUDA_TYPES, as_dtype, as_float32, stream_grid, vector_width
from alpha.primitive import Array, primitive
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty
from alpha.tensor import Tensor


@dataclass(frozen=True)
class PoolShape:
    """X (N, IH, IW, C) -> Y (N, OH, OW, C); windows (FH, FW), stride (sh, sw), padding (ph, pw).

    Adaptive: windows of output (oh, ow) are [oh IH // OH, ceil((oh + 1) IH / OH)), columns likewise.
    """

    N: int
    IH: int
    IW: int
    C: int
    FH: int
    FW: int
    sh: int
    sw: int
    ph: int
    pw: int
    OH: int
    OW: int
    adaptive: bool = False
    count_padding: bool = True

    def window(self, oh: int, ow: int) -> tuple[int, int, int, int, int]:
        """(ih_s, ih_e, iw_s, iw_e, divisor) of one output."""
        if self.adaptive:
            h_s, h_e = oh * self.IH // self.OH, -(-(oh + 1) * self.IH // self.OH)
            w_s, w_e = ow * self.IW // self.OW, -(-(ow + 1) * self.IW // self.OW)
            return h_s, h_e, w_s, w_e, (h_e - h_s) * (w_e - w_s)
        top, left = oh * self.sh - self.ph, ow * self.sw - self.pw
        h_s, h_e = max(top, 0), min(top + self.FH, self.IH)
        w_s, w_e = max(left, 0), min(left + self.FW, self.IW)
        if not self.count_padding:
            return h_s, h_e, w_s, w_e, (h_e - h_s) * (w_e - w_s)
        # padding counts, what the window reaches beyond it does not (as in PyTorch)
        rows = min(top + self.FH, self.IH + self.ph) - top
        columns = min(left + self.FW, self.IW + self.pw) - left
        return h_s, h_e, w_s, w_e, rows * columns

    def macros(self) -> dict[str, int]:
        """What the kernels are compiled for."""
        return {
            "FH": self.FH,
            "FW": self.FW,
            "SH": self.sh,
            "SW": self.sw,
            "PH": self.ph,
            "PW": self.pw,
            "ADAPTIVE": int(self.adaptive),
            "COUNT_PADDING": int(self.count_padding),
        }


@primitive
def max_pool2d_forward(X: Array, s: PoolShape) -> tuple[Array, Array]:
    """Y = max over each window, and which tap it was   X (N, IH, IW, C) -> Y, I (N, OH, OW, C), I uint8"""


@primitive
def max_pool2d_backward(dY: Array, I: Array, s: PoolShape) -> Array:
    """dX: each dY to the tap that was the maximum   dY, I (N, OH, OW, C) -> dX (N, IH, IW, C)"""


@primitive
def avg_pool2d_forward(X: Array, s: PoolShape) -> Array:
    """Y = mean over each window   X (N, IH, IW, C) -> Y (N, OH, OW, C)"""


@primitive
def avg_pool2d_backward(dY: Array, s: PoolShape) -> Array:
    """dX: each dY over its window's divisor   dY (N, OH, OW, C) -> dX (N, IH, IW, C)"""


def _over_images(N: int, body: Any) -> None:
    workers.parallel_for(N, max(1, -(-N // (4 * workers.count()))), body)


def _tap(s: PoolShape, fh: int, fw: int) -> tuple[slice, slice, slice, slice] | None:
    """(oh, ow, ih, iw) slices of the outputs whose tap (fh, fw) meets the input."""
    h_s, w_s = max(0, -((fh - s.ph) // s.sh)), max(0, -((fw - s.pw) // s.sw))
    h_e = min(s.OH, -(-(s.IH - fh + s.ph) // s.sh))
    w_e = min(s.OW, -(-(s.IW - fw + s.pw) // s.sw))
    if h_s >= h_e or w_s >= w_e:
        return None
    ih, iw = h_s * s.sh + fh - s.ph, w_s * s.sw + fw - s.pw
    rows = slice(ih, ih + (h_e - h_s - 1) * s.sh + 1, s.sh)
    return slice(h_s, h_e), slice(w_s, w_e), rows, slice(iw, iw + (w_e - w_s - 1) * s.sw + 1, s.sw)


@max_pool2d_forward.impl("cpu")
def _(X: Array, s: PoolShape) -> tuple[Array, Array]:
    dtype, X = X.dtype, as_float32(X)
    Y = cpu_empty((s.N, s.OH, s.OW, s.C), X.dtype)
    I = cpu_empty(Y.shape, np.uint8)

    def images(start: int, stop: int) -> None:
        x, y, index = X[start:stop], Y[start:stop], I[start:stop]
        y.fill(-np.inf)
        index.fill(0)
        for tap in range(s.FH * s.FW):
            found = _tap(s, *divmod(tap, s.FW))
            if found is None:
                continue
            oh, ow, ih, iw = found
            best, value = y[:, oh, ow], x[:, ih, iw]
            np.copyto(index[:, oh, ow], np.uint8(tap), where=value > best)
            np.maximum(best, value, out=best)  # NaN wins, as in PyTorch

    _over_images(s.N, images)
    return as_dtype(Y, dtype), I


@max_pool2d_backward.impl("cpu")
def _(dY: Array, I: Array, s: PoolShape) -> Array:
    dtype, dY = dY.dtype, as_float32(dY)
    dX = cpu_empty((s.N, s.IH, s.IW, s.C), dY.dtype)

    def images(start: int, stop: int) -> None:
        dx, dy, index = dX[start:stop], dY[start:stop], I[start:stop]
        dx.fill(0)
        for tap in range(s.FH * s.FW):
            found = _tap(s, *divmod(tap, s.FW))
            if found is not None:
                oh, ow, ih, iw = found
                dx[:, ih, iw] += dy[:, oh, ow] * (index[:, oh, ow] == tap)

    _over_images(s.N, images)
    return as_dtype(dX, dtype)


@avg_pool2d_forward.impl("cpu")
def _(X: Array, s: PoolShape) -> Array:
    dtype, X = X.dtype, as_float32(X)
    Y = cpu_empty((s.N, s.OH, s.OW, s.C), X.dtype)

    def images(start: int, stop: int) -> None:
        x, y = X[start:stop], Y[start:stop]
        for oh in range(s.OH):
            for ow in range(s.OW):
                h_s, h_e, w_s, w_e, divisor = s.window(oh, ow)
                np.sum(x[:, h_s:h_e, w_s:w_e], axis=(1, 2), out=y[:, oh, ow])
                y[:, oh, ow] *= X.dtype.type(1.0 / divisor)

    _over_images(s.N, images)
    return as_dtype(Y, dtype)


@avg_pool2d_backward.impl("cpu")
def _(dY: Array, s: PoolShape) -> Array:
    dtype, dY = dY.dtype, as_float32(dY)
    dX = cpu_empty((s.N, s.IH, s.IW, s.C), dY.dtype)

    def images(start: int, stop: int) -> None:
        dx, dy = dX[start:stop], dY[start:stop]
        dx.fill(0)
        for oh in range(s.OH):
            for ow in range(s.OW):
                h_s, h_e, w_s, w_e, divisor = s.window(oh, ow)
                share = dy[:, oh, ow] * dY.dtype.type(1.0 / divisor)
                dx[:, h_s:h_e, w_s:w_e] += share[:, None, None]

    _over_images(s.N, images)
    return as_dtype(dX, dtype)


def _launch(kind: str, way: str, arrays: tuple[Array, ...], s: PoolShape) -> None:
    result = arrays[0]
    vector = vector_width(*arrays, along=s.C)
    macros = stream_grid(result.size, vector)[1]
    result.device.launch(
        f"pool2d/{kind}.cu",
        f"{kind}_{way}",
        -(-result.size // (BLOCK * vector)),
        BLOCK,
        (*arrays, s.N, s.IH, s.IW, s.C, s.OH, s.OW),
        {"TYPE": CUDA_TYPES[result.dtype], "VECTOR": vector, "INDEX": macros["INDEX"], **s.macros()},
    )


@max_pool2d_forward.impl("cuda")
def _(X: Array, s: PoolShape) -> tuple[Array, Array]:
    Y = X.device.empty((s.N, s.OH, s.OW, s.C), X.dtype)
    I = X.device.empty(Y.shape, np.uint8)
    _launch("max_pool2d", "forward", (Y, I, X), s)
    return Y, I


@max_pool2d_backward.impl("cuda")
def _(dY: Array, I: Array, s: PoolShape) -> Array:
    dX = dY.device.empty((s.N, s.IH, s.IW, s.C), dY.dtype)
    _launch("max_pool2d", "backward", (dX, dY, I), s)
    return dX


@avg_pool2d_forward.impl("cuda")
def _(X: Array, s: PoolShape) -> Array:
    Y = X.device.empty((s.N, s.OH, s.OW, s.C), X.dtype)
    _launch("avg_pool2d", "forward", (Y, X), s)
    return Y


@avg_pool2d_backward.impl("cuda")
def _(dY: Array, s: PoolShape) -> Array:
    dX = dY.device.empty((s.N, s.IH, s.IW, s.C), dY.dtype)
    _launch("avg_pool2d", "backward", (dX, dY), s)
    return dX


class MaxPool2d(Function):
    """Y = max over windows   X (N, IH, IW, C) -> Y (N, OH, OW, C)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        self.s = options["shape"]
        Y, index = max_pool2d_forward(arrays[0], self.s)
        self.save(index)
        return Y

    def backward(self, dY: Array) -> Any:
        return max_pool2d_backward(dY, self.saved[0], self.s)


class AvgPool2d(Function):
    """Y = mean over windows   X (N, IH, IW, C) -> Y (N, OH, OW, C)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        self.s = options["shape"]
        return avg_pool2d_forward(arrays[0], self.s)

    def backward(self, dY: Array) -> Any:
        return avg_pool2d_backward(dY, self.s)


def _shape(operator: str, x: Tensor, kernel_size: Pair, stride: Pair | None, padding: Pair, **more: bool) -> PoolShape:
    FH, FW = pair("kernel_size", kernel_size)
    sh, sw = (FH, FW) if stride is None else pair("stride", stride)
    ph, pw = pair("padding", padding)
    if x.ndim != 4:
        raise ShapeError(f"{operator}: x (N, H, W, C) is needed  (x {x.shape})")
    N, IH, IW, C = x.shape
    if min(FH, FW, sh, sw) < 1 or not (0 <= 2 * ph <= FH and 0 <= 2 * pw <= FW):
        raise ShapeError(
            f"{operator}: kernel_size ({FH}, {FW}) and stride ({sh}, {sw}) must be >= 1, "
            f"padding ({ph}, {pw}) at most half the kernel"
        )
    OH, OW = (IH + 2 * ph - FH) // sh + 1, (IW + 2 * pw - FW) // sw + 1
    if min(N, C, OH, OW) < 1:
        raise ShapeError(
            f"{operator}: the output would be ({N}, {OH}, {OW}, {C}), which is empty  (x {x.shape}, "
            f"kernel_size ({FH}, {FW}), stride ({sh}, {sw}), padding ({ph}, {pw}))"
        )
    return PoolShape(N, IH, IW, C, FH, FW, sh, sw, ph, pw, OH, OW, **more)


def max_pool2d(x: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> Tensor:
    """Maximum over windows; the stride is the window's size by default.

    x (N, IH, IW, C) -> (N, OH, OW, C) with OH = (IH + 2 ph - FH) // sh + 1

    Raises:
        ShapeError: an empty output, padding above half the window, or more than 256 taps (the index is a byte).
    """
    s = _shape("max_pool2d", x, kernel_size, stride, padding)
    if s.FH * s.FW > 256:
        raise ShapeError(f"max_pool2d: a window of {s.FH} x {s.FW} has more than 256 taps")
    return MaxPool2d.apply(x, shape=s)


def avg_pool2d(
    x: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, count_include_pad: bool = True
) -> Tensor:
    """Mean over windows; the stride is the window's size by default.

    x (N, IH, IW, C) -> (N, OH, OW, C) with OH = (IH + 2 ph - FH) // sh + 1

    Args:
        count_include_pad: divide by the window with its padding, else by the taps inside.

    Raises:
        ShapeError: an empty output, or padding above half the window.
    """
    s = _shape("avg_pool2d", x, kernel_size, stride, padding, count_padding=count_include_pad)
    return AvgPool2d.apply(x, shape=s)


def adaptive_avg_pool2d(x: Tensor, output_size: Pair) -> Tensor:
    """Mean over windows that cut the map into (OH, OW)   x (N, IH, IW, C) -> (N, OH, OW, C)"""
    OH, OW = pair("output_size", output_size)
    if x.ndim != 4 or min(OH, OW, *x.shape) < 1:
        raise ShapeError(
            f"adaptive_avg_pool2d: x (N, H, W, C) and a positive output_size are needed  "
            f"(x {x.shape}, output_size ({OH}, {OW}))"
        )
    N, IH, IW, C = x.shape
    s = PoolShape(N, IH, IW, C, 1, 1, 1, 1, 0, 0, OH, OW, adaptive=True)
    return AvgPool2d.apply(x, shape=s)
