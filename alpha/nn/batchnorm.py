"""Layers of batch normalisation, under PyTorch's names; channels are the last axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.recompute import repeating
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Buffer, Module, Parameter
from alpha.module.parameter import move as move_to
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.init import Resets
from alpha.ops.array.creation import zeros_like
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.kernel.options import integer, real
from alpha.ops.normalization.batch_norm import check_eps

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d"]


Activation = Callable[[Tensor], Tensor]


def check_axes(layer: Module, x: Tensor, forms: tuple[str, ...]) -> None:
    """`ShapeError` if x has not as many axes as one of the shapes, such as "(N, H, W, C)"."""
    if isinstance(x, Tensor) and x.ndim not in [form.count(",") + 1 for form in forms]:
        raise ShapeError(f"{type(layer).__name__}: x {' or '.join(forms)} is needed, the channels last  (x {x.shape})")


class _BatchNorm(Resets):
    """Base of the layers of batch normalisation, for any number of axes between images and channels."""

    _uncalled = ("_apply", "_check_input_dim")
    forms: ClassVar[tuple[str, ...]]  # the shapes of x that are taken
    fewest: ClassVar[int] = 1  # channels; a lazy layer has 0 before its first forward
    running_mean: Buffer | None
    running_var: Buffer | None
    num_batches_tracked: Buffer | None
    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        bias: bool = True,
        bias_correction: bool = False,
    ) -> None:
        name = type(self).__name__
        self.num_features = integer(name, "num_features", num_features, least=self.fewest)
        check_eps(name, eps)
        self.eps, self.bias_correction = eps, bias_correction
        self.momentum = None if momentum is None else real(name, "momentum", momentum)
        self.affine, self.track_running_stats = affine, track_running_stats
        self._make(affine, affine and bias, track_running_stats)
        counts = track_running_stats and (momentum is None or bias_correction)
        self._hold("num_batches_tracked", Buffer(np.zeros((), np.int64)) if counts else None)

    def _make(self, weight: bool, bias: bool, tracks: bool) -> None:
        """Make the parameters and the running statistics, or None in their places."""
        shape = (self.num_features,)
        self.register_parameter("weight", Parameter(init.ones(shape)) if weight else None)
        self.register_parameter("bias", Parameter(init.zeros(shape)) if bias else None)
        self._hold("running_mean", Buffer(init.zeros(shape)) if tracks else None)
        self._hold("running_var", Buffer(init.ones(shape)) if tracks else None)

    @property
    def uses_batch(self) -> bool:
        """True if it normalises by the mean and variance of the batch."""
        return self.training or self.running_mean is None

    def forward(
        self,
        x: Tensor,
        statistics: ChannelStatistics | None = None,
        residual: Tensor | None = None,
        activation: Activation | None = None,
        pool: Activation | None = None,
    ) -> Tensor:
        """`statistics`, `residual`, `activation` and `pool`: see `F.batch_norm`.

        Raises:
            ShapeError: x has another number of axes than the layer is for.
        """
        check_axes(self, x, self.forms)
        mean, var = self.running_mean, self.running_var
        if self.training:
            if not self.track_running_stats:
                mean = var = None
            elif self.momentum is None or self.bias_correction:
                return self._counted(x, statistics, residual, activation, pool)
        y = F.batch_norm(
            x,
            mean,
            var,
            self.weight,
            self.bias,
            training=self.uses_batch,
            momentum=0.0 if self.momentum is None else self.momentum,
            eps=self.eps,
            statistics=statistics,
            residual=residual,
            activation=activation,
            pool=pool,
        )
        if mean is not None and self.training and self.num_batches_tracked is not None and not repeating():
            self.num_batches_tracked.add_(1)
        return y

    def _counted(
        self,
        x: Tensor,
        statistics: ChannelStatistics | None,
        residual: Tensor | None,
        activation: Activation | None,
        pool: Activation | None,
    ) -> Tensor:
        """A training batch whose share depends on how many there were."""
        running = [old for old in (self.running_mean, self.running_var) if old is not None]
        mean, var = (zeros_like(old) for old in running) if running else (None, None)
        y = F.batch_norm(
            x,
            mean,
            var,
            self.weight,
            self.bias,
            True,
            1.0,
            self.eps,
            statistics=statistics,
            residual=residual,
            activation=activation,
            pool=pool,
        )
        if mean is not None and var is not None and not repeating():
            with no_grad():
                move(running, (mean, var), self._share(self._count().add_(1).astype(mean.dtype)))
        return y

    def _count(self) -> Tensor:
        """The number of batches in the running statistics.

        A layer that was made with a momentum does not count them, so it begins with 0 if the statistics are new.

        Raises:
            ValueError: the statistics are of a number of batches that nobody knows.
        """
        if self.num_batches_tracked is None:
            mean, var = self.running_mean, self.running_var
            if mean is None or var is None or mean.numpy().any() or (var.numpy() != 1).any():
                raise ValueError(
                    f"{type(self).__name__}: momentum={self.momentum} and bias_correction={self.bias_correction} need "
                    "the number of batches in the running statistics, which the layer has not counted, because it was "
                    "made with another momentum; call reset_running_stats() first, or make it with these arguments"
                )
            count = self.num_batches_tracked = Buffer(np.zeros((), np.int64))
            move_to(count, mean.device)
            return count
        return self.num_batches_tracked

    def _share(self, count: Tensor) -> Tensor:
        """The share of the batch with that number, which begins with 1, in the running statistics   () -> ()"""
        if self.momentum is None:
            return 1 / count
        return self.momentum / (1 - (1 - self.momentum) ** count)

    def extra_repr(self) -> str:
        affine = ", affine=False" if self.weight is None else ", bias=False" if self.bias is None else ""
        tracks = "" if self.running_mean is not None else ", track_running_stats=False"
        corrects = ", bias_correction=True" if self.bias_correction else ""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}{affine}{tracks}{corrects}"


def move(running: Sequence[Tensor], new: Sequence[Tensor], share: float | Tensor) -> None:
    """running += share (new - running), written in place   (C,) each; share: a number or a 0-d tensor"""
    for old, value in zip(running, new, strict=True):
        old.add_((value - old) * share)


class BatchNorm1d(_BatchNorm):
    """Batch normalisation over channels   (N, C) or (N, L, C) -> the same; arguments as of `BatchNorm2d`"""

    forms = ("(N, C)", "(N, L, C)")


class BatchNorm2d(_BatchNorm):
    """Batch normalisation over channels   (N, H, W, C) -> the same

    Args:
        num_features: the number C of channels, the last axis.
        eps: added to the variance.
        momentum: the share of a training batch in the new running statistics; None: they are the mean over all batches.
        affine: False has no weight and no bias.
        bias: False has no bias.
        track_running_stats: False keeps no running statistics, and evaluation uses those of its batch.
        bias_correction: True divides the share of batch t by 1 - (1 - momentum)^t, so that what the running statistics
            were at first does not count, as in Dragon-Alpha.

    Attributes:
        weight, bias: (num_features,), at first 1 and 0, or None.
        running_mean, running_var: (num_features,), at first 0 and 1; None without `track_running_stats`.
        num_batches_tracked: the number of training batches (), with `momentum=None` or `bias_correction`, or None.

    Examples:
        >>> import alpha
        >>> layer = alpha.nn.BatchNorm2d(16)
        >>> layer(alpha.rand(8, 4, 4, 16)).shape, layer.running_mean.shape
        ((8, 4, 4, 16), (16,))
    """

    forms: ClassVar[tuple[str, ...]] = ("(N, H, W, C)",)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation over channels   (N, D, H, W, C) -> the same; arguments as of `BatchNorm2d`"""

    forms = ("(N, D, H, W, C)",)
