"""Muon: descent along the orthogonalized momentum of matrices."""

from __future__ import annotations

import functools
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import InitVar
from typing import Any, ClassVar

import numpy as np

from alpha.core.numerics import get_precision
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.kernel.casts import cast_operands
from alpha.ops.kernel.elementwise import elementwise, multiply
from alpha.ops.kernel.multi_tensor import make
from alpha.ops.kernel.sums import sum_axis1
from alpha.ops.matmul.matmul import matmul_batch
from alpha.optim.fused import Decay
from alpha.optim.hyper import flag, hyper, hyper_parameters, natural, number, whole
from alpha.optim.optimizer import Group, Optimizer, Parameters, gradients
from alpha.optim.sgd import SgdRule, sgd_update
from alpha.runtime.recording import StepValue

__all__ = ["Muon"]

RATIOS: dict[str | None, Callable[[int, int], float]] = {
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}
RATIOS[None] = RATIOS["original"]


def coefficients(value: Any) -> tuple[float, float, float]:
    """Three finite numbers."""
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise TypeError("is not a tuple of three numbers")
    checked = tuple(map(number, value))
    if isinstance(value, tuple) and all(map(operator.is_, value, checked)):
        return value  # the same object, so that a captured step sees at once that nothing has changed
    return checked  # type: ignore[return-value]


def iterations(value: Any) -> int:
    """A whole number below 100."""
    checked = whole(value)
    if checked >= 100:
        raise ValueError("is not below 100")
    return checked


def ratio_name(value: Any) -> str | None:
    """None or the name of a way to adjust the learning rate."""
    if not isinstance(value, (str, type(None))) or value not in RATIOS:
        raise ValueError("is not None, 'original' or 'match_rms_adamw'")
    return value


def _weighted_cpu(y: Array, a: Array, b: Array, p: float, q: float) -> None:
    t = y.dtype.type
    np.copyto(y, t(p) * a + t(q) * b)


def _normalized_cpu(y: Array, a: Array, b: Array, p: float) -> None:
    np.divide(a, np.maximum(np.sqrt(b), a.dtype.type(p)), out=y)


weighted_sum = elementwise("weighted_sum", "p * a + q * b", _weighted_cpu, 2)
_normalized = elementwise("divide_by_norm", "a / (sqrt(b) < p ? p : sqrt(b))", _normalized_cpu, 2)


def orthogonalized(G: Array, coefficients: tuple[float, float, float], steps: int, eps: float) -> Array:
    """Approximate U V^T of G = U S V^T, by Newton-Schulz iterations in the current precision   G (M, N) -> (M, N)

    X = G / max(norm(G), eps);  steps times: A = X X^T;  X = a X + (b A + c A^2) X.  If M > N, X^T takes the place of X.
    """
    if G.size == 0:
        return G
    a, b, c = coefficients
    M, N = G.shape
    tall, precision = M > N, get_precision()

    def product(A: Array, B: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
        left, right = (x.reshape(1, *x.shape) for x in cast_operands("Muon", precision, A, B))
        Y = matmul_batch(left, right, transpose_a, transpose_b, precision, G.dtype)
        return Y.reshape(*Y.shape[1:])

    squares = sum_axis1(multiply(G, G).reshape(1, M * N, 1)).reshape(1)
    X = _normalized(G, squares, p=eps)
    for _ in range(steps):
        A = product(X, X, tall, not tall)
        B = weighted_sum(A, product(A, A), p=b, q=c)
        X = weighted_sum(X, product(X, B) if tall else product(B, X), p=a, q=1.0)
    return X


@hyper_parameters
class Muon(Optimizer):
    """Descent along the orthogonalized momentum (Jordan et al. 2024), with PyTorch's arguments in PyTorch's order.

    V = momentum V + (1 - momentum) g;  W -= lr weight_decay W + lr ratio orthogonalized(V)

    Only matrices can be parameters; give all other parameters to another optimizer, such as AdamW. The iterations are
    computed in the precision of `alpha.set_precision`; PyTorch always computes them in bfloat16.

    Args:
        lr: learning rate.
        weight_decay: lambda of a decoupled L2 decay.
        momentum: decay of the momentum, at least 0.
        nesterov: orthogonalize momentum V + (1 - momentum) g instead of V.
        ns_coefficients: a, b and c of an iteration, X = a X + (b A + c A^2) X with A = X X^T.
        eps: the least norm by which a matrix is divided.
        ns_steps: number of iterations, below 100.
        adjust_lr_fn: the ratio of a matrix (rows, columns): sqrt(max(1, rows / columns)) for None and "original",
            0.2 sqrt(max(rows, columns)) for "match_rms_adamw".

    Raises:
        ValueError: a parameter is no matrix.
    """

    params: InitVar[Parameters]
    lr: InitVar[float] = hyper(1e-3, natural)
    weight_decay: InitVar[float] = hyper(0.1, natural)
    momentum: InitVar[float] = hyper(0.95, natural)
    nesterov: InitVar[bool] = hyper(True, flag)
    ns_coefficients: InitVar[tuple[float, float, float]] = hyper((3.4445, -4.775, 2.0315), coefficients)
    eps: InitVar[float] = hyper(1e-7, natural)
    ns_steps: InitVar[int] = hyper(5, iterations)
    adjust_lr_fn: InitVar[str | None] = hyper(None, ratio_name)

    slots: ClassVar[tuple[str, ...]] = ("velocity",)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        super().add_param_group(group)
        wrong = [p.shape for p in self.param_groups[-1]["params"] if p.ndim != 2]
        if wrong:
            self.param_groups.pop()
            raise ValueError(f"Muon: a parameter has shape {wrong[0]}; only matrices are updated, use AdamW for others")

    def _required_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return self.slots

    def _update(self, group: Group, ready: list[Tensor]) -> None:
        momentum, ratio = group["momentum"], RATIOS[group["adjust_lr_fn"]]
        averaged = functools.partial(weighted_sum, p=momentum, q=1 - momentum)
        by_ratio: dict[float, list[tuple[Array, Array]]] = defaultdict(list)
        for parameter, g, v in zip(ready, gradients(ready), self._slots("velocity", ready, group), strict=True):
            direction = averaged(v, g)  # what v becomes when there is memory for all updates
            make(functools.partial(averaged, v, g, out=v))
            if group["nesterov"]:
                direction = averaged(direction, g)
            ortho = orthogonalized(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
            by_ratio[ratio(*parameter.shape) if ortho.size else 1.0].append((parameter.array, ortho))
        for factor, pairs in by_ratio.items():
            arrays, directions = map(list, zip(*pairs, strict=True))
            sgd_update(arrays, directions, [[]], StepValue(functools.partial(_rule, group, factor)))


def _rule(group: Group, factor: float) -> SgdRule:
    return SgdRule(Decay(shrink=1 - group["lr"] * group["weight_decay"]), group["lr"] * factor)
