"""The negative log-likelihood of labels."""

from __future__ import annotations

from alpha.module import Buffer
from alpha.ops.arguments import AnyTensor, check_arguments
from alpha.ops.loss import check_ignored, loss_of_classes
from alpha.ops.pointwise_loss import LossLayer, check_reduction
from alpha.tensor import Tensor

__all__ = ["NLLLoss", "nll_loss"]


@check_arguments
def nll_loss(
    x: Tensor,
    target: AnyTensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    """-weight[target] x[target], x being logarithms of probabilities   x (N, .., C), target (N, ..) -> () or (N, ..)

    The arguments are those of `cross_entropy`; the target is labels, and the classes are the last axis.
    """
    check_reduction("nll_loss", size_average, reduce, reduction)
    if target.shape == x.shape and target.dtype.kind not in "iub":
        raise TypeError(f"nll_loss: target has dtype {target.dtype.name}; int32, int64 or uint8 is needed")
    ignore = check_ignored("nll_loss", ignore_index)
    return loss_of_classes("nll_loss", x, target, weight, reduction, smoothing=0.0, ignore=ignore, normalize=False)


class NLLLoss(LossLayer):
    """The negative log-likelihood of labels; the arguments are those of `nll_loss`."""

    weight: Buffer | None
    ignore_index: int

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: None = None,
        ignore_index: int = -100,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        constant = None if weight is None else Buffer(weight)
        self._keep(
            size_average, reduce, reduction, weight=constant, ignore_index=check_ignored("NLLLoss", ignore_index)
        )

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return nll_loss(x, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)
