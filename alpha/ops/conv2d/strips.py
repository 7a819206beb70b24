"""How the kernels of depthwise and grouped convolutions cut a row of results into strips of columns, one per thread.

The columns of a strip's source that are padding are left out at compile time. So the strips must be *regular*: only the
first has padding on its left, and only the last on its right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from alpha.ops.conv2d.problem import INPUT, ConvProblem
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.dtypes import CUDA_TYPES

MAX_STRIDE, MAX_COLUMNS = 3, 8


def ceil_div(length: int, step: int) -> int:
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
