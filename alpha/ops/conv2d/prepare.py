"""Preparation of operands: split and transposed filters, tensor maps, fp16 terms, padded channels.

Tensor cores and TMA read rows of whole packs of channels (`Configuration.pack`). For other numbers the operands are
copied with zeros behind the channels that the kernel sums over, which change no result. Channels that are a part of the
result are padded only if the kernel asks for it, too; the result is then copied without them. The copies cost less than
a kernel without tensor cores, and the model of time counts them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

import numpy as np

from alpha.core.primitive import Array
from alpha.ops.conv2d.partial_sums import tiles_of
from alpha.ops.conv2d.problem import FORWARD, INPUT, OPERANDS, RESULT, WEIGHT, Configuration, ConvProblem, Given, Target
from alpha.ops.conv2d.shape import ConvShape, as_axes_struct, ndim
from alpha.ops.kernel.casts import BLOCK, storage_type
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, TensorMaps
from alpha.runtime.cuda.tensor_map import TensorMap

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


FP16 = np.dtype(np.uint16)  # the bits of an fp16 term
IN_FP16 = {name: f"{name} in fp16" for name in ("X", "W", "dY")}  # names of the operands' fp16 terms
TILE_GN = 16  # rows of a tile that split_filter_terms transposes


def split_filter(p: ConvProblem) -> tuple[KernelLaunch, Buffer]:
    """Stage 1 of KS-deconv: filters split by residue, rotated, OC contiguous   W -> C (FD FH FW, IC, OC), W's dtype"""
    s = p.shape
    grid = (tiles_of((s.IC, 32)), tiles_of((s.OC, 32)), s.taps)
    launch = KernelLaunch(
        "conv2d/ks_deconv/split_filter.cu",
        "split_filter",
        grid,
        (32, 8),
        (ArrayArg("C"), ArrayArg("W"), as_axes_struct(s)),
        {"TYPE": storage_type(p.dtype), "NDIM": ndim(s)},
    )
    return launch, Buffer((s.taps, s.IC, s.OC), p.dtype)


def filter_terms(
    entry: str, s: ConvShape, channels: tuple[int, int], terms: int, ordered: bool = True
) -> tuple[KernelLaunch, Buffer]:
    """Filters as fp16 terms   W -> P (terms, FD FH FW, GN, Kp), with (GN, K) = `channels` and Kp = K rounded up to 64

    Args:
        entry: "filter_terms" for ConvV2, "split_filter_terms" for the split filters of KS-deconv.
        ordered: whether K lies in the order in which threads hold the floats of the other operand.
    """
    GN, K = channels
    Kp = -(-K // 64) * 64
    arguments = ArrayArg("P"), ArrayArg("W"), ArrayArg("absmax_b"), as_axes_struct(s), Kp
    source, macros = "conv2d/prepare/filter_terms.cu", {"TERMS": terms, "NDIM": ndim(s), "ORDERED": int(ordered)}
    if entry == "filter_terms":
        grid = -(-s.taps * GN * Kp // (8 * BLOCK))
        launch = KernelLaunch(source, entry, grid, BLOCK, (*arguments, s.taps), macros)
    else:
        launch = KernelLaunch(source, entry, (-(-GN // TILE_GN), Kp // 64, s.taps), (32, 8), arguments, macros)
    return launch, Buffer((terms, s.taps, GN, Kp), FP16)


def fp16_terms(p: ConvProblem, number: int, terms: int) -> tuple[tuple[KernelLaunch, ...], dict[str, Buffer]]:
    """The launch that makes operand `number` as fp16 terms, and these; neither if the operand came with them.

    A (..) -> A in fp16 (terms, ..)
    """
    if terms == 1 and p.known[number] >= Given.HALF:
        return (), {}
    name = OPERANDS[p.operator][number]
    shape = p.sizes(name)
    size = prod(shape)
    launch = KernelLaunch(
        "conv2d/prepare/activation_terms.cu",
        "activation_terms",
        -(-size // 1024),
        256,
        (ArrayArg(IN_FP16[name]), ArrayArg(name), ArrayArg(("absmax_a", "absmax_b")[number]), np.int64(size // 4)),
        {"TERMS": terms},
    )
    return (launch,), {IN_FP16[name]: Buffer((terms, *shape), FP16)}


# the channels over which an operator sums, or of which the gradient of a filter has rows and columns
_READ = {FORWARD: ("IC",), INPUT: ("OC",), WEIGHT: ("IC", "OC")}
_WORDS = {2: "unsigned short", 4: "unsigned"}

Sizes = tuple[int, ...]


@functools.lru_cache(maxsize=1 << 14)
def shape_for(v: Configuration, s: ConvShape, target: Target) -> ConvShape | None:
    """The shape that the kernels of a configuration compute for `s`: itself, or with padded channels; None: neither."""
    if v.supports(s, target):
        return s
    if v.pack == 1:
        return None
    for channels in (_READ[v.operator], ("IC", "OC")):
        wider = replace(s, **{name: -(-getattr(s, name) // v.pack) * v.pack for name in channels})
        if v.supports(wider, target):
            return wider
    return None


def resized(operator: str, s: ConvShape, used: ConvShape) -> Mapping[str, tuple[Sizes, Sizes]]:
    """The arrays of an operator whose sizes differ between both shapes: the sizes for `s`, and those for `used`."""
    names = (*OPERANDS[operator], RESULT[operator])
    sizes = {name: tuple([getattr(shape, name.removeprefix("d")) for shape in (s, used)]) for name in names}
    return {name: both for name, both in sizes.items() if both[0] != both[1]}


def resize(source: str, result: str, sizes: tuple[Sizes, Sizes], dtype: np.dtype[np.generic]) -> KernelLaunch:
    """The launch that copies `source` into `result`: with zeros where only `result` has elements.

    Args:
        sizes: of both arrays, which differ in their first or last axis.
    """
    (*_, XC), (*_, YC) = sizes
    elements = prod(sizes[1])
    vector = 16 // dtype.itemsize if YC % (16 // dtype.itemsize) == 0 else 1
    index = "unsigned" if max(map(prod, sizes)) < 1 << 31 else "unsigned long long"
    packs = elements // vector
    return KernelLaunch(
        "layout/resize_rows.cu",
        "resize_rows",
        -(-packs // BLOCK),
        BLOCK,
        (ArrayArg(result), ArrayArg(source), np.int64(packs), np.int64(prod(sizes[0]) // XC), XC, YC),
        {"WORD": _WORDS[dtype.itemsize], "VECTOR": vector, "INDEX": index},
    )
