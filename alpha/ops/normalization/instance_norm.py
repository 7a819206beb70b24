"""Instance normalisation: each channel of each image by its own mean and variance; channels are the last axis."""

from __future__ import annotations

import math

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.recompute import repeating
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.options import real
from alpha.ops.normalization.batch_norm import batch_norm, check_eps
from alpha.ops.normalization.group import GroupNormStep
from alpha.ops.reduction.var_norm import var

__all__ = ["instance_norm"]


@check_arguments
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Y = weight (X - mean) / sqrt(var + eps) + bias over each channel of each image (Ulyanov et al. 2016)

    x (N, .., C), the others (C,) -> (N, .., C). Mean and (biased) variance are those of the pixels between.

    Args:
        running_mean, running_var: both or neither. With `use_input_stats` they move by `momentum` towards the mean of
            the images' means and of their unbiased variances; otherwise they are used.
        weight, bias: None is 1 and 0.
        use_input_stats: False is `batch_norm` in evaluation.

    Raises:
        ShapeError: a parameter is not (C,), an image has one pixel, or running statistics are missing.
        ValueError: momentum or eps is not finite, or eps is negative.
    """
    C = x.shape[-1] if x.ndim else 0
    named = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for name, part in named.items():
        if part is not None and part.shape != (C,):
            raise ShapeError(f"instance_norm: {name} has shape {part.shape}, x {x.shape} needs ({C},)")
    check_eps("instance_norm", eps)
    momentum = real("instance_norm", "momentum", momentum)
    if (running_mean is None) != (running_var is None):
        raise ShapeError("instance_norm: running_mean and running_var are needed together, or neither")
    if not use_input_stats:
        if running_mean is None:
            raise ShapeError("instance_norm: use_input_stats=False needs running_mean and running_var")
        return unchecked(batch_norm)(x, running_mean, running_var, weight, bias, False, momentum, eps)
    pixels = math.prod(x.shape[1:-1])
    if x.ndim < 3 or pixels == 1:
        raise ShapeError(f"instance_norm: x (N, .., C) of more than one pixel is needed  (x {x.shape})")
    if running_mean is not None and running_var is not None and not repeating():
        _update(x, running_mean, running_var, momentum)
    sizes = x.shape[0], pixels, C, 1
    return GroupNormStep.apply(x, weight, bias, sizes=sizes, eps=float(eps), centered=True)


@no_grad()
def _update(x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float) -> None:
    """Moves the running statistics, in place."""
    values = x.detach().astype(running_mean.dtype)
    axes = tuple(range(1, x.ndim - 1))
    for running, new in ((running_mean, values.mean(axes)), (running_var, unchecked(var)(values, axes))):
        running.mul_(1 - momentum).add_(new.mean(0) * momentum)
