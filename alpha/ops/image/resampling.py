"""One axis of an array sampled at other places: a product with a constant sparse matrix of a few numbers per row.

The gradient is the product with the transposed matrix, so a gradient is gathered too, and nothing is added in the order
of arrival.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from alpha.core.primitive import Array, primitive
from alpha.errors import ShapeError
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
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, ScalarArg
from alpha.ops.kernel.tables.kept_tables import kept

TAPS = {"nearest": 1, "nearest-exact": 1, "linear": 2, "cubic": 4}  # of an output


class Resampling(NamedTuple):
    """The matrix (O, I) of an interpolation along one axis.

    Attributes:
        mode: "nearest", "nearest-exact", "linear" or "cubic".
        scale: the distance between two outputs, in inputs.
        align_corners: the first and the last output are the first and the last input.
        transposed: the matrix (I, O) of the gradient.
        antialias: an output that is further than one input from the next is the mean of all inputs that it covers,
            weighted by the "linear" or "cubic" filter.
    """

    mode: str
    I: int
    O: int
    scale: float
    align_corners: bool = False
    transposed: bool = False
    antialias: bool = False

    @property
    def rows(self) -> int:
        """The length of the axis of the result."""
        return self.I if self.transposed else self.O


def _taps(r: Resampling) -> tuple[Array, Array]:
    """Inputs that each output reads, in rising order, and their weights   -> (K, O) of int64, (K, O) of float64

    A weight is 0 if the output has fewer than K taps.
    """
    out = np.arange(r.O)
    if r.antialias:
        return _means(r, out)
    if r.mode.startswith("nearest"):  # in float32, as PyTorch does for every dtype
        half = 0.5 if r.mode == "nearest-exact" else 0.0
        low = np.floor((out + half).astype(np.float32) * np.float32(r.scale)).astype(np.int64)
        return np.clip(low, 0, r.I - 1)[None], np.ones((1, r.O))
    source = out * r.scale if r.align_corners else (out + 0.5) * r.scale - 0.5
    if r.mode == "linear":
        source = np.maximum(source, 0)
        low = np.minimum(np.floor(source), r.I - 1)
        part = np.clip(source - low, 0, 1)
        weights = np.stack([1 - part, part])
        first = 0
    else:
        low = np.floor(source)
        weights = np.stack([_cubic(np.abs(source - low - k)) for k in range(-1, 3)])
        first = -1
    places = low.astype(np.int64) + np.arange(first, first + len(weights))[:, None]
    np.clip(places, 0, r.I - 1, out=places)  # places outside of the axis mean its ends
    for k in range(1, len(weights)):
        same = places[k] == places[k - 1]
        weights[k, same] += weights[k - 1, same]
        weights[k - 1, same] = 0
    return places, weights


def _means(r: Resampling, out: Array) -> tuple[Array, Array]:
    """The taps with `antialias`: a filter as wide as the distance of outputs, and weights whose sum is 1.

    As in PyTorch, the borders of the images meet also with align_corners, and the cubic filter has Pillow's factor.
    """
    wide = max(r.scale, 1.0)
    centre, reach = (out + 0.5) * r.scale, wide * (1 if r.mode == "linear" else 2)
    first = np.maximum(np.floor(centre - reach - 0.5), 0).astype(np.int64)
    places = first + np.arange(min(r.I, math.ceil(2 * reach) + 2))[:, None]
    distance = np.abs((places + 0.5) - centre) / wide
    weights = np.maximum(1 - distance, 0) if r.mode == "linear" else np.where(distance < 2, _cubic(distance, -0.5), 0)
    weights[places >= r.I] = 0
    weights /= weights.sum(axis=0)
    return np.minimum(places, r.I - 1), weights


def _cubic(distance: Array, a: float = -0.75) -> Array:
    """Keys' cubic of a distance below 2."""
    x = distance
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, far)


@dataclass(frozen=True, eq=False)
class Sparse:
    """The rows of a sparse matrix: row o has elements starts[o] to starts[o + 1] of `weights`, in columns `places`."""

    starts: Array
    places: Array
    weights: Array

    @property
    def nbytes(self) -> int:
        return int(self.starts.nbytes + self.places.nbytes + self.weights.nbytes)

    def packed(self) -> Array:
        """Weights, starts and places in one array of bytes, as cuda/resample/resample.cu reads them."""
        return np.concatenate([part.view(np.uint8) for part in (self.weights, self.starts, self.places)])


MOST_TAPS = (1 << 31) - 1  # of a matrix, whose places are numbers of 32 bits


@kept
def sparse(r: Resampling, dtype: DType) -> Sparse:
    """The matrix without its zeros, its weights in a dtype.

    Raises:
        ShapeError: it has too many elements.
    """
    if max(r.I, TAPS[r.mode] * r.O) > MOST_TAPS:
        raise ShapeError(
            f"interpolate: an axis of {r.I:,} elements to {r.O:,} by {r.mode!r} reads {TAPS[r.mode] * r.O:,} elements; "
            f"both are at most {MOST_TAPS:,} for each axis. Cut the axis, and interpolate its parts"
        )
    places, weights = _taps(r)
    if not r.transposed:
        rows, places, weights = (np.ascontiguousarray(part.T) for part in (weights != 0, places, weights))
        return _sparse(rows.sum(axis=1), places[rows], weights[rows].astype(dtype))
    # the last tap of a place is that of the first output, so that the outputs of an input come in their order
    there = weights[::-1] != 0
    places, weights = places[::-1][there], weights[::-1][there]
    order = np.argsort(places, kind="stable")
    outputs = np.broadcast_to(np.arange(r.O), there.shape)[there]
    return _sparse(np.bincount(places, minlength=r.I), outputs[order], weights[order].astype(dtype))


def _sparse(counts: Array, places: Array, weights: Array) -> Sparse:
    starts = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=starts[1:])
    return Sparse(starts, places.astype(np.int32), weights)


@functools.lru_cache(maxsize=4096)
def is_identity(r: Resampling) -> bool:
    """True if the result is the input."""
    if r.I != r.O:
        return False
    found = sparse(r, np.dtype(np.float64))
    numbers = np.arange(r.I + 1)
    return all(
        np.array_equal(*pair)
        for pair in ((found.starts, numbers), (found.places, numbers[:-1]), (found.weights, np.ones(r.I)))
    )


@primitive
def resample_axis1(X: Array, r: Resampling) -> Array:
    """Y[a, o, b] = sum over i of matrix[o, i] X[a, i, b]; no zero is multiplied   X (A, I, B) -> Y (A, O, B)"""


LONG = 32  # elements of a row from which on it is a product by itself


@resample_axis1.impl("cpu")
def _(X: Array, r: Resampling) -> Array:
    x: Array = as_float32(X)
    A, _, B = x.shape
    found = sparse(r, x.dtype)
    counts = np.diff(found.starts)
    Y = np.zeros((A, r.rows, B), x.dtype)
    short = np.flatnonzero(counts < LONG)
    for tap in range(int(counts[short].max(initial=0))):
        rows = short[counts[short] > tap]
        at = found.starts[rows] + tap
        Y[:, rows] += found.weights[at][:, None] * x[:, found.places[at]]
    for row in np.flatnonzero(counts >= LONG):
        at = slice(found.starts[row], found.starts[row + 1])
        Y[:, row] = found.weights[at] @ x[:, found.places[at]]
    return as_dtype(Y, X.dtype)


@resample_axis1.impl("cuda")
def _(X: Array, r: Resampling) -> Array:
    found = sparse(r, np.dtype(NUMBER_TYPES[X.dtype]))
    plan = _plan(r, X.shape[0], X.shape[2], X.dtype, vector_width(X, along=X.shape[2]))
    return plan.launch(X.device, {"X": X, "table": X.device.table(found, found.packed), "taps": found.weights.size})[
        "Y"
    ]


@functools.lru_cache(maxsize=1024)
def _plan(r: Resampling, A: int, B: int, dtype: DType, vector: int) -> Plan:
    Y = Buffer((A, r.rows, B), dtype)
    columns = r.O if r.transposed else r.I
    arguments = *map(ArrayArg, ("Y", "X", "table")), ScalarArg("taps", np.dtype(np.int64))
    launch = KernelLaunch(
        "resample/resample.cu",
        "resample",
        -(-Y.size // (BLOCK * vector)),
        BLOCK,
        (*arguments, np.int64(Y.size), columns, r.rows, np.int64(B)),
        {
            "TYPE": CUDA_TYPES[dtype],
            "VECTOR": vector,
            "INDEX": stream_grid(max(Y.size, A * columns * B), vector)[1]["INDEX"],
        },
    )
    return Plan(f"resample {r.mode}", (launch,), {"Y": Y})
