"""Dropout of groups of elements: of whole channels and images, and alpha dropout, which keeps mean and variance."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.function import Function
from alpha.core import rng
from alpha.core.primitive import Array, primitive
from alpha.core.rng import STREAM, Stream, stream_numbers
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.casts import (
    BLOCK,
    CUDA_TYPES,
    NUMBER_TYPES,
    DType,
    as_dtype,
    as_float32,
    stream_grid,
    vector_width,
)
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.in_place import in_place, overwrite
from alpha.ops.kernel.options import FORMS
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, ScalarArg
from alpha.ops.noise.dropout import check_probability, probability, threshold_of
from alpha.runtime.recording import StepValue, callers

__all__ = [
    "AlphaDropout",
    "DropPath",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
    "alpha_dropout",
    "drop_path",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
]

SATURATION = 1.7580993408473766  # minus the limit of SELU at minus infinity


class Outcome(NamedTuple):
    """Result for an element x: scale x + shift if it is kept, or `value`."""

    scale: float
    shift: float = 0.0
    value: float = 0.0


@primitive
def drop_groups(X: Array, stream: StepValue[Stream], p: float, outcome: Outcome) -> Array:
    """Y[n, :, c] = scale X + shift if the stream's uniform number n C + c is >= p, else `value`   X (N, R, C) -> Y

    With p = 1 all are 0.
    """


@drop_groups.impl("cpu")
def _(X: Array, stream: StepValue[Stream], p: float, outcome: Outcome) -> Array:
    if p == 1:
        return np.zeros(X.shape, X.dtype)
    (N, _, C), wide = X.shape, as_float32(X)
    words = rng.philox(*stream.now(), -(-N * C // 4)).reshape(-1)[: N * C]
    kept = (words >= threshold_of(p)).reshape(N, 1, C)
    scale, shift, value = (wide.dtype.type(number) for number in outcome)
    with np.errstate(all="ignore"):
        Y = wide * scale if shift == 0 else wide * scale + shift
    return as_dtype(np.where(kept, Y, value), X.dtype)


@drop_groups.impl("cuda")
def _(X: Array, stream: StepValue[Stream], p: float, outcome: Outcome) -> Array:
    if p == 1 or not X.size:
        return X.device.zeros(X.shape, X.dtype)
    numbers, address = X.device.step_value(stream, stream_numbers)
    given = {"X": X, "stream": numbers, "address": address, "threshold": threshold_of(p)}
    given |= {name: NUMBER_TYPES[X.dtype](number) for name, number in outcome._asdict().items()}
    return _plan_groups(X.shape, X.dtype, vector_width(X, along=X.size)).launch(X.device, given)["Y"]


@functools.lru_cache(maxsize=1024)
def _plan_groups(shape: tuple[int, int, int], dtype: DType, vector: int) -> Plan:
    Y, number = Buffer(shape, dtype), np.dtype(NUMBER_TYPES[dtype])
    sizes = np.int64(Y.size), np.int64(shape[1] * shape[2]), np.int64(shape[2])
    numbers = (
        *(ScalarArg("stream", STREAM), ArrayArg("address", optional=True), ScalarArg("threshold", np.dtype(np.uint32))),
        *(ScalarArg(name, number) for name in Outcome._fields),
    )
    launch = KernelLaunch(
        "dropout/groups.cu",
        "drop_groups",
        -(-Y.size // (BLOCK * vector)),
        BLOCK,
        (ArrayArg("Y"), ArrayArg("X"), *sizes, *numbers),
        {"TYPE": CUDA_TYPES[dtype], "VECTOR": vector, "INDEX": stream_grid(Y.size, vector)[1]["INDEX"]},
    )
    return Plan("drop_groups", (launch,), {"Y": Y})


class DropGroups(Function):
    """Y = X kept or dropped in groups   X (...) as `sizes` (N, R, C) -> Y (...)"""

    def forward(self, X: Array, *, sizes: tuple[int, int, int], p: float, outcome: Outcome) -> Array:
        self.sizes, self.p, self.outcome = sizes, p, outcome
        self.stream = rng.default.step_stream()
        Y = drop_groups(X.reshape(sizes), self.stream, p, outcome).reshape(tuple(X.shape))
        return overwrite(X, Y) if self.inplace else Y

    def backward(self, dY: Array) -> Any:
        dX = drop_groups(dY.reshape(self.sizes), self.stream, self.p, Outcome(self.outcome.scale))
        return dX.reshape(tuple(dY.shape))


DropGroupsInPlace = in_place(DropGroups, "dropout")


def _dropped(x: Tensor, sizes: tuple[int, int, int], p: float, outcome: Outcome, inplace: bool = False) -> Tensor:
    step = DropGroupsInPlace if inplace else DropGroups
    return step.apply(x, sizes=sizes, p=float(p), outcome=outcome)


def _scaled(p: float) -> Outcome:
    """Outcome that keeps the mean: 1 / (1 - p) times x."""
    return Outcome(1 / (1 - p) if p < 1 else 0.0)


def _balanced(p: float) -> Outcome:
    """Outcome that keeps mean 0 and variance 1 if SELU's saturation replaces an element (Klambauer et al. 2017)."""
    if p == 1:
        return Outcome(0.0)
    scale = 1 / math.sqrt((SATURATION**2 * p + 1) * (1 - p))
    return Outcome(scale, SATURATION * scale * p, SATURATION * scale * (p - 1))


def _channels(operator: str, rank: int, x: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    """Dropout of whole channels of x (N, .., C), or (.., C); of other axes than are meant, with PyTorch's warning."""
    check_probability(operator, p)
    if x.ndim not in ((4,) if rank == 2 else (rank + 1, rank + 2)):
        if rank == 1 or x.ndim < rank:
            raise ShapeError(f"{operator}: x {FORMS[rank]} is needed  (x {x.shape})")
        text = f"{operator}: x {x.shape} is not {FORMS[rank]}; as in PyTorch its last axis is taken for channels"
        warnings.warn(f"{text}, for single features there is dropout", UserWarning, callers() + 1)
    if not training or p == 0:
        return x
    N = x.shape[0] if rank == 2 or x.ndim == rank + 2 else 1
    return _dropped(x, (N, x.size // max(1, N * x.shape[-1]), x.shape[-1]), p, _scaled(float(p)), inplace)


@check_arguments
def dropout1d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout2d` of sequences   x (N, L, C), or one sequence without N -> the same"""
    return _channels("dropout1d", 1, x, p, training, inplace)


@check_arguments
def dropout2d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each channel of each image with probability p and scale the rest by 1 / (1 - p)   x (N, H, W, C) -> the same

    A dropped channel is 0 and has the gradient 0, whatever its values are, also inf and NaN.

    Args:
        training: False returns x itself.
        inplace: write the result into x.

    Of x (N, C) single elements are dropped; there is a warning then, and for each x (N, .., C) of other axes.

    Raises:
        ShapeError: x has less than two axes.
        ValueError: p is not in [0, 1].
    """
    return _channels("dropout2d", 2, x, p, training, inplace)


@check_arguments
def dropout3d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout2d` of volumes   x (N, D, H, W, C), or one volume without N -> the same"""
    return _channels("dropout3d", 3, x, p, training, inplace)


@check_arguments
def alpha_dropout(x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean 0 and variance 1, for networks of SELU (Klambauer et al. 2017)   x (...) -> (...)

    Each element becomes the saturation of SELU with probability p; then all are scaled and shifted. `training` and
    `inplace` are as of `dropout2d`.

    Raises:
        ValueError: p is not in [0, 1].
    """
    check_probability("alpha_dropout", p)
    return _dropped(x, (1, 1, x.size), p, _balanced(float(p)), inplace) if training and p > 0 else x


@check_arguments
def feature_alpha_dropout(x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of each image   x (N, .., C) -> the same

    Raises:
        ShapeError: x has less than two axes.
        ValueError: p is not in [0, 1].
    """
    check_probability("feature_alpha_dropout", p)
    if x.ndim < 2:
        raise ShapeError(f"feature_alpha_dropout: x (N, .., C) is needed  (x {x.shape})")
    sizes = x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1]
    return _dropped(x, sizes, p, _balanced(float(p)), inplace) if training and p > 0 else x


@check_arguments
def drop_path(x: Tensor, drop_prob: float = 0.0, training: bool = False, scale_by_keep: bool = True) -> Tensor:
    """Stochastic depth: zero a whole image with probability drop_prob (Huang et al. 2016)   x (N, ...) -> the same

    It is put at the end of the residual branch of a block, so that a dropped image skips the block.

    Args:
        training: False returns x itself.
        scale_by_keep: scale the images that are kept by 1 / (1 - drop_prob).

    Raises:
        ShapeError: x has no axis of images.
        ValueError: drop_prob is not in [0, 1].
    """
    check_probability("drop_path", drop_prob, "drop_prob")
    if x.ndim < 1:
        raise ShapeError(f"drop_path: x (N, ...) is needed  (x {x.shape})")
    if not training or drop_prob == 0:
        return x
    outcome = _scaled(float(drop_prob)) if scale_by_keep else Outcome(1.0)
    return _dropped(x, (x.shape[0], math.prod(x.shape[1:]), 1), drop_prob, outcome)


@function_layer(dropout1d, p=probability)
class Dropout1d(FunctionLayer):
    """Zero each channel of each sequence with probability p in training   (N, L, C) -> the same"""

    p: float = 0.5
    inplace: bool = False


@function_layer(dropout2d, p=probability)
class Dropout2d(FunctionLayer):
    """Zero each channel of each image with probability p in training, scale the rest   (N, H, W, C) -> the same"""

    p: float = 0.5
    inplace: bool = False


@function_layer(dropout3d, p=probability)
class Dropout3d(FunctionLayer):
    """Zero each channel of each volume with probability p in training   (N, D, H, W, C) -> the same"""

    p: float = 0.5
    inplace: bool = False


@function_layer(alpha_dropout, p=probability)
class AlphaDropout(FunctionLayer):
    """Dropout that keeps mean 0 and variance 1, for networks of SELU   (...) -> the same"""

    p: float = 0.5
    inplace: bool = False


@function_layer(feature_alpha_dropout, p=probability)
class FeatureAlphaDropout(FunctionLayer):
    """`AlphaDropout` of whole channels of each image   (N, .., C) -> the same"""

    p: float = 0.5
    inplace: bool = False


@function_layer(drop_path, drop_prob=probability)
class DropPath(FunctionLayer):
    """Stochastic depth: zero a whole image with probability drop_prob in training   (N, ...) -> the same

    Args:
        scale_by_keep: scale the images that are kept by 1 / (1 - drop_prob).
    """

    drop_prob: float = 0.0
    scale_by_keep: bool = True
