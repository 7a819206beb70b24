"""In-place forms of operators without a kernel for it: the result is computed, and then written into x."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import is_grad_enabled
from alpha.core.tensor import Tensor
from alpha.ops.array.boxes import SetBlock
from alpha.ops.kernel.elementwise import in_place
from alpha.ops.kernel.views import View
from alpha.ops.math.division import check_holds

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
