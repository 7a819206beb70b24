"""The shape of a convolution, and which taps of the filter fall inside of the map: the arithmetic of trimming.

Every range of the paper is a product of a range of rows and one of columns, so this file computes one axis at a time.
The letters are the paper's (Table I).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from alpha.errors import ShapeError

MANY_CHANNELS = 8  # input channels; layers with fewer are computed by kernels of their own


class Axis(NamedTuple):
    """One axis: I inputs, F taps, stride s, padding p, dilation d, O outputs. Output o reads o s - p + f d."""

    I: int
    F: int
    s: int
    p: int
    d: int
    O: int


TRIVIAL = Axis(1, 1, 1, 0, 1, 1)


class Segment(NamedTuple):
    """Neighbouring output pixels of one axis that share one trimmed filter (forward).

    Pixels [start, stop) of the output use taps [f_s, f_e). The first pixel's first tap reads the input at `first`.
    """

    start: int
    stop: int
    f_s: int
    f_e: int
    first: int


class SplitSegment(NamedTuple):
    """Pixels of one residue of the input axis that share one trimmed split filter (KS-deconv).

    Pixels start, start + s, .. (`length` of them) use taps [c_s, c_e) of the split filter. The first pixel's first tap
    reads dY at `first`, and each following pixel reads one further.
    """

    residue: int
    start: int
    length: int
    c_s: int
    c_e: int
    first: int


@dataclass(frozen=True)
class ConvShape:
    """X (N, IH, IW, IC), W (OC, FH, FW, IC / groups), Y (N, OH, OW, OC), stride (sh, sw), padding (ph, pw).

    With groups it is a convolution that only the kernels of `grouped_table.py` compute. With a depth or dilation, and
    no groups, it is one for the kernels of `hopper_table.py` that have NDIM 3. Maps and filters with a depth are
    seen as if they had ID IH, OD OH and FD FH rows, and so are the arrays: their planes lie one after the other.
    """

    N: int
    IH: int
    IW: int
    IC: int
    OC: int
    FH: int
    FW: int
    sh: int
    sw: int
    ph: int
    pw: int
    OH: int
    OW: int
    groups: int = 1
    dh: int = 1
    dw: int = 1
    ID: int = 1
    FD: int = 1
    sd: int = 1
    pd: int = 0
    dd: int = 1
    OD: int = 1

    def __hash__(self) -> int:  # computed once: a shape is the key of many look-ups
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.N, self.IC, self.OC, self.groups, self.depth, self.height, self.width))

    @functools.cached_property
    def X(self) -> tuple[int, int, int, int]:
        return self.N, self.ID * self.IH, self.IW, self.IC

    @functools.cached_property
    def W(self) -> tuple[int, int, int, int]:
        return self.OC, self.FD * self.FH, self.FW, self.IC // self.groups

    @functools.cached_property
    def Y(self) -> tuple[int, int, int, int]:
        return self.N, self.OD * self.OH, self.OW, self.OC

    @functools.cached_property
    def depth(self) -> Axis:
        return Axis(self.ID, self.FD, self.sd, self.pd, self.dd, self.OD)

    @functools.cached_property
    def height(self) -> Axis:
        return Axis(self.IH, self.FH, self.sh, self.ph, self.dh, self.OH)

    @functools.cached_property
    def width(self) -> Axis:
        return Axis(self.IW, self.FW, self.sw, self.pw, self.dw, self.OW)

    @functools.cached_property
    def taps(self) -> int:
        """The number of taps of a filter."""
        return self.FD * self.FH * self.FW

    @functools.cached_property
    def is_dense(self) -> bool:
        """True in two dimensions without groups and dilation."""
        return self.groups == self.dh == self.dw == 1 and self.depth == TRIVIAL

    @property
    def extras(self) -> str:
        """Dilation and depth for messages and keys; empty without them."""
        dilation = f" dilation {(self.dh, self.dw)}" if (self.dh, self.dw) != (1, 1) else ""
        return dilation + (f" depth {tuple(self.depth)}" if self.depth != TRIVIAL else "")

    @functools.cached_property
    def as_product(self) -> ConvShape:
        """The same arrays as images of one pixel, if the filter has one tap, stride 1 and no padding; or else itself.

        It is then a matrix product of N IH IW rows, for which no tile ends at the border of an image. Kernels for few
        channels keep the rows of images, and more rows than an int holds stay images.
        """
        rows = self.N * self.IH * self.IW
        one_tap = (self.FH, self.FW, self.sh, self.sw, self.ph, self.pw) == (1, 1, 1, 1, 0, 0)
        one_tap = one_tap and (self.OH, self.OW) == (self.IH, self.IW)  # else the result of an output_padding
        if not one_tap or not self.is_dense or self.IC < MANY_CHANNELS or rows >= 1 << 31:
            return self
        return ConvShape(rows, 1, 1, self.IC, self.OC, 1, 1, 1, 1, 0, 0, 1, 1)

    @functools.cached_property
    def flops(self) -> int:
        """Operations including those on padded zeros (paper, Table III); a multiply-add counts as two."""
        return 2 * math.prod(self.Y) * math.prod(self.W[1:])

    @functools.cached_property
    def useful(self) -> float:
        """The share of the multiplications that meet no padded zero."""
        axes = self.depth, self.height, self.width
        return math.prod(pairs_met(*axis) / max(1, axis.O * axis.F) for axis in axes)

    @functools.cached_property
    def row_segments(self) -> tuple[Segment, ...]:
        return tuple(segments(self.OH, self.IH, self.FH, self.sh, self.ph))

    @functools.cached_property
    def column_segments(self) -> tuple[Segment, ...]:
        return tuple(segments(self.OW, self.IW, self.FW, self.sw, self.pw))

    @functools.cached_property
    def row_splits(self) -> tuple[SplitSegment, ...]:
        return tuple(split_segments(self.OH, self.IH, self.FH, self.sh, self.ph))

    @functools.cached_property
    def column_splits(self) -> tuple[SplitSegment, ...]:
        return tuple(split_segments(self.OW, self.IW, self.FW, self.sw, self.pw))


def pairs_met(size: int, F: int, s: int, p: int, d: int, O: int) -> int:
    """The number of pairs of an output and a tap, d apart, that meet an input of an axis."""
    return sum(end - first for first, end in (valid_outputs(f * d, O, size, s, p) for f in range(F)))


def trimmed_taps(o: int, size: int, F: int, s: int, p: int, d: int = 1) -> tuple[int, int]:
    """[f_s, f_e): the taps of output pixel o that meet the input and not its padding (Algorithm 1)."""
    i_s = o * s - p
    f_s = max(-(i_s // d), 0)
    return f_s, max(f_s, min(-((i_s - size) // d), F))


def segments(O: int, size: int, F: int, s: int, p: int) -> Iterator[Segment]:
    """The output axis in segments of equal trimmed filters."""
    start = 0
    for o in range(1, O + 1):
        taps = trimmed_taps(start, size, F, s, p)
        if o == O or trimmed_taps(o, size, F, s, p) != taps:
            yield Segment(start, o, *taps, start * s - p + taps[0])
            start = o


def split_segments(O: int, size: int, F: int, s: int, p: int, d: int = 1) -> Iterator[SplitSegment]:
    """The input axis by residue, in segments of equal trimmed split filters (Algorithm 2B); s or d is 1.

    Residue y has the pixels i with (i + p - y) % s == 0. Its split filter has C = ceil((F - y) / s) taps, and tap c is
    tap f = y + (C - 1 - c) s of the filter. The paper prints the upper bound of c as oph; it is C.
    """
    for y in range(s):
        C = max(0, -(-(F - y) // s))
        run: SplitSegment | None = None
        for i in range((y - p) % s, size, s):
            o_s = (i + p - y) // s - (C - 1) * d
            c_s = max(-(o_s // d), 0)
            c_e = max(c_s, min(-((o_s - O) // d), C))
            if run is not None and (run.c_s, run.c_e) == (c_s, c_e):
                run = run._replace(length=run.length + 1)
                continue
            if run is not None:
                yield run
            run = SplitSegment(y, i, 1, c_s, c_e, o_s + c_s * d)
        if run is not None:
            yield run


def valid_outputs(f: int, O: int, size: int, s: int, p: int) -> tuple[int, int]:
    """[o_s, o_e): the outputs whose tap f meets the input (Algorithm 3B); with a dilation d, give f d for tap f."""
    i_s = f - p
    o_s = max(-(i_s // s), 0)
    return o_s, max(o_s, min(O, -(-(size - i_s) // s)))


@functools.lru_cache(maxsize=4096)
def conv_shape(
    operator: str,
    X: tuple[int, ...],
    W: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, int],
    output: tuple[int, int] | None = None,
    groups: int = 1,
    dilation: tuple[int, int] = (1, 1),
) -> ConvShape:
    """Check shapes and make a `ConvShape`. For a transposed convolution `output` gives (OH, OW).

    Raises:
        ShapeError: X or W does not have 4 axes, channels differ, stride < 1, padding < 0, or Y would be empty.
    """
    if len(X) != 4 or len(W) != 4:
        raise ShapeError(f"{operator}: X (N, H, W, C) and W (OC, FH, FW, IC) are needed  (X {X}, W {W})")
    if X[3] != W[3] * groups:
        raise ShapeError(f"{operator}: X has IC={X[3]} channels but W expects {W[3] * groups}  (X {X}, W {W})")
    if min(stride) < 1 or min(padding) < 0:
        raise ShapeError(f"{operator}: stride {stride} must be >= 1 and padding {padding} >= 0")
    N, IH, IW, IC = X
    OC, FH, FW, _ = W
    covered = dilation[0] * (FH - 1) + 1, dilation[1] * (FW - 1) + 1  # by the filter
    OH, OW = output or (
        (IH + 2 * padding[0] - covered[0]) // stride[0] + 1,
        (IW + 2 * padding[1] - covered[1]) // stride[1] + 1,
    )
    if min(N, IH, IW, IC, OC, FH, FW, OH, OW) < 1:
        raise ShapeError(
            f"{operator}: the output would be ({N}, {OH}, {OW}, {OC}), which is empty  "
            f"(X {X}, W {W}, stride {stride}, padding {padding})"
        )
    return ConvShape(N, IH, IW, IC, OC, FH, FW, *stride, *padding, OH, OW, groups, *dilation)


_FIELDS = ("N", "IH", "IW", "IC", "OC", "FH", "FW", "sh", "sw", "ph", "pw", "OH", "OW")
_GROUPED = (*_FIELDS, "groups", "dh", "dw")
_AXES = (*_FIELDS, "dh", "dw", "ID", "FD", "sd", "pd", "dd", "OD")


@functools.lru_cache(maxsize=4096)
def as_struct(s: ConvShape) -> np.void:
    """The struct `ConvShape` of cuda/conv2d/shape.cuh, which kernels take by value; with groups `GroupedShape`."""
    return _struct(s, _FIELDS if s.is_dense else _GROUPED)


@functools.lru_cache(maxsize=4096)
def as_axes_struct(s: ConvShape) -> np.void:
    """The struct of a kernel with the macro NDIM of `ndim(s)`: `ConvShape`, or `AxesShape` with depth and dilation."""
    return _struct(s, _FIELDS if s.is_dense else _AXES)


def ndim(s: ConvShape) -> int:
    """The macro NDIM: 2, or 3 with a depth or dilation."""
    return 2 if s.is_dense else 3


def _struct(s: ConvShape, names: tuple[str, ...]) -> np.void:
    struct = np.dtype([(name, np.int32) for name in names], align=True)
    values: np.void = np.array([tuple(getattr(s, name) for name in names)], struct)[0]
    return values
