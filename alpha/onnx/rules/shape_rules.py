"""Rules of operators that move elements: reshapes, permutations, slices, joins, padding, index arrays.

Alpha reads and writes boxes (`alpha.ops.kernel.views.View`), which are offsets and strides; ONNX has slices,
transposes and concatenations. `box_of` finds the slices and the order of axes that a view stands for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from alpha.onnx.graph import INT64, Flat, Graph, Order, channels_first, natural
from alpha.onnx.recorder import Length, Step, Value
from alpha.onnx.rules.elementwise_rules import cast_to
from alpha.onnx.rules.rule_table import rule
from alpha.ops.array import layout
from alpha.ops.array.axes import Expand
from alpha.ops.array.parts.assemble import Assemble, Piece
from alpha.ops.array.parts.boxes import Block
from alpha.ops.indexing.getitem_setitem import rows_of
from alpha.ops.kernel.views import View

END = 2**63 - 1


class Box(NamedTuple):
    """A view as slices of the axes of a tensor: of each the first element, the step, and the number of elements.

    Attributes:
        axes: which axis of the tensor each axis of the view is; None for one of length 1 or along which it repeats.
    """

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    axes: tuple[int | None, ...]


def box_of(step: Step, view: View, shape: tuple[int, ...]) -> Box:
    """The slices of a tensor that a view stands for.

    Raises:
        ExportError: the view is none of slices, as a diagonal.
    """
    strides = View.whole(shape).strides
    if not view.size:
        raise step.refused(f"with an empty result {view.shape} cannot be exported")
    starts = tuple(int(n) for n in np.unravel_index(view.offset, shape)) if shape else ()
    steps, counts = [1] * len(shape), [1] * len(shape)
    axes: list[int | None] = []
    for n, stride in zip(view.shape, view.strides, strict=True):
        if n == 1 or stride == 0:
            axes.append(None)
            continue
        fitting = [
            axis
            for axis, own in enumerate(strides)
            if axis not in axes
            and stride % own == 0
            and 0 <= starts[axis] + stride // own * (n - 1) < shape[axis]
            and shape[axis] > 1
        ]
        if not fitting:
            raise step.refused(f"takes elements {view.shape} of {shape} that are no slices of axes")
        axis = fitting[0]
        axes.append(axis)
        steps[axis], counts[axis] = stride // strides[axis], n
    ones = [axis for axis, n in enumerate(shape) if n == 1]
    places = [place for place, axis in enumerate(axes) if axis is None and view.shape[place] == 1]
    if len(ones) == len(places):  # axes of length 1 stay what they are
        for axis, place in zip(ones, places, strict=True):
            axes[place] = axis
    return Box(starts, tuple(steps), tuple(counts), tuple(axes))


def completed(order: Sequence[int], rank: int) -> Order:
    """An order of all axes that has some axes in the given order; the others have length 1 and may be anywhere."""
    there = set(order)
    for whole in (natural(rank), channels_first(rank) if rank > 2 else natural(rank)):
        if [axis for axis in whole if axis in there] == list(order):
            return whole
    return (*order, *(axis for axis in range(rank) if axis not in there))


def read_box(g: Graph, step: Step, x: Value, views: tuple[View, View], lengths: Sequence[Length]) -> tuple[str, Order]:
    """The name and the order of axes of a box of a value; `views` are those of both runs."""
    box = box_of(step, views[0], x.shape)
    shape = tuple(n.fixed + n.per_image * g.second_batch for n in x.lengths)
    other = box_of(step, views[1], shape)
    order = natural(x.rank) if g.flat(x) is not None else g.held(x)
    name = _sliced(g, step, x, (box, other), order)
    taken = [axis for axis in box.axes if axis is not None]
    out = {axis: place for place, axis in enumerate(box.axes) if axis is not None}
    kept = [out[axis] for axis in order if axis in out]
    result = completed(kept, len(box.axes))
    if len(taken) != x.rank or len(taken) != len(box.axes):
        ones = [Length(1) if axis is None else lengths[place] for place, axis in enumerate(box.axes)]
        name = g.reshaped(name, [ones[place] for place in result])
    repeated = [place for place, axis in enumerate(box.axes) if axis is None and views[0].shape[place] != 1]
    if repeated:
        name = g.emit("Expand", [name, g.lengths([lengths[place] for place in result])])
    return name, result


def _sliced(g: Graph, step: Step, x: Value, boxes: tuple[Box, Box], order: Order) -> str:
    box, other = boxes
    cut = []
    for axis, length in enumerate(x.lengths):
        start, pace, count = box.starts[axis], box.steps[axis], box.counts[axis]
        whole = count == x.shape[axis]
        if whole and pace == 1:
            continue
        always_whole = whole and other.counts[axis] == length.fixed + length.per_image * g.second_batch
        if not always_whole and (start, pace, count) != (other.starts[axis], other.steps[axis], other.counts[axis]):
            raise step.refused(f"takes a part of axis {axis} of {x.shape} that depends on the batch")
        end = start + pace * count
        if pace < 0 and whole:
            start, end = -1, -END
        cut.append((order.index(axis), start, -END if end < 0 else end, pace))
    name = g.get(x, order)
    if not cut:
        return name
    axes, starts, ends, paces = (g.constant(list(numbers), INT64) for numbers in zip(*cut, strict=True))
    result: str = g.emit("Slice", [name, starts, ends, axes, paces])
    return result


# -- one box ----------------------------------------------------------------------------------------------


@rule(Block)
def block(g: Graph, step: Step) -> None:
    views = step.options["view"], step.others["view"]
    g.bind(step.output, *read_box(g, step, step.value(0), views, step.output.lengths))


@rule(Expand)
def expand(g: Graph, step: Step) -> None:
    x, rank = step.value(0), step.output.rank
    order = g.held(x) if x.rank == rank and g.flat(x) is None else natural(rank)
    name = g.get(x, order if x.rank == rank else natural(x.rank))
    g.bind(step.output, g.emit("Expand", [name, g.lengths(g.shape_in(step.output, order))]), order)


# -- several boxes ----------------------------------------------------------------------------------------


@rule(Assemble)
def assemble(g: Graph, step: Step) -> None:
    pieces, others = step.options["pieces"], step.others["pieces"]
    shape, other_shape = step.options["shape"], step.others["shape"]
    if len(pieces) != len(others) or not pieces:
        raise step.refused("has other parts for another batch, or none")
    if len(pieces) == 1 and pieces[0].target == View.whole(shape):
        views = pieces[0].source, others[0].source
        g.bind(step.output, *read_box(g, step, step.value(pieces[0].input), views, step.output.lengths))
    elif len(pieces) == 1:
        _pad(g, step, pieces[0], others[0])
    else:
        _concatenate(g, step, [_Part(*pair, step) for pair in zip(pieces, others, strict=True)], (shape, other_shape))


def _pad(g: Graph, step: Step, piece: Piece, other: Piece) -> None:
    """A box of the input, surrounded by a number."""
    source, target = piece.source, step.options["shape"]
    box = box_of(step, piece.target, target)
    second = box_of(step, other.target, step.others["shape"])
    lengths = [
        length if source.shape[axis] == target[axis] else Length(source.shape[axis])
        for axis, length in enumerate(step.output.lengths)
    ]
    before, behind = [], []
    for axis, total in enumerate(target):
        before.append(box.starts[axis])
        behind.append(total - box.starts[axis] - source.shape[axis])
    after = [n - second.starts[i] - other.source.shape[i] for i, n in enumerate(step.others["shape"])]
    if list(second.starts) != before or after != behind:
        raise step.refused("adds a number of elements that depends on the batch")
    name, order = read_box(g, step, step.value(piece.input), (source, other.source), lengths)
    pads = [before[axis] for axis in order] + [behind[axis] for axis in order]
    fill = g.number(step.options["fill"] or 0, step.output.dtype)
    g.bind(step.output, g.emit("Pad", [name, g.constant(pads, INT64), fill], mode="constant"), order)


class _Part(NamedTuple):
    """A piece of a concatenation in both runs."""

    piece: Piece
    other: Piece
    step: Step

    def place(self, axis: int, shape: tuple[int, ...]) -> int:
        return box_of(self.step, self.piece.target, shape).starts[axis]


def _concatenate(g: Graph, step: Step, parts: list[_Part], shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Boxes side by side along one axis."""
    shape, other_shape = shapes
    parts = [part for part in parts if part.piece.source.size]
    axes = {axis for part in parts for axis, n in enumerate(part.piece.target.shape) if n != shape[axis]}
    if len(axes) > 1:
        raise step.refused("joins boxes along several axes at once, which cannot be exported")
    axis = axes.pop() if axes else 0
    parts.sort(key=lambda part: part.place(axis, shape))
    widths = [[getattr(part, run).target.shape[axis] for part in parts] for run in ("piece", "other")]
    if [sum(numbers) for numbers in widths] != [shape[axis], other_shape[axis]]:
        raise step.refused("leaves out elements between its parts, which cannot be exported")
    values = []
    for part, n, m in zip(parts, *widths, strict=True):
        own = g.length_of(n, m)
        lengths = tuple(own if i == axis else length for i, length in enumerate(step.output.lengths))
        value = Value(part.piece.target.shape, step.output.dtype, depends=True, lengths=lengths)
        x = step.value(part.piece.input)
        name, order = read_box(g, step, x, (part.piece.source, part.other.source), lengths)
        if x.dtype != value.dtype:
            name = cast_to(g, name, value.dtype)
        g.bind(value, name, order)
        values.append((value, x.depends))
    orders = [g.held(value) for value, depends in values if depends] or [natural(step.output.rank)]
    order = next((held for held in orders if held != natural(step.output.rank)), orders[0])
    names = [g.get(value, order) for value, _ in values]
    g.bind(step.output, g.emit("Concat", names, axis=order.index(axis)), order)


# -- reshape ----------------------------------------------------------------------------------------------


@rule(layout.Reshape)
def reshape(g: Graph, step: Step) -> None:
    x, y = step.value(0), step.output
    groups = groups_of(g, x, y)
    if x.lengths == y.lengths:
        g.same(y, x)
        return
    merged = g.merged(x)
    if merged is not None and merged.lengths == y.lengths:
        g.same(y, merged)
        return
    several = groups is None or (bool(groups) and len(groups[0][0]) > 1)
    if several and 2 <= y.rank < x.rank and x.lengths[1 - y.rank :] == y.lengths[1:] and g.flat(x) is None:
        g.merge(y, x)
        return
    order = g.held(x)
    if g.flat(x) is None and groups is not None:
        turned = _grouped(order, groups)
        if turned is not None:
            result = completed(turned, y.rank)
            g.bind(y, g.reshaped(g.get(x, order), [y.lengths[axis] for axis in result]), result)
            return
        if y.rank == 2 and order[0] == 0 and groups[0][:1] == ([0],) and len(groups) == 2:
            own = x.shape[1:]
            places = np.arange(math.prod(own)).reshape(own).transpose([axis - 1 for axis in order[1:]]).reshape(-1)
            name = g.emit("Flatten", [g.get(x, order)], axis=1)
            g.bind_flat(y, Flat(name, places, order, tuple(x.shape[axis] for axis in order[1:])))
            return
    g.bind(y, g.reshaped(g.get(x), y.lengths))


Groups = list[tuple[list[int], list[int]]]  # axes of x and axes of y that hold the same elements, without those of 1


def groups_of(g: Graph, x: Value, y: Value) -> Groups | None:
    """The smallest groups of neighbouring axes that a reshape exchanges; None if they depend on the batch."""
    found = _groups(x.shape, y.shape)
    second = [tuple(n.fixed + n.per_image * g.second_batch for n in value.lengths) for value in (x, y)]
    return found if found == _groups(*second) else None


def _groups(x: tuple[int, ...], y: tuple[int, ...]) -> Groups:
    left = [axis for axis, n in enumerate(x) if n != 1]
    right = [axis for axis, n in enumerate(y) if n != 1]
    groups: Groups = []
    while left and right:
        a, b = [left.pop(0)], [right.pop(0)]
        while math.prod(x[i] for i in a) != math.prod(y[i] for i in b):
            if math.prod(x[i] for i in a) < math.prod(y[i] for i in b):
                a.append(left.pop(0))
            else:
                b.append(right.pop(0))
        groups.append((a, b))
    return groups


def _grouped(order: Order, groups: Groups) -> list[int] | None:
    """The order of the axes of y, without those of length 1; None if the axes of a group are not in order."""
    starts = {a[0]: (a, b) for a, b in groups}
    left = [axis for axis in order if any(axis in a for a, _ in groups)]
    found: list[int] = []
    while left:
        a, b = starts.get(left[0], ([], []))
        if not a or left[: len(a)] != a:
            return None
        found += b
        left = left[len(a) :]
    return found


# -- index arrays -----------------------------------------------------------------------------------------


@rule(rows_of)
def rows(g: Graph, step: Step) -> None:
    """One index array, beside whole axes."""
    index, x = step.options["index"], step.value(0)
    items: list[Any] = list(index) if type(index) is tuple else [index]
    arrays = [i for i, item in enumerate(items) if item is not Ellipsis and not isinstance(item, slice)]
    if len(arrays) != 1 or any(isinstance(item, slice) and item != slice(None) for item in items):
        raise step.refused("with several index arrays, or with slices beside one, cannot be exported")
    at = arrays[0]
    axis = at if Ellipsis not in items[:at] else x.rank - (len(items) - at)
    item = items[at]
    if isinstance(item, Value):
        if item.dtype == np.bool_:
            raise step.refused("with a mask gives a number of elements that depends on values; use alpha.where")
        name = g.get(item)
    else:
        array = np.asarray(item)
        if array.dtype == np.bool_:
            array = np.flatnonzero(array)
        name = g.constant(array, INT64)
    g.bind(step.output, g.emit("Gather", [g.get(x), name], axis=axis))
