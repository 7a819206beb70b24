"""Plans of the depthwise kernels: groups of one input channel. Time goes to memory, so each pixel is read about once.

A thread computes a strip of columns (strips.py) of all rows of a *segment* of one image.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from alpha.numerics import BFLOAT16
from alpha.ops.conv2d.partial_sums import with_partial_sums
from alpha.ops.conv2d.problem import INPUT, OPERANDS, RESULT, ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct
from alpha.ops.conv2d.strips import MAX_STRIDE, Strips, best_strips, ceil_div
from alpha.ops.plan import KernelLaunch, Named, Plan, Value

if TYPE_CHECKING:
    from alpha.ops.conv2d.configuration import Configuration

MAX_FILTER = 7
THREADS = 128  # of a block, at most
REGISTERS = 168  # of a thread, at most
OTHER_REGISTERS = 20  # of a thread, besides sums, filters and a row of the source
WAVES = 2  # of threads that are resident at once, if there is work for them


def _live(operator: str, s: ConvShape) -> int:
    """The rows of results to which a row of the source adds, or of dY that a row of X meets."""
    return max(s.FH, s.sh) if operator == INPUT else ceil_div(s.FH, s.sh)


def _registers(operator: str, s: ConvShape, strips: Strips, vector: int) -> int:
    held = s.FH * s.FW + _live(operator, s) * strips.columns + strips.sources
    return vector * held + OTHER_REGISTERS


@functools.lru_cache(maxsize=1024)
def strips_of(operator: str, s: ConvShape, vector: int) -> Strips | None:
    """The strips that read least, whole ones if possible; None if there are no regular ones that fit the registers."""
    return best_strips(operator, s, lambda strips: _registers(operator, s, strips, vector) <= REGISTERS)


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
        return ceil_div(self.channels, self.vector * self.block[0])


def _block(packs: int, tasks: int) -> tuple[int, int]:
    """Threads of a block by packs of channels and by strips: first few idle ones, then whole warps of packs."""

    def idle(block: tuple[int, int]) -> tuple[float, bool, int, int]:
        x, y = block
        running = ceil_div(packs, x) * x * ceil_div(x * y, 32) * 32 / (x * y)
        return running, x % 32 > 0, -x, -y

    widths = [packs] if packs < 16 else range(16, min(packs, 96) + 8, 8)
    return min(((x, y) for x in widths for y in range(1, min(tasks, THREADS // x) + 1)), key=idle)


def kernel_of(p: ConvProblem, target: Target) -> Kernel:
    """Threads, strips and segments for a problem that `supports` accepts."""
    s = p.shape
    channels, height = (s.IC, s.IH) if p.operator == INPUT else (s.OC, s.OH)
    pairs = p.dtype == BFLOAT16 and s.OC == s.IC and s.IC % 2 == 0 and s.FH * s.FW <= 9
    vector = 2 if pairs and strips_of(p.operator, s, 2) else 1
    strips = strips_of(p.operator, s, vector)
    assert strips is not None
    spare = 0 if target.compute_capability >= (8, 0) else 8  # Turing takes more of them for addresses
    registers = ceil_div(_registers(p.operator, s, strips, vector) + spare, 8) * 8
    resident = min(8, (1 << 16) // (THREADS * registers))
    packs = channels // vector
    wanted = WAVES * resident * THREADS * target.num_sms
    segments = ceil_div(wanted, s.N * strips.number * packs)
    rows = max(ceil_div(height, segments), min(height, 2 * s.FH))
    tasks = s.N * strips.number * ceil_div(height, rows)
    return Kernel(channels, strips, vector, resident, _block(packs, tasks), rows, tasks)


def _launch(p: ConvProblem, kernel: Kernel, blocks: Any, result: str, epilogue: tuple[Any, ...]) -> KernelLaunch:
    s, strips = p.shape, kernel.strips
    entry = {"Y": "forward", "dX": "input"}.get(result, "weight")
    operands = [Named(name) for name in (result, *OPERANDS[p.operator])]
    return KernelLaunch(
        f"conv2d/depthwise/{entry}_ffma.cu",
        f"depthwise_{entry}_ffma",
        blocks,
        kernel.block,
        (*operands, *epilogue, as_struct(s), kernel.segment_rows, strips.number, kernel.tasks),
        strips.macros(p, kernel.vector, kernel.resident)
        | {"CHANNELS": kernel.channels, "MULTIPLIER": 1 if p.operator == INPUT else s.OC // s.IC},
        4 * kernel.block[0] * kernel.vector * s.FH * s.FW,
    )


def depthwise_map(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each thread adds up the rows of a strip   X, W -> Y or dY, W -> dX, with bias and activation"""
    kernel = kernel_of(p, target)
    grid = kernel.chunks * ceil_div(kernel.tasks, kernel.block[1])
    epilogue = (Named("bias", optional=True), Value("slope"))
    result = RESULT[p.operator]
    return Plan(v.name, (_launch(p, kernel, grid, result, epilogue),), {result: p.result})


def depthwise_weight(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each thread keeps the sums of all taps of a channel; each block has a partial sum   X, dY -> dW float32"""
    kernel = kernel_of(p, target)
    most = max(1, kernel.resident * target.num_sms // kernel.chunks)
    blocks = min(most, ceil_div(kernel.tasks, kernel.block[1]))
    launch = _launch(p, kernel, (kernel.chunks, blocks), "part", ())
    return with_partial_sums(p, v, target, (launch,), blocks)
