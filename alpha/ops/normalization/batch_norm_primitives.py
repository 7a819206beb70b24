"""Batch normalisation on arrays: the contracts, and what its functions share.

The functions are `BatchNorm` (batch_norm.py) and `BatchNormPool` (batch_norm_pool.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from alpha.autograd.first_step import FirstStep
from alpha.autograd.recompute import repeating
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.ops.conv2d.channel_statistics import ChannelStatistics, StatisticsArguments
from alpha.ops.kernel.rectifier import GradientParts, KeptOutput, Rectified, RectifiedInput, Rectifier, RectifierStep
from alpha.ops.normalization import batch_norm_cpu as batchnorm_cpu
from alpha.ops.normalization import batch_norm_cuda as batchnorm_cuda


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
def batch_norm_apply(
    X: Array,
    mean: Array,
    var: Array,
    weight: Array,
    bias: Array,
    eps: float,
    residual: Array | None = None,
    rectifier: Rectifier | None = None,
) -> Array:
    """Y = rectifier(weight (X - mean) / sqrt(var + eps) + bias + residual), each of the last two if it is not None

    X, residual (..., C), the others (C,) -> Y (..., C)
    """


@primitive
def batch_norm_training(
    X: Array,
    wanted: StatisticsArguments,
    weight: Array,
    bias: Array,
    eps: float,
    residual: Array | None = None,
    rectifier: Rectifier | None = None,
    smallest: float = 0.0,
) -> tuple[Array, Array, Array]:
    """`batch_norm_apply` with the `channel_statistics` of X itself, and these: Y, mean, var

    X, residual (..., C), the others (C,) -> Y (..., C), mean, var (C,), float32 where X is bfloat16

    Args:
        smallest: a weight that is nearer to 0 counts as that, with its sign.
    """


@primitive
def batch_norm_gradients(
    dY: Array | GradientParts,
    X: Array | RectifiedInput,
    mean: Array,
    var: Array,
    weight: Array,
    eps: float,
    batch: bool,
    rectified: Rectified | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    """dX, dweight, dbias, and dZ, the gradient before a rectifier, which a residual has, too

    dY, X (..., C), the others (C,) -> dX (..., C), dweight, dbias (C,), dZ (..., C)

    Args:
        dY: in two parts, dZ is returned in each case.
        X: with the rectifier that has made it, dX is the gradient of what that was given.
        batch: mean and var came from X itself, so that their gradient counts.
        rectified: by what, if a rectifier followed. dZ is then returned if its sign is that of Y, and None if it is
            computed again from X. Without a rectifier, dZ is dY.
    """


@primitive
def batch_norm_gradients_from_output(
    dY: Array | GradientParts, kept: KeptOutput, var: Array, weight: Array, bias: Array, eps: float
) -> tuple[Array, Array, Array, Array | None]:
    """`batch_norm_gradients` of the statistics of the batch, from Y instead of X: dX, dweight, dbias, dZ

    (X - mean) / sqrt(var + eps) is found again as (rectifier^-1(Y) - residual - bias) / weight, where a weight counts
    as in the `batch_norm_training` that has made Y. dY (..., C), the others (C,) -> dX (..., C), dweight, dbias (C,),
    dZ (..., C), None without a residual if dY is one array
    """


@primitive
def batch_norm_gradients_begun(
    dZ: Array,
    part: Array,
    kept: Array | RectifiedInput | KeptOutput,
    mean: Array,
    var: Array,
    weight: Array,
    bias: Array | None,
    eps: float,
) -> tuple[Array, Array, Array]:
    """`batch_norm_gradients` of the statistics of the batch, whose first step was taken: dX, dweight, dbias

    dZ (..., C), mean, var, weight, bias (C,) -> dX (..., C), dweight, dbias (C,)

    Args:
        part: (2, parts, C), the sums over parts of the rows of dZ and of dZ (X - mean), or of dZ (X - mean) /
            sqrt(var + eps) if the output was kept.
        kept: X, as for `batch_norm_gradients`, or the output, as for `batch_norm_gradients_from_output`, which needs
            the bias.
    """


for _device, _room in (("cpu", batchnorm_cpu), ("cuda", batchnorm_cuda)):
    channel_statistics.impl(_device)(_room.channel_statistics)
    batch_norm_apply.impl(_device)(_room.apply)
    batch_norm_training.impl(_device)(_room.training)
    batch_norm_gradients.impl(_device)(_room.gradients)
    batch_norm_gradients_from_output.impl(_device)(_room.gradients_from_output)
    batch_norm_gradients_begun.impl(_device)(_room.gradients_begun)


class BatchStatistics(NamedTuple):
    """Source of the mean and the variance of the channels.

    Attributes:
        running: the running ones, or None.
        training: whether they are those of the batch; the running ones are then moved.
        momentum: by how much.
        statistics: those of the batch, where the convolution that made it found them.
    """

    running: tuple[Tensor, Tensor] | None
    training: bool
    momentum: float
    statistics: ChannelStatistics | None = None

    @classmethod
    def of_batch(cls, running: tuple[Tensor, Tensor] | None, momentum: float) -> BatchStatistics:
        """Statistics of the batch; the second run of a function under `alpha.checkpoint` keeps the running ones."""
        return cls(None if repeating() else running, True, momentum)

    @property
    def arrays(self) -> tuple[Array, Array]:
        """The running ones, or None and None."""
        if self.running is None:
            return None, None
        mean, var = self.running
        if mean._version.unaware is not None or var._version.unaware is not None:  # copies of parts
            mean._version.refresh()
            var._version.refresh()
        return mean.array, var.array

    def note_moved(self) -> None:
        """Note that the running ones were written."""
        for old in self.running or ():
            old._version.bump("batch_norm")


def with_step(X: Array, step: FirstStep) -> Array | RectifiedInput:
    """X, with the rectifier that has made it if the first step of its gradient is taken with that of X."""
    if not isinstance(step, RectifierStep) or not step.is_elementwise or step.maps["Y"] is not X:
        return X
    step.note_taken(None)
    return RectifiedInput(X, step.rectifier)


def filled(X: Array, value: float) -> Array:
    """Array that stands for a weight or a bias that is None   X (..., C) -> (C,)"""
    dtype = FLOAT32 if X.dtype == BFLOAT16 else X.dtype
    if isinstance(X, np.ndarray):
        return np.full(X.shape[-1], value, dtype)
    result = X.device.empty((X.shape[-1],), dtype)
    X.device.fill(result, value)
    return result
