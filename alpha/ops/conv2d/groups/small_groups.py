"""Plans of the kernels for groups of few channels (ResNeXt) on FFMA; see small_groups_sm80.py for tensor cores.

A thread computes four neighbouring channels of a strip of columns (depthwise.py). The filters lie in shared memory.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from alpha.ops.conv2d.groups.depthwise import MAX_STRIDE, Strips, best_strips, ceil_div
from alpha.ops.conv2d.partial_sums import with_partial_sums
from alpha.ops.conv2d.problem import FORWARD, INPUT, OPERANDS, RESULT, WEIGHT, ConvProblem, Target
from alpha.ops.conv2d.shape import ConvShape, as_struct
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration

QUAD = 4  # channels of a thread
MAX_CHANNELS, MAX_ROWS, MAX_COLUMNS = 32, 7, 3  # of a group; of a filter
SHARED = 40 << 10  # bytes for filters, at most
THREADS, WEIGHT_THREADS = 128, 256  # of a block, at most
REGISTERS, RESIDENT = 168, 3  # of a thread, at most; blocks per SM that such registers allow
WAVES = 2  # up to so many times the resident blocks, each strip has a thread of its own


@functools.lru_cache(maxsize=1024)
def strips_of(operator: str, s: ConvShape) -> Strips | None:
    return best_strips(operator, s, lambda strips: True)


def _lanes(operator: str, s: ConvShape) -> int:
    """The threads next to each other that have the quads of channels of a block: a power of two, or all quads."""
    IG, OG = s.IC // s.groups, s.OC // s.groups
    if operator == WEIGHT:
        quads, most = s.OC // QUAD, WEIGHT_THREADS // (s.FH * IG // QUAD)
    else:
        channels, source = (s.IC, OG) if operator == INPUT else (s.OC, IG)
        quads, most = channels // QUAD, SHARED // (4 * QUAD * s.FH * s.FW * source)
    return min(quads, 32, 1 << max(most, 1).bit_length() - 1)


def is_narrow(s: ConvShape) -> bool:
    """True for groups of 4 to 32 channels without dilation."""
    IG, OG = s.IC // s.groups, s.OC // s.groups
    return s.groups > 1 and IG % QUAD == OG % QUAD == 0 and max(IG, OG) <= MAX_CHANNELS and s.dh == s.dw == 1


def supports(operator: str, s: ConvShape) -> bool:
    """True for groups of 4 to 32 channels, small filters without dilation and regular strips."""
    small = s.FH <= MAX_ROWS and s.FW <= MAX_COLUMNS and max(s.sh, s.sw) <= MAX_STRIDE
    return is_narrow(s) and small and strips_of(operator, s) is not None


def supports_all(s: ConvShape) -> bool:
    """True if each of the three operators is supported."""
    return all(supports(operator, s) for operator in (FORWARD, INPUT, WEIGHT))


def small_groups_map(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each thread adds up four channels of a strip   X, W -> Y or dY, W -> dX, with bias and activation"""
    s, result, lanes = p.shape, RESULT[p.operator], _lanes(p.operator, p.shape)
    strips = strips_of(p.operator, s)
    assert strips is not None
    channels, height, source = (s.IC, s.IH, s.OC) if p.operator == INPUT else (s.OC, s.OH, s.IC)
    chunks, tasks = ceil_div(channels, QUAD * lanes), s.N * height * strips.number
    rows = min(tasks, THREADS // lanes)
    most, wanted = max(1, RESIDENT * target.num_sms // chunks), ceil_div(tasks, rows)
    entry = "input" if p.operator == INPUT else "forward"
    launch = KernelLaunch(
        f"conv2d/small_groups/{entry}_ffma.cu",
        f"small_groups_{entry}_ffma",
        chunks * (wanted if wanted <= WAVES * most else most),
        (lanes, rows),
        (
            *(ArrayArg(name) for name in (result, *OPERANDS[p.operator])),
            ArrayArg("bias", optional=True),
            ScalarArg("slope"),
            as_struct(s),
            strips.number,
            tasks,
        ),
        strips.macros(p, QUAD, RESIDENT),
        4 * QUAD * (lanes + 1) * s.FH * s.FW * source // s.groups,
    )
    return Plan(v.name, (launch,), {result: p.result})


def small_groups_weight(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """Each thread has 4 x 4 channels and a row of the filter; each block has a partial sum   X, dY -> dW"""
    s, lanes = p.shape, _lanes(WEIGHT, p.shape)
    strips = strips_of(WEIGHT, s)
    assert strips is not None
    rows = s.FH * (s.IC // s.groups) // QUAD
    threads = ceil_div(lanes * rows, 32) * 32
    resident = min(8, (1 << 16) // (REGISTERS * threads))
    chunks, tasks = ceil_div(s.OC, QUAD * lanes), s.N * s.OH * strips.number
    blocks = min(tasks, max(1, resident * target.num_sms // chunks))
    launch = KernelLaunch(
        "conv2d/small_groups/weight_ffma.cu",
        "small_groups_weight_ffma",
        (chunks, blocks),
        (lanes, rows),
        (ArrayArg("part"), ArrayArg("X"), ArrayArg("dY"), as_struct(s), strips.number, tasks),
        strips.macros(p, QUAD, resident) | {"THREADS": threads},
    )
    return with_partial_sums(p, v, target, (launch,), blocks)
