"""The three operators of a convolution layer: their cost by the paper, and what of a result is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha.core.primitive import Array
from alpha.ops import conv2d
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT
from alpha.ops.conv2d.shape import ConvShape

CHECKED_IMAGES, CHECKED_ELEMENTS = 8, 1 << 21  # at most, of Y or dX
CHECKED_CHANNELS = 16  # about so many of both kinds, of dW


@dataclass(frozen=True)
class Operator:
    """One of forward, dX and dW.

    Attributes:
        key: its name in Alpha's table of configurations.
        primitive: primitive(first, second, shape) -> result, with `operands` and `result` named.
        nominal: its operations by Table III of the paper, padded and inserted zeros included.
        title: of the chart.
    """

    name: str
    key: str
    primitive: Callable[..., Array]
    operands: tuple[str, str]
    result: str
    nominal: Callable[[ConvShape], int]
    title: str

    def skipped(self, s: ConvShape) -> float:
        """The share of the nominal operations that meet a zero, which C-K-S leaves out."""
        return 1 - s.useful * s.flops / self.nominal(s)

    def reference(self, first: np.ndarray, second: np.ndarray, s: ConvShape) -> np.ndarray:
        """The result in float64, which Alpha computes on the cpu."""
        operands = (np.ascontiguousarray(array, np.float64) for array in (first, second))
        result: np.ndarray = self.primitive(*operands, s)
        return result

    def part(self, s: ConvShape) -> Part:
        """Part of the result to compare: some images of Y and dX; some channels of dW, or with groups all of it."""
        everything = slice(None)
        if self.result == "dW" and s.groups > 1:
            return Part(everything, everything, everything)
        if self.result == "dW":
            return Part(everything, _some(s.OC, CHECKED_CHANNELS), _some(s.IC, CHECKED_CHANNELS))
        elements = max(s.IH * s.IW * s.IC, s.OH * s.OW * s.OC)
        images = max(1, min(CHECKED_IMAGES, CHECKED_ELEMENTS // elements))
        return Part(_some(s.N, images), everything, everything)


@dataclass(frozen=True)
class Part:
    """Images, output and input channels: those of the operands give exactly those of the result."""

    images: slice
    outputs: slice
    inputs: slice

    def of(self, name: str, array: Any) -> Any:
        """The part of X, W, Y or a gradient of them, a numpy array or PyTorch tensor in NHWC."""
        first, last = {
            "X": (self.images, self.inputs),
            "W": (self.outputs, self.inputs),
            "Y": (self.images, self.outputs),
        }[name[-1]]
        return array[first, :, :, last]


def _some(count: int, wanted: int) -> slice:
    return slice(None, None, -(-count // wanted))


def relative_error(value: np.ndarray, exact: np.ndarray) -> float:
    """||value - exact|| / ||exact||, Frobenius; NaN where a NaN is."""
    difference = float(np.linalg.norm(value.astype(np.float64) - exact))
    return difference / max(float(np.linalg.norm(exact)), float(np.finfo(np.float64).tiny))


# -- Table III --------------------------------------------------------------------------------------


def convolution(s: ConvShape) -> int:
    return s.flops


def deconvolution(s: ConvShape) -> int:
    return 2 * s.IC * s.N * s.IH * s.IW * s.FH * s.FW * s.OC // s.groups


def dilated_convolution(s: ConvShape) -> int:
    """Operations with (s - 1) zeros between the rows and columns of dY; the paper's print lacks the factor N."""
    OHp, OWp = s.OH + (s.OH - 1) * (s.sh - 1), s.OW + (s.OW - 1) * (s.sw - 1)
    return 2 * s.OC * s.FH * s.FW * s.IC // s.groups * OHp * OWp * s.N


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("forward", FORWARD, conv2d.conv2d_forward, ("X", "W"), "Y", convolution, "Convolution (forward)"),
        Operator("dX", INPUT, conv2d.conv2d_backward_input, ("dY", "W"), "dX", deconvolution, "Deconvolution (dX)"),
        Operator(
            "dW",
            WEIGHT,
            conv2d.conv2d_backward_weight,
            ("X", "dY"),
            "dW",
            dilated_convolution,
            "Dilated convolution (dW)",
        ),
    )
}
