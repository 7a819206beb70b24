"""Places in sorted rows: searchsorted and bucketize."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor, full, tensor
from alpha.errors import DeviceError, ShapeError, type_name
from alpha.ops.array.layout import view as reshaped
from alpha.ops.indexing.gather_scatter import gather
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.dtypes import BLOCK, CUDA_TYPES, as_float32
from alpha.ops.kernel.operands import NUMBERS, common_dtype
from alpha.ops.kernel.row_indices import INT64
from alpha.runtime.cpu import empty as cpu_empty

__all__ = ["bucketize", "searchsorted"]


@primitive
def search_rows(S: Array, V: Array, right: bool) -> Array:
    """Y[a, i] = the number of elements of row a of S that are less than V[a, i], or with `right` not more

    S (A, C) or (1, C), each row in ascending order, V (A, I) of one dtype -> Y (A, I) of int64. NaN is the largest.
    """


@search_rows.impl("cpu")
def _(S: Array, V: Array, right: bool) -> Array:
    S, V = as_float32(S), as_float32(V)
    Y = cpu_empty(V.shape, INT64)
    side: Any = "right" if right else "left"
    if len(S) == 1:
        Y[...] = np.searchsorted(S[0], V, side)
        return Y
    for row, values, found in zip(S, V, Y, strict=True):
        found[...] = np.searchsorted(row, values, side)
    return Y


@search_rows.impl("cuda")
def _(S: Array, V: Array, right: bool) -> Array:
    Y = V.device.empty(V.shape, INT64)
    if Y.size:
        C = S.shape[1]
        numbers = map(np.int64, (C, V.shape[1], C if S.shape[0] > 1 else 0, Y.size))
        macros = {"TYPE": CUDA_TYPES[V.dtype]}
        V.device.launch(
            "indexing/search.cu", "search", -(-Y.size // BLOCK), BLOCK, (Y, S, V, *numbers, int(right)), macros
        )
    return Y


@check_arguments
def searchsorted(
    sorted_sequence: AnyTensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: AnyTensor | None = None,
) -> Tensor:
    """Where values belong in sorted rows: the first place whose element is not less   -> as values, int64

    sorted_sequence (C,), values (..); or sorted_sequence (.., C), values (.., I) with the same leading axes.
    NaN is the largest number. Whether a row is sorted is not checked.

    Args:
        values: a tensor, an array or a number.
        out_int32: whether the result is int32.
        right, side: True or "right": the first place whose element is more. "left" is the default of side.
        sorter: the order that sorts each row, as `argsort` gives it, if the rows themselves are not sorted.

    Raises:
        ShapeError: there are several rows, and the leading axes of values are others.
        ValueError: right and side contradict each other.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueError(f"searchsorted: side={side!r} is not 'left' or 'right', or contradicts right={right}")
    if sorter is not None:
        if not isinstance(sorter, Tensor) or sorter.shape != sorted_sequence.shape:
            raise ShapeError(
                f"searchsorted: sorter must be a Tensor (.., C) as sorted_sequence {sorted_sequence.shape}"
            )
        sorted_sequence = gather(sorted_sequence, -1, sorter)
    return _searched("searchsorted", sorted_sequence, values, right or side == "right", out_int32)


@check_arguments
def bucketize(x: Any, boundaries: AnyTensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of the bucket in which each element lies, between sorted boundaries   x (..), boundaries (C,) -> as x

    Args:
        x: a tensor, an array or a number.
        out_int32: whether the result is int32, not int64.
        right: False: a boundary belongs to the bucket before it; True: to the one behind it.
    """
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize: boundaries (C,) is needed  (boundaries {boundaries.shape})")
    return _searched("bucketize", boundaries, x, bool(right), out_int32)


def _searched(operator: str, rows: Tensor, values: Any, right: bool, out_int32: bool) -> Tensor:
    if isinstance(values, NUMBERS):
        kind = common_dtype(rows, values)
        values = full((), values, kind, rows.device)
    elif isinstance(values, (np.ndarray, list)):
        values = tensor(values, device=rows.device)
    if not isinstance(values, Tensor):
        raise TypeError(f"{operator}: {type_name(values)} is no Tensor and no number")
    if values.device is not rows.device:
        raise DeviceError(
            f"{operator}: the tensors are on {values.device.name} and {rows.device.name}; "
            "move them together with .to(device)"
        )
    if not rows.ndim or (rows.ndim > 1 and rows.shape[:-1] != values.shape[:-1]):
        raise ShapeError(
            f"{operator}: (C,), or rows (.., C) with values (.., I), are needed  "
            f"(rows {rows.shape}, values {values.shape})"
        )
    dtype = common_dtype(rows, values)
    S = array_of(rows.astype(dtype)).reshape((math.prod(rows.shape[:-1]), rows.shape[-1]))
    V = array_of(values.astype(dtype)).reshape((S.shape[0], values.size // max(1, S.shape[0])))
    found = reshaped(Tensor(search_rows(S, V, right)), values.shape)
    return found.astype(np.int32) if out_int32 else found
