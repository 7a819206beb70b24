"""Batch normalisation by the statistics of the whole batch, of which each rank has a part."""

from __future__ import annotations

from typing import Any

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import no_grad
from alpha.autograd.recompute import repeating
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.distributed.engines.exchange import Engine
from alpha.distributed.process_group import current
from alpha.errors import DistributedError, ShapeError
from alpha.module.module import Module
from alpha.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, check_axes, move
from alpha.nn.lazy import LazyModuleMixin
from alpha.ops.array.creation import full, ones, zeros
from alpha.ops.array.joining import cat
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.normalization.batch_norm_primitives import batch_norm_apply, batch_norm_gradients, channel_statistics
from alpha.runtime.ranks import world_size


def gathered(engine: Engine, values: Tensor) -> Tensor:
    """The values (K,) of all ranks, (world_size, K)."""
    target = values.device.empty((world_size(), values.size), values.dtype)
    engine.all_gather(target, values.array)
    return Tensor(target)


class _SyncBatchNorm(Function):
    """Y = weight (X - mean) / sqrt(var + eps) + bias, with mean and var of the rows of all ranks

    X (..., C), weight, bias (C,) -> Y (..., C); `found` gets mean, var (C,) and the number of rows.
    """

    def forward(self, X: Array, weight: Array, bias: Array, *, engine: Engine, eps: float, found: list[Any]) -> Array:
        rows, C = X.size // X.shape[-1], X.shape[-1]
        own_mean, own_var = map(Tensor, channel_statistics(X, None, None, 0.0))
        count = full((1,), rows, dtype=own_mean.dtype, device=own_mean.device)
        parts = gathered(engine, cat([count, own_mean, own_var]))
        counts, means, variances = parts[:, :1], parts[:, 1 : 1 + C], parts[:, 1 + C :]
        total = counts.sum()
        shares = counts / total
        mean = (shares * means).sum(0)
        var = (shares * (variances + (means - mean) * (means - mean))).sum(0)
        self.mean, self.var, self.eps, self.engine, self.total = mean, var, eps, engine, total
        self.save(X, weight)
        found += [mean, var, total]
        return batch_norm_apply(X, mean.array, var.array, weight, bias, eps)

    def backward(self, dY: Array) -> Any:
        X, weight = self.saved
        mean, var = self.mean, self.var
        # as if mean and var were constants; then their share, which the sums over all ranks tell
        dX, dweight, dbias, _ = batch_norm_gradients(dY, X, mean.array, var.array, weight, self.eps, False)
        sums = gathered(self.engine, cat([Tensor(dweight), Tensor(dbias)])).sum(0) / self.total
        C = mean.size
        scale = Tensor(weight) * -(var + self.eps).rsqrt()
        slope, shift = scale * sums[:C], scale * sums[C:]
        dX = batch_norm_apply(X, mean.array, var.array, slope.array, shift.array, self.eps, dX)
        return dX, dweight, dbias


@check_arguments
def sync_batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, channels: int, engine: Engine, eps: float, found: list[Any]
) -> Tensor:
    """See `_SyncBatchNorm`. What cannot be is an error before the other ranks wait.

    Raises:
        ShapeError: x has another number of channels, or no rows.
        TypeError: x is no tensor of floating numbers.
    """
    if x.shape[-1] != channels or not x.size:
        raise ShapeError(f"SyncBatchNorm: x {x.shape} must have {channels} channels and at least one row")
    dtype = FLOAT32 if x.dtype == BFLOAT16 else x.dtype
    weight = ones(channels, dtype=dtype, device=x.device) if weight is None else weight
    bias = zeros(channels, dtype=dtype, device=x.device) if bias is None else bias
    return _SyncBatchNorm.apply(x, weight, bias, engine=engine, eps=eps, found=found)


class SyncBatchNorm(BatchNorm2d):
    """Batch normalisation whose batch is that of all ranks   (N, .., C) -> the same; arguments as of `BatchNorm2d`

    Ranks may have batches of different sizes. In evaluation, and in a group of one, it is a `BatchNorm2d` for any
    number of axes. Forward and backward each wait for the other ranks once, with 2 C + 1 and 2 C numbers.
    """

    forms = ("(N, C)", "(N, L, C)", "(N, H, W, C)", "(N, D, H, W, C)")

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Normalise a batch.

        Raises:
            ShapeError: x has another number of axes or channels, or no rows.
        """
        group = current()
        if group is None or group.engine is None or not self.training:
            return super().forward(x)
        check_axes(self, x, self.forms)
        found: list[Tensor] = []
        y = sync_batch_norm(x, self.weight, self.bias, self.num_features, group.engine, self.eps, found)
        there = self.running_mean is not None and self.running_var is not None
        if there and self.track_running_stats and not repeating():
            self._move(*found)
        return y

    def _move(self, mean: Tensor, var: Tensor, total: Tensor) -> None:
        """Let the running statistics follow those of a batch."""
        assert self.running_mean is not None
        assert self.running_var is not None
        with no_grad():
            share: Any = self.momentum
            if self.momentum is None or self.bias_correction:
                share = self._share(self._count().add_(1).astype(mean.dtype))
            elif self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
            move((self.running_mean, self.running_var), (mean, var * (total / (total - 1))), share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module) -> Module:
        """See `alpha.distributed.convert_sync_batchnorm`."""
        return convert_sync_batchnorm(module)


def convert_sync_batchnorm(module: Module) -> Module:
    """The model with a `SyncBatchNorm` in the place of each BatchNorm1d, 2d and 3d; they share parameters and buffers.

    A module that is itself one is returned anew; others are changed in place and returned.

    Raises:
        DistributedError: a lazy layer does not know its channels yet.
    """
    return _converted(module, {})


def _converted(module: Module, known: dict[Module, Module]) -> Module:
    """The module, converted; `known` are those that were converted, since a layer may be in several places."""
    if module in known:
        return known[module]
    if isinstance(module, LazyModuleMixin) and isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
        raise DistributedError(
            f"convert_sync_batchnorm: {type(module).__name__} does not know its channels yet; call the model once on a "
            "batch before"
        )
    known[module] = module
    if type(module) in (BatchNorm1d, BatchNorm2d, BatchNorm3d):
        made = known[module] = SyncBatchNorm.__new__(SyncBatchNorm)
        vars(made).update(vars(module))
        return made
    for name, child in list(module._named_parts()):
        new = _converted(child, known)
        if new is not child:
            setattr(module, name, new)
    return module
