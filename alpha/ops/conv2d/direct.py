"""Plans of the direct kernels for few input channels (first layers), which keep rows of the image in shared memory.

The kernels use tensor cores (mma.sync) from sm_80 on, for every precision, and FFMA on older GPUs.

Gradients of layers with few output channels (last layers) are computed by the same kernels.

With stride 1 both gradients are convolutions of dY, which is then the image of few channels:

    dX is the result for the image dY, the padding F - 1 - p and the filters W' (IC, FH, FW, OC)
    dW' is the gradient of these filters, with X in the place of the gradient of the result

W' is W (OC, FH, FW, IC) with its first and last axis exchanged and its taps rotated by 180 degrees. dW follows from dW'
in the same way. So each direct configuration for few input channels (`base`) gives one for few output channels.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from alpha.ops.conv2d.magnitudes import magnitude_parts
from alpha.ops.conv2d.mma_sync import RESERVED_BYTES
from alpha.ops.conv2d.partial_sums import most_parts, with_partial_sums
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration, ConvProblem, MathMode, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, ScalarArg
from alpha.ops.kernel.views import View, plan_copy

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration


CHANNELS = 64  # output channels of a block
FFMA_SHARED = 54 << 10  # bytes; with the static shared memory less than every GPU has
WARPS, LOADS, LOADS_OF_LONG_K = 4, 16, 24  # of direct_forward_sm80: per block, and under way in a thread
TENSOR_SHARED = 96 << 10  # bytes; less than every GPU from sm_80 on has
STATIC_BYTES = 512  # of shared memory, at most


def _ceil(length: int, step: int) -> int:
    return -(-length // step)


def input_elements(s: ConvShape, rows: int, columns: int) -> int:
    """The number of elements in the padded rows of X that `rows` output rows of `columns` pixels read."""
    return ((rows - 1) * s.sh + s.FH) * ((columns - 1) * s.sw + s.FW) * s.IC


# -- FFMA -------------------------------------------------------------------------------------------


def ffma_filters(s: ConvShape) -> int:
    """Bytes of 64 filters in shared memory, with each filter element padded to 68 channels."""
    return 4 * s.FH * s.FW * s.IC * (CHANNELS + 4)


def ffma_rows(s: ConvShape) -> tuple[int, int]:
    """Returns (output rows per block, bytes of the rows of X that they read)."""

    def input_bytes(rows: int) -> int:
        return 4 * input_elements(s, rows, s.OW)

    rows = min(s.OH, max(1, 256 // s.OW))
    while rows > 1 and ffma_filters(s) + input_bytes(rows) > FFMA_SHARED:
        rows = _ceil(rows, 2)
    return rows, input_bytes(rows)


def direct_forward_ffma(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Filters and some rows of X lie in shared memory   X, W -> Y"""
    s = p.shape
    rows, x_bytes = ffma_rows(s)
    grid = (s.N * _ceil(s.OH, rows), _ceil(s.OC, CHANNELS))
    arguments = (ArrayArg("Y"), ArrayArg("X"), ArrayArg("W"), as_struct(s), rows)
    shared = ffma_filters(s) + x_bytes
    launch = KernelLaunch(
        "conv2d/direct/forward_ffma.cu", "direct_forward_ffma", grid, 128, arguments, shared_bytes=shared
    )
    return Plan(v.name, (launch,), {"Y": p.result})


def direct_weight_ffma(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Rows of X lie in shared memory; each block and pixel group has a partial sum   X, dY -> dW"""
    s = p.shape
    K = s.FH * s.FW * s.IC
    KT = 7 if K <= 28 else 10
    k_groups = _ceil(K, KT)
    P = min(max(1, 16 // k_groups), most_parts(s))
    rows, x_bytes = ffma_rows(s)
    blocks = min(s.N * _ceil(s.OH, rows), 4 * target.num_sms, most_parts(s) // P)
    launch = KernelLaunch(
        "conv2d/direct/weight_ffma.cu",
        "direct_weight_ffma",
        (blocks, _ceil(s.OC, CHANNELS)),
        _ceil(16 * k_groups * P, 32) * 32,
        (ArrayArg("part"), ArrayArg("X"), ArrayArg("dY"), as_struct(s), rows),
        {"KT": KT, "P": P},
        x_bytes,
    )
    return with_partial_sums(p, v, target, (launch,), blocks * P)


# -- tensor cores -----------------------------------------------------------------------------------


def depth_blocks(s: ConvShape) -> int:
    """The number of blocks of 32 of K, with filter rows padded to an even length."""
    return _ceil(s.FH * (s.FW * s.IC + s.FW * s.IC % 2), 32)


def forward_rows(s: ConvShape, terms: int) -> tuple[int, int]:
    """Returns (output rows per block at a time, bytes of the filters and of the rows of X).

    The rows have about 128 pixels, or 256 if there are so many rows that the blocks still share them evenly.
    """
    filters = depth_blocks(s) * (4096 * terms + 64)

    def shared(rows: int) -> int:
        return filters + 4 * terms * input_elements(s, rows, s.OW)

    rows = min(s.OH, _ceil(128, s.OW))
    if s.N * _ceil(s.OH, 2 * rows) >= 4096:
        rows *= 2
    while rows > 1 and shared(rows) > TENSOR_SHARED:
        rows = _ceil(rows, 2)
    # fewer rows if a warp can then hold its part of X, 31 pairs per load, in registers at once
    loads_a_row = _ceil(((s.OW - 1) * s.sw + s.FW) * s.IC, 31)
    most = WARPS * (LOADS if depth_blocks(s) == 1 else LOADS_OF_LONG_K) // loads_a_row
    fitting = (most - s.FH) // s.sh + 1
    if 4 * fitting >= 3 * rows:
        rows = min(rows, fitting)
    rows = _ceil(s.OH, _ceil(s.OH, rows))
    return rows, shared(rows)


# blocks of an SM whose registers nvcc does not spill: with one block of K, by math mode, and with more
RESIDENT, RESIDENT_OF_LONG_K = {MathMode.BF16: 5, MathMode.FP16: 4, MathMode.FP16X3: 3}, 2


def blocks_of_a_gpu(resident: int, shared: int, target: Target) -> int:
    """Blocks that run at a time: `resident` on each SM, if that many with `shared` bytes of shared memory fit it."""
    fitting = (target.shared_bytes + RESERVED_BYTES) // (shared + STATIC_BYTES + RESERVED_BYTES)
    return max(1, min(resident, fitting)) * target.num_sms


def direct_forward_sm80(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Filters lie in shared memory as fragments, X as pairs of neighbours   X, W -> Y"""
    s = p.shape
    rows, shared = forward_rows(s, v.math.terms)
    depth = depth_blocks(s)
    resident, loads = (RESIDENT[v.math], LOADS) if depth == 1 else (RESIDENT_OF_LONG_K, LOADS_OF_LONG_K)
    grid = (min(s.N * _ceil(s.OH, rows), blocks_of_a_gpu(resident, shared, target)), _ceil(s.OC, CHANNELS))
    meeting, macros, found = magnitude_parts(p.epilogue.magnitude)
    launch = KernelLaunch(
        "conv2d/direct/forward_sm80.cu",
        "direct_forward_sm80",
        grid,
        128,
        (*map(ArrayArg, "YXW"), ArrayArg("bias", optional=True), ScalarArg("slope"), *meeting, as_struct(s), rows),
        {
            **v.macros,
            **macros,
            "BLOCKS": depth,
            "EPILOGUE": int(p.epilogue.changes_results),
            "RESIDENT": resident,
            "LOADS": loads,
        },
        shared,
    )
    return Plan(v.name, (launch,), {"Y": p.result, **found})


def weight_fragments(s: ConvShape) -> tuple[int, int]:
    """Returns (groups of warps, fragments of 8 per warp) that cover FH FW IC; a warp holds at most 5 fragments."""
    fragments = _ceil(s.FH * s.FW * s.IC, 8)
    groups = next((n for n in (1, 2, 4) if fragments <= 5 * n), 4)
    return groups, _ceil(fragments, groups)


def weight_rows(s: ConvShape, item: int) -> tuple[int, int]:
    """Returns (output rows per block at a time, bytes of the stages of dY, the pixel groups and two buffers of X).

    The rows have about 256 pixels, or fewer if there are few blocks. An element of dY has `item` bytes.
    """
    pixel_groups, chunk = _ceil(s.OW, 8), 16 if item == 2 and weight_fragments(s)[0] == 1 else 8

    def shared(rows: int) -> int:
        places = _ceil(rows * pixel_groups, chunk) * chunk
        words = input_elements(s, rows, 8 * pixel_groups)
        return 3 * chunk * 8 * (CHANNELS + 8) * item + 8 * places + 2 * 4 * words

    rows = min(s.OH, _ceil(32, pixel_groups))
    while rows > 1 and (s.N * _ceil(s.OH, rows) < 512 or shared(rows) > TENSOR_SHARED):
        rows = _ceil(rows, 2)
    return rows, shared(rows)


class WeightFit(NamedTuple):
    """Numbers that decide the registers of direct_weight_sm80: blocks of an SM, and what a thread holds.

    Attributes:
        held: elements of the next rows of X.
        together: groups of eight pixels that are summed apart.
    """

    resident: int
    held: int
    together: int


# by math mode, and whether the warps share the filter's elements: as many blocks as fit the registers without spills
WEIGHT_FITS = {
    (MathMode.BF16, False): WeightFit(2, 2, 4),
    (MathMode.BF16, True): WeightFit(2, 2, 2),
    (MathMode.TF32, False): WeightFit(2, 2, 2),
    (MathMode.TF32, True): WeightFit(2, 4, 2),
    (MathMode.TF32X3, False): WeightFit(2, 2, 2),
    (MathMode.TF32X3, True): WeightFit(1, 6, 4),
}


def weight_blocks(s: ConvShape, v: Configuration, target: Target) -> int:
    """Blocks that each make a part of dW."""
    rows, shared = weight_rows(s, v.dtype.itemsize)
    fit = WEIGHT_FITS[v.math, weight_fragments(s)[0] > 1]
    return min(s.N * _ceil(s.OH, rows), blocks_of_a_gpu(fit.resident, shared, target), most_parts(s))


def direct_weight_sm80(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """dY comes in pipeline stages, with rows of X beside them; each block has a partial sum   X, dY -> dW"""
    s = p.shape
    rows, shared = weight_rows(s, p.dtype.itemsize)
    WN, NF = weight_fragments(s)
    fit, blocks = WEIGHT_FITS[v.math, WN > 1], weight_blocks(s, v, target)
    launch = KernelLaunch(
        "conv2d/direct/weight_sm80.cu",
        "direct_weight_sm80",
        (blocks, _ceil(s.OC, CHANNELS)),
        256,
        (ArrayArg("part"), ArrayArg("X"), ArrayArg("dY"), as_struct(s), rows),
        {**v.macros, "WN": WN, "NF": NF, "RESIDENT": fit.resident, "HELD": fit.held, "TOGETHER": fit.together},
        shared,
    )
    return with_partial_sums(p, v, target, (launch,), blocks)


LONGEST_ROW, USUAL_ROW = 1024, 128  # pixels
LEAST_ROW = 4  # pixels; the direct kernels compute whole groups of neighbours of a row


@functools.lru_cache(maxsize=4096)
def swapped(s: ConvShape) -> ConvShape:
    """The convolution of dY whose result has the shape of X, if the stride is 1 and the padding less than the filter.

    With one tap the rows of the images may have any length, and those of a matrix product have one pixel. It gets one
    image, whose row length is near to USUAL_ROW.
    """
    N, OH, OW, IH, IW = s.N, s.OH, s.OW, s.IH, s.IW
    if (s.FH, s.FW, OH, OW) == (1, 1, IH, IW):
        pixels = N * IH * IW
        OW = IW = _row_length(pixels)
        N, OH, IH = 1, pixels // OW, pixels // OW
    return ConvShape(N, OH, OW, s.OC, s.IC, s.FH, s.FW, 1, 1, s.FH - 1 - s.ph, s.FW - 1 - s.pw, IH, IW)


def _row_length(pixels: int) -> int:
    """The divisor of `pixels` that is nearest to USUAL_ROW, by the ratio of both."""
    divisors = (n for n in range(1, min(pixels, LONGEST_ROW) + 1) if pixels % n == 0)
    return min(divisors, key=lambda n: max(n / USUAL_ROW, USUAL_ROW / n))


def for_few_outputs(base: Configuration) -> Configuration:
    """The configuration for few output channels that launches the kernel of `base`, a direct one."""

    def supports(s: ConvShape, target: Target) -> bool:
        """True if the stride is 1, no padding is wider than the filter reaches, and `base` takes the swapped shape."""
        if (s.sh, s.sw) != (1, 1) or s.ph >= s.FH or s.pw >= s.FW:
            return False
        other = swapped(s)
        return prod(other.X[1:]) < 1 << 31 and base.supports(other, target)

    forward = base.operator == FORWARD

    def preferred(s: ConvShape, target: Target) -> bool:
        """True for long rows, but not for dX of one tap if wgmma can compute it: the result is most of the work."""
        return swapped(s).OW >= LEAST_ROW and not (forward and s.taps == 1 and target.compute_capability == (9, 0))

    return replace(
        base,
        name=base.name.replace("direct", "few_outputs"),
        operator=INPUT if forward else WEIGHT,
        make=input_gradient if forward else weight_gradient,
        reason="last layer: few output channels, as a first layer of dY",
        supports=supports,
        preferred=preferred,
        base=base,
    )


def input_gradient(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """The forward kernel for few input channels on dY and the rotated filters   dY, W -> dX"""
    made, s = _base_plan(p, v, target, FORWARD), p.shape
    rotation, rotated = _rotate("W", "W rotated", s.W, p.dtype)
    names = {"X": "dY", "W": "W rotated", "Y": "dX"}
    launches = tuple(launch.renamed(names) for launch in made.launches)
    return Plan(v.name, (rotation, *launches), {"dX": p.result}, {"W rotated": rotated})


def weight_gradient(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """The gradient kernel for few input channels with X and dY exchanged; its result is rotated   X, dY -> dW"""
    made, s = _base_plan(p, v, target, WEIGHT), p.shape
    made_as = made.outputs["dW"].dtype
    rotation, result = _rotate("dW rotated", "dW", (s.IC, s.FH, s.FW, s.OC), made_as)
    names = {"X": "dY", "dY": "X", "dW": "dW rotated"}
    launches = tuple(launch.renamed(names) for launch in made.launches)
    workspaces = {"dW rotated": made.outputs["dW"], **made.workspaces}
    return Plan(v.name, (*launches, rotation), {"dW": result}, workspaces)


def _base_plan(p: ConvProblem, v: Configuration, target: Target, operator: str) -> Plan:
    """The plan of the base for the swapped convolution; its arrays have the names that they have there."""
    assert v.base is not None
    made: Plan = v.base.make(
        ConvProblem(operator, swapped(p.shape), p.precision, p.epilogue, p.dtype, p.gradient), v.base, target
    )
    return made


def _rotate(
    name: str, result: str, filters: tuple[int, int, int, int], dtype: np.dtype[np.generic]
) -> tuple[KernelLaunch, Buffer]:
    """The copy of `filters` with rotated taps and the outer axes exchanged   (A, FH, FW, B) -> (B, FH, FW, A)"""
    A, FH, FW, B = filters
    source = View.whole((A, FH * FW, B)).flipped(1).permuted((2, 1, 0))
    (launch,) = plan_copy(View.whole(source.shape), source, dtype.itemsize, 16).launches
    return launch.renamed({"X": name, "Y": result}), Buffer((B, FH, FW, A), dtype)
