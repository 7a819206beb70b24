"""The kernel configurations for Hopper (wgmma, TMA).

A large tile reads fewer bytes from the L2 cache for its products, but must leave no SM idle, and computes more channels
in vain if they do not fill it. Two blocks per SM hide each other's beginning and end, and have half the shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from alpha.ops.conv2d import conv_v2, ks_deconv, sk_dilated
from alpha.ops.conv2d.problem import FORWARD, INPUT, PACK, WEIGHT, Condition, Configuration, MathMode, Target
from alpha.ops.conv2d.shape import ConvShape

REGISTERS = 168  # per thread, at the launch of 384 threads; consumers then take up to 216
REGISTERS_BY_BM = {64: 255, 192: 128}  # of ConvV2 and KS-deconv; 192 rows have 512 threads


def supports(operator: str) -> Condition:
    """True if the GPU has wgmma and TMA, and rows of channels that TMA reads are whole 16 bytes, also as fp16 terms.

    Each axis may have a stride or a dilation; the kernels do not compute both together, nor groups.
    """
    read = {FORWARD: ("IC",), INPUT: ("OC",), WEIGHT: ("IC", "OC")}[operator]

    def taken(s: ConvShape, target: Target) -> bool:
        aligned = all(getattr(s, channels) % PACK == 0 for channels in read)
        gaps = all(1 in (axis.s, axis.d) for axis in (s.depth, s.height, s.width))
        return target.compute_capability == (9, 0) and aligned and gaps and s.groups == 1 and s.sw <= s.IW

    return taken


@dataclass(frozen=True)
class _Tile:
    """Rows and columns of a tile, blocks per SM, and how many operands, from the first, come as prepared fp16 terms."""

    BM: int
    BN: int
    blocks: int = 1
    prepared: int = 0


def _configure(operator: str, math: MathMode, tile: _Tile, reason: str = "") -> Configuration:
    algorithm, make = _ALGORITHMS[operator]
    macros: dict[str, Any] = {"BM": tile.BM, "BN": tile.BN, "BLOCKS": tile.blocks, "PREPARED": tile.prepared}
    return Configuration(
        f"{algorithm}_sm90_{math.name.lower()}_{tile.BM}x{tile.BN}{('', '_prepared', '_both_prepared')[tile.prepared]}",
        operator,
        "cuda",
        make,
        reason or f"Hopper, trimmed; a tile of {tile.BM} x {tile.BN}",
        supports=supports(operator),
        tile=macros,
        math=math,
        pack=PACK,
        registers=REGISTERS if operator == WEIGHT else REGISTERS_BY_BM.get(tile.BM, REGISTERS),
        supports_epilogue=operator != WEIGHT,
        supports_statistics=operator == FORWARD,
        supports_step=operator == INPUT,
    )


_ALGORITHMS: dict[str, tuple[str, Callable[..., Any]]] = {
    FORWARD: ("conv_v2", conv_v2.plan_sm90),
    INPUT: ("ks_deconv", ks_deconv.plan_sm90),
    WEIGHT: ("sk_dilated", sk_dilated.plan_sm90),
}


def _position_rows(operator: str) -> tuple[Configuration, ...]:
    """The configurations of ConvV2 or KS-deconv, whose rows are output pixels."""
    blocks = 1 if operator == FORWARD else 2  # of large tiles; with a stride only, see `position_tile`
    small = _Tile(64, 32, 3), _Tile(64, 64, 3), _Tile(64, 128, 2)  # few rows: more blocks than with large tiles
    three = _Tile(192, 64), _Tile(192, 128), _Tile(192, 192)  # where they leave fewer SMs idle in the last wave
    tiles = {
        MathMode.BF16: (
            _Tile(128, 32, 2),
            _Tile(128, 96, blocks),
            _Tile(128, 192),
            _Tile(128, 256),
            _Tile(256, 128),
            _Tile(128, 128, blocks),
            _Tile(256, 64, blocks),
            _Tile(128, 64, 2),
            *three,
            *small,
        ),
        MathMode.FP16: (_Tile(128, 256), _Tile(256, 128), _Tile(128, 128), _Tile(128, 64)),
        MathMode.TF32: (
            _Tile(128, 32, 2),
            _Tile(128, 96),
            _Tile(128, 192),
            _Tile(128, 256),
            _Tile(256, 128),
            _Tile(128, 128),
            _Tile(256, 64, blocks),
            _Tile(128, 64, 2),
            *three,
            *small,
        ),
        MathMode.FP16X3: (_Tile(128, 32), _Tile(128, 96), _Tile(128, 128), _Tile(256, 64), _Tile(128, 64)),
    }
    found = [(math, tile) for math, group in tiles.items() for tile in group]
    fp16 = [replace(tile, prepared=1, blocks=1 if tile.BN == 128 else tile.blocks) for tile in tiles[MathMode.BF16]]
    found += [(MathMode.FP16, tile) for tile in fp16]
    return tuple(_configure(operator, math, tile) for math, tile in found)


FORWARD_ROWS = _position_rows(FORWARD)
INPUT_ROWS = _position_rows(INPUT)
_PING_PONG = "Hopper, trimmed; 64 filters, the warpgroups ping-pong"


def _weight_rows() -> tuple[Configuration, ...]:
    """The configurations of Sk-dilated. With prepared terms, X is converted once and not in each block."""
    few, own = (_Tile(64, 32), _Tile(64, 64)), (_Tile(128, 32), _Tile(128, 96), _Tile(128, 64))
    prepared = _Tile(128, 128, prepared=1), _Tile(128, 64, prepared=1)
    more = {
        MathMode.BF16: (_Tile(128, 128), _Tile(128, 256)),
        MathMode.FP16: prepared,
        MathMode.BF16X3: (_Tile(64, 128), _Tile(128, 128)),
        MathMode.FP16X3: prepared,
    }
    return tuple(
        _configure(WEIGHT, math, tile, _PING_PONG if tile.BM == 64 else "")
        for math, group in more.items()
        for tile in (*few, *own, *group)
    ) + tuple(
        _configure(WEIGHT, MathMode.FP16, replace(tile, prepared=2), _PING_PONG if tile.BM == 64 else "")
        for tile in (*few, *own, *more[MathMode.BF16])
    )


WEIGHT_ROWS = _weight_rows()
