"""Operands and float64 results where PyTorch is not installed: from numpy, for results not too large."""

from __future__ import annotations

import dataclasses
from math import prod

import numpy as np

from alpha.ops.conv2d.shape import ConvShape
from bench.operators import Operator, Part

BLOCK = (1 << 20) + 7  # numbers drawn; larger arrays repeat them, out of step with their own sizes
MOST_FLOPS = 4_000_000_000  # of a reference


class NumpySide:
    """Draws operands and computes references, on the host."""

    def draw(self, s: ConvShape, seed: int = 0) -> dict[str, np.ndarray]:
        """X, W, dY in NHWC: normal numbers, W scaled so that Y is of size 1."""
        rng = np.random.default_rng(seed)
        operands = {
            name: np.resize(rng.standard_normal(min(BLOCK, prod(shape)), np.float32), shape)
            for name, shape in (("X", s.X), ("W", s.W), ("dY", s.Y))
        }
        operands["W"] /= np.float32((s.FH * s.FW * s.IC // s.groups) ** 0.5)
        return operands

    def exact(self, operator: Operator, s: ConvShape, operands: dict[str, np.ndarray], part: Part) -> np.ndarray | None:
        """Part `part` of the result in float64; None if it would take too long."""
        arrays = {name: part.of(name, array) for name, array in operands.items()}
        N, OC, IC = len(arrays["X"]), len(arrays["W"]), arrays["W"].shape[3] * s.groups
        shape = dataclasses.replace(s, N=N, OC=OC, IC=IC)
        if shape.flops > MOST_FLOPS:
            return None
        first, second = (arrays[name] for name in operator.operands)
        exact: np.ndarray = operator.reference(first, second, shape)
        return exact

    def release(self) -> None:
        """Nothing is kept."""
