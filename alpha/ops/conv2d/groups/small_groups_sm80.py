"""Plans of the kernels for groups of few channels (ResNeXt) on mma.sync, for sm_80 and newer.

A block walks down the rows of some strips of the map (cuda/conv2d/small_groups/map_sm80.cuh). A warp has some pixel
groups of eight neighbouring results and 8 or 16 channels, whose filters stay in its registers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from alpha.ops.conv2d.groups.depthwise import ceil_div
from alpha.ops.conv2d.groups.small_groups import is_narrow
from alpha.ops.conv2d.problem import INPUT, OPERANDS, RESULT, ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration

VECTOR_BYTES, PIXELS, TILE = 16, 8, 8  # bytes of a vector; results of a pixel group; channels of a fragment
MAX_FILTER = 72  # registers of a thread for filters
MAX_GROUPS = 8  # pixel groups of a strip
WARPS, MAX_MT = 4, 2  # of a block, or twice as many; fragments of 16 results of a warp
FEW_WORDS, SOME_WORDS, MOST_WORDS = 72, 100, 150  # registers for filters and sums if a thread may have 128, 168, 255
BLOCK_BYTES = 128  # of a pixel's channels of a block, if there are as many
STAGE_BYTES, MAX_STAGES, MIN_STAGES = 40 << 10, 6, 3  # of all stages, if so many fit
BEGINNING = 6  # of a block, in rows
MAX_SHARED = 96 << 10  # bytes; less than every GPU from sm_80 on has
REGISTERS = 255  # of a thread, at most
MAX_OFFSET = 1 << 31  # bytes of the images of a block


class Sides(NamedTuple):
    """Source and result of a map: X and Y, or for the input gradient dY and dX."""

    source_group: int  # channels
    result_group: int
    source_channels: int
    channels: int
    height: int
    width: int
    positions: int  # of a row, at which a block computes results; one per column, or per column and residue
    live: int  # rows of results that meet a step
    residues: int
    source_rows: int  # of a step
    classes: int  # of columns of the source that lie apart in shared memory

    def first_vector(self, channel: int, chunk: int) -> int:
        """The first vector of the source that a fragment reads, from this channel of the results on."""
        return channel // self.result_group * self.source_group // chunk

    def vectors(self, channel: int, chunk: int) -> int:
        """The vectors of the source that a fragment reads."""
        last = min(channel + TILE, self.channels) - 1
        end = (last // self.result_group + 1) * self.source_group
        return ceil_div(end, chunk) - self.first_vector(channel, chunk)


def sides(operator: str, s: ConvShape) -> Sides:
    IG, OG = s.IC // s.groups, s.OC // s.groups
    if operator == INPUT:
        positions = (s.IW - 1 + s.pw) // s.sw - s.pw // s.sw + 1
        return Sides(OG, IG, s.OC, s.IC, s.IH, s.IW, positions, max(s.FH, s.sh), s.sw, 1, 1)
    return Sides(IG, OG, s.IC, s.OC, s.OH, s.OW, s.OW, ceil_div(s.FH, s.sh), 1, s.sh, s.sw)


class Tile(NamedTuple):
    """The tile of a block; each name is a macro of the kernel, which says what it is."""

    K_VECTORS: int
    NT: int
    MT: int
    WN: int
    WM: int
    GROUPS: int
    STRIPS: int
    PIECES: int
    VECTORS: int
    STAGES: int
    BLOCKS: int

    @property
    def channels(self) -> int:
        """Channels of the results of a block."""
        return TILE * self.NT * self.WN

    @property
    def threads(self) -> int:
        return 32 * self.WN * self.WM


def filter_registers(operator: str, s: ConvShape, item: int) -> int:
    """Registers for the filters of eight channels of the results."""
    return s.FH * s.FW * filter_vectors(sides(operator, s), VECTOR_BYTES // item)


def filter_vectors(m: Sides, chunk: int) -> int:
    """The most vectors that a fragment reads; an even number, since a product has two, or with bfloat16 one."""
    most = max(m.vectors(channel, chunk) for channel in range(0, m.channels, TILE))
    return 1 if most == 1 and chunk == 8 else most + most % 2


def window_vectors(m: Sides, chunk: int, channels: int, K: int) -> int:
    """The most vectors of a pixel of the source that a block with so many channels of the results reads."""
    most = 0
    for first in range(0, m.channels, channels):
        for channel in range(first, min(first + channels, m.channels), TILE):
            most = max(most, m.first_vector(channel, chunk) - m.first_vector(first, chunk) + K)
    return most


def source_bytes(s: ConvShape, m: Sides, tile: Tile) -> int:
    """Shared memory of the rows of the source of a step."""
    slots = m.classes * (PIXELS * tile.GROUPS - 1 + ceil_div(s.FW, s.sw))
    return m.source_rows * tile.STRIPS * slots * (tile.VECTORS | 1) * VECTOR_BYTES


@functools.lru_cache(maxsize=1024)
def tile_of(operator: str, s: ConvShape, item: int) -> Tile:
    """The tile for elements of `item` bytes: eight warps if two such blocks fit an SM, or else four."""
    tile = _tile(operator, s, item, 2 * WARPS, 2)
    if _words(operator, s, tile) <= FEW_WORDS and shared_bytes(operator, s, tile, item) <= 2 * STAGE_BYTES:
        return tile._replace(BLOCKS=2)
    tile = _tile(operator, s, item, WARPS, 2)
    if _words(operator, s, tile) > MOST_WORDS:
        tile = _tile(operator, s, item, WARPS, 1)
    return tile._replace(BLOCKS=3 if _words(operator, s, tile) <= SOME_WORDS else 2)


def _words(operator: str, s: ConvShape, tile: Tile) -> int:
    """Registers of a thread for filters and sums."""
    m = sides(operator, s)
    return tile.NT * (s.FH * s.FW * tile.K_VECTORS + 4 * tile.MT * m.live * m.residues)


def _tile(operator: str, s: ConvShape, item: int, warps: int, most: int) -> Tile:
    """Pixels of 128 bytes, and strips of whole rows if these are short; a warp has at most `most` tiles of channels."""
    m, chunk = sides(operator, s), VECTOR_BYTES // item
    K = filter_vectors(m, chunk)
    fragments = ceil_div(m.channels, TILE)
    NT = most if fragments > 1 and 2 * s.FH * s.FW * K <= MAX_FILTER else 1
    WN = min(BLOCK_BYTES // item // (TILE * NT), ceil_div(fragments, NT), warps)
    WM = warps // WN
    groups = ceil_div(m.positions, PIXELS)
    GROUPS = ceil_div(groups, ceil_div(groups, min(MAX_GROUPS, 2 * MAX_MT * WM)))
    MT = ceil_div(GROUPS, 2 * WM)
    pieces = ceil_div(groups, GROUPS)
    STRIPS = min(2 * WM * MT // GROUPS, s.N * pieces)
    WM = ceil_div(STRIPS * GROUPS, 2 * MT)
    tile = Tile(K, NT, MT, WN, WM, GROUPS, STRIPS, pieces, window_vectors(m, chunk, TILE * NT * WN, K), 1, 1)
    stages = STAGE_BYTES // source_bytes(s, m, tile)
    return tile._replace(STAGES=max(MIN_STAGES, min(MAX_STAGES, stages)))


def _filter_bytes(operator: str, s: ConvShape, tile: Tile, item: int) -> int:
    """Shared memory of the filters of a block: a row for each output channel, an odd number of vectors apart."""
    rows = tile.VECTORS * VECTOR_BYTES // item if operator == INPUT else tile.channels
    return rows * (ceil_div(s.FH * s.FW * s.IC // s.groups * item, VECTOR_BYTES) | 1) * VECTOR_BYTES


def shared_bytes(operator: str, s: ConvShape, tile: Tile, item: int) -> int:
    """Shared memory of a block: the stages and the filters."""
    return tile.STAGES * source_bytes(s, sides(operator, s), tile) + _filter_bytes(operator, s, tile, item)


def has_vectors(s: ConvShape, item: int) -> bool:
    """True for such groups of channels, and pixels of whole vectors."""
    return is_narrow(s) and s.IC * item % VECTOR_BYTES == s.OC * item % VECTOR_BYTES == 0


def supports(operator: str, s: ConvShape, item: int) -> bool:
    """True for such groups if their filters fit the registers of a warp, and their rows the shared memory."""
    if not has_vectors(s, item) or filter_registers(operator, s, item) > MAX_FILTER:
        return False
    tile = tile_of(operator, s, item)
    images = (tile.STRIPS + 1) * max(s.IH * s.IW * s.IC, s.OH * s.OW * s.OC) * item
    fits = _words(operator, s, tile) <= MOST_WORDS and shared_bytes(operator, s, tile, item) <= MAX_SHARED
    return fits and images < MAX_OFFSET


def macros(p: ConvProblem, v: Configuration) -> dict[str, Any]:
    """The macros of a kernel besides its tile."""
    s = p.shape
    return {
        **v.macros,
        **{"IG": s.IC // s.groups, "OG": s.OC // s.groups, "FH": s.FH, "FW": s.FW},
        **{"SH": s.sh, "SW": s.sw, "PW": s.pw},
    }


def small_groups_map(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each warp multiplies some pixel groups with filters in its registers   X, W -> Y or dY, W -> dX"""
    s, result, m = p.shape, RESULT[p.operator], sides(p.operator, p.shape)
    tile = tile_of(p.operator, s, p.dtype.itemsize)
    chunks, bundles = ceil_div(m.channels, tile.channels), ceil_div(s.N * tile.PIECES, tile.STRIPS)
    rows = segment_rows(m, s, chunks * bundles, tile.BLOCKS * target.num_sms)
    entry = "input" if p.operator == INPUT else "forward"
    launch = KernelLaunch(
        f"conv2d/small_groups/{entry}_sm80.cu",
        f"small_groups_{entry}_sm80",
        chunks * bundles * ceil_div(m.height, rows),
        tile.threads,
        (
            *(ArrayArg(name) for name in (result, *OPERANDS[p.operator])),
            ArrayArg("bias", optional=True),
            ScalarArg("slope"),
            as_struct(s),
            rows,
        ),
        {**macros(p, v), **tile._asdict(), "EPILOGUE": int(p.epilogue.changes_results)},
        shared_bytes(p.operator, s, tile, p.dtype.itemsize),
    )
    return Plan(v.name, (launch,), {result: p.result})


def segment_rows(m: Sides, s: ConvShape, blocks: int, resident: int) -> int:
    """Rows of results per block, so that the blocks, of which so many are resident, end soonest.

    A block also reads the rows that two segments share, and its beginning takes about as long as some rows.
    """
    beginning = max(0, s.FH - s.sh) + BEGINNING

    def cost(segments: int) -> int:
        return ceil_div(blocks * segments, resident) * (ceil_div(m.height, segments) + beginning)

    return ceil_div(m.height, min(range(1, m.height + 1), key=cost))
