"""Geometries of convolutions with a depth or dilation: small, with axes that differ from one another in everything."""

from __future__ import annotations

from alpha.ops.conv2d.problem import Configuration, Target
from alpha.ops.conv2d.shape import Axis, ConvShape
from alpha.ops.convolution.conv_arguments import output_length

HOPPER = Target("cuda", (9, 0), 132, 227 << 10)
Three = tuple[int, int, int]


def axis(I: int, F: int, s: int = 1, p: int = 0, d: int = 1) -> Axis:
    return Axis(I, F, s, p, d, output_length(I, F, s, (p, p), d))


def make(N: int, C: tuple[int, int], depth: Axis, height: Axis, width: Axis) -> ConvShape:
    """Shape with C = (input, output) channels."""
    d, h, w = depth, height, width
    sizes = N, h.I, w.I, *C, h.F, w.F, h.s, w.s, h.p, w.p, h.O, w.O
    return ConvShape(*sizes, 1, h.d, w.d, d.I, d.F, d.s, d.p, d.d, d.O)


# Strides of all axes; dilations of all axes; a stride beside a dilation, in both orders; padding beyond the filter; a
# filter of one tap that skips pixels; gaps wider than the map, of which one tap is left; no depth; gaps so wide that
# each tap has an input-row tile of its own; a long filter whose tiles have two columns of a residue
SHAPES = (
    make(3, (72, 40), axis(5, 3, 2, 1), axis(7, 2, 1, 1), axis(9, 4, 3, 2)),
    make(2, (40, 72), axis(6, 3, 1, 2, 2), axis(5, 2, 1, 3, 3), axis(11, 3, 1, 4, 2)),
    make(9, (16, 24), axis(4, 2, 1, 1, 2), axis(6, 3, 2, 1), axis(19, 3, 1, 3, 3)),
    make(2, (24, 16), axis(3, 2, 3, 4), axis(8, 3, 1, 2, 4), axis(10, 5, 2, 3)),
    make(5, (8, 80), axis(6, 1, 2), axis(5, 1, 3), axis(7, 1, 2)),
    make(3, (64, 32), axis(2, 3, 1, 5, 5), axis(3, 3, 1, 7, 7), axis(4, 3, 1, 6, 6)),
    make(4, (32, 64), axis(1, 1), axis(9, 3, 1, 2, 2), axis(33, 2, 1, 1, 4)),
    make(1, (8, 16), axis(2, 2, 1, 1), axis(2, 1), axis(26, 3, 1, 20, 20)),
    make(24, (8, 16), axis(2, 2, 1, 1), axis(2, 2), axis(5, 7, 2, 3)),
)


def of(row: Configuration) -> tuple[ConvShape, ...]:
    """The shapes on which a kernel configuration with NDIM 3 is tried."""
    return SHAPES if "BLOCKS" in row.tile else ()
