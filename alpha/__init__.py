"""Alpha: a training framework whose convolutions skip zeros."""

from alpha import models, nn, ops, optim, transforms
from alpha.autograd import Function
from alpha.checkpointing import checkpoint, checkpoint_sequential
from alpha.errors import (
    AlphaError,
    CaptureError,
    CaptureWarning,
    CheckpointError,
    CompileError,
    ConfigError,
    DataError,
    DeviceError,
    DryRunError,
    DryRunWarning,
    GradientError,
    OutOfMemoryError,
    ShapeError,
    TrainingError,
)
from alpha.grad_mode import enable_grad, is_grad_enabled, no_grad
from alpha.gradients import grad
from alpha.numerics import get_precision, precision, set_precision
from alpha.ops.activation import relu
from alpha.ops.activation_smooth import sigmoid, tanh
from alpha.ops.arithmetic import add, mul
from alpha.ops.axes import *
from alpha.ops.bitwise import *
from alpha.ops.compare import allclose, isnan
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
from alpha.ops.joining import *
from alpha.ops.layout import flatten, reshape
from alpha.ops.logarithms import *
from alpha.ops.matmul import bmm, matmul
from alpha.ops.moments import *
from alpha.ops.power import sqrt
from alpha.ops.products import *
from alpha.ops.random_draws import *
from alpha.ops.random_draws import normal
from alpha.ops.ranges import arange, eye, linspace, rand, rand_like, randint, randint_like, randn, randn_like, randperm
from alpha.ops.reduce import *
from alpha.ops.rounding import *
from alpha.ops.running import *
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
from alpha.ops.stacking import *
from alpha.ops.triangles import *
from alpha.ops.trigonometric import *
from alpha.ops.uniques import *
from alpha.rng import get_rng_state, manual_seed, set_rng_state
from alpha.runtime import Device, MemoryStats, get_device
from alpha.step import capture, compile_kernels, dry_run
from alpha.tensor import Tensor, tensor

# whose functions PyTorch has in `torch` itself
_ROOMS = (
    ops.axes,
    ops.bitwise,
    ops.counting,
    ops.diagonals,
    ops.distances,
    ops.division,
    ops.extremes,
    ops.gathering,
    ops.index_writing,
    ops.joining,
    ops.logarithms,
    ops.moments,
    ops.products,
    ops.random_draws,
    ops.reduce,
    ops.rounding,
    ops.running,
    ops.scattering,
    ops.searching,
    ops.selection,
    ops.shapes,
    ops.sorting,
    ops.stacking,
    ops.triangles,
    ops.trigonometric,
    ops.uniques,
)

__version__ = "0.1.0"

__all__ = [
    "AlphaError",
    "CaptureError",
    "CaptureWarning",
    "CheckpointError",
    "CompileError",
    "ConfigError",
    "DataError",
    "Device",
    "DeviceError",
    "DryRunError",
    "DryRunWarning",
    "Function",
    "GradientError",
    "MemoryStats",
    "OutOfMemoryError",
    "ShapeError",
    "Tensor",
    "TrainingError",
    "add",
    "allclose",
    "arange",
    "as_tensor",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block_diag",
    "bmm",
    "broadcast_tensors",
    "capture",
    "cartesian_prod",
    "checkpoint",
    "checkpoint_sequential",
    "combinations",
    "compile_kernels",
    "dry_run",
    "einsum",
    "empty",
    "empty_like",
    "enable_grad",
    "exp",
    "eye",
    "flatten",
    "from_numpy",
    "full",
    "full_like",
    "get_device",
    "get_precision",
    "get_rng_state",
    "grad",
    "is_grad_enabled",
    "isnan",
    "linspace",
    "log",
    "log_softmax",
    "logsumexp",
    "manual_seed",
    "matmul",
    "memory_stats",
    "meshgrid",
    "models",
    "mul",
    "nn",
    "no_grad",
    "normal",
    "ones",
    "ones_like",
    "ops",
    "optim",
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
    "set_memory_limit",
    "set_precision",
    "set_rng_state",
    "sigmoid",
    "softmax",
    "sqrt",
    "synchronize",
    "tanh",
    "tensor",
    "transforms",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
    *(name for room in _ROOMS for name in room.__all__),
]


def memory_stats(device: str | Device = "auto") -> MemoryStats:
    """Bytes live, peak and reserved on a device, and its limit."""
    return get_device(device).memory_stats()


def set_memory_limit(nbytes: int | None, device: str | Device = "auto") -> None:
    """Never hold more than `nbytes` of the device's memory; None lifts the limit."""
    get_device(device).set_memory_limit(nbytes)


def synchronize(device: str | Device = "auto") -> None:
    """Wait until all work given to the device is done; raises what went wrong in it."""
    get_device(device).synchronize()
