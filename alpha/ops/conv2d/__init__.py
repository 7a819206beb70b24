"""2-D convolution and transposed convolution on NHWC arrays, by the C-K-S algorithms.

Three operators (paper, equations 1-3), each with its variants in `variants.py`:

    conv2d_forward           ConvV2       Y  = X * W
    conv2d_backward_input    KS-deconv    dX = deconv(dY, W)
    conv2d_backward_weight   Sk-dilated   dW = dilated_conv(X, dY)
"""

from __future__ import annotations

import functools
from typing import Any

from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.numerics import get_precision
from alpha.ops.conv2d.choose import choose
from alpha.ops.conv2d.shape import ConvShape, Pair, conv_shape, pair
from alpha.ops.conv2d.variants import FORWARD, INPUT, WEIGHT, Target
from alpha.ops.elementwise import add, need_float32
from alpha.ops.reduce import sum_middle
from alpha.primitive import Array, primitive
from alpha.runtime import Device
from alpha.tensor import Tensor

__all__ = ["ConvShape", "conv2d", "conv_transpose2d"]


@primitive
def conv2d_forward(X: Array, W: Array, s: ConvShape, precision: str = "float32") -> Array:
    """Y = X * W   X (N, IH, IW, IC), W (OC, FH, FW, IC) -> Y (N, OH, OW, OC)"""


@primitive
def conv2d_backward_input(dY: Array, W: Array, s: ConvShape, precision: str = "float32") -> Array:
    """dX = deconv(dY, W)   dY (N, OH, OW, OC), W (OC, FH, FW, IC) -> dX (N, IH, IW, IC)"""


@primitive
def conv2d_backward_weight(X: Array, dY: Array, s: ConvShape, precision: str = "float32") -> Array:
    """dW = dilated_conv(X, dY)   X (N, IH, IW, IC), dY (N, OH, OW, OC) -> dW (OC, FH, FW, IC)"""


CPU = Target("cpu")


@functools.cache
def cuda_target(device: Device) -> Target:
    properties = device.properties  # type: ignore[attr-defined]
    return Target(
        "cuda",
        properties.compute_capability,
        properties.multiprocessors,
        properties.shared_bytes_per_block,
    )


@conv2d_forward.impl("cpu")
def _(X: Array, W: Array, s: ConvShape, precision: str = "float32") -> Array:
    variant = choose(FORWARD, s, CPU, precision)
    return variant.run(X, W, s, variant)


@conv2d_forward.impl("cuda")
def _(X: Array, W: Array, s: ConvShape, precision: str = "float32") -> Array:
    need_float32("conv2d", X, W)
    variant = choose(FORWARD, s, cuda_target(X.device), precision)
    return variant.run(X, W, s, variant)


@conv2d_backward_input.impl("cpu")
def _(dY: Array, W: Array, s: ConvShape, precision: str = "float32") -> Array:
    variant = choose(INPUT, s, CPU, precision)
    return variant.run(dY, W, s, variant)


@conv2d_backward_input.impl("cuda")
def _(dY: Array, W: Array, s: ConvShape, precision: str = "float32") -> Array:
    need_float32("conv2d", dY, W)
    variant = choose(INPUT, s, cuda_target(dY.device), precision)
    return variant.run(dY, W, s, variant)


@conv2d_backward_weight.impl("cpu")
def _(X: Array, dY: Array, s: ConvShape, precision: str = "float32") -> Array:
    variant = choose(WEIGHT, s, CPU, precision)
    return variant.run(X, dY, s, variant)


@conv2d_backward_weight.impl("cuda")
def _(X: Array, dY: Array, s: ConvShape, precision: str = "float32") -> Array:
    need_float32("conv2d", X, dY)
    variant = choose(WEIGHT, s, cuda_target(X.device), precision)
    return variant.run(X, dY, s, variant)


def _bias_gradient(dY: Array) -> Array:
    """db = sum over images and positions   dY (N, H, W, C) -> db (C,)"""
    C = dY.shape[-1]
    return sum_middle(dY.reshape(1, -1, C)).reshape(C)


class Conv2d(Function):
    """Y = X * W + b   X (N, IH, IW, IC), W (OC, FH, FW, IC), b (OC,) -> Y (N, OH, OW, OC)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        X, W, b = arrays
        self.s: ConvShape = options["shape"]
        self.precision = get_precision()
        self.save(X, W)
        Y = conv2d_forward(X, W, self.s, self.precision)
        return Y if b is None else add(Y, b, out=Y)

    def backward(self, dY: Array) -> Any:
        X, W = self.saved
        return (
            conv2d_backward_input(dY, W, self.s, self.precision) if self.needs[0] else None,
            conv2d_backward_weight(X, dY, self.s, self.precision) if self.needs[1] else None,
            _bias_gradient(dY) if self.needs[2] else None,
        )


class ConvTranspose2d(Function):
    """The adjoint of Conv2d in X   X (N, OH, OW, OC), W (OC, FH, FW, IC), b (IC,) -> Y (N, IH, IW, IC)

    The shape is that of the convolution that it is the adjoint of: its output is our input.
    """

    def forward(self, *arrays: Array, **options: Any) -> Array:
        X, W, b = arrays
        self.s: ConvShape = options["shape"]
        self.precision = get_precision()
        self.save(X, W)
        Y = conv2d_backward_input(X, W, self.s, self.precision)
        return Y if b is None else add(Y, b, out=Y)

    def backward(self, dY: Array) -> Any:
        X, W = self.saved
        return (
            conv2d_forward(dY, W, self.s, self.precision) if self.needs[0] else None,
            conv2d_backward_weight(dY, X, self.s, self.precision) if self.needs[1] else None,
            _bias_gradient(dY) if self.needs[2] else None,
        )


def _check_bias(operator: str, bias: Tensor | None, channels: int) -> None:
    if bias is not None and bias.shape != (channels,):
        raise ShapeError(f"{operator}: bias has shape {bias.shape}, ({channels},) is needed")


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Pair = 1, padding: Pair = 0
) -> Tensor:
    """2-D convolution (cross-correlation), zeros skipped (C-K-S, section IV).

    x (N, IH, IW, IC), weight (OC, FH, FW, IC), bias (OC,) -> (N, OH, OW, OC) with
    OH = (IH + 2 ph - FH) // sh + 1, OW likewise.

    Args:
        stride: (sh, sw), or one number for both.
        padding: (ph, pw) zeros around the image, or one number for both; may exceed the filter.

    Raises:
        ShapeError: channels differ, or the output would be empty.
    """
    s = conv_shape(
        "conv2d", x.shape, weight.shape, pair("stride", stride), pair("padding", padding)
    )
    _check_bias("conv2d", bias, s.OC)
    return Conv2d.apply(x, weight, bias, shape=s)


def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    output_padding: Pair = 0,
) -> Tensor:
    """Transposed 2-D convolution: the input gradient of `conv2d` as an operator (KS-deconv).

    x (N, IH, IW, IC), weight (IC, FH, FW, OC), bias (OC,) -> (N, OH, OW, OC) with
    OH = (IH - 1) sh - 2 ph + FH + output_padding, OW likewise.

    Raises:
        ShapeError: channels differ, output_padding is not below the stride, or the output would be empty.
    """
    (sh, sw), (ph, pw) = pair("stride", stride), pair("padding", padding)
    oph, opw = pair("output_padding", output_padding)
    if x.ndim != 4 or weight.ndim != 4 or x.shape[3] != weight.shape[0]:
        raise ShapeError(
            f"conv_transpose2d: x (N, H, W, IC) and weight (IC, FH, FW, OC) are needed  "
            f"(x {x.shape}, weight {weight.shape})"
        )
    if not (0 <= oph < sh and 0 <= opw < sw):
        raise ShapeError(
            f"conv_transpose2d: output_padding ({oph}, {opw}) must be below stride ({sh}, {sw})"
        )
    N, H, W, _ = x.shape
    OC, FH, FW = weight.shape[3], weight.shape[1], weight.shape[2]
    output = (N, (H - 1) * sh - 2 * ph + FH + oph, (W - 1) * sw - 2 * pw + FW + opw, OC)
    # the convolution whose adjoint this is: its X is our output
    s = conv_shape("conv_transpose2d", output, weight.shape, (sh, sw), (ph, pw), (H, W))
    _check_bias("conv_transpose2d", bias, OC)
    return ConvTranspose2d.apply(x, weight, bias, shape=s)
