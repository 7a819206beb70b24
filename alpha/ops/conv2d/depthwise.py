"""Plans of the depthwise kernels: groups of one input channel. Time goes to memory, so each pixel is read about once.

A thread computes a *strip*: some columns of the results by all rows of a *segment* of one image. The columns of a strip
that are padding are left out at compile time. So the strips must be *regular*: only the first has padding on its left,
and only the last on its right.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from alpha.numerics import BFLOAT16
from alpha.ops.conv2d.partial_sums import with_partial_sums
from alpha.ops.conv2d.problem import INPUT, OPERANDS, RESULT, ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct
from alpha.ops.dtypes import CUDA_TYPES
from alpha.ops.plan import KernelLaunch, Named, Plan, Value

if TYPE_CHECKING:
    from alpha.ops.conv2d.configuration import Configuration

MAX_FILTER, MAX_STRIDE, MAX_COLUMNS = 7, 3, 8
THREADS = 128  # of a block, at most
REGISTERS = 168  # of a thread, at most
OTHER_REGISTERS = 25  # of a thread, besides sums, filters and a row of the source
WAVES = 2  # of threads that are resident at once, if there is work for them


def _ceil(length: int, step: int) -> int:
    return -(-length // step)


class Strips(NamedTuple):
    """How one axis of results is cut into strips, and which columns of the source a strip meets.

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

    @property
    def loads(self) -> int:
        """The columns of the source that all strips together read."""
        return self.sources * (self.number - 1) + self.last_sources - self.left


def _cut(operator: str, s: ConvShape, columns: int) -> Strips | None:
    """Strips of so many columns of the results; None if they are not regular."""
    if operator == INPUT:
        if columns % s.sw:
            return None
        length, size, step, first = s.IW, s.OW, columns // s.sw, (s.pw - s.FW + s.sw) // s.sw
        sources = (columns - 1 + s.pw) // s.sw - first + 1
    else:
        length, size, step, first = s.OW, s.IW, columns * s.sw, -s.pw
        sources = (columns - 1) * s.sw + s.FW
    count = _ceil(length, columns)
    inside = [(max(0, -at), min(sources, size - at)) for at in range(first, first + count * step, step)]
    if any(begin for begin, _ in inside[1:]) or any(end < sources for _, end in inside[:-1]):
        return None
    if any(begin >= end for begin, end in inside):
        return None
    return Strips(columns, count, sources, inside[0][0], inside[-1][1], length - (count - 1) * columns)


def _live(operator: str, s: ConvShape) -> int:
    """The rows of results to which a row of the source adds, or of dY that a row of X meets."""
    return max(s.FH, s.sh) if operator == INPUT else _ceil(s.FH, s.sh)


def _registers(operator: str, s: ConvShape, strips: Strips, vector: int) -> int:
    held = s.FH * s.FW + _live(operator, s) * strips.columns + strips.sources
    return vector * held + OTHER_REGISTERS


@functools.lru_cache(maxsize=1024)
def strips_of(operator: str, s: ConvShape, vector: int) -> Strips | None:
    """The strips that read least, whole ones if possible; None if there are no regular ones that fit the registers."""
    found = [_cut(operator, s, columns) for columns in range(1, MAX_COLUMNS + 1)]
    fitting = [strips for strips in found if strips and _registers(operator, s, strips, vector) <= REGISTERS]
    return min(fitting, key=lambda x: (x.loads, x.last_columns < x.columns, -x.columns), default=None)


def supports(operator: str, s: ConvShape) -> bool:
    """True for groups of one input channel, small filters without dilation and regular strips."""
    depthwise = s.groups == s.IC and (s.OC == s.IC or operator != INPUT) and s.dh == s.dw == 1
    small = max(s.FH, s.FW) <= MAX_FILTER and max(s.sh, s.sw) <= MAX_STRIDE
    return depthwise and small and strips_of(operator, s, 1) is not None


class Kernel(NamedTuple):
    """The launch of a depthwise kernel, but for its grid and its arguments."""

    channels: int
    strips: Strips
    vector: int
    resident: int  # blocks per SM
    block: tuple[int, int]  # packs of channels, strips
    segment_rows: int
    tasks: int  # strips of all segments of all images

    @property
    def chunks(self) -> int:
        """Blocks that share the channels."""
        return _ceil(self.channels, self.vector * self.block[0])


def _channel_threads(packs: int) -> int:
    """The threads of a block that share the channels: whole warps if they leave no more threads idle."""
    if packs <= 32:
        return packs
    return min(range(32, 97, 8), key=lambda threads: (_ceil(packs, threads) * threads, threads % 32, threads))


def kernel_of(p: ConvProblem, target: Target) -> Kernel:
    """Threads, strips and segments for a problem that `supports` accepts."""
    s = p.shape
    channels, height = (s.IC, s.IH) if p.operator == INPUT else (s.OC, s.OH)
    pairs = p.dtype == BFLOAT16 and s.OC == s.IC and s.IC % 2 == 0 and s.FH * s.FW <= 9
    vector = 2 if pairs and strips_of(p.operator, s, 2) else 1
    strips = strips_of(p.operator, s, vector)
    assert strips is not None
    registers = _ceil(_registers(p.operator, s, strips, vector), 8) * 8
    resident = min(8, (1 << 16) // (THREADS * registers))
    packs = channels // vector
    threads = _channel_threads(packs)
    wanted = WAVES * resident * THREADS * target.num_sms
    segments = _ceil(wanted, s.N * strips.number * packs)
    rows = max(_ceil(height, segments), min(height, 2 * s.FH))
    tasks = s.N * strips.number * _ceil(height, rows)
    return Kernel(channels, strips, vector, resident, (threads, min(tasks, THREADS // threads)), rows, tasks)


def _launch(p: ConvProblem, kernel: Kernel, blocks: Any, result: str, epilogue: tuple[Any, ...]) -> KernelLaunch:
    s, strips = p.shape, kernel.strips
    entry = {"Y": "forward", "dX": "input"}.get(result, "weight")
    operands = [Named(name) for name in (result, *OPERANDS[p.operator])]
    macros = {
        "TYPE": CUDA_TYPES[p.dtype],
        **{"FH": s.FH, "FW": s.FW, "SH": s.sh, "SW": s.sw, "PW": s.pw},
        **{"VECTOR": kernel.vector, "BLOCKS": kernel.resident},
        **{"COLUMNS": strips.columns, "STRIPS": min(strips.number, 3), "LEFT": strips.left},
        **{"LAST_SOURCES": strips.last_sources, "LAST_COLUMNS": strips.last_columns},
    }
    return KernelLaunch(
        f"conv2d/depthwise/{entry}_ffma.cu",
        f"depthwise_{entry}_ffma",
        blocks,
        kernel.block,
        (*operands, *epilogue, as_struct(s), kernel.segment_rows, strips.number, kernel.tasks),
        macros,
        4 * kernel.block[0] * kernel.vector * s.FH * s.FW,
    )


def depthwise_map(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each thread adds up the rows of a strip   X, W -> Y or dY, W -> dX, with bias and activation"""
    kernel = kernel_of(p, target)
    grid = kernel.chunks * _ceil(kernel.tasks, kernel.block[1])
    epilogue = (Named("bias", optional=True), Value("slope"))
    result = RESULT[p.operator]
    return Plan(v.name, (_launch(p, kernel, grid, result, epilogue),), {result: p.result})


def depthwise_weight(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each thread keeps the sums of all taps of a channel; each block has a partial sum   X, dY -> dW float32"""
    kernel = kernel_of(p, target)
    most = max(1, kernel.resident * target.num_sms // kernel.chunks)
    blocks = min(most, _ceil(kernel.tasks, kernel.block[1]))
    launch = _launch(p, kernel, (kernel.chunks, blocks), "part", ())
    return with_partial_sums(p, v, target, (launch,), blocks)
