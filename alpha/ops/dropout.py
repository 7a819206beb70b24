"""Dropout: the mask is drawn again from its random stream in the backward pass, so it costs no memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import rng
from alpha.autograd import Function
from alpha.ops.dtypes import BLOCK, CUDA_TYPES, as_dtype, as_float32, number, vector_width
from alpha.primitive import Array, primitive
from alpha.tensor import Tensor


@primitive
def dropout_apply(X: Array, key: int, stream: int, p: float) -> Array:
    """Y = X / (1 - p) where the stream's uniform number is >= p, else 0   X (...) -> Y (...)"""


@dropout_apply.impl("cpu")
def _(X: Array, key: int, stream: int, p: float) -> Array:
    words = rng.philox(key, stream, -(-X.size // 4)).reshape(-1)[: X.size]
    kept = (words >= _threshold(p)).reshape(X.shape)
    Y: Array = as_float32(X)
    Y = Y * Y.dtype.type(1.0 / (1.0 - p))
    Y[~kept] = 0
    return as_dtype(Y, X.dtype)


@dropout_apply.impl("cuda")
def _(X: Array, key: int, stream: int, p: float) -> Array:
    Y = X.device.empty(X.shape, X.dtype)
    if X.size:
        X.device.launch(
            "dropout/dropout.cu",
            "dropout",
            -(-X.size // (4 * BLOCK)),
            BLOCK,
            (
                Y,
                X,
                np.int64(X.size),
                np.uint64(key),
                np.uint64(stream),
                _threshold(p),
                number(X.dtype)(1.0 / (1.0 - p)),
            ),
            {"TYPE": CUDA_TYPES[X.dtype], "VECTOR": min(4, vector_width(X, Y))},
        )
    return Y


def _threshold(p: float) -> np.uint32:
    """Words below it are dropped."""
    return np.uint32(min(0xFFFFFFFF, round(p * 2**32)))


class Dropout(Function):
    """Y = X mask / (1 - p)   X (...) -> Y (...)"""

    def forward(self, *arrays: Array, **options: Any) -> Array:
        self.p = options["p"]
        self.key, self.stream = rng.default.next_stream()
        return dropout_apply(arrays[0], self.key, self.stream, self.p)

    def backward(self, dY: Array) -> Any:
        return dropout_apply(dY, self.key, self.stream, self.p)


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p)   x (...) -> (...)

    Raises:
        ValueError: p is not in [0, 1).
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p={p} is not in [0, 1)")
    return Dropout.apply(x, p=float(p)) if training and p > 0 else x
