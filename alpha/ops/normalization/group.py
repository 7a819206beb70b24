"""Layer, root-mean-square, group, instance and local response normalisation; channels are the last axis.

All but the last normalise groups of elements by their own mean and variance, with shared primitives. Local response
normalisation is over neighbouring channels (Krizhevsky et al. 2012).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import no_grad
from alpha.autograd.recompute import repeating
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.pad import pad
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.casts import (
    BLOCK,
    CUDA_TYPES,
    NUMBER_TYPES,
    DType,
    as_dtype,
    as_float32,
    vector_width,
    widest_vector,
)
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.operands import operand_of
from alpha.ops.kernel.options import integer, positive_integer, real
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, ScalarArg
from alpha.ops.kernel.rows.row_tile import WARP, RowTile, row_tile
from alpha.ops.kernel.sums import column_block, column_splits, sum_launches
from alpha.ops.normalization.batch_norm import batch_norm, check_eps
from alpha.ops.pooling.avg_pool import avg_pool1d
from alpha.ops.reduction.variance import var

__all__ = ["LocalResponseNorm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]


Sizes = tuple[int, int, int, int]


# Of the kernel that computes all gradients of rows: blocks per SM, and elements of an array that a thread holds at
# most, so that the sums of their channels fit in the registers as well.
_SUM_BLOCKS, _SUM_ELEMENTS = 3, 12


@primitive
def normalize_groups(
    X: Array, weight: Array | None, bias: Array | None, eps: float, centered: bool
) -> tuple[Array, Array, Array]:
    """Y = weight (X - mean) rstd + bias, mean, and rstd = 1 / sqrt(var + eps); a mean of 0 without `centered`

    X (A, R, G, K), weight, bias (G K,) -> Y (A, R, G, K), mean, rstd (A, G). Mean and variance are those of the R K
    elements of each (a, g). The other arrays are float32 where X is bfloat16.
    """


@primitive
def normalize_groups_gradients(
    dY: Array, X: Array, mean: Array, rstd: Array, weight: Array | None, centered: bool
) -> tuple[Array, Array, Array]:
    """dX, dweight, dbias, from the mean and rstd of the forward pass

    dY, X (A, R, G, K), mean, rstd (A, G), weight (G K,) -> dX (A, R, G, K), dweight, dbias (G K,)
    """


@normalize_groups.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, weight: Array | None, bias: Array | None, eps: float, centered: bool) -> tuple[Array, Array, Array]:
    x: Array = as_float32(X)
    A, R, G, K = x.shape
    count = R * K
    mean = np.zeros((A, 1, G, 1))
    if centered:
        mean = x.sum(axis=(1, 3), keepdims=True, dtype=np.float64) / count
    mean = mean.astype(x.dtype)
    Y = x - mean
    var = np.square(Y, dtype=np.float64).sum(axis=(1, 3), keepdims=True) / count
    rstd = (1 / np.sqrt(var + eps)).astype(x.dtype)
    Y *= rstd
    if weight is not None:
        Y *= weight.reshape(G, K)
    if bias is not None:
        Y += bias.reshape(G, K)
    return as_dtype(Y, X.dtype), mean.reshape(A, G), rstd.reshape(A, G)


@normalize_groups_gradients.impl("cpu")
@np.errstate(all="ignore")
def _(
    dY: Array, X: Array, mean: Array, rstd: Array, weight: Array | None, centered: bool
) -> tuple[Array, Array, Array]:
    A, R, G, K = X.shape
    dy: Array = as_float32(dY)
    scale = rstd.reshape(A, 1, G, 1)
    H = (as_float32(X) - mean.reshape(A, 1, G, 1)) * scale

    def total(values: Array, axes: tuple[int, ...]) -> Array:
        sums: Array = values.sum(axis=axes, keepdims=True, dtype=np.float64).astype(values.dtype)
        return sums

    dw, db = total(dy * H, (0, 1)).reshape(G * K), total(dy, (0, 1)).reshape(G * K)
    D = dy if weight is None else dy * weight.reshape(G, K)
    count = max(1, R * K)
    dX = D - H * (total(D * H, (1, 3)) / count)
    if centered:
        dX -= total(D, (1, 3)) / count
    dX *= scale
    return as_dtype(dX, X.dtype), dw, db


def number_dtype(dtype: DType) -> DType:
    """The dtype of the parameters and statistics for X of a dtype."""
    return FLOAT32 if dtype == BFLOAT16 else dtype


def _require_numbers(X: Array, *others: Array | None) -> None:
    wanted = number_dtype(X.dtype)
    for other in others:
        if other is not None and other.dtype != wanted:
            raise TypeError(
                f"normalisation: x of {X.dtype.name} needs weights and statistics of {wanted.name}, "
                f"not {other.dtype.name}"
            )


@normalize_groups.impl("cuda")
def _(X: Array, weight: Array | None, bias: Array | None, eps: float, centered: bool) -> tuple[Array, Array, Array]:
    _require_numbers(X, weight, bias)
    dtype = number_dtype(X.dtype)
    if not X.size:
        sizes = (X.shape[0], X.shape[2])
        return X.device.empty(X.shape, X.dtype), X.device.zeros(sizes, dtype), X.device.zeros(sizes, dtype)
    given = {"X": X, "weight": weight, "bias": bias, "eps": NUMBER_TYPES[X.dtype](eps)}
    vector = _row_vector(X, weight, bias)
    found = _plan_forward(X.shape, X.dtype, vector, centered).launch(X.device, given)
    return found["Y"], found["mean"], found["rstd"]


@normalize_groups_gradients.impl("cuda")
def _(
    dY: Array, X: Array, mean: Array, rstd: Array, weight: Array | None, centered: bool
) -> tuple[Array, Array, Array]:
    _require_numbers(X, mean, rstd, weight)
    C = X.shape[2] * X.shape[3]
    if not X.size:
        zeros = X.device.zeros((C,), mean.dtype)
        return X.device.zeros(X.shape, X.dtype), zeros, zeros
    dY = as_dtype(dY, X.dtype)
    given = {"dY": dY, "X": X, "mean": mean, "rstd": rstd, "weight": weight}
    vector = _row_vector(X, dY, weight)
    plan = _plan_backward(X.shape, X.dtype, vector, centered, X.device.properties.num_sms)
    found = plan.launch(X.device, given)
    dw, db = (found["dw, db"].slice_rows(i, i + 1).reshape((C,)) for i in range(2))
    return found["dX"], dw, db


def _grid(sizes: Sizes) -> tuple[int, tuple[int, int]]:
    """Blocks of the kernels that take whole groups; (groups of a block, whether lanes of a group are neighbours)."""
    A, R, G, K = sizes
    rows = K >= 8 or G == 1  # else the elements of a group are far from each other
    lanes = 1
    while lanes < (BLOCK if rows else BLOCK // 8) and 4 * lanes < R * K:
        lanes *= 2
    lines = BLOCK // lanes
    return -(-(A * G) // lines), (lines, int(rows))


def _row_vector(X: Array, *others: Array | None) -> int:
    """Elements per pack of a group of neighbours; 1 for other groups."""
    _, R, _, K = X.shape
    return vector_width(X, *(other for other in others if other is not None), along=K) if R == 1 else 1


@functools.lru_cache(maxsize=4096)
def _plan_forward(sizes: Sizes, dtype: DType, vector: int, centered: bool) -> Plan:
    A, R, G, K = sizes
    number = NUMBER_TYPES[dtype]
    arguments = (
        *map(ArrayArg, ("Y", "mean", "rstd", "X")),
        *(ArrayArg("weight", optional=True), ArrayArg("bias", optional=True), ScalarArg("eps", np.dtype(number))),
        number(2.0 ** -((max(R * K, 1) - 1).bit_length() + 1 >> 1)),  # unit
        np.int64(A),
    )
    tile = row_tile(K, vector, dtype.itemsize) if R == 1 else None
    if tile is None:
        blocks, lanes = _grid(sizes)
        arguments = (*arguments, R, G, K, *lanes, int(centered))
        launch = KernelLaunch("norm/norm.cu", "normalize", blocks, BLOCK, arguments, {"TYPE": CUDA_TYPES[dtype]})
    else:
        arguments = (*arguments, G, K, int(centered))
        macros = _row_macros(dtype, tile, G)
        launch = KernelLaunch("norm/rows.cu", "normalize_rows", tile.blocks(A * G), BLOCK, arguments, macros)
    statistics = Buffer((A, G), number_dtype(dtype))
    return Plan("normalize", (launch,), {"Y": Buffer(sizes, dtype), "mean": statistics, "rstd": statistics})


def _sum_blocks(tile: RowTile) -> int:
    """Blocks per SM of the kernel that computes all gradients; a row of a whole block needs more registers."""
    return _SUM_BLOCKS if tile.lanes < BLOCK else _SUM_BLOCKS - 1


def _row_macros(dtype: DType, tile: RowTile, G: int, sums: bool = False) -> dict[str, int | str]:
    chosen = {"GROUPED": int(G > 1), "SUMS": int(sums), "BLOCKS": _sum_blocks(tile) if sums else 1}
    return {"TYPE": CUDA_TYPES[dtype], **tile.macros, **chosen}


@functools.lru_cache(maxsize=4096)
def _plan_backward(sizes: Sizes, dtype: DType, vector: int, centered: bool, num_sms: int) -> Plan:
    """Plan of all gradients.

    If groups are rows, one kernel reads each row once for all gradients; otherwise dX and the sums have kernels of
    their own.
    """
    A, R, G, K = sizes
    tile = None
    if R == G == 1 and dtype.itemsize < 8:
        tile = _sum_tile(K, dtype, vector)
    if tile is not None:
        splits = min(tile.blocks(A), _sum_blocks(tile) * num_sms)
        launches = [_launch_row_gradient(sizes, dtype, tile, centered, splits)]
    else:
        sums, splits = _launch_parameter_sums(sizes, dtype, num_sms)
        launches = [_launch_gradient(sizes, dtype, vector, centered), sums]
    number, parts = number_dtype(dtype), (2, splits, G * K)
    more, spaces = sum_launches("parts", "dw, db", parts, number, widest_vector(number, G * K), num_sms)
    outputs = {"dX": Buffer(sizes, dtype), "dw, db": Buffer((2, G * K), number)}
    workspaces = {"parts": Buffer(parts, number), **spaces}
    return Plan("normalize_gradients", (*launches, *more), outputs, workspaces)


def _sum_tile(K: int, dtype: DType, vector: int) -> RowTile | None:
    """The tile of the kernel that computes all gradients of rows, which keeps the sums of its channels, too."""
    tile = row_tile(K, min(vector, 4), dtype.itemsize, elements=_SUM_ELEMENTS)
    if tile is None or tile.rows > 1 or tile.lanes > WARP or dtype.itemsize > 2 or tile.packs * tile.vector > 8:
        return tile
    return replace(tile, rows=2)  # of bfloat16, so that enough bytes are in flight


def _launch_row_gradient(
    sizes: Sizes, dtype: DType, tile: RowTile, centered: bool, splits: int | None = None
) -> KernelLaunch:
    """dX of rows; with a number of `splits` also the sums of the parameters' gradients over each of so many blocks."""
    A, _, G, K = sizes
    arguments = (
        ArrayArg("dX"),
        ArrayArg("parts") if splits else None,
        *map(ArrayArg, ("dY", "X", "mean", "rstd")),
        *(ArrayArg("weight", optional=True), np.int64(A), G, K, int(centered)),
    )
    blocks, macros = splits or tile.blocks(A * G), _row_macros(dtype, tile, G, splits is not None)
    return KernelLaunch("norm/rows.cu", "normalize_rows_gradient", blocks, BLOCK, arguments, macros)


def _launch_gradient(sizes: Sizes, dtype: DType, vector: int, centered: bool) -> KernelLaunch:
    """dX alone."""
    A, R, G, K = sizes
    tile = row_tile(K, vector, dtype.itemsize, 16) if R == 1 else None
    if tile is not None:
        return _launch_row_gradient(sizes, dtype, tile, centered)
    blocks, lanes = _grid(sizes)
    arguments = (
        *map(ArrayArg, ("dX", "dY", "X", "mean", "rstd")),
        *(ArrayArg("weight", optional=True), np.int64(A), R, G, K, *lanes, int(centered)),
    )
    return KernelLaunch("norm/norm.cu", "normalize_gradient", blocks, BLOCK, arguments, {"TYPE": CUDA_TYPES[dtype]})


def _launch_parameter_sums(sizes: Sizes, dtype: DType, num_sms: int) -> tuple[KernelLaunch, int]:
    """The sums of the parameters' gradients over segments of the rows, and the number of segments."""
    A, R, G, K = sizes
    across, height, _ = column_block(1, A * R, G * K)
    tiles = -(-(G * K) // across)
    splits, rows = column_splits(num_sms, A * R, height, tiles)
    arguments = (*map(ArrayArg, ("parts", "dY", "X", "mean", "rstd")), A * R, R, G, K, rows)
    macros = {"TYPE": CUDA_TYPES[dtype]}
    launch = KernelLaunch("norm/norm.cu", "parameter_sums", (tiles, splits), (across, height), arguments, macros)
    return launch, splits


class GroupNormStep(Function):
    """Y = weight (X - mean) / sqrt(var + eps) + bias over groups   X (...) as `sizes` (A, R, G, K) -> Y (...)"""

    def forward(
        self, X: Array, weight: Array | None, bias: Array | None, *, sizes: Sizes, eps: float, centered: bool
    ) -> Array:
        self.sizes, self.centered = sizes, centered
        self.operands = tuple(None if part is None else operand_of(part) for part in (weight, bias))
        Y, *self.statistics = normalize_groups(X.reshape(sizes), _flat(weight), _flat(bias), eps, centered)
        self.save(X, *(() if weight is None else (weight,)))
        return Y.reshape(tuple(X.shape))

    def backward(self, dY: Array) -> Any:
        X, *weight = self.saved
        given = (dY.reshape(self.sizes), X.reshape(self.sizes), *self.statistics)
        dX, *sums = normalize_groups_gradients(*given, _flat(weight[0]) if weight else None, self.centered)
        parts = [
            None if operand is None else as_dtype(part.reshape(operand[0]), operand[1])
            for part, operand in zip(sums, self.operands, strict=True)
        ]
        return dX.reshape(tuple(X.shape)), *parts


def _flat(array: Array | None) -> Array | None:
    return None if array is None else as_float32(array).reshape((array.size,))


def shape_of_axes(operator: str, normalized_shape: Any) -> tuple[int, ...]:
    """The argument as a tuple; an integer is one axis."""
    many = normalized_shape if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    if not many:
        raise ShapeError(f"{operator}: normalized_shape={normalized_shape!r} names no axis")
    return tuple(integer(operator, "normalized_shape", n, least=0) for n in many)


def _over_last_axes(
    operator: str, x: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None
) -> Sizes:
    """The sizes of the groups, which are the last axes of x; `ShapeError` if x or a parameter has others."""
    shape = shape_of_axes(operator, normalized_shape)
    if x.shape[-len(shape) :] != shape:
        raise ShapeError(f"{operator}: normalized_shape {shape} is not that of the last axes of x {x.shape}")
    for name, part in (("weight", weight), ("bias", bias)):
        if part is not None and part.shape != shape:
            raise ShapeError(f"{operator}: {name} has shape {part.shape}, normalized_shape {shape} is needed")
    size = math.prod(shape)
    return math.prod(x.shape[: x.ndim - len(shape)]), 1, 1, size


@check_arguments
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Y = weight (X - mean) / sqrt(var + eps) + bias over the last axes (Ba et al. 2016)   x (..., *normalized_shape)

    Mean and (biased) variance are those of each row of the last axes.

    Args:
        normalized_shape: the lengths of the last axes; an integer is the length of the last one.
        weight, bias: (*normalized_shape); None is 1 and 0.

    Raises:
        ShapeError: the last axes of x, weight or bias have other lengths.
        ValueError: eps is negative or not finite.
    """
    sizes = _over_last_axes("layer_norm", x, normalized_shape, weight, bias)
    check_eps("layer_norm", eps)
    return GroupNormStep.apply(x, weight, bias, sizes=sizes, eps=float(eps), centered=True)


@check_arguments
def rms_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Y = weight X / sqrt(mean of X^2 + eps) over the last axes (Zhang & Sennrich 2019)   x (..., *normalized_shape)

    Args:
        normalized_shape: the lengths of the last axes; an integer is the length of the last one.
        weight: (*normalized_shape); None is 1.
        eps: None is the distance from 1 to the next number of the arithmetic, which is float32 for bfloat16.

    Raises:
        ShapeError: the last axes of x or weight have other lengths.
        ValueError: eps is negative or not finite.
    """
    sizes = _over_last_axes("rms_norm", x, normalized_shape, weight, None)
    if eps is None:
        eps = float(np.finfo(number_dtype(x.dtype)).eps)
    check_eps("rms_norm", eps)
    return GroupNormStep.apply(x, weight, None, sizes=sizes, eps=float(eps), centered=False)


@check_arguments
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Y = weight (X - mean) / sqrt(var + eps) + bias over groups of channels (Wu & He 2018)   x (N, ..., C)

    Mean and (biased) variance are those of each image's C / num_groups neighbouring channels.

    Args:
        num_groups: divides C.
        weight, bias: (C,); None is 1 and 0.

    Raises:
        ShapeError: C is no multiple of num_groups, or weight or bias is not (C,).
        ValueError: eps is negative or not finite, or num_groups is below 1.
    """
    groups = integer("group_norm", "num_groups", num_groups, least=1)
    if x.ndim < 2 or x.shape[-1] % groups:
        raise ShapeError(f"group_norm: x (N, .., C) is needed, C a multiple of num_groups={groups}  (x {x.shape})")
    C = x.shape[-1]
    for name, part in (("weight", weight), ("bias", bias)):
        if part is not None and part.shape != (C,):
            raise ShapeError(f"group_norm: {name} has shape {part.shape}, x {x.shape} needs ({C},)")
    check_eps("group_norm", eps)
    sizes = (x.shape[0], math.prod(x.shape[1:-1]), groups, C // groups)
    return GroupNormStep.apply(x, weight, bias, sizes=sizes, eps=float(eps), centered=True)


@check_arguments
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Y = weight (X - mean) / sqrt(var + eps) + bias over each channel of each image (Ulyanov et al. 2016)

    x (N, .., C), the others (C,) -> (N, .., C). Mean and (biased) variance are those of the pixels between.

    Args:
        running_mean, running_var: both or neither. With `use_input_stats` they move by `momentum` towards the mean of
            the images' means and of their unbiased variances; otherwise they are used.
        weight, bias: None is 1 and 0.
        use_input_stats: False is `batch_norm` in evaluation.

    Raises:
        ShapeError: a parameter is not (C,), an image has one pixel, or running statistics are missing.
        ValueError: momentum or eps is not finite, or eps is negative.
    """
    C = x.shape[-1] if x.ndim else 0
    named = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for name, part in named.items():
        if part is not None and part.shape != (C,):
            raise ShapeError(f"instance_norm: {name} has shape {part.shape}, x {x.shape} needs ({C},)")
    check_eps("instance_norm", eps)
    momentum = real("instance_norm", "momentum", momentum)
    if (running_mean is None) != (running_var is None):
        raise ShapeError("instance_norm: running_mean and running_var are needed together, or neither")
    if not use_input_stats:
        if running_mean is None:
            raise ShapeError("instance_norm: use_input_stats=False needs running_mean and running_var")
        return unchecked(batch_norm)(x, running_mean, running_var, weight, bias, False, momentum, eps)
    pixels = math.prod(x.shape[1:-1])
    if x.ndim < 3 or pixels == 1:
        raise ShapeError(f"instance_norm: x (N, .., C) of more than one pixel is needed  (x {x.shape})")
    if running_mean is not None and running_var is not None and not repeating():
        _update(x, running_mean, running_var, momentum)
    sizes = x.shape[0], pixels, C, 1
    return GroupNormStep.apply(x, weight, bias, sizes=sizes, eps=float(eps), centered=True)


@no_grad()
def _update(x: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float) -> None:
    """Moves the running statistics, in place."""
    values = x.detach().astype(running_mean.dtype)
    axes = tuple(range(1, x.ndim - 1))
    for running, new in ((running_mean, values.mean(axes)), (running_var, unchecked(var)(values, axes))):
        running.mul_(1 - momentum).add_(new.mean(0) * momentum)


@check_arguments
def local_response_norm(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Y = X / (k + alpha mean of X^2 over `size` neighbouring channels)^beta   x (N, .., C) -> (N, .., C)

    The neighbours of channel c are c - size // 2 to c + (size - 1) // 2; those that there are not count as 0.

    Raises:
        ShapeError: x has less than three axes.
        ValueError: size is below 1, or a number is not finite.
    """
    name = "local_response_norm"
    size = integer(name, "size", size, least=1)
    numbers = {"alpha": real(name, "alpha", alpha), "beta": real(name, "beta", beta), "k": real(name, "k", k)}
    if x.ndim < 3:
        raise ShapeError(f"{name}: x (N, .., C) is needed  (x {x.shape})")
    if not x.size:
        return x
    C = x.shape[-1]
    squares = unchecked(pad)((x * x).reshape(x.size // C, C, 1), (0, 0, size // 2, (size - 1) // 2))
    mean = unchecked(avg_pool1d)(squares, size, 1).reshape(*x.shape)
    return x / (mean * numbers["alpha"] + numbers["k"]) ** numbers["beta"]


@function_layer(local_response_norm, size=positive_integer)
class LocalResponseNorm(FunctionLayer):
    """Normalisation by the squares of neighbouring channels   (N, .., C) -> the same

    Args:
        size: how many channels count.
        alpha, beta, k: Y = X / (k + alpha mean of X^2)^beta.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
