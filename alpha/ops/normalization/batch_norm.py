"""Batch normalisation over the channels of the last axis (Ioffe & Szegedy 2015)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha.autograd.first_step import FirstStep
from alpha.autograd.function import Function
from alpha.autograd.memory_mode import BALANCED, FAST, LEAST, SMALLEST_WEIGHT, Again
from alpha.autograd.memory_mode import setting as memory
from alpha.autograd.tracing import state as tracing
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.conv2d import Convolution
from alpha.ops.conv2d.channel_statistics import ChannelStatistics, StatisticsArguments
from alpha.ops.conv2d.magnitudes import HALVES, drop_half, forget_stale_magnitude, half_alone
from alpha.ops.conv2d.problem import Given
from alpha.ops.kernel.arguments import NoImages, check_arguments
from alpha.ops.kernel.casts import HalfAlone, result_type
from alpha.ops.kernel.options import real
from alpha.ops.kernel.rectifier import (
    FROM_OUTPUT,
    FROM_SUM,
    FROM_X,
    FROM_Y,
    IDENTITY,
    NOT_RECTIFIED,
    GradientParts,
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
        keeps_output: whether Y, or its copy, and the residual are kept for that, and X is not.
        half: the fp16 copy of Y that is kept in place of Y, for its sign or for X.
        input_stays: whether the function that made X keeps it for its own gradient, as a convolution with a rectifier,
            so that to keep Y in its place gains nothing; not asked in the mode "fast".
    """

    offers_first_step = takes_first_steps = takes_parts = True
    can_keep_output = keeps_output = has_residual = False
    input_stays = False
    rectifier: Rectifier | None = None
    half: HalfAlone | None

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
        smallest = 0.0
        if stats.training and memory.name != FAST:
            smallest = self.begin(X.dtype, rectifier, residual is not None)
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

    def begin(self, dtype: np.dtype[Any], rectifier: Rectifier | None, has_residual: bool) -> float:
        """Decide in training if the output may be kept in place of X, and return the `smallest` weight for that."""
        self.can_keep_output = not self.input_stays and may_keep_output(dtype, rectifier, has_residual)
        return SMALLEST_WEIGHT if self.can_keep_output else 0.0

    def keep(
        self, X: Array, weight: Array, bias: Array, Y: Array, has_residual: bool, rectifier: Rectifier | None
    ) -> None:
        """Keep what the gradient needs of these arrays."""
        self.rectifier, self.has_residual = rectifier, has_residual
        self.sign_from_Y = has_residual  # whose sign depends on the residual, which nobody keeps
        self.bias = bias if self.can_keep_output or self.input_stays else None
        # Behind a residual a copy is kept for the sign alone: what is found again from it is off by
        # 1.4e-4 |Y| / |weight|, and there |Y| may be large though the weight is small. Of numbers that are rounded up
        # to the bound of a rectifier the gradient would be 0.
        has_use = self.can_keep_output
        if has_residual:
            has_use = rectifier is not None and rectifier.bound == math.inf
        self.half = half_alone(Y) if has_use else None
        stays = self.can_keep_output or (has_residual and rectifier is not None)
        self.keeps_own_output = stays and self.half is None
        self.keeps_output = self.half is not None and not has_residual
        if self.keeps_output:
            self.save(None, weight, bias)
        elif rectifier is None:
            self.save(X, weight, *([] if self.bias is None else [bias]))
        elif self.half is not None:
            self.save(X, weight)
        else:
            self.save(X, weight, Y if self.sign_from_Y else bias)

    def _save_once(self, inputs: Sequence[Tensor | None], Y: Array) -> None:
        x, residual = inputs[0], inputs[3]
        assert x is not None
        self._version_of_x = x._version
        if residual is not None:
            drop_half(residual.array)
        undone = self.can_keep_output and self.half is None
        if undone and residual is not None and residual.array is not x.array and _is_kept(residual):
            assert self._saved is not None
            assert self.bias is not None
            self.save(Y, self._saved[1], self.bias, residual.array)
            self.keeps_output = True
        super()._save_once(inputs, Y)

    def keep_output(self, output: Tensor) -> None:
        if not self.can_keep_output or self.has_residual or (self.keeps_output and self.half is None):
            return
        assert self._saved is not None
        self.save(output.array, *self._saved[1:])
        self.half = None
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
            kept, weight, bias = self._kept_output()
            maps, sign = {"Y": kept.Y}, FROM_OUTPUT
            if kept.residual is not None:
                maps["residual"], sign = kept.residual, FROM_SUM
        else:
            X, weight, *last = self.saved
            maps, bias, sign = {"X": X}, None, NOT_RECTIFIED
            if self.rectifier is not None and self.sign_from_Y:
                maps["Y"], sign = self.half or last[0], FROM_Y
            elif self.rectifier is not None:
                bias, sign = last[0], FROM_X
        numbers = {"eps": self.eps, "smallest": SMALLEST_WEIGHT if self.keeps_output else 0.0}
        arrays = {"mean": self.mean, "var": self.var, "weight": weight, "bias": bias}
        return RectifierStep(
            rectifier, sign, maps, arrays | numbers, needs_magnitude=getattr(self.edges[0], "can_read_half", False)
        )

    def backward(self, dY: Array) -> Any:
        parts = dY if self._other_part is None else GradientParts(dY, self._other_part)
        before = self.edges[0]
        wanted = Given.MAGNITUDE
        if isinstance(before, Convolution) and before.can_read_half:
            wanted = before.half_of_gradient()
        token = HALVES.set(wanted)
        try:
            if self.keeps_output:
                kept, weight, bias = self._kept_output()
                if self.begun is not None:
                    return *self._rest(dY, kept, weight, bias), dY
                return batch_norm_gradients_from_output(parts, kept, self.var, weight, bias, self.eps)
            X, weight, *sign = self.saved
            given = X if self.behind is None else with_step(X, self.behind)
            if self.begun is not None:
                return *self._rest(dY, given, weight, None), dY
            rectified = None
            if self.rectifier is not None:
                bias, Y = (None, self.half or sign[0]) if self.sign_from_Y else (*sign, None)
                rectified = Rectified(self.rectifier, bias, Y)
            return batch_norm_gradients(parts, given, self.mean, self.var, weight, self.eps, self.batch, rectified)
        finally:
            HALVES.reset(token)

    def _kept_output(self) -> tuple[KeptOutput, Array, Array]:
        """The arrays that are kept in place of X, weight and bias."""
        Y, weight, bias, *residual = self.saved
        kept = KeptOutput(self.half or Y, residual[0] if residual else None, self.rectifier or IDENTITY)
        return kept, weight, bias

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


def may_keep_output(dtype: np.dtype[Any], rectifier: Rectifier | None, has_residual: bool) -> bool:
    """True if in this memory mode the output, or its copy, may take the place of the input: it can be undone.

    In bfloat16 a residual cannot be taken away again: its rounding is large beside X times a weight near 0. And "least"
    keeps X and computes the output of a rectifier again, which takes less memory: a first layer's X is not kept either.
    """
    undone = rectifier is None or (rectifier.slope >= SMALLEST_SLOPE and rectifier.bound == math.inf)
    if dtype == BFLOAT16:
        return undone and not has_residual and (memory.name == BALANCED or (memory.name == LEAST and rectifier is None))
    return undone and memory.name != FAST


def may_write_half(dtype: np.dtype[Any], rectifier: Rectifier | None, keeps_input: bool) -> bool:
    """True if a copy of the output saves time in this memory mode, or in "least" memory.

    keeps_input: whether the input stays for other reasons, or is kept because a residual is added.
    """
    return memory.name != LEAST or (not keeps_input and may_keep_output(dtype, rectifier, False))


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
        stays = memory.name != FAST and x._node is not None and x._node.keeps_own_output
        half = training and known and getattr(x._node, "next_reads_half", False)
        half = half and may_write_half(x.dtype, rectifier, stays or added is not None)
        if half and added is not None:
            forget_stale_magnitude(added)
        options = {"stats": stats, "eps": eps, "rectifier": rectifier, "input_stays": stays}
        token = HALVES.set(Given.HALF if half else Given.MAGNITUDE)
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
