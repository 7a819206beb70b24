"""Norm of many gradients, and limits for them, each in one launch for all."""

from __future__ import annotations

import math

import numpy as np

from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array, primitive
from alpha.ops.kernel.tables.chunk_tables import chunk_table
from alpha.ops.kernel.tables.multi_tensor import in_chunks


@primitive
def gradient_norm(gradients: list[Array], p: float) -> Array:
    """The p-norm of all elements of all arrays, () of their dtype; p > 0, and an infinite p is the largest magnitude"""


@primitive
def clip_gradients(gradients: list[Array], norm: Array | None, most: float, bound: float) -> None:
    """G = G min(1, most / (norm + 1e-6)), without a norm G, and then limited to [-bound, bound], in place; norm ()"""


@gradient_norm.impl("cpu")
@np.errstate(all="ignore")
def _(gradients: list[Array], p: float) -> Array:
    parts: list[list[np.float64]] = [[] for _ in gradients]

    def add(part: list[np.float64], g: Array) -> None:
        size = np.abs(g, dtype=np.float64)
        part.append(size.max(initial=0) if math.isinf(p) else (size**p).sum())

    for part, gradient in zip(parts, gradients, strict=True):
        flat = gradient.reshape(-1)
        for start in range(0, flat.size, 1 << 16):
            add(part, flat[start : start + (1 << 16)])
    values = np.array([value for part in parts for value in part], np.float64)
    norm = values.max(initial=0) if math.isinf(p) else values.sum() ** (1 / p)
    return np.asarray(norm, np.result_type(*gradients))


@clip_gradients.impl("cpu")
@np.errstate(all="ignore")
def _(gradients: list[Array], norm: Array | None, most: float, bound: float) -> None:
    factor = 1.0 if norm is None else np.minimum(most / (norm + norm.dtype.type(1e-6)), 1)

    def clip(g: Array) -> None:
        if norm is not None:
            g *= g.dtype.type(factor)
        if not math.isinf(bound):
            np.clip(g, -bound, bound, out=g)

    in_chunks([gradients], clip)


@gradient_norm.impl("cuda")
def _(gradients: list[Array], p: float) -> Array:
    table, chunks = chunk_table([gradients], "clip_grad_norm_")
    device = table.device
    parts, norm = device.empty(max(1, chunks), np.float64), device.empty((), FLOAT32)
    if chunks:
        device.launch("optimizer/clip.cu", "norms", chunks, 256, (parts, table, np.float32(p)))
    device.launch("optimizer/clip.cu", "total_norm", 1, 256, (norm, parts, chunks, np.float32(p)))
    return norm


@clip_gradients.impl("cuda")
def _(gradients: list[Array], norm: Array | None, most: float, bound: float) -> None:
    table, chunks = chunk_table([gradients], "clip_grad_norm_")
    if chunks:
        arguments = (table, norm, np.float32(most), np.float32(bound))
        table.device.launch("optimizer/clip.cu", "clip", chunks, 256, arguments)
