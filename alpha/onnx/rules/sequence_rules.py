"""Rules of products, sums and extremes, and of sequences: linear layers, embeddings, recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.nn.recurrent import steps as recurrent_steps
from alpha.onnx.graph import INT64, Graph, Order, natural
from alpha.onnx.recorder import Host, Step, Value
from alpha.onnx.rules.rule_table import rule
from alpha.ops.activation.softmax import LogSumExp, SoftmaxStep
from alpha.ops.indexing.gather_scatter import gather, index_select
from alpha.ops.kernel.sums import Sum
from alpha.ops.matmul.embedding import embedding
from alpha.ops.matmul.matmul import Linear, Matmul
from alpha.ops.reduction.extremes import Extreme, extreme_place, extreme_with_places
from alpha.ops.reduction.norm import EuclideanNorm
from alpha.ops.reduction.prod import Product
from alpha.ops.reduction.scan import RunningSum
from alpha.ops.reduction.sort import sorted_along
from alpha.ops.reduction.variance import Variance

# -- products ---------------------------------------------------------------------------------------------


@rule(Linear)
def linear(g: Graph, step: Step) -> None:
    """The weights of the features of a flattened map are put in the order in which ONNX flattens it."""
    x, weight = step.value(0), step.value(1)
    bias = [] if step.inputs[2] is None else [g.get(step.value(2))]
    flat = g.flat(x)
    if flat is not None and weight.values is not None:
        name, filters = flat.name, g.constant(weight.values[:, flat.places], name=weight.name or "constant")
    else:
        whole = g.merged(x)
        if whole is not None:
            found = g.emit("MatMul", [g.get(whole), g.get(weight, (1, 0))])
            found = g.emit("Add", [found, *bias]) if bias else found
            g.merge(step.output, g.made((*whole.lengths[:-1], step.output.lengths[-1]), found, x))
            return
        name, filters = g.get(x), g.get(weight)
    g.bind(step.output, g.emit("Gemm", [name, filters, *bias], transB=1))


@rule(Matmul)
def matmul(g: Graph, step: Step) -> None:
    """Products of matrices; if the matrices of both operands have the same several axes before them, with these."""
    a, b = step.value(0), step.value(1)
    left, right = g.merged(a), g.merged(b)
    if left is None or right is None or left.lengths[:-2] != right.lengths[:-2]:
        left, right = a, b
    turned = natural(right.rank)
    if step.fixed("transpose_b"):
        turned = (*turned[:-2], turned[-1], turned[-2])
    found = g.emit("MatMul", [g.get(left), g.get(right, turned)])
    if left is a:
        g.bind(step.output, found)
    else:
        g.merge(step.output, g.made((*left.lengths[:-1], step.output.lengths[-1]), found, a))


@rule(embedding)
def embed(g: Graph, step: Step) -> None:
    if step.fixed("max_norm") is not None:
        raise step.refused("with max_norm writes its table, which cannot be exported")
    g.bind(step.output, g.emit("Gather", [g.get(step.options["weight"]), g.get(step.options["x"])], axis=0))


@rule(gather)
def gather_elements(g: Graph, step: Step) -> None:
    x, index = step.options["x"], step.options["index"]
    axis = step.fixed("dim") % x.rank
    g.bind(step.output, g.emit("GatherElements", [g.get(x), g.get(index)], axis=axis))


@rule(index_select)
def select(g: Graph, step: Step) -> None:
    x, index = step.options["x"], step.options["index"]
    g.bind(step.output, g.emit("Gather", [g.get(x), g.get(index)], axis=step.fixed("dim") % x.rank))


# -- along axes -------------------------------------------------------------------------------------------


def _reduced(g: Graph, step: Step, operator: str, axes: Sequence[int], keepdims: bool) -> tuple[str, Order]:
    """A reduction of the first input over axes, in the order in which it is there."""
    x = step.value(0)
    order = natural(x.rank) if g.flat(x) is not None else g.held(x)
    named = g.constant(sorted(order.index(axis) for axis in axes), INT64)
    found = g.emit(operator, [g.get(x, order), named], keepdims=int(keepdims))
    return found, order if keepdims else _without(order, axes)


def _without(order: Order, axes: Sequence[int]) -> Order:
    """The order of the axes that are left when some are dropped."""
    left = [axis for axis in order if axis not in axes]
    return tuple(sorted(left).index(axis) for axis in left)


@rule(Sum)
def sums(g: Graph, step: Step) -> None:
    x, axes = step.value(0), step.fixed("axes")
    if not axes:
        g.same(step.output, x)
        return
    counts = [step.options["count"], step.others["count"]]
    lengths = [x.lengths[axis] for axis in axes]
    products = [math.prod(n.fixed + n.per_image * batch for n in lengths) for batch in g.batches]
    keepdims = step.fixed("keepdim")
    if counts == products and counts != [1, 1]:
        g.bind(step.output, *_reduced(g, step, "ReduceMean", axes, keepdims))
        return
    name, order = _reduced(g, step, "ReduceSum", axes, keepdims)
    if step.fixed("count") != 1:
        name = g.emit("Div", [name, g.number(step.fixed("count"), x.dtype)])
    g.bind(step.output, name, order)


@rule(Extreme)
def extreme(g: Graph, step: Step) -> None:
    x, axes = step.value(0), step.fixed("axes")
    if not axes:
        g.same(step.output, x)
        return
    operator = "ReduceMax" if step.fixed("largest") else "ReduceMin"
    g.bind(step.output, *_reduced(g, step, operator, axes, step.output.rank == x.rank))


@rule(LogSumExp)
def log_sum_exp(g: Graph, step: Step) -> None:
    g.bind(step.output, *_reduced(g, step, "ReduceLogSumExp", step.fixed("axes"), True))


@rule(EuclideanNorm)
def euclidean_norm(g: Graph, step: Step) -> None:
    axes = step.fixed("axes")
    g.bind(step.output, *_reduced(g, step, "ReduceL2", axes, step.output.rank == step.value(0).rank))


@rule(Product)
def product(g: Graph, step: Step) -> None:
    x = step.value(0)
    axis = _middle_axis(step)
    g.bind(step.output, *_reduced(g, step, "ReduceProd", [axis], step.output.rank == x.rank and x.rank > 0))


def _middle_axis(step: Step) -> int:
    """The axis R of a tensor that an operator sees as (A, R, B)."""
    x, (A, R, _) = step.value(0), step.options["sizes"]
    fitting = [axis for axis, n in enumerate(x.shape) if n == R and math.prod(x.shape[:axis]) == A]
    if not fitting:
        raise step.refused("over several axes at once cannot be exported")
    return fitting[0]


@rule(Variance)
def variance(g: Graph, step: Step) -> None:
    x, axes = step.value(0), step.fixed("axes")
    if any(not x.lengths[axis].is_fixed for axis in axes):
        raise step.refused("over the batch cannot be exported")
    order = natural(x.rank) if g.flat(x) is not None else g.held(x)
    keepdims = step.output.rank == x.rank
    name, named = g.get(x, order), g.constant(sorted(order.index(axis) for axis in axes), INT64)
    centered = g.emit("Sub", [name, g.emit("ReduceMean", [name, named], keepdims=1)])
    total = g.emit("ReduceSum", [g.emit("Mul", [centered, centered]), named], keepdims=int(keepdims))
    count = max(0.0, math.prod(x.shape[axis] for axis in axes) - step.fixed("correction"))
    found = g.emit("Div", [total, g.number(count, x.dtype)])
    found = g.emit("Sqrt", [found]) if step.fixed("root") else found
    g.bind(step.output, found, order if keepdims else _without(order, axes))


@rule(SoftmaxStep)
def softmax(g: Graph, step: Step) -> None:
    x = step.value(0)
    if not x.rank:
        raise step.refused("of a tensor without axes cannot be exported")
    order = natural(x.rank) if g.flat(x) is not None else g.held(x)
    operator = "LogSoftmax" if step.fixed("logarithm") else "Softmax"
    axis = order.index(step.fixed("axis") % x.rank)
    g.bind(step.output, g.emit(operator, [g.get(x, order)], axis=axis), order)


@rule(RunningSum)
def running_sum(g: Graph, step: Step) -> None:
    axis = g.constant(np.asarray(_middle_axis(step), INT64))
    g.bind(step.output, g.emit("CumSum", [g.get(step.value(0)), axis]))


@rule(extreme_place)
def place(g: Graph, step: Step) -> None:
    """Places of the largest or smallest elements: `argmax` and `argmin`."""
    x, dim = step.value(0), step.fixed("dim")
    if dim is None and any(not n.is_fixed for n in x.lengths):
        raise step.refused("over all axes, which follow the batch, cannot be exported")
    name = g.get(x) if dim is not None else g.reshaped(g.get(x), [math.prod(x.shape)])
    found = _place(g, step, name, 0 if dim is None else dim % x.rank)
    flat = dim is None and x.rank != 1 and bool(step.fixed("keepdim"))
    g.bind(step.output, g.reshaped(found, step.output.lengths) if flat else found)


def _place(g: Graph, step: Step, name: str, axis: int) -> str:
    operator = "ArgMax" if step.fixed("largest") else "ArgMin"
    result: str = g.emit(operator, [name], axis=axis, keepdims=int(step.fixed("keepdim")))
    return result


@rule(extreme_with_places)
def extreme_and_place(g: Graph, step: Step) -> None:
    """Maximum and minimum along one axis, with their places."""
    x = step.value(0)
    axis, name = step.fixed("dim") % x.rank, g.get(x)
    operator = "ReduceMax" if step.fixed("largest") else "ReduceMin"
    found = g.emit(operator, [name, g.constant([axis], INT64)], keepdims=int(step.fixed("keepdim")))
    g.bind(step.outputs[0], found)
    g.bind(step.outputs[1], _place(g, step, name, axis))


@rule(sorted_along)
def sort(g: Graph, step: Step) -> None:
    """Sorted elements along an axis, or the first k of them."""
    x = step.value(0)
    count = g.constant([step.fixed("count")], INT64)
    largest = int(step.fixed("descending"))
    made = g.emit("TopK", [g.get(x), count], 2, axis=step.fixed("axis"), largest=largest, sorted=1)
    for value, name in zip(step.outputs, made, strict=True):
        g.bind(value, name)


# -- recurrent layers -------------------------------------------------------------------------------------

GATES = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 3, 1, 2]}  # ONNX's gates by their places in Alpha's


@rule(recurrent_steps)
def recurrent(g: Graph, step: Step) -> None:
    """One direction of a layer   x (T, N, features) -> (T, N, R), (N, R) and of an LSTM (N, H)"""
    how, x = step.options["how"], step.options["x"]
    w_ih, w_hh, b_ih, b_hh, w_hr = step.options["weights"]
    if x.rank != 3 or len(set(how.sizes)) != 1:
        raise step.refused("of packed sequences cannot be exported")
    if w_hr is not None:
        raise step.refused("with proj_size cannot be exported: ONNX has no such LSTM")
    constants = [part for part in (w_ih, w_hh, b_ih, b_hh) if part is not None]
    if any(part.values is None for part in constants):
        raise step.refused("with weights that depend on the input cannot be exported")
    H = w_hh.shape[1]
    matrices = [(_gates(how.kind, part.values, H)[None], part.name or "constant") for part in (w_ih, w_hh)]
    weights = [g.constant(matrix, name=name) for matrix, name in matrices]
    bias = ""
    if b_ih is not None or b_hh is not None:
        zeros = np.zeros(len(w_ih.values), w_ih.values.dtype)
        both = [zeros if part is None else _gates(how.kind, part.values, H) for part in (b_ih, b_hh)]
        bias = g.constant(np.concatenate(both)[None])
    states = [_state(g, value) for value in step.options["start"]]
    attributes: dict[str, dict[str, Any]] = {
        "LSTM": {},
        "GRU": {"linear_before_reset": 1},
        "RNN": {"activations": ["Relu" if how.relu else "Tanh"]},
    }
    inputs = [g.get(x), *weights, bias, "", *states]
    while not inputs[-1]:
        inputs.pop()
    made = g.emit(how.kind, inputs, len(step.outputs), hidden_size=H, **attributes[how.kind])
    for value, name in zip(step.outputs, made, strict=True):
        g.bind(value, g.reshaped(name, value.lengths))


def _gates(kind: str, values: Host, H: int) -> Host:
    """The rows of a matrix, or a bias, in ONNX's order of gates."""
    return np.concatenate([values[gate * H : (gate + 1) * H] for gate in GATES[kind]])


def _state(g: Graph, value: Value) -> str:
    """A state (N, H) before the first step as ONNX's (1, N, H); empty if it is 0."""
    if value.values is not None and not value.values.any():
        return ""
    return g.reshaped(g.get(value), [1, *value.lengths])
