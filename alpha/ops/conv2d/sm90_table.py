"""The kernel configurations for Hopper (wgmma, TMA). Which tile is preferred depends on how many of them a shape has.

A large tile reads fewer bytes from the L2 cache for its products, but must leave no SM idle.
The thresholds of tiles of 64, 128 and 256 channels come from a sweep on an H200 (docs/benchmarks.md). Tiles of 32, 96
and 192 channels are not in that sweep: they are taken if they compute fewer channels in vain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from alpha.ops.conv2d import sm90, sm90_weight
from alpha.ops.conv2d.configuration import Condition, Configuration
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, MathMode, Target
from alpha.ops.conv2d.shape import ConvShape

REGISTERS = 168  # per thread, at the launch of 384 threads; consumers then take 240


def _supports(operator: str) -> Condition:
    """True if the GPU has wgmma and TMA, and rows of channels that TMA reads are whole 16 bytes, also as fp16 terms."""
    read = {FORWARD: ("IC",), INPUT: ("OC",), WEIGHT: ("IC", "OC")}[operator]

    def supports(s: ConvShape, target: Target) -> bool:
        aligned = all(getattr(s, channels) % 8 == 0 for channels in read)
        return target.compute_capability == (9, 0) and aligned and s.sw <= s.IW

    return supports


def _fills(s: ConvShape, target: Target) -> bool:
    """True if there is work for tiles of 128 rows (output pixels x images) and steps of 64 channels, or at least 16."""
    return s.N * s.OW >= 64 and max(s.IC, s.OC) >= 16


def _taps_a_position(s: ConvShape) -> float:
    return s.FH * s.FW / (s.sh * s.sw)


def _tiles(operator: str, s: ConvShape, BM: int, BN: int) -> int:
    channels, positions = (s.OC, s.OH * s.OW) if operator == FORWARD else (s.IC, s.IH * s.IW)
    return -(-s.N * positions // BM) * -(-channels // BN)


def _enough(operator: str, BM: int, BN: int) -> Condition:
    """True if channels fill the tile and every SM gets a tile, or nearly two if few taps make the tiles short."""

    def preferred(s: ConvShape, target: Target) -> bool:
        wanted = 1.8 if operator == INPUT and _taps_a_position(s) < 4 else 0.9
        enough = _tiles(operator, s, BM, BN) >= wanted * target.num_sms
        return _filled(operator, s, BN) and enough

    return preferred


def _enough_cut(operator: str, BM: int, BN: int, steps: int) -> Condition:
    """Also true if there are too few tiles, but with enough K for split-K: `steps` of 64 channels of a tap in all."""
    enough = _enough(operator, BM, BN)

    def preferred(s: ConvShape, target: Target) -> bool:
        if enough(s, target):
            return True
        depth = s.FH * s.FW * s.useful * s.IC / 64
        cut = operator == FORWARD and _tiles(operator, s, BM, BN) * depth >= steps
        return cut and _filled(operator, s, BN)

    return preferred


def _filled(operator: str, s: ConvShape, BN: int) -> bool:
    channels = s.OC if operator == FORWARD else s.IC
    return channels >= 0.8 * _padded(operator, s, BN)


def _padded(operator: str, s: ConvShape, BN: int) -> int:
    """Channels of the result, rounded up to whole tiles."""
    channels = s.OC if operator == FORWARD else s.IC
    return -(-channels // BN) * BN


def _fits_best(operator: str, BN: int) -> Condition:
    """True if tiles of BN channels compute fewer channels that do not exist than tiles of 64, 128 and 256."""

    def preferred(s: ConvShape, target: Target) -> bool:
        others = [other for other in (64, 128, 256) if other >= BN or BN < 128]
        return all(_padded(operator, s, BN) < _padded(operator, s, other) for other in others)

    return preferred


def _uneven(s: ConvShape, target: Target) -> bool:
    """True for a stride: some output pixels have many more taps than others, so that tiles end at different times."""
    return s.sh * s.sw > 1


def _reused(operator: str) -> Condition:
    """tf32: each element of A is reused often enough to pay for the absmax pass and the conversion to fp16 terms."""

    def preferred(s: ConvShape, target: Target) -> bool:
        if operator == INPUT:
            return s.IC > 64
        return s.OC > 64 and _taps_a_position(s) * s.OC >= 1000 and s.flops >= 2e10

    return preferred


def _all_of(*conditions: Condition) -> Condition:
    """All of these conditions, and that there is work for a tile."""
    return lambda s, target: _fills(s, target) and all(c(s, target) for c in conditions)


@dataclass(frozen=True)
class _Tile:
    """Rows and columns of a tile, blocks per SM, and for Sk-dilated whether X comes as prepared fp16 terms."""

    BM: int
    BN: int
    blocks: int = 1
    prepared: bool = False


def _configure(
    operator: str, math: MathMode, tile: _Tile, preferred: Condition = _fills, reason: str = "", suffix: str = ""
) -> Configuration:
    algorithm, make = _ALGORITHMS[operator]
    macros: dict[str, Any] = {"BM": tile.BM, "BN": tile.BN, "BLOCKS": tile.blocks}
    if operator == WEIGHT:
        macros["PREPARED"] = int(tile.prepared)
    suffix = suffix or "_prepared" * tile.prepared
    return Configuration(
        f"{algorithm}_sm90_{math.name.lower()}_{tile.BM}x{tile.BN}{suffix}",
        operator,
        "cuda",
        make,
        reason or f"Hopper, trimmed; a tile of {tile.BM} x {tile.BN}",
        supports=_supports(operator),
        preferred=preferred,
        tile=macros,
        math=math,
        registers=REGISTERS,
        supports_epilogue=operator != WEIGHT,
        supports_statistics=operator == FORWARD,
    )


_ALGORITHMS: dict[str, tuple[str, Callable[..., Any]]] = {
    FORWARD: ("conv_v2", sm90.conv_v2),
    INPUT: ("ks_deconv", sm90.ks_deconv),
    WEIGHT: ("sk_dilated", sm90_weight.sk_dilated),
}


def _position_rows(operator: str) -> tuple[Configuration, ...]:
    """The configurations of ConvV2 or KS-deconv, whose rows are output pixels."""

    def enough(BM: int, BN: int, *more: Condition) -> Condition:
        return _all_of(_enough(operator, BM, BN), *more)

    def cut(BM: int, BN: int, steps: int, *more: Condition) -> Condition:
        return _all_of(_enough_cut(operator, BM, BN, steps), *more)

    reused, narrow, fits = _reused(operator), _narrow(operator), functools.partial(_fits_best, operator)
    # per SM; with one block instead of two, forward is up to 5 % faster and dX up to 29 % slower
    blocks = 1 if operator == FORWARD else 2
    return (
        _configure(operator, MathMode.BF16, _Tile(128, 32, 2), preferred=_all_of(fits(32))),
        _configure(operator, MathMode.BF16, _Tile(128, 96, blocks), preferred=_all_of(fits(96))),
        _configure(operator, MathMode.BF16, _Tile(128, 192), preferred=enough(128, 192, fits(192))),
        _configure(operator, MathMode.TF32, _Tile(128, 32, 2), preferred=_all_of(fits(32))),
        _configure(operator, MathMode.TF32, _Tile(128, 96), preferred=_all_of(fits(96))),
        _configure(operator, MathMode.TF32, _Tile(128, 192), preferred=enough(128, 192, fits(192))),
        _configure(operator, MathMode.FP16X3, _Tile(128, 32), preferred=_all_of(fits(32))),
        _configure(operator, MathMode.FP16X3, _Tile(128, 96), preferred=_all_of(fits(96))),
        _configure(operator, MathMode.BF16, _Tile(128, 256), preferred=cut(128, 256, 3000)),
        _configure(operator, MathMode.BF16, _Tile(256, 128), preferred=enough(256, 128)),
        _configure(operator, MathMode.BF16, _Tile(128, 128, blocks), preferred=enough(128, 128)),
        _configure(
            operator, MathMode.BF16, _Tile(128, 128, blocks), suffix="_split", preferred=cut(128, 128, 1500, _uneven)
        ),
        _configure(operator, MathMode.BF16, _Tile(256, 64, blocks), preferred=enough(256, 64, narrow)),
        _configure(operator, MathMode.BF16, _Tile(128, 64, 2)),
        _configure(operator, MathMode.FP16, _Tile(128, 256), preferred=enough(128, 256, reused)),
        _configure(operator, MathMode.FP16, _Tile(256, 128), preferred=enough(256, 128, reused)),
        _configure(operator, MathMode.FP16, _Tile(128, 128), preferred=enough(128, 128, reused)),
        _configure(operator, MathMode.TF32, _Tile(128, 256), preferred=cut(128, 256, 3000)),
        _configure(operator, MathMode.TF32, _Tile(256, 128), preferred=enough(256, 128)),
        _configure(operator, MathMode.TF32, _Tile(128, 128), preferred=cut(128, 128, 1500)),
        _configure(operator, MathMode.TF32, _Tile(256, 64, blocks), preferred=enough(256, 64, narrow)),
        _configure(
            operator,
            MathMode.FP16,
            _Tile(128, 64),
            preferred=_all_of(lambda s, t: s.IC >= 256 and (operator == INPUT or s.sh * s.sw > 1)),
        ),
        _configure(operator, MathMode.TF32, _Tile(128, 64, 2)),
        _configure(operator, MathMode.FP16X3, _Tile(128, 128), preferred=cut(128, 128, 1500)),
        _configure(operator, MathMode.FP16X3, _Tile(256, 64), preferred=enough(256, 64, narrow)),
        _configure(operator, MathMode.FP16X3, _Tile(128, 64)),
    )


def _narrow(operator: str) -> Condition:
    return lambda s, target: (s.OC if operator == FORWARD else s.IC) <= 64


FORWARD_ROWS = _position_rows(FORWARD)
INPUT_ROWS = _position_rows(INPUT)

_few_filters = _all_of(lambda s, t: s.OC <= 64)
_TURNS = "Hopper, trimmed; 64 filters, the warpgroups in turns"


def _from_memory(s: ConvShape, target: Target) -> bool:
    """True if many blocks read each pixel: it is better to prepare the fp16 terms of X once than in each block."""
    return s.OC >= 256 and 128 * s.sh * s.sw <= s.OC and (s.FW <= 3 or s.OW <= 8)


def _long_rows(s: ConvShape, target: Target) -> bool:
    """bf16: True if K is so long that a tile of three taps and 128 x 128 channels is worth it."""
    return s.FW == 3 and s.sw == 1 and s.IC >= 128 and s.N * s.OH * s.OW * s.IC >= 1 << 26


WEIGHT_ROWS = (
    *(
        _configure(WEIGHT, math, _Tile(64, 32), preferred=_all_of(_few_filters, _fits_best(WEIGHT, 32)), reason=_TURNS)
        for math in (MathMode.BF16, MathMode.FP16, MathMode.FP16X3)
    ),
    *(
        _configure(WEIGHT, math, _Tile(128, BN), preferred=_all_of(_fits_best(WEIGHT, BN)))
        for math in (MathMode.BF16, MathMode.FP16, MathMode.FP16X3)
        for BN in (32, 96)
    ),
    _configure(WEIGHT, MathMode.BF16, _Tile(64, 64), preferred=_few_filters, reason=_TURNS),
    _configure(WEIGHT, MathMode.BF16, _Tile(128, 128), preferred=_all_of(_long_rows)),
    _configure(
        WEIGHT,
        MathMode.BF16,
        _Tile(128, 256),
        preferred=_all_of(lambda s, t: s.IC >= 256 and (s.OH * s.OW > 4 or s.FW == 1 or s.sw > 1)),
    ),
    _configure(WEIGHT, MathMode.BF16, _Tile(128, 64)),
    _configure(WEIGHT, MathMode.FP16, _Tile(64, 64), preferred=_few_filters, reason=_TURNS),
    _configure(
        WEIGHT,
        MathMode.FP16,
        _Tile(128, 128, prepared=True),
        preferred=_all_of(_from_memory, lambda s, t: s.IC >= 256 and (s.OW >= 8 or s.FW == 1) and s.FW <= 3),
    ),
    _configure(WEIGHT, MathMode.FP16, _Tile(128, 64, prepared=True), preferred=_all_of(_from_memory)),
    _configure(WEIGHT, MathMode.FP16, _Tile(128, 64)),
    _configure(WEIGHT, MathMode.FP16X3, _Tile(64, 64), preferred=_few_filters, reason=_TURNS),
    _configure(
        WEIGHT,
        MathMode.FP16X3,
        _Tile(128, 128, prepared=True),
        preferred=_all_of(_from_memory, lambda s, t: s.IC >= 512 and s.OW <= 4),
    ),
    _configure(WEIGHT, MathMode.FP16X3, _Tile(128, 64, prepared=True), preferred=_all_of(_from_memory)),
    _configure(WEIGHT, MathMode.FP16X3, _Tile(128, 64)),
)
