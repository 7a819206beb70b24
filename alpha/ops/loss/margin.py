"""Margins between classes: the score of a true class should be above those of the others."""

from __future__ import annotations

import math

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.numerics import is_floating
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Buffer
from alpha.ops.activation.relu_family import relu
from alpha.ops.activation.smooth import logsigmoid
from alpha.ops.array.creation import arange
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.options import integer, real
from alpha.ops.loss.pointwise import LossLayer, check_reduction, common_shape, reduced, widened
from alpha.ops.reduction.scan import cumsum

__all__ = [
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
]


def _check_labels(operator: str, x: Tensor, target: Tensor, shape: tuple[int, ...], least: int) -> None:
    if x.ndim not in (1, 2) or not x.size or target.shape != shape:
        wanted = "(N, C)" if shape == x.shape else "(N,)"
        raise ShapeError(
            f"{operator}: x (N, C) and target {wanted} are needed, or one row without N  "
            f"(x {x.shape}, target {target.shape})"
        )
    if target.dtype.name not in ("int32", "int64", "uint8"):
        raise TypeError(f"{operator}: target has dtype {target.dtype.name}; int32, int64 or uint8 is needed")
    if isinstance(array_of(target), np.ndarray):
        low, high = int(target.array.min()), int(target.array.max())
        if low < least or high >= x.shape[-1]:
            raise ShapeError(f"{operator}: labels {low}..{high} are not in [{least}, {x.shape[-1]})  (x {x.shape})")


def _check_power(operator: str, p: int) -> int:
    if integer(operator, "p", p) not in (1, 2):
        raise ValueError(f"{operator}: p={p!r} is neither 1 nor 2")
    return int(p)


def _at_label(target: Tensor, classes: int) -> Tensor:
    """True at the class of each label   target (...) -> (..., C)"""
    return target.unsqueeze(-1) == arange(classes, dtype="int32", device=target.device)


@check_arguments
def multi_margin_loss(
    x: Tensor,
    target: AnyTensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum over other classes c of weight[t] max(0, margin - x[t] + x[c])^p / C

    x (N, C), target (N,) -> () or (N,)

    Args:
        x: scores; (C,) with a target () is one row.
        target: labels t in [0, C); on cuda a row with another label has the loss NaN.
        p: 1 or 2.
        weight: (C,), a factor for the loss of each label.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("multi_margin_loss", size_average, reduce, reduction)
    _check_labels("multi_margin_loss", x, target, x.shape[:-1], 0)
    _check_power("multi_margin_loss", p)
    x, classes = widened(x), x.shape[-1]
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"multi_margin_loss: weight needs one number per class  (x {x.shape}, weight {weight.shape})")
    hit = _at_label(target, classes)
    score = where(hit, x, 0.0).sum(-1, keepdim=True)
    score = where(hit.any(-1, keepdim=True), score, math.nan)
    loss = relu(real("multi_margin_loss", "margin", margin) - score + x)
    loss = loss if p == 1 else loss * loss
    if weight is not None:
        loss = loss * where(hit, weight, 0.0).sum(-1, keepdim=True)
    return reduced(where(hit, 0.0, loss).sum(-1) / classes, reduction)


@check_arguments
def multilabel_margin_loss(
    x: Tensor, target: AnyTensor, size_average: None = None, reduce: None = None, reduction: str = "mean"
) -> Tensor:
    """The sum over labels t and other classes c of max(0, 1 - x[t] + x[c]) / C   x, target (N, C) -> () or (N,)

    Args:
        x: scores; (C,) with a target (C,) is one row.
        target: the labels of a row, which end at the first -1.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("multilabel_margin_loss", size_average, reduce, reduction)
    _check_labels("multilabel_margin_loss", x, target, x.shape, -1)
    x, classes = widened(x), x.shape[-1]
    before_end = cumsum((target < 0).int(), -1) == 0
    hit = _at_label(target, classes).logical_and(before_end.unsqueeze(-1))  # (N, labels, classes)
    score = where(hit, x.unsqueeze(-2), 0.0).sum(-1, keepdim=True)
    other = before_end.unsqueeze(-1).logical_and(hit.any(-2, keepdim=True).logical_not())
    loss = where(other, relu(1.0 - score + x.unsqueeze(-2)), 0.0)
    return reduced(loss.sum((-2, -1)) / classes, reduction)


@check_arguments
def multilabel_soft_margin_loss(
    x: Tensor,
    target: AnyTensor,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of the binary cross-entropy of logits   x, target (N, C) -> () or (N,)

    Args:
        x: logits, one for each class.
        target: 1 for the classes of a row, else 0. x and target broadcast, and the classes are those of x.
        weight: a factor for the loss of each class; it repeats along x.
        size_average, reduce: only None is offered.
        reduction: "mean", "sum" or "none".
    """
    check_reduction("multilabel_soft_margin_loss", size_average, reduce, reduction)
    if not x.ndim:
        raise ShapeError(f"multilabel_soft_margin_loss: x (..., C) is needed  (x {x.shape}, target {target.shape})")
    common_shape("multilabel_soft_margin_loss", x=x, target=target)
    x = widened(x)
    target = widened(target) if is_floating(target.dtype) else target.astype(x.dtype)
    loss = -(target * logsigmoid(x) + (1.0 - target) * logsigmoid(-x))
    loss = loss if weight is None else loss * weight
    return reduced(loss.sum(x.ndim - 1) / x.shape[-1], reduction)  # as in PyTorch, also of two shapes


class MultiMarginLoss(LossLayer):
    """The margin of one label above the other classes; the arguments are those of `multi_margin_loss`."""

    p: int
    margin: float
    weight: Buffer | None

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        constant = None if weight is None else Buffer(weight)
        margin = real("MultiMarginLoss", "margin", margin)
        self._keep(
            size_average, reduce, reduction, p=_check_power("MultiMarginLoss", p), margin=margin, weight=constant
        )

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return multi_margin_loss(x, target, self.p, self.margin, self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(LossLayer):
    """The margin of several labels above the other classes; the arguments are those of `multilabel_margin_loss`."""

    def __init__(self, size_average: None = None, reduce: None = None, reduction: str = "mean") -> None:
        self._keep(size_average, reduce, reduction)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return multilabel_margin_loss(x, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(LossLayer):
    """Binary cross-entropy, averaged over classes; the arguments are those of `multilabel_soft_margin_loss`."""

    weight: Buffer | None

    def __init__(
        self, weight: Tensor | None = None, size_average: None = None, reduce: None = None, reduction: str = "mean"
    ) -> None:
        self._keep(size_average, reduce, reduction, weight=None if weight is None else Buffer(weight))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return multilabel_soft_margin_loss(x, target, self.weight, reduction=self.reduction)
