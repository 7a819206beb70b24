"""Modules and layers."""

from alpha.nn import functional, init
from alpha.nn.activations import ELU, GELU, LeakyReLU, ReLU, Sigmoid, Softplus, Tanh
from alpha.nn.containers import ModuleList, Sequential
from alpha.nn.layers import (
    AdaptiveAvgPool2d,
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    ConvTranspose2d,
    CrossEntropyLoss,
    Dropout,
    Flatten,
    Linear,
    MaxPool2d,
    conv_batch_norm,
)
from alpha.nn.module import Buffer, Module, Parameter
from alpha.nn.state import StateDict

__all__ = [
    "ELU",
    "GELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm2d",
    "Buffer",
    "Conv2d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "Flatten",
    "LeakyReLU",
    "Linear",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "Parameter",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Softplus",
    "StateDict",
    "Tanh",
    "conv_batch_norm",
    "functional",
    "init",
]
