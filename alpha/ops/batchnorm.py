"""Batch normalisation over the channels of the last axis (Ioffe & Szegedy 2015)."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd import Function
from alpha.errors import ShapeError
from alpha.numerics import BFLOAT16, FLOAT32
from alpha.ops import batchnorm_cpu
from alpha.ops.arguments import check_arguments
from alpha.ops.batchnorm_cuda import plan_apply, plan_gradients, plan_merge, plan_statistics
from alpha.ops.channel_statistics import ChannelStatistics
from alpha.ops.dtypes import require_float32, require_same_float, vector_width
from alpha.ops.options import real
from alpha.primitive import Array, primitive
from alpha.recompute import repeating
from alpha.tensor import Tensor

__all__ = ["batch_norm"]

_OPTIONAL = ("running_mean", "running_var", "weight", "bias")


@primitive
def channel_statistics(
    X: Array,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: float,
    statistics: ChannelStatistics | None = None,
) -> tuple[Array, Array]:
    """Mean and biased variance of each column; running = (1 - momentum) running + momentum new, if it is not None

    X (..., C), running_mean, running_var (C,) -> mean, var (C,), float32 where X is bfloat16; the new running variance
    is unbiased. `statistics`: of parts of X (`ChannelStatistics`), where the convolution that made it found them
    """


@primitive
def batch_norm_apply(X: Array, mean: Array, var: Array, weight: Array, bias: Array, eps: float) -> Array:
    """Y = weight (X - mean) / sqrt(var + eps) + bias   X (..., C), the others (C,) -> Y (..., C)"""


@primitive
def batch_norm_gradients(
    dY: Array, X: Array, mean: Array, var: Array, weight: Array, eps: float, batch: bool
) -> tuple[Array, Array, Array]:
    """dX, dweight, dbias; `batch`: mean and var came from X itself, so that their gradient counts

    dY, X (..., C), the others (C,) -> dX (..., C), dweight, dbias (C,)
    """


channel_statistics.impl("cpu")(batchnorm_cpu.channel_statistics)
batch_norm_apply.impl("cpu")(batchnorm_cpu.apply)
batch_norm_gradients.impl("cpu")(batchnorm_cpu.gradients)


def _sizes(X: Array, *others: Array) -> tuple[int, int, np.dtype[Any], int, int]:
    """What the plans below depend on: R, C, dtype, elements of a load, SMs."""
    C = X.shape[-1]
    return X.size // C, C, X.dtype, vector_width(X, *others, along=C), X.device.properties.num_sms


@channel_statistics.impl("cuda")
def _(
    X: Array,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: float,
    statistics: ChannelStatistics | None = None,
) -> tuple[Array, Array]:
    require_same_float("batch_norm", X)
    if running_mean is not None:
        require_float32("batch_norm", running_mean, running_var)
    given = {"running_mean": running_mean, "running_var": running_var, "momentum": float(momentum)}
    if statistics is None:
        plan, given["X"] = plan_statistics(*_sizes(X)), X
    else:
        plan = plan_merge(*_sizes(X)[1:4], statistics.part.shape[1])
        given |= {"part": statistics.part, "counts": statistics.counts}
    found = plan.launch(X.device, given)
    return found["mean"], found["var"]


@batch_norm_apply.impl("cuda")
def _(X: Array, mean: Array, var: Array, weight: Array, bias: Array, eps: float) -> Array:
    require_same_float("batch_norm", X)
    require_float32("batch_norm", mean, var, weight, bias)
    if not X.size:
        return X.device.empty(X.shape, X.dtype)
    given = {"X": X, "mean": mean, "var": var, "weight": weight, "bias": bias}
    plan = plan_apply(X.shape, *_sizes(*given.values())[2:4])
    return plan.launch(X.device, {**given, "eps": float(eps)})["Y"]


@batch_norm_gradients.impl("cuda")
def _(
    dY: Array, X: Array, mean: Array, var: Array, weight: Array, eps: float, batch: bool
) -> tuple[Array, Array, Array]:
    require_same_float("batch_norm", dY, X)
    require_float32("batch_norm", mean, var, weight)
    device = X.device
    if X.size == 0:
        return device.zeros(X.shape, X.dtype), *(device.zeros(X.shape[-1:], FLOAT32) for _ in range(2))
    given = {"X": X, "dY": dY, "mean": mean, "var": var, "weight": weight}
    plan = plan_gradients(X.shape, *_sizes(*given.values())[2:], batch)
    found = plan.launch(device, {**given, "eps": float(eps)})
    return found["dX"], found["dw"], found["db"]


class BatchNorm(Function):
    """Y = weight (X - mean) / sqrt(var + eps) + bias   X (..., C), weight, bias (C,) -> Y (..., C)"""

    def forward(
        self,
        X: Array,
        weight: Array | None,
        bias: Array | None,
        *,
        running: tuple[Tensor, Tensor] | None,
        training: bool,
        momentum: float,
        eps: float,
        statistics: ChannelStatistics | None = None,
    ) -> Array:
        weight = _filled(X, 1) if weight is None else weight
        bias = _filled(X, 0) if bias is None else bias
        self.eps, self.batch = eps, training
        if training:
            mean, var = channel_statistics(X, *_arrays(running), momentum, statistics)
            for old in running or ():
                old._version.bump("batch_norm")
        else:
            mean, var = _arrays(running)
        self.save(X, weight)
        self.statistics = mean, var
        return batch_norm_apply(X, mean, var, weight, bias, eps)

    def backward(self, dY: Array) -> Any:
        X, weight = self.saved
        return batch_norm_gradients(dY, X, *self.statistics, weight, self.eps, self.batch)


def _arrays(running: tuple[Tensor, Tensor] | None) -> tuple[Array | None, Array | None]:
    return (None, None) if running is None else (running[0].array, running[1].array)


def _filled(X: Array, value: float) -> Array:
    """What stands for a weight or a bias that is None   X (..., C) -> (C,)"""
    dtype = FLOAT32 if X.dtype == BFLOAT16 else X.dtype
    if isinstance(X, np.ndarray):
        return np.full(X.shape[-1], value, dtype)
    result = X.device.empty((X.shape[-1],), dtype)
    X.device.fill(result, value)
    return result


@check_arguments
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    statistics: ChannelStatistics | None = None,
) -> Tensor:
    """Batch normalisation   x (..., C), the others (C,) -> (..., C)

    In training mean and (biased) variance are the batch's, and the running ones move towards them by `momentum`,
    the variance unbiased, as in PyTorch; otherwise the running ones are used. The second run of a function under
    `alpha.checkpoint` leaves the running ones alone.

    Args:
        running_mean, running_var: both or neither; None in training keeps no statistics.
        weight, bias: None is 1 and 0.
        statistics: the channel statistics of x, if the `conv2d` that made x was given the same object. They are used in
            training, so that x is read one time less, unless x was written in place since.

    Raises:
        ShapeError: a parameter is not (C,), the batch has one row in training, or running statistics are missing.
        TypeError: one of the tensors is not a Tensor of floating numbers.
        DeviceError: the running statistics are on another device than x.
        ValueError: momentum or eps is not finite, or eps is negative.
    """
    C = x.shape[-1] if x.ndim else 0
    for name, value in zip(_OPTIONAL, (running_mean, running_var, weight, bias), strict=True):
        if value is not None and value.array.shape != (C,):
            raise ShapeError(f"batch_norm: {name} has shape {value.shape}, x {x.shape} needs ({C},)")
    check_eps("batch_norm", eps)
    momentum = real("batch_norm", "momentum", momentum)
    if training and x.size <= C:
        raise ShapeError(f"batch_norm: one row a channel has no variance to train on  (x {x.shape})")
    running = None
    if running_mean is not None and running_var is not None:
        running = None if training and repeating() else (running_mean, running_var)
    elif running_mean is not None or running_var is not None:
        raise ShapeError("batch_norm: running_mean and running_var are needed together, or neither")
    elif not training:
        raise ShapeError("batch_norm: evaluation needs running_mean and running_var")
    return BatchNorm.apply(
        x,
        weight,
        bias,
        running=running,
        training=training,
        momentum=momentum,
        eps=eps,
        statistics=statistics if training and statistics is not None and statistics.describes(x) else None,
    )


def check_eps(operator: str, eps: float) -> None:
    """`ValueError` for an eps that is negative or not finite."""
    if real(operator, "eps", eps) < 0:
        raise ValueError(f"{operator}: eps={eps} is negative")
