"""The methods of Tensor that Python's signs call, and the comparisons, which are methods of these names, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from alpha.core.tensor import Tensor
from alpha.errors import type_name
from alpha.ops.api.written_forms import written_form
from alpha.ops.kernel.arguments import unchecked
from alpha.ops.kernel.operands import OPERANDS, beside, like
from alpha.ops.math import binary, bitwise, division, logarithms, power, rounding
from alpha.ops.math.compare import relate
from alpha.ops.matmul import matmul

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


SIGNS: dict[str, Callable[..., Any]] = {
    **{name: _operator(function) for name, function in BINARY.items()},
    **{name: _comparison(relation) for name, relation in COMPARISONS.items()},
    **{name: _relation(sign) for name, sign in RELATIONS.items()},
    **{name: written_form(function.__name__, function) for name, function in AUGMENTED.items()},
    **{name: _refusal(*words) for name, words in REFUSED.items()},
    "__neg__": binary.neg,
    "__pos__": logarithms.positive,
    "__abs__": rounding.abs,
    "__round__": lambda x, decimals=None: rounding.round(x, decimals=0 if decimals is None else decimals),
    "__invert__": bitwise.bitwise_not,
    # These raise for an operand that they do not take: with NotImplemented, Python would bind the name anew.
    "__iadd__": binary.add_,
    "__isub__": binary.sub_,
    "__imul__": binary.mul_,
    "__itruediv__": binary.div_,
    "__ipow__": power.pow_,
}
