"""Convolutions and transposed convolutions of one to three axes, channels last.

A 2-D convolution without groups and dilation is computed by the kernels of `ops/conv2d`; every other one is made of
such convolutions (`pieces.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha.errors import ShapeError
from alpha.ops import conv2d as plain
from alpha.ops.arguments import check_arguments
from alpha.ops.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.convolution import pieces
from alpha.ops.convolution.axes import TRIVIAL, Axis, ConvAxes, output_length
from alpha.ops.options import Lengths, integer, lengths, real
from alpha.primitive import Array
from alpha.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]

Padding = Lengths | str  # or "same" or "valid"


class Conv(plain.Convolution):
    """Y = f(X * W + b)   X (N, *I, IC), W (OC, *F, IC / groups), b (OC,) -> Y (N, *O, OC)"""

    product = staticmethod(pieces.forward)
    backward_x = staticmethod(pieces.backward_input)
    backward_weight = staticmethod(pieces.backward_weight)


class ConvTranspose(plain.Convolution):
    """The adjoint of Conv in X   X (N, *O, OC), W (OC, *F, IC / groups), b (IC,) -> Y (N, *I, IC)

    The axes are those of the convolution that it is the adjoint of: its output is our input.
    """

    product = staticmethod(pieces.backward_input)
    backward_x = staticmethod(pieces.forward)

    @staticmethod
    def backward_weight(X: Array, dY: Array, c: ConvAxes, precision: str) -> Array:
        return pieces.backward_weight(dY, X, c, precision)


# -- the functions ------------------------------------------------------------------------------------


@check_arguments
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = 1,
    padding: Padding = 0,
    dilation: Lengths = 1,
    groups: int = 1,
    *,
    negative_slope: float = 1.0,
) -> Tensor:
    """1-D convolution (cross-correlation); arguments and errors as for `conv2d`, with one length instead of two.

    x (N, L, IC), weight (OC, F, IC / groups), bias (OC,) -> (N, O, OC) with O = (L + 2 p - d (F - 1) - 1) // s + 1
    """
    c = _axes("conv1d", x, weight, (stride, padding, dilation), groups)
    return _convolve("conv1d", (x, weight, bias), c, negative_slope)


@check_arguments
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = 1,
    padding: Padding = 0,
    dilation: Lengths = 1,
    groups: int = 1,
    *,
    negative_slope: float = 1.0,
    statistics: ChannelStatistics | None = None,
) -> Tensor:
    """2-D convolution (cross-correlation), zeros skipped (C-K-S, section IV).

    x (N, IH, IW, IC), weight (OC, FH, FW, IC / groups), bias (OC,) -> (N, OH, OW, OC) with
    OH = (IH + 2 ph - dh (FH - 1) - 1) // sh + 1, OW likewise.

    Args:
        stride: (sh, sw), or one number for both.
        padding: (ph, pw) zeros around the image, or one number for both; may exceed the filter. "valid" is 0; with
            "same" and stride 1 the output has the size of the input.
        dilation: (dh, dw), the distance between the taps of a filter, or one number for both. No zero is multiplied
            for the gaps.
        groups: the channels are cut into so many groups, each with filters of its own.
        negative_slope: the slope of a leaky ReLU on the result, which the kernel of the convolution computes
            if it can: 0 is ReLU, 1 (the default) means no leaky ReLU.
        statistics: an object that gets the mean and variance of each channel of the result, for the `batch_norm` that
            is given the same object, if the kernel can compute them (alpha/ops/channel_statistics.py).

    Raises:
        ShapeError: channels differ or do not divide into the groups, or the output would be empty.
        TypeError: x, weight or bias is not a Tensor of floating numbers, or a size is not an integer.
        ValueError: negative_slope is not between 0 and 1, a stride or dilation is below 1, a padding is negative, or
            "same" is given with another stride than 1.
    """
    c = _axes("conv2d", x, weight, (stride, padding, dilation), groups)
    if statistics is not None:
        statistics.take({})  # what is there may be from an earlier call
    y = _convolve("conv2d", (x, weight, bias), c, negative_slope, statistics)
    if statistics is not None:
        statistics.describe(y)
    return y


@check_arguments
def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = 1,
    padding: Padding = 0,
    dilation: Lengths = 1,
    groups: int = 1,
    *,
    negative_slope: float = 1.0,
) -> Tensor:
    """3-D convolution (cross-correlation); arguments and errors as for `conv2d`, with three lengths instead of two.

    x (N, ID, IH, IW, IC), weight (OC, FD, FH, FW, IC / groups), bias (OC,) -> (N, OD, OH, OW, OC)
    """
    c = _axes("conv3d", x, weight, (stride, padding, dilation), groups)
    return _convolve("conv3d", (x, weight, bias), c, negative_slope)


@check_arguments
def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = 1,
    padding: Lengths = 0,
    output_padding: Lengths = 0,
    groups: int = 1,
    dilation: Lengths = 1,
    *,
    negative_slope: float = 1.0,
) -> Tensor:
    """Transposed 1-D convolution; arguments and errors as for `conv_transpose2d`, with one length instead of two.

    x (N, L, IC), weight (IC, F, OC / groups), bias (OC,) -> (N, O, OC) with
    O = (L - 1) s - 2 p + d (F - 1) + output_padding + 1
    """
    c = _transposed_axes("conv_transpose1d", x, weight, (stride, padding, output_padding, dilation), groups)
    return _convolve_transposed("conv_transpose1d", (x, weight, bias), c, negative_slope)


@check_arguments
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = 1,
    padding: Lengths = 0,
    output_padding: Lengths = 0,
    groups: int = 1,
    dilation: Lengths = 1,
    *,
    negative_slope: float = 1.0,
) -> Tensor:
    """Transposed 2-D convolution: the input gradient of `conv2d` as an operator (KS-deconv).

    x (N, IH, IW, IC), weight (IC, FH, FW, OC / groups), bias (OC,) -> (N, OH, OW, OC) with
    OH = (IH - 1) sh - 2 ph + dh (FH - 1) + output_padding + 1, OW likewise.

    Args:
        stride, padding, output_padding, dilation: (height, width), or one number for both.
        groups: the channels are cut into so many groups, each with filters of its own.
        negative_slope: as for `conv2d`.

    Raises:
        ShapeError: channels differ or do not divide into the groups, output_padding is neither below the stride nor
            below the dilation, or the output would be empty.
        TypeError: x, weight or bias is not a Tensor of floating numbers, or a size is not an integer.
        ValueError: negative_slope is not between 0 and 1, or a size is too small.
    """
    c = _transposed_axes("conv_transpose2d", x, weight, (stride, padding, output_padding, dilation), groups)
    return _convolve_transposed("conv_transpose2d", (x, weight, bias), c, negative_slope)


@check_arguments
def conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Lengths = 1,
    padding: Lengths = 0,
    output_padding: Lengths = 0,
    groups: int = 1,
    dilation: Lengths = 1,
    *,
    negative_slope: float = 1.0,
) -> Tensor:
    """Transposed 3-D convolution; arguments and errors as for `conv_transpose2d`, with three lengths instead of two.

    x (N, ID, IH, IW, IC), weight (IC, FD, FH, FW, OC / groups), bias (OC,) -> (N, OD, OH, OW, OC)
    """
    c = _transposed_axes("conv_transpose3d", x, weight, (stride, padding, output_padding, dilation), groups)
    return _convolve_transposed("conv_transpose3d", (x, weight, bias), c, negative_slope)


# -- what they share ------------------------------------------------------------------------------------

Operands = tuple[Tensor, Tensor, Tensor | None]  # x, weight, bias


def _axes(name: str, x: Tensor, weight: Tensor, sizes: tuple[Lengths, Padding, Lengths], groups: int) -> ConvAxes:
    """The axes of a convolution, after a check of its arguments; `sizes` are stride, padding and dilation."""
    rank = _check_rank(name, x, weight, "OC", "IC / groups")
    s, d = (lengths(name, key, value, rank, least=1) for key, value in (("stride", sizes[0]), ("dilation", sizes[2])))
    F, I, G = weight.shape[1:-1], x.shape[1:-1], integer(name, "groups", groups, least=1)
    _check_channels(name, x, weight, G, weight.shape[-1] * G, OC=weight.shape[0])
    if isinstance(sizes[1], str):
        p = _named_padding(name, sizes[1], F, s, d)
    else:
        p = [(n, n) for n in lengths(name, "padding", sizes[1], rank, least=0)]
    O = [output_length(*each) for each in zip(I, F, s, p, d, strict=True)]
    _check_output(name, x, weight, (x.shape[0], *O, weight.shape[0]))
    own = [Axis(i, f, st, before, di, o) for i, f, st, (before, _), di, o in zip(I, F, s, p, d, O, strict=True)]
    return ConvAxes(x.shape[0], x.shape[-1], weight.shape[0], G, _three(own))


def _transposed_axes(
    name: str, x: Tensor, weight: Tensor, sizes: tuple[Lengths, Lengths, Lengths, Lengths], groups: int
) -> ConvAxes:
    """The axes of the convolution whose adjoint it is; `sizes` are stride, padding, output_padding and dilation."""
    rank = _check_rank(name, x, weight, "IC", "OC / groups")
    keys, least = ("stride", "padding", "output_padding", "dilation"), (1, 0, 0, 1)
    s, p, extra, d = (
        lengths(name, key, value, rank, least=n) for key, value, n in zip(keys, sizes, least, strict=True)
    )
    G = integer(name, "groups", groups, least=1)
    _check_channels(name, x, weight, G, weight.shape[0], IC=weight.shape[0])
    if any(n >= max(st, di) for n, st, di in zip(extra, s, d, strict=True)):
        raise ShapeError(f"{name}: output_padding {extra} must be below stride {s} or dilation {d}")
    F, O, OC = weight.shape[1:-1], x.shape[1:-1], weight.shape[-1] * G
    I = [
        (o - 1) * st - 2 * pad + di * (f - 1) + n + 1 for o, f, st, pad, n, di in zip(O, F, s, p, extra, d, strict=True)
    ]
    _check_output(name, x, weight, (x.shape[0], *I, OC))
    own = [Axis(*each) for each in zip(I, F, s, p, d, O, strict=True)]
    return ConvAxes(x.shape[0], OC, weight.shape[0], G, _three(own))


def _convolve(
    name: str, operands: Operands, c: ConvAxes, slope: float, statistics: ChannelStatistics | None = None
) -> Tensor:
    _check_epilogue(name, operands[2], c.OC, slope)
    if c.is_plain and operands[0].ndim == 4:
        return plain.Conv2d.apply(*operands, shape=_as_2d(c), negative_slope=slope, statistics=statistics)
    return Conv.apply(*operands, shape=c, negative_slope=slope)


def _convolve_transposed(name: str, operands: Operands, c: ConvAxes, slope: float) -> Tensor:
    _check_epilogue(name, operands[2], c.IC, slope)
    if c.is_plain and operands[0].ndim == 4:
        return plain.ConvTranspose2d.apply(*operands, shape=_as_2d(c), negative_slope=slope)
    return ConvTranspose.apply(*operands, shape=c, negative_slope=slope)


def _as_2d(c: ConvAxes) -> ConvShape:
    h, w = c.axes[1:]
    return ConvShape(c.N, h.I, w.I, c.IC, c.OC, h.F, w.F, h.s, w.s, h.p, w.p, h.O, w.O)


def _three(axes: Sequence[Axis]) -> Any:
    """Depth, height and width; the ones that a convolution does not have are trivial."""
    return (*[TRIVIAL] * (3 - len(axes)), *axes)


# -- checks -----------------------------------------------------------------------------------------------


def check_slope(operator: str, slope: float) -> None:
    """`ValueError` for a slope that the kernels of a convolution do not compute."""
    if not 0 <= real(operator, "negative_slope", slope) <= 1:
        raise ValueError(f"{operator}: negative_slope={slope} is not between 0 and 1")


def _check_epilogue(name: str, bias: Tensor | None, channels: int, slope: float) -> None:
    check_slope(name, slope)
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(f"{name}: bias has shape {bias.shape}, ({channels},) is needed")


def _check_rank(name: str, x: Tensor, weight: Tensor, first: str, last: str) -> int:
    """The number of axes between images and channels."""
    rank = int(name[-2])
    letters = {1: "L", 2: "H, W", 3: "D, H, W"}[rank]
    filters = {1: "F", 2: "FH, FW", 3: "FD, FH, FW"}[rank]
    if x.ndim != rank + 2 or weight.ndim != rank + 2:
        raise ShapeError(
            f"{name}: x (N, {letters}, C) and weight ({first}, {filters}, {last}) are needed  "
            f"(x {x.shape}, weight {weight.shape})"
        )
    return rank


def _check_channels(name: str, x: Tensor, weight: Tensor, groups: int, expected: int, **divided: int) -> None:
    for what, count in (("x", x.shape[-1]), *divided.items()):
        if count % groups:
            raise ShapeError(f"{name}: {count} channels of {what} do not divide into {groups} groups")
    if x.shape[-1] != expected:
        raise ShapeError(
            f"{name}: x has {x.shape[-1]} channels but weight expects {expected}  (x {x.shape}, weight {weight.shape})"
        )


def _check_output(name: str, x: Tensor, weight: Tensor, shape: tuple[int, ...]) -> None:
    if min((*shape, *x.shape, *weight.shape)) < 1:
        raise ShapeError(f"{name}: the output would be {shape}, which is empty  (x {x.shape}, weight {weight.shape})")


def _named_padding(
    name: str, padding: str, F: Sequence[int], s: Sequence[int], d: Sequence[int]
) -> list[tuple[int, int]]:
    """The zeros before and after each axis for "valid" and "same"; of an odd number the larger half comes after."""
    if padding == "valid":
        return [(0, 0)] * len(F)
    if padding != "same":
        raise ValueError(f'{name}: padding={padding!r} is neither an integer nor "same" nor "valid"')
    if any(n != 1 for n in s):
        raise ValueError(f'{name}: padding="same" is offered with stride 1 only, not {tuple(s)}')
    every = [di * (f - 1) for f, di in zip(F, d, strict=True)]
    return [(n // 2, n - n // 2) for n in every]
