"""The methods of Tensor that are operators.

`alpha/core/tensor_operators.py`, `alpha/core/tensor_math.py` and `alpha/core/tensor_inplace.py` declare their types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from alpha.core.tensor import Tensor
from alpha.ops.activation import parametric as activation_sloped
from alpha.ops.activation import piecewise as activation_piecewise
from alpha.ops.activation import relu_family as activation
from alpha.ops.activation import smooth as activation_smooth
from alpha.ops.activation import softmax
from alpha.ops.api import operators
from alpha.ops.api.methods_signs import RELATIONS, SIGNS
from alpha.ops.api.methods_structure import SEVERAL_NUMBERS, STRUCTURE
from alpha.ops.api.written_forms import written_forms
from alpha.ops.array import axes, conversion, creation, joining, layout
from alpha.ops.array import diagonals as triangles
from alpha.ops.array import fill as inplace
from alpha.ops.indexing import gather_scatter as gathering
from alpha.ops.indexing import gather_scatter as scatter_inplace
from alpha.ops.indexing import getitem_setitem as indexing
from alpha.ops.indexing import where as selection
from alpha.ops.kernel import sums as reduce
from alpha.ops.kernel.arguments import unchecked, with_other_names
from alpha.ops.kernel.elementwise import Activation
from alpha.ops.math import binary as arithmetic
from alpha.ops.math import bitwise, checks, compare, division, logarithms, power, rounding, special, trigonometric
from alpha.ops.math import clamp as bounds
from alpha.ops.math import clamp as choices
from alpha.ops.math import lerp as blend
from alpha.ops.math import logarithms as exponential
from alpha.ops.matmul import matmul
from alpha.ops.reduction import extremes, quantiles
from alpha.ops.reduction import scan as running
from alpha.ops.reduction import scan as running_extremes
from alpha.ops.reduction import sort as sorting
from alpha.ops.reduction import var_norm as moments
from alpha.ops.reduction import var_norm as statistics


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


OVERWRITING = (activation_smooth, logarithms, trigonometric)


def _overwriting(step: Activation) -> Callable[[Tensor], Tensor]:
    return lambda x: step(x, inplace=True)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": unchecked(arithmetic.add),
    "mul": unchecked(arithmetic.mul),
    **{name: getattr(arithmetic, name) for name in ("add_", "sub_", "mul_", "div_", "neg_")},
    **_methods(operators, *(name for name in operators.__all__ if name not in ("rsub", *RELATIONS))),
    **_methods(exponential, "exp", "log", "exp_", "log_"),
    **_methods(power, "sqrt", "sqrt_", "pow_"),
    "matmul": matmul.matmul,
    "sum": with_other_names(unchecked(reduce.sum)),
    "mean": with_other_names(unchecked(reduce.mean)),
    "flatten": unchecked(layout.flatten),
    "bmm": matmul.bmm,
    **_methods(axes, "transpose", "swapaxes", "movedim", "squeeze", "unsqueeze", "unflatten", "roll", "rot90"),
    **{name: _several(unchecked(getattr(axes, name))) for name in ("permute", "expand", "repeat", "tile", "flip")},
    **_methods(joining, "split", "chunk", "unbind"),
    **_methods(extremes, "max", "min", "amax", "amin", "argmax", "argmin", "all", "any"),
    **_methods(moments, "prod", "var", "std", "norm"),
    **_methods(sorting, "sort", "argsort", "topk"),
    **_methods(running, "cumsum", "cumprod", "diff"),
    **{name: getattr(statistics, name) for name in ("aminmax", "nanmean", "nansum")},
    **{name: getattr(checks, name) for name in checks.__all__},
    "equal": extremes.equal,
    **{name: getattr(room, name) for room in (blend, quantiles, special) for name in room.__all__},
    **{name: getattr(blend, name) for name in ("addcdiv_", "addcmul_", "lerp_")},
    **{name: getattr(gathering, name) for name in gathering.__all__},
    **_methods(conversion, "to", "clone", "cpu", "cuda", "ravel", "tolist"),
    **_methods(conversion, "view_as", "type_as", "pin_memory"),
    "type": conversion.type_of,
    **{name: _cast_to(dtype) for name, dtype in CASTS.items()},
    **_methods(creation, "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"),
    "astype": layout.astype,
    "reshape": layout.reshape_method,
    "view": lambda x, *shape: x.reshape(*shape),
    **_methods(conversion, "squeeze_", "unsqueeze_"),
    **_methods(triangles, "tril", "triu", "tril_", "triu_"),
    **_methods(rounding, *rounding.__all__, "abs_", "ceil_", "floor_", "round_", "trunc_"),
    **_methods(logarithms, *logarithms.__all__, "reciprocal_"),
    **{f"{step.name}_": _overwriting(step) for room in OVERWRITING for step in room.IN_PLACE},
    **{name: getattr(scatter_inplace, name) for name in ("scatter_", "scatter_add_", "index_add_")},
    **_methods(trigonometric, "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    **_methods(trigonometric, "deg2rad", "rad2deg"),
    "atan2": trigonometric.atan2,
    "hypot": trigonometric.hypot,
    **_methods(bounds, "clamp", "clamp_max", "clamp_min", "clip"),
    **{name: getattr(choices, name) for name in ("copysign", "fmax", "fmin", "heaviside")},
    **{name: getattr(running_extremes, name) for name in ("cummax", "cummin", "logcumsumexp")},
    "nan_to_num": unchecked(choices.nan_to_num),
    **_methods(softmax, "softmax", "log_softmax", "logsumexp"),
    **_methods(compare, "allclose", "isnan"),
    **_methods(activation_piecewise, "hardshrink"),
    "prelu": activation_sloped.prelu,
    **_methods(inplace, "zero_", "fill_", "copy_", "normal_", "uniform_"),
    **_methods(inplace, "fill_diagonal_", "random_", "bernoulli_"),
    "masked_fill_": selection.masked_fill_,
    "masked_fill": selection.masked_fill,
    "maximum": choices.maximum,
    "minimum": choices.minimum,
    **_methods(activation_smooth, "sigmoid", "tanh"),
    "relu": activation.relu,
    "relu_": lambda x: activation.relu(x, inplace=True),
    "where": lambda x, condition, other: selection.where(condition, x, other),
    **_methods(division, *division.__all__),
    **{name: getattr(bitwise, name) for name in bitwise.__all__},
    **STRUCTURE,
    **{name: _several(function) for name, function in SEVERAL_NUMBERS.items()},
    "contiguous": conversion.contiguous,  # it counts who refers to x
    "__getitem__": indexing.get_item,
    "__setitem__": indexing.set_item,
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
