"""Operators: one room a family, with the contract, the gradient rule, numpy and the CUDA launch side by side."""

from alpha.ops import (
    activation,
    arithmetic,
    batchnorm,
    conv2d,
    dropout,
    elementwise,
    layout,
    loss,
    matmul,
    optimizer,
    pool2d,
    reduce,
)

__all__ = [
    "activation",
    "arithmetic",
    "batchnorm",
    "conv2d",
    "dropout",
    "elementwise",
    "layout",
    "loss",
    "matmul",
    "optimizer",
    "pool2d",
    "reduce",
]
