"""Alpha: a training framework whose convolutions skip zeros."""

import importlib
import sys
from math import e, inf, nan, pi
from typing import TYPE_CHECKING

from alpha import (
    accelerator,
    amp,
    backends,
    cuda,
    errors,
    in_torch,
    linalg,
    memory,
    models,
    nn,
    no_effect,
    ops,
    optim,
    typed_tensors,
)
from alpha import einops_backend as einops_backend  # importing it is what einops needs
from alpha.amp import *
from alpha.autograd import Function
from alpha.checkpointing import checkpoint, checkpoint_sequential
from alpha.dtypes import bfloat16 as bfloat16
from alpha.dtypes import bool as bool
from alpha.dtypes import double as double
from alpha.dtypes import finfo, iinfo
from alpha.dtypes import float as float
from alpha.dtypes import float32 as float32
from alpha.dtypes import float64 as float64
from alpha.dtypes import int as int
from alpha.dtypes import int32 as int32
from alpha.dtypes import int64 as int64
from alpha.dtypes import long as long
from alpha.dtypes import uint8 as uint8
from alpha.errors import *
from alpha.generators import Generator
from alpha.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from alpha.gradients import grad
from alpha.in_torch import *
from alpha.memory import *
from alpha.missing_names import MissingName as _MissingName
from alpha.no_effect import *
from alpha.numerics import get_precision, precision, set_precision
from alpha.ops.activation import relu
from alpha.ops.activation_smooth import sigmoid, tanh
from alpha.ops.arithmetic import add, mul
from alpha.ops.axes import *
from alpha.ops.bitwise import *
from alpha.ops.blend import *
from alpha.ops.bounds import *
from alpha.ops.checks import *
from alpha.ops.checks import equal
from alpha.ops.choices import *
from alpha.ops.compare import allclose, isnan
from alpha.ops.conversion import is_floating_point, is_tensor, numel
from alpha.ops.counting import *
from alpha.ops.creation import (
    as_tensor,
    empty,
    empty_like,
    from_numpy,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from alpha.ops.diagonals import *
from alpha.ops.distances import *
from alpha.ops.division import *
from alpha.ops.einsum import einsum
from alpha.ops.exponential import exp, log
from alpha.ops.extremes import *
from alpha.ops.gathering import *
from alpha.ops.index_writing import *
from alpha.ops.integrals import *
from alpha.ops.joining import *
from alpha.ops.layout import flatten, reshape
from alpha.ops.logarithms import *
from alpha.ops.matmul import bmm, matmul
from alpha.ops.matrices import *
from alpha.ops.moments import *
from alpha.ops.operators import *
from alpha.ops.other_names import *
from alpha.ops.part_copies import *
from alpha.ops.power import sqrt
from alpha.ops.products import *
from alpha.ops.quantiles import *
from alpha.ops.random_draws import *
from alpha.ops.random_draws import normal
from alpha.ops.ranges import arange, eye, linspace, rand, rand_like, randint, randint_like, randn, randn_like, randperm
from alpha.ops.reduce import *
from alpha.ops.rounding import *
from alpha.ops.running import *
from alpha.ops.running_extremes import *
from alpha.ops.scattering import *
from alpha.ops.searching import *
from alpha.ops.selection import *
from alpha.ops.several import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_tensors,
    cartesian_prod,
    combinations,
    meshgrid,
    tril_indices,
    triu_indices,
)
from alpha.ops.shapes import *
from alpha.ops.softmax import log_softmax, logsumexp, softmax
from alpha.ops.sorting import *
from alpha.ops.special import *
from alpha.ops.stacking import *
from alpha.ops.statistics import *
from alpha.ops.triangles import *
from alpha.ops.trigonometric import *
from alpha.ops.uniques import *
from alpha.rng import get_rng_state, manual_seed, set_rng_state
from alpha.runtime import Device, MemoryStats, get_device
from alpha.runtime.device import device
from alpha.step import capture, compile_kernels, dry_run
from alpha.tensor import Tensor, tensor
from alpha.typed_tensors import *

# all of whose names are names of `alpha`
_ROOMS = (
    amp,
    errors,
    in_torch,
    memory,
    no_effect,
    ops.axes,
    ops.bitwise,
    ops.blend,
    ops.bounds,
    ops.checks,
    ops.choices,
    ops.counting,
    ops.diagonals,
    ops.distances,
    ops.division,
    ops.extremes,
    ops.gathering,
    ops.index_writing,
    ops.integrals,
    ops.joining,
    ops.logarithms,
    ops.matrices,
    ops.moments,
    ops.operators,
    ops.other_names,
    ops.part_copies,
    ops.products,
    ops.quantiles,
    ops.random_draws,
    ops.reduce,
    ops.rounding,
    ops.running,
    ops.running_extremes,
    ops.scattering,
    ops.searching,
    ops.selection,
    ops.shapes,
    ops.sorting,
    ops.special,
    ops.stacking,
    ops.statistics,
    ops.triangles,
    ops.trigonometric,
    ops.uniques,
    typed_tensors,
)

# what `import alpha` does not load, but `alpha.data` does, when it is first named; functions with their room
_LATER = {"data": "", "train": "", "transforms": "", "utils": "", "load": "serialization", "save": "serialization"}

__version__ = "0.1.0"

__all__ = [
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
    "compile_kernels",
    "cuda",
    "device",
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
    "from_numpy",
    "full",
    "full_like",
    "get_device",
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
    "ops",
    "optim",
    "pi",
    "precision",
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
    *(name for room in _ROOMS for name in room.__all__),
]

if TYPE_CHECKING:
    from alpha import data as data
    from alpha import train as train
    from alpha import transforms as transforms
    from alpha import utils as utils
    from alpha.serialization import load as load, save as save  # isort: skip
else:

    def __getattr__(name):
        if name in _LATER:
            found = importlib.import_module(f"alpha.{_LATER[name] or name}")
            return getattr(found, name) if _LATER[name] else found
        raise _MissingName("alpha", name, sys.modules[__name__])

    def __dir__():
        return sorted({*globals(), *_LATER})
