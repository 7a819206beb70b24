"""Alpha: a training framework whose convolutions skip zeros."""

import importlib
import sys
from math import e, inf, nan, pi
from typing import TYPE_CHECKING

from alpha import amp, backends, cuda, linalg, models, nn, ops, optim
from alpha import config as _config
from alpha.amp import *
from alpha.autograd.checkpointing import checkpoint, checkpoint_sequential
from alpha.autograd.function import Function
from alpha.autograd.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from alpha.autograd.gradients import grad
from alpha.autograd.memory_mode import get_memory_mode, memory_mode, set_memory_mode
from alpha.core.device_memory import *
from alpha.core.dtypes import bfloat16 as bfloat16
from alpha.core.dtypes import bool as bool
from alpha.core.dtypes import double as double
from alpha.core.dtypes import finfo, iinfo
from alpha.core.dtypes import float as float
from alpha.core.dtypes import float32 as float32
from alpha.core.dtypes import float64 as float64
from alpha.core.dtypes import int as int
from alpha.core.dtypes import int32 as int32
from alpha.core.dtypes import int64 as int64
from alpha.core.dtypes import long as long
from alpha.core.dtypes import uint8 as uint8
from alpha.core.generators import Generator
from alpha.core.names.exports import exported as _exported
from alpha.core.names.missing_names import MissingName as _MissingName
from alpha.core.names.no_effect import *
from alpha.core.numerics import get_precision, precision, set_precision
from alpha.core.rng import get_rng_state, manual_seed, set_rng_state
from alpha.core.tensor import Tensor, tensor
from alpha.cuda import accelerator
from alpha.errors import *
from alpha.nn.einops import einops_backend as einops_backend  # importing it is what einops needs
from alpha.ops.activation.relu_family import relu
from alpha.ops.activation.smooth import sigmoid, tanh
from alpha.ops.activation.softmax import log_softmax, logsumexp, softmax
from alpha.ops.api.in_torch import *
from alpha.ops.api.inplace_functions import *
from alpha.ops.api.names import *
from alpha.ops.api.operators import *
from alpha.ops.api.other_names import *
from alpha.ops.api.typed_tensors import *
from alpha.ops.array.axes import *
from alpha.ops.array.conversion import is_floating_point, is_tensor, numel
from alpha.ops.array.creation import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from alpha.ops.array.diagonals import *
from alpha.ops.array.foreign import from_dlpack
from alpha.ops.array.grids import block_diag, broadcast_tensors, cartesian_prod, meshgrid
from alpha.ops.array.joining import *
from alpha.ops.array.layout import flatten, reshape
from alpha.ops.array.random_tensors import rand, rand_like, randint, randint_like, randn, randn_like
from alpha.ops.array.shapes import *
from alpha.ops.array.stacks import *
from alpha.ops.array.stacks import atleast_1d, atleast_2d, atleast_3d
from alpha.ops.array.triangles import *
from alpha.ops.array.triangles import tril_indices, triu_indices
from alpha.ops.indexing.gather_scatter import *
from alpha.ops.indexing.index_functions import *
from alpha.ops.indexing.index_functions import combinations
from alpha.ops.indexing.where import *
from alpha.ops.indexing.written_parts import *
from alpha.ops.kernel.sums import *
from alpha.ops.math.binary import add, mul
from alpha.ops.math.bitwise import *
from alpha.ops.math.clamp import *
from alpha.ops.math.comparison import *
from alpha.ops.math.comparison import allclose, isnan
from alpha.ops.math.division import *
from alpha.ops.math.integers import *
from alpha.ops.math.lerp import *
from alpha.ops.math.maximum_minimum import *
from alpha.ops.math.nan_to_num import *
from alpha.ops.math.signs import *
from alpha.ops.math.special import *
from alpha.ops.math.unary import *
from alpha.ops.math.unary import exp, log, sqrt
from alpha.ops.matmul.covariance import *
from alpha.ops.matmul.distances import cdist as cdist
from alpha.ops.matmul.distances import pdist as pdist
from alpha.ops.matmul.einsum import einsum
from alpha.ops.matmul.matmul import bmm, matmul
from alpha.ops.matmul.matrix_powers import *
from alpha.ops.matmul.products import *
from alpha.ops.noise.distributions import normal
from alpha.ops.noise.random import *
from alpha.ops.noise.random import randperm
from alpha.ops.reduction.counting import *
from alpha.ops.reduction.extremes import *
from alpha.ops.reduction.extremes import equal
from alpha.ops.reduction.integrals import *
from alpha.ops.reduction.norm import *
from alpha.ops.reduction.prod import *
from alpha.ops.reduction.quantiles import *
from alpha.ops.reduction.running_extremes import *
from alpha.ops.reduction.scan import *
from alpha.ops.reduction.scatter_reduce import *
from alpha.ops.reduction.sort import *
from alpha.ops.reduction.spread_rows import *
from alpha.ops.reduction.sums_without_nan import *
from alpha.ops.reduction.variance import *
from alpha.runtime import Device, MemoryStats, get_device
from alpha.runtime.registry import device
from alpha.step import capture, compile_kernels, dry_run, memory_plan, profile

# what `import alpha` does not load, but `alpha.data` does, when it is first named; functions with their room
_FILES = "io.serialization"
_LATER = {
    **dict.fromkeys(["data", "distributed", "onnx", "port", "serve", "train", "transforms", "utils"], ""),
    **{"load": _FILES, "save": _FILES, "DataParallel": "distributed", "compare": "port"},
}

__version__ = _config.VERSION

__all__ = [
    "DataParallel",
    "Device",
    "Function",
    "Generator",
    "MemoryStats",
    "Tensor",
    "accelerator",
    "add",
    "allclose",
    "amp",
    "arange",
    "as_tensor",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "backends",
    "bfloat16",
    "block_diag",
    "bmm",
    "broadcast_tensors",
    "capture",
    "cartesian_prod",
    "checkpoint",
    "checkpoint_sequential",
    "combinations",
    "compare",
    "compile_kernels",
    "cuda",
    "device",
    "distributed",
    "double",
    "dry_run",
    "e",
    "einsum",
    "empty",
    "empty_like",
    "enable_grad",
    "equal",
    "exp",
    "eye",
    "finfo",
    "flatten",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "full",
    "full_like",
    "get_device",
    "get_memory_mode",
    "get_precision",
    "get_rng_state",
    "grad",
    "iinfo",
    "inf",
    "inference_mode",
    "int32",
    "int64",
    "is_floating_point",
    "is_grad_enabled",
    "is_tensor",
    "isnan",
    "linalg",
    "linspace",
    "log",
    "log_softmax",
    "logsumexp",
    "long",
    "manual_seed",
    "matmul",
    "memory_mode",
    "memory_plan",
    "meshgrid",
    "models",
    "mul",
    "nan",
    "nn",
    "no_grad",
    "normal",
    "numel",
    "ones",
    "ones_like",
    "onnx",
    "ops",
    "optim",
    "pi",
    "precision",
    "profile",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "relu",
    "reshape",
    "set_grad_enabled",
    "set_memory_mode",
    "set_precision",
    "set_rng_state",
    "sigmoid",
    "softmax",
    "sqrt",
    "tanh",
    "tensor",
    "tril_indices",
    "triu_indices",
    "uint8",
    "zeros",
    "zeros_like",
]
__all__ += [
    name for name in _exported(globals(), without=("TYPE_CHECKING", "bool", "float", "int")) if name not in __all__
]

if TYPE_CHECKING:
    from alpha import data as data
    from alpha import distributed as distributed
    from alpha import onnx as onnx
    from alpha import port as port
    from alpha import serve as serve
    from alpha import train as train
    from alpha import transforms as transforms
    from alpha import utils as utils
    from alpha.distributed import DataParallel as DataParallel
    from alpha.port import compare as compare
    from alpha.io.serialization import load as load, save as save  # isort: skip
else:

    def __getattr__(name):
        if name in _LATER:
            found = importlib.import_module(f"alpha.{_LATER[name] or name}")
            return getattr(found, name) if _LATER[name] else found
        raise _MissingName("alpha", name, sys.modules[__name__])

    def __dir__():
        return sorted({*__all__, *_LATER, "autograd", "bool", "errors", "float", "int", "__version__"})
