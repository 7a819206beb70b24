"""Convolutions whose kernel has two warpgroups in turns (sm90/ping_pong.cuh)."""

from __future__ import annotations

from conv2d_cases import make
from conv2d_steps import Form

from alpha.ops.conv2d.hopper import ping_pong
from alpha.ops.conv2d.problem import FORWARD, INPUT, Configuration
from alpha.ops.conv2d.select.hopper_table import FORWARD_ROWS, INPUT_ROWS
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.rectifier import FROM_OUTPUT, FROM_X, FROM_Y

ROWS: dict[str, Configuration] = {
    operator: next(v for v in rows if v.name.endswith("_sm90_bf16_256x64"))
    for operator, rows in ((FORWARD, FORWARD_ROWS), (INPUT, INPUT_ROWS))
}
# a halo, with rows of pixels and images that no tile fills; two tiles of channels, one tap and four steps of K, the
# last one not whole; several taps without a halo; taps that no tile needs
UNUSED_TAPS = make(45, (1, 32), (24, 64), (3, 1), p=(1, 0))
SHAPES = [
    make(19, (9, 13), (40, 72), (3, 3), p=(1, 1)),
    make(70, (5, 7), (200, 120), (1, 1)),
    make(600, (2, 3), (24, 64), (3, 2), p=(1, 1)),
    UNUSED_TAPS,
]
LINES = make(9, (20, 32), (48, 64), (3, 1), p=(1, 0))
# tiles of 16 and of 32 pixels with a halo, then without one
STEP_SHAPES = [SHAPES[0], make(9, (20, 32), (48, 64), (3, 3), p=(1, 1)), UNUSED_TAPS, LINES]
# tiles of 1, 2, 4, 8, 16 and 32 pixels without a halo, then those with one: (filter, width of the map)
WIDTHS = [
    make(1, (4, width), (64, 64), (FH, FW), p=(FH // 2, FW // 2))
    for (FH, FW), widths in (((3, 1), (1, 2, 4, 8, 16, 32)), ((1, 2), (5, 3)), ((1, 3), (8, 16, 32)))
    for width in widths
]
STRIDED = make(40, (11, 9), (24, 40), (3, 3), (2, 2), (1, 1))  # for Y alone
# where the sign of a first step is from, whether channels are added up, whether another gradient is added
STEPS = [
    Form(FROM_X, True, False),
    Form(FROM_X, True, True),
    Form(FROM_Y, False, True),
    Form(FROM_Y, True, False),
    Form(FROM_OUTPUT, True, False),
    Form(FROM_OUTPUT, True, True),
]
OF_NARROW_TILES = STEPS[4]  # a thread has no registers for it with a tile of 16 images and a halo


def for_operator(operator: str, s: ConvShape) -> ConvShape:
    """The shape, or for dX the one whose dX has the channels that Y has here."""
    return s if operator == FORWARD else make(s.N, (s.IH, s.IW), (s.OC, s.IC), (s.FH, s.FW), (s.sh, s.sw), (s.ph, s.pw))


def with_tiles(s: ConvShape, num_sms: int) -> ConvShape:
    """The shape with so many images that each of so many SMs has a tile for both warpgroups, and some have one more."""
    rows = ping_pong.GROUPS * ping_pong.TILE.BM * num_sms * 5 // 4
    images = max(s.N, -(-rows // (s.OH * s.OW)))
    return make(images, (s.IH, s.IW), (s.IC, s.OC), (s.FH, s.FW), (s.sh, s.sw), (s.ph, s.pw))
