"""Plans of the gradients of layers with few output channels (last layers), by the direct kernels.

With stride 1 both gradients are convolutions of dY, which is then the image of few channels:

    dX is the result for the image dY, the padding F - 1 - p and the filters W' (IC, FH, FW, OC)
    dW' is the gradient of these filters, with X in the place of the gradient of the result

W' is W (OC, FH, FW, IC) with its first and last axis exchanged and its taps rotated by 180 degrees. dW follows from dW'
in the same way. So each direct configuration for few input channels (`base`) gives one for few output channels.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from math import prod

import numpy as np

from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration, ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.plan import Buffer, KernelLaunch, Plan
from alpha.ops.kernel.views import View, plan_copy

LONGEST_ROW, USUAL_ROW = 1024, 128  # pixels
LEAST_ROW = 4  # pixels; the direct kernels compute whole groups of neighbours of a row


@functools.lru_cache(maxsize=4096)
def swapped(s: ConvShape) -> ConvShape:
    """The convolution of dY whose result has the shape of X, if the stride is 1 and the padding less than the filter.

    With one tap the rows of the images may have any length, and those of a matrix product have one pixel. It gets one
    image, whose row length is near to USUAL_ROW.
    """
    N, OH, OW, IH, IW = s.N, s.OH, s.OW, s.IH, s.IW
    if (s.FH, s.FW, OH, OW) == (1, 1, IH, IW):
        pixels = N * IH * IW
        OW = IW = _row_length(pixels)
        N, OH, IH = 1, pixels // OW, pixels // OW
    return ConvShape(N, OH, OW, s.OC, s.IC, s.FH, s.FW, 1, 1, s.FH - 1 - s.ph, s.FW - 1 - s.pw, IH, IW)


def _row_length(pixels: int) -> int:
    """The divisor of `pixels` that is nearest to USUAL_ROW, by the ratio of both."""
    divisors = (n for n in range(1, min(pixels, LONGEST_ROW) + 1) if pixels % n == 0)
    return min(divisors, key=lambda n: max(n / USUAL_ROW, USUAL_ROW / n))


def for_few_outputs(base: Configuration) -> Configuration:
    """The configuration for few output channels that launches the kernel of `base`, a direct one."""

    def supports(s: ConvShape, target: Target) -> bool:
        """True if the stride is 1, no padding is wider than the filter reaches, and `base` takes the swapped shape."""
        if (s.sh, s.sw) != (1, 1) or s.ph >= s.FH or s.pw >= s.FW:
            return False
        other = swapped(s)
        return prod(other.X[1:]) < 1 << 31 and base.supports(other, target)

    forward = base.operator == FORWARD

    def preferred(s: ConvShape, target: Target) -> bool:
        """Not for short rows, nor for dX of one tap where wgmma computes it: its result is most of the work."""
        return swapped(s).OW >= LEAST_ROW and not (forward and s.taps == 1 and target.compute_capability == (9, 0))

    return replace(
        base,
        name=base.name.replace("direct", "few_outputs"),
        operator=INPUT if forward else WEIGHT,
        make=input_gradient if forward else weight_gradient,
        reason="last layer: few output channels, as a first layer of dY",
        supports=supports,
        preferred=preferred,
        base=base,
    )


def input_gradient(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """The forward kernel for few input channels on dY and the rotated filters   dY, W -> dX"""
    made, s = _base_plan(p, v, target, FORWARD), p.shape
    rotation, rotated = _rotate("W", "W rotated", s.W, p.dtype)
    names = {"X": "dY", "W": "W rotated", "Y": "dX"}
    launches = tuple(launch.renamed(names) for launch in made.launches)
    return Plan(v.name, (rotation, *launches), {"dX": p.result}, {"W rotated": rotated})


def weight_gradient(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """The gradient kernel for few input channels with X and dY exchanged; its result is rotated   X, dY -> dW"""
    made, s = _base_plan(p, v, target, WEIGHT), p.shape
    made_as = made.outputs["dW"].dtype
    rotation, result = _rotate("dW rotated", "dW", (s.IC, s.FH, s.FW, s.OC), made_as)
    names = {"X": "dY", "dY": "X", "dW": "dW rotated"}
    launches = tuple(launch.renamed(names) for launch in made.launches)
    workspaces = {"dW rotated": made.outputs["dW"], **made.workspaces}
    return Plan(v.name, (*launches, rotation), {"dW": result}, workspaces)


def _base_plan(p: ConvProblem, v: Configuration, target: Target, operator: str) -> Plan:
    """The plan of the base for the swapped convolution; its arrays have the names that they have there."""
    assert v.base is not None
    made: Plan = v.base.make(
        ConvProblem(operator, swapped(p.shape), p.precision, dtype=p.dtype, gradient=p.gradient), v.base, target
    )
    return made


def _rotate(
    name: str, result: str, filters: tuple[int, int, int, int], dtype: np.dtype[np.generic]
) -> tuple[KernelLaunch, Buffer]:
    """The copy of `filters` with rotated taps and the outer axes exchanged   (A, FH, FW, B) -> (B, FH, FW, A)"""
    A, FH, FW, B = filters
    source = View.whole((A, FH * FW, B)).flipped(1).permuted((2, 1, 0))
    (launch,) = plan_copy(View.whole(source.shape), source, dtype.itemsize, 16).launches
    return launch.renamed({"X": name, "Y": result}), Buffer((B, FH, FW, A), dtype)
