"""Boxes of elements in an array, and their copies: what slices, permutations, joins and padding are made of.

Arrays are contiguous, so a `View` is no array. It says where the elements of a box lie in one, with any strides. Two
primitives copy such boxes: `read_view` into a new array, `write_view` into an existing one.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from alpha.core.primitive import Array, primitive
from alpha.errors import ShapeError
from alpha.ops.kernel.casts import BLOCK
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

Shape = tuple[int, ...]


class View(NamedTuple):
    """A box of elements of an array: element (i0, i1, ..) is number offset + i0 strides[0] + i1 strides[1] + .."""

    shape: Shape
    strides: Shape
    offset: int = 0

    @classmethod
    def whole(cls, shape: Shape) -> View:
        """All elements of an array of that shape."""
        strides, step = [], 1
        for length in reversed(shape):
            strides.append(step)
            step *= length
        return cls(shape, tuple(reversed(strides)))

    @property
    def size(self) -> int:
        """Elements of the box."""
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """True if the elements are neighbours in memory, in C order."""
        step = 1
        for length, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if length != 1 and stride != step:
                return self.size == 0
            step *= length
        return True

    def permuted(self, order: Shape) -> View:
        """The axes in another order."""
        return View(tuple([self.shape[i] for i in order]), tuple([self.strides[i] for i in order]), self.offset)

    def sliced(self, axis: int, start: int, length: int, step: int = 1) -> View:
        """Elements start, start + step, .. of an axis, `length` of them; the step may be negative."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + (start * strides[axis] if length else 0)
        shape[axis], strides[axis] = length, strides[axis] * step
        return View(tuple(shape), tuple(strides), offset)

    def dropped(self, axis: int, position: int) -> View:
        """The elements at one position of an axis, without this axis."""
        offset = self.offset + position * self.strides[axis]
        return View(self.shape[:axis] + self.shape[axis + 1 :], self.strides[:axis] + self.strides[axis + 1 :], offset)

    def inserted(self, axis: int, length: int = 1) -> View:
        """A new axis, along which the elements repeat."""
        shape, strides = self.shape, self.strides
        return View((*shape[:axis], length, *shape[axis:]), (*strides[:axis], 0, *strides[axis:]), self.offset)

    def flipped(self, axis: int) -> View:
        """An axis from its end to its beginning."""
        return self.sliced(axis, self.shape[axis] - 1, self.shape[axis], -1)

    def broadcast(self, shape: Shape) -> View:
        """The box repeated along axes of length 1 and along new leading axes; the shapes must fit."""
        lead = len(shape) - len(self.shape)
        own = (1,) * lead + self.shape
        strides = (0,) * lead + self.strides
        repeats = [0 if n == 1 and length != 1 else s for n, s, length in zip(own, strides, shape, strict=True)]
        return View(shape, tuple(repeats), self.offset)


@primitive
def read_view(X: Array, view: View) -> Array:
    """Y = the box of X that the view names   X (...) -> Y view.shape"""


@primitive
def write_view(Y: Array, view: View, X: Array, source: View) -> None:
    """The box `view` of Y becomes the box `source` of X, in place   Y (...), X (...) of one dtype

    The boxes have one shape, the elements of `view` are distinct, and X is other memory than Y.
    """


# -- cpu --------------------------------------------------------------------------------------------


@read_view.impl("cpu")
def _(X: Array, view: View) -> Array:
    Y = cpu_empty(view.shape, X.dtype)
    _copy_cpu(Y, X, view)
    return Y


@write_view.impl("cpu")
def _(Y: Array, view: View, X: Array, source: View) -> None:
    if view.size:
        _copy_cpu(_strided(Y, view), X, source)


def _copy_cpu(target: Array, X: Array, view: View) -> None:
    if not view.size:
        return
    source = _strided(X, view)
    if not view.shape or target.nbytes <= workers.CHUNK_BYTES:
        target[...] = source
        return

    def chunk(start: int, stop: int) -> None:
        target[start:stop] = source[start:stop]

    workers.parallel_for(len(target), max(1, workers.CHUNK_BYTES * len(target) // target.nbytes), chunk)


def _strided(X: Array, view: View) -> Array:
    strides = [stride * X.itemsize for stride in view.strides]
    return np.lib.stride_tricks.as_strided(X.reshape(-1)[view.offset :], view.shape, strides)


# -- cuda -------------------------------------------------------------------------------------------


@read_view.impl("cuda")
def _(X: Array, view: View) -> Array:
    Y = X.device.empty(view.shape, X.dtype)
    _copy_cuda(Y, View.whole(view.shape), X, view)
    return Y


@write_view.impl("cuda")
def _(Y: Array, view: View, X: Array, source: View) -> None:
    _copy_cuda(Y, view, X, source)


def _copy_cuda(Y: Array, target: View, X: Array, source: View) -> None:
    if target.size:
        aligned = math.gcd(16, Y.address, X.address)
        plan_copy(target, source, X.dtype.itemsize, aligned).launch(X.device, {"Y": Y, "X": X})


MAX_AXES = 8  # of cuda/layout/axes.cuh, once neighbouring axes are merged


WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long", 16: "uint4"}


STEPS = {1: 8, 2: 8, 4: 8, 8: 4, 16: 4}  # words per thread of copy_view.cu, by their bytes: enough loads in flight


LEAST_TILE = 8  # a shorter axis leaves most threads of permute.cu and permute_packs.cu idle


_AXES = np.dtype(
    [
        *((name, np.int64, MAX_AXES) for name in ("length", "x", "y")),
        *((name, np.int64) for name in ("x_base", "y_base")),
        *((name, np.uint32, MAX_AXES) for name in ("multiplier", "shift")),
        ("count", np.int32),
    ],
    align=True,
)


Axis = tuple[int, int, int]  # length, stride in X, stride in Y


@functools.lru_cache(maxsize=4096)
def plan_copy(target: View, source: View, itemsize: int, aligned: int) -> Plan:
    """The copy of a box; `aligned`: bytes that divide both addresses, at most 16."""
    axes = merged_axes(target, source)
    bases = source.offset, target.offset
    tiled = _tiled_axis(axes)
    if tiled is None:
        launch = _launch_copy(axes, bases, itemsize, aligned)
    else:
        launch = _launch_permute(axes, tiled, bases, itemsize, aligned)
    return Plan("copy of a view", (launch,), {})


def _launch_copy(axes: list[Axis], bases: tuple[int, int], itemsize: int, aligned: int) -> KernelLaunch:
    word = _word_bytes(axes, bases, itemsize, aligned)
    pack = word // itemsize
    if pack > 1:
        axes = [(n, x // pack, y // pack) for n, x, y in axes[:-1]] + [(axes[-1][0] // pack, 1, 1)]
        bases = bases[0] // pack, bases[1] // pack
    words, steps = math.prod(n for n, _, _ in axes), STEPS[word]
    arguments = ArrayArg("Y"), ArrayArg("X"), np.int64(words), _table(axes, bases)
    macros: dict[str, int | str] = {"WORD": WORDS[word], "STEPS": steps, "INDEX": _index_type(axes, bases)}
    blocks = -(-words // (BLOCK * steps))
    return KernelLaunch("layout/copy_view.cu", "copy_view", blocks, BLOCK, arguments, macros)


def _launch_permute(axes: list[Axis], tiled: int, bases: tuple[int, int], itemsize: int, aligned: int) -> KernelLaunch:
    """X is contiguous along axis `tiled`, Y along the last one."""
    others = axes[:tiled] + axes[tiled + 1 : -1]
    (M, _, y_step), (N, x_step, _) = axes[tiled], axes[-1]
    pack = _square(axes, tiled, bases, itemsize, aligned)
    tile_m, tile_n = (4 * pack, 8 * pack) if pack > 1 else (32, 32) if itemsize == 8 else (64, 64)
    tiles_m, tiles_n = -(-M // tile_m), -(-N // tile_n)
    tiles = tiles_m * tiles_n * math.prod(n for n, _, _ in others)
    table = _table([*others, (tiles_n, 0, 0), (tiles_m, 0, 0)], bases)
    covered = [*others, (tiles_m * tile_m, 1, y_step), (tiles_n * tile_n, x_step, 1)]
    arrays, sizes = (ArrayArg("Y"), ArrayArg("X")), (*map(np.int64, (M, N, x_step, y_step)), table)
    macros: dict[str, int | str] = {"WORD": WORDS[itemsize], "INDEX": _index_type(covered, bases)}
    if pack == 1:
        return KernelLaunch("layout/permute.cu", "permute", tiles, (32, 8), (*arrays, *sizes), macros)
    blocks, macros = -(-tiles // (BLOCK // 32)), {**macros, "PACK": pack}
    arguments = (*arrays, np.int64(tiles), *sizes)
    return KernelLaunch("layout/permute_packs.cu", "permute_packs", blocks, BLOCK, arguments, macros)


def _table(axes: list[Axis], bases: tuple[int, int]) -> Any:
    """The struct Axes of a box, whose last axis is the fastest."""
    table = np.zeros((), _AXES)
    for place, (length, x, y) in enumerate(reversed(axes)):
        table["length"][place], table["x"][place], table["y"][place] = length, x, y
        table["multiplier"][place], table["shift"][place] = _reciprocal(length)
    # no element lies behind the end of the slowest axis, so its division is 0: the upper word of i
    table["multiplier"][len(axes) - 1], table["shift"][len(axes) - 1] = 1, 0
    table["x_base"], table["y_base"] = bases
    table["count"] = len(axes)
    return table[()]


def _reciprocal(length: int) -> tuple[int, int]:
    """(m, s) for which i // length is (i m >> 32) >> s for all i below 2^31; m = 0 stands for length 1.

    With 2^l >= length, m is above 2^(31 + l) / length by less than 1, so the product is above the quotient by less than
    i / 2^(31 + l), which is below 1 / length.
    """
    if length == 1 or length >= 2**31:  # such a box is counted in 64 bits, which do not need it
        return 0, 0
    power = (length - 1).bit_length()
    return 2 ** (31 + power) // length + 1, power - 1


def _index_type(axes: list[Axis], bases: tuple[int, int]) -> str:
    """The unsigned type of the numbers of elements: 32 bits if every offset fits in them with a sign."""
    lengths, *strides = zip(*axes, strict=True)
    furthest = (
        base + sum((n - 1) * max(step, 0) for n, step in zip(lengths, steps, strict=True))
        for base, steps in zip(bases, strides, strict=True)
    )
    return "unsigned" if max(furthest) < 2**31 else "unsigned long long"


def merged_axes(target: View, source: View) -> list[Axis]:
    """The axes of a copy: neighbours that are one axis in both arrays are merged, and those of length 1 are left out.

    Raises:
        ShapeError: more than `MAX_AXES` are left.
    """
    axes: list[Axis] = []  # innermost first
    for n, x, y in zip(*(reversed(part) for part in (target.shape, source.strides, target.strides)), strict=True):
        if n == 1:
            continue
        if axes and (x, y) == (axes[-1][0] * axes[-1][1], axes[-1][0] * axes[-1][2]):
            axes[-1] = (axes[-1][0] * n, axes[-1][1], axes[-1][2])
        else:
            axes.append((n, x, y))
    if len(axes) > MAX_AXES:
        raise ShapeError(f"a box of {len(axes)} axes with strides of their own {target.shape}; at most {MAX_AXES}")
    return axes[::-1] or [(1, 1, 1)]


def _word_bytes(axes: list[Axis], bases: tuple[int, int], itemsize: int, aligned: int) -> int:
    """Bytes of the widest word, at most 16, that holds neighbours along the last axis and is aligned everywhere."""
    if axes[-1][1:] != (1, 1):
        return itemsize
    distances = [axes[-1][0], *bases, *(stride for _, *strides in axes[:-1] for stride in strides)]
    return max(itemsize, math.gcd(aligned, *(distance * itemsize for distance in distances)))


def _square(axes: list[Axis], tiled: int, bases: tuple[int, int], itemsize: int, aligned: int) -> int:
    """Edge of the squares that a thread of permute.cu transposes; 1 if they would be too small, or are not aligned."""
    distances = [
        *bases,
        *(axes[tiled][0], *(x for i, (_, x, _) in enumerate(axes) if i != tiled)),
        *(axes[-1][0], *(y for _, _, y in axes[:-1])),
    ]
    pack = min(8, math.gcd(aligned, *(distance * itemsize for distance in distances)) // itemsize)
    return pack if pack * itemsize >= 8 and pack * pack * itemsize >= 32 else 1


def _tiled_axis(axes: list[Axis]) -> int | None:
    """The axis along which X is contiguous, if it is another one than that of Y and tiles of both pay."""
    *others, (length, x, y) = axes
    if y != 1 or x in (0, 1) or length < LEAST_TILE:
        return None
    return next((i for i, (n, step, _) in enumerate(others) if step == 1 and n >= LEAST_TILE), None)
