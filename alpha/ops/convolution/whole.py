"""Convolutions that are computed as they are, without cutting or copying an array; and those of patches side by side.

- dense ones of one or two axes, and those whose other axes are pointwise: one tap, stride 1, no padding
- depthwise ones of one or two axes; on cuda also those with groups of few channels
- on cuda, if its kernels take three axes and dilation (Hopper): those without groups

Where filters stand side by side, the image is cut into patches, and each patch meets all filters once.
The first layer of a vision transformer is one (16x16, stride 16), and so is that of ConvNeXt (4x4, stride 4). With its
patches copied into rows it is a matrix product with N OH OW rows and K = FH FW IC, for each of the three operators. The
kernels of convolutions multiply one tap at a time, and a tap of few channels fills no step of a tensor core.
"""

from __future__ import annotations

import functools
import math
from math import prod

from alpha.ops.conv2d.groups import small_groups
from alpha.ops.conv2d.problem import Target
from alpha.ops.conv2d.select.choose import predicted_cycles
from alpha.ops.conv2d.select.time_model import constants_of
from alpha.ops.conv2d.shape import TRIVIAL, Axis, ConvShape
from alpha.ops.convolution.conv_arguments import ConvAxes
from alpha.ops.kernel.views import View

FEW_CHANNELS = 16  # with more, a tap fills a step of a tensor core well enough, and no copy pays


def is_patches(c: ConvAxes) -> bool:
    """True if each input of a few channels belongs to at most one output pixel, which reads several."""
    side_by_side = all(axis.s == axis.F and (axis.p, axis.d) == (0, 1) for axis in c.axes)
    return side_by_side and c.groups == 1 and c.IC < FEW_CHANNELS and prod(c.W[1:-1]) > 1


@functools.lru_cache(maxsize=4096)
def shape_of_kernels(c: ConvAxes, device: str) -> ConvShape | None:
    """The shape if kernels for two axes compute the whole on a device, and its patches are no choice: see `as_2d`."""
    return None if device == "cuda" and is_patches(c) else as_2d(c, device)


def patches_of(c: ConvAxes) -> View:
    """The patches (N, OD, OH, OW, FD, FH, FW, IC) as a box of X; what lies behind the last patch is left out."""
    N, *steps, channel = View.whole(c.X).strides
    F, O = [axis.F for axis in c.axes], [axis.O for axis in c.axes]
    apart = [step * length for step, length in zip(steps, F, strict=True)]
    return View((c.N, *O, *F, c.IC), (N, *apart, *steps, channel))


@functools.lru_cache(maxsize=1024)
def as_product(operator: str, c: ConvAxes, target: Target, precision: str) -> ConvShape | None:
    """The matrix product of the patches, as images of one pixel, if it is predicted to be faster with their copy.

    A product with patches whose convolution no kernel computes as it is (a depth) is always taken.
    """
    if not is_patches(c):
        return None
    rows, K = prod(c.Y[:-1]), prod(c.W[1:])
    product = ConvShape(rows, 1, 1, K, c.OC, 1, 1, 1, 1, 0, 0, 1, 1)
    constants, item = constants_of(target.name), 2 if precision == "bf16" else 4
    copied = constants.launch + 2 * item * rows * K / constants.memory
    whole = as_2d(c, "cuda")
    cycles = math.inf if whole is None else predicted_cycles(operator, whole, target, precision)
    return product if predicted_cycles(operator, product, target, precision) + copied < cycles else None


@functools.lru_cache(maxsize=4096)
def as_2d(c: ConvAxes, device: str = "cpu") -> ConvShape | None:
    """The shape if kernels for two axes compute the whole: dense and depthwise ones; on cuda small groups, too."""
    merged = without_pointwise(c)
    (depth, h, w), (groups, dilation) = merged.axes, (c.groups, (merged.axes[1].d, merged.axes[2].d))
    if merged.is_plain:
        groups, dilation = 1, (1, 1)
    elif depth != TRIVIAL or groups == 1:
        return None
    s = ConvShape(merged.N, h.I, w.I, c.IC, c.OC, h.F, w.F, h.s, w.s, h.p, w.p, h.O, w.O, groups, *dilation)
    whole = s.is_dense or groups == c.IC or (device == "cuda" and small_groups.supports_all(s))
    return s if whole else None


def with_axes(c: ConvAxes) -> ConvShape | None:
    """The shape with a depth and dilation, which only some kernels compute; None with groups."""
    if c.groups > 1:
        return None
    merged = without_pointwise(c)
    d, h, w = (axis._replace(d=1) if axis.F == 1 else axis for axis in merged.axes)
    sizes = merged.N, h.I, w.I, c.IC, c.OC, h.F, w.F, h.s, w.s, h.p, w.p, h.O, w.O
    return ConvShape(*sizes, 1, h.d, w.d, d.I, d.F, d.s, d.p, d.d, d.O)


def without_pointwise(c: ConvAxes) -> ConvAxes:
    """The same convolution of the same arrays with fewer axes, if some are pointwise.

    A pointwise depth makes more images. Pointwise height and width are one axis, the width, and depth is the height.
    """
    depth, h, w = c.axes
    if is_pointwise(depth):
        return c._replace(N=c.N * depth.I, axes=(TRIVIAL, h, w))
    if is_pointwise(h) and is_pointwise(w):
        pixels = h.I * w.I
        return c._replace(axes=(TRIVIAL, depth, Axis(pixels, 1, 1, 0, 1, pixels)))
    return c


def is_pointwise(axis: Axis) -> bool:
    """True if each output of the axis reads the input at its own place and no other, and each input is read.

    An output_padding makes an axis of one tap whose last inputs nobody reads.
    """
    return (axis.F, axis.s, axis.p, axis.O) == (1, 1, 0, axis.I)
