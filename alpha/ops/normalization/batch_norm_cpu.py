"""Batch normalisation by numpy; the contracts are in batch_norm_primitives.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from alpha.autograd.memory_mode import SMALLEST_WEIGHT
from alpha.core.numerics import BFLOAT16
from alpha.core.primitive import Array
from alpha.ops.conv2d.channel_statistics import ChannelStatistics, StatisticsArguments
from alpha.ops.kernel.casts import as_dtype, as_float32
from alpha.ops.kernel.elementwise import add
from alpha.ops.kernel.rectifier import GradientParts, KeptOutput, Rectified, RectifiedInput, Rectifier
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

ORIGIN_ROWS = 64  # of a chunk, about whose mean its sums are taken


@np.errstate(over="ignore", invalid="ignore")
def channel_statistics(
    X: Array,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: float,
    statistics: ChannelStatistics | None = None,
) -> tuple[Array, Array]:
    """Mean and variance, from chunks of rows that are merged in float64."""
    X = as_float32(_rows(X))
    R, C = X.shape
    grain = _grain(X)
    chunks = -(-R // grain)
    sums, squares = np.empty((chunks, C)), np.empty((chunks, C))

    def chunk(start: int, stop: int) -> None:
        # about a mean of some rows, so that nothing large cancels
        n, z = stop - start, start // grain
        ones = np.ones(n, X.dtype)
        some = X[start : min(stop, start + ORIGIN_ROWS)]
        origin = some[0] + (some - some[0]).mean(axis=0)  # of equal elements the element itself
        origin[~np.isfinite(origin)] = 0  # inf - inf would make a mean of inf NaN
        shifted = X[start:stop] - origin
        offset = (ones @ shifted).astype(np.float64)
        np.multiply(shifted, shifted, out=shifted)
        sums[z] = np.multiply(origin, n, dtype=np.float64) + offset
        squares[z] = ones @ shifted - offset * offset / n
        lost = np.isfinite(sums[z]) & ~np.isfinite(squares[z])
        if lost.any():  # squares that are too large for X's dtype
            squares[z, lost] = np.square(X[start:stop, lost] - sums[z, lost] / n).sum(axis=0)

    workers.parallel_for(R, grain, chunk, blas=True)
    # chunks of their own means merge in float64 (Chan, Golub & LeVeque 1983)
    counts = np.full((chunks, 1), float(grain))
    counts[-1] = R - grain * (chunks - 1)
    mean = sums.sum(axis=0) / R
    between = counts * (sums / counts - mean) ** 2
    total = np.maximum(squares.sum(axis=0) + between.sum(axis=0), 0)
    var = total / R
    if running_mean is not None and running_var is not None:
        for old, new in ((running_mean, mean), (running_var, total / max(1, R - 1))):
            # not as old + momentum (new - old), which is NaN if both are inf
            old[...] = (1 - momentum) * old.astype(np.float64) + momentum * new
    return mean.astype(X.dtype), var.astype(X.dtype)


def apply(
    X: Array,
    mean: Array,
    var: Array,
    weight: Array,
    bias: Array,
    eps: float,
    residual: Array | None = None,
    rectifier: Rectifier | None = None,
) -> Array:
    """Y, a chunk of rows at a time."""
    shape, dtype, X = X.shape, X.dtype, as_float32(_rows(X))
    scale = weight / np.sqrt(var + X.dtype.type(eps))
    Y = cpu_empty(X.shape, X.dtype)

    def chunk(start: int, stop: int) -> None:
        y = Y[start:stop]
        np.subtract(X[start:stop], mean, out=y)
        np.multiply(y, scale, out=y)
        np.add(y, bias, out=y)

    workers.parallel_for(X.shape[0], _grain(X), chunk)
    if residual is not None:
        Y = add(Y, as_float32(_rows(residual)), out=Y)
    if rectifier is not None:
        Y = rectifier.rectify(Y)
    return as_dtype(Y, dtype).reshape(shape)


def training(
    X: Array,
    wanted: StatisticsArguments,
    weight: Array,
    bias: Array,
    eps: float,
    residual: Array | None = None,
    rectifier: Rectifier | None = None,
    smallest: float = 0.0,
) -> tuple[Array, Array, Array]:
    """The statistics of X, and Y by them."""
    mean, var = channel_statistics(X, *wanted)
    return apply(X, mean, var, _away_from_0(weight, smallest), bias, eps, residual, rectifier), mean, var


def _away_from_0(weight: Array, smallest: float) -> Array:
    """Weights of at least `smallest` in magnitude, with their signs."""
    return np.where(np.abs(weight) < smallest, np.copysign(weight.dtype.type(smallest), weight), weight)


def gradients(
    dY: Array | GradientParts,
    X: Array | RectifiedInput,
    mean: Array,
    var: Array,
    weight: Array,
    eps: float,
    batch: bool,
    rectified: Rectified | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    """dX, dweight, dbias, by two passes over the rows; dZ."""
    X, behind = _input(X)
    shape, dtype, X, in_parts = X.shape, X.dtype, as_float32(_rows(X)), isinstance(dY, GradientParts)
    dZ, dY = dY, _sum(dY)
    if in_parts:
        dZ = as_dtype(dY, dtype).reshape(shape)
    if rectified is not None:
        held = rectified.Y
        Z = apply(X, mean, var, weight, rectified.bias, eps) if held is None else as_float32(_rows(held))
        dY = rectified.rectifier.gradient(dY, Z)
        dZ = None if held is None and not in_parts else as_dtype(dY, dtype).reshape(shape)
    rstd = 1 / np.sqrt(var + X.dtype.type(eps))
    dX, dw, db = _sums_and_dX(dY, lambda start, stop: X[start:stop] - mean, rstd, weight * rstd, batch)
    dX = dX if behind is None else behind.gradient(dX, X)
    return as_dtype(dX, dtype).reshape(shape), dw, db, dZ


def _sum(dY: Array | GradientParts) -> Array:
    """The gradient of the output, of one part or two, as rows of at least 32 bits   (R, C)"""
    parts = [as_float32(_rows(part)) for part in (dY if isinstance(dY, GradientParts) else (dY,))]
    return parts[0] if len(parts) == 1 else add(*parts)


def gradients_from_output(
    dY: Array | GradientParts, kept: KeptOutput, var: Array, weight: Array, bias: Array, eps: float
) -> tuple[Array, Array, Array, Array | None]:
    """The results of `gradients`, with X, normalised, from Y and the residual."""
    Y, residual, rectifier = kept
    shape, dtype = Y.shape, Y.dtype
    dZ = rectifier.gradient(_sum(dY), as_float32(_rows(Y)))
    found = _normalized(kept, weight, bias)
    scale = weight / np.sqrt(var + found.dtype.type(eps))
    dX, dw, db = _sums_and_dX(dZ, lambda start, stop: found[start:stop].copy(), np.ones_like(var), scale, True)
    asked = residual is not None or isinstance(dY, GradientParts)
    return as_dtype(dX, dtype).reshape(shape), dw, db, as_dtype(dZ, dtype).reshape(shape) if asked else None


def gradients_begun(
    dZ: Array,
    part: Array,
    kept: Array | RectifiedInput | KeptOutput,
    mean: Array,
    var: Array,
    weight: Array,
    bias: Array | None,
    eps: float,
) -> tuple[Array, Array, Array]:
    """The results of `gradients` without dZ, from that and the sums over parts of the rows."""
    shape, dtype, rows = dZ.shape, dZ.dtype, as_float32(_rows(dZ))
    db, moment = part.sum(axis=1)
    scale = weight / np.sqrt(var + rows.dtype.type(eps))
    if isinstance(kept, KeptOutput):
        X, behind = kept.Y, None
        centred, rstd = _normalized(kept, weight, bias), np.ones_like(var)
    else:
        X, behind = _input(kept)
        centred, rstd = as_float32(_rows(X)) - mean, 1 / np.sqrt(var + rows.dtype.type(eps))
    dw = moment * rstd
    dX = _input_gradient(rows, lambda start, stop: centred[start:stop].copy(), _Tilt.of(scale, rstd, dw, db, len(rows)))
    dX = dX if behind is None else behind.gradient(dX, as_float32(_rows(X)))
    return as_dtype(dX, dtype).reshape(shape), dw.astype(var.dtype), db.astype(var.dtype)


def _input(X: Array | RectifiedInput) -> tuple[Array, Rectifier | None]:
    """X, and the rectifier that has made it, if there is one."""
    return X if isinstance(X, RectifiedInput) else (X, None)


def _normalized(kept: KeptOutput, weight: Array, bias: Array | None) -> Array:
    """(X - mean) / sqrt(var + eps), a new array of at least 32 bits   (R, C)"""
    Y, residual, rectifier = kept
    found = rectifier.undo(as_float32(_rows(Y)))
    if residual is not None:
        np.subtract(found, as_float32(_rows(residual)), out=found)
    assert bias is not None
    np.subtract(found, bias, out=found)
    weight = _away_from_0(weight, SMALLEST_WEIGHT)
    if Y.dtype == BFLOAT16:  # the rounding error of the bias counts as noise, see cuda/batchnorm/normalize.cuh
        return np.multiply(found, weight / (weight * weight + np.square(bias * 2.0**-9)), out=found)
    return np.divide(found, weight, out=found)


def _sums_and_dX(
    dY: Array, centred_rows: Callable[[int, int], Array], rstd: Array, a: Array, batch: bool
) -> tuple[Array, Array, Array]:
    """dX, dweight, dbias

    Args:
        centred_rows: a new array of some rows of X - mean, or of something else that has the unit 1 / rstd.
        a: weight / sqrt(var + eps)
    """
    R, C = dY.shape
    if dY.size == 0:
        return np.zeros_like(dY), np.zeros_like(a), np.zeros_like(a)
    grain = _grain(dY)
    parts = np.empty((2, -(-R // grain), C))

    def sums(start: int, stop: int) -> None:
        dy, z = dY[start:stop], start // grain
        ones = np.ones(stop - start, dY.dtype)
        parts[0, z] = ones @ dy
        centred = centred_rows(start, stop)
        np.multiply(centred, dy, out=centred)
        parts[1, z] = ones @ centred

    workers.parallel_for(R, grain, sums, blas=True)
    db, moment = parts.sum(axis=1)  # moment: sum of dY (X - mean)
    dw = moment * rstd
    dX = _input_gradient(dY, centred_rows, _Tilt.of(a, rstd, dw, db, R if batch else 0))
    return dX, dw.astype(dY.dtype), db.astype(dY.dtype)


class _Tilt(NamedTuple):
    """dX = a dY + slope (X - mean) + shift; slope and shift are None if mean and var are not those of the batch."""

    a: Array
    slope: Array | None = None
    shift: Array | None = None

    @classmethod
    def of(cls, a: Array, rstd: Array, dw: Array, db: Array, R: int) -> _Tilt:
        """dX = a (dY - db / R - (X - mean) rstd dw / R), or without the last two terms if R is 0."""
        if R == 0:
            return cls(a)
        return cls(a, (-a * (rstd * dw / R)).astype(a.dtype), (-a * db / R).astype(a.dtype))


def _input_gradient(dY: Array, centred_rows: Callable[[int, int], Array], tilt: _Tilt) -> Array:
    """dX   dY (R, C) -> (R, C)"""
    dX = cpu_empty(dY.shape, dY.dtype)

    def chunk(start: int, stop: int) -> None:
        dx = dX[start:stop]
        np.multiply(dY[start:stop], tilt.a, out=dx)
        if tilt.slope is not None and tilt.shift is not None:
            through = centred_rows(start, stop)
            np.multiply(through, tilt.slope, out=through)
            np.add(through, tilt.shift, out=through)
            np.add(dx, through, out=dx)

    workers.parallel_for(len(dY), _grain(dY), chunk)
    return dX


def _rows(X: Array) -> Array:
    """X (..., C) -> (R, C)"""
    return X.reshape(-1 if X.size else 0, X.shape[-1])


def _grain(X: Array) -> int:
    row = int(X.shape[1]) * int(X.itemsize)
    return max(1, workers.CHUNK_BYTES // max(1, row))
