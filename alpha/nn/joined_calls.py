"""Calls of a batch normalisation with its neighbours, which the kernels compute together if they can."""

from __future__ import annotations

import math
from typing import Any

from alpha.autograd.tracing import state as tracing
from alpha.core.tensor import Tensor
from alpha.module.hooks import hooks_act, is_plain, sees_gradients
from alpha.module.module import Module
from alpha.nn.batchnorm import Activation, BatchNorm2d, _BatchNorm
from alpha.nn.convolution import Conv2d
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.kernel.rectifier import rectifier_of
from alpha.ops.normalization.batch_norm_pool import takes_windows
from alpha.ops.normalization.batch_norm_primitives import BatchStatistics
from alpha.ops.normalization.conv_batch_norm import conv_batch_norm as joint
from alpha.ops.pooling.pool_shape import windows_of
from alpha.runtime.recording import state as listening

__all__ = ["batch_norm_activation", "conv_batch_norm"]


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
    """The result by `ops/normalization/conv_batch_norm.py`; None if it cannot, or if anyone watches."""
    if listening.listener is not None or tracing.tracer is not None:  # who ask for each launch, and each operator
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
