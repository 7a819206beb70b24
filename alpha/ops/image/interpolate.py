"""Images made larger or smaller: nearest, linear and cubic interpolation of one to three axes, channels last.

This file also has: one axis of an array sampled at other places: a product with a constant sparse matrix of a few
numbers per row.

Interpolation is one such product for each axis. Its gradient is the product with the transposed matrix, so a gradient
is gathered too, and nothing is added in the order of arrival.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.function import Function
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module
from alpha.ops.kernel.arguments import NoImages, check_arguments, unchecked
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
from alpha.ops.kernel.kept_tables import kept
from alpha.ops.kernel.options import Lengths, integer, lengths, real
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, ScalarArg
from alpha.ops.pooling.adaptive_pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

__all__ = [
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
    "interpolate",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

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


# mode: (the interpolation along one axis, the numbers of axes that it has, align_corners has a meaning)
MODES: dict[str, tuple[str, tuple[int, ...], bool]] = {
    "nearest": ("nearest", (1, 2, 3), False),
    "nearest-exact": ("nearest-exact", (1, 2, 3), False),
    "area": ("area", (1, 2, 3), False),
    "linear": ("linear", (1,), True),
    "bilinear": ("linear", (2,), True),
    "trilinear": ("linear", (3,), True),
    "bicubic": ("cubic", (2,), True),
}
ANTIALIASED = ("bilinear", "bicubic")
AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
Scale = float | Sequence[float]


class Interpolate(Function):
    """Y = one interpolation after the other along the axes between   X (N, *I, C) -> Y (N, *O, C)"""

    def forward(self, X: Array, *, axes: Sequence[Resampling]) -> Array:
        self.axes = axes
        for axis, r in enumerate(axes, 1):
            X = _along(X, axis, r)
        return X

    def backward(self, dY: Array) -> Any:
        for axis, r in reversed(list(enumerate(self.axes, 1))):
            dY = _along(dY, axis, r._replace(transposed=True))
        return dY


def _along(X: Array, axis: int, r: Resampling) -> Array:
    if is_identity(r):
        return X
    before, after = tuple(X.shape[:axis]), tuple(X.shape[axis + 1 :])
    Y = resample_axis1(X.reshape((math.prod(before), X.shape[axis], math.prod(after))), r)
    return Y.reshape((*before, r.rows, *after))


def _factors(operator: str, scale_factor: Scale, rank: int) -> tuple[float, ...]:
    """A number for each axis, from one for all or one for each."""
    given = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) else (scale_factor,) * rank
    if len(given) != rank:
        raise ValueError(f"{operator}: scale_factor={scale_factor!r} is neither a number nor {rank} of them")
    factors = tuple([real(operator, "scale_factor", factor) for factor in given])
    if min(factors) <= 0:
        raise ValueError(f"{operator}: scale_factor={scale_factor!r} is not positive")
    return factors


def check_sizes(operator: str, size: Any, scale_factor: Any) -> None:
    """`ValueError` unless one of both is given."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"{operator}: size={size!r} and scale_factor={scale_factor!r}; one of them is needed, and the other is None"
        )


def check_mode(operator: str, mode: str, align_corners: bool | None) -> None:
    """`ValueError` for a mode that there is not, or for `align_corners` of a mode without it."""
    if mode not in MODES:
        raise ValueError(f"{operator}: mode={mode!r} is not one of {', '.join(MODES)}")
    if align_corners is not None and not MODES[mode][2]:
        raise ValueError(f"{operator}: align_corners={align_corners} has no meaning for mode={mode!r}")


@check_arguments
def interpolate(
    x: Tensor,
    size: Lengths | None = None,
    scale_factor: Scale | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Images sampled at other places   x (N, L, C), (N, H, W, C) or (N, D, H, W, C) -> (N, *size, C)

    One axis is interpolated after the other, so a bfloat16 result is rounded once for each axis.

    Args:
        size: the lengths of the axes between images and channels, or one number for all.
        scale_factor: instead of size; a length becomes floor(length scale_factor).
        mode: "nearest" (of whose places all are moved by half a pixel), "nearest-exact" and "area" (the mean of what an
            output covers) for any x; "linear" for (N, L, C), "bilinear" and "bicubic" for (N, H, W, C), "trilinear" for
            (N, D, H, W, C).
        align_corners: True: the first and the last output are the first and the last input. Otherwise the borders of
            the images meet. Only for linear and cubic modes; None is False.
        recompute_scale_factor: True: the distance between outputs follows from the two lengths, not from scale_factor.
        antialias: True: if the images become smaller, each output is the mean of all that it covers, weighted by the
            filter of the mode, as Pillow does. Only for "bilinear" and "bicubic".

    Raises:
        ShapeError: x has not the axes of the mode, or is or would be empty.
        ValueError: not one of size and scale_factor, or an argument has a value that is not offered.

    Examples:
        >>> import alpha
        >>> import alpha.nn.functional as F
        >>> F.interpolate(alpha.ones(1, 8, 8, 3), scale_factor=2).shape
        (1, 16, 16, 3)
    """
    if antialias and mode not in ANTIALIASED:
        raise ValueError(
            f"interpolate: antialias=True needs mode={' or '.join(map(repr, ANTIALIASED))}  (mode={mode!r})"
        )
    return _sampled("interpolate", x, size, scale_factor, mode, align_corners, recompute_scale_factor, bool(antialias))


@check_arguments
def upsample(
    x: Tensor,
    size: Lengths | None = None,
    scale_factor: Scale | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` without its last arguments   x (N, L, C), (N, H, W, C) or (N, D, H, W, C) -> (N, *size, C)"""
    return _sampled("upsample", x, size, scale_factor, mode, align_corners)


@check_arguments
def upsample_nearest(x: Tensor, size: Lengths | None = None, scale_factor: Scale | None = None) -> Tensor:
    """`interpolate` with mode="nearest"   x (N, L, C), (N, H, W, C) or (N, D, H, W, C) -> (N, *size, C)"""
    return _sampled("upsample_nearest", x, size, scale_factor, "nearest", None)


@check_arguments
def upsample_bilinear(x: Tensor, size: Lengths | None = None, scale_factor: Scale | None = None) -> Tensor:
    """`interpolate` with mode="bilinear" and align_corners=True   x (N, H, W, C) -> (N, *size, C)"""
    return _sampled("upsample_bilinear", x, size, scale_factor, "bilinear", True)


def _sampled(
    operator: str,
    x: Tensor,
    size: Lengths | None,
    scale_factor: Scale | None,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Result of `interpolate`, with the name of the operator in errors."""
    check_mode(operator, mode, align_corners)
    check_sizes(operator, size, scale_factor)
    kind, ranks, _ = MODES[mode]
    rank = x.ndim - 2
    if rank not in ranks:
        known = " or ".join(f"{n + 2}" for n in ranks)
        raise ShapeError(
            f"{operator}: mode={mode!r} needs x of {known} axes, images first and channels last  (x {x.shape})"
        )
    I = x.shape[1:-1]
    factors: Sequence[float | None] = (None,) * rank
    if scale_factor is not None:
        found = _factors(operator, scale_factor, rank)
        O = tuple([math.floor(n * factor) for n, factor in zip(I, found, strict=True)])
        factors = factors if recompute_scale_factor else found
    elif recompute_scale_factor:
        raise ValueError(f"{operator}: recompute_scale_factor=True needs scale_factor, and size is given")
    else:
        O = lengths(operator, "size", size, rank)  # type: ignore[arg-type]
    if min(*x.shape[1:], *O) < 1:
        raise ShapeError(f"{operator}: x {x.shape} to the lengths {O}: neither may be empty")
    if not x.shape[0]:
        return NoImages.apply(x, shape=(0, *O, x.shape[-1]))
    if kind == "area":
        return unchecked(AREA[rank])(x, O)
    corners = bool(align_corners)
    axes = []
    for i, o, factor in zip(I, O, factors, strict=True):
        distance = _distance(kind, i, o, None if corners else factor, corners, antialias)
        axes.append(Resampling(kind, i, o, distance, corners, antialias=antialias))
    return Interpolate.apply(x, axes=tuple(axes))


def _distance(kind: str, i: int, o: int, factor: float | None, align_corners: bool, antialias: bool) -> float:
    """The distance between two outputs, in inputs.

    As in PyTorch on the cpu, an axis that keeps its length, or is doubled by "nearest", is so whatever the factor is.
    """
    if align_corners:
        return (i - 1) / (o - 1) if o > 1 else 0.0
    whole = (o == i and (antialias or kind in ("nearest", "linear"))) or (o == 2 * i and kind == "nearest")
    return i / o if factor is None or whole else 1 / factor


def _each(value: Any, check: Callable[[Any], Any]) -> Any:
    """Result of `check` for a number, or for each of several; None for None."""
    if isinstance(value, (tuple, list)):
        return tuple([check(part) for part in value])
    return None if value is None else check(value)


class Upsample(Module):
    """Images sampled at other places, with `alpha.nn.functional.interpolate`   (N, *I, C) -> (N, *O, C)

    Args:
        size: the lengths of the axes between images and channels, or one number for all.
        scale_factor: instead of size.
        mode, align_corners, recompute_scale_factor: as of `interpolate`.
    """

    def __init__(
        self,
        size: Lengths | None = None,
        scale_factor: Scale | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        layer = type(self).__name__
        check_sizes(layer, size, scale_factor)
        check_mode(layer, mode, align_corners)
        self.size = _each(size, lambda n: integer(layer, "size", n))
        self.scale_factor = _each(scale_factor, lambda factor: real(layer, "scale_factor", factor))
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        own = self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        return interpolate(x, *own)

    def extra_repr(self) -> str:
        to = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        corners = "" if self.align_corners is None else f", align_corners={self.align_corners}"
        recompute = ", recompute_scale_factor=True" if self.recompute_scale_factor else ""
        return f"{to}, mode={self.mode!r}{corners}{recompute}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` with mode="nearest"   (N, H, W, C) -> (N, OH, OW, C)"""

    def __init__(self, size: Lengths | None = None, scale_factor: Scale | None = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` with mode="bilinear" and align_corners=True   (N, H, W, C) -> (N, OH, OW, C)"""

    def __init__(self, size: Lengths | None = None, scale_factor: Scale | None = None) -> None:
        super().__init__(size, scale_factor, "bilinear", align_corners=True)
