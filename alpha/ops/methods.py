"""The methods of Tensor that are operators.

`alpha/tensor_operators.py` and `alpha/tensor_operators_more.py` declare their types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from alpha.errors import type_name
from alpha.ops import (
    activation,
    activation_smooth,
    arithmetic,
    axes,
    bitwise,
    blend,
    bounds,
    checks,
    choices,
    compare,
    conversion,
    division,
    exponential,
    extremes,
    gathering,
    indexing,
    inplace,
    joining,
    layout,
    logarithms,
    matmul,
    moments,
    operators,
    power,
    quantiles,
    reduce,
    rounding,
    running,
    running_more,
    selection,
    softmax,
    sorting,
    special,
    statistics,
    triangles,
    trigonometric,
)
from alpha.ops.arguments import unchecked
from alpha.ops.compare import relate
from alpha.ops.integers import beside, written
from alpha.ops.operands import OPERANDS, like
from alpha.tensor import Tensor

Method = Callable[[Tensor, Any], Any]

_add, _mul, _matmul = unchecked(arithmetic.add), unchecked(arithmetic.mul), unchecked(matmul.matmul)

RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _methods(room: ModuleType, *names: str) -> dict[str, Callable[..., Any]]:
    """Functions of a room as methods, without a check that the first argument is a Tensor."""
    return {name: unchecked(getattr(room, name)) for name in names}


def _relation(sign: str) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Tensor:
        if not isinstance(other, OPERANDS):
            raise TypeError(f"{sign}: a {type_name(other)} is no operand; a Tensor or a number is needed")
        return relate(self, other, sign)

    return method


CASTS = {
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
}


def _cast_to(dtype: str) -> Callable[[Tensor], Tensor]:
    return lambda x: x.astype(dtype)


# signs of Python in which the operator is written into the tensor
AUGMENTED = {
    "__ifloordiv__": division.floor_divide,
    "__imod__": division.remainder,
    "__iand__": bitwise.bitwise_and,
    "__ior__": bitwise.bitwise_or,
    "__ixor__": bitwise.bitwise_xor,
    "__ilshift__": bitwise.bitwise_left_shift,
    "__irshift__": bitwise.bitwise_right_shift,
}


def _augmented(function: Method) -> Method:
    return lambda x, other: written(function.__name__, x, function(x, other))


def _several(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A method that takes integers one by one or as one sequence: `x.permute(1, 0)` or `x.permute((1, 0))`."""

    @functools.wraps(function)
    def method(self: Tensor, *values: Any, **named: Any) -> Tensor:
        if named or (len(values) == 1 and isinstance(values[0], (tuple, list))):
            return function(self, *values, **named)
        return function(self, values)

    return method


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "mul": _mul,
    **{name: getattr(arithmetic, name) for name in ("add_", "sub_", "mul_", "div_")},
    **_methods(operators, *(name for name in operators.__all__ if name not in ("rsub", *RELATIONS))),
    **_methods(exponential, "exp", "log"),
    "sqrt": unchecked(power.sqrt),
    "matmul": matmul.matmul,
    "sum": unchecked(reduce.sum),
    "mean": unchecked(reduce.mean),
    "flatten": unchecked(layout.flatten),
    "bmm": matmul.bmm,
    **_methods(axes, "transpose", "swapaxes", "movedim", "squeeze", "unsqueeze", "unflatten", "roll", "rot90"),
    **{name: _several(unchecked(getattr(axes, name))) for name in ("permute", "expand", "repeat", "tile", "flip")},
    **_methods(joining, "split", "chunk", "unbind"),
    **_methods(extremes, "max", "min", "amax", "amin", "argmax", "argmin", "all", "any"),
    **_methods(moments, "prod", "var", "std", "norm"),
    **_methods(sorting, "sort", "argsort", "topk"),
    **_methods(running, "cumsum", "cumprod"),
    **{name: getattr(statistics, name) for name in ("aminmax", "nanmean", "nansum")},
    **{name: getattr(checks, name) for name in (*checks.__all__, "equal") if name != "isin"},
    **{
        name: getattr(room, name)
        for room in (blend, choices, quantiles, running_more, special)
        for name in room.__all__
    },
    **{name: getattr(gathering, name) for name in gathering.__all__},
    **_methods(conversion, "to", "clone", "contiguous", "cpu", "cuda", "ravel", "tolist", "numel", "dim"),
    **_methods(conversion, "view_as", "type_as"),
    **{name: _cast_to(dtype) for name, dtype in CASTS.items()},
    "view": lambda x, *shape: x.reshape(*shape),
    **_methods(triangles, "tril", "triu"),
    **_methods(rounding, *rounding.__all__),
    **_methods(logarithms, *logarithms.__all__),
    **_methods(trigonometric, "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    **_methods(trigonometric, "deg2rad", "rad2deg"),
    "atan2": trigonometric.atan2,
    "hypot": trigonometric.hypot,
    **_methods(bounds, *bounds.__all__),
    "nan_to_num": unchecked(selection.nan_to_num),
    **_methods(softmax, "softmax", "log_softmax", "logsumexp"),
    "isnan": unchecked(compare.isnan),
    **_methods(inplace, "zero_", "fill_", "copy_", "clamp_", "normal_", "uniform_"),
    "masked_fill_": inplace.masked_fill_,
    "masked_fill": selection.masked_fill,
    "maximum": selection.maximum,
    "minimum": selection.minimum,
    **_methods(activation_smooth, "sigmoid", "tanh"),
    "relu": activation.relu,
    "where": lambda x, condition, other: selection.where(condition, x, other),
    **_methods(division, *division.__all__),
    **{name: getattr(bitwise, name) for name in bitwise.__all__},
    "__invert__": bitwise.bitwise_not,
    **{name: _augmented(function) for name, function in AUGMENTED.items()},
    "__abs__": rounding.abs,
    "__round__": lambda x, decimals=None: rounding.round(x, decimals=0 if decimals is None else decimals),
    **{name: _relation(sign) for name, sign in RELATIONS.items()},
    "__getitem__": indexing.get_item,
    "__setitem__": indexing.set_item,
    "__neg__": arithmetic.neg,
    "__pos__": logarithms.positive,
    # These raise for an operand that they do not take: with NotImplemented, Python would bind the name anew.
    "__iadd__": arithmetic.add_,
    "__isub__": arithmetic.sub_,
    "__imul__": arithmetic.mul_,
    "__itruediv__": arithmetic.div_,
}


def _of_bits(sign: str, function: Method) -> dict[str, Method]:
    """`x & y`, and `y & x` of an operand that is no tensor, for one of the signs"""
    return {f"__{sign}__": function, f"__r{sign}__": lambda x, other: function(beside(function.__name__, x, other), x)}


BINARY: dict[str, Method] = {
    "__add__": _add,
    "__radd__": _add,
    "__sub__": arithmetic.sub,
    "__rsub__": arithmetic.reversed_sub,
    "__mul__": _mul,
    "__rmul__": _mul,
    "__truediv__": arithmetic.div,
    "__rtruediv__": arithmetic.reversed_div,
    "__floordiv__": division.floor_divide,
    "__rfloordiv__": division.reversed_floor_divide,
    "__mod__": division.remainder,
    "__rmod__": division.reversed_remainder,
    **_of_bits("and", bitwise.bitwise_and),
    **_of_bits("or", bitwise.bitwise_or),
    **_of_bits("xor", bitwise.bitwise_xor),
    **_of_bits("lshift", bitwise.bitwise_left_shift),
    **_of_bits("rshift", bitwise.bitwise_right_shift),
    "__pow__": power.pow,
    "__rpow__": power.reversed_pow,
    "__matmul__": lambda x, other: _matmul(x, like(x, other)),
    "__rmatmul__": lambda x, other: _matmul(like(x, other), x),
}
COMPARISONS = {f"__{name}__": sign for name, sign in RELATIONS.items()}
REFUSED = {"__ipow__": ("**=", "x = x ** y"), "__imatmul__": ("@=", "x = x @ y")}


def _operator(function: Method) -> Method:
    def method(self: Tensor, other: Any) -> Any:
        return function(self, other) if isinstance(other, OPERANDS) else NotImplemented

    return method


def _comparison(relation: str) -> Method:
    def method(self: Tensor, other: Any) -> Any:
        return relate(self, other, relation) if isinstance(other, OPERANDS) else NotImplemented

    return method


def _refusal(operator: str, instead: str) -> Method:
    def method(self: Tensor, other: Any) -> NoReturn:
        raise TypeError(f"{operator} has no in-place form; write {instead}")

    return method


def _install() -> None:
    methods: dict[str, Any] = {
        **FUNCTIONS,
        **{name: _operator(function) for name, function in BINARY.items()},
        **{name: _comparison(relation) for name, relation in COMPARISONS.items()},
        **{name: _refusal(*words) for name, words in REFUSED.items()},
        "T": property(conversion.reversed_axes),
        "mT": property(conversion.transposed_matrices),
        "data": property(conversion.data, conversion.set_data),
    }
    for name, method in methods.items():
        setattr(Tensor, name, method)


_install()
