"""Losses: softmax and cross-entropy in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.numerics import FLOAT32
from alpha.ops.dtypes import CUDA_TYPES, as_dtype, as_float32, cast, need_activations
from alpha.ops.elementwise import affine, broadcast_to, multiply
from alpha.ops.reduce import sum_axes
from alpha.primitive import Array, primitive
from alpha.tensor import Tensor

ROWS = 4  # rows of logits a block, a warp each; long rows have a block of their own
LONG = 2048  # classes


@primitive
def softmax_cross_entropy(X: Array, labels: Array, smoothing: float) -> tuple[Array, Array]:
    """L = -sum_c T_c log softmax(X)_c and dX = softmax(X) - T, with T = (1 - smoothing) onehot + smoothing / C

    X (N, C), labels (N,) int32 -> L (N,), dX (N, C); L is float32 where X is bfloat16. A label outside [0, C) is an
    error on cpu, a NaN on cuda
    """


@softmax_cross_entropy.impl("cpu")
def _(X: Array, labels: Array, smoothing: float) -> tuple[Array, Array]:
    N, C = X.shape
    if N and not (labels.min() >= 0 and labels.max() < C):
        raise ShapeError(f"cross_entropy: labels {labels.min()}..{labels.max()} are not in [0, {C})  (x {X.shape})")
    logits = as_float32(X)
    real = logits.dtype.type
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    total = exponentials.sum(axis=1, keepdims=True)
    logarithms = shifted - np.log(total)
    at_label = np.arange(N), labels
    L = -real(1.0 - smoothing) * logarithms[at_label]
    dX = exponentials / total
    if smoothing:  # else a masked logit of -inf must not meet a zero
        share = real(smoothing / C)
        L -= share * logarithms.sum(axis=1)
        dX -= share
    dX[at_label] -= real(1.0 - smoothing)
    return L, as_dtype(dX, X.dtype)


@softmax_cross_entropy.impl("cuda")
def _(X: Array, labels: Array, smoothing: float) -> tuple[Array, Array]:
    N, C = X.shape
    need_activations("cross_entropy", X)
    L, dX = X.device.empty((N,), FLOAT32), X.device.empty(X.shape, X.dtype)
    lanes, rows = (32, ROWS) if C < LONG else (256, 1)
    X.device.launch(
        "loss/softmax_cross_entropy.cu",
        "softmax_cross_entropy",
        -(-N // rows),
        (lanes, rows),
        (L, dX, X, labels, N, C, float(smoothing)),
        {"LANES": lanes, "ROWS": rows, "TYPE": CUDA_TYPES[X.dtype]},
    )
    return L, dX


class CrossEntropy(Function):
    """L = mean, sum or each of -log softmax(X)[label]   X (N, C), labels (N,) -> () or (N,)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        X = arrays[0]
        L, dX = softmax_cross_entropy(X, options["labels"], options["smoothing"])
        self.save(dX)
        self.reduction = options["reduction"]
        if self.reduction == "none":
            return L
        total = sum_axes(L, (0,)).reshape(())
        self.scale = 1.0 / X.shape[0] if self.reduction == "mean" else 1.0
        return affine(total, p=self.scale, out=total)

    def backward(self, dY: Array) -> Any:
        (dX,) = self.saved
        if self.reduction == "none":
            return multiply(dX, broadcast_to(dY.reshape(-1, 1), tuple(dX.shape)))
        return multiply(dX, affine(dY, p=self.scale))


def cross_entropy(x: Tensor, labels: Tensor, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """Softmax cross-entropy of logits   x (N, C), labels (N,) of integers in [0, C) -> () or (N,)

    Args:
        reduction: "mean", "sum" or "none".
        label_smoothing: the share of the target spread evenly over all classes, in [0, 1).

    Raises:
        ShapeError: the shapes do not fit, or (on cpu) a label is outside [0, C); on cuda its loss is NaN.
    """
    if x.ndim != 2 or labels.shape != x.shape[:1] or x.size == 0:
        raise ShapeError(f"cross_entropy: x (N, C) and labels (N,) are needed  (x {x.shape}, labels {labels.shape})")
    if labels.dtype.kind not in "iu":
        raise TypeError(f"cross_entropy: labels have dtype {labels.dtype.name}, integers are needed")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"cross_entropy: reduction={reduction!r} is not mean, sum or none")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"cross_entropy: label_smoothing={label_smoothing} is not in [0, 1)")
    integers = labels.array
    if labels.dtype != np.int32:
        integers = cast(integers, np.dtype(np.int32), 1.0, 0.0)
    return CrossEntropy.apply(x, labels=integers, reduction=reduction, smoothing=float(label_smoothing))
