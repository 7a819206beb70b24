"""The table of convolution algorithms: one row a variant; the first that can and pays is taken.

Thresholds come from measurements (docs/benchmarks.md). The last row of each operator and device always applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from alpha.ops.conv2d import cpu, cuda, hopper, stem
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Target
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.variant import Condition, Variant

__all__ = ["FORWARD", "INPUT", "VARIANTS", "WEIGHT", "Condition", "Target", "Variant"]


def _large_products(s: ConvShape, target: Target) -> bool:
    """A product of one position is large: enough images and channels."""
    return s.N >= 32 and min(s.IC, s.OC) >= 64


def _tensor_tiles(item: int, tile: Mapping[str, int]) -> Condition:
    """mma.sync and cp.async; rows of channels of `item` bytes are loaded 16 bytes at a time, the stages fit."""

    def can(s: ConvShape, target: Target) -> bool:
        aligned = s.IC * item % 16 == 0 and s.OC * item % 16 == 0
        fits = target.shared_bytes >= cuda.tile_bytes(tile)
        return target.compute_capability >= (8, 0) and aligned and fits

    return can


def _images_fill_tiles(s: ConvShape, target: Target) -> bool:
    """A tile is 64 images or more, a step 32 channels."""
    return s.N >= 48 and min(s.IC, s.OC) >= 16


def _many(rows: int, target: Target) -> bool:
    """Tiles of 128 rows fill the GPU several times over."""
    return rows >= 128 * 4 * target.num_sms


def _stem(s: ConvShape, target: Target) -> bool:
    """Few channels, and 64 filters with a band of the image fit the shared memory of any GPU."""
    return s.IC <= 4 and stem.ffma_filters(s) + stem.ffma_band(s)[1] <= stem.FFMA_SHARED


def _stem_weight(s: ConvShape, target: Target) -> bool:
    """As the stem; every place of a filter has a thread, and a row of dY is loaded 16 bytes at a time."""
    return _stem(s, target) and s.FH * s.FW * s.IC <= 160 and s.OC % 4 == 0


def _stem_mma(planes: int) -> Condition:
    """mma.sync; few channels, and 64 filters with a band of the image fit the shared memory."""

    def can(s: ConvShape, target: Target) -> bool:
        fits = stem.forward_band(s, planes)[1] <= stem.TENSOR_SHARED
        return target.compute_capability >= (8, 0) and s.IC <= 4 and fits

    return can


def _stem_weight_mma(item: int) -> Condition:
    """mma.sync; dW fits the registers, two bands the shared memory; a row of dY is loaded 16 bytes at a time."""

    def can(s: ConvShape, target: Target) -> bool:
        few = s.IC <= 4 and s.FH * s.FW * s.IC <= 160
        fits = few and stem.weight_band(s, item)[1] <= stem.TENSOR_SHARED
        return target.compute_capability >= (8, 0) and fits and s.OC * item % 16 == 0

    return can


TILE_128x64 = {"BM": 128, "BN": 64, "WM": 64, "WN": 32, "STAGES": 3}
TILE_128x128 = {"BM": 128, "BN": 128, "WM": 64, "WN": 32, "STAGES": 4}
TILE_64x64 = {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "STAGES": 4}
TILE_FFMA = {"BM": 64, "BN": 64, "BK": 16}


def _mma_rows(
    algorithm: str, operator: str, make: Callable[..., Any], why: str, tile: Mapping[str, int], pays: Condition
) -> Iterator[Variant]:
    """One algorithm and tile on mma.sync, in each precision."""
    for precision, operands, item in (("bf16", "Bf16", 2), ("tf32", "Tf32", 4), ("float32", "Tf32x3", 4)):
        marker = "" if precision == "float32" else f"_mma_{precision}"
        large = tile["BM"] * tile["BN"] > 64 * 64
        yield Variant(
            f"{algorithm}{marker}_{tile['BM']}x{tile['BN']}",
            operator,
            "cuda",
            make,
            why,
            can=_tensor_tiles(item, tile),
            pays=pays,
            tile={**tile, "OPERANDS": operands},
            precision=precision,
            registers=255 if large else 168,
        )


VARIANTS: tuple[Variant, ...] = (
    # -- numpy and BLAS
    Variant(
        "conv_v2_positions",
        FORWARD,
        "cpu",
        cpu.conv_v2_positions,
        "few positions, a large product each: no gathering",
        pays=lambda s, t: _large_products(s, t) and s.OH * s.OW <= 16,
    ),
    Variant("conv_v2_patches", FORWARD, "cpu", cpu.conv_v2_patches, "any shape"),
    Variant(
        "ks_deconv_positions",
        INPUT,
        "cpu",
        cpu.ks_deconv_positions,
        "few positions, a large product each: no gathering",
        pays=lambda s, t: _large_products(s, t) and s.IH * s.IW <= 16,
    ),
    Variant("ks_deconv_patches", INPUT, "cpu", cpu.ks_deconv_patches, "any shape"),
    Variant(
        "sk_dilated_taps",
        WEIGHT,
        "cpu",
        cpu.sk_dilated_taps,
        "few positions: one long product a tap",
        pays=lambda s, t: _large_products(s, t) and s.OH * s.OW <= 16,
    ),
    Variant("sk_dilated_patches", WEIGHT, "cpu", cpu.sk_dilated_patches, "any shape"),
    *hopper.FORWARD_ROWS,
    # -- CUDA: ConvV2 on tensor cores (3xTF32), one position a tile; then any shape on FFMA
    *_mma_rows(
        "conv_v2",
        FORWARD,
        cuda.conv_v2,
        "trimmed, one position a tile; 64 output channels, many blocks",
        TILE_128x64,
        lambda s, t: _images_fill_tiles(s, t) and s.OC <= 64 and _many(s.OH * s.OW * s.N, t),
    ),
    *_mma_rows("conv_v2", FORWARD, cuda.conv_v2, "trimmed, one position a tile", TILE_64x64, _images_fill_tiles),
    Variant(
        "direct_stem_bf16",
        FORWARD,
        "cuda",
        stem.direct_stem_mma,
        "first layer: few input channels",
        can=_stem_mma(1),
        registers=255,
        tile={"BF16": 1, "PLANES": 1},
        precision="bf16",
    ),
    Variant(
        "direct_stem_tf32",
        FORWARD,
        "cuda",
        stem.direct_stem_mma,
        "first layer: few input channels",
        can=_stem_mma(1),
        registers=255,
        tile={"BF16": 0, "PLANES": 1},
        precision="tf32",
    ),
    Variant(
        "direct_stem_mma",
        FORWARD,
        "cuda",
        stem.direct_stem_mma,
        "first layer: few input channels",
        can=_stem_mma(2),
        registers=255,
        tile={"BF16": 0, "PLANES": 2},
    ),
    Variant(
        "direct_stem",
        FORWARD,
        "cuda",
        stem.direct_stem,
        "first layer: few input channels",
        can=_stem,
        registers=168,
        ffma=True,
    ),
    Variant("implicit_gemm", FORWARD, "cuda", cuda.implicit_gemm, "any shape", tile=TILE_FFMA, ffma=True),
    # -- CUDA: KS-deconv
    *hopper.INPUT_ROWS,
    *_mma_rows(
        "ks_deconv",
        INPUT,
        cuda.ks_deconv,
        "split and trimmed, one position a tile; 64 input channels, many blocks",
        TILE_128x64,
        lambda s, t: _images_fill_tiles(s, t) and s.IC <= 64 and _many(s.IH * s.IW * s.N, t),
    ),
    *_mma_rows(
        "ks_deconv", INPUT, cuda.ks_deconv, "split and trimmed, one position a tile", TILE_64x64, _images_fill_tiles
    ),
    Variant("ks_deconv_ffma", INPUT, "cuda", cuda.ks_deconv_ffma, "any shape", tile=TILE_FFMA, ffma=True),
    # -- CUDA: Sk-dilated
    *hopper.WEIGHT_ROWS,
    *_mma_rows(
        "sk_dilated",
        WEIGHT,
        cuda.sk_dilated,
        "trimmed, one tap and a segment of images and positions a block",
        TILE_128x128,
        lambda s, t: _images_fill_tiles(s, t) and s.OC % 128 == 0 and s.IC % 128 == 0,
    ),
    *_mma_rows(
        "sk_dilated",
        WEIGHT,
        cuda.sk_dilated,
        "trimmed, one tap and a segment a block; fewer channels",
        TILE_64x64,
        _images_fill_tiles,
    ),
    Variant(
        "direct_stem_weight_bf16",
        WEIGHT,
        "cuda",
        stem.direct_stem_weight_mma,
        "first layer: few input channels",
        can=_stem_weight_mma(2),
        tile={"BF16": 1, "PRODUCTS": 1},
        precision="bf16",
    ),
    Variant(
        "direct_stem_weight_tf32",
        WEIGHT,
        "cuda",
        stem.direct_stem_weight_mma,
        "first layer: few input channels",
        can=_stem_weight_mma(4),
        registers=255,
        tile={"BF16": 0, "PRODUCTS": 1},
        precision="tf32",
    ),
    Variant(
        "direct_stem_weight_mma",
        WEIGHT,
        "cuda",
        stem.direct_stem_weight_mma,
        "first layer: few input channels",
        can=_stem_weight_mma(4),
        registers=255,
        tile={"BF16": 0, "PRODUCTS": 3},
    ),
    Variant(
        "direct_stem_weight",
        WEIGHT,
        "cuda",
        stem.direct_stem_weight,
        "first layer: few input channels",
        can=_stem_weight,
        ffma=True,
    ),
    Variant("sk_dilated_ffma", WEIGHT, "cuda", cuda.sk_dilated_ffma, "any shape", tile=TILE_FFMA, ffma=True),
)
