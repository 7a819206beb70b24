"""Rows of an array taken, put and added at places that an index array says; sums have a fixed order.

Index arrays are first turned into places, one number per row: `places`. The other primitives take and put whole rows
of C neighbours, X[:, place, :].
"""

from __future__ import annotations

import functools
import math

import numpy as np

from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, device_of, primitive
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, DType, as_float32
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan
from alpha.ops.kernel.rows.sort_order import sort_order
from alpha.ops.kernel.views import WORDS
from alpha.runtime.cpu import empty as cpu_empty

INT64 = np.dtype(np.int64)
Own = tuple[int, int, int]  # inner, outer, outer_stride: i has the place i % inner + i // outer * outer_stride
NO_PLACE: Own = (1, 2**62, 0)
_STEPS = 4  # words per thread of indexing/rows.cu
LAST, SUM = 0, 1  # what indexing/scatter.cu makes of several elements
REDUCTIONS = {"prod": 2, "amax": 3, "amin": 4}


@primitive
def places(index: Array, length: int, stride: int, before: Array | None, own: Own, from_end: bool = True) -> Array:
    """F = before + stride index + the place of i itself   index (I,) of int64, before (I,) or None -> F (I,)

    A negative index counts from the end of an axis of `length`, or is out of range unless `from_end`. One that is out
    of range is an error on cpu. On cuda nothing waits for the device, so F is -1.
    """


@primitive
def take_rows(X: Array, F: Array) -> Array:
    """Y[:, i] = X[:, F_i]; NaN, or 0 of integers and bools, if F_i is -1   X (A, R, C), F (I,) -> Y (A, I, C)"""


@primitive
def put_rows(X: Array, F: Array, Y: Array, distinct: bool) -> None:
    """X[:, F_i] = Y[:, i], in place   X (A, R, C), F (I,), Y (A, I, C) of one dtype

    Nothing is put if F_i is -1. Unless the places are `distinct`, the last one of several equal ones stays.
    """


@primitive
def add_rows(X: Array, F: Array, Y: Array) -> None:
    """X[:, F_i] += Y[:, i], in place and in the order of i   X (A, R, C), F (I,), Y (A, I, C) of one dtype"""


@primitive
def reduce_rows(X: Array, F: Array, Y: Array, reduction: str) -> None:
    """X[:, F_i] = X[:, F_i] combined with Y[:, i], in place and in the order of i

    X (A, R, C), F (I,), Y (A, I, C) of one dtype. reduction: "prod", "amax" or "amin"; NaN is the largest and the
    smallest number.
    """


# -- cpu --------------------------------------------------------------------------------------------


@places.impl("cpu")
def _(index: Array, length: int, stride: int, before: Array | None, own: Own, from_end: bool = True) -> Array:
    wrong = (index < (-length if from_end else 0)) | (index >= length)
    if wrong.any():
        raise IndexError(f"index {index[wrong][0]} is out of range for an axis of length {length}")
    i = np.arange(index.size)
    inner, outer, outer_stride = own
    found: Array = np.where(index < 0, index + length, index) * stride + i % inner + i // outer * outer_stride
    return found if before is None else found + before


@take_rows.impl("cpu")
def _(X: Array, F: Array) -> Array:
    Y = cpu_empty((X.shape[0], F.size, X.shape[2]), X.dtype)
    if X.shape[1]:
        np.take(X, F, axis=1, out=Y, mode="clip")  # with a buffer for `out` in any other mode
    Y[:, F < 0] = np.nan if is_floating(X.dtype) else 0
    return Y


@put_rows.impl("cpu")
def _(X: Array, F: Array, Y: Array, distinct: bool) -> None:
    inside = F >= 0
    X[:, F[inside]] = Y[:, inside]


@add_rows.impl("cpu")
def _(X: Array, F: Array, Y: Array) -> None:
    _reduce_cpu(X, F, Y, np.add)


@reduce_rows.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, F: Array, Y: Array, reduction: str) -> None:
    _reduce_cpu(X, F, Y, {"prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[reduction])


def _reduce_cpu(X: Array, F: Array, Y: Array, combine: np.ufunc) -> None:
    order = np.argsort(F, kind="stable")
    order = order[np.searchsorted(F[order], 0) :]
    if order.size == 0 or Y.size == 0:
        return
    sorted_places = F[order]
    starts = np.flatnonzero(np.diff(sorted_places, prepend=-1))
    wide = as_float32(Y)[:, order]
    folded = combine.reduceat(wide, starts, axis=1, dtype=wide.dtype)
    targets = sorted_places[starts]
    X[:, targets] = combine(as_float32(X[:, targets]), folded).astype(X.dtype)


# -- cuda -------------------------------------------------------------------------------------------


@places.impl("cuda")
def _(index: Array, length: int, stride: int, before: Array | None, own: Own, from_end: bool = True) -> Array:
    F = index.device.empty(index.shape, INT64)
    if F.size:
        numbers = map(np.int64, (F.size, length, length if from_end else 0, stride, *own))
        index.device.launch(
            "indexing/places.cu", "places", -(-F.size // BLOCK), BLOCK, (F, index, before, *numbers), {}
        )
    return F


@take_rows.impl("cuda")
def _(X: Array, F: Array) -> Array:
    (A, R, C), I = X.shape, F.size
    Y = X.device.empty((A, I, C), X.dtype)
    if Y.size and R == 0:
        X.device.fill(Y, math.nan if is_floating(X.dtype) else 0)
    elif Y.size:
        ones = int(is_floating(X.dtype))
        plan = _plan_rows("take", (A, R, I, C), X.dtype.itemsize, math.gcd(16, X.address, Y.address), ones)
        plan.launch(X.device, {"X": X, "Y": Y, "F": F})
    return Y


@put_rows.impl("cuda")
def _(X: Array, F: Array, Y: Array, distinct: bool) -> None:
    (A, R, C), I = X.shape, F.size
    if not X.size or not Y.size:
        return
    if not distinct:
        _scatter(X, F, Y, LAST)
        return
    plan = _plan_rows("put", (A, R, I, C), X.dtype.itemsize, math.gcd(16, X.address, Y.address), None)
    plan.launch(X.device, {"X": X, "Y": Y, "F": F})


@functools.lru_cache(maxsize=1024)
def _plan_rows(entry: str, sizes: tuple[int, int, int, int], itemsize: int, aligned: int, ones: int | None) -> Plan:
    A, R, I, C = sizes
    word = max(itemsize, math.gcd(aligned, C * itemsize))
    width = C * itemsize // word
    words = A * I * width
    puts = entry == "put"
    X, Y, F = ArrayArg("X", updated=puts), ArrayArg("Y", only_read=puts), ArrayArg("F")
    arrays = (Y, X, F) if entry == "take" else (X, Y, F)
    launch = KernelLaunch(
        "indexing/rows.cu",
        entry,
        -(-words // (BLOCK * _STEPS)),
        BLOCK,
        (*arrays, *map(np.int64, (R, I, width, words)), *(() if ones is None else (ones,))),
        {"WORD": WORDS[word], "STEPS": _STEPS, "INDEX": "unsigned" if words < 2**31 else "unsigned long long"},
    )
    return Plan(entry, (launch,), {})


@add_rows.impl("cuda")
def _(X: Array, F: Array, Y: Array) -> None:
    if X.size and Y.size:
        _scatter(X, F, Y, SUM)


@reduce_rows.impl("cuda")
def _(X: Array, F: Array, Y: Array, reduction: str) -> None:
    if X.size and Y.size:
        _scatter(X, F, Y, REDUCTIONS[reduction])


def _scatter(X: Array, F: Array, Y: Array, reduction: int) -> None:
    order = sort_order(F.reshape(1, F.size), False)
    _plan_scatter(X.shape, F.size, X.dtype, reduction).launch(X.device, {"X": X, "Y": Y, "F": F, "order": order})


@functools.lru_cache(maxsize=1024)
def _plan_scatter(shape: tuple[int, int, int], I: int, dtype: DType, reduction: int) -> Plan:
    A, R, C = shape
    elements = A * I * C
    launch = KernelLaunch(
        "indexing/scatter.cu",
        "scatter",
        -(-elements // BLOCK),
        BLOCK,
        (
            ArrayArg("X", updated=True),
            *(ArrayArg("Y", only_read=True), ArrayArg("F"), ArrayArg("order")),
            *map(np.int64, (R, I, C, elements)),
            reduction,
        ),
        {"TYPE": CUDA_TYPES[dtype]},
    )
    return Plan("scatter", (launch,), {})


def add_zeros(shape: tuple[int, int, int], F: Array, dY: Array) -> Array:
    """The gradient of `take_rows`: zeros to which the rows of dY are added   F (I,), dY (A, I, C) -> dX shape"""

    dX = device_of(dY).zeros(shape, dY.dtype)
    add_rows(dX, F, dY)
    return dX
