"""A batch normalisation as part of the layer before it, for evaluation, under PyTorch's names."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from alpha.autograd.grad_mode import no_grad
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module, Parameter
from alpha.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from alpha.nn.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

Norm = BatchNorm1d | BatchNorm2d | BatchNorm3d
M = TypeVar("M", bound=Module)


def fuse_conv_bn_eval(conv: M, bn: Norm, transpose: bool = False) -> M:
    """A copy of a convolution that computes `bn(conv(x))` in evaluation

    Args:
        conv: any convolution of Alpha, without an activation of its own.
        bn: the batch normalisation of its result, with running statistics.
        transpose: says that the convolution is a transposed one, which its class says too.

    Raises:
        ValueError: one of them is in training, the norm has no running statistics, or the convolution an activation.
        ShapeError: the norm has another number of channels.
    """
    layer: Any = conv
    if getattr(layer, "negative_slope", 1) != 1:
        raise ValueError(
            f"fuse_conv_bn_eval: the activation of conv, negative_slope={layer.negative_slope}, is before bn"
        )
    scale, shift = _line("fuse_conv_bn_eval", conv, bn, layer.out_channels)
    with no_grad():
        if transpose or isinstance(conv, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)):
            groups, (inputs, *taps, outputs) = layer.groups, layer.weight.shape
            parts = layer.weight.reshape(groups, inputs // groups, *taps, outputs)
            weight = parts * scale.reshape(groups, 1, *[1] * len(taps), outputs)
        else:
            weight = layer.weight * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
    return _with(conv, weight.reshape(*layer.weight.shape), scale, shift)


def fuse_linear_bn_eval(linear: M, bn: Norm) -> M:
    """A copy of a linear layer that computes `bn(linear(x))` in evaluation; errors as of `fuse_conv_bn_eval`."""
    layer: Any = linear
    scale, shift = _line("fuse_linear_bn_eval", linear, bn, layer.out_features)
    with no_grad():
        weight = layer.weight * scale.reshape(-1, 1)
    return _with(linear, weight, scale, shift)


def _line(operator: str, layer: Module, bn: Norm, channels: int) -> tuple[Tensor, Tensor]:
    """Scale and shift of a norm: its result is the input times scale plus shift   -> (channels,), (channels,)"""
    if layer.training or bn.training:
        raise ValueError(f"{operator}: both layers must be in evaluation; call .eval() of them first")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError(f"{operator}: bn has no running statistics, so it normalises by each batch")
    if bn.num_features != channels:
        raise ShapeError(f"{operator}: bn has {bn.num_features} channels, and the layer before it {channels}")
    with no_grad():
        scale = (bn.running_var + bn.eps) ** -0.5
        scale = scale if bn.weight is None else scale * bn.weight
        shift = -bn.running_mean * scale
        return scale, shift if bn.bias is None else shift + bn.bias


def _with(layer: M, weight: Tensor, scale: Tensor, shift: Tensor) -> M:
    """A copy of a layer with that weight, and with its bias scaled and shifted."""
    made: Any = copy.deepcopy(layer)
    own = made.bias
    with no_grad():
        bias = shift if own is None else own * scale + shift
    for name, value in (("weight", weight), ("bias", bias)):
        parameter = Parameter(value.numpy(), made.weight.requires_grad)
        parameter.array = value.array
        setattr(made, name, parameter)
    fused: M = made
    return fused
