"""Convolutions and transposed convolutions of one to three axes, channels last.

Some are computed as they are by the kernels of `ops/conv2d` (`whole.py`); every other one is made of such convolutions
(`pieces.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops import conv2d as plain
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.magnitudes import magnitude_of
from alpha.ops.convolution import pieces
from alpha.ops.convolution.conv_arguments import ConvAxes, Padding, check_epilogue, convolution_axes, transposed_axes
from alpha.ops.convolution.whole import as_2d, shape_of_kernels
from alpha.ops.kernel.arguments import NoImages, check_arguments
from alpha.ops.kernel.options import Lengths

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


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
    def backward_weight(X: Array, dY: Array, c: ConvAxes, precision: str, dtype: np.dtype[Any]) -> Array:
        return pieces.backward_weight(dY, X, c, precision, dtype)


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
    return _convolve("conv1d", (x, weight, bias), (stride, padding, dilation), groups, negative_slope)


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

    x (N, IH, IW, IC), or one image without N, weight (OC, FH, FW, IC / groups), bias (OC,) -> (N, OH, OW, OC) with
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
            is given the same object, if the kernel can compute them (alpha/ops/conv2d/channel_statistics.py).

    Raises:
        ShapeError: channels differ or do not divide into the groups, or the output would be empty.
        TypeError: x, weight or bias is not a Tensor of floating numbers, or a size is not an integer.
        ValueError: negative_slope is not between 0 and 1, a stride or dilation is below 1, a padding is negative, or
            "same" is given with another stride than 1.

    Examples:
        >>> import alpha
        >>> import alpha.nn.functional as F
        >>> F.conv2d(alpha.ones(1, 5, 5, 3), alpha.ones(8, 3, 3, 3), padding=1).shape
        (1, 5, 5, 8)
    """
    if statistics is not None:
        statistics.take({})  # what is there may be from an earlier call
    sizes = stride, padding, dilation
    if x.ndim != 4:
        return _convolve("conv2d", (x, weight, bias), sizes, groups, negative_slope)
    c = convolution_axes("conv2d", x, weight, sizes, groups)
    check_epilogue("conv2d", bias, c.OC, negative_slope)
    if not c.N:
        return NoImages.apply(x, weight, bias, shape=pieces.of_rank(c.Y, x.ndim))
    shape = shape_of_kernels(c, x.device.name)
    if shape is None:
        return Conv.apply(x, weight, bias, shape=c, negative_slope=negative_slope)
    found = {"statistics": statistics, "magnitude": magnitude_of(x)}
    y = plain.Conv2d.apply(x, weight, bias, shape=shape, negative_slope=negative_slope, **found)
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
    return _convolve("conv3d", (x, weight, bias), (stride, padding, dilation), groups, negative_slope)


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
    sizes = stride, padding, output_padding, dilation
    return _convolve_transposed("conv_transpose1d", (x, weight, bias), sizes, groups, negative_slope)


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

    x (N, IH, IW, IC), or one image without N, weight (IC, FH, FW, OC / groups), bias (OC,) -> (N, OH, OW, OC) with
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
    sizes = stride, padding, output_padding, dilation
    return _convolve_transposed("conv_transpose2d", (x, weight, bias), sizes, groups, negative_slope)


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
    sizes = stride, padding, output_padding, dilation
    return _convolve_transposed("conv_transpose3d", (x, weight, bias), sizes, groups, negative_slope)


# -- what they share ------------------------------------------------------------------------------------

Operands = tuple[Tensor, Tensor, Tensor | None]  # x, weight, bias


def _convolve(
    name: str, operands: Operands, sizes: tuple[Lengths, Padding, Lengths], groups: int, slope: float
) -> Tensor:
    """The convolution; `sizes` are stride, padding and dilation. One image may come without its first axis."""
    x, weight, bias = operands
    if x.ndim + 1 == weight.ndim:
        y = _convolve(name, (x.reshape(1, *x.shape), weight, bias), sizes, groups, slope)
        return y.reshape(y.shape[1:])
    c = convolution_axes(name, x, weight, sizes, groups)
    check_epilogue(name, bias, c.OC, slope)
    if not c.N:
        return NoImages.apply(x, weight, bias, shape=pieces.of_rank(c.Y, x.ndim))
    shape = shape_of_kernels(c, x.device.name) if x.ndim == 4 else None
    if shape is None:
        return Conv.apply(x, weight, bias, shape=c, negative_slope=slope)
    return plain.Conv2d.apply(x, weight, bias, shape=shape, negative_slope=slope, magnitude=magnitude_of(x))


def _convolve_transposed(
    name: str, operands: Operands, sizes: tuple[Lengths, Lengths, Lengths, Lengths], groups: int, slope: float
) -> Tensor:
    """The transposed convolution; `sizes` are stride, padding, output_padding and dilation."""
    x, weight, bias = operands
    if x.ndim + 1 == weight.ndim:
        y = _convolve_transposed(name, (x.reshape(1, *x.shape), weight, bias), sizes, groups, slope)
        return y.reshape(y.shape[1:])
    c = transposed_axes(name, x, weight, sizes, groups)
    check_epilogue(name, bias, c.IC, slope)
    if not c.N:
        return NoImages.apply(x, weight, bias, shape=pieces.of_rank(c.X, x.ndim))
    shape = as_2d(c, x.device.name) if x.ndim == 4 else None
    if shape is None:
        return ConvTranspose.apply(x, weight, bias, shape=c, negative_slope=slope)
    magnitude = magnitude_of(x)
    return plain.ConvTranspose2d.apply(x, weight, bias, shape=shape, negative_slope=slope, magnitude=magnitude)
