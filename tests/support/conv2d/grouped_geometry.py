"""Geometries of depthwise and grouped convolutions: small, and with rows that differ from columns in everything."""

from __future__ import annotations

from alpha.ops.conv2d.problem import Configuration, Target
from alpha.ops.conv2d.shape import ConvShape, conv_shape

HOPPER = Target("cuda", (9, 0), 132, 227 << 10)
Pair = tuple[int, int]


def make(
    I: Pair, filters: Pair, stride: Pair = (1, 1), padding: Pair = (0, 0), C: int = 6, N: int = 2, multiplier: int = 1
) -> ConvShape:
    """Depthwise, with `multiplier` output channels per input channel."""
    weight = C * multiplier, *filters, 1
    return conv_shape("test", (N, *I, C), weight, stride, padding, groups=C)


def grouped(
    I: Pair, filters: Pair, stride: Pair, padding: Pair, groups: int, C: Pair, N: int = 2, dilation: Pair = (1, 1)
) -> ConvShape:
    """Shape with C = (input, output) channels per group."""
    weight = groups * C[1], *filters, C[0]
    return conv_shape("test", (N, *I, groups * C[0]), weight, stride, padding, groups=groups, dilation=dilation)


# Several strips and segments; two strips; one strip of a small map; strides of which one skips pixels; a filter of one
# tap; more channels than a block
SHAPES = (
    make((14, 23), (3, 2), (1, 2), (2, 1)),
    make((9, 12), (2, 5), (2, 1), (1, 3), C=5),
    make((5, 7), (7, 5), (1, 1), (3, 2), C=8),
    make((20, 17), (4, 3), (3, 2), (0, 1), C=3, N=3),
    make((6, 11), (1, 1), (2, 3), C=7),
    make((13, 9), (3, 4), (2, 1), (1, 2), C=74, N=1),
    make((8, 13), (2, 3), (1, 2), (1, 1), C=4, multiplier=2),
)
# Several channels of a block and blocks; strides and groups of two sizes; channels that differ; one tap
SMALL_GROUPS = (
    grouped((8, 13), (2, 3), (1, 2), (1, 1), 6, (8, 4)),
    grouped((11, 17), (3, 2), (2, 1), (1, 0), 9, (4, 4)),
    grouped((5, 7), (3, 3), (1, 1), (1, 1), 2, (32, 24)),
    grouped((9, 14), (1, 1), (2, 3), (0, 0), 2, (4, 12)),
    grouped((7, 20), (5, 3), (3, 2), (0, 1), 3, (12, 16)),
)
# For mma.sync: blocks of several strips, of two images; strips that are parts of a row; blocks and tiles off the
# channels; maps of one pixel, of which no tap but one is inside; a long filter; groups off a vector; more groups than
# SMs take at a time, so that a block has several tasks
TENSOR_GROUPS = (
    *SMALL_GROUPS,
    grouped((9, 19), (3, 3), (2, 2), (1, 1), 6, (16, 16), N=3),
    grouped((4, 115), (3, 5), (1, 1), (2, 1), 18, (4, 4), N=2),
    grouped((7, 7), (3, 3), (1, 1), (1, 1), 5, (32, 32), N=5),
    grouped((1, 1), (3, 3), (1, 1), (1, 1), 4, (8, 8), N=3),
    grouped((12, 10), (7, 7), (2, 1), (0, 3), 3, (8, 8)),
    grouped((8, 9), (1, 3), (3, 2), (0, 2), 4, (12, 8)),
    grouped((1, 2), (1, 2), (1, 1), (0, 1), 67, (32, 32), N=33),
)
# Dilated; with padding above the filter, and with outputs that read nothing
ANY = (
    grouped((9, 14), (3, 2), (2, 1), (3, 4), 3, (2, 5), dilation=(2, 3)),
    grouped((13, 8), (2, 4), (1, 2), (0, 5), 4, (3, 1), dilation=(3, 1)),
    grouped((3, 11), (1, 9), (2, 3), (1, 4), 2, (1, 2), N=3),
)
FAMILIES = {"depthwise": SHAPES, "small_groups": SMALL_GROUPS, "grouped": ANY}


def of(row: Configuration) -> tuple[ConvShape, ...]:
    """The shapes on which a row of the table of grouped convolutions is tried."""
    if "_sm80_" in row.name:
        return tuple(s for s in TENSOR_GROUPS if row.supports(s, HOPPER))
    shapes = next(shapes for name, shapes in FAMILIES.items() if row.name.startswith(name))
    return tuple(s for s in shapes if row.supports(s, HOPPER))


# What the gate compiles for each architecture: layers of ConvNeXt-T, MobileNetV2 and ResNeXt50
COMPILED = (
    make((56, 56), (7, 7), padding=(3, 3), C=96, N=64),
    make((112, 112), (3, 3), (2, 2), (1, 1), C=96, N=64),
    grouped((56, 56), (3, 3), (1, 1), (1, 1), 32, (4, 4), N=32),
    grouped((28, 28), (3, 3), (2, 2), (1, 1), 32, (16, 16), N=32),
    grouped((7, 7), (3, 3), (1, 1), (1, 1), 32, (32, 32), N=32),
)
