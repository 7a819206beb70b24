"""Losses: softmax and cross-entropy in one pass."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.module import Module
from alpha.numerics import FLOAT32
from alpha.ops.arguments import AnyTensor, check_arguments
from alpha.ops.broadcast import broadcast_to
from alpha.ops.dtypes import CUDA_TYPES, as_dtype, as_float32, require_same_float
from alpha.ops.elementwise import divide, elementwise
from alpha.ops.options import integer, only_offered, real
from alpha.ops.plan import Buffer, KernelLaunch, Named, Plan, Value
from alpha.ops.reduce import sum_axis1
from alpha.primitive import Array, primitive
from alpha.tensor import Tensor

__all__ = ["CrossEntropyLoss", "cross_entropy"]

ROWS = 4  # rows of logits a block, a warp each; long rows have a block of their own
LONG = 2048  # classes


@primitive
def softmax_cross_entropy(X: Array, labels: Array, smoothing: float, ignore: int) -> tuple[Array, Array]:
    """L = -sum_c T_c log softmax(X)_c and dX = softmax(X) - T, with T = (1 - smoothing) onehot + smoothing / C

    X (N, C), labels (N,) of int32, int64 or uint8 -> P (2, N), dX (N, C): P[0] is L and P[1] is 1, but for a row whose
    label is `ignore` P and dX are 0. P is float32 if X is bfloat16. Another label outside [0, C) is an error on cpu and
    a NaN on cuda.
    """


@softmax_cross_entropy.impl("cpu")
def _(X: Array, labels: Array, smoothing: float, ignore: int) -> tuple[Array, Array]:
    N, C = X.shape
    ignored = labels == ignore
    wrong = labels[~ignored & ((labels < 0) | (labels >= C))]
    if wrong.size:
        raise ShapeError(
            f"cross_entropy: labels {wrong.min()}..{wrong.max()} are not in [0, {C})  "
            f"(x {X.shape}, ignore_index {ignore})"
        )
    logits = as_float32(X)
    kind = logits.dtype.type
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    total = exponentials.sum(axis=1, keepdims=True)
    logarithms = shifted - np.log(total)
    at_label = np.arange(N), np.where(ignored, 0, labels).astype(np.intp)
    P = np.ones((2, N), logits.dtype)
    P[0] = -kind(1.0 - smoothing) * logarithms[at_label]
    dX = exponentials / total
    if smoothing:  # else a masked logit of -inf must not meet a zero
        share = kind(smoothing / C)
        P[0] -= share * logarithms.sum(axis=1)
        dX -= share
    dX[at_label] -= kind(1.0 - smoothing)
    P[:, ignored], dX[ignored] = 0, 0
    return P, as_dtype(dX, X.dtype)


@softmax_cross_entropy.impl("cuda")
def _(X: Array, labels: Array, smoothing: float, ignore: int) -> tuple[Array, Array]:
    require_same_float("cross_entropy", X)
    plan = _plan(*X.shape, X.dtype, labels.dtype)
    given = {"X": X, "labels": labels, "smoothing": float(smoothing), "ignore": ignore}
    found = plan.launch(X.device, given)
    return found["P"], found["dX"]


@functools.lru_cache(maxsize=1024)
def _plan(N: int, C: int, dtype: np.dtype[Any], of_labels: np.dtype[Any]) -> Plan:
    lanes, rows = (32, ROWS) if C < LONG else (256, 1)
    launch = KernelLaunch(
        "loss/softmax_cross_entropy.cu",
        "softmax_cross_entropy",
        -(-N // rows),
        (lanes, rows),
        (*map(Named, ("P", "dX", "X", "labels")), N, C, Value("smoothing"), Value("ignore", np.dtype(np.int64))),
        {"LANES": lanes, "ROWS": rows, "TYPE": CUDA_TYPES[dtype], "LABEL": CUDA_TYPES[of_labels]},
    )
    return Plan("softmax_cross_entropy", (launch,), {"P": Buffer((2, N), FLOAT32), "dX": Buffer((N, C), dtype)})


def _scaled_cpu(y: Array, a: Array, b: Array) -> None:
    np.multiply(a, b, out=y)
    np.copyto(y, 0, where=a == 0)


# an ignored row has no gradient, whatever number, also inf or NaN, it would be multiplied by
_scaled_gradient = elementwise("cross_entropy_gradient", "a == 0 ? 0 : a * b", _scaled_cpu, 2)


class CrossEntropy(Function):
    """L = mean, sum or each of -log softmax(X)[label]   X (N, C), labels (N,) -> () or (N,)"""

    def forward(self, X: Array, *, labels: Array, smoothing: float, ignore: int, reduction: str) -> Array:
        P, dX = softmax_cross_entropy(X, labels, smoothing, ignore)
        self.save(dX)
        self.reduction = reduction
        if reduction == "none":
            return _row(P, 0)
        sums = sum_axis1(P.reshape(2, -1, 1))  # (2, 1): of the losses, and how many were counted
        total, self.counted = (_row(sums, i).reshape(()) for i in range(2))
        return divide(total, self.counted) if reduction == "mean" else total

    def backward(self, dY: Array) -> Any:
        (dX,) = self.saved
        if self.reduction == "none":
            return _scaled_gradient(dX, broadcast_to(dY.reshape(-1, 1), tuple(dX.shape)))
        return _scaled_gradient(dX, divide(dY, self.counted) if self.reduction == "mean" else dY)


def _row(X: Array, index: int) -> Array:
    """X[index], a view   X (D, N) -> (N,)"""
    return X[index] if isinstance(X, np.ndarray) else X.slice_rows(index, index + 1).reshape(X.shape[1])


def check_cross_entropy(
    operator: str,
    weight: None,
    size_average: None,
    ignore_index: int,
    reduce: None,
    reduction: str,
    label_smoothing: float,
) -> None:
    """Refuse options of the loss that mean nothing or are not offered (`TypeError`, `ValueError`)."""
    only_offered(operator, weight=(weight, None), size_average=(size_average, None), reduce=(reduce, None))
    if not -(2**63) <= integer(operator, "ignore_index", ignore_index) < 2**63:
        raise ValueError(f"{operator}: ignore_index={ignore_index} does not fit int64")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{operator}: reduction={reduction!r} is not mean, sum or none")
    if not 0 <= real(operator, "label_smoothing", label_smoothing) < 1:
        raise ValueError(f"{operator}: label_smoothing={label_smoothing} is not in [0, 1)")


@check_arguments
def cross_entropy(
    x: Tensor,
    target: AnyTensor,
    weight: None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Softmax cross-entropy of logits   x (N, C), target (N,) of integers in [0, C) -> () or (N,)

    Args:
        weight, size_average, reduce: only None is offered.
        ignore_index: rows with this label have the loss 0 and the gradient 0; a mean is over the other rows.
        reduction: "mean", "sum" or "none".
        label_smoothing: the share of the target spread evenly over all classes, in [0, 1).

    Raises:
        ShapeError: the shapes do not fit, or (on cpu) a label is outside [0, C); on cuda its loss is NaN.
        TypeError: x is not a Tensor of floating numbers, or target is not a Tensor of int32, int64 or uint8.
        DeviceError: x and target are on different devices.
        ValueError: an argument has a value that means nothing or that is not offered.
    """
    check_cross_entropy("cross_entropy", weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    if x.ndim != 2 or target.shape != x.shape[:1] or x.size == 0:
        raise ShapeError(f"cross_entropy: x (N, C) and target (N,) are needed  (x {x.shape}, target {target.shape})")
    if target.dtype.name not in ("int32", "int64", "uint8"):
        raise TypeError(f"cross_entropy: target has dtype {target.dtype.name}; int32, int64 or uint8 is needed")
    return CrossEntropy.apply(
        x, labels=target.array, reduction=reduction, smoothing=float(label_smoothing), ignore=int(ignore_index)
    )


class CrossEntropyLoss(Module):
    """Softmax cross-entropy of logits (N, C) and integer labels (N,); the arguments are those of `cross_entropy`."""

    def __init__(
        self,
        weight: None = None,
        size_average: None = None,
        ignore_index: int = -100,
        reduce: None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        check_cross_entropy("CrossEntropyLoss", weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.ignore_index, self.reduction, self.label_smoothing = ignore_index, reduction, label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(
            x, target, ignore_index=self.ignore_index, reduction=self.reduction, label_smoothing=self.label_smoothing
        )

    def extra_repr(self) -> str:
        ignored = f"ignore_index={self.ignore_index}, " if self.ignore_index != -100 else ""
        return f"{ignored}reduction={self.reduction!r}, label_smoothing={self.label_smoothing}"
