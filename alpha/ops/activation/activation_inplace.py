"""Activations that write their result into x, under PyTorch's names of their own for `inplace=True`."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.ops.activation import parametric, piecewise, relu_family, smooth
from alpha.ops.kernel.arguments import check_arguments

__all__ = ["celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "rrelu_", "selu_", "threshold_"]


@check_arguments
def relu_(x: Tensor) -> Tensor:
    """`relu`, written into x   x (...) -> x"""
    return relu_family.relu(x, True)


@check_arguments
def leaky_relu_(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu`, written into x   x (...) -> x"""
    return relu_family.leaky_relu(x, negative_slope, True)


@check_arguments
def elu_(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu`, written into x   x (...) -> x"""
    return relu_family.elu(x, alpha, True)


@check_arguments
def selu_(x: Tensor) -> Tensor:
    """`selu`, written into x   x (...) -> x"""
    return smooth.selu(x, True)


@check_arguments
def celu_(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu`, written into x   x (...) -> x"""
    return smooth.celu(x, alpha, True)


@check_arguments
def hardtanh_(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh`, written into x   x (...) -> x"""
    return piecewise.hardtanh(x, min_val, max_val, True)


@check_arguments
def threshold_(x: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold`, written into x   x (...) -> x"""
    return piecewise.threshold(x, threshold, value, True)


@check_arguments
def rrelu_(x: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """`rrelu`, written into x   x (...) -> x"""
    return parametric.rrelu(x, lower, upper, training, True)
