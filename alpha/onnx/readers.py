"""Readers of ONNX's nodes: what each operator becomes in a network of `alpha.onnx.load`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha import nn
from alpha.module.module import Module
from alpha.onnx.builder import Builder, Node, size
from alpha.onnx.package import dtype_name
from alpha.onnx.resizing import PLACES, ROUNDINGS

Reader = Callable[[Builder, Node], None]
READERS: dict[str, Reader] = {}


def reads(*operators: str) -> Callable[[Reader], Reader]:
    """Declare the reader of operators."""

    def declare(function: Reader) -> Reader:
        READERS.update(dict.fromkeys(operators, function))
        return function

    return declare


# -- layers -----------------------------------------------------------------------------------------------


def _pads(b: Builder, node: Node, rank: int, filters: Sequence[int]) -> tuple[list[int], list[int]]:
    """The zeros before and behind each axis."""
    kind = node.get("auto_pad", "NOTSET")
    pads = list(node.get("pads", [0] * 2 * rank))
    if kind == "NOTSET":
        return pads[:rank], pads[rank:]
    found = ([0] * rank, [0] * rank) if kind == "VALID" else _same_pads(b, node, rank, filters)
    if any(pads) and pads != [*found[0], *found[1]]:
        raise node.refused(f"with auto_pad={kind} and pads={pads} is not offered")
    return found


def _same_pads(b: Builder, node: Node, rank: int, filters: Sequence[int]) -> tuple[list[int], list[int]]:
    """The zeros that give each axis as many outputs as it has strides."""
    kind = node.get("auto_pad")
    I, strides = (b.lengths.get(node.inputs[0]) or ())[2:], node.get("strides", [1] * rank)
    if None in I or not I:
        raise node.refused(f"has auto_pad={kind} for a map whose size the file does not tell")
    gaps = node.get("dilations", [1] * rank)
    before, behind = [], []
    for i, f, s, d in zip(I, filters, strides, gaps, strict=True):
        whole = max(0, (-(-int(i or 0) // s) - 1) * s + d * (f - 1) + 1 - int(i or 0))
        less, more = whole // 2, whole - whole // 2
        before.append(less if kind == "SAME_UPPER" else more)
        behind.append(more if kind == "SAME_UPPER" else less)
    return before, behind


def _padded(b: Builder, name: str, pads: tuple[list[int], list[int]], value: float) -> tuple[str, list[int]]:
    """The map with the zeros that a layer cannot add itself, and those that it can."""
    before, behind = pads
    if before == behind:
        return name, before
    both = [n for pair in zip(reversed(before), reversed(behind), strict=True) for n in pair]
    made = f"{name} padded {before} {behind} {value}"
    if made not in b.last:
        b.lengths[made] = b.lengths.get(name)
        b.call("Pad", [name], [made], last=True, pad=(0, 0, *both), mode="constant", value=value)
    return made, [0] * len(before)


@reads("Conv", "ConvTranspose")
def conv(b: Builder, node: Node) -> None:
    weight, bias = b.constant(node, 1), b.constant(node, 2)
    rank, transposed = weight.ndim - 2, node.operator == "ConvTranspose"
    filters, groups = weight.shape[2:], node.get("group", 1)
    if list(node.get("kernel_shape", filters)) != list(filters):
        raise node.refused(f"with kernel_shape={node.get('kernel_shape')} has filters of the shape {list(filters)}")
    pads = _pads(b, node, rank, filters)
    x, extra = b.maps(node.inputs[0]), [0] * rank
    if transposed:
        if node.get("output_shape") is not None or node.get("auto_pad", "NOTSET") != "NOTSET":
            raise node.refused("with output_shape or auto_pad is not offered")
        extra = [n + before - after for n, before, after in zip(node.get("output_padding", extra), *pads, strict=True)]
        if min(extra) < 0:
            raise node.refused(f"with pads {pads} cuts more from the end than from the beginning, which is not offered")
        padding = pads[0]
    else:
        x, padding = _padded(b, x, pads, 0.0)

    def make() -> Module:
        kind: Any = {1: (nn.Conv1d, nn.ConvTranspose1d), 2: (nn.Conv2d, nn.ConvTranspose2d)}.get(
            rank, (nn.Conv3d, nn.ConvTranspose3d)
        )[transposed]
        counts = (weight.shape[0], weight.shape[1] * groups)
        more = {"output_padding": tuple(extra)} if transposed else {}
        layer = kind(
            *(counts if transposed else counts[::-1]),
            tuple(filters),
            stride=tuple(node.get("strides", [1] * rank)),
            padding=tuple(padding),
            dilation=tuple(node.get("dilations", [1] * rank)),
            groups=groups,
            bias=bias is not None,
            **more,
        )
        return _given(layer, weight=np.moveaxis(weight, 1, -1), bias=bias)

    path = b.layer(node, node.inputs[1:], make, (padding, extra))
    b.call("", [x], node.outputs, last=True, layer=path)


def _given(layer: Any, **values: Any) -> Module:
    """The layer with these values of its parameters and buffers; None leaves one out."""
    for name, value in values.items():
        if value is not None:
            array = np.array(value, order="C")
            kept = getattr(layer, name, None)
            setattr(layer, name, nn.Buffer(array) if isinstance(kept, nn.Buffer) else nn.Parameter(array))
    made: Module = layer
    return made


@reads("BatchNormalization")
def batch_norm(b: Builder, node: Node) -> None:
    weight, bias, mean, var = (b.constant(node, i) for i in range(1, 5))
    rank = b.known_rank(node, node.inputs[0])
    node.passes("training_mode", "is_test")
    kinds: dict[int, Any] = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    if rank not in kinds:
        raise node.refused(f"of {rank} axes is not offered")

    def make() -> Module:
        layer = kinds[rank](len(weight), eps=node.get("epsilon", 1e-5), momentum=1 - node.get("momentum", 0.9))
        return _given(layer, weight=weight, bias=bias, running_mean=mean, running_var=var)

    x = b.maps(node.inputs[0]) if rank > 2 else b.natural(node.inputs[0])
    b.call("", [x], node.outputs[:1], last=rank > 2, layer=b.layer(node, node.inputs[1:], make, rank))


@reads("InstanceNormalization")
def instance_norm(b: Builder, node: Node) -> None:
    inputs = [b.maps(node.inputs[0]), *(b.weight(name) for name in node.inputs[1:])]
    b.call(node.operator, inputs, node.outputs, last=True, eps=node.get("epsilon", 1e-5))


@reads("LayerNormalization")
def layer_norm(b: Builder, node: Node) -> None:
    axis, rank = node.get("axis", -1), b.known_rank(node, node.inputs[0])
    if len(b.lengths[node.inputs[1]] or ()) != (rank - axis if axis >= 0 else -axis):
        raise node.refused("with a scale of another shape than its axes is not offered")
    inputs = [b.natural(name) for name in node.inputs]
    b.call(node.operator, inputs, node.outputs[:1], eps=node.get("epsilon", 1e-5))


@reads("Gemm")
def gemm(b: Builder, node: Node) -> None:
    weight, bias = b.constant(node, 1), b.constant(node, 2)
    node.passes("broadcast")  # of files before opset 7
    weight = weight if node.get("transB", 0) else weight.T
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    weight = weight if alpha == 1 else alpha * weight
    bias = bias if bias is None or beta == 1 else beta * bias
    if bias is not None and bias.ndim == 2 and len(bias) > 1:  # other numbers for each row, which no layer has
        made, node.outputs = node.outputs, [f"{node.outputs[0]} product"]
        _linear(b, node, weight, None, node.inputs[1:2])
        b.call("Add", [*node.outputs, b.weight(node.inputs[2], bias)], made)
        return
    _linear(b, node, weight, None if bias is None else np.broadcast_to(bias.ravel(), len(weight)), node.inputs[1:])


def _linear(b: Builder, node: Node, weight: Any, bias: Any, names: Sequence[str]) -> None:
    """A linear layer; the weights of a flattened map are put in the order of NHWC."""
    x, columns = b.product(node.inputs[0], names[0])
    if columns:
        weight = np.moveaxis(weight.reshape(len(weight), *columns), 1, -1).reshape(len(weight), -1)

    def make() -> Module:
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        return _given(layer, weight=weight, bias=bias)

    b.call("", [x], node.outputs, layer=b.layer(node, list(names), make))


@reads("MatMul")
def matmul(b: Builder, node: Node) -> None:
    right = b.constants.get(node.inputs[1])
    if right is not None and right.ndim == 2 and node.inputs[1] in b.named:
        found = b.bias_behind(node, right.shape[1])
        if found is None:
            _linear(b, node, right.T, None, node.inputs[1:])
        else:
            node.outputs = [found[1]]
            _linear(b, node, right.T, b.constants[found[0]], [node.inputs[1], found[0]])
    else:
        b.call("MatMul", [b.natural(name) for name in node.inputs], node.outputs)


@reads("Dropout")
def dropout(b: Builder, node: Node) -> None:
    x = node.inputs[0]
    ratio = float(b.constant(node, 1, np.float32(node.get("ratio", 0.5))))
    node.passes("is_test")
    path = b.layer(node, [f"{node.name}.weight"], lambda: nn.Dropout(ratio))
    b.call("", [x], node.outputs[:1], last=x in b.last, layer=path)
    if x in b.flat:
        b.flat[node.outputs[0]] = b.flat[x]


# -- pools ------------------------------------------------------------------------------------------------


@reads("MaxPool", "AveragePool")
def pool(b: Builder, node: Node) -> None:
    filters = node.get("kernel_shape")
    rank, largest = len(filters), node.operator == "MaxPool"
    if len(node.outputs) > 1:
        raise node.refused("with the places of the maxima is not offered")
    pads, gaps = _pads(b, node, rank, filters), node.get("dilations", [1] * rank)
    counted = bool(node.get("count_include_pad", 0))
    if not largest and (max(gaps) > 1 or (pads[0] != pads[1] and not counted)):
        raise node.refused(f"with pads {pads} and dilations {gaps} is not offered")
    x, padding = _padded(b, b.maps(node.inputs[0]), pads, -np.inf if largest else 0.0)
    sizes = tuple(filters), tuple(node.get("strides", [1] * rank)), tuple(padding)
    more: dict[str, Any] = {"dilation": tuple(gaps)} if largest else {"count_include_pad": counted}
    ceil_mode = bool(node.get("ceil_mode", 0))
    b.call(node.operator, [x], node.outputs, last=True, rank=rank, sizes=sizes, ceil_mode=ceil_mode, **more)


@reads("GlobalAveragePool", "GlobalMaxPool")
def global_pool(b: Builder, node: Node) -> None:
    largest = node.operator == "GlobalMaxPool"
    b.call("Global", [b.maps(node.inputs[0])], node.outputs, last=True, largest=largest)


@reads("LRN")
def local_response(b: Builder, node: Node) -> None:
    numbers = {name: node.get(name, usual) for name, usual in (("alpha", 1e-4), ("beta", 0.75))}
    size_, k = node.get("size"), node.get("bias", 1.0)
    b.call("LRN", [b.maps(node.inputs[0])], node.outputs, last=True, size=size_, k=k, **numbers)


@reads("Resize", "Upsample")
def resize(b: Builder, node: Node) -> None:
    """The places follow from `scales` where the file gives them: the lengths of the result are rounded."""
    old = node.operator == "Upsample" or b.opset < 11  # whose places were not told by attributes
    x, rank = node.inputs[0], b.known_rank(node, node.inputs[0])
    mode = node.get("mode", "nearest")
    how = "asymmetric" if old else node.get("coordinate_transformation_mode", "half_pixel")
    rounding = "simple" if old else node.get("nearest_mode", "round_prefer_floor")
    offered = PLACES if mode == "nearest" else ("half_pixel", "pytorch_half_pixel", "align_corners")
    kinds = {"nearest": "nearest nearest nearest", "linear": "linear bilinear trilinear", "cubic": "- bicubic -"}
    kind = kinds.get(mode, "- - -").split()[rank - 3] if 3 <= rank <= 5 else "-"
    if how not in offered or (mode == "nearest" and rounding not in ROUNDINGS):
        raise node.refused(f"with {how} and {rounding} is not offered for {mode}")
    if kind == "-" or (mode == "cubic" and node.get("cubic_coeff_a", -0.75) != -0.75):
        raise node.refused(f"with the mode {mode} of {rank} axes is not offered")
    size_, factor = _resized_to(b, node, 1 if old else 2)
    corners = None if mode == "nearest" else how == "align_corners"
    more = {"align_corners": corners, "how": how, "rounding": rounding, "size": size_, "factor": factor}
    b.call("Resize", [b.maps(x)], node.outputs, last=True, mode=kind, **more)


def _resized_to(b: Builder, node: Node, number: int) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
    """The lengths of maps behind a resize or, if an input or attribute gives them, the factors of their lengths."""
    scales = node.get("scales") if b.opset < 9 else b.constant(node, number)
    before, after = (b.lengths.get(name) or () for name in (node.inputs[0], node.outputs[0]))
    if scales is not None and len(scales):
        if tuple(scales[:2]) != (1, 1):
            raise node.refused(f"with the scales {list(map(float, scales[:2]))} of images and channels is not offered")
        return None, tuple(float(n) for n in scales[2:])
    sizes = None if node.has(number + 1) and node.inputs[number + 1] in b.constants else after
    lengths = after if sizes is not None else tuple(int(n) for n in b.constant(node, number + 1))
    if any(None not in (n, m) and n != m for n, m in zip(before[:2], lengths[:2], strict=False)):
        raise node.refused(f"from {before[:2]} to {lengths[:2]} images and channels is not offered")
    known = tuple(n for n in lengths[2:] if n is not None)
    if not known or len(known) < len(lengths) - 2:
        raise node.refused("gives a size that the file does not tell")
    return known, None


# -- without axes -----------------------------------------------------------------------------------------


@reads("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Equal", "Greater", "Less", "Where", "Sum", "PRelu")
def broadcast(b: Builder, node: Node) -> None:
    node.passes("broadcast")  # of files before opset 7, which give an axis where it is not as in numpy
    names, last = b.aligned(node)
    if node.operator == "Sum":
        for number, name in enumerate(names[1:], 1):
            made = node.outputs if number + 1 == len(names) else [f"{node.outputs[0]} {number}"]
            b.call("Add", [names[0], name], made, last=last)
            names[0] = made[0]
        return
    b.call(node.operator, names, node.outputs, last=last)


def of_one(b: Builder, node: Node, run: str, **options: Any) -> None:
    """Add a call of a function of one tensor, which has no axes."""
    x = node.inputs[0]
    b.call(run, [x], node.outputs[:1], last=x in b.last, **options)
    if x in b.flat:
        b.flat[node.outputs[0]] = b.flat[x]


SAME = "Abs Ceil Erf Exp Floor HardSwish Log Mish Neg Reciprocal Relu Sigmoid Softplus Softsign Sqrt Tanh"


@reads(*SAME.split())
def same(b: Builder, node: Node) -> None:
    of_one(b, node, node.operator)


@reads("Selu")
def selu(b: Builder, node: Node) -> None:
    if abs(node.get("alpha", 1.67326319) - 1.67326319) + abs(node.get("gamma", 1.05070102) - 1.05070102) > 1e-5:
        raise node.refused("with other numbers than SELU's is not offered")
    of_one(b, node, "Selu")


@reads("LeakyRelu", "Elu", "Celu", "HardSigmoid", "Gelu")
def with_numbers(b: Builder, node: Node) -> None:
    usual: dict[str, dict[str, Any]] = {
        "LeakyRelu": {"alpha": 0.01},
        "Elu": {"alpha": 1.0},
        "Celu": {"alpha": 1.0},
        "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
        "Gelu": {"approximate": "none"},
    }
    of_one(b, node, node.operator, **{name: node.get(name, value) for name, value in usual[node.operator].items()})


@reads("Clip")
def clip(b: Builder, node: Node) -> None:
    low, high = (
        b.constant(node, number) if b.opset >= 11 else node.get(name) for number, name in ((1, "min"), (2, "max"))
    )
    bounds = [None if bound is None else float(bound) for bound in (low, high)]
    of_one(b, node, "Clip", low=bounds[0], high=bounds[1])


@reads("Identity")
def identity(b: Builder, node: Node) -> None:
    of_one(b, node, "Identity")


@reads("Cast")
def cast(b: Builder, node: Node) -> None:
    of_one(b, node, "Cast", dtype=dtype_name(node.get("to")))


# -- along axes -------------------------------------------------------------------------------------------


@reads("Concat")
def concat(b: Builder, node: Node) -> None:
    rank = b.known_rank(node, node.outputs[0])
    last = any(name in b.last for name in node.inputs)
    names = [b.natural(name) for name in node.inputs]
    if last:
        names = [b.weight(name) if name in b.constants else b.maps(name) for name in node.inputs]
    axis = node.get("axis") % rank
    b.call("Concat", names, node.outputs, last=last, dim=_placed(axis, rank) if last else axis)


def _placed(axis: int, rank: int) -> int:
    """An axis of NCHW in NHWC."""
    return axis if axis == 0 else rank - 1 if axis == 1 else axis - 1


@reads("Softmax", "LogSoftmax")
def softmax(b: Builder, node: Node) -> None:
    x = node.inputs[0] if node.inputs[0] in b.last else b.natural(node.inputs[0])
    rank = b.known_rank(node, node.inputs[0])
    axis = node.get("axis", -1 if b.opset >= 13 else 1) % rank
    if b.opset < 13 and axis != rank - 1:
        raise node.refused(f"of opset {b.opset} over several axes is not offered")
    b.call(node.operator, [x], node.outputs, last=x in b.last, dim=b.axis(node, x, axis) if x in b.last else axis)


REDUCTIONS = {"ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceL2": "l2"}


@reads(*REDUCTIONS)
def reduce(b: Builder, node: Node) -> None:
    x = node.inputs[0]
    rank = b.known_rank(node, x)
    axes = node.get("axes") if node.get("axes") is not None else b.constant(node, 1)
    keepdims, nothing = node.get("keepdims", 1) == 1, node.get("noop_with_empty_axes", 0) == 1
    if axes is None or not len(axes):
        if nothing and node.operator == "ReduceL2":  # programs differ, some give |x|
            raise node.refused("with noop_with_empty_axes=1 and no axes is not offered")
        if nothing:
            of_one(b, node, "Identity")
            return
        axes = range(rank)
    named = sorted(int(axis) % rank for axis in axes)
    last = x in b.last and (keepdims or named == list(range(2, rank)))
    x = x if last else b.natural(x)
    placed = tuple(_placed(axis, rank) if last else axis for axis in named)
    how = REDUCTIONS[node.operator]
    b.call("Reduce", [x], node.outputs, last=last and keepdims, how=how, axes=placed, keepdims=keepdims)


@reads("ArgMax")
def arg_max(b: Builder, node: Node) -> None:
    x, keepdims = b.natural(node.inputs[0]), node.get("keepdims", 1) == 1
    axis = node.get("axis", 0) % b.known_rank(node, node.inputs[0])
    b.call("ArgMax", [x], node.outputs, dim=axis, keepdims=keepdims)


@reads("Einsum")
def einsum(b: Builder, node: Node) -> None:
    """Maps keep their channels last: their letters are written in the order of NHWC."""
    equation = node.get("equation").replace(" ", "")
    given, arrow, made = equation.partition("->")
    letters, names = given.split(","), list(node.inputs)
    last = bool(arrow) and "." not in equation and len(made) in (4, 5) and names[0] in b.last
    if not last:
        b.call("Einsum", [b.natural(name) for name in names], node.outputs, equation=equation)
        return
    for number, name in enumerate(names):
        if name in b.last:
            letters[number] = _of_maps(letters[number])
        else:
            names[number] = b.natural(name)
    b.call("Einsum", names, node.outputs, last=True, equation=f"{','.join(letters)}->{_of_maps(made)}")


def _of_maps(letters: str) -> str:
    """The letters of NCHW in the order of NHWC."""
    return letters[0] + letters[2:] + letters[1]


@reads("Split")
def split(b: Builder, node: Node) -> None:
    x = node.inputs[0] if node.inputs[0] in b.last else b.natural(node.inputs[0])
    rank = b.known_rank(node, node.inputs[0])
    axis = node.get("axis", 0) % rank
    sizes = node.get("split") if node.get("split") is not None else b.constant(node, 1)
    if node.get("num_outputs", len(node.outputs)) != len(node.outputs):
        raise node.refused(f"with num_outputs={node.get('num_outputs')} has {len(node.outputs)} outputs")
    if sizes is None:
        length = (b.lengths[node.inputs[0]] or ())[axis]
        if length is None:
            raise node.refused("of an axis whose length the file does not tell is not offered")
        each = -(-length // len(node.outputs))
        sizes = [min(each, length - i * each) for i in range(len(node.outputs))]
    last = x in b.last
    dim = _placed(axis, rank) if last else axis
    b.call("Split", [x], node.outputs, last=last, sizes=tuple(int(n) for n in sizes), dim=dim)


@reads("Slice")
def slices(b: Builder, node: Node) -> None:
    x = node.inputs[0] if node.inputs[0] in b.last else b.natural(node.inputs[0])
    rank = b.known_rank(node, node.inputs[0])
    if b.opset < 10:
        starts, ends = node.get("starts"), node.get("ends")
        axes, steps = node.get("axes", range(len(starts))), [1] * len(starts)
    else:
        starts, ends = b.constant(node, 1), b.constant(node, 2)
        axes, steps = b.constant(node, 3, range(len(starts))), b.constant(node, 4, [1] * len(starts))
    last = x in b.last
    cuts = [
        (_placed(int(axis) % rank, rank) if last else int(axis) % rank, int(start), int(end), int(step))
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
    ]
    b.call("Slice", [x], node.outputs, last=last, cuts=tuple(cuts))


@reads("Gather")
def gather(b: Builder, node: Node) -> None:
    index = b.constant(node, 1)
    axis = node.get("axis", 0) % b.known_rank(node, node.inputs[0])
    if index.ndim > 1:
        raise node.refused("with an index of several axes is not offered")
    name = b.natural(node.inputs[0])
    if index.ndim:
        b.call("Gather", [name, b.weight(node.inputs[1])], node.outputs, dim=axis)
        return
    one = f"{node.outputs[0]} kept"
    cut = (axis, int(index), int(index) + 1 or 2**62, 1)
    b.call("Slice", [name], [one], cuts=(cut,))
    b.call("Reshape", [one], node.outputs, shape=_shape(b, node, node.outputs[0]))


@reads("Pad")
def pad(b: Builder, node: Node) -> None:
    pads = node.get("pads") if b.opset < 11 else b.constant(node, 1).tolist()
    value = float(node.get("value", 0.0) if b.opset < 11 else b.constant(node, 2, 0.0))
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    rank, mode = b.known_rank(node, node.inputs[0]), modes[node.get("mode", "constant")]
    if node.has(3):
        raise node.refused("with axes is not offered")
    last = node.inputs[0] in b.last
    x = node.inputs[0] if last else b.natural(node.inputs[0])
    places = [0, *range(2, rank), 1] if last else list(range(rank))
    both = [n for axis in reversed(places) for n in (pads[axis], pads[axis + rank])]
    b.call("Pad", [x], node.outputs, last=last, pad=tuple(both), mode=mode, value=value if mode == "constant" else None)


# -- shapes -----------------------------------------------------------------------------------------------


@reads("Shape", "ConstantOfShape", "Range")
def shape(b: Builder, node: Node) -> None:
    """Shapes are known from the file; a node that takes one as a value refuses it by itself."""
    node.passes("start", "end", "value")


def _shape(b: Builder, node: Node, name: str) -> tuple[int, ...]:
    """The shape of a result by what the file tells, -1 for one length that it does not.

    Raises:
        ExportError: two lengths are not known.
    """
    lengths = b.lengths.get(name)
    if lengths is None or lengths.count(None) > 1:
        raise node.refused(f"gives a shape {lengths} of which the file tells too little")
    return tuple(-1 if n is None else n for n in lengths)


@reads("Flatten", "Reshape", "Squeeze", "Unsqueeze")
def reshape(b: Builder, node: Node) -> None:
    """A reshape; a map that is flattened stays in the order of NHWC until something else than a product takes it."""
    x, made = node.inputs[0], node.outputs[0]
    node.passes("axis", "axes", "allowzero")
    given = None
    if node.operator == "Reshape" and node.inputs[1] in b.constants:
        given = tuple(b.constants[node.inputs[1]].tolist())
    before, after = b.lengths.get(x), b.lengths.get(made)
    if x in b.last and before is not None and _flattens(node, before, after, given):
        inner = tuple(int(n or 0) for n in before[1:])
        if 0 in inner:
            raise node.refused(f"flattens a map {before} whose size the file does not tell")
        b.call("Reshape", [x], [made], shape=(-1, int(np.prod(inner))))
        if any(n != 1 for n in inner[1:]):
            b.flat[made] = inner
        return
    wanted = given if given is not None and node.get("allowzero", 0) == 0 else _shape(b, node, made)
    b.call("Reshape", [b.natural(x)], [made], shape=wanted)


def _flattens(node: Node, before: Any, after: Any, given: tuple[int, ...] | None) -> bool:
    """True if a node makes a map (N, C, ..) a matrix (N, F)."""
    whole = size(before[1:])
    if node.operator == "Flatten":
        return bool(node.get("axis", 1) in (1, 1 - len(before)))
    if node.operator == "Squeeze" or (after is not None and len(after) == 2):
        return after is not None and len(after) == 2 and whole is not None and after[1] == whole
    return given is not None and len(given) == 2 and whole is not None and given[1] in (whole, -1)


@reads("Transpose")
def transpose(b: Builder, node: Node) -> None:
    x = node.inputs[0]
    rank = b.known_rank(node, x)
    order = tuple(node.get("perm") or range(rank)[::-1])
    if x in b.last:  # axis i of the file is axis places[i] of the network
        order = tuple(_placed(axis, rank) for axis in order)
    else:
        x = b.natural(x)
    if rank in (4, 5) and [order[0], *order[2:], order[1]] == list(range(rank)):  # the result is a map as it lies
        b.call("Identity", [x], node.outputs, last=True)
        return
    as_it_lies = order == tuple(range(rank))
    if as_it_lies:
        b.call("Identity", [x], node.outputs)
    else:
        b.call("Permute", [x], node.outputs, order=order)


@reads("Expand")
def expand(b: Builder, node: Node) -> None:
    wanted = b.lengths.get(node.outputs[0])
    if wanted is None or None in wanted[1:]:
        raise node.refused(f"gives a shape {wanted} of which the file tells too little")
    lengths = tuple(-1 if n is None else n for n in wanted)
    like = [b.given[0]] if -1 in lengths else []
    b.call("Expand", [b.natural(node.inputs[0]), *like], node.outputs, shape=lengths)
