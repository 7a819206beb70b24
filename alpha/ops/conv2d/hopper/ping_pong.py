"""Tiles of 64 channels for warpgroups in turns: while one multiplies, the other one finishes and stores its results.

An instruction of the tensor cores then has 64 channels x 256 pixels, and the filter of a block stays in shared memory
(cuda/conv2d/sm90/ping_pong.cuh).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from alpha.ops.conv2d.hopper import output_tiles
from alpha.ops.conv2d.hopper.output_tiles import OutputTiles, Tile
from alpha.ops.conv2d.problem import MathMode
from alpha.ops.conv2d.shape import ConvShape, ndim
from alpha.ops.kernel.rectifier import FROM_OUTPUT, FROM_SUM, NOT_RECTIFIED

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Epilogue
    from alpha.ops.conv2d.step_form import StepForm

REPLACED = Tile(256, 64, MathMode.BF16)
TILE = REPLACED._replace(ping_pong=True)
GROUPS = 2  # warpgroups that take turns
BLOCK_BYTES = 512  # 16 rows of a warp's 16 channels, on their way from or to memory
STAGED_BLOCKS = 4  # of results, that a warp stores together
FEWEST_STAGES = 3  # of input-row tiles
FEWEST_IMAGES = 8  # of a tile; with fewer a thread would need more registers than it has
LEAST_DEPTH = 4  # blocks of the maps of a first step under way
MOST_DEPTH = {1: 5, 2: 4}  # by the number of maps: three leave room for so few blocks that nothing is gained
MOST_DEPTH_UNDONE = 4  # where X is found again: with more a thread would need more registers than it has
MOST_IMAGES_OF_STEP = 16  # of a tile
# static shared memory: StagedRows and ChannelSums::Shared of sm90/ping_pong.cuh; FirstStep::Shared
RESULTS_BYTES = TILE.consumer_warps * STAGED_BLOCKS * BLOCK_BYTES + 4 * GROUPS * (2 * TILE.BN + 1)
STEP_BYTES = 4 * TILE.BN * (3 + 2 * GROUPS) + TILE.consumer_warps * (32 * 16 + 4) + 16


class Stages(NamedTuple):
    """Shared memory of a block: stages of input-row tiles and of the filter, and blocks of maps under way."""

    a: int
    b: int
    depth: int


def stages(output: OutputTiles, K: int, taps: int, step: StepForm | None) -> Stages | None:
    """The stages of a block; None if they do not fit."""
    b, depth = taps * -(-K // TILE.BK), 0
    room = output_tiles.shared_bytes(1) - b * TILE.b_bytes - (RESULTS_BYTES if step is None else STEP_BYTES)
    if step is not None:
        most = MOST_DEPTH.get(len(step.maps), 0)
        if step.sign == FROM_OUTPUT:
            most = min(most, MOST_DEPTH_UNDONE)
        depth = min(most, max(0, room - FEWEST_STAGES * output.a_bytes) // maps_bytes(step, 1))
        if depth < LEAST_DEPTH:
            return None
        room -= maps_bytes(step, depth)
    a = min(output_tiles.MAX_STAGES, max(0, room) // output.a_bytes)
    return Stages(a, b, depth) if a >= FEWEST_STAGES else None


def maps_bytes(step: StepForm, depth: int) -> int:
    """Bytes of shared memory for the maps of a first step: of FirstStep::Staged of sm90/first_step_channels.cuh."""
    return depth * len(step.maps) * TILE.consumer_warps * BLOCK_BYTES


def has_registers(output: OutputTiles, epilogue: Epilogue) -> bool:
    """True if a thread has the registers for what is done beside the product. Without them the compiler spills some.

    There is no formula. tests/gate compiles what this function, MOST_DEPTH and LEAST_DEPTH allow.
    """
    has_halo, step = output.tile_iw > output.tile_ow, epilogue.step
    if step is not None:
        spills = step.sign in (NOT_RECTIFIED, FROM_SUM) or output.images > MOST_IMAGES_OF_STEP
        wide = has_halo and output.images == MOST_IMAGES_OF_STEP
        return not spills and not (wide and step.sign == FROM_OUTPUT and not step.other)
    both = epilogue.changes_results and epilogue.statistics
    return not both or has_halo or output.images > FEWEST_IMAGES


def tiles_in_turns(s: ConvShape, tile: Tile, epilogue: Epilogue, num_sms: int, forward: bool) -> OutputTiles:
    """The tiles of a convolution of Y (`forward`) or dX: those of a tile, or for warpgroups in turns if these can.

    They can if each of them has a tile in every block, if each tile has a product, and if the filter fits.
    """
    tiles_of = output_tiles.conv_v2_tiles if forward else output_tiles.ks_deconv_tiles
    GN, K = (s.OC, s.IC) if forward else (s.IC, s.OC)
    across = -(-GN // TILE.BN)
    if tile != REPLACED or ndim(s) > 2 or GN % 8 or num_sms % across > num_sms // 8:
        return tiles_of(s, tile)
    output = tiles_of(s, TILE)
    count = len(output.rows) * len(output.starts) * -(-s.N * output.tile_ow // TILE.BM) * across
    has_products = min(output.rows.min(), output.widths.min()) > 0
    whole = output.images >= FEWEST_IMAGES and has_products and count >= GROUPS * num_sms
    fits = has_registers(output, epilogue) and stages(output, K, s.taps, epilogue.step) is not None
    return output if whole and fits else tiles_of(s, tile)
