"""The axes of a convolution of any number of dimensions, with dilation: how each is cut into axes without dilation.

Every range of the paper is a product of ranges, one per axis, so this file looks at one axis at a time. A filter with
dilation d reads every d-th input. Outputs that are d / gcd(s, d) apart read inputs of one residue by d, and with these
inputs side by side they are a convolution without dilation: its filter has no gaps, so no zero is multiplied for them.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from alpha.ops.conv2d.shape import TRIVIAL, Axis, pairs_met


class Phase(NamedTuple):
    """Outputs y_start, y_start + y_step, .. of an axis: a convolution without dilation of some of its inputs.

    Attributes:
        x_start, x_step: its inputs; there may be none.
        axis: the axis that they make, with dilation 1.
    """

    x_start: int
    x_step: int
    y_start: int
    y_step: int
    axis: Axis


@functools.lru_cache(maxsize=4096)
def phases(axis: Axis) -> tuple[Phase, ...]:
    """The phases of an axis; together they have every output once, and no input twice."""
    I, F, s, p, d, O = axis
    if d == 1 or F == 1:
        return (Phase(0, 1, 0, 1, Axis(I, F, s, p, 1, O)),)
    common = math.gcd(s, d)
    period = d // common
    found = []
    for first in range(min(period, O)):
        offset, start = divmod(first * s - p, d)  # of its first tap, among the inputs start, start + d, ..
        begin = max(offset, 0)
        inputs = max(0, -(-(I - start) // d) - begin)
        inner = Axis(inputs, F, s // common, max(-offset, 0), 1, -(-(O - first) // period))
        found.append(Phase(start + begin * d, d, first, period, inner))
    return tuple(found)


class PhaseRun(NamedTuple):
    """Neighbouring phases that make equal axes: one convolution can compute them as so many images.

    Attributes:
        first: the first of `number` phases.
        x_gap, y_gap: inputs, and outputs, from one phase to the next.
    """

    first: Phase
    number: int
    x_gap: int
    y_gap: int


@functools.lru_cache(maxsize=4096)
def phase_runs(axis: Axis) -> tuple[PhaseRun, ...]:
    """The phases of an axis in as few runs as their order allows.

    The next output reads s inputs further on. If it makes an equal axis, so much lies between the first inputs of both.
    """
    runs: list[PhaseRun] = []
    for phase in phases(axis):
        if runs and runs[-1].first.axis == phase.axis:
            runs[-1] = runs[-1]._replace(number=runs[-1].number + 1)
        else:
            runs.append(PhaseRun(phase, 1, axis.s, 1))
    return tuple(runs)


def met(axis: Axis) -> int:
    """The number of pairs of an output and a tap that meet an input."""
    return pairs_met(*axis)


def output_length(I: int, F: int, s: int, p: tuple[int, int], d: int) -> int:
    """The number of outputs of an axis with p[0] zeros before and p[1] zeros after the inputs; it may be negative."""
    return (I + p[0] + p[1] - d * (F - 1) - 1) // s + 1


class ConvAxes(NamedTuple):
    """A convolution of N images with IC and OC channels in `groups` groups, with its axes (depth, height, width).

    X (N, *I, IC), W (OC, *F, IC / groups), Y (N, *O, OC)
    """

    N: int
    IC: int
    OC: int
    groups: int
    axes: tuple[Axis, Axis, Axis]

    @property
    def X(self) -> tuple[int, ...]:
        return (self.N, *(axis.I for axis in self.axes), self.IC)

    @property
    def W(self) -> tuple[int, ...]:
        return (self.OC, *(axis.F for axis in self.axes), self.IC // self.groups)

    @property
    def Y(self) -> tuple[int, ...]:
        return (self.N, *(axis.O for axis in self.axes), self.OC)

    @property
    def flops(self) -> int:
        """Operations including those on padded zeros, without gaps of dilated filters; a multiply-add counts as two."""
        return 2 * math.prod(self.Y) * math.prod(self.W[1:])

    @property
    def useful(self) -> float:
        """The share of these multiplications that meet no padded zero."""
        return math.prod(met(axis) / max(1, axis.O * axis.F) for axis in self.axes)

    @property
    def is_plain(self) -> bool:
        """True if a 2-D convolution without groups and dilation is the same."""
        depth, *others = self.axes
        return self.groups == 1 and depth == TRIVIAL and all(axis.d == 1 or axis.F == 1 for axis in others)
