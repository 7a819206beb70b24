"""Convolutions of one to three axes with groups and dilation, as they are or made of dense 2-D ones (ops/conv2d).

Which convolutions kernels compute as they are, whole.py says. Any other one is cut, and so is one with a depth or
dilation whose pieces are predicted to be faster.

Each of the three operators is cut as its algorithm of the paper cuts an axis, so that no zero is multiplied on any:

    groups      some groups at a time, as one convolution whose filters are zero between different groups
    dilation    by residues, without the gaps of the filter (axes.py); residues of height and width that make equal maps
                are more images of one convolution
    depth       ConvV2: segments of equal trimmed filters; their taps are input channels of a 2-D convolution
                KS-deconv: segments of equal trimmed split filters; their taps are output channels
                Sk-dilated: one tap at a time, with the outputs whose tap meets the input

The pieces of an array are copied (ops/kernel/views.py), unless a piece is the whole array.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array, device_of
from alpha.ops.conv2d import conv2d_backward_input, conv2d_backward_weight, conv2d_forward, cuda_target
from alpha.ops.conv2d.launch import used_precision
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Target
from alpha.ops.conv2d.select.choose import computes_depth_or_dilation, predicted_cycles
from alpha.ops.conv2d.select.time_model import constants_of
from alpha.ops.conv2d.shape import Axis, ConvShape, segments, split_segments, valid_outputs
from alpha.ops.convolution.conv_arguments import ConvAxes, PhaseRun, phase_runs, phases
from alpha.ops.convolution.whole import as_2d, as_product, patches_of, with_axes
from alpha.ops.kernel.elementwise import add
from alpha.ops.kernel.rectifier import Rectifier
from alpha.ops.kernel.views import View, read_view, write_view

PACKED = 64  # channels at most, of a convolution that computes several groups: tiles have so many anyway
DEPTH = 3  # the axis of a box of X or Y, behind the phases and N


class Part(NamedTuple):
    """Some groups, one phase of the depth and a run of phases of each other axis.

    The boxes of X and Y have the axes (phases of H, phases of W, N, D, H, W, channels); W is that of each group.
    """

    X: View
    W: View  # (groups, OC of a group, FD, FH, FW, IC of a group)
    Y: View
    axes: tuple[Axis, Axis, Axis]  # that a phase makes
    images: int  # for each image of X
    group: int  # the first one

    def shape_2d(self, images: int, IC: int, OC: int) -> ConvShape:
        """The 2-D convolution of height and width, of so many images in each phase."""
        _, h, w = self.axes
        return ConvShape(images * self.images, h.I, w.I, IC, OC, h.F, w.F, h.s, w.s, h.p, w.p, h.O, w.O)


def parts(c: ConvAxes) -> Iterator[Part]:
    """All parts of a convolution that read any input."""
    IC, OC = c.IC // c.groups, c.OC // c.groups
    together = max(1, min(c.groups, PACKED // max(IC, OC)))
    W = View.whole((c.groups, OC, *c.W[1:]))
    for group in range(0, c.groups, together):
        count = min(together, c.groups - group)
        X = View.whole(c.X).sliced(4, group * IC, count * IC)
        Y = View.whole(c.Y).sliced(4, group * OC, count * OC)
        for depth, h, w in itertools.product(phases(c.axes[0]), phase_runs(c.axes[1]), phase_runs(c.axes[2])):
            x = _in_phases(X.sliced(1, depth.x_start, depth.axis.I, depth.x_step), (h, w), of_inputs=True)
            y = _in_phases(Y.sliced(1, depth.y_start, depth.axis.O, depth.y_step), (h, w), of_inputs=False)
            if x.size:  # otherwise its results are zero
                axes = depth.axis, h.first.axis, w.first.axis
                yield Part(x, W.sliced(0, group, count), y, axes, h.number * w.number, group)


def _in_phases(box: View, runs: tuple[PhaseRun, PhaseRun], of_inputs: bool) -> View:
    """The inputs, or the outputs, of runs of height and width   (N, D, H, W, C) -> (phases, phases, N, D, H, W, C)"""
    numbers, gaps = [run.number for run in runs], []
    for axis, (first, _, x_gap, y_gap) in enumerate(runs, 2):
        gaps.append((x_gap if of_inputs else y_gap) * box.strides[axis])
        part = (first.x_start, first.axis.I, first.x_step) if of_inputs else (first.y_start, first.axis.O, first.y_step)
        box = box.sliced(axis, *part)
    return View((*numbers, *box.shape), (*gaps, *box.strides), box.offset)


class Piece(NamedTuple):
    """A 2-D convolution that is a part of the operator, or all of it.

    Attributes:
        shape: the 2-D convolution.
        X, W, Y: the boxes of the arrays. Those of X and Y have the axes of a part, and taps before the
            channels; those of W (groups, OC, FH, FW, taps, IC), or of KS-deconv (groups, taps, OC, FH, FW, IC).
        first_channel: of the results among all channels, for the bias.
    """

    shape: ConvShape
    X: View
    W: View
    Y: View
    first_channel: int


def _pieces(operator: str, c: ConvAxes, X: Array, precision: str, b: Array | None = None) -> tuple[Piece, ...]:
    """The pieces of an operator on the device of X: the whole, its patches, or those of its algorithm.

    b: a bias of the result, which has the channels of a pixel and not of a patch.
    """
    if isinstance(X, np.ndarray):
        shape = as_2d(c)
    else:
        how = operator, c, cuda_target(X.device), used_precision(X, precision)
        product = None if operator == INPUT and b is not None else as_product(*how)
        if product is not None:
            return (Piece(product, patches_of(c), View.whole((1, *c.W)), View.whole(c.Y), 0),)
        shape = as_2d(c, "cuda") or _with_axes(*how)
    if shape is None:
        return _CUTS[operator](c)
    return (Piece(shape, View.whole(c.X), View.whole((1, *c.W)), View.whole(c.Y), 0),)


@functools.lru_cache(maxsize=4096)
def _with_axes(operator: str, c: ConvAxes, target: Target, precision: str) -> ConvShape | None:
    """The shape with depth and dilation, if kernels compute it as it is, in less predicted time than its pieces."""
    s = with_axes(c)
    if s is None or not computes_depth_or_dilation(s, target):
        return None
    constants, item = constants_of(target.name), 2 if precision == "bf16" else 4
    cut = 0.0
    for piece in _CUTS[operator](c):
        cut += predicted_cycles(operator, piece.shape, target, precision)
        copied = [box.size for box, size in ((piece.X, prod(c.X)), (piece.Y, prod(c.Y))) if not _is_whole(box, size)]
        cut += len(copied) * constants.launch + 2 * item * sum(copied) / constants.memory
    return s if predicted_cycles(operator, s, target, precision) <= cut else None


# -- the pieces of each operator ----------------------------------------------------------------------


def _along_depth(box: View, start: int, length: int, step: int, taps: int, tap_step: int) -> View:
    """The box (.., length, H, W, taps, channels): taps `tap_step` apart, from every `step`-th position on."""
    *images, _, H, W, C = box.shape
    *outer, d, h, w, c = box.strides
    return View((*images, length, H, W, taps, C), (*outer, step * d, h, w, tap_step * d, c), box.offset + start * d)


@functools.lru_cache(maxsize=1024)
def forward_pieces(c: ConvAxes) -> tuple[Piece, ...]:
    """ConvV2: each piece writes other outputs."""
    found = []
    for part in parts(c):
        I, F, s, p, _, O = part.axes[0]
        (OC, IC), count = (part.W.shape[1], part.W.shape[-1]), part.W.shape[0]
        for g in segments(O, I, F, s, p):
            taps, length = g.f_e - g.f_s, g.stop - g.start
            if taps == 0:
                continue
            X = _along_depth(part.X, g.first, length, s, taps, 1)
            W = part.W.sliced(2, g.f_s, taps).permuted((0, 1, 3, 4, 2, 5))
            shape = part.shape_2d(c.N * length, taps * count * IC, count * OC)
            found.append(Piece(shape, X, W, part.Y.sliced(DEPTH, g.start, length), part.group * OC))
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def input_pieces(c: ConvAxes) -> tuple[Piece, ...]:
    """KS-deconv: each piece writes other inputs' gradients."""
    found = []
    for part in parts(c):
        I, F, s, p, _, O = part.axes[0]
        (OC, IC), count = (part.W.shape[1], part.W.shape[-1]), part.W.shape[0]
        for g in split_segments(O, I, F, s, p):
            taps = g.c_e - g.c_s
            if taps == 0:
                continue
            split = -(-(F - g.residue) // s)  # tap c of the split filter is tap residue + (split - 1 - c) s
            Y = _along_depth(part.Y, g.first, g.length, 1, taps, 1)
            W = part.W.sliced(2, g.residue + (split - 1 - g.c_s) * s, taps, -s).permuted((0, 2, 1, 3, 4, 5))
            shape = part.shape_2d(c.N * g.length, count * IC, taps * count * OC)
            X = part.X.sliced(DEPTH, g.start, g.length, s)
            found.append(Piece(shape, X, W, Y, part.group * IC))
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def weight_pieces(c: ConvAxes) -> tuple[Piece, ...]:
    """Sk-dilated: several pieces may add to one tap, one for each phase."""
    found = []
    for part in parts(c):
        I, F, s, p, _, O = part.axes[0]
        (OC, IC), count = (part.W.shape[1], part.W.shape[-1]), part.W.shape[0]
        for f in range(F):
            begin, end = valid_outputs(f, O, I, s, p)
            if begin == end:
                continue
            X = part.X.sliced(DEPTH, begin * s + f - p, end - begin, s)
            W = part.W.sliced(2, f, 1).permuted((0, 1, 3, 4, 2, 5))
            shape = part.shape_2d(c.N * (end - begin), count * IC, count * OC)
            found.append(Piece(shape, X, W, part.Y.sliced(DEPTH, begin, end - begin), part.group * OC))
    return tuple(found)


_CUTS = {FORWARD: forward_pieces, INPUT: input_pieces, WEIGHT: weight_pieces}


# -- the operators on arrays ----------------------------------------------------------------------------


def forward(X: Array, W: Array, c: ConvAxes, precision: str, b: Array | None = None, slope: float = 1.0) -> Array:
    """Y = f(X * W + b)   X (N, *I, IC), W (OC, *F, IC / groups), b (OC,) -> Y (N, *O, OC)"""
    results, pieces = [], _pieces(FORWARD, c, X, precision)
    for piece in pieces:
        s = piece.shape
        W_piece = _filters(W, piece.W, s.W, taps_axis=4)
        results.append(conv2d_forward(_box(X, piece.X, s.X), W_piece, s, precision, _slice(b, piece, s.OC), slope))
    Y = _assembled(results, [piece.Y for piece in pieces], c.Y, X, b, slope)
    return Y.reshape(of_rank(c.Y, X.ndim))


def backward_input(
    dY: Array, W: Array, c: ConvAxes, precision: str, b: Array | None = None, slope: float = 1.0
) -> Array:
    """dX = deconv(dY, W), or f(deconv(dY, W) + b)   dY (N, *O, OC), W (OC, *F, IC / groups) -> dX (N, *I, IC)"""
    results, pieces = [], _pieces(INPUT, c, dY, precision, b)
    for piece in pieces:
        s = piece.shape
        W_piece = _filters(W, piece.W, s.W, taps_axis=1)
        results.append(
            conv2d_backward_input(_box(dY, piece.Y, s.Y), W_piece, s, precision, _slice(b, piece, s.IC), slope)
        )
    dX = _assembled(results, [piece.X for piece in pieces], c.X, dY, b, slope)
    return dX.reshape(of_rank(c.X, dY.ndim))


def backward_weight(X: Array, dY: Array, c: ConvAxes, precision: str, dtype: np.dtype[Any] | None = None) -> Array:
    """dW = dilated_conv(X, dY)   X (N, *I, IC), dY (N, *O, OC) -> dW (OC, *F, IC / groups)

    Of bfloat16 it is float32, or bfloat16 if `dtype` is that and there is only one piece.
    """
    found = _pieces(WEIGHT, c, X, precision)
    if len(found) == 1 and found[0].W.shape[0] == 1 and _is_whole(found[0].W, prod(c.W)):
        piece, s = found[0], found[0].shape
        dW = conv2d_backward_weight(_box(X, piece.X, s.X), _box(dY, piece.Y, s.Y), s, precision, dtype)
        return dW.reshape(of_rank(c.W, X.ndim))
    sums: dict[View, Array] = {}
    for piece in found:
        s = piece.shape
        dense = conv2d_backward_weight(_box(X, piece.X, s.X), _box(dY, piece.Y, s.Y), s, precision)
        part = read_view(dense, _diagonal(piece.W.shape, s.IC)) if piece.W.shape[0] > 1 else dense
        sums[piece.W] = add(sums[piece.W], part, out=sums[piece.W]) if piece.W in sums else part
    dW = device_of(X).zeros(c.W, next(iter(sums.values())).dtype if sums else _result_dtype(X))
    for box, part in sums.items():
        write_view(dW, box, part, View.whole(box.shape))
    return dW.reshape(of_rank(c.W, X.ndim))


def of_rank(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """The shape without the axes, of length 1, that a convolution of fewer axes does not have."""
    return (shape[0], *shape[len(shape) - ndim + 1 :])


def _result_dtype(X: Array) -> np.dtype[Any]:
    return X.dtype if X.dtype.itemsize >= 4 else FLOAT32


def _box(A: Array, box: View, shape: tuple[int, ...]) -> Array:
    """The elements of a box, in the shape that a 2-D operator takes."""
    return (A if _is_whole(box, A.size) else read_view(A, box)).reshape(shape)


def _is_whole(box: View, size: int) -> bool:
    """True if a box is all of an array, in its order."""
    return box.offset == 0 and box.size == size and box.is_contiguous


def _filters(W: Array, box: View, shape: tuple[int, ...], taps_axis: int) -> Array:
    """Dense filters (OC, FH, FW, IC), with zeros between different groups; the taps are channels, too."""
    groups = box.shape[0]
    if groups == 1:
        return _box(W, box, shape)
    result = device_of(W).zeros(shape, W.dtype)
    write_view(result, _diagonal(box.shape, shape[-1], taps_axis), W, box)
    return result


@functools.lru_cache(maxsize=1024)
def _diagonal(box: tuple[int, ...], IC: int, taps_axis: int = 4) -> View:
    """The place of each group in dense filters of IC input channels.

    Args:
        box: (groups, OC, FH, FW, taps, ic), with the taps before the input channels, or with `taps_axis` 1
            (groups, taps, OC, FH, FW, ic), with the taps before the output channels.
    """
    groups, ic = box[0], box[-1]
    if taps_axis == 4:
        _, oc, FH, FW, _, _ = box
        row = FH * FW * IC
        return View(box, (oc * row + ic, row, FW * IC, IC, groups * ic, 1))
    _, _, oc, FH, FW, _ = box
    row = FH * FW * IC
    return View(box, (oc * row + ic, groups * oc * row, row, FW * IC, IC, 1))


def _slice(b: Array | None, piece: Piece, channels: int) -> Array | None:
    """The bias of the piece's results."""
    if b is None or b.size == channels:
        return b
    return read_view(b, View((channels,), (1,), piece.first_channel))


def _assembled(
    results: list[Array], boxes: list[View], shape: tuple[int, ...], operand: Array, b: Array | None, slope: float
) -> Array:
    """The results in one array; f(b) at those that read nothing, which is 0 without a bias."""
    size = prod(shape)
    if len(results) == 1 and _is_whole(boxes[0], size):
        return results[0].reshape(shape)
    device = device_of(operand)
    covered = sum(box.size for box in boxes) == size
    if covered:
        Y = device.empty(shape, operand.dtype)
    else:
        Y = device.zeros(shape, operand.dtype)
        if b is not None:
            Y = _of_bias(Y, b, slope)
    for result, box in zip(results, boxes, strict=True):
        write_view(Y, box, result, View.whole(box.shape))
    return Y


def _of_bias(zeros: Array, b: Array, slope: float) -> Array:
    Y = add(zeros, b, out=zeros)
    return Y if slope == 1 else Rectifier(slope).rectify(Y)
