"""Rules of operators of maps, whose ONNX forms are NCHW: convolutions, pools, norms, interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from alpha.onnx.graph import Graph, Order, channels_first
from alpha.onnx.recorder import OF_THE_BATCH, Host, Length, Step, Value
from alpha.onnx.rules.elementwise_rules import rectified
from alpha.onnx.rules.rule_table import rule
from alpha.ops import conv2d as plain
from alpha.ops import convolution
from alpha.ops.conv2d.shape import Axis, ConvShape
from alpha.ops.image.grid_sample import GridSample
from alpha.ops.image.interpolate import Interpolate
from alpha.ops.image.resampling import Resampling, sparse
from alpha.ops.kernel.rectifier import Rectifier
from alpha.ops.normalization.batch_norm import BatchNorm
from alpha.ops.normalization.group import GroupNormStep
from alpha.ops.pooling.avg_pool import avg_pool
from alpha.ops.pooling.max_pool import MaxPool2d, max_pool
from alpha.ops.pooling.pool_shape import Axis as PoolAxis
from alpha.ops.pooling.pool_shape import PoolShape


def _conv_axes(step: Step) -> tuple[list[Axis], int]:
    """The axes of a convolution between images and channels, and its groups."""
    shape = step.options["shape"]
    rank = step.value(0).rank - 2
    if isinstance(shape, ConvShape):
        return [shape.height, shape.width], shape.groups
    return list(shape.axes[3 - rank :]), shape.groups


def _filters(step: Step, g: Graph) -> list[str]:
    """The names of the filters, with channels second, and of the bias if there is one."""
    weight, bias = step.value(1), step.inputs[2]
    return [g.get(weight, channels_first(weight.rank)), *([] if bias is None else [g.get(bias)])]


def _finish(g: Graph, step: Step, name: str) -> None:
    slope = step.fixed("negative_slope")
    g.bind(step.output, rectified(g, name, Rectifier(slope)), channels_first(step.output.rank))


def _pads(axes: Sequence[Any]) -> list[int]:
    """The zeros before and behind each axis that give its outputs; a remainder of the input is left out."""
    behind = [max(0, (a.O - 1) * a.s + a.d * (a.F - 1) + 1 - a.I - a.p) for a in axes]
    return [a.p for a in axes] + behind


@rule(plain.Conv2d, convolution.Conv)
def conv(g: Graph, step: Step) -> None:
    axes, groups = _conv_axes(step)
    x = step.value(0)
    found = g.emit(
        "Conv",
        [g.get(x, channels_first(x.rank)), *_filters(step, g)],
        kernel_shape=[a.F for a in axes],
        strides=[a.s for a in axes],
        dilations=[a.d for a in axes],
        pads=_pads(axes),
        group=groups,
    )
    _finish(g, step, found)


@rule(plain.ConvTranspose2d, convolution.ConvTranspose)
def conv_transpose(g: Graph, step: Step) -> None:
    """The axes are those of the convolution whose adjoint it is: O is the length of the input, I of the result."""
    axes, groups = _conv_axes(step)
    x = step.value(0)
    left = [(a.O - 1) * a.s + a.d * (a.F - 1) + 1 - a.p - a.I for a in axes]  # what is cut off at the end
    found = g.emit(
        "ConvTranspose",
        [g.get(x, channels_first(x.rank)), *_filters(step, g)],
        kernel_shape=[a.F for a in axes],
        strides=[a.s for a in axes],
        dilations=[a.d for a in axes],
        pads=[a.p for a in axes] + [max(0, n) for n in left],
        output_padding=[max(0, -n) for n in left],
        group=groups,
    )
    _finish(g, step, found)


# -- norms ------------------------------------------------------------------------------------------------


def _or_constant(g: Graph, value: Value | None, length: int, number: float) -> str:
    return g.constant(np.full(length, number, np.float32)) if value is None else g.get(value)


@rule(BatchNorm)
def batch_norm(g: Graph, step: Step) -> None:
    stats = step.options["stats"]
    if stats.training or stats.running is None:
        raise step.refused(OF_THE_BATCH)
    x = step.value(0)
    C, order = x.shape[-1], channels_first(x.rank)
    mean, var = map(g.parameter, stats.running)
    found = g.emit(
        "BatchNormalization",
        [g.get(x, order), _or_constant(g, step.inputs[1], C, 1), _or_constant(g, step.inputs[2], C, 0), mean, var],
        epsilon=step.fixed("eps"),
    )
    if step.inputs[3] is not None:
        found = g.emit("Add", [found, g.get(step.value(3), order)])
    g.bind(step.output, rectified(g, found, step.fixed("rectifier")), order)


@rule(GroupNormStep)
def group_norm(g: Graph, step: Step) -> None:
    """Norms over the last axes, and over groups of channels of an image."""
    _, R, G, K = step.options["sizes"]
    if (R, G) == (1, 1):
        _over_last_axes(g, step, K)
    elif step.fixed("centered"):
        _over_groups(g, step, G)
    else:
        raise step.refused("without a mean, over groups, cannot be exported")


def _over_last_axes(g: Graph, step: Step, K: int) -> None:
    x, weight, bias = step.value(0), step.inputs[1], step.inputs[2]
    known = weight if weight is not None else bias
    count = known.rank if known is not None else 1
    while known is None and math.prod(x.shape[-count:]) < K:
        count += 1
    name, shape, eps = g.get(x), x.shape[x.rank - count :], step.fixed("eps")
    if step.fixed("centered"):
        scale = g.constant(np.ones(shape, np.float32)) if weight is None else g.get(weight)
        more = [] if bias is None else [g.get(bias)]
        g.bind(step.output, g.emit("LayerNormalization", [name, scale, *more], axis=-count, epsilon=eps))
        return
    axes = g.constant(list(range(x.rank - count, x.rank)), np.int64)
    mean = g.emit("ReduceMean", [g.emit("Mul", [name, name]), axes], keepdims=1)
    found = g.emit("Div", [name, g.emit("Sqrt", [g.emit("Add", [mean, g.number(eps, x.dtype)])])])
    g.bind(step.output, found if weight is None else g.emit("Mul", [found, g.get(weight)]))


def _over_groups(g: Graph, step: Step, G: int) -> None:
    x, eps = step.value(0), step.fixed("eps")
    C, order = x.shape[-1], channels_first(x.rank)
    name, each = g.get(x, order), x.rank > 2 and G == C
    weight, bias = step.inputs[1], step.inputs[2]
    if not each:
        whole = math.prod(n.fixed for n in x.lengths[1:])
        name = g.reshaped(name, [x.lengths[0], G, whole // G])
    numbers = [_or_constant(g, weight, C, 1), _or_constant(g, bias, C, 0)] if each else []
    found = g.emit(
        "InstanceNormalization",
        [name, *(numbers or [g.constant(np.full(G, n, np.float32)) for n in (1, 0)])],
        epsilon=eps,
    )
    if not each:
        found = g.reshaped(found, g.shape_in(x, order))
        for operator, part in (("Mul", weight), ("Add", bias)):
            found = found if part is None else g.emit(operator, [found, g.operand(part, order)])
    g.bind(step.output, found, order)


# -- pools ------------------------------------------------------------------------------------------------


class Pool(NamedTuple):
    """A pooling operator: its axes, depth first, the map that it takes, and what it divides by."""

    axes: list[PoolAxis]
    name: str
    order: Order
    adaptive: bool
    count_padding: bool
    divisor: int


def _pool(g: Graph, step: Step) -> Pool:
    """The pooling operator of a step, and its input with the channels first."""
    x, options = step.value(0), step.options
    shapes: tuple[PoolShape, ...] = options["pools"].shapes if "pools" in options else (options["shape"],)
    s = shapes[0]
    axes: list[PoolAxis] = [PoolAxis(s.IH, s.OH, s.FH, s.sh, s.ph, s.dh), PoolAxis(s.IW, s.OW, s.FW, s.sw, s.pw, s.dw)]
    if len(shapes) == 2:
        d = shapes[1]
        axes.insert(0, PoolAxis(d.IH, d.OH, d.FH, d.sh, d.ph, d.dh))
    elif x.shape == (s.N, s.IH, s.C) and s.IW == 1:
        axes.pop()
    if s.adaptive:
        axes = [PoolAxis(a.I, a.O, a.I // a.O, a.I // a.O) if a.I % a.O == 0 else a for a in axes]
    order = channels_first(len(axes) + 2)
    if x.rank == len(order):
        name = g.get(x, order)
    else:  # one image without N
        name = g.get(g.made((Length(1), *x.lengths), g.reshaped(g.get(x), [1, *x.lengths]), x), order)
    return Pool(axes, name, order, s.adaptive, s.count_padding, s.divisor)


def _windows(axes: Sequence[PoolAxis]) -> dict[str, Any]:
    return {"kernel_shape": [a.F for a in axes], "strides": [a.s for a in axes], "pads": _pads(axes)}


def _pooled(g: Graph, step: Step, name: str, order: Order) -> None:
    y = step.output
    if y.rank == len(order):
        g.bind(y, name, order)
    else:
        whole = Value((1, *y.shape), y.dtype, depends=True, lengths=(Length(1), *y.lengths))
        g.bind(whole, name, order)
        g.bind(y, g.reshaped(g.get(whole), y.lengths))


@rule(max_pool, MaxPool2d)
def maxima(g: Graph, step: Step) -> None:
    if step.options.get("return_indices"):
        raise step.refused("with return_indices=True cannot be exported")
    pool = _pool(g, step)
    if pool.adaptive and any(a.I % a.O for a in pool.axes):
        sizes = f"from {[a.I for a in pool.axes]} to {[a.O for a in pool.axes]}"
        raise step.refused(f"{sizes} cannot be exported: its windows have several sizes")
    if pool.adaptive and all(a.O == 1 for a in pool.axes):
        found = g.emit("GlobalMaxPool", [pool.name])
    else:
        found = g.emit("MaxPool", [pool.name], dilations=[a.d for a in pool.axes], **_windows(pool.axes))
    _pooled(g, step, found, pool.order)


@rule(avg_pool)
def averages(g: Graph, step: Step) -> None:
    """Windows of several sizes are products with constant matrices, one for each axis."""
    pool = _pool(g, step)
    uneven = pool.adaptive and any(a.I % a.O for a in pool.axes)
    pads, rank = _pads(pool.axes), len(pool.axes)
    over = pool.count_padding and any(pads[i + rank] > pads[i] for i in range(rank))
    if pool.adaptive and all(a.O == 1 for a in pool.axes):
        found = g.emit("GlobalAveragePool", [pool.name])
    elif uneven or over or pool.divisor:
        found = along_maps(g, pool.name, [_means(pool, axis) for axis in range(rank)])
    else:
        found = g.emit("AveragePool", [pool.name], count_include_pad=int(pool.count_padding), **_windows(pool.axes))
    _pooled(g, step, found, pool.order)


def _means(pool: Pool, axis: int) -> Host:
    """The matrix (O, I) of an average along an axis."""
    a = pool.axes[axis]
    matrix = np.zeros((a.O, a.I), np.float32)
    for o in range(a.O):
        first = o * a.I // a.O if pool.adaptive else o * a.s - a.p
        end = -(-(o + 1) * a.I // a.O) if pool.adaptive else first + a.F
        start, stop = max(first, 0), min(end, a.I)
        count = min(end, a.I + a.p) - first if pool.count_padding and not pool.adaptive else stop - start
        if pool.divisor:
            count = pool.divisor if axis == 0 else 1
        matrix[o, start:stop] = 1 / count
    return matrix


def along_maps(g: Graph, name: str, matrices: Sequence[Host]) -> str:
    """Maps (N, C, ..) times a matrix (O, I) along each axis behind the channels; unit matrices are left out."""
    letters = "dhw"[-len(matrices) :]
    for letter, matrix in zip(letters, matrices, strict=True):
        if not _is_unit(matrix):
            equation = f"nc{letters},o{letter}->nc{letters.replace(letter, 'o')}"
            name = g.emit("Einsum", [name, g.constant(matrix)], equation=equation)
    return name


def _is_unit(matrix: Host) -> bool:
    return matrix.shape[0] == matrix.shape[1] and bool((matrix == np.eye(len(matrix))).all())


@rule(GridSample)
def grid_sample(g: Graph, step: Step) -> None:
    x, grid, how = step.value(0), step.value(1), step.fixed("how")
    order = channels_first(x.rank)
    if x.rank == 5 and how.mode == "cubic":
        raise step.refused("with mode='bicubic' of volumes cannot be exported")
    found = g.emit(
        "GridSample",
        [g.get(x, order), g.get(grid)],
        mode=how.mode,
        padding_mode=how.padding_mode,
        align_corners=int(how.align_corners),
    )
    g.bind(step.output, found, order)


# -- interpolation ----------------------------------------------------------------------------------------


@rule(Interpolate)
def interpolate(g: Graph, step: Step) -> None:
    x, axes = step.value(0), list(step.options["axes"])
    order = channels_first(x.rank)
    name = g.get(x, order)
    if any(r.antialias for r in axes):
        raise step.refused("with antialias=True cannot be exported")
    changed = [(i, r) for i, r in enumerate(axes, 2) if r.O != r.I or r.scale != 1]
    if changed and changed[0][1].mode.startswith("nearest"):
        for axis, r in changed:
            name = g.emit("Gather", [name, g.constant(_nearest(r), np.int64)], axis=axis) if _odd(r) else name
        changed = [(axis, r) for axis, r in changed if not _odd(r)]
    if changed and _refused_by_onnxruntime(g, axes):
        name = along_maps(g, name, [_matrix(r) for r in axes])
    elif changed:
        name = _resize(g, step, name, changed)
    g.bind(step.output, name, order)


def _refused_by_onnxruntime(g: Graph, axes: Sequence[Resampling]) -> bool:
    """True if onnxruntime would not run a Resize as it is meant.

    It leaves maps whose lengths stay as they are, whatever the factors. It moves a transpose behind a Resize; what is
    cubic and makes maps smaller runs with the channels second alone.
    """
    if any(r.mode != "cubic" for r in axes):
        return False
    turned = any(node.op_type == "Transpose" for node in g.nodes)
    return all(r.O == r.I for r in axes) or (turned and any(r.scale > 1 for r in axes))


def _matrix(r: Resampling) -> Host:
    """The matrix (O, I) of an interpolation along an axis."""
    found, matrix = sparse(r, np.dtype(np.float64)), np.zeros((r.O, r.I), np.float32)
    matrix[np.repeat(np.arange(r.O), np.diff(found.starts)), found.places] = found.weights
    return matrix


def _odd(r: Resampling) -> bool:
    """True if rounding decides which input is the nearest one, so that the file has to name it."""
    return r.O % r.I != 0 or r.scale != r.I / r.O


def _nearest(r: Resampling) -> Host:
    half = 0.5 if r.mode == "nearest-exact" else 0.0
    places = np.floor((np.arange(r.O) + half).astype(np.float32) * np.float32(r.scale)).astype(np.int64)
    found: Host = np.clip(places, 0, r.I - 1)
    return found


def _rounded(r: Resampling) -> set[int]:
    """The lengths that a factor in float32 gives to the products of onnx and of onnxruntime."""
    factor = np.float32(1 / r.scale)
    return {math.floor(r.I * float(factor)), math.floor(np.float32(r.I) * factor)}


def _resize(g: Graph, step: Step, name: str, changed: Sequence[tuple[int, Resampling]]) -> str:
    first = changed[0][1]
    places = "align_corners" if first.align_corners else "half_pixel"
    options: dict[str, Any] = {}
    if first.mode.startswith("nearest"):
        places, options["nearest_mode"] = "asymmetric", "floor"
    if first.mode == "cubic":
        options["cubic_coeff_a"] = -0.75
    by_size = all(r.align_corners or r.scale == r.I / r.O for _, r in changed)
    if not by_size and any(_rounded(r) != {r.O} for _, r in changed):
        raise step.refused(f"with a factor of {1 / first.scale:.6g} cannot be exported; give its size")
    y = step.output
    whole = g.shape_in(y, channels_first(y.rank))
    factors = {axis: 1 / r.scale for axis, r in changed}
    mode = "nearest" if first.mode.startswith("nearest") else first.mode
    if by_size:
        inputs = [name, "", "", g.lengths(whole)]
    else:
        inputs = [name, "", g.constant([factors.get(axis, 1.0) for axis in range(y.rank)], np.float32)]
    result: str = g.emit("Resize", inputs, mode=mode, coordinate_transformation_mode=places, **options)
    return result
