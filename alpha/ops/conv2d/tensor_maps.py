"""Tensor maps (TMA descriptors) of the operands of the Hopper convolution kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alpha.core.primitive import Array
from alpha.ops.kernel.plan import TensorMaps
from alpha.runtime.cuda.tensor_map_cache import TensorMap

Box = tuple[int, ...]


def _element(A: Array) -> str:
    return "float32" if A.dtype == np.float32 else "uint16"


def map_images(
    name: str, shape: Box, step: int, phases: Box, boxes: tuple[Box, ...], terms: tuple[int, ...] = ()
) -> TensorMaps:
    """Tensor maps of A ([terms,] *shape) as (C, N, W / step, H[, terms]), one for each phase of the columns.

    Phase p has the columns p, p + step, and so on.

    Args:
        shape: (N, H, W, C) as the kernel sees it; the array may have other axes with the same elements.
        terms: (the number of terms,) of an array that has an axis of them.
    """
    N, H, W, C = shape

    def encode(A: Array) -> Iterator[TensorMap]:
        item = A.dtype.itemsize
        strides: Box = (H * W * C * item, step * C * item, W * C * item)
        if terms:
            strides = (*strides, N * H * W * C * item)
        for phase, box in zip(phases, boxes, strict=True):
            dims = (C, N, -(-(W - phase) // step), H, *terms)
            yield _element(A), A.address + phase * C * item, dims, strides, box

    return TensorMaps(name, ("images", shape, step, phases, boxes, terms), encode)


def map_filters(name: str, box: Box) -> TensorMaps:
    """The tensor map of filters P ([terms,] taps, GN, K) as (K, taps, GN, terms)."""

    def encode(P: Array) -> Iterator[TensorMap]:
        terms, taps, GN, K = P.shape if P.ndim == 4 else (1, *P.shape)
        item = P.dtype.itemsize
        strides = (GN * K * item, K * item, taps * GN * K * item)
        yield _element(P), P.address, (K, taps, GN, terms), strides, box

    return TensorMaps(name, ("filters", box), encode)


def map_weight(shape: Box, box: Box) -> TensorMaps:
    """The tensor map of W (OC, FH, FW, IC), its shape as the kernel sees it, as (IC, taps, OC, 1)."""
    OC, FH, FW, IC = shape

    def encode(W: Array) -> Iterator[TensorMap]:
        item = W.dtype.itemsize
        strides = (IC * item, FH * FW * IC * item, OC * FH * FW * IC * item)
        yield _element(W), W.address, (IC, FH * FW, OC, 1), strides, box

    return TensorMaps("W", ("weight", shape, box), encode)
