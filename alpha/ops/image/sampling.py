"""Images read between their pixels, at places that an array says: the primitives of `grid_sample` and its gradients.

A sample is a sum over taps, the pixels around its place. The weight of a tap is a product of one weight per axis, so
each axis has its own taps: one for "nearest", two for "linear" and four for "cubic".
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from alpha.core.primitive import Array, primitive
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
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan

INT64 = np.dtype(np.int64)
MODES = ("nearest", "linear", "cubic")
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}  # of an axis
PADDING_MODES = ("zeros", "border", "reflection")
_OUTSIDE = -100.0  # where a place goes that is no finite number of pixels


class Sampling(NamedTuple):
    """Options by which places of an image become numbers.

    Attributes:
        mode: one of MODES.
        padding_mode: what is outside of an image: zeros, its nearest pixel, or the image reflected at its edges.
        align_corners: -1 and 1 are the centres of the first and the last pixel; otherwise they are the outer edges.
    """

    mode: str
    padding_mode: str
    align_corners: bool


@primitive
def sample(X: Array, G: Array, how: Sampling) -> Array:
    """Y[n, o] = X[n] at the place G[n, o]   X (N, *I, C), G (N, *O, rank) -> Y (N, *O, C)

    G has the dtype of X, or float32 if X is bfloat16. Its last axis counts the axes of an image from the last one, as
    in PyTorch: (x, y) or (x, y, z), each between -1 and 1 within the image.
    """


@primitive
def sample_slopes(dY: Array, X: Array, G: Array, how: Sampling) -> Array:
    """dG[n, o] = sum over c of dY[n, o, c] times the slope of X[n, .., c] at the place   -> dG, the shape of G"""


@primitive
def sample_taps(dY: Array, G: Array, I: tuple[int, ...], how: Sampling) -> tuple[Array, Array]:
    """(F, R): which pixels a sample is made of, and what each of them gets from dY   I, the lengths of an image

    dY (N, *O, C), G (N, *O, rank) -> F (T,) of int64, R (T, C), T = N O taps. Tap t is pixel F_t of the N images, in
    one row, or none if F_t is -1; R_t is its weight times dY. R has the dtype of G.
    """


class AxisTap(NamedTuple):
    """One tap of an axis for all samples: its pixel, -1 if that is outside, its weight, and the slope of the weight."""

    place: Array
    weight: Array
    slope: Array


def _axis_taps(g: Array, I: int, how: Sampling) -> list[AxisTap]:
    """The taps of all samples along an axis of I pixels, from their coordinates."""
    one, two, length = map(g.dtype.type, (1, 2, I))
    p = (g + one) / two * (length - one) if how.align_corners else ((g + one) * length - one) / two
    slope = np.full_like(p, (length - one if how.align_corners else length) / two)
    if how.mode == "cubic":
        low = np.floor(p)
        part = p - low
        taps = []
        for k in range(-1, 3):
            weight, change = _cubic(part - k)
            taps.append(AxisTap(_inside(_padded(low + k, I, how)[0], I), weight, change * slope))
        return taps
    p, sign = _padded(p, I, how)
    slope = slope * sign
    if how.mode == "nearest":
        return [AxisTap(_inside(np.rint(p), I), np.ones_like(p), np.zeros_like(p))]
    low = np.floor(p)
    part = p - low
    return [AxisTap(_inside(low, I), one - part, -slope), AxisTap(_inside(low + 1, I), part, slope)]


def _padded(p: Array, I: int, how: Sampling) -> tuple[Array, Array]:
    """(where p is after padding, 1, -1 or 0: how it moves with p); a p that is not finite is outside."""
    kind, sign = p.dtype.type, np.ones_like(p)
    if how.padding_mode == "reflection":
        first, length = (0.0, I - 1.0) if how.align_corners else (-0.5, float(I))
        if length == 0:
            p, sign = np.zeros_like(p), np.zeros_like(p)
        else:
            distance = np.abs(p - kind(first))
            turns = np.floor(distance / kind(length))
            rest, back = distance - turns * kind(length), np.floor(turns / kind(2)) * kind(2) != turns
            sign = np.where(p < first, -sign, sign) * np.where(back, kind(-1), kind(1))
            p = np.where(back, kind(length) - rest, rest) + kind(first)
    if how.padding_mode != "zeros":
        sign = np.where((p > 0) & (p < I - 1), sign, kind(0))
        p = np.clip(p, kind(0), kind(I - 1))
    return np.where(np.abs(p) < 2.0**31 - 256, p, kind(_OUTSIDE)), sign


def _inside(place: Array, I: int) -> Array:
    """Whole numbers, -1 where there is no such pixel."""
    return np.where((place >= 0) & (place < I), place, -1).astype(np.int64)


def _cubic(distance: Array, a: float = -0.75) -> tuple[Array, Array]:
    """Keys' cubic of a signed distance below 2, and its slope."""
    d, sign = np.abs(distance), np.sign(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1, (3 * (a + 2) * d - 2 * (a + 3)) * d
    far = ((d - 5) * d + 8) * d * a - 4 * a, ((3 * d - 10) * d + 8) * a
    weight, slope = (np.where(d <= 1, n, f) for n, f in zip(near, far, strict=True))
    return weight.astype(distance.dtype), (slope * sign).astype(distance.dtype)


def _taps(G: Array, I: tuple[int, ...], how: Sampling) -> Iterator[tuple[Array, tuple[AxisTap, ...]]]:
    """(F, its parts along each axis) of each tap of all samples; F (N, *O) is the pixel among all images, or -1"""
    rank = len(I)
    images = np.arange(G.shape[0]).reshape(-1, *(1,) * rank)
    axes = [_axis_taps(G[..., rank - 1 - axis], I[axis], how) for axis in range(rank)]
    for parts in itertools.product(*axes):
        F, outside = images, np.zeros((), bool)
        for length, part in zip(I, parts, strict=True):
            F, outside = F * length + part.place, outside | (part.place < 0)
        yield np.where(outside, -1, F), parts


def _flat(X: Array, rank: int) -> Array:
    """The pixels of all images   (N, *I, C) -> (N I, C)"""
    wide: Array = as_float32(X)
    return wide.reshape(math.prod(X.shape[: rank + 1]), X.shape[-1])


@sample.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, G: Array, how: Sampling) -> Array:
    I = X.shape[1:-1]
    pixels = _flat(X, len(I))
    Y = np.zeros((*G.shape[:-1], X.shape[-1]), pixels.dtype)
    for F, parts in _taps(G, I, how):
        inside = F >= 0
        weight = functools.reduce(np.multiply, [part.weight for part in parts])[inside]
        Y[inside] += weight[:, None] * pixels[F[inside]]
    return as_dtype(Y, X.dtype)


@sample_slopes.impl("cpu")
@np.errstate(all="ignore")
def _(dY: Array, X: Array, G: Array, how: Sampling) -> Array:
    I, wide = X.shape[1:-1], as_float32(dY)
    pixels, dG = _flat(X, len(I)), np.zeros_like(G)
    for F, parts in _taps(G, I, how):
        inside = F >= 0
        product = np.einsum("mc,mc->m", wide[inside], pixels[F[inside]])
        for axis in range(len(I)):
            factors = [part.slope if a == axis else part.weight for a, part in enumerate(parts)]
            dG[inside, len(I) - 1 - axis] += product * functools.reduce(np.multiply, factors)[inside]
    return dG


@sample_taps.impl("cpu")
@np.errstate(all="ignore")
def _(dY: Array, G: Array, I: tuple[int, ...], how: Sampling) -> tuple[Array, Array]:
    wide, places, rows = as_float32(dY), [], []
    for F, parts in _taps(G, I, how):
        weight = functools.reduce(np.multiply, [part.weight for part in parts])
        places.append(F.reshape(-1))
        rows.append((weight[..., None] * wide).reshape(F.size, -1))
    return np.concatenate(places), np.concatenate(rows)


class Sizes(NamedTuple):
    """N images of the lengths I and C channels, and M samples in all of them."""

    N: int
    I: tuple[int, ...]
    C: int
    M: int

    @classmethod
    def of(cls, G: Array, I: tuple[int, ...], C: int) -> Sizes:
        return cls(G.shape[0], tuple(I), C, math.prod(G.shape[:-1]))


@sample.impl("cuda")
def _(X: Array, G: Array, how: Sampling) -> Array:
    sizes = Sizes.of(G, X.shape[1:-1], X.shape[-1])
    vector = vector_width(X, along=sizes.C)
    Y = _plan("sample", sizes, X.dtype, how, vector).launch(X.device, {"X": X, "G": G})["Y"]
    return Y.reshape((*G.shape[:-1], X.shape[-1]))


@sample_slopes.impl("cuda")
def _(dY: Array, X: Array, G: Array, how: Sampling) -> Array:
    sizes = Sizes.of(G, X.shape[1:-1], X.shape[-1])
    vector = vector_width(X, dY, along=sizes.C)
    dG = _plan("sample_slopes", sizes, X.dtype, how, vector).launch(X.device, {"dY": dY, "X": X, "G": G})["dG"]
    return dG.reshape(tuple(G.shape))


@sample_taps.impl("cuda")
def _(dY: Array, G: Array, I: tuple[int, ...], how: Sampling) -> tuple[Array, Array]:
    sizes, vector = Sizes.of(G, I, dY.shape[-1]), vector_width(dY, along=dY.shape[-1])
    made = _plan("sample_taps", sizes, dY.dtype, how, vector).launch(dY.device, {"dY": dY, "G": G})
    return made["F"], made["R"]


@functools.lru_cache(maxsize=1024)
def _plan(entry: str, sizes: Sizes, dtype: DType, how: Sampling, vector: int) -> Plan:
    rank, number = len(sizes.I), np.dtype(NUMBER_TYPES[dtype])
    taps, packs, lanes = TAPS[how.mode] ** rank, sizes.C // vector, 1
    arrays: tuple[str, ...]
    if entry == "sample":
        outputs, arrays = {"Y": Buffer((sizes.M, sizes.C), dtype)}, ("Y", "X", "G")
    elif entry == "sample_slopes":
        outputs, arrays = {"dG": Buffer((sizes.M, rank), number)}, ("dG", "dY", "X", "G")
        lanes = min(32, 1 << (packs - 1).bit_length())
    else:
        outputs = {"F": Buffer((taps * sizes.M,), INT64), "R": Buffer((taps * sizes.M, sizes.C), number)}
        arrays = "F", "R", "dY", "G"
    threads = sizes.M * (lanes if entry == "sample_slopes" else packs)
    I = (*(1,) * (3 - rank), *sizes.I)
    launch = KernelLaunch(
        "resample/sample.cu",
        entry,
        -(-threads // BLOCK),
        BLOCK,
        (*map(ArrayArg, arrays), np.int64(sizes.M), np.int64(sizes.M // sizes.N), *I, sizes.C),
        {
            "TYPE": CUDA_TYPES[dtype],
            "VECTOR": vector,
            "RANK": rank,
            "MODE": MODES.index(how.mode),
            "PADDING": PADDING_MODES.index(how.padding_mode),
            "ALIGN_CORNERS": int(how.align_corners),
            "LANES": lanes,
            "INDEX": stream_grid(max(taps * sizes.M, sizes.N * math.prod(sizes.I)) * sizes.C, vector)[1]["INDEX"],
        },
    )
    return Plan(f"{entry} {how.mode}", (launch,), outputs)
