"""Operators by family: a file has the contract, the gradient rule, numpy and the CUDA launch side by side.

The folders, each of which stands on those before it: kernel, array, indexing, math, reduction, activation, gemm,
conv2d, convolution, matmul, noise, pooling, image, normalization, sequence, loss, api.
"""

from alpha.ops.api import install as install
