"""Batch normalisation over the channels of the last axis (Ioffe & Szegedy 2015)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha.autograd.first_step import FirstStep
from alpha.autograd.function import Function
from alpha.autograd.memory_mode import FAST, LEAST, SMALLEST_WEIGHT, Again, keeps_one_side
from alpha.autograd.memory_mode import setting as memory
from alpha.autograd.tracing import state as tracing
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.conv2d.channel_statistics import ChannelStatistics, StatisticsArguments
from alpha.ops.conv2d.magnitudes import HALVES, drop_half, forget_stale_magnitude
from alpha.ops.kernel.arguments import NoImages, check_arguments
from alpha.ops.kernel.casts import result_type
from alpha.ops.kernel.options import real
from alpha.ops.kernel.rectifier import (
    FROM_OUTPUT,
    FROM_SUM,
    FROM_X,
    FROM_Y,
    IDENTITY,
    NOT_RECTIFIED,
    KeptOutput,
    Rectified,
    RectifiedInput,
    Rectifier,
    RectifierStep,
    rectifier_of,
)
from alpha.ops.normalization.batch_norm_pool import MOST_PIXELS, BatchNormPool, takes_windows
from alpha.ops.normalization.batch_norm_primitives import (
    BatchStatistics,
    batch_norm_apply,
    batch_norm_gradients,
    batch_norm_gradients_begun,
    batch_norm_gradients_from_output,
    batch_norm_training,
    filled,
    with_step,
)
from alpha.ops.pooling.pool_shape import PoolShape, Windows, pooling, windows_of

__all__ = ["batch_norm"]

SMALLEST_SLOPE = 1e-3  # of an activation that is undone
_OPTIONAL = ("running_mean", "running_var", "weight", "bias")


class BatchNorm(Function):
    """Y = rectifier(weight (X - mean) / sqrt(var + eps) + bias + residual), as `batch_norm_apply`

    Attributes:
        can_keep_output: whether X, normalised, can be found again from Y, in the memory mode of the forward pass.
        keeps_output: whether Y and the residual are kept for that, and X is not.
        input_stays: whether the function that made X keeps it for its own gradient, as a convolution with a rectifier,
            so that to keep Y in its place gains nothing; not asked in the mode "fast".
    """

    offers_first_step = takes_first_steps = True
    can_keep_output = keeps_output = has_residual = False
    input_stays = False
    rectifier: Rectifier | None = None

    def forward(
        self,
        X: Array,
        weight: Array | None,
        bias: Array | None,
        residual: Array | None,
        *,
        stats: BatchStatistics,
        eps: float,
        rectifier: Rectifier | None,
        input_stays: bool = False,
    ) -> Array:
        self.input_stays = input_stays
        weight = filled(X, 1) if weight is None else weight
        bias = filled(X, 0) if bias is None else bias
        smallest = self.begin(X.dtype, rectifier) if stats.training and memory.name != FAST else 0.0
        if stats.training:
            wanted = StatisticsArguments(*stats.arrays, stats.momentum, stats.statistics)
            Y, mean, var = batch_norm_training(X, wanted, weight, bias, eps, residual, rectifier, smallest)
            stats.note_moved()
        else:
            mean, var = stats.arrays
            self.guard(*stats.running or ())  # they are read again by backward
            Y = batch_norm_apply(X, mean, var, weight, bias, eps, residual, rectifier)
        self.mean, self.var, self.eps, self.batch = mean, var, eps, stats.training
        self.keep(X, weight, bias, Y, residual is not None, rectifier)
        return Y

    def begin(self, dtype: np.dtype[Any], rectifier: Rectifier | None) -> float:
        """Decide in training whether the output may be kept in place of X; the `smallest` weight, which that needs."""
        undone = rectifier is None or (rectifier.slope >= SMALLEST_SLOPE and rectifier.bound == math.inf)
        self.can_keep_output = undone and not self.input_stays and keeps_one_side(dtype)
        return SMALLEST_WEIGHT if self.can_keep_output else 0.0

    def keep(
        self, X: Array, weight: Array, bias: Array, Y: Array, has_residual: bool, rectifier: Rectifier | None
    ) -> None:
        """Keep what the gradient needs of these arrays."""
        self.rectifier, self.has_residual = rectifier, has_residual
        self.sign_from_Y = has_residual  # whose sign depends on the residual, which nobody keeps
        self.keeps_own_output = self.can_keep_output or (has_residual and rectifier is not None)
        self.bias = bias if self.can_keep_output or self.input_stays else None
        if rectifier is None:
            self.save(X, weight, *([] if self.bias is None else [bias]))
        else:
            self.save(X, weight, Y if self.sign_from_Y else bias)

    def _save_once(self, inputs: Sequence[Tensor | None], Y: Array) -> None:
        x, residual = inputs[0], inputs[3]
        assert x is not None
        self._version_of_x = x._version
        if residual is not None:
            drop_half(residual.array)
        if residual is not None and self.can_keep_output and residual.array is not x.array and _is_kept(residual):
            assert self._saved is not None
            assert self.bias is not None
            self.save(Y, self._saved[1], self.bias, residual.array)
            self.keeps_output = True
        super()._save_once(inputs, Y)

    def keep_output(self, output: Tensor) -> None:
        if not self.can_keep_output or self.keeps_output or self.has_residual:
            return
        assert self._saved is not None
        self.save(output.array, *self._saved[1:])
        self._again = None  # X is not needed any more
        self._guards = [guard for guard in self._guards if guard[0] is not self._version_of_x]
        self.guard(output)
        self.keeps_output = True

    def output_again(self) -> Again | None:
        if self.can_keep_output or self.has_residual or not (self.rectifier or self.input_stays):
            return None
        return self.made_again(self._output)

    def _output(self) -> Array:
        X, weight, bias = self.saved
        return batch_norm_apply(X, self.mean, self.var, weight, bias, self.eps, None, self.rectifier)

    def first_step(self) -> FirstStep | None:
        if not self.batch or isinstance(self.var, np.ndarray):
            return None
        rectifier = self.rectifier or IDENTITY
        if self.keeps_output:
            Y, weight, bias, *residual = self.saved
            maps, sign = {"Y": Y}, FROM_OUTPUT
            if residual:
                maps["residual"], sign = residual[0], FROM_SUM
        else:
            X, weight, *last = self.saved
            maps, bias, sign = {"X": X}, None, NOT_RECTIFIED
            if self.rectifier is not None and self.sign_from_Y:
                maps["Y"], sign = last[0], FROM_Y
            elif self.rectifier is not None:
                bias, sign = last[0], FROM_X
        numbers = {"eps": self.eps, "smallest": SMALLEST_WEIGHT if self.keeps_output else 0.0}
        arrays = {"mean": self.mean, "var": self.var, "weight": weight, "bias": bias}
        return RectifierStep(
            rectifier, sign, maps, arrays | numbers, needs_magnitude=getattr(self.edges[0], "reads_half", False)
        )

    def backward(self, dY: Array) -> Any:
        token = HALVES.set(getattr(self.edges[0], "reads_half", False))
        try:
            if self.keeps_output:
                Y, weight, bias, *residual = self.saved
                kept = KeptOutput(Y, residual[0] if residual else None, self.rectifier or IDENTITY)
                if self.begun is not None:
                    return *self._rest(dY, kept, weight, bias), dY
                return batch_norm_gradients_from_output(dY, kept, self.var, weight, bias, self.eps)
            X, weight, *sign = self.saved
            given = X if self.behind is None else with_step(X, self.behind)
            if self.begun is not None:
                return *self._rest(dY, given, weight, None), dY
            rectified = None
            if self.rectifier is not None:
                bias, Y = (None, *sign) if self.sign_from_Y else (*sign, None)
                rectified = Rectified(self.rectifier, bias, Y)
            return batch_norm_gradients(dY, given, self.mean, self.var, weight, self.eps, self.batch, rectified)
        finally:
            HALVES.reset(token)

    def _rest(
        self, dZ: Array, kept: Array | RectifiedInput | KeptOutput, weight: Array, bias: Array | None
    ) -> tuple[Array, Array, Array]:
        """The gradients of X, weight and bias after the first step."""
        assert isinstance(self.begun, RectifierStep)
        part = self.begun.part
        result: tuple[Array, Array, Array] = batch_norm_gradients_begun(
            dZ, part, kept, self.mean, self.var, weight, bias, self.eps
        )
        return result


def _is_kept(tensor: Tensor) -> bool:
    """True if a tensor's values stay for the backward pass in any case, or take the place of something as large."""
    node = tensor._node
    if node is None or tensor._version.value:
        return False
    return node.output_is_kept or (isinstance(node, BatchNorm) and node.can_keep_output and not node.has_residual)


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
    residual: Tensor | None = None,
    activation: Callable[[Tensor], Tensor] | None = None,
    pool: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Batch normalisation   x, residual (..., C), the others (C,) -> (..., C), or what `pool` makes of it

    In training mean and (biased) variance are the batch's, and the running ones move towards them by `momentum`,
    the variance unbiased, as in PyTorch; otherwise the running ones are used. The second run of a function under
    `alpha.checkpoint` leaves the running ones alone.

    Args:
        running_mean, running_var: both or neither; None in training keeps no statistics.
        weight, bias: None is 1 and 0.
        statistics: the channel statistics of x, if the `conv2d` that made x was given the same object. They are used in
            training, so that x is read one time less, unless x was written in place since.
        residual: is added to the result, in the same kernel if it has the shape and dtype of x, else as by `+`.
        activation: is applied to the result, after the residual: a layer or a function of one tensor. The kernel
            computes ReLU, ReLU6 and leaky ReLU of a positive slope itself, and so do the kernels of the gradients.
            Without a residual, nothing but x is then kept for them.
        pool: is applied at last: a layer or a function of one tensor. The kernels compute a MaxPool2d of stride 2 whose
            windows have at most 3 x 3 pixels and no dilation, if there is no residual, and no activation but those
            above. x, and a byte for each maximum, are then kept for the gradients.

    Raises:
        ShapeError: a parameter is not (C,), the residual does not fit x, the batch has one row in training, running
            statistics are missing, or x cannot be pooled.
        TypeError: one of the tensors is not a Tensor of floating numbers, those of x and the residual do not mix, or
            the activation or the pool is no function.
        DeviceError: the running statistics are on another device than x.
        ValueError: momentum or eps is not finite, or eps is negative.
    """
    C = x.shape[-1] if x.ndim else 0
    for name, value in zip(_OPTIONAL, (running_mean, running_var, weight, bias), strict=True):
        if value is not None and value.array.shape != (C,):
            raise ShapeError(f"batch_norm: {name} has shape {value.shape}, x {x.shape} needs ({C},)")
    check_eps("batch_norm", eps)
    momentum = real("batch_norm", "momentum", momentum)
    if training and 0 < x.size <= C:
        raise ShapeError(f"batch_norm: one row a channel has no variance to train on  (x {x.shape})")
    running = None
    if running_mean is not None and running_var is not None:
        running = running_mean, running_var
    elif running_mean is not None or running_var is not None:
        raise ShapeError("batch_norm: running_mean and running_var are needed together, or neither")
    elif not training:
        raise ShapeError("batch_norm: evaluation needs running_mean and running_var")
    if weight is not None and weight.array.dtype == BFLOAT16:
        weight = weight.astype(FLOAT32)
    if bias is not None and bias.array.dtype == BFLOAT16:
        bias = bias.astype(FLOAT32)
    fits = residual is None or (residual.shape == x.shape and residual.dtype == x.dtype)
    if residual is not None and not fits:
        _check_residual(residual, x)
    rectifier, windows = rectifier_of(activation), windows_of(pool)
    if not fits or not x.size:
        rectifier = None
    stats = BatchStatistics.of_batch(running, momentum) if training else BatchStatistics(running, False, momentum)
    if training and statistics is not None and statistics.describes(x):
        stats = stats._replace(statistics=statistics)
    known = activation is None or rectifier is not None
    shape = _pooled_by_kernels(x, windows) if windows is not None and residual is None and known else None
    if shape is not None:
        return BatchNormPool.apply(x, weight, bias, stats=stats, eps=eps, rectifier=rectifier, shape=shape)
    if x.size:
        added = residual if fits else None
        half = training and known and memory.name != LEAST and getattr(x._node, "next_reads_half", False)
        if half and added is not None:
            forget_stale_magnitude(added)
        stays = memory.name != FAST and x._node is not None and x._node.keeps_own_output
        options = {"stats": stats, "eps": eps, "rectifier": rectifier, "input_stays": stays}
        token = HALVES.set(half)
        try:
            y = BatchNorm.apply(x, weight, bias, added, **options)
        finally:
            HALVES.reset(token)
    else:  # no rows, as of a detector that has found nothing: the running statistics stay as they are
        y = NoImages.apply(x, weight, bias, shape=x.shape)
    if residual is not None and not (fits and x.size):
        y = y + residual
    y = y if known or activation is None else activation(y)
    return y if pool is None else pool(y)


def _pooled_by_kernels(x: Tensor, windows: Windows) -> PoolShape | None:
    """The shape of a maximum pool that the kernels of the batch normalisation compute; None if they do not.

    For a tracer the two are operators of their own.
    """
    if not x.size or x.ndim != 4 or tracing.tracer is not None or not takes_windows(windows):
        return None
    shape = pooling("max_pool2d", 2, x, windows).shapes[0]
    return shape if shape.N * shape.IH * shape.IW <= MOST_PIXELS else None


def _check_residual(residual: Tensor, x: Tensor) -> None:
    """`ShapeError` or `TypeError` for a residual that cannot be added to x."""
    result_type("batch_norm", (x.array, residual.array))
    try:
        np.broadcast_shapes(residual.shape, x.shape)
    except ValueError:
        raise ShapeError(f"batch_norm: residual {residual.shape} cannot be added to x {x.shape}") from None


def check_eps(operator: str, eps: float) -> None:
    """`ValueError` for an eps that is negative or not finite."""
    if real(operator, "eps", eps) < 0:
        raise ValueError(f"{operator}: eps={eps} is negative")
