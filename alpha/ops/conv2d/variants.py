"""The table of convolution algorithms: one row a variant; the first that can and pays is taken.

Thresholds come from measurements (docs/benchmarks.md). The last row of each operator and device always applies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from alpha.ops.conv2d import cpu, cuda, wgmma
from alpha.ops.conv2d.shape import ConvShape

FORWARD, INPUT, WEIGHT = "conv2d_forward", "conv2d_backward_input", "conv2d_backward_weight"


@dataclass(frozen=True)
class Target:
    """What a choice depends on besides the shape."""

    device: str  # "cpu" or "cuda"
    compute_capability: tuple[int, int] = (0, 0)
    multiprocessors: int = 0
    # that a block may have: 64 KiB on sm_75, 99 on sm_86, 89 and 120, 163 on sm_80, 227 on sm_90 and 100
    shared_bytes: int = 163 << 10


Condition = Callable[[ConvShape, Target], bool]


def _always(s: ConvShape, target: Target) -> bool:
    return True


@dataclass(frozen=True)
class Variant:
    """One way to compute one operator on one device.

    `run(first, second, shape, variant)` takes the operator's arrays: (X, W), (dY, W) or (X, dY). `can` says whether it
    computes a shape at all, `pays` whether it is worth it; `why` is the reason in words. No kernel of the row may need
    more than `registers` a thread.
    """

    name: str
    operator: str
    device: str
    run: Callable[..., Any]
    why: str
    can: Condition = _always
    pays: Condition = _always
    tile: Mapping[str, int] = field(default_factory=dict)
    precision: str = "float32"
    registers: int = 128


def _large_products(s: ConvShape, target: Target) -> bool:
    """A product of one position is large: enough images and channels."""
    return s.N >= 32 and min(s.IC, s.OC) >= 64


def _tensor_tiles(s: ConvShape, target: Target) -> bool:
    """mma.sync and cp.async; rows of channels are loaded 16 bytes at a time."""
    return target.compute_capability >= (8, 0) and s.IC % 4 == 0 and s.OC % 4 == 0


def _large_tensor_tiles(s: ConvShape, target: Target) -> bool:
    """Four stages of 128 x 128 tiles."""
    return _tensor_tiles(s, target) and target.shared_bytes >= 128 << 10


def _hopper_tiles(s: ConvShape, target: Target) -> bool:
    """wgmma and the copy engine; rows of channels are whole 16 bytes, also of halves."""
    aligned = s.IC % 8 == 0 and s.OC % 8 == 0
    return target.compute_capability == (9, 0) and aligned and s.sw <= s.IW


def _images_fill_tiles(s: ConvShape, target: Target) -> bool:
    """A tile is 64 images or more, a step 32 channels."""
    return s.N >= 48 and min(s.IC, s.OC) >= 16


def _fills_wgmma(s: ConvShape, target: Target) -> bool:
    """Tiles of 128 rows (positions x images) and steps of 64 channels, 32 at the least."""
    return s.N * s.OW >= 64 and min(s.IC, s.OC) >= 32


def _many(rows: int, target: Target) -> bool:
    """Tiles of 128 rows fill the GPU several times over."""
    return rows >= 128 * 4 * target.multiprocessors


def _stem(s: ConvShape, target: Target) -> bool:
    """Few channels, and 64 filters with a band of the image fit the shared memory of any GPU."""
    return s.IC <= 4 and cuda.stem_filters(s) + cuda.stem_band(s)[1] <= cuda.STEM_SHARED


def _stem_weight(s: ConvShape, target: Target) -> bool:
    """As the stem; every place of a filter has a thread, and a row of dY is loaded 16 bytes at a time."""
    return _stem(s, target) and s.FH * s.FW * s.IC <= 160 and s.OC % 4 == 0


TILE_128x64 = {"BM": 128, "BN": 64, "WM": 64, "WN": 32, "STAGES": 3}
TILE_128x128 = {"BM": 128, "BN": 128, "WM": 64, "WN": 32, "STAGES": 4}
TILE_64x64 = {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "STAGES": 4}
TILE_FFMA = {"BM": 64, "BN": 64, "BK": 16}
WGMMA_64 = {"BN": 64, "PLANES": 2, "STAGES": 4}
WGMMA_128 = {"BN": 128, "PLANES": 2, "STAGES": 3}
TF32_64 = {"BN": 64, "PLANES": 1, "STAGES": 4}
TF32_128 = {"BN": 128, "PLANES": 1, "STAGES": 4}
TF32_256 = {"BN": 256, "PLANES": 1, "STAGES": 3}

VARIANTS: tuple[Variant, ...] = (
    # -- numpy and BLAS
    Variant(
        "conv_v2_positions", FORWARD, "cpu", lambda X, W, s, v: cpu.conv_v2_positions(X, W, s),
        "few positions, a large product each: no gathering",
        pays=lambda s, t: _large_products(s, t) and s.OH * s.OW <= 16,
    ),
    Variant(
        "conv_v2_patches", FORWARD, "cpu", lambda X, W, s, v: cpu.conv_v2_patches(X, W, s),
        "any shape",
    ),
    Variant(
        "ks_deconv_positions", INPUT, "cpu", lambda dY, W, s, v: cpu.ks_deconv_positions(dY, W, s),
        "few positions, a large product each: no gathering",
        pays=lambda s, t: _large_products(s, t) and s.IH * s.IW <= 16,
    ),
    Variant(
        "ks_deconv_patches", INPUT, "cpu", lambda dY, W, s, v: cpu.ks_deconv_patches(dY, W, s),
        "any shape",
    ),
    Variant(
        "sk_dilated_taps", WEIGHT, "cpu", lambda X, dY, s, v: cpu.sk_dilated_taps(X, dY, s),
        "few positions: one long product a tap",
        pays=lambda s, t: _large_products(s, t) and s.OH * s.OW <= 16,
    ),
    Variant(
        "sk_dilated_patches", WEIGHT, "cpu", lambda X, dY, s, v: cpu.sk_dilated_patches(X, dY, s),
        "any shape",
    ),
    # -- CUDA: ConvV2 on Hopper (wgmma, halves), tf32 then float32
    Variant(
        "conv_v2_tf32_256", FORWARD, "cuda", wgmma.conv_v2, "Hopper, trimmed; 256 channels a tile",
        can=_hopper_tiles, registers=168, tile=TF32_256, pays=lambda s, t: _fills_wgmma(s, t) and s.OC >= 256,
        precision="tf32",
    ),
    Variant(
        "conv_v2_tf32_128", FORWARD, "cuda", wgmma.conv_v2, "Hopper, trimmed; 128 channels a tile",
        can=_hopper_tiles, registers=168, tile=TF32_128, pays=lambda s, t: _fills_wgmma(s, t) and s.OC > 64,
        precision="tf32",
    ),
    Variant(
        "conv_v2_tf32_64", FORWARD, "cuda", wgmma.conv_v2, "Hopper, trimmed; 64 channels a tile",
        can=_hopper_tiles, registers=168, tile=TF32_64, pays=_fills_wgmma,
        precision="tf32",
    ),
    Variant(
        "conv_v2_wgmma_128", FORWARD, "cuda", wgmma.conv_v2, "Hopper, trimmed; 128 channels a tile",
        can=_hopper_tiles, registers=168, tile=WGMMA_128, pays=lambda s, t: _fills_wgmma(s, t) and s.OC > 64,
    ),
    Variant(
        "conv_v2_wgmma_64", FORWARD, "cuda", wgmma.conv_v2, "Hopper, trimmed; 64 channels a tile",
        can=_hopper_tiles, registers=168, tile=WGMMA_64, pays=_fills_wgmma,
    ),
    # -- CUDA: ConvV2 on tensor cores (3xTF32), one position a tile; then any shape on FFMA
    Variant(
        "conv_v2_128x64", FORWARD, "cuda", cuda.conv_v2,
        "trimmed, one position a tile; 64 output channels, many blocks",
        can=_tensor_tiles, tile=TILE_128x64, registers=255,
        pays=lambda s, t: _images_fill_tiles(s, t) and s.OC <= 64 and _many(s.OH * s.OW * s.N, t),
    ),
    Variant(
        "conv_v2_64x64", FORWARD, "cuda", cuda.conv_v2, "trimmed, one position a tile",
        can=_tensor_tiles, pays=_images_fill_tiles, tile=TILE_64x64, registers=168,
    ),
    Variant(
        "direct_stem", FORWARD, "cuda", cuda.direct_stem, "first layer: few input channels", can=_stem,
        registers=168,
    ),
    Variant(
        "implicit_gemm", FORWARD, "cuda", cuda.implicit_gemm, "any shape", tile=TILE_FFMA,
    ),
    # -- CUDA: KS-deconv
    Variant(
        "ks_deconv_tf32_256", INPUT, "cuda", wgmma.ks_deconv, "Hopper, split and trimmed; 256 channels a tile",
        can=_hopper_tiles, registers=168, tile=TF32_256, pays=lambda s, t: _fills_wgmma(s, t) and s.IC >= 256,
        precision="tf32",
    ),
    Variant(
        "ks_deconv_tf32_128", INPUT, "cuda", wgmma.ks_deconv, "Hopper, split and trimmed; 128 channels a tile",
        can=_hopper_tiles, registers=168, tile=TF32_128, pays=lambda s, t: _fills_wgmma(s, t) and s.IC > 64,
        precision="tf32",
    ),
    Variant(
        "ks_deconv_tf32_64", INPUT, "cuda", wgmma.ks_deconv, "Hopper, split and trimmed; 64 channels a tile",
        can=_hopper_tiles, registers=168, tile=TF32_64, pays=_fills_wgmma,
        precision="tf32",
    ),
    Variant(
        "ks_deconv_wgmma_128", INPUT, "cuda", wgmma.ks_deconv, "Hopper, split and trimmed; 128 channels a tile",
        can=_hopper_tiles, registers=168, tile=WGMMA_128, pays=lambda s, t: _fills_wgmma(s, t) and s.IC > 64,
    ),
    Variant(
        "ks_deconv_wgmma_64", INPUT, "cuda", wgmma.ks_deconv, "Hopper, split and trimmed; 64 channels a tile",
        can=_hopper_tiles, registers=168, tile=WGMMA_64, pays=_fills_wgmma,
    ),
    Variant(
        "ks_deconv_128x64", INPUT, "cuda", cuda.ks_deconv,
        "split and trimmed, one position a tile; 64 input channels, many blocks",
        can=_tensor_tiles, tile=TILE_128x64, registers=255,
        pays=lambda s, t: _images_fill_tiles(s, t) and s.IC <= 64 and _many(s.IH * s.IW * s.N, t),
    ),
    Variant(
        "ks_deconv_64x64", INPUT, "cuda", cuda.ks_deconv, "split and trimmed, one position a tile",
        can=_tensor_tiles, pays=_images_fill_tiles, tile=TILE_64x64, registers=168,
    ),
    Variant(
        "ks_deconv_ffma", INPUT, "cuda", cuda.ks_deconv_ffma, "any shape", tile=TILE_FFMA,
    ),
    # -- CUDA: Sk-dilated
    Variant(
        "sk_dilated_tf32_128", WEIGHT, "cuda", wgmma.sk_dilated, "Hopper, trimmed; 128 channels a tile",
        can=_hopper_tiles, registers=168, tile=TF32_128,
        pays=lambda s, t: _fills_wgmma(s, t) and s.IC > 64 and s.OH * s.OW > 4,
        precision="tf32",
    ),
    Variant(
        "sk_dilated_tf32_64", WEIGHT, "cuda", wgmma.sk_dilated, "Hopper, trimmed; 64 channels a tile",
        can=_hopper_tiles, registers=168, tile=TF32_64,
        pays=_fills_wgmma,
        precision="tf32",
    ),
    Variant(
        "sk_dilated_wgmma_128", WEIGHT, "cuda", wgmma.sk_dilated, "Hopper, trimmed; 128 channels a tile",
        can=_hopper_tiles, registers=168, tile=WGMMA_128,
        pays=lambda s, t: _fills_wgmma(s, t) and s.IC > 64 and s.OH * s.OW > 4,
    ),
    Variant(
        "sk_dilated_wgmma_64", WEIGHT, "cuda", wgmma.sk_dilated, "Hopper, trimmed; 64 channels a tile",
        can=_hopper_tiles, registers=168, tile=WGMMA_64,
        pays=_fills_wgmma,
    ),
    Variant(
        "sk_dilated_128x128", WEIGHT, "cuda", cuda.sk_dilated,
        "trimmed, one tap and a segment of images and positions a block",
        can=_large_tensor_tiles, tile=TILE_128x128, registers=255,
        pays=lambda s, t: _images_fill_tiles(s, t) and s.OC % 128 == 0 and s.IC % 128 == 0,
    ),
    Variant(
        "sk_dilated_64x64", WEIGHT, "cuda", cuda.sk_dilated,
        "trimmed, one tap and a segment a block; fewer channels",
        can=_tensor_tiles, pays=_images_fill_tiles, tile=TILE_64x64, registers=168,
    ),
    Variant(
        "direct_stem_weight", WEIGHT, "cuda", cuda.direct_stem_weight,
        "first layer: few input channels", can=_stem_weight,
    ),
    Variant(
        "sk_dilated_ffma", WEIGHT, "cuda", cuda.sk_dilated_ffma, "any shape", tile=TILE_FFMA,
    ),
)  # fmt: skip
