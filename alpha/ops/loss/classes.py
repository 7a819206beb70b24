"""Losses of classes: softmax and cross-entropy in one pass."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.versions import array_of
from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array, device_of, primitive, span
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.activation.softmax import log_softmax
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.broadcasting import broadcast_to
from alpha.ops.kernel.casts import CUDA_TYPES, as_dtype, as_float32, require_same_float
from alpha.ops.kernel.elementwise import divide, elementwise
from alpha.ops.kernel.function_layer import function_layer
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, ScalarArg
from alpha.ops.kernel.sums import sum_axis1
from alpha.ops.loss.pointwise import LossLayer, check_reduction, reduced, widened

__all__ = ["CrossEntropyLoss", "cross_entropy"]

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)
ROWS = 4  # rows of logits a block, a warp each; long rows have a block of their own
LONG = 2048  # classes


@primitive
def softmax_cross_entropy(
    X: Array, target: Array, weight: Array | None, smoothing: float, ignore: int, normalize: bool
) -> tuple[Array, Array]:
    """L = -sum_c T_c log softmax(X)_c and its gradient dX = softmax(X) sum_c T_c - T

    T_c = weight_c ((1 - smoothing) t_c + smoothing / C), in which t is the target's row, or 1 at its label; for labels
    the weight of the first term is that of the label, too. Without `normalize` X are logarithms already, and dX = -T.

    X (N, C), target (N,) of int32, int64 or uint8, or (N, C) of floats, weight (C,) -> P (2, N), dX (N, C). P[0] is L.
    P[1] is the weight of the label, and 1 without weights or labels. For a row whose label is `ignore` P and dX are 0.
    P is float32 if X is bfloat16. Another label outside [0, C) is an error on cpu and a NaN on cuda.
    """


@softmax_cross_entropy.impl("cpu")
@np.errstate(all="ignore")
def _(
    X: Array, target: Array, weight: Array | None, smoothing: float, ignore: int, normalize: bool
) -> tuple[Array, Array]:
    N, C = X.shape
    logarithms = as_float32(X)
    kind = logarithms.dtype.type
    softmax = kind(0)
    if normalize:
        shifted = logarithms - logarithms.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        total = exponentials.sum(axis=1, keepdims=True)
        logarithms, softmax = shifted - np.log(total), exponentials / total
    weights = np.ones(C, logarithms.dtype) if weight is None else as_float32(weight).astype(logarithms.dtype)
    share = kind(smoothing / C) * weights
    P = np.ones((2, N), logarithms.dtype)
    if target.ndim == 2:
        T = kind(1.0 - smoothing) * weights * as_float32(target).astype(logarithms.dtype) + share
        P[0] = -np.where(T == 0, 0, T * logarithms).sum(axis=1)
        return P, as_dtype(softmax * T.sum(axis=1, keepdims=True) - T, X.dtype)
    ignored = target == ignore
    wrong = target[~ignored & ((target < 0) | (target >= C))]
    if wrong.size:
        raise ShapeError(
            f"{'cross_entropy' if normalize else 'nll_loss'}: labels {wrong.min()}..{wrong.max()} are not in [0, {C})  "
            f"(x {X.shape}, ignore_index {ignore})"
        )
    label = np.where(ignored, 0, target).astype(np.intp)
    at_label = np.arange(N), label
    P[1] = weights[label]
    hit = kind(1.0 - smoothing) * P[1]
    P[0] = -hit * logarithms[at_label]
    dX = softmax * (1 if weight is None else share.sum() + hit[:, None]) + np.zeros_like(logarithms)
    if smoothing:  # else a masked logit of -inf must not meet a zero
        P[0] -= (share * logarithms).sum(axis=1)
        dX -= share
    dX[at_label] -= hit
    P[:, ignored], dX[ignored] = 0, 0
    return P, as_dtype(dX, X.dtype)


@softmax_cross_entropy.impl("cuda")
def _(
    X: Array, target: Array, weight: Array | None, smoothing: float, ignore: int, normalize: bool
) -> tuple[Array, Array]:
    require_same_float("cross_entropy", X)
    plan = _plan(*X.shape, X.dtype, target.dtype, target.ndim == 2)
    given = {
        "X": X,
        "target": target,
        **({} if weight is None else {"weight": as_dtype(weight, FLOAT32)}),
        "smoothing": float(smoothing),
        "ignore": ignore,
        "normalize": int(normalize),
    }
    found = plan.launch(X.device, given)
    return found["P"], found["dX"]


@functools.lru_cache(maxsize=1024)
def _plan(N: int, C: int, dtype: np.dtype[Any], of_target: np.dtype[Any], probable: bool) -> Plan:
    lanes, rows = (32, ROWS) if C < LONG else (256, 1)
    launch = KernelLaunch(
        "loss/softmax_cross_entropy.cu",
        "softmax_cross_entropy",
        -(-N // rows),
        (lanes, rows),
        (
            *map(ArrayArg, ("P", "dX", "X", "target")),
            ArrayArg("weight", optional=True),
            *(N, C, ScalarArg("smoothing"), ScalarArg("ignore", INT64), ScalarArg("normalize", INT32)),
        ),
        {
            **{"LANES": lanes, "ROWS": rows, "TYPE": CUDA_TYPES[dtype], "TARGET": CUDA_TYPES[of_target]},
            "PROBABLE": int(probable),
        },
    )
    return Plan("softmax_cross_entropy", (launch,), {"P": Buffer((2, N), FLOAT32), "dX": Buffer((N, C), dtype)})


def _scaled_cpu(y: Array, a: Array, b: Array) -> None:
    np.multiply(a, b, out=y)
    np.copyto(y, 0, where=a == 0)


# an ignored row has no gradient, whatever number, also inf or NaN, it would be multiplied by
_scaled_gradient = elementwise("cross_entropy_gradient", "a == 0 ? 0 : a * b", _scaled_cpu, 2)


class CrossEntropy(Function):
    """L = mean, sum or each of -sum_c T_c log softmax(X)_c   X (N, C), target (N,) or (N, C) -> () or (N,)"""

    def forward(self, X: Array, *, reduction: str, **options: Any) -> Array:
        P, dX = softmax_cross_entropy(X, **options)
        self.save(dX)
        self.reduction = reduction
        if reduction == "none":
            return _row(P, 0)
        sums = sum_axis1(P.reshape(2, -1, 1))  # (2, 1): of the losses, and of their weights
        total, self.counted = (_row(sums, i).reshape(()) for i in range(2))
        return divide(total, self.counted) if reduction == "mean" else total

    def backward(self, dY: Array) -> Any:
        (dX,) = self.saved
        if self.reduction == "none":
            dY = broadcast_to(dY.reshape(-1, 1), tuple(dX.shape))
            return _scaled_gradient(dX, dY, out=device_of(dX).empty(dX.shape, dX.dtype))  # dY is float32
        return _scaled_gradient(dX, divide(dY, self.counted) if self.reduction == "mean" else dY)


def _row(X: Array, index: int) -> Array:
    """X[index], a view   X (D, N) -> (N,)"""
    return span(X, index * X.shape[1], (X.shape[1],))


def check_ignored(operator: str, name: str, value: int) -> int:
    """The label that is ignored, which fits int64 (`TypeError`, `ValueError`)."""
    checked = integer(operator, name, value)
    if not -(2**63) <= checked < 2**63:
        raise ValueError(f"{operator}: {name}={value} does not fit int64")
    return checked


def check_smoothing(operator: str, name: str, value: float) -> float:
    """The share of the target that is spread over all classes (`TypeError`, `ValueError`)."""
    checked = real(operator, name, value)
    if not 0 <= checked <= 1:
        raise ValueError(f"{operator}: {name}={value} is not in [0, 1]")
    return checked


def loss_of_classes(
    operator: str, x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, **options: Any
) -> Tensor:
    """The loss of checked options."""
    probable = target.dtype.kind not in "iub" and target.shape == x.shape
    if not probable and target.dtype.name not in ("int32", "int64", "uint8"):
        raise TypeError(
            f"{operator}: target has dtype {target.dtype.name}; int32, int64 or uint8 is needed"
            + (", or probabilities of the shape of x" if operator == "cross_entropy" else "")
        )
    if not x.ndim or x.shape[-1] == 0 or target.shape != (x.shape if probable else x.shape[:-1]):
        first = x.ndim > 2 and target.shape == (x.shape[0], *x.shape[2:])
        raise ShapeError(
            f"{operator}: x (N, .., C) and target (N, ..) are needed, the classes on the last axis"
            f"{', where PyTorch has them on axis 1' if first else ''}  (x {x.shape}, target {target.shape})"
        )
    if weight is not None and weight.shape != x.shape[-1:]:
        raise ShapeError(f"{operator}: weight needs one number per class  (x {x.shape}, weight {weight.shape})")
    if weight is not None and weight._requires_grad:
        raise ValueError(f"{operator}: weight requires a gradient, which is not offered; .detach() it")
    if not x.size:  # the sum over no rows is 0, and their mean NaN
        return reduced((x * 0.0).sum(-1), reduction)
    if target._requires_grad:
        return _loss_of_probabilities(x, target, weight, reduction, options["smoothing"])
    batch, C = x.shape[:-1], x.shape[-1]
    rows = math.prod(batch)
    loss = CrossEntropy.apply(
        x if x.ndim == 2 else x.reshape(rows, C),
        target=array_of(target).reshape(rows, C) if probable else array_of(target).reshape(rows),
        weight=None if weight is None else array_of(weight),
        reduction=reduction,
        **options,
    )
    return loss.reshape(batch) if reduction == "none" and x.ndim != 2 else loss


def _loss_of_probabilities(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    """The loss as single operators, for a target that has a gradient   x, target (N, .., C) -> () or (N, ..)"""
    logarithms = log_softmax(widened(x), -1)
    terms = -((1.0 - smoothing) * widened(target) + smoothing / x.shape[-1]) * logarithms
    return reduced((terms if weight is None else terms * weight).sum(-1), reduction)


@check_arguments
def cross_entropy(
    x: Tensor,
    target: AnyTensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Softmax cross-entropy of logits   x (N, .., C), target (N, ..) of integers in [0, C) -> () or (N, ..)

    The classes are the last axis, as channels are everywhere in Alpha; PyTorch has them on axis 1.

    Args:
        x: logits; (C,) with a target () is one row.
        target: labels, or probabilities of the classes, which have the shape of x and may require a gradient.
        weight: (C,), a factor for the loss of each class. A mean over labels is divided by the sum of their weights.
        size_average, reduce: only None is offered.
        ignore_index: rows with this label have the loss 0 and the gradient 0; a mean is over the other rows.
        reduction: "mean", "sum" or "none".
        label_smoothing: the share of the target spread evenly over all classes, in [0, 1].

    Raises:
        ShapeError: the shapes do not fit, or (on cpu) a label is outside [0, C); on cuda its loss is NaN.
        TypeError: x is not a Tensor of floating numbers, or target is not a Tensor of int32, int64 or uint8, and has
            not the shape of x either.
        DeviceError: x and target are on different devices.
        ValueError: an argument has a value that means nothing or that is not offered.

    Examples:
        >>> import alpha
        >>> import alpha.nn.functional as F
        >>> logits = alpha.tensor([[2.0, 0.0], [0.0, 2.0]])
        >>> round(F.cross_entropy(logits, alpha.tensor([0, 1])).item(), 4)
        0.1269
    """
    check_reduction("cross_entropy", size_average, reduce, reduction)
    return loss_of_classes(
        "cross_entropy",
        x,
        target,
        weight,
        reduction,
        smoothing=check_smoothing("cross_entropy", "label_smoothing", label_smoothing),
        ignore=check_ignored("cross_entropy", "ignore_index", ignore_index),
        normalize=True,
    )


@function_layer(cross_entropy, ignore_index=check_ignored, label_smoothing=check_smoothing)
class CrossEntropyLoss(LossLayer):
    """Softmax cross-entropy of logits (N, .., C) and labels (N, ..); the arguments are those of `cross_entropy`.

    Examples:
        >>> import alpha
        >>> loss = alpha.nn.CrossEntropyLoss()
        >>> round(loss(alpha.zeros(4, 10), alpha.tensor([0, 1, 2, 3])).item(), 4)
        2.3026
    """

    weight: Tensor | None = None
    size_average: None = None
    ignore_index: int = -100
    reduce: None = None
    reduction: str = "mean"
    label_smoothing: float = 0.0
