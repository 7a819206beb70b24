"""Plans of the kernels that compute a convolution with groups and dilation of any shape, one result per thread."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from alpha.ops.conv2d.partial_sums import with_partial_sums
from alpha.ops.conv2d.problem import OPERANDS, RESULT, ConvProblem, Target
from alpha.ops.conv2d.shape import as_struct
from alpha.ops.kernel.casts import CUDA_TYPES
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg

if TYPE_CHECKING:
    from alpha.ops.conv2d.problem import Configuration

SOURCE, THREADS = "conv2d/grouped/any_ffma.cu", 256
MAX_PARTIAL_BYTES = 64 << 20  # of all partial sums


def grouped_map(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """A thread per result   X, W -> Y or dY, W -> dX, with bias and activation"""
    result = RESULT[p.operator]
    names = [ArrayArg(name) for name in (result, *OPERANDS[p.operator])]
    launch = KernelLaunch(
        SOURCE,
        "grouped_forward" if result == "Y" else "grouped_input",
        -(-p.result.size // THREADS),
        THREADS,
        (*names, ArrayArg("bias", optional=True), ScalarArg("slope"), as_struct(p.shape)),
        {"TYPE": CUDA_TYPES[p.dtype]},
    )
    return Plan(v.name, (launch,), {result: p.result})


def grouped_weight(p: ConvProblem, v: Configuration, target: Target) -> Plan:
    """A thread per element of a filter and split of the rows   X, dY -> dW"""
    s = p.shape
    size = prod(s.W)
    blocks = -(-size // THREADS)
    splits = max(1, min(8 * target.num_sms // blocks, s.N * s.OH, MAX_PARTIAL_BYTES // (4 * size)))
    launch = KernelLaunch(
        SOURCE,
        "grouped_weight",
        (blocks, splits),
        THREADS,
        (ArrayArg("part"), ArrayArg("X"), ArrayArg("dY"), as_struct(s)),
        {"TYPE": CUDA_TYPES[p.dtype]},
    )
    return with_partial_sums(p, v, target, (launch,), splits)
