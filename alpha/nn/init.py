"""Initialisers: numpy arrays drawn from `alpha.rng`, the same on every device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha import rng

Values = npt.NDArray[Any]


def gain(nonlinearity: str, slope: float = 0.0) -> float:
    """The factor that keeps the variance through a nonlinearity (He et al. 2015), as in PyTorch."""
    gains = {
        "linear": 1.0,
        "sigmoid": 1.0,
        "tanh": 5.0 / 3.0,
        "relu": math.sqrt(2.0),
        "leaky_relu": math.sqrt(2.0 / (1.0 + slope * slope)),
    }
    if nonlinearity not in gains:
        raise ValueError(f"gain: {nonlinearity!r} is not one of {', '.join(gains)}")
    return gains[nonlinearity]


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """(fan in, fan out) of a weight (O, ..., I): the products with and without the leading axis."""
    if len(shape) < 2:
        raise ValueError(f"fans: a weight has at least 2 axes, not {shape}")
    taps = math.prod(shape[1:-1])
    return taps * shape[-1], taps * shape[0]


def kaiming_uniform(shape: tuple[int, ...], slope: float = math.sqrt(5.0), nonlinearity: str = "leaky_relu") -> Values:
    """U(-b, b) with b = gain sqrt(3 / fan_in); by default 1 / sqrt(fan_in), as PyTorch's layers."""
    bound = gain(nonlinearity, slope) * math.sqrt(3.0 / fans(shape)[0])
    return rng.uniform(shape, -bound, bound)


def kaiming_normal(shape: tuple[int, ...], slope: float = 0.0, nonlinearity: str = "leaky_relu") -> Values:
    """N(0, std) with std = gain / sqrt(fan_in)."""
    return rng.normal(shape, 0.0, gain(nonlinearity, slope) / math.sqrt(fans(shape)[0]))


def xavier_uniform(shape: tuple[int, ...], gain: float = 1.0) -> Values:
    """U(-b, b) with b = gain sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / sum(fans(shape)))
    return rng.uniform(shape, -bound, bound)


def xavier_normal(shape: tuple[int, ...], gain: float = 1.0) -> Values:
    """N(0, std) with std = gain sqrt(2 / (fan_in + fan_out))."""
    return rng.normal(shape, 0.0, gain * math.sqrt(2.0 / sum(fans(shape))))


def bias_uniform(shape: tuple[int, ...], fan_in: int) -> Values:
    """U(-b, b) with b = 1 / sqrt(fan_in), as PyTorch's layers draw a bias."""
    bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
    return rng.uniform(shape, -bound, bound)


def zeros(shape: tuple[int, ...]) -> Values:
    return np.zeros(shape, np.float32)


def ones(shape: tuple[int, ...]) -> Values:
    return np.ones(shape, np.float32)
