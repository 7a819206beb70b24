"""Methods of Tensor: those of the table of names, those that Python's operators call, and forms in place.

`python tests/house/tensor_methods.py` writes their types into alpha/core/methods.py.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import is_grad_enabled
from alpha.core.tensor import Tensor
from alpha.ops.activation import relu_family, smooth
from alpha.ops.api import names
from alpha.ops.api.numpy_protocols import PROTOCOLS
from alpha.ops.array import conversion, layout
from alpha.ops.array.parts.boxes import SetBlock
from alpha.ops.indexing import getitem_setitem, index_functions, where
from alpha.ops.kernel.arguments import method_of, unchecked
from alpha.ops.kernel.in_place import in_place
from alpha.ops.kernel.operands import OPERANDS, beside, like
from alpha.ops.kernel.views import View
from alpha.ops.math import binary, bitwise, division, power, unary
from alpha.ops.math.comparison import relate
from alpha.ops.math.written_results import check_holds
from alpha.ops.matmul import matmul

Method = Callable[..., Any]

_add, _mul, _matmul = unchecked(binary.add), unchecked(binary.mul), unchecked(matmul.matmul)


def written_form(name: str, function: Method) -> Method:
    """The method `name_` of an operator `name`: x with the values, and the gradient, of the operator's result."""
    step: type[Function] = in_place(SetBlock, f"{name}_")

    @functools.wraps(function)
    def method(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        operands = [value for value in (x, *args, *kwargs.values()) if isinstance(value, Tensor)]
        recorded = is_grad_enabled() and any(value.requires_grad for value in operands)
        # what the gradient may read of x stays as it is, also if x is another operand, too
        source = x.clone() if recorded else x
        others = [source if value is x else value for value in args]
        named = {key: source if value is x else value for key, value in kwargs.items()}
        result = function(source, *others, **named)
        check_holds(f"{name}_", x, result)
        return step.apply(x, result.astype(x.dtype), box=View.whole(x.shape))

    method.__name__ = f"{name}_"
    method.__doc__ = f"`{name}` written into x; a copy of x is kept if a gradient is needed."
    return method


# augmented assignments of Python, `x //= y`, which write the operator's result into the tensor
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
COMPARISONS = {"__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
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

    method.__doc__ = f"The values as {dtype}; the tensor itself if it has that dtype."
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

    method.__doc__ = "The function of this name in place: the result overwrites x, which is returned."
    return method


def _view(x: Tensor, *shape: int | tuple[int, ...]) -> Tensor:
    """The same memory with another shape, as `reshape`; one length may be -1."""
    return x.reshape(*shape)


def _where(x: Tensor, condition: Tensor, other: Any) -> Tensor:
    """x where the condition is true, and `other` elsewhere; shapes are broadcast."""
    found: Tensor = where.where(condition, x, other)
    return found


def _of_rooms() -> dict[str, Method]:
    """The functions of `names.METHODS` by their names, as methods."""
    found: dict[str, Method] = {}
    for room, listed in names.METHODS.items():
        given = listed.split()
        functions = [name for name in vars(room).get("__all__", ()) if not isinstance(vars(room)[name], type)]
        without = {name[1:] for name in given if name[0] == "-"}
        several = [name for name in given if name[0] not in "*-"] + (functions if "*" in given else [])
        found |= {name: method_of(getattr(room, name)) for name in several if name not in without}
    return found | {name: _several(found[name]) for name in names.SEVERAL.split()}


def _with_other_names(methods: dict[str, Method]) -> dict[str, Method]:
    """The methods, and the same under the other names of their functions: `x.subtract(y)` and `x.subtract_(y)`."""
    others: dict[str, Method] = {}
    for name, own in names.OTHER_NAMES.items():
        if own in methods:
            others[name] = method_of(getattr(names, name))
        if f"{own}_" in methods:
            others[f"{name}_"] = methods[f"{own}_"]
    return methods | others


_functions: dict[str, Method] = {
    **unary.IN_PLACE,
    **_of_rooms(),
    **{f"{step.name}_": _overwriting(step) for step in smooth.IN_PLACE},
    "relu_": _overwriting(relu_family.relu),
    **{name: _cast_to(dtype) for name, dtype in CASTS.items()},
    # whose name in the room is another one, or which take other arguments than the function
    "type": conversion.type_of,
    "unfold": index_functions.sliding,
    "reshape": layout.reshape_method,
    "view": _view,
    "where": _where,
    "contiguous": conversion.contiguous,  # unchanged: it looks how many names refer to x
    "__getitem__": getitem_setitem.get_item,
    "__setitem__": getitem_setitem.set_item,
}
_functions |= {f"{name}_": written_form(name, _functions[name]) for name in names.WRITTEN.split()}
_functions["true_divide_"] = _functions["div_"]  # it takes rounding_mode, too, unlike the function
FUNCTIONS = _with_other_names(_functions)

METHODS: dict[str, Any] = {
    **FUNCTIONS,
    **SIGNS,
    "T": property(conversion.reversed_axes),
    "mT": property(conversion.transposed_matrices),
    "data": property(conversion.data, conversion.set_data),
}
for _name, _method in {**METHODS, **PROTOCOLS}.items():
    setattr(Tensor, _name, _method)
