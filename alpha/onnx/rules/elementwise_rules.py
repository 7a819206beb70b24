"""Rules of operators that compute each element by itself: activations, arithmetic, comparisons, casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha.core.numerics import BFLOAT16
from alpha.errors import ExportError
from alpha.onnx.graph import Graph, Node
from alpha.onnx.package import onnx_package
from alpha.onnx.recorder import EVALUATION, Step, Value
from alpha.onnx.rules.rule_table import OF_ONE, rule
from alpha.ops.activation.parametric import PReLUStep
from alpha.ops.array import layout
from alpha.ops.array.parts import clone
from alpha.ops.indexing.where import Where
from alpha.ops.kernel.rectifier import AddRectified, AffineRectified, Rectifier
from alpha.ops.math import binary, clamp, comparison, integers, lerp, maximum_minimum, number_arithmetic, power
from alpha.ops.noise.dropout import Dropout
from alpha.ops.noise.group_dropout import DropGroups


def _node(operator: str, *numbers: float | None, **attributes: Any) -> Node:
    return operator, numbers, attributes


def _as(operator: str) -> Callable[[float, float], tuple[Node, ...]]:
    return lambda p, q: (_node(operator),)


X = None  # the operand of the first node, once more
SAME = "relu sigmoid tanh softsign mish exp log erf reciprocal sin cos tan asin acos atan sinh cosh asinh acosh atanh "
SAME += "ceil floor"  # which ONNX has under the same name
OF_ONE |= {f"{name}_forward": _as(name.capitalize()) for name in SAME.split()}


def _softplus(p: float, q: float) -> tuple[Node, ...] | None:
    """Softplus of p x by p; it is x itself behind q / p, which ONNX has not: above 20 nobody sees that."""
    if q < 20:
        return None
    return (_node("Softplus"),) if p == 1 else (_node("Mul", p), _node("Softplus"), _node("Div", p))


OF_ONE |= {
    "magnitude": _as("Abs"),
    "signum": _as("Sign"),
    "nearest": lambda p, q: (_node("Round"),) if p == 1 else None,
    "hardswish_forward": _as("HardSwish"),
    "square_root": lambda p, q: (_node("Sqrt"),),
    "rsqrt_forward": lambda p, q: (_node("Sqrt"), _node("Reciprocal")),
    "square_forward": lambda p, q: (_node("Pow", 2),),
    "exp2_forward": lambda p, q: (_node("Mul", math.log(2)), _node("Exp")),
    "log2_forward": lambda p, q: (_node("Log"), _node("Div", math.log(2))),
    "log10_forward": lambda p, q: (_node("Log"), _node("Div", math.log(10))),
    "leaky_relu_forward": lambda p, q: (_node("LeakyRelu", alpha=p),),
    "hardtanh_forward": lambda p, q: (_node("Clip", q, p),),
    "elu_forward": lambda p, q: (_node("Elu", alpha=p),),
    "celu_forward": lambda p, q: (_node("Celu", alpha=p),),
    "selu_forward": lambda p, q: (_node("Selu", alpha=q / p, gamma=p),),
    "hardsigmoid_forward": lambda p, q: (_node("HardSigmoid", alpha=1 / 6, beta=0.5),),
    "gelu_forward": _as("Gelu"),
    "gelu_tanh_forward": lambda p, q: (_node("Gelu", approximate="tanh"),),
    "softplus_forward": _softplus,
    "logsigmoid_forward": lambda p, q: (_node("Neg"), _node("Softplus"), _node("Neg")),
    "softshrink_forward": lambda p, q: (_node("Shrink", lambd=p, bias=p),),
    "hardshrink_forward": lambda p, q: (_node("Shrink", lambd=p, bias=0.0),),
    "silu_forward": lambda p, q: (_node("Sigmoid"), _node("Mul", X)),
    "tanhshrink_forward": lambda p, q: (_node("Tanh"), _node("Neg"), _node("Add", X)),
    "threshold_forward": lambda p, q: (_node("Greater", p), _node("Where", X, q)),
    "logit_forward": lambda p, q: (_node("Neg"), _node("Add", 1), _node("Div", X), _node("Log"), _node("Neg")),
    "log1p_forward": lambda p, q: (_node("Add", 1), _node("Log")),
    "expm1_forward": lambda p, q: (_node("Exp"), _node("Sub", 1)),
    "erfc_forward": lambda p, q: (_node("Erf"), _node("Neg"), _node("Add", 1)),
}


def rectified(g: Graph, name: str, rectifier: Rectifier | None) -> str:
    """The name of a value behind a rectifier."""
    if rectifier is None or (rectifier.slope == 1 and rectifier.bound == math.inf):
        return name
    if rectifier.slope:
        result: str = g.emit("LeakyRelu", [name], alpha=rectifier.slope)
    elif rectifier.bound == math.inf:
        result = g.emit("Relu", [name])
    else:
        result = g.emit("Clip", [name, g.number(0), g.number(rectifier.bound)])
    return result


def cast_to(g: Graph, name: str, dtype: Any) -> str:
    """The name of a value in another dtype."""
    if np.dtype(dtype) == BFLOAT16:
        raise ExportError("onnx.export: the forward computes in bfloat16, which few programs run; use float32")
    result: str = g.emit("Cast", [name], to=onnx_package().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    return result


def operands(g: Graph, step: Step, values: Sequence[Value], dtype: Any = None) -> tuple[list[str], tuple[int, ...]]:
    """The names of operands that are broadcast, all in one dtype, by default the result's."""
    names, order = g.aligned(values, step.output.rank)
    target = np.dtype(step.output.dtype if dtype is None else dtype)
    pairs = zip(names, values, strict=True)
    return [name if value.dtype == target else cast_to(g, name, target) for name, value in pairs], order


def _of_two(operators: dict[type, str]) -> None:
    for kind, operator in operators.items():

        @rule(kind)
        def write(g: Graph, step: Step, operator: str = operator) -> None:
            names, order = operands(g, step, [step.value(0), step.value(1)])
            g.bind(step.output, g.emit(operator, names), order)


_of_two(
    {
        binary.Add: "Add",
        binary.Subtract: "Sub",
        binary.Multiply: "Mul",
        binary.Divide: "Div",
        maximum_minimum.Maximum: "Max",
        maximum_minimum.Minimum: "Min",
        clamp.AtLeast: "Max",
        clamp.AtMost: "Min",
        power.TensorPower: "Pow",
    }
)


@rule(number_arithmetic.Affine)
def affine(g: Graph, step: Step) -> None:
    alpha, beta = step.fixed("alpha"), step.fixed("beta")
    chain = [_node("Neg")] if alpha == -1 else [_node("Mul", alpha)] if alpha != 1 else []
    g.of_one(step, *chain, *([_node("Add", beta)] if beta else []))


@rule(number_arithmetic.DivideByNumber)
def divide_by_number(g: Graph, step: Step) -> None:
    g.of_one(step, _node("Div", step.fixed("number")))


@rule(number_arithmetic.DivideNumber)
def divide_number(g: Graph, step: Step) -> None:
    x = step.value(0)
    order = g.held(x)
    g.bind(step.output, g.emit("Div", [g.number(step.fixed("number"), x.dtype), g.get(x, order)]), order)


@rule(power.Power)
def powers(g: Graph, step: Step) -> None:
    exponent = step.fixed("exponent")
    g.of_one(step, _node("Sqrt") if exponent == 0.5 else _node("Pow", exponent))


@rule(clamp.Clamp)
def clamped(g: Graph, step: Step) -> None:
    low, high = step.fixed("low"), step.fixed("high")
    g.of_one(step, _node("Clip", min(low, high), high))


SIGNS = {"+": "Add", "-": "Sub", "*": "Mul", "&": "And", "|": "Or", "^": "Xor"}


@rule(integers.Combine)
def combined(g: Graph, step: Step) -> None:
    """Integers, and the logic of bools."""
    sign = step.fixed("sign")
    if sign not in SIGNS or (sign in "&|^") != (step.output.dtype == np.bool_):
        raise step.refused(f"of {step.output.dtype.name} cannot be exported")
    names, order = operands(g, step, [step.value(0), step.value(1)])
    g.bind(step.output, g.emit(SIGNS[sign], names), order)


RELATIONS = {"==": "Equal", "!=": "Equal", "<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual"}


@rule(comparison.Compare)
def compared(g: Graph, step: Step) -> None:
    relation = step.fixed("relation")
    values = [step.value(0), step.value(1)]
    dtypes = {value.dtype for value in values}
    floating = [dtype for dtype in dtypes if dtype.kind == "f"]
    widest = max(floating, default=np.dtype(np.int64), key=lambda dtype: dtype.itemsize)
    common = values[0].dtype if len(dtypes) == 1 else widest
    names, order = operands(g, step, values, common)
    found = g.emit(RELATIONS[relation], names)
    g.bind(step.output, g.emit("Not", [found]) if relation == "!=" else found, order)


@rule(Where)
def where(g: Graph, step: Step) -> None:
    values = [step.value(i) for i in range(3)]
    names, order = g.aligned(values, step.output.rank)
    for i in (1, 2):
        if values[i].dtype != step.output.dtype:
            names[i] = cast_to(g, names[i], step.output.dtype)
    g.bind(step.output, g.emit("Where", names), order)


@rule(lerp.Lerp)
def lerped(g: Graph, step: Step) -> None:
    (a, b), order = operands(g, step, [step.value(0), step.value(1)])
    scaled = g.emit("Mul", [g.emit("Sub", [b, a]), g.number(step.fixed("weight"), step.output.dtype)])
    g.bind(step.output, g.emit("Add", [a, scaled]), order)


@rule(lerp.AddProduct, lerp.AddQuotient)
def added_product(g: Graph, step: Step) -> None:
    (x, a, b), order = operands(g, step, [step.value(i) for i in range(3)])
    found = g.emit("Mul" if issubclass(step.kind, lerp.AddProduct) else "Div", [a, b])
    if step.fixed("value") != 1:
        found = g.emit("Mul", [found, g.number(step.fixed("value"), step.output.dtype)])
    g.bind(step.output, g.emit("Add", [x, found]), order)


@rule(AddRectified)
def add_rectified(g: Graph, step: Step) -> None:
    names, order = operands(g, step, [step.value(0), step.value(1)])
    g.bind(step.output, rectified(g, g.emit("Add", names), step.fixed("rectifier")), order)


@rule(AffineRectified)
def affine_rectified(g: Graph, step: Step) -> None:
    (x, weight, bias), order = operands(g, step, [step.value(i) for i in range(3)])
    found = g.emit("Add", [g.emit("Mul", [x, weight]), bias])
    g.bind(step.output, rectified(g, found, step.fixed("rectifier")), order)


@rule(PReLUStep)
def prelu(g: Graph, step: Step) -> None:
    g.elementwise(step, "PRelu", step.value(0), step.value(1))


@rule(layout.Cast)
def cast(g: Graph, step: Step) -> None:
    x = step.value(0)
    order = g.held(x)
    g.bind(step.output, cast_to(g, g.get(x, order), step.fixed("dtype")), order)


@rule(clone.Clone, layout.ToDevice)
def unchanged(g: Graph, step: Step) -> None:
    g.same(step.output, step.value(0))


@rule(Dropout, DropGroups)
def dropout(g: Graph, step: Step) -> None:
    raise step.refused(f"has random numbers, which cannot be exported{EVALUATION}")


@rule(layout.normalize_pixels)
def normalize_pixels(g: Graph, step: Step) -> None:
    x = step.value(0)
    order = g.held(x)
    scaled = g.emit("Mul", [cast_to(g, g.get(x, order), np.float32), g.number(2 / 255)])
    g.bind(step.output, g.emit("Sub", [scaled, g.number(1)]), order)
