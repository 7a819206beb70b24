"""Windows: weights of the samples of a piece of a signal, computed on the device; and numbers in equal ratios."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpha.core.host_values import DTypeLike
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.tensor import Tensor, as_dtype
from alpha.ops.array.creation import Where, spaced
from alpha.ops.kernel.options import integer, real


def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` powers of the base, from base^start to base^end in equal ratios, both included   -> (steps,)"""
    of = real("logspace", "base", base)
    exponents = spaced("logspace", start, end, steps, _dtype("logspace", dtype), device)
    return Tensor((of**exponents).astype(dtype).array, requires_grad)


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.5 - 0.5 cos(2 pi n / N)   -> (window_length,)

    Args:
        periodic: N is the length, so that windows side by side go on; False: the length less 1, which is symmetric.
    """
    return _cosines("hann_window", window_length, periodic, (0.5, -0.5), dtype, device, requires_grad)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta cos(2 pi n / N); arguments as of `hann_window`   -> (window_length,)"""
    weights = real("hamming_window", "alpha", alpha), -real("hamming_window", "beta", beta)
    return _cosines("hamming_window", window_length, periodic, weights, dtype, device, requires_grad)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N); arguments as of `hann_window`   -> (window_length,)"""
    weights = 0.42, -0.5, 0.08
    return _cosines("blackman_window", window_length, periodic, weights, dtype, device, requires_grad)


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike = FLOAT32,
    device: Where = None,
    requires_grad: bool = False,
) -> Tensor:
    """1 - |2 n / N - 1|, a triangle; arguments as of `hann_window`   -> (window_length,)"""
    turns = _turns("bartlett_window", window_length, periodic, dtype, device)
    triangle = turns * 0.0 + 1.0 if turns.size == 1 else 1.0 - (turns * 2.0 - 1.0).abs()
    return Tensor(triangle.array, requires_grad)


def _dtype(operator: str, dtype: DTypeLike) -> DTypeLike:
    kind = as_dtype(dtype)
    if not is_floating(kind):
        raise TypeError(f"{operator}: dtype={kind.name} is not a floating dtype")
    return kind


def _turns(operator: str, length: int, periodic: bool, dtype: DTypeLike, device: Where) -> Tensor:
    """n / N for each sample   -> (length,)"""
    count = integer(operator, "window_length", length, 0)
    last = (count - 1) / max(1, count) if periodic else 1.0
    return spaced(operator, 0.0, last, count, _dtype(operator, dtype), device)


def _cosines(
    operator: str,
    length: int,
    periodic: bool,
    weights: Sequence[float],
    dtype: DTypeLike,
    device: Where,
    requires_grad: bool,
) -> Tensor:
    """The sum of weights[k] cos(2 pi k n / N); 1 for a window of one sample   -> (length,)"""
    turns = _turns(operator, length, periodic, dtype, device)
    total = turns * 0.0 + (1.0 if turns.size == 1 else weights[0])
    for k, weight in enumerate(weights[1:], 1) if turns.size > 1 else ():
        total = total + (turns * (2 * math.pi * k)).cos() * weight
    return Tensor(total.array, requires_grad)
