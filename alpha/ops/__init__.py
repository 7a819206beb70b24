"""Operators: one room a family, with the contract, the gradient rule, numpy and the CUDA launch side by side."""

from alpha.ops import (
    activation,
    arithmetic,
    batch,
    batchnorm,
    compare,
    conv2d,
    dropout,
    elementwise,
    layout,
    loss,
    matmul,
    methods,
    optimizer,
    pool2d,
    power,
    reduce,
)

__all__ = [
    "activation",
    "arithmetic",
    "batch",
    "batchnorm",
    "compare",
    "conv2d",
    "dropout",
    "elementwise",
    "layout",
    "loss",
    "matmul",
    "methods",
    "optimizer",
    "pool2d",
    "power",
    "reduce",
]
