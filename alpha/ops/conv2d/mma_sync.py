"""Plans of the convolution kernels on mma.sync, for sm_80 and newer: one output pixel of some images per block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.ops.kernel.plan import KernelLaunch

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration

Order = np.ndarray[Any, Any]

RESERVED_BYTES = 1024  # of shared memory, for each block that an SM holds
ROW_BYTES = 128  # bytes of K in a row of a tile, which are one step


def threads_of(tile: Mapping[str, Any]) -> int:
    return int(32 * (tile["BM"] // tile["WM"]) * (tile["BN"] // tile["WN"]))


def tile_bytes(tile: Mapping[str, Any]) -> int:
    """Bytes of shared memory of all stages of a tile."""
    return int(tile["STAGES"] * (tile["BM"] + tile["BN"]) * ROW_BYTES)


# -- the order of output pixels: most taps first, so that the last blocks of a grid are short ones ------


def tap_count(taps: tuple[int, int]) -> int:
    return taps[1] - taps[0]


def longest_first(rows: list[int], columns: list[int]) -> Order:
    taps = np.multiply.outer(rows, columns).reshape(-1)
    return np.argsort(-taps, kind="stable").astype(np.int32)


# -- ConvV2 -----------------------------------------------------------------------------------------


def pixel_launch(source: str, entry: str, grid: int, v: Configuration, arguments: tuple[Any, ...]) -> KernelLaunch:
    return KernelLaunch(source, entry, grid, threads_of(v.tile), arguments, v.macros, tile_bytes(v.tile))


# -- KS-deconv --------------------------------------------------------------------------------------


# -- Sk-dilated -------------------------------------------------------------------------------------
