"""Python's operator signs as functions under PyTorch's names: binary, powers and comparisons."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import is_grad_enabled
from alpha.core.numerics import is_floating
from alpha.core.tensor import Tensor
from alpha.ops.array.boxes import SetBlock
from alpha.ops.kernel.arguments import AnyTensor, another_name, check_arguments
from alpha.ops.kernel.elementwise import in_place
from alpha.ops.kernel.operands import NUMBERS, OPERANDS, beside, like, no_operand
from alpha.ops.kernel.views import View
from alpha.ops.math import binary, power
from alpha.ops.math.comparison import relate
from alpha.ops.math.division import check_holds

__all__ = [
    "div",
    "divide",
    "eq",
    "float_power",
    "ge",
    "greater",
    "greater_equal",
    "gt",
    "le",
    "less",
    "less_equal",
    "lt",
    "multiply",
    "ne",
    "neg",
    "negative",
    "not_equal",
    "pow",
    "rsub",
    "sub",
    "subtract",
    "true_divide",
]


Method = Callable[..., Any]

# operators whose result has the shape of x
FORMS = (
    *("clamp", "clip", "clamp_max", "clamp_min", "nan_to_num", "cumsum", "cumprod"),
    *("sign", "sgn", "frac", "square", "sinc", "erfc", "logit", "deg2rad", "rad2deg"),
    *("fmod", "remainder", "floor_divide", "copysign", "hypot", "atan2", "heaviside", "ldexp", "xlogy", "gcd", "lcm"),
    *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift"),
    *("addbmm", "addmm", "addmv", "addr", "baddbmm", "renorm"),
    *("scatter_reduce", "masked_scatter", "index_copy", "index_fill", "index_put"),
)
OTHER_NAMES = {
    **{"absolute_": "abs_", "divide_": "div_", "fix_": "trunc_", "multiply_": "mul_", "negative_": "neg_"},
    **{"subtract_": "sub_", "true_divide_": "div_", "greater_": "gt_", "greater_equal_": "ge_", "less_": "lt_"},
    **{"less_equal_": "le_", "not_equal_": "ne_", "arctan2_": "atan2_"},
    **{f"arc{name}_": f"a{name}_" for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh")},
}


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


def written_forms(functions: dict[str, Method]) -> dict[str, Method]:
    """The methods in place, by their names, of the methods that there are."""
    forms = {f"{name}_": written_form(name, functions[name]) for name in FORMS}
    return {**forms, **{name: (forms | functions)[own] for name, own in OTHER_NAMES.items()}}


P = ParamSpec("P")

FLOAT64 = np.dtype(np.float64)


@check_arguments
def neg(x: AnyTensor) -> Tensor:
    """-x; integers wrap around   x (...) -> (...)"""
    return binary.neg(x)


@check_arguments
def sub(x: AnyTensor, other: Any, *, alpha: float = 1) -> Tensor:
    """x - alpha other with broadcasting; integers give integers, which wrap around

    x (...), other (...) or a number -> the broadcast shape
    """
    return binary.sub(x, other, alpha=alpha)


@check_arguments
def rsub(x: AnyTensor, other: Any, *, alpha: float = 1) -> Tensor:
    """other - alpha x with broadcasting; integers give integers, which wrap around

    x (...), other (...) or a number -> the broadcast shape
    """
    if isinstance(alpha, NUMBERS) and alpha == 1:
        return binary.reversed_sub(x, other)
    return binary.sub(beside("rsub", x, _like_floats(x, other)), x, alpha=alpha)


@check_arguments
def div(x: AnyTensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """x / other with broadcasting; division by zero gives infinities and NaN, and integers give float32

    x (...), other (...) or a number -> the broadcast shape

    Args:
        rounding_mode: "floor" or "trunc" rounds the quotient down or towards 0; integers then give integers.
    """
    return binary.div(x, other, rounding_mode=rounding_mode)


@check_arguments
def true_divide(x: AnyTensor, other: Any) -> Tensor:
    """`div` without rounding."""
    return binary.div(x, other)


def _or_a_number(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """The power, whose base may be a number if the exponent is a tensor."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        if len(args) == 2 and isinstance(args[0], NUMBERS) and isinstance(args[1], Tensor):
            return power.reversed_pow(args[1], args[0])
        return function(*args, **kwargs)

    return call


@_or_a_number
@check_arguments
def pow(x: AnyTensor, exponent: Any) -> Tensor:
    """x to the power of a number or a tensor with broadcasting; integers give integers, which wrap around

    x (...) or a number, exponent (...) or a number; one of them is a tensor -> the broadcast shape

    Raises:
        ValueError: x is of integers, and the exponent is an integer below 0.
    """
    return power.pow(x, exponent)


@check_arguments
def float_power(x: AnyTensor, exponent: Any) -> Tensor:
    """x to the power of a number or a tensor with broadcasting, computed in float64

    x (...), exponent (...) or a number -> the broadcast shape, float64
    """
    wide = x.astype(FLOAT64)
    return power.pow(wide, exponent.astype(FLOAT64) if isinstance(exponent, Tensor) else exponent)


def _like_floats(x: Tensor, other: Any) -> Any:
    """An array or a list in the dtype of x if that is floating, as the signs take it; anything else as it is."""
    return like(x, other) if is_floating(x.dtype) and isinstance(other, (np.ndarray, list)) else other


def _related(operator: str, sign: str, x: Tensor, other: Any) -> Tensor:
    if not isinstance(other, OPERANDS):
        raise no_operand(operator, other)
    return relate(x, other, sign)


@check_arguments
def eq(x: AnyTensor, other: Any) -> Tensor:
    """x == other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("eq", "==", x, other)


@check_arguments
def ne(x: AnyTensor, other: Any) -> Tensor:
    """x != other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("ne", "!=", x, other)


@check_arguments
def lt(x: AnyTensor, other: Any) -> Tensor:
    """x < other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("lt", "<", x, other)


@check_arguments
def le(x: AnyTensor, other: Any) -> Tensor:
    """x <= other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("le", "<=", x, other)


@check_arguments
def gt(x: AnyTensor, other: Any) -> Tensor:
    """x > other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("gt", ">", x, other)


@check_arguments
def ge(x: AnyTensor, other: Any) -> Tensor:
    """x >= other   x (...), other (...) or a number -> the broadcast shape, bool"""
    return _related("ge", ">=", x, other)


multiply, negative = another_name("multiply", binary.mul), another_name("negative", neg)
subtract, divide = another_name("subtract", sub), another_name("divide", div)
greater, greater_equal = another_name("greater", gt), another_name("greater_equal", ge)
less, less_equal, not_equal = another_name("less", lt), another_name("less_equal", le), another_name("not_equal", ne)
