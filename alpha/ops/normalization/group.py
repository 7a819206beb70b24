"""Layer, root-mean-square, group and instance normalisation; channels are the last axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.dtypes import as_dtype, as_float32
from alpha.ops.kernel.operands import operand_of
from alpha.ops.kernel.options import integer
from alpha.ops.normalization.batch_norm import check_eps
from alpha.ops.normalization.group_statistics import Sizes, normalize_groups, normalize_groups_gradients, number_dtype

__all__ = ["group_norm", "layer_norm", "rms_norm"]


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
