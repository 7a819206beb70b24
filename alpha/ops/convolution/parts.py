"""The parts of a convolution with groups and dilation that are dense convolutions without gaps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from alpha.ops.conv2d.shape import Axis, ConvShape
from alpha.ops.convolution.axes import ConvAxes, PhaseRun, phase_runs, phases
from alpha.ops.kernel.views import View

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
