"""The methods of Tensor that are operators.

`alpha/core/tensor_operators.py`, `alpha/core/tensor_math.py` and `alpha/core/tensor_inplace.py` declare their types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from alpha.core.tensor import Tensor
from alpha.ops.activation import parametric, piecewise, relu_family, smooth, softmax
from alpha.ops.api import operators
from alpha.ops.api.methods_signs import RELATIONS, SIGNS
from alpha.ops.api.methods_structure import SEVERAL_NUMBERS, STRUCTURE
from alpha.ops.api.written_forms import written_forms
from alpha.ops.array import axes, conversion, creation, diagonals, fill, joining, layout
from alpha.ops.indexing import gather_scatter, getitem_setitem, where
from alpha.ops.kernel import sums
from alpha.ops.kernel.arguments import unchecked, with_other_names
from alpha.ops.kernel.elementwise import Activation
from alpha.ops.math import (
    binary,
    bitwise,
    checks,
    clamp,
    compare,
    division,
    lerp,
    logarithms,
    power,
    rounding,
    special,
    trigonometric,
)
from alpha.ops.matmul import matmul
from alpha.ops.reduction import extremes, quantiles, scan, sort, var_norm


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
    return lambda x: x.astype(dtype)


def _several(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A method that takes integers one by one or as one sequence: `x.permute(1, 0)` or `x.permute((1, 0))`."""

    @functools.wraps(function)
    def method(self: Tensor, *values: Any, **named: Any) -> Tensor:
        if named or (len(values) == 1 and isinstance(values[0], (tuple, list))):
            return function(self, *values, **named)
        return function(self, values)

    return method


OVERWRITING = (smooth, logarithms, trigonometric)


def _overwriting(step: Activation) -> Callable[[Tensor], Tensor]:
    return lambda x: step(x, inplace=True)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": unchecked(binary.add),
    "mul": unchecked(binary.mul),
    **{name: getattr(binary, name) for name in ("add_", "sub_", "mul_", "div_", "neg_")},
    **_methods(operators, *(name for name in operators.__all__ if name not in ("rsub", *RELATIONS))),
    **_methods(logarithms, "exp", "log", "exp_", "log_"),
    **_methods(power, "sqrt", "sqrt_", "pow_"),
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
    **{name: getattr(checks, name) for name in checks.__all__},
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
    "view": lambda x, *shape: x.reshape(*shape),
    **_methods(conversion, "squeeze_", "unsqueeze_"),
    **_methods(diagonals, "tril", "triu", "tril_", "triu_"),
    **_methods(rounding, *rounding.__all__, "abs_", "ceil_", "floor_", "round_", "trunc_"),
    **_methods(logarithms, *logarithms.__all__, "reciprocal_"),
    **{f"{step.name}_": _overwriting(step) for room in OVERWRITING for step in room.IN_PLACE},
    **{name: getattr(gather_scatter, name) for name in ("scatter_", "scatter_add_", "index_add_")},
    **_methods(trigonometric, "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    **_methods(trigonometric, "deg2rad", "rad2deg"),
    "atan2": trigonometric.atan2,
    "hypot": trigonometric.hypot,
    **_methods(clamp, "clamp", "clamp_max", "clamp_min", "clip"),
    **{name: getattr(clamp, name) for name in ("copysign", "fmax", "fmin", "heaviside")},
    **{name: getattr(scan, name) for name in ("cummax", "cummin", "logcumsumexp")},
    "nan_to_num": unchecked(clamp.nan_to_num),
    **_methods(softmax, "softmax", "log_softmax", "logsumexp"),
    **_methods(compare, "allclose", "isnan"),
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
    "relu_": lambda x: relu_family.relu(x, inplace=True),
    "where": lambda x, condition, other: where.where(condition, x, other),
    **_methods(division, *division.__all__),
    **{name: getattr(bitwise, name) for name in bitwise.__all__},
    **STRUCTURE,
    **{name: _several(function) for name, function in SEVERAL_NUMBERS.items()},
    "contiguous": conversion.contiguous,  # it counts who refers to x
    "__getitem__": getitem_setitem.get_item,
    "__setitem__": getitem_setitem.set_item,
}
FUNCTIONS.update(written_forms({**SIGNS, **FUNCTIONS}))


def _install() -> None:
    methods: dict[str, Any] = {
        **FUNCTIONS,
        **SIGNS,
        "T": property(conversion.reversed_axes),
        "mT": property(conversion.transposed_matrices),
        "data": property(conversion.data, conversion.set_data),
    }
    for name, method in methods.items():
        setattr(Tensor, name, method)


_install()
