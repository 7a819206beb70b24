"""ONNX's Resize: maps made larger or smaller by its rules of places and of rounding, channels last."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.core.tensor import Tensor
from alpha.nn import functional as F
from alpha.ops.image.interpolate import MODES, Interpolate
from alpha.ops.image.resampling import Resampling, sparse

FLOAT = np.float32  # in which ONNX has the factors, and onnxruntime computes places and lengths

# the place in the input of an output: of its number, the factor, and the lengths of the input and of the result
PLACES: dict[str, Callable[[Any, Any, int, int], Any]] = {
    "asymmetric": lambda out, factor, I, O: out / factor,
    "half_pixel": lambda out, factor, I, O: (out + FLOAT(0.5)) / factor - FLOAT(0.5),
    "pytorch_half_pixel": lambda out, factor, I, O: (out + FLOAT(0.5)) / factor - FLOAT(0.5) if O > 1 else 0 * out,
    "align_corners": lambda out, factor, I, O: out * FLOAT(I - 1) / FLOAT(max(O - 1, 1)),
}
# the input that is nearest to a place; "simple" is that of files before opset 11
ROUNDINGS: dict[str, Callable[[Any, Any], Any]] = {
    "round_prefer_floor": lambda place, factor: np.ceil(place - FLOAT(0.5)),
    "round_prefer_ceil": lambda place, factor: np.floor(place + FLOAT(0.5)),
    "floor": lambda place, factor: np.floor(place),
    "ceil": lambda place, factor: np.ceil(place),
    "simple": lambda place, factor: np.ceil(place) if factor < 1 else np.floor(place),
}


def resized(
    x: Tensor,
    *,
    size: tuple[int, ...] | None,
    factor: tuple[float, ...] | None,
    mode: str,
    align_corners: bool | None,
    how: str = "asymmetric",
    rounding: str = "floor",
) -> Tensor:
    """Maps resized to lengths or, by ONNX's places, by factors   x (N, *I, C) -> (N, *O, C)

    Args:
        size, factor: one of them for each axis, the other is None.
        mode: as of `interpolate`.
        how, rounding: a name of PLACES and, for "nearest", of ROUNDINGS.
    """
    I = x.shape[1:-1]
    factors = (
        [FLOAT(f) for f in factor] if factor else [FLOAT(o) / FLOAT(i) for i, o in zip(I, size or (), strict=True)]
    )
    O = size or tuple(int(FLOAT(i) * f) for i, f in zip(I, factors, strict=True))
    if I == O and factor and MODES[mode][0] != "cubic":  # which onnxruntime and PyTorch leave as it is
        return x
    if not len(x) or min(O) < 1:
        return F.interpolate(x, size=O, mode=mode, align_corners=align_corners)
    axes = []
    for axis, (i, o, f) in enumerate(zip(I, O, factors, strict=True), 1):
        distance = i / o if factor is None else 1 / float(f)
        if mode == "nearest":
            found = _nearest(how, rounding, i, o, float(f))
            if found is not None:
                x, i = x[(*[slice(None)] * axis, list(found))], o
            distance = i / o
        elif align_corners:
            distance = (i - 1) / (o - 1) if o > 1 else 0.0
        elif how == "pytorch_half_pixel" and o == 1:  # whose only place is the first input
            x, i, distance = x[(*[slice(None)] * axis, slice(0, 1))], 1, 1.0
        axes.append(Resampling(MODES[mode][0], i, o, distance, bool(align_corners)))
    return Interpolate.apply(x, axes=tuple(axes))


@functools.lru_cache(maxsize=1024)
def _nearest(how: str, rounding: str, I: int, O: int, factor: float) -> tuple[int, ...] | None:
    """Inputs that are nearest to the outputs of an axis; None if they are those of `interpolate`."""
    place = PLACES[how](np.arange(O, dtype=FLOAT), FLOAT(factor), I, O)
    found = np.clip(ROUNDINGS[rounding](place, factor).astype(np.int64), 0, I - 1)
    usual = sparse(Resampling("nearest", I, O, I / O), np.dtype(FLOAT)).places
    return None if np.array_equal(found, usual) else tuple(found.tolist())
