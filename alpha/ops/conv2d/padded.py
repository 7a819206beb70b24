"""Convolutions on padded copies: kernels that take whole packs of channels compute any number of channels.

Tensor cores and TMA read rows of whole packs of channels (`Configuration.pack`). For other numbers the operands are
copied with zeros behind the channels that the kernel sums over, which change no result. Channels that are a part of the
result are padded only if the kernel asks for it, too; the result is then copied without them. The copies cost less than
a kernel without tensor cores, and `predict` counts them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from alpha.ops.conv2d.problem import FORWARD, INPUT, OPERANDS, RESULT, WEIGHT, Configuration, Target
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.dtypes import BLOCK
from alpha.ops.kernel.plan import KernelLaunch, Named

# the channels over which an operator sums, or of which the gradient of a filter has rows and columns
_READ = {FORWARD: ("IC",), INPUT: ("OC",), WEIGHT: ("IC", "OC")}
_WORDS = {2: "unsigned short", 4: "unsigned"}

Sizes = tuple[int, ...]


@functools.lru_cache(maxsize=1 << 14)
def shape_for(v: Configuration, s: ConvShape, target: Target) -> ConvShape | None:
    """The shape that the kernels of a configuration compute for `s`: itself, or with padded channels; None: neither."""
    if v.supports(s, target):
        return s
    if v.pack == 1:
        return None
    for channels in (_READ[v.operator], ("IC", "OC")):
        wider = replace(s, **{name: -(-getattr(s, name) // v.pack) * v.pack for name in channels})
        if v.supports(wider, target):
            return wider
    return None


def resized(operator: str, s: ConvShape, used: ConvShape) -> Mapping[str, tuple[Sizes, Sizes]]:
    """The arrays of an operator whose sizes differ between both shapes: the sizes for `s`, and those for `used`."""
    names = (*OPERANDS[operator], RESULT[operator])
    sizes = {name: tuple([getattr(shape, name.removeprefix("d")) for shape in (s, used)]) for name in names}
    return {name: both for name, both in sizes.items() if both[0] != both[1]}


def resize(source: str, result: str, sizes: tuple[Sizes, Sizes], dtype: np.dtype[np.generic]) -> KernelLaunch:
    """The launch that copies `source` into `result`: with zeros where only `result` has elements.

    Args:
        sizes: of both arrays, which differ in their first or last axis.
    """
    (*_, XC), (*_, YC) = sizes
    elements = prod(sizes[1])
    vector = 16 // dtype.itemsize if YC % (16 // dtype.itemsize) == 0 else 1
    index = "unsigned" if max(map(prod, sizes)) < 1 << 31 else "unsigned long long"
    packs = elements // vector
    return KernelLaunch(
        "layout/resize_rows.cu",
        "resize_rows",
        -(-packs // BLOCK),
        BLOCK,
        (Named(result), Named(source), np.int64(packs), np.int64(prod(sizes[0]) // XC), XC, YC),
        {"WORD": _WORDS[dtype.itemsize], "VECTOR": vector, "INDEX": index},
    )
