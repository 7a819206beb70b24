"""Every operator as a function on tensors, under PyTorch's names; images are NHWC."""

from alpha.ops.activation import elu, gelu, leaky_relu, relu, sigmoid, softplus, tanh
from alpha.ops.arguments import check_arguments as _check_arguments
from alpha.ops.arithmetic import add, mul
from alpha.ops.batchnorm import batch_norm
from alpha.ops.conv2d import conv2d, conv_transpose2d
from alpha.ops.dropout import dropout
from alpha.ops.layout import flatten, normalize_pixels, reshape, transpose
from alpha.ops.loss import cross_entropy
from alpha.ops.matmul import linear, matmul
from alpha.ops.pool2d import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from alpha.ops.reduce import mean, sum

__all__ = [
    "adaptive_avg_pool2d",
    "add",
    "avg_pool2d",
    "batch_norm",
    "conv2d",
    "conv_transpose2d",
    "cross_entropy",
    "dropout",
    "elu",
    "flatten",
    "gelu",
    "leaky_relu",
    "linear",
    "matmul",
    "max_pool2d",
    "mean",
    "mul",
    "normalize_pixels",
    "relu",
    "reshape",
    "sigmoid",
    "softplus",
    "sum",
    "tanh",
    "transpose",
]

_ANY_DTYPE = {"flatten", "normalize_pixels", "reshape", "sum", "transpose"}

# each function checks first that its tensor arguments are floating tensors of one device
globals().update({name: _check_arguments(globals()[name], name not in _ANY_DTYPE) for name in __all__})
