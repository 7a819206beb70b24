"""One axis of an array sampled at other places: a product with a constant sparse matrix of a few numbers per row.

Interpolation is one such product for each axis. Its gradient is the product with the transposed matrix, so a gradient
is gathered too, and nothing is added in the order of arrival.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from alpha.ops.dtypes import BLOCK, CUDA_TYPES, NUMBER_TYPES, DType, as_dtype, as_float32, stream_grid, vector_width
from alpha.ops.plan import Buffer, KernelLaunch, Named, Plan, Table
from alpha.primitive import Array, primitive


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


@functools.lru_cache(maxsize=256)
def matrix(r: Resampling) -> Array:
    """The matrix, dense   -> (rows, columns) of float64"""
    if r.transposed:
        return np.ascontiguousarray(matrix(r._replace(transposed=False)).T)
    if r.antialias:
        return _means(r)
    out = np.arange(r.O)
    dense = np.zeros((r.O, r.I))
    for places, weights in _taps(r, out):
        np.add.at(dense, (out, np.clip(places, 0, r.I - 1).astype(np.int64)), weights)
    return dense


def _taps(r: Resampling, out: Array) -> list[tuple[Array, Array]]:
    """(places, weights) of each tap, for all outputs; places outside of the axis mean its ends."""
    one = np.ones(r.O)
    if r.mode.startswith("nearest"):  # in float32, as PyTorch does for every dtype
        half = 0.5 if r.mode == "nearest-exact" else 0.0
        return [(np.floor((out + half).astype(np.float32) * np.float32(r.scale)), one)]
    source = out * r.scale if r.align_corners else (out + 0.5) * r.scale - 0.5
    if r.mode == "linear":
        source = np.maximum(source, 0)
        low = np.minimum(np.floor(source), r.I - 1)
        part = np.clip(source - low, 0, 1)
        return [(low, one - part), (low + 1, part)]
    low = np.floor(source)
    return [(low + k, _cubic(np.abs(source - low - k))) for k in range(-1, 3)]


def _means(r: Resampling) -> Array:
    """The matrix with `antialias`: a filter as wide as the distance of outputs, and weights whose sum is 1.

    As in PyTorch, the borders of the images meet also with align_corners, and the cubic filter has Pillow's factor.
    """
    distance = np.abs((np.arange(r.I) + 0.5) - (np.arange(r.O)[:, None] + 0.5) * r.scale) / max(r.scale, 1.0)
    if r.mode == "linear":
        weights = np.maximum(1 - distance, 0)
    else:
        weights = np.where(distance < 2, _cubic(distance, -0.5), 0)
    means: Array = weights / weights.sum(axis=1, keepdims=True)
    return means


def _cubic(distance: Array, a: float = -0.75) -> Array:
    """Keys' cubic of a distance below 2."""
    x = distance
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, far)


class Sparse(NamedTuple):
    """The rows of a sparse matrix: row o has elements starts[o] to starts[o + 1] of `weights`, in columns `places`."""

    starts: Array
    places: Array
    weights: Array


@functools.lru_cache(maxsize=256)
def sparse(r: Resampling) -> Sparse:
    """The matrix without its zeros."""
    dense = matrix(r)
    rows, places = np.nonzero(dense)
    starts = np.searchsorted(rows, np.arange(r.rows + 1))
    return Sparse(starts.astype(np.int32), places.astype(np.int32), dense[rows, places])


def is_identity(r: Resampling) -> bool:
    """True if the result is the input."""
    return r.I == r.O and np.array_equal(matrix(r), np.eye(r.I))


@primitive
def resample_axis1(X: Array, r: Resampling) -> Array:
    """Y[a, o, b] = sum over i of matrix[o, i] X[a, i, b]; no zero is multiplied   X (A, I, B) -> Y (A, O, B)"""


@resample_axis1.impl("cpu")
def _(X: Array, r: Resampling) -> Array:
    x: Array = as_float32(X)
    A, _, B = x.shape
    starts, places, weights = sparse(r)
    counts = np.diff(starts)
    Y = np.zeros((A, r.rows, B), x.dtype)
    for tap in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > tap)
        at = starts[rows] + tap
        Y[:, rows] += weights[at].astype(x.dtype)[:, None] * x[:, places[at]]
    return as_dtype(Y, X.dtype)


@resample_axis1.impl("cuda")
def _(X: Array, r: Resampling) -> Array:
    plan = _plan(r, X.shape[0], X.shape[2], X.dtype, vector_width(X, along=X.shape[2]))
    return plan.launch(X.device, {"X": X})["Y"]


@functools.lru_cache(maxsize=1024)
def _plan(r: Resampling, A: int, B: int, dtype: DType, vector: int) -> Plan:
    Y = Buffer((A, r.rows, B), dtype)
    columns = r.O if r.transposed else r.I
    number = np.dtype(NUMBER_TYPES[dtype])

    def table(name: str, kind: Any) -> Table:
        return Table(lambda: getattr(sparse(r), name).astype(kind))

    tables = table("starts", np.int32), table("places", np.int32), table("weights", number)
    launch = KernelLaunch(
        "resample/resample.cu",
        "resample",
        -(-Y.size // (BLOCK * vector)),
        BLOCK,
        (Named("Y"), Named("X"), *tables, np.int64(Y.size), columns, r.rows, np.int64(B)),
        {
            "TYPE": CUDA_TYPES[dtype],
            "VECTOR": vector,
            "INDEX": stream_grid(max(Y.size, A * columns * B), vector)[1]["INDEX"],
        },
    )
    return Plan(f"resample {r.mode}", (launch,), {"Y": Y})
