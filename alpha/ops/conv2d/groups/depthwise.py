"""Plans of the depthwise kernels: groups of one input channel. Time goes to memory, so each pixel is read about once.

A thread computes a strip of columns (`Strips`) of all rows of a *segment* of one image.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from alpha.core.numerics import BFLOAT16
from alpha.ops.conv2d.partial_sums import with_partial_sums
from alpha.ops.conv2d.problem import FORWARD, INPUT, OPERANDS, RESULT, WEIGHT, ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct
from alpha.ops.kernel.casts import CUDA_TYPES
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration


MAX_STRIDE, MAX_COLUMNS = 3, 8


def ceil_div(length: int, step: int) -> int:
    return -(-length // step)


class Strips(NamedTuple):
    """Strips into which one axis of results is cut, and the columns of the source that a strip meets.

    Attributes:
        columns: the columns of a strip.
        number: the number of strips.
        sources: the columns of the source that a strip meets, or that are padding.
        left: the columns of the first strip's source before the image.
        last_sources: the columns of the last strip's source before the end of the image.
        last_columns: the columns of the last strip.
    """

    columns: int
    number: int
    sources: int
    left: int
    last_sources: int
    last_columns: int

    def macros(self, p: ConvProblem, vector: int, blocks: int) -> dict[str, Any]:
        """The macros of cuda/conv2d/strips.cuh; `blocks` are those per SM."""
        s = p.shape
        return {
            **{"TYPE": CUDA_TYPES[p.dtype], "EPILOGUE": int(p.epilogue.changes_results)},
            **{"FH": s.FH, "FW": s.FW, "SH": s.sh, "SW": s.sw, "PW": s.pw, "VECTOR": vector, "BLOCKS": blocks},
            **{"COLUMNS": self.columns, "STRIPS": min(self.number, 3), "LEFT": self.left},
            **{"LAST_SOURCES": self.last_sources, "LAST_COLUMNS": self.last_columns},
        }

    @property
    def loads(self) -> int:
        """The columns of the source that all strips together read."""
        return self.sources * (self.number - 1) + self.last_sources - self.left


def cut(operator: str, s: ConvShape, columns: int) -> Strips | None:
    """Strips of so many columns of the results; None if they are not regular."""
    if operator == INPUT:
        if columns % s.sw:
            return None
        length, size, step, first = s.IW, s.OW, columns // s.sw, (s.pw - s.FW + s.sw) // s.sw
        sources = (columns - 1 + s.pw) // s.sw - first + 1
    else:
        length, size, step, first = s.OW, s.IW, columns * s.sw, -s.pw
        sources = (columns - 1) * s.sw + s.FW
    count = ceil_div(length, columns)
    inside = [(max(0, -at), min(sources, size - at)) for at in range(first, first + count * step, step)]
    if any(begin for begin, _ in inside[1:]) or any(end < sources for _, end in inside[:-1]):
        return None
    if any(begin >= end for begin, end in inside):
        return None
    return Strips(columns, count, sources, inside[0][0], inside[-1][1], length - (count - 1) * columns)


def best_strips(operator: str, s: ConvShape, fits: Callable[[Strips], bool]) -> Strips | None:
    """The strips that fit and read least, whole ones if possible; None if no regular ones fit."""
    found = [cut(operator, s, columns) for columns in range(1, MAX_COLUMNS + 1)]
    fitting = [strips for strips in found if strips and fits(strips)]
    return min(fitting, key=lambda x: (x.loads, x.last_columns < x.columns, -x.columns), default=None)


MAX_FILTER = 7
THREADS = 128  # of a block, at most
REGISTERS = 168  # of a thread, at most
OTHER_REGISTERS = 20  # of a thread, besides sums, filters and a row of the source
LEAPING_REGISTERS = {FORWARD: 4, INPUT: 24, WEIGHT: 8}  # more of them with a stride; so many that ptxas spills none
MOST_AHEAD = 2  # rows of a source of pairs of bfloat16, if registers are left
# with so many taps, or fewer, an SM needs all of its blocks to be busy; with more taps, a part of them
TAPS_OF_FULL_SM = 9


class Pack(NamedTuple):
    """The channels of a thread, and whether they are bfloat16."""

    vector: int = 1
    narrow: bool = False


def _live(operator: str, s: ConvShape) -> int:
    """The rows of results to which a row of the source adds, or of dY that a row of X meets."""
    return max(s.FH, s.sh) if operator == INPUT else ceil_div(s.FH, s.sh)


def _registers(operator: str, s: ConvShape, strips: Strips, pack: Pack, ahead: int = 1) -> int:
    """Number of registers per thread, with `ahead` rows of the source loaded ahead."""
    held = s.FH * s.FW + _live(operator, s) * strips.columns + strips.sources
    if operator == WEIGHT:  # a row of dY as it lies in memory, and addresses
        loaded = 16 + 14 * (s.FW > 3) if pack.narrow else 0
    else:  # rows of the source
        loaded = ahead * strips.sources
    leaping = LEAPING_REGISTERS[operator] if s.sh * s.sw > 1 else 0
    return pack.vector * held + loaded + leaping + OTHER_REGISTERS


@functools.lru_cache(maxsize=1024)
def strips_of(operator: str, s: ConvShape, pack: Pack) -> Strips | None:
    """The strips that read least, whole ones if possible; None if there are no regular ones that fit the registers."""
    return best_strips(operator, s, lambda strips: _registers(operator, s, strips, pack) <= REGISTERS)


def supports(operator: str, s: ConvShape) -> bool:
    """True for groups of one input channel, small filters without dilation and regular strips."""
    depthwise = s.groups == s.IC and (s.OC == s.IC or operator != INPUT) and s.dh == s.dw == 1
    small = max(s.FH, s.FW) <= MAX_FILTER and max(s.sh, s.sw) <= MAX_STRIDE
    return depthwise and small and all(strips_of(operator, s, Pack(1, narrow)) is not None for narrow in (False, True))


class Kernel(NamedTuple):
    """The launch of a depthwise kernel, but for its grid and its arguments."""

    channels: int
    strips: Strips
    vector: int
    resident: int  # blocks per SM
    block: tuple[int, int]  # packs of channels, segments of the same strip
    segment_rows: int
    groups: int  # of strips; a block computes one at a time
    ahead: int  # rows of the source that are loaded ahead

    @property
    def chunks(self) -> int:
        """Blocks that share the channels."""
        return ceil_div(self.channels, self.vector * self.block[0])

    def weight_blocks(self, target: Target) -> int:
        """The blocks that share the groups of strips of the same channels for dW, as many as run at the same time."""
        return min(max(1, self.resident * target.num_sms // self.chunks), self.groups)


@functools.lru_cache(maxsize=1024)
def _block(packs: int, segments: int) -> tuple[int, int]:
    """Threads of a block, by packs of channels and by segments: first few idle ones, then whole warps of packs."""

    def idle(block: tuple[int, int]) -> tuple[float, bool, int, int]:
        x, y = block
        running = ceil_div(packs, x) * x * ceil_div(x * y, 32) * 32 / (x * y)
        return running, x % 32 > 0, -x, -y

    widths = [packs] if packs < 16 else range(16, min(packs, 96) + 8, 8)
    return min(((x, y) for x in widths for y in range(1, min(segments, THREADS // x) + 1)), key=idle)


def kernel_of(p: ConvProblem, target: Target) -> Kernel:
    """Threads, strips and segments for a problem that `supports` accepts."""
    s = p.shape
    channels, height = (s.IC, s.IH) if p.operator == INPUT else (s.OC, s.OH)
    pairs = p.dtype == BFLOAT16 and s.OC == s.IC and s.IC % 2 == 0 and s.FH * s.FW <= 9
    narrow = p.dtype == BFLOAT16
    pack = Pack(2 if pairs and strips_of(p.operator, s, Pack(2, narrow)) else 1, narrow)
    strips = strips_of(p.operator, s, pack)
    assert strips is not None
    # ptxas takes more of them for addresses: always for Turing, and with a stride for Ampere
    leaps = p.operator == FORWARD and s.sh * s.sw > 1
    spare = 8 if target.compute_capability < (8, 0) or (leaps and target.compute_capability < (9, 0)) else 0
    resident, more = (
        min(8, (1 << 16) // (THREADS * ceil_div(_registers(p.operator, s, strips, pack, n) + spare, 8) * 8))
        for n in (1, MOST_AHEAD)
    )
    ahead = MOST_AHEAD if pack.vector > 1 and more == resident else 1

    def with_rows(rows: int) -> Kernel:
        segments = s.N * ceil_div(height, rows)
        block = _block(channels // pack.vector, min(segments, THREADS))
        groups = strips.number * ceil_div(segments, block[1])
        return Kernel(channels, strips, pack.vector, resident, block, rows, groups, ahead)

    lengths = {ceil_div(height, segments) for segments in range(1, height + 1)}
    # shorter segments would read more rows of their neighbours than of their own
    candidates = sorted((rows for rows in lengths if rows == height or rows > s.FH // 2), reverse=True)
    return min(map(with_rows, candidates), key=lambda kernel: _time(p, kernel, height, target))


def _time(p: ConvProblem, kernel: Kernel, height: int, target: Target) -> float:
    """The predicted time of a kernel, to compare segments of different lengths.

    The unit is the time in which all blocks that run at once go through one row of the source. Blocks run in waves. If
    the last wave is not full, its blocks still wait for memory as long as those of a full wave, unless the filters are
    large: then products take the time, and fewer blocks on an SM are done sooner. Fitted to measurements on an H200
    (docs/benchmarks.md).
    """
    s = p.shape

    def sources(rows: int) -> float:
        return (rows + s.FH - 1) / s.sh if p.operator == INPUT else rows * s.sh + s.FH - s.sh

    longest, segments = sources(kernel.segment_rows), ceil_div(height, kernel.segment_rows)
    last = sources(height - (segments - 1) * kernel.segment_rows)
    mean = ((segments - 1) * longest + last) / segments
    room = kernel.resident * target.num_sms
    if p.operator == WEIGHT:  # one wave of blocks, each of which computes several groups of strips
        blocks = kernel.weight_blocks(target)
        waves, rest = divmod(kernel.groups, blocks)
        return waves * mean + (longest if rest else 0)
    waves, rest = divmod(kernel.groups * kernel.chunks, room)
    least = min(1.0, TAPS_OF_FULL_SM / (s.FH * s.FW))  # the time of the last wave, as a share of a full one
    return waves * mean + max(least * longest * (rest > 0), rest / room * mean)


def _launch(p: ConvProblem, kernel: Kernel, blocks: Any, result: str, epilogue: tuple[Any, ...]) -> KernelLaunch:
    s, strips = p.shape, kernel.strips
    entry = {"Y": "forward", "dX": "input"}.get(result, "weight")
    macros = strips.macros(p, kernel.vector, kernel.resident) | {"CHANNELS": kernel.channels}
    macros["MULTIPLIER"] = 1 if p.operator == INPUT else s.OC // s.IC
    if p.operator != WEIGHT:
        macros["AHEAD"] = kernel.ahead
    operands = [ArrayArg(name) for name in (result, *OPERANDS[p.operator])]
    groups = (kernel.groups,) if p.operator == WEIGHT else ()
    return KernelLaunch(
        f"conv2d/depthwise/{entry}_ffma.cu",
        f"depthwise_{entry}_ffma",
        blocks,
        kernel.block,
        (*operands, *epilogue, as_struct(s), kernel.segment_rows, strips.number, *groups),
        macros,
        4 * kernel.block[0] * kernel.vector * s.FH * s.FW,
    )


def depthwise_map(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each thread adds up the rows of a strip   X, W -> Y or dY, W -> dX, with bias and activation"""
    kernel = kernel_of(p, target)
    grid = kernel.chunks * kernel.groups
    epilogue = (ArrayArg("bias", optional=True), ScalarArg("slope"))
    result = RESULT[p.operator]
    return Plan(v.name, (_launch(p, kernel, grid, result, epilogue),), {result: p.result})


def depthwise_weight(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each thread keeps the sums of all taps of a channel; each block has a partial sum   X, dY -> dW"""
    kernel = kernel_of(p, target)
    blocks = kernel.weight_blocks(target)
    launch = _launch(p, kernel, (kernel.chunks, blocks), "part", ())
    return with_partial_sums(p, v, target, (launch,), blocks)
