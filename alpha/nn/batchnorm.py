"""Layers of batch normalisation, under PyTorch's names; channels are the last axis.

Dragon-Alpha's other normalisations follow: by running statistics only, by means of squares, and by none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.recompute import repeating
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.hooks import hooks_act, is_plain, sees_gradients
from alpha.module.module import Buffer, Module, Parameter
from alpha.module.parameter import move as move_to
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.convolution import Conv2d
from alpha.nn.init import Resets
from alpha.ops.array.creation import zeros, zeros_like
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.kernel.options import integer, real
from alpha.ops.kernel.rectifier import IDENTITY, AffineRectified, rectifier_of
from alpha.ops.normalization.batch_norm import check_eps
from alpha.ops.normalization.batch_norm_pool import takes_windows
from alpha.ops.normalization.batch_norm_primitives import BatchStatistics
from alpha.ops.normalization.conv_batch_norm import conv_batch_norm as joint
from alpha.ops.normalization.group import shape_of_axes
from alpha.ops.pooling.pool_shape import windows_of
from alpha.runtime.recording import state as listening

__all__ = [
    "Affine",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GlobalBatchNorm",
    "GlobalSqBatchNorm",
    "SqBatchNorm",
    "batch_norm_activation",
    "conv_batch_norm",
]


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
            elif self.num_batches_tracked is not None and not repeating():
                self.num_batches_tracked.add_(1)
        return F.batch_norm(
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


class Folded(Module):
    """Place of a batch normalisation that the convolution before it computes   (..., C) -> the same

    Args:
        activation: of the calls of the normalisation, which the convolution computes, too; None: there is none.
    """

    def __init__(self, activation: Activation | None = None) -> None:
        self.rectifier = rectifier_of(activation)

    def forward(
        self,
        x: Tensor,
        statistics: ChannelStatistics | None = None,
        residual: Tensor | None = None,
        activation: Activation | None = None,
    ) -> Tensor:
        """Return x. Raises RuntimeError if the call has another activation, or a residual, as no call had before."""
        if residual is not None or rectifier_of(activation) != self.rectifier or (activation and not self.rectifier):
            raise RuntimeError(
                f"Folded: called with activation={activation} and {'a' if residual is not None else 'no'} residual, "
                f"and folded for calls with {self.rectifier} and no residual; use the model without folding"
            )
        return x


def computes(layer: Module, kind: type[Module]) -> bool:
    """True if a call of the layer ends in the forward of `kind`, which takes more arguments than a user's forward."""
    return isinstance(layer, kind) and type(layer).forward is kind.forward and "forward" not in vars(layer)


def joins_pool(norm: Module, activation: Activation | None, residual: Tensor | None, pool: Activation | None) -> bool:
    """True if the kernels of a batch normalisation compute the pool that follows it and its activation."""
    if pool is None or residual is not None:
        return False
    if not (type(norm) is BatchNorm2d and computes(norm, _BatchNorm) and is_plain(norm)):
        return False
    if isinstance(activation, Module) and hooks_act(activation):
        return False
    return takes_windows(windows_of(pool)) and (activation is None or rectifier_of(activation) is not None)


def batch_norm_activation(
    norm: Module,
    x: Tensor,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    statistics: ChannelStatistics | None = None,
    pool: Activation | None = None,
) -> Tensor:
    """`pool(activation(norm(x) + residual))`; the kernels of the batch normalisation compute all of it, if they can.

    They can with ReLU, ReLU6 and leaky ReLU of a positive slope, see `F.batch_norm`. A norm of another kind, as
    GroupNorm or Identity, and a layer with hooks or with a `forward` of its own are called by themselves, so that all
    is as it would be without this function. `Sequential` does the same for a batch normalisation that such an
    activation or a pool follows.

    x, residual (..., C) -> (..., C), or what `pool` makes of it

    Args:
        activation: a layer or a function of one tensor; None: there is none.
        residual: what is added before the activation; None: nothing.
        statistics: of x, see `F.batch_norm`.
        pool: a layer or a function that is applied at last; None: there is none. `F.batch_norm` says which layers the
            kernels compute.
    """
    if pool is not None and not joins_pool(norm, activation, residual, pool):
        return pool(batch_norm_activation(norm, x, activation, residual, statistics))
    known = computes(norm, _BatchNorm) or type(norm) is Folded
    if known and is_plain(norm) and not (isinstance(activation, Module) and hooks_act(activation)):
        behind = {} if pool is None else {"pool": pool}
        return norm(x, statistics, residual, activation, **behind)  # type: ignore[no-any-return]
    y = norm(x, statistics) if known and not sees_gradients(norm) else norm(x)
    if residual is not None:
        y = y + residual
    return y if activation is None else activation(y)


def conv_batch_norm(
    conv: Module,
    norm: Module,
    x: Tensor,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    *,
    between: float | None = None,
    pool: Activation | None = None,
) -> Tensor:
    """`pool(activation(norm(conv(x)) + residual))`, in as few passes over memory as the kernels can.

    In training the kernel of the convolution computes the channel statistics, if it can. The batch normalisation then
    reads the result of the convolution one time less. The rest is as in `batch_norm_activation`: each of the layers may
    be of any kind. `Sequential` calls this for a Conv2d that a BatchNorm2d follows.

    x (N, IH, IW, in_channels) -> (N, OH, OW, out_channels), residual as the result

    Args:
        between: the slope of a rectifier between the two layers, which the convolution, a Conv2d, computes; None: there
            is none.
        pool: a layer or a function that is applied at last, see `batch_norm_activation`; the result is then what it
            makes.
    """
    if pool is not None and not joins_pool(norm, activation, residual, pool):
        return pool(conv_batch_norm(conv, norm, x, activation, residual, between=between))
    behind = () if between is None else (None, between)
    if not (isinstance(norm, _BatchNorm) and norm.uses_batch and computes(conv, Conv2d)) or sees_gradients(conv):
        return batch_norm_activation(norm, conv(x, *behind), activation, residual, pool=pool)
    y = _as_one_operator(conv, norm, x, activation, residual) if between is None and pool is None else None
    if y is not None:
        return y
    statistics = ChannelStatistics()
    return batch_norm_activation(norm, conv(x, statistics, between), activation, residual, statistics, pool)


def _as_one_operator(
    conv: Module, norm: Module, x: Tensor, activation: Activation | None, residual: Tensor | None
) -> Tensor | None:
    """The result by `ops/normalization/conv_batch_norm.py`; None if it cannot, or if a hook or a listener watches."""
    if listening.listener is not None:  # which asks for the layer of each launch
        return None
    if type(conv) is not Conv2d or type(norm) is not BatchNorm2d or not computes(norm, _BatchNorm):
        return None
    for module in (conv, norm, activation):
        if isinstance(module, Module) and (module._pre_hooks or module._forward_hooks or module._backward_hooks):
            return None
        if isinstance(module, Module) and module._backward_pre_hooks:
            return None
    if not isinstance(x, Tensor) or not (residual is None or isinstance(residual, Tensor)):
        return None
    weight, bias, running_mean, running_var = norm.weight, norm.bias, norm.running_mean, norm.running_var
    eps, momentum = norm.eps, norm.momentum
    if weight is None or bias is None or norm.num_batches_tracked is not None or norm.bias_correction:
        return None
    if type(eps) is not float or type(momentum) is not float or not (0 <= eps < math.inf and math.isfinite(momentum)):
        return None
    sizes = conv.stride, conv.padding, conv.dilation
    rectifier = rectifier_of(activation)
    if conv.padding_mode != "zeros" or conv.negative_slope != 1 or list in map(type, sizes):
        return None
    if activation is not None and rectifier is None:
        return None
    there = running_mean is not None and running_var is not None and norm.track_running_stats
    running: Any = (running_mean, running_var) if there else None
    stats = BatchStatistics.of_batch(running, momentum)
    operands = x, conv.weight, conv.bias
    return joint(operands, sizes, conv.groups, (weight, bias), stats, eps, residual, rectifier)


class Affine(Module):
    """Y = weight X + bias, elementwise over the last axes   (..., *normalized_shape) -> the same

    Args:
        normalized_shape: the lengths of the last axes; an integer is the length of the last one.
        bias: False has no bias.

    Attributes:
        weight, bias: (*normalized_shape), at first 1 and 0; the bias may be None.
    """

    bias: Parameter | None

    def __init__(self, normalized_shape: int | Sequence[int], bias: bool = True) -> None:
        self.normalized_shape = shape_of_axes("Affine", normalized_shape)
        self.weight = Parameter(init.ones(self.normalized_shape))
        self.register_parameter("bias", Parameter(init.zeros(self.normalized_shape)) if bias else None)

    def forward(self, x: Tensor, activation: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """`activation`: is applied to the result; with a bias the kernel computes ReLU, ReLU6 and leaky ReLU itself."""
        shape = self.normalized_shape
        if isinstance(x, Tensor) and x.shape[-len(shape) :] != shape:
            raise ShapeError(f"Affine: x {x.shape} must end in {shape}")
        if self.bias is None:
            y = F.mul(x, self.weight)
            return y if activation is None else activation(y)
        rectifier = rectifier_of(activation)
        y = AffineRectified.apply(x, self.weight, self.bias, rectifier=rectifier or IDENTITY)
        return y if activation is None or rectifier is not None else activation(y)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, bias={self.bias is not None}"


class _Statistics(Module):
    """Weight, bias and running statistics of channels."""

    names: ClassVar[tuple[str, str]]  # of the running statistics
    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        name = type(self).__name__
        self.num_features = integer(name, "num_features", num_features, least=1)
        check_eps(name, eps)
        self.eps, self.affine = eps, affine
        shape = (self.num_features,)
        self.register_parameter("weight", Parameter(init.ones(shape)) if affine else None)
        self.register_parameter("bias", Parameter(init.zeros(shape)) if affine else None)
        for statistic, values in zip(self.names, (init.zeros(shape), init.ones(shape)), strict=True):
            setattr(self, statistic, Buffer(values))

    @property
    def running(self) -> tuple[Tensor, Tensor]:
        first, second = (getattr(self, name) for name in self.names)
        return first, second

    def by_running_statistics(self, x: Tensor) -> Tensor:
        """Y = weight (X - mean) / sqrt(var + eps) + bias by the running statistics   x (..., C) -> the same"""
        mean, var = self.running
        if "sqmean" in self.names[1]:
            with no_grad():
                var = (var - mean * mean).clamp(min=0)
        return F.batch_norm(x, mean, var, self.weight, self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}" + ("" if self.weight is not None else ", affine=False")


class GlobalBatchNorm(_Statistics):
    """Batch normalisation by the running statistics, in training, too   (..., C) -> the same

    The running statistics stay what they are: 0 and 1, or what `load_state_dict` takes from a `BatchNorm2d`. Weight and
    bias are trained.

    Args:
        num_features: the number C of channels, the last axis.
        eps: added to the variance.
        affine: False has no weight and no bias.

    Attributes:
        weight, bias: (num_features,), at first 1 and 0, or None.
        running_mean, running_var: (num_features,), at first 0 and 1.
    """

    names = ("running_mean", "running_var")

    def forward(self, x: Tensor) -> Tensor:
        return self.by_running_statistics(x)


class GlobalSqBatchNorm(_Statistics):
    """`GlobalBatchNorm` with the statistics of an `SqBatchNorm`   (..., C) -> the same

    Attributes:
        running_mean, running_sqmean: (num_features,), at first 0 and 1.
    """

    names = ("running_mean", "running_sqmean")

    def forward(self, x: Tensor) -> Tensor:
        return self.by_running_statistics(x)


class SqBatchNorm(_Statistics):
    """Batch normalisation whose running statistics are means of X and of X^2   (..., C) -> the same

    In training it is `BatchNorm2d`. In evaluation the variance is mean(X^2) - mean(X)^2, which counts how far the means
    of the batches lie apart, too.

    Args:
        num_features: the number C of channels, the last axis.
        eps: added to the variance.
        momentum: the share of a training batch in the new running statistics.
        affine: False has no weight and no bias.

    Attributes:
        weight, bias: (num_features,), at first 1 and 0, or None.
        running_mean, running_sqmean: (num_features,), at first 0 and 1.
    """

    names = ("running_mean", "running_sqmean")

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__(num_features, eps, affine)
        self.momentum = real("SqBatchNorm", "momentum", momentum)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self.by_running_statistics(x)
        running = self.running
        mean, var = (zeros(old.shape, dtype=old.dtype, device=old.device) for old in running)
        y = F.batch_norm(x, mean, var, self.weight, self.bias, training=True, momentum=1.0, eps=self.eps)
        if not repeating():
            with no_grad():
                rows = x.size // x.shape[-1]
                square = var * ((rows - 1) / rows) + mean * mean  # var is the unbiased one
                move(running, (mean, square), self.momentum)
        return y

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, momentum={self.momentum}"
