"""Sums in float64 of floats or of their squares, which no float32 number makes infinite or 0."""

from __future__ import annotations

import numpy as np

from alpha.core.primitive import Array, primitive
from alpha.ops.kernel.casts import as_float32, vector_width
from alpha.ops.kernel.sums import FLOAT64, neighbours, plan_sum, sum_axes


@primitive
def wide_sum_axis1(X: Array, squared: bool) -> Array:
    """Y = sum over the middle axis of X or of X^2, in float64, in which the squares of float32 numbers are exact

    X (A, R, B) of floats -> Y (A, B) of float64
    """


@wide_sum_axis1.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, squared: bool) -> Array:
    X = as_float32(X)
    terms = np.square(X, dtype=np.float64) if squared else X
    return terms.sum(axis=1, dtype=np.float64)


@wide_sum_axis1.impl("cuda")
def _(X: Array, squared: bool) -> Array:
    A, R, B = X.shape
    if X.size == 0:
        return X.device.zeros((A, B), FLOAT64)
    vector = min(4, vector_width(X, along=neighbours(A, R, B)))  # eight sums of doubles do not fit the registers
    plan = plan_sum(A, R, B, X.dtype, vector, X.device.properties.num_sms, squared)
    return plan.launch(X.device, {"X": X})["Y"]


def wide_sum_axes(X: Array, axes: tuple[int, ...], squared: bool = False) -> Array:
    """Sum of X or X^2 over axes, which stay as length 1, in float64   X (D0, .., Dk) -> Y with D = 1 at `axes`"""
    if not axes:
        return wide_sum_axis1(X.reshape((1, 1, X.size)), squared).reshape(tuple(X.shape))
    return sum_axes(X, axes, lambda array: wide_sum_axis1(array, squared))
