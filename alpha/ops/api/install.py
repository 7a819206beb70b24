"""Methods of Tensor that are operators, those that Python's signs call, and comparisons.

`python tests/house/tensor_methods.py` writes their types into alpha/core/methods.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from alpha.core.tensor import Tensor
from alpha.errors import type_name
from alpha.ops.activation import parametric, piecewise, relu_family, smooth, softmax
from alpha.ops.api import operators, other_names
from alpha.ops.api.operators import written_form, written_forms
from alpha.ops.array import axes, conversion, creation, diagonals, facts, fill, joining, layout, shapes
from alpha.ops.indexing import gather_scatter, getitem_setitem, index_functions, where
from alpha.ops.kernel import sums
from alpha.ops.kernel.arguments import unchecked, with_other_names
from alpha.ops.kernel.operands import OPERANDS, beside, like
from alpha.ops.math import binary, bitwise, clamp, comparison, division, lerp, power, special, unary
from alpha.ops.math.comparison import relate
from alpha.ops.matmul import matmul, products
from alpha.ops.noise import random
from alpha.ops.reduction import extremes, quantiles, scan, scatter_reduce, sort, var_norm

STRUCTURE: dict[str, Callable[..., Any]] = {
    # of one tensor: without a check that it is one
    **{name: with_other_names(unchecked(getattr(diagonals, name))) for name in diagonals.__all__},
    **{name: with_other_names(unchecked(getattr(index_functions, name))) for name in ("narrow", "select", "argwhere")},
    **{
        name: with_other_names(unchecked(getattr(shapes, name)))
        for name in ("fliplr", "flipud", "moveaxis", "swapdims")
    },
    **{name: with_other_names(unchecked(getattr(shapes, name))) for name in ("tensor_split",)},
    "repeat_interleave": with_other_names(unchecked(sort.repeat_interleave)),
    **{name: with_other_names(unchecked(getattr(sort, name))) for name in ("unique", "unique_consecutive")},
    **{
        name: with_other_names(unchecked(getattr(other_names, name)))
        for name in other_names.__all__
        if name not in ("row_stack", "vdot")
    },
    **{
        name: with_other_names(unchecked(getattr(index_functions, name)))
        for name in ("diagflat", "dsplit", "hsplit", "narrow_copy", "vsplit")
    },
    **{name: unchecked(getattr(products, name)) for name in ("corrcoef", "matrix_power")},
    # floating numbers, or several tensors
    "vdot": other_names.vdot,
    **{name: getattr(index_functions, name) for name in ("diagonal_scatter", "select_scatter", "slice_scatter")},
    **{name: getattr(scan, name) for name in ("dist", "renorm")},
    "cov": products.cov,
    "unfold": index_functions.sliding,
    # what is asked of a tensor
    **{name: unchecked(getattr(facts, name)) for name in ("is_complex", "is_nonzero", "is_signed", "isreal")},
    **{name: getattr(facts, name) for name in ("get_device", "is_same_size", "stride", "sum_to_size")},
    **{name: getattr(random, name) for name in ("cauchy_", "exponential_", "geometric_", "log_normal_")},
    **{name: getattr(products, name) for name in products.__all__ if name not in ("tensordot", "vander")},
    **{name: getattr(index_functions, name) for name in ("index_copy", "index_fill", "index_put")},
    **{name: getattr(index_functions, name) for name in ("masked_select", "take")},
    **{name: getattr(shapes, name) for name in ("expand_as", "reshape_as")},
    "masked_scatter": sort.masked_scatter,
    **{name: getattr(sort, name) for name in ("bincount", "histc")},
    **{name: getattr(random, name) for name in ("bernoulli", "multinomial")},
    "scatter_reduce": scatter_reduce.scatter_reduce,
}
SEVERAL_NUMBERS: dict[str, Callable[..., Any]] = {"broadcast_to": unchecked(shapes.broadcast_to)}


Method = Callable[[Tensor, Any], Any]

_add, _mul, _matmul = unchecked(binary.add), unchecked(binary.mul), unchecked(matmul.matmul)

RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _relation(sign: str) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Tensor:
        if not isinstance(other, OPERANDS):
            raise TypeError(f"{sign}: a {type_name(other)} is no operand; a Tensor or a number is needed")
        return relate(self, other, sign)

    return method


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


def _of_bits(sign: str, function: Method) -> dict[str, Method]:
    """`x & y`, and `y & x` of an operand that is no tensor, for one of the signs"""
    return {f"__{sign}__": function, f"__r{sign}__": lambda x, other: function(beside(function.__name__, x, other), x)}


BINARY: dict[str, Method] = {
    "__add__": _add,
    "__radd__": _add,
    "__sub__": binary.sub,
    "__rsub__": binary.reversed_sub,
    "__mul__": _mul,
    "__rmul__": _mul,
    "__truediv__": binary.div,
    "__rtruediv__": binary.reversed_div,
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
REFUSED = {"__imatmul__": ("@=", "x = x @ y")}


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


def _rounded(x: Tensor, decimals: int | None = None) -> Tensor:
    return unary.round(x, decimals=0 if decimals is None else decimals)


SIGNS: dict[str, Callable[..., Any]] = {
    **{name: _operator(function) for name, function in BINARY.items()},
    **{name: _comparison(relation) for name, relation in COMPARISONS.items()},
    **{name: _relation(sign) for name, sign in RELATIONS.items()},
    **{name: written_form(function.__name__, function) for name, function in AUGMENTED.items()},
    **{name: _refusal(*words) for name, words in REFUSED.items()},
    "__neg__": binary.neg,
    "__pos__": unary.positive,
    "__abs__": unary.abs,
    "__round__": _rounded,
    "__invert__": bitwise.bitwise_not,
    # These raise for an operand that they do not take: with NotImplemented, Python would bind the name anew.
    "__iadd__": binary.add_,
    "__isub__": binary.sub_,
    "__imul__": binary.mul_,
    "__itruediv__": binary.div_,
    "__ipow__": power.pow_,
}


def _methods(room: ModuleType, *names: str) -> dict[str, Callable[..., Any]]:
    """Functions of a room as methods, without a check that the first argument is a Tensor."""
    return {name: with_other_names(unchecked(getattr(room, name))) for name in names}


CASTS = {
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
    "byte": "uint8",
}


def _cast_to(dtype: str) -> Callable[[Tensor], Tensor]:
    def method(x: Tensor) -> Tensor:
        return x.astype(dtype)

    return method


def _several(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A method that takes integers one by one or as one sequence: `x.permute(1, 0)` or `x.permute((1, 0))`."""

    @functools.wraps(function)
    def method(self: Tensor, *values: Any, **named: Any) -> Tensor:
        if named or (len(values) == 1 and isinstance(values[0], (tuple, list))):
            return function(self, *values, **named)
        return function(self, values)

    first, several, *_ = inspect.signature(function).parameters.values()
    each = several.replace(kind=inspect.Parameter.VAR_POSITIONAL, annotation="int | Sequence[int]")
    vars(method)["__signature__"] = inspect.signature(function).replace(parameters=[first, each])
    return method


def _overwriting(step: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    def method(x: Tensor) -> Tensor:
        return step(x, inplace=True)

    return method


def _view(x: Tensor, *shape: int | tuple[int, ...]) -> Tensor:
    return x.reshape(*shape)


def _where(x: Tensor, condition: Tensor, other: Any) -> Tensor:
    found: Tensor = where.where(condition, x, other)
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": unchecked(binary.add),
    "mul": unchecked(binary.mul),
    **{name: getattr(binary, name) for name in ("add_", "sub_", "mul_", "div_", "neg_")},
    **_methods(operators, *(name for name in operators.__all__ if name not in ("rsub", *RELATIONS))),
    "pow_": power.pow_,
    "matmul": matmul.matmul,
    "sum": with_other_names(unchecked(sums.sum)),
    "mean": with_other_names(unchecked(sums.mean)),
    "flatten": unchecked(layout.flatten),
    "bmm": matmul.bmm,
    **_methods(axes, "transpose", "swapaxes", "movedim", "squeeze", "unsqueeze", "unflatten", "roll", "rot90"),
    **{name: _several(unchecked(getattr(axes, name))) for name in ("permute", "expand", "repeat", "tile", "flip")},
    **_methods(joining, "split", "chunk", "unbind"),
    **_methods(extremes, "max", "min", "amax", "amin", "argmax", "argmin", "all", "any"),
    **_methods(var_norm, "prod", "var", "std", "norm"),
    **_methods(sort, "sort", "argsort", "topk"),
    **_methods(scan, "cumsum", "cumprod", "diff"),
    **{name: getattr(var_norm, name) for name in ("aminmax", "nanmean", "nansum")},
    **{name: getattr(comparison, name) for name in comparison.__all__},
    "equal": extremes.equal,
    **{name: getattr(room, name) for room in (lerp, quantiles, special) for name in room.__all__},
    **{name: getattr(lerp, name) for name in ("addcdiv_", "addcmul_", "lerp_")},
    **{name: getattr(gather_scatter, name) for name in gather_scatter.__all__},
    **_methods(conversion, "to", "clone", "cpu", "cuda", "ravel", "tolist"),
    **_methods(conversion, "view_as", "type_as", "pin_memory"),
    "type": conversion.type_of,
    **{name: _cast_to(dtype) for name, dtype in CASTS.items()},
    **_methods(creation, "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"),
    "astype": layout.astype,
    "reshape": layout.reshape_method,
    "view": _view,
    **_methods(conversion, "squeeze_", "unsqueeze_"),
    **_methods(diagonals, "tril", "triu", "tril_", "triu_"),
    **_methods(unary, *(name for name in unary.__all__ if name not in ("cot", "csc", "half_sin", "sec"))),
    **_methods(unary, "exp", "log", "sqrt", "round_"),
    **unary.IN_PLACE,  # of which those in `operators.FORMS` are made anew below
    "reciprocal_": binary.reciprocal_,
    **{f"{step.name}_": _overwriting(step) for step in smooth.IN_PLACE},
    **{name: getattr(gather_scatter, name) for name in ("scatter_", "scatter_add_", "index_add_")},
    **_methods(clamp, "clamp", "clamp_max", "clamp_min", "clip"),
    **{name: getattr(clamp, name) for name in ("copysign", "fmax", "fmin", "heaviside")},
    **{name: getattr(scan, name) for name in ("cummax", "cummin", "logcumsumexp")},
    "nan_to_num": unchecked(clamp.nan_to_num),
    **_methods(softmax, "softmax", "log_softmax", "logsumexp"),
    **_methods(comparison, "allclose", "isnan"),
    **_methods(piecewise, "hardshrink"),
    "prelu": parametric.prelu,
    **_methods(fill, "zero_", "fill_", "copy_", "normal_", "uniform_"),
    **_methods(fill, "fill_diagonal_", "random_", "bernoulli_"),
    "masked_fill_": where.masked_fill_,
    "masked_fill": where.masked_fill,
    "maximum": clamp.maximum,
    "minimum": clamp.minimum,
    **_methods(smooth, "sigmoid", "tanh"),
    "relu": relu_family.relu,
    "relu_": _overwriting(relu_family.relu),
    "where": _where,
    **_methods(division, *division.__all__),
    **{name: getattr(bitwise, name) for name in bitwise.__all__},
    **STRUCTURE,
    **{name: _several(function) for name, function in SEVERAL_NUMBERS.items()},
    "contiguous": conversion.contiguous,  # it counts who refers to x
    "__getitem__": getitem_setitem.get_item,
    "__setitem__": getitem_setitem.set_item,
}
FUNCTIONS.update(written_forms({**SIGNS, **FUNCTIONS}))


METHODS: dict[str, Any] = {
    **FUNCTIONS,
    **SIGNS,
    "T": property(conversion.reversed_axes),
    "mT": property(conversion.transposed_matrices),
    "data": property(conversion.data, conversion.set_data),
}
for _name, _method in METHODS.items():
    setattr(Tensor, _name, _method)
