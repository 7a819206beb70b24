"""Maxima over windows of NWC, NHWC and NDHWC arrays, and where they are."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from alpha.autograd.function import Edge, Function
from alpha.autograd.tracing import traced_whole
from alpha.autograd.versions import Version, array_of
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.ops.conv2d.magnitudes import magnitude_parts, needs_magnitude
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.casts import BLOCK, NUMBER_TYPES, as_dtype, as_float32, vector_width
from alpha.ops.kernel.common_dtype import INT64
from alpha.ops.kernel.options import Lengths
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan
from alpha.ops.kernel.rectifier import IDENTITY, Rectified, Rectifier, RectifierFunction, RectifierStep
from alpha.ops.kernel.rows.row_indices import NO_PLACE, places, take_rows
from alpha.ops.pooling.pool_shape import Pooling, PoolShape, Windows, over_images, pool_launch, pooling
from alpha.runtime.cpu import empty as cpu_empty

__all__ = ["max_pool1d", "max_pool2d", "max_pool3d"]

CUDA_TAPS = {np.dtype(np.uint8): "uint8_t", np.dtype(np.int32): "int"}
# what a thread makes if its block meets the others, so that fewer blocks come: pixels, or windows or their cells
MEETING_PIXELS, MEETING_WINDOWS = 8, 2


@primitive
def max_pool2d_forward(X: Array, s: PoolShape) -> tuple[Array, Array]:
    """Y = max over each window, and which tap it was   X (N, IH, IW, C) -> Y, I (N, OH, OW, C), I of s.tap_dtype

    As in PyTorch the first of equal numbers wins, NaN is above every number, and the last NaN wins.
    """


@primitive
def max_pool2d_backward(dY: Array, I: Array, s: PoolShape, rectified: Rectified | None = None) -> Array:
    """dX: each dY to the tap that was the maximum   dY, I (N, OH, OW, C) -> dX (N, IH, IW, C)

    Args:
        rectified: by what, if X is the result of a rectifier, and Y, the maxima, which have the sign of what this was
            given. The result is then the gradient of that.
    """


@primitive
def max_pool2d_indices(I: Array, s: PoolShape) -> Array:
    """J = the pixel ih IW + iw that each tap is   I (N, OH, OW, C) -> J (N, OH, OW, C) of int64"""


# -- cpu --------------------------------------------------------------------------------------------


def _tap(s: PoolShape, fh: int, fw: int) -> tuple[slice, slice, slice, slice] | None:
    """(oh, ow, ih, iw) slices of the outputs whose tap (fh, fw) meets the input."""
    h, w = fh * s.dh - s.ph, fw * s.dw - s.pw
    h_s, w_s = max(0, -(h // s.sh)), max(0, -(w // s.sw))
    h_e, w_e = min(s.OH, -(-(s.IH - h) // s.sh)), min(s.OW, -(-(s.IW - w) // s.sw))
    if h_s >= h_e or w_s >= w_e:
        return None
    ih, iw = h_s * s.sh + h, w_s * s.sw + w
    rows = slice(ih, ih + (h_e - h_s - 1) * s.sh + 1, s.sh)
    return slice(h_s, h_e), slice(w_s, w_e), rows, slice(iw, iw + (w_e - w_s - 1) * s.sw + 1, s.sw)


def _taps(s: PoolShape) -> Iterator[tuple[int, tuple[slice, slice, slice, slice]]]:
    """(number, slices) of the taps that meet the input anywhere, in order."""
    for tap in range(s.FH * s.FW):
        slices = _tap(s, *divmod(tap, s.FW))
        if slices is not None:
            yield tap, slices


def _parts(s: PoolShape) -> Iterator[tuple[tuple[int, int], tuple[slice, slice, slice]]]:
    """(oh, ow) of each output of an adaptive pool, and the slices of its window."""
    for oh in range(s.OH):
        for ow in range(s.OW):
            h_s, h_e, w_s, w_e, _ = s.window(oh, ow)
            yield (oh, ow), (slice(None), slice(h_s, h_e), slice(w_s, w_e))


def _select(mask: Array, values: Array) -> Array:
    """The values where the mask is true, else 0; by their bits, since a product of inf and 0 is NaN."""
    bits = np.dtype(f"i{values.itemsize}")
    kept = np.negative(mask.view(np.int8)).astype(bits)
    kept &= values.view(bits)
    return kept.view(values.dtype)


@max_pool2d_forward.impl("cpu")
def _(X: Array, s: PoolShape) -> tuple[Array, Array]:
    dtype, X = X.dtype, as_float32(X)
    Y = cpu_empty((s.N, s.OH, s.OW, s.C), X.dtype)
    I = cpu_empty(Y.shape, s.tap_dtype)
    taps, first = list(_taps(s)), s.first_taps()[:, :, None]

    def images(start: int, stop: int) -> None:
        x, y, index = X[start:stop], Y[start:stop], I[start:stop]
        y.fill(-np.inf)
        index[...] = first
        for tap, (oh, ow, ih, iw) in taps:
            best, value = y[:, oh, ow], x[:, ih, iw]
            np.copyto(index[:, oh, ow], I.dtype.type(tap), where=value > best)
            np.maximum(best, value, out=best)  # NaN wins
        if np.isnan(y.max()):
            for tap, (oh, ow, ih, iw) in taps:
                np.copyto(index[:, oh, ow], I.dtype.type(tap), where=np.isnan(x[:, ih, iw]))

    def adaptive_images(start: int, stop: int) -> None:
        x, y, index = X[start:stop], Y[start:stop], I[start:stop]
        for (oh, ow), window in _parts(s):
            part = x[window].reshape(len(x), -1, s.C)
            y[:, oh, ow] = part.max(axis=1)
            wrong = np.isnan(part)
            last = wrong.shape[1] - 1 - np.argmax(wrong[:, ::-1], axis=1)
            index[:, oh, ow] = np.where(wrong.any(axis=1), last, np.argmax(part, axis=1))

    over_images(s.N, adaptive_images if s.adaptive else images)
    return as_dtype(Y, dtype), I


@max_pool2d_backward.impl("cpu")
def _(dY: Array, I: Array, s: PoolShape, rectified: Rectified | None = None) -> Array:
    dtype, dY = dY.dtype, as_float32(dY)
    if rectified is not None:
        assert rectified.Y is not None
        dY = rectified.rectifier.gradient(dY, as_float32(rectified.Y))
    dX = cpu_empty((s.N, s.IH, s.IW, s.C), dY.dtype)
    taps = list(_taps(s))

    def images(start: int, stop: int) -> None:
        dx, dy, index = dX[start:stop], dY[start:stop], I[start:stop]
        dx.fill(0)
        for tap, (oh, ow, ih, iw) in taps:
            dx[:, ih, iw] += _select(index[:, oh, ow] == tap, dy[:, oh, ow])

    def adaptive_images(start: int, stop: int) -> None:
        dx, dy, index = dX[start:stop], dY[start:stop], I[start:stop]
        dx.fill(0)
        for (oh, ow), window in _parts(s):
            n, h, w, c = dx[window].shape
            hit = index[:, oh, ow][:, None, None] == np.arange(h * w).reshape(1, h, w, 1)
            dx[window] += _select(hit, np.broadcast_to(dy[:, oh, ow][:, None, None], (n, h, w, c)).copy())

    over_images(s.N, adaptive_images if s.adaptive else images)
    return as_dtype(dX, dtype)


@max_pool2d_indices.impl("cpu")
def _(I: Array, s: PoolShape) -> Array:
    oh, ow = np.arange(s.OH)[:, None, None], np.arange(s.OW)[:, None]
    if s.adaptive:
        top, left = oh * s.IH // s.OH, ow * s.IW // s.OW
        width = -(-(ow + 1) * s.IW // s.OW) - left
    else:
        top, left, width = oh * s.sh - s.ph, ow * s.sw - s.pw, np.asarray(s.FW)
    rows, columns = np.divmod(I, width.astype(np.int64))
    found: Array = (top + rows * s.dh) * s.IW + left + columns * s.dw
    return found


# -- cuda -------------------------------------------------------------------------------------------


@max_pool2d_forward.impl("cuda")
def _(X: Array, s: PoolShape) -> tuple[Array, Array]:
    plan = _plan_forward(s, X.dtype, vector_width(X, along=s.C), needs_magnitude(X))
    found = plan.launch(X.device, {"X": X})
    Y = found["Y"]
    Y.magnitude = found.get("magnitude")
    return Y, found["I"]


@functools.lru_cache(maxsize=4096)
def _plan_forward(s: PoolShape, dtype: np.dtype[Any], vector: int, magnitude: bool) -> Plan:
    Y, I = (Buffer((s.N, s.OH, s.OW, s.C), kind) for kind in (dtype, s.tap_dtype))
    meeting, macros, outputs = magnitude_parts(magnitude)
    macros |= {"RECTIFIED": 0, "APART": 0, "PACKS": MEETING_WINDOWS if magnitude else 1}
    operands = ArrayArg("Y"), ArrayArg("I"), *meeting, ArrayArg("X")
    launch = pool_launch("max_pool2d", "forward", s, operands, Y, _macros(s, vector) | macros)
    return Plan("max_pool2d_forward", (launch,), {"Y": Y, "I": I, **outputs})


def _macros(s: PoolShape, vector: int) -> dict[str, Any]:
    return {"VECTOR": vector, "DH": s.dh, "DW": s.dw, "TAP": CUDA_TAPS[s.tap_dtype]}


@max_pool2d_backward.impl("cuda")
def _(dY: Array, I: Array, s: PoolShape, rectified: Rectified | None = None) -> Array:
    rectifier, given = None, {"dY": dY, "I": I}
    if rectified is not None:
        rectifier, given["Y"] = rectified.rectifier, rectified.Y
    plan = _plan_backward(s, dY.dtype, vector_width(*given.values(), along=s.C), rectifier, needs_magnitude(dY))
    found = plan.launch(dY.device, given)
    dX = found["dX"]
    dX.magnitude = found.get("magnitude")
    return dX


@functools.lru_cache(maxsize=4096)
def _plan_backward(
    s: PoolShape, dtype: np.dtype[Any], vector: int, rectifier: Rectifier | None, magnitude: bool
) -> Plan:
    dX, rectified = Buffer((s.N, s.IH, s.IW, s.C), dtype), rectifier is not None
    meeting, macros, outputs = magnitude_parts(magnitude)
    apart = s.cells is not None
    packs = MEETING_WINDOWS if apart else MEETING_PIXELS
    macros |= {"RECTIFIED": int(rectified), "APART": int(apart), "PACKS": packs if magnitude else 1}
    operands = ArrayArg("dX"), *meeting, ArrayArg("dY"), ArrayArg("I"), ArrayArg("Y") if rectified else None
    numbers = map(NUMBER_TYPES[dtype], rectifier or IDENTITY)
    made = _macros(s, vector) | macros
    launch = pool_launch("max_pool2d", "backward", s, (*operands, *numbers), dX, made, s.cells)
    return Plan("max_pool2d_backward", (launch,), {"dX": dX, **outputs})


@max_pool2d_indices.impl("cuda")
def _(I: Array, s: PoolShape) -> Array:
    return _plan_indices(s).launch(I.device, {"I": I})["J"]


@functools.lru_cache(maxsize=1024)
def _plan_indices(s: PoolShape) -> Plan:
    J = Buffer((s.N, s.OH, s.OW, s.C), INT64)
    numbers = (s.IH, s.IW, s.C, s.OH, s.OW, s.FW, s.sh, s.sw, s.ph, s.pw, s.dh, s.dw)
    launch = KernelLaunch(
        "pool2d/indices.cu",
        "max_pool2d_indices",
        -(-J.size // BLOCK),
        BLOCK,
        (ArrayArg("J"), ArrayArg("I"), np.int64(J.size), *numbers, int(s.adaptive)),
        {"TAP": CUDA_TAPS[s.tap_dtype]},
    )
    return Plan("max_pool2d_indices", (launch,), {"J": J})


# -- the functions ----------------------------------------------------------------------------------


class MaxPool2d(Function):
    """Y = max over windows   X (N, IH, IW, C) -> Y (N, OH, OW, C)

    The maxima have the sign of the numbers that they are, so the first step of a rectifier's gradient needs no more
    than them. They are kept for it only where the next layer keeps them, too, so they take no memory, and not guarded:
    without them it is not taken.

    Args of forward:
        found: (Y, taps) if the caller has computed them.
    """

    takes_first_steps = True
    _maxima: Sequence[tuple[Version, int]] = ()  # the version of Y, and its value then, if Y is kept

    def forward(self, X: Array, *, shape: PoolShape, found: tuple[Array, Array] | None = None) -> Array:
        self.s = shape
        Y, taps = max_pool2d_forward(X, shape) if found is None else found
        self.save(taps)
        return Y

    def _record(self, inputs: Sequence[Tensor | None], tensors: Sequence[Tensor], Y: Array) -> None:
        super()._record(inputs, tensors, Y)
        self.would_keep_output = _may_take_step(self.edges[0], Y)

    def keep_output(self, output: Tensor) -> None:
        if self.would_keep_output:
            self.save(*self.saved, output.array)
            self._maxima = [(output._version, output._version.value)]
            self.would_keep_output = False

    def backward(self, dY: Array) -> Any:
        taps, *maxima = self.saved
        step = self.behind
        written = any(version.value != value for version, value in self._maxima)
        if not maxima or written or not isinstance(step, RectifierStep) or not step.is_elementwise:
            return max_pool2d_backward(dY, taps, self.s)
        dZ = max_pool2d_backward(dY, taps, self.s, Rectified(step.rectifier, None, maxima[0]))
        step.note_taken(None)
        return dZ


def _may_take_step(made_by: Edge, Y: Array) -> bool:
    """True if a rectifier on a GPU has made the input of a pool, which may take the first step of its gradient."""
    if not isinstance(made_by, RectifierFunction) or isinstance(Y, np.ndarray):
        return False
    return made_by.first_run is None and made_by.rectified_by is not None


@traced_whole
def max_pool(x: Tensor, pools: Pooling, return_indices: bool) -> Any:
    """The maxima of a pooling operator, with `return_indices` also their places in the flat spatial axes."""
    if not return_indices or 0 in pools.result:
        y = pools.run(x, lambda x, s: MaxPool2d.apply(x, shape=s))
        return (y, Tensor(x.device.empty(pools.result, INT64))) if return_indices else y
    indices: list[Array] = []

    def noted(x: Tensor, s: PoolShape) -> Tensor:
        Y, taps = max_pool2d_forward(array_of(x), s)
        indices.append(max_pool2d_indices(taps, s))
        return MaxPool2d.apply(x, shape=s, found=(Y, taps))

    y = pools.run(x, noted)
    flat = indices[0] if len(indices) == 1 else _joined(indices[0], indices[1], pools)
    return y, Tensor(flat.reshape(pools.result))


def _joined(plane: Array, depth: Array, pools: Pooling) -> Array:
    """The places of the maxima over three axes: those in the planes at the depths that won, with these depths.

    plane (N ID, OH, OW, C) and depth (N, OD, 1, OH OW C) of int64 -> (N OD OH OW C,)
    """
    s, h = pools.shapes
    depths = depth.reshape((depth.size,))
    at = places(depths, h.IH, h.C, None, (h.C, h.OH * h.C, h.IH * h.C))
    found = take_rows(plane.reshape((1, plane.size, 1)), at).reshape((depth.size,))
    return places(depths, h.IH, s.IH * s.IW, found, NO_PLACE)


@check_arguments
def max_pool1d(
    x: Tensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum over windows of one axis; arguments, results and errors as for `max_pool2d`.

    x (N, L, C), or one sequence without N -> (N, O, C) with O = (L + 2 p - d (F - 1) - 1) // s + 1
    """
    windows = Windows(kernel_size, stride, padding, dilation, ceil_mode)
    return max_pool(x, pooling("max_pool1d", 1, x, windows), return_indices)


@check_arguments
def max_pool2d(
    x: Tensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum over windows; the stride is the window's size by default.

    x (N, IH, IW, C), or one image without N -> (N, OH, OW, C) with OH = (IH + 2 ph - dh (FH - 1) - 1) // sh + 1

    Args:
        dilation: the distance between the pixels of a window.
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.
        return_indices: return (y, indices). The indices, int64, are the places of the maxima in the image of their
            channel, as in PyTorch: ih IW + iw. `max_unpool2d` takes them.

    Raises:
        ShapeError: an empty output, or padding above half the window.
        TypeError: x is not a Tensor of floating numbers, or a size is not an integer.
        ValueError: a dilation is below 1.
    """
    pools = pooling("max_pool2d", 2, x, Windows(kernel_size, stride, padding, dilation, ceil_mode))
    if x.ndim == 4 and not return_indices and pools.shapes[0].N:  # the usual case, in few calls
        return MaxPool2d.apply(x, shape=pools.shapes[0])
    return max_pool(x, pools, return_indices)


@check_arguments
def max_pool3d(
    x: Tensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    dilation: Lengths = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum over windows of three axes; arguments, results and errors as for `max_pool2d`.

    x (N, ID, IH, IW, C), or one volume without N -> (N, OD, OH, OW, C); an index is (id IH + ih) IW + iw.
    """
    windows = Windows(kernel_size, stride, padding, dilation, ceil_mode)
    return max_pool(x, pooling("max_pool3d", 3, x, windows), return_indices)
