"""The table of kernel configurations. Of those that support a problem and are `preferred`, `choose` takes the
one that is predicted to be the fastest.

On the cpu it is the first that is preferred for a problem. The last configuration of each operator and device takes
any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from alpha.ops.conv2d import conv_v2, cpu, direct, ks_deconv, mma_sync, sk_dilated
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Condition, Configuration, MathMode, Target, always
from alpha.ops.conv2d.select import hopper_table
from alpha.ops.conv2d.shape import ConvShape


def _large_products(s: ConvShape, target: Target) -> bool:
    """True if images and channels are enough to make the product of one output pixel large."""
    return s.N >= 32 and min(s.IC, s.OC) >= 64


def _tensor_tiles(item: int, tile: Mapping[str, int]) -> Condition:
    """Condition of mma.sync and cp.async: channels of `item` bytes make rows of whole 16 bytes, and the stages fit."""

    def supports(s: ConvShape, target: Target) -> bool:
        aligned = s.IC * item % 16 == 0 and s.OC * item % 16 == 0
        fits = target.shared_bytes >= mma_sync.tile_bytes(tile)
        return target.compute_capability >= (8, 0) and aligned and fits

    return supports


def _direct_ffma(s: ConvShape, target: Target) -> bool:
    """True for few channels, if 64 filters and some rows of the image fit the shared memory of any GPU."""
    return s.IC <= 4 and direct.ffma_filters(s) + direct.ffma_rows(s)[1] <= direct.FFMA_SHARED


def _direct_weight_ffma(s: ConvShape, target: Target) -> bool:
    """True if `_direct_ffma` is, there is a thread for each element of a filter, and rows of dY are whole 16 bytes."""
    return _direct_ffma(s, target) and s.FH * s.FW * s.IC <= 160 and s.OC % 4 == 0


def _direct_sm80(terms: int) -> Condition:
    """Condition of mma.sync: few channels, and 64 filters and some rows of the image fit the shared memory."""

    def supports(s: ConvShape, target: Target) -> bool:
        fits = direct.forward_rows(s, terms)[1] <= direct.TENSOR_SHARED
        return target.compute_capability >= (8, 0) and s.IC <= 4 and fits

    return supports


def _direct_weight_sm80(item: int) -> Condition:
    """Condition of mma.sync: dW fits registers, two buffers of X fit shared memory, rows of dY are whole 16 bytes."""

    def supports(s: ConvShape, target: Target) -> bool:
        few = s.IC <= 4 and s.FH * s.FW * s.IC <= 160
        fits = few and direct.weight_rows(s, item)[1] <= direct.TENSOR_SHARED
        return target.compute_capability >= (8, 0) and fits and s.OC * item % 16 == 0

    return supports


def _without_wgmma(operator: str) -> Condition:
    """True if no kernel for Hopper takes the shape as it is."""
    supports = hopper_table.supports(operator)
    return lambda s, target: not supports(s, target)


TILE_128x64 = {"BM": 128, "BN": 64, "WM": 64, "WN": 32, "STAGES": 3}
TILE_128x128 = {"BM": 128, "BN": 128, "WM": 64, "WN": 32, "STAGES": 4}
TILE_64x64 = {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "STAGES": 4}
TILE_32x32 = {"BM": 32, "BN": 32, "WM": 16, "WN": 16, "STAGES": 4}  # for few images and few channels
# Sk-dilated: RESIDENT blocks fit the registers of an SM
WEIGHT_128x128 = {**TILE_128x128, "RESIDENT": 1}
WEIGHT_64x64 = {**TILE_64x64, "STAGES": 3, "RESIDENT": 4}
TILE_FFMA = {"BM": 64, "BN": 64, "BK": 16}


def _mma_rows(
    algorithm: str, operator: str, make: Callable[..., Any], reason: str, tile: Mapping[str, int]
) -> Iterator[Configuration]:
    """The configurations of one algorithm and tile on mma.sync, one per precision.

    Forward and dX in tf32 and bf16 are never faster by them if kernels on wgmma take the shape as it is.
    """
    for math, item in ((MathMode.BF16, 2), (MathMode.TF32, 4), (MathMode.TF32X3, 4)):
        results = tile["BM"] * tile["BN"]
        yield Configuration(
            f"{algorithm}_sm80_{math.name.lower()}_{tile['BM']}x{tile['BN']}",
            operator,
            "cuda",
            make,
            reason,
            supports=_tensor_tiles(item, tile),
            preferred=always if operator == WEIGHT or math is MathMode.TF32X3 else _without_wgmma(operator),
            tile=tile,
            math=math,
            pack=16 // item,
            registers=255 if results > 64 * 64 else 168 if results == 64 * 64 else 80,
        )


# few channels: rows of the image lie in shared memory
FIRST_LAYER = "first layer: few input channels"
DIRECT_FORWARD = (
    *(
        Configuration(
            f"direct_sm80_{math.name.lower()}",
            FORWARD,
            "cuda",
            direct.direct_forward_sm80,
            FIRST_LAYER,
            supports=_direct_sm80(terms),
            registers=255,
            math=math,
            supports_epilogue=True,
        )
        for math, terms in ((MathMode.BF16, 1), (MathMode.FP16, 1), (MathMode.FP16X3, 2))
    ),
    Configuration(
        "direct_ffma", FORWARD, "cuda", direct.direct_forward_ffma, FIRST_LAYER, supports=_direct_ffma, registers=168
    ),
)
DIRECT_WEIGHT = (
    *(
        Configuration(
            f"direct_weight_sm80_{math.name.lower()}",
            WEIGHT,
            "cuda",
            direct.direct_weight_sm80,
            FIRST_LAYER,
            supports=_direct_weight_sm80(item),
            registers=registers,
            math=math,
        )
        for math, item, registers in ((MathMode.BF16, 2, 128), (MathMode.TF32, 4, 255), (MathMode.TF32X3, 4, 255))
    ),
    Configuration(
        "direct_weight_ffma", WEIGHT, "cuda", direct.direct_weight_ffma, FIRST_LAYER, supports=_direct_weight_ffma
    ),
)

CONFIGURATIONS: tuple[Configuration, ...] = (
    # -- numpy and BLAS
    Configuration(
        "conv_v2_pixels",
        FORWARD,
        "cpu",
        cpu.conv_v2_pixels,
        "few output pixels, a large product each: no gathering",
        preferred=lambda s, t: _large_products(s, t) and s.OH * s.OW <= 16,
    ),
    Configuration("conv_v2_patches", FORWARD, "cpu", cpu.conv_v2_patches, "any shape"),
    Configuration(
        "ks_deconv_pixels",
        INPUT,
        "cpu",
        cpu.ks_deconv_pixels,
        "few output pixels, a large product each: no gathering",
        preferred=lambda s, t: _large_products(s, t) and s.IH * s.IW <= 16,
    ),
    Configuration("ks_deconv_patches", INPUT, "cpu", cpu.ks_deconv_patches, "any shape"),
    Configuration(
        "sk_dilated_taps",
        WEIGHT,
        "cpu",
        cpu.sk_dilated_taps,
        "few output pixels: one long product per tap",
        preferred=lambda s, t: _large_products(s, t) and s.OH * s.OW <= 16,
    ),
    Configuration("sk_dilated_patches", WEIGHT, "cpu", cpu.sk_dilated_patches, "any shape"),
    *hopper_table.FORWARD_ROWS,
    # -- CUDA: ConvV2 on mma.sync; few channels directly; then any shape on FFMA
    *_mma_rows("conv_v2", FORWARD, conv_v2.plan_sm80, "trimmed, one output pixel per tile; a large tile", TILE_128x64),
    *_mma_rows("conv_v2", FORWARD, conv_v2.plan_sm80, "trimmed, one output pixel per tile", TILE_64x64),
    *_mma_rows("conv_v2", FORWARD, conv_v2.plan_sm80, "trimmed, one output pixel per tile; a small tile", TILE_32x32),
    *DIRECT_FORWARD,
    Configuration("implicit_gemm_ffma", FORWARD, "cuda", conv_v2.plan_ffma, "any shape", tile=TILE_FFMA),
    # -- CUDA: KS-deconv
    *hopper_table.INPUT_ROWS,
    *_mma_rows(
        "ks_deconv",
        INPUT,
        ks_deconv.plan_sm80,
        "split and trimmed, one pixel of dX per tile; a large tile",
        TILE_128x64,
    ),
    *_mma_rows("ks_deconv", INPUT, ks_deconv.plan_sm80, "split and trimmed, one pixel of dX per tile", TILE_64x64),
    *_mma_rows(
        "ks_deconv", INPUT, ks_deconv.plan_sm80, "split and trimmed, one pixel of dX per tile; a small tile", TILE_32x32
    ),
    *map(direct.for_few_outputs, DIRECT_FORWARD),
    Configuration("ks_deconv_ffma", INPUT, "cuda", ks_deconv.plan_ffma, "any shape", tile=TILE_FFMA),
    # -- CUDA: Sk-dilated
    *hopper_table.WEIGHT_ROWS,
    *_mma_rows(
        "sk_dilated",
        WEIGHT,
        sk_dilated.plan_sm80,
        "trimmed, one tap and one split of images and output pixels per block",
        WEIGHT_128x128,
    ),
    *_mma_rows("sk_dilated", WEIGHT, sk_dilated.plan_sm80, "trimmed, one tap and one split per block", WEIGHT_64x64),
    *DIRECT_WEIGHT,
    *map(direct.for_few_outputs, DIRECT_WEIGHT),
    Configuration("sk_dilated_ffma", WEIGHT, "cuda", sk_dilated.plan_ffma, "any shape", tile=TILE_FFMA),
)
