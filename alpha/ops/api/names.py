"""Names by which programs reach the operators: one table of methods of Tensor, of forms in place, and of other names.

An operator stands once in its room. What follows from it is decided here: whether it is a method, whether `x.name_()`
writes its result into x, and which other names PyTorch has for it. `install.py` gives Tensor the methods;
`python tests/house/tensor_methods.py` writes their types into alpha/core/methods.py.
"""

from __future__ import annotations

from types import ModuleType

from alpha.core.names import exports
from alpha.ops.activation import parametric, piecewise, relu_family, smooth, softmax
from alpha.ops.api import operators, other_names
from alpha.ops.array import (
    axes,
    conversion,
    creation,
    diagonals,
    facts,
    fill,
    joining,
    layout,
    shapes,
    stacks,
    triangles,
)
from alpha.ops.image import shuffle
from alpha.ops.indexing import gather_scatter, index_functions, where, written_parts
from alpha.ops.kernel import arguments, sums
from alpha.ops.math import (
    binary,
    bitwise,
    clamp,
    comparison,
    division,
    integers,
    lerp,
    maximum_minimum,
    nan_to_num,
    number_arithmetic,
    power,
    signs,
    special,
    unary,
)
from alpha.ops.matmul import covariance, matmul, matrix_powers, products
from alpha.ops.noise import distributions, random
from alpha.ops.reduction import (
    counting,
    extremes,
    integrals,
    prod,
    quantiles,
    running_extremes,
    scan,
    scatter_reduce,
    sort,
    spread_rows,
    sums_without_nan,
    variance,
)
from alpha.ops.reduction import norm as norms

# Methods that are functions of a room, by their names. "*" stands for all functions of the room's `__all__`, a name
# behind "-" is one of these that is no method, and any other name is a function of the room, in `__all__` or not.
METHODS: dict[ModuleType, str] = {
    operators: "* -rsub",
    other_names: "*",
    axes: "flip movedim permute expand repeat roll rot90 squeeze swapaxes tile transpose unflatten unsqueeze",
    conversion: "clone cpu cuda ravel squeeze_ to tolist pin_memory type_as unsqueeze_ view_as",
    creation: "new_empty new_full new_ones new_tensor new_zeros",
    diagonals: "*",
    triangles: "tril tril_ triu triu_",
    facts: "get_device is_complex is_nonzero is_same_size is_signed isreal stride sum_to_size",
    fill: "bernoulli_ copy_ fill_ fill_diagonal_ normal_ random_ uniform_ zero_",
    joining: "chunk split unbind",
    layout: "astype flatten",
    shapes: "* expand_as reshape_as",
    gather_scatter: "* index_add_ scatter_ scatter_add_",
    index_functions: "argwhere index_copy index_fill index_put masked_select narrow narrow_copy select take",
    written_parts: "diagonal_scatter select_scatter slice_scatter",
    where: "masked_fill masked_fill_",
    sums: "mean sum",
    binary: "add add_ div_ mul mul_ neg_ sub_",
    number_arithmetic: "reciprocal_",
    bitwise: "*",
    clamp: "clamp clamp_max clamp_min",
    nan_to_num: "nan_to_num",
    signs: "copysign heaviside",
    maximum_minimum: "fmax fmin maximum minimum",
    comparison: "* allclose isnan",
    division: "*",
    integers: "gcd lcm",
    lerp: "* addcdiv_ addcmul_ lerp_",
    power: "pow_",
    special: "*",
    unary: "* exp log sqrt round_ -cot -csc -half_sin -sec",
    parametric: "prelu",
    piecewise: "hardshrink",
    relu_family: "relu",
    smooth: "sigmoid tanh",
    softmax: "log_softmax logsumexp softmax",
    matmul: "bmm matmul",
    products: "* -tensordot",
    covariance: "corrcoef cov",
    matrix_powers: "matrix_power",
    random: "bernoulli multinomial",
    distributions: "cauchy_ exponential_ geometric_ log_normal_",
    extremes: "* equal",
    quantiles: "*",
    scan: "cumprod cumsum diff",
    running_extremes: "cummax cummin logcumsumexp",
    scatter_reduce: "*",
    sort: "argsort sort topk unique unique_consecutive",
    spread_rows: "masked_scatter repeat_interleave",
    counting: "bincount histc",
    variance: "std var",
    norms: "norm dist renorm",
    sums_without_nan: "nanmean nansum",
    prod: "prod",
}
# Methods that take integers one by one, too: `x.permute(1, 0)` and `x.permute((1, 0))`.
SEVERAL = "broadcast_to expand flip permute repeat tile"
# Methods whose result has the shape of x, and of which `x.name_(..)` writes the result into x by a copy. Not listed are
# those that have a kernel or a rule in place of their own: a function `name_` of a room (above), activations, and the
# rows of the table in `unary.py`.
WRITTEN = (
    "addbmm addmm addmv addr atan2 baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift "
    "bitwise_xor clamp clamp_max clamp_min copysign cumprod cumsum deg2rad eq floor_divide fmod frac gcd ge gt "
    "heaviside hypot index_copy index_fill index_put lcm ldexp le logical_and logical_not logical_or logical_xor logit "
    "lt masked_scatter nan_to_num ne rad2deg remainder renorm scatter_reduce square xlogy"
)

# -- other names of functions; the method and the form in place follow if the function has them --------------------

absolute = arguments.another_name("absolute", unary.abs)
arccos = arguments.another_name("arccos", unary.acos)
arccosh = arguments.another_name("arccosh", unary.acosh)
arcsin = arguments.another_name("arcsin", unary.asin)
arcsinh = arguments.another_name("arcsinh", unary.asinh)
arctan = arguments.another_name("arctan", unary.atan)
arctan2 = arguments.another_name("arctan2", special.atan2)
arctanh = arguments.another_name("arctanh", unary.atanh)
clip = arguments.another_name("clip", clamp.clamp)
concat = arguments.another_name("concat", joining.cat)
divide = arguments.another_name("divide", operators.div)
fix = arguments.another_name("fix", unary.trunc)
ger = arguments.another_name("ger", products.outer)
greater = arguments.another_name("greater", operators.gt)
greater_equal = arguments.another_name("greater_equal", operators.ge)
less = arguments.another_name("less", operators.lt)
less_equal = arguments.another_name("less_equal", operators.le)
moveaxis = arguments.another_name("moveaxis", axes.movedim)
multiply = arguments.another_name("multiply", binary.mul)
native_channel_shuffle = arguments.another_name("native_channel_shuffle", shuffle.channel_shuffle)
negative = arguments.another_name("negative", operators.neg)
not_equal = arguments.another_name("not_equal", operators.ne)
row_stack = arguments.another_name("row_stack", stacks.vstack)
sgn = arguments.another_name("sgn", unary.sign)
subtract = arguments.another_name("subtract", operators.sub)
swapdims = arguments.another_name("swapdims", axes.transpose)
trapz = arguments.another_name("trapz", integrals.trapezoid)

OTHER_NAMES = {name: value.own_name for name, value in vars().items() if hasattr(value, "own_name")}
exports.export(globals(), without=("METHODS", "SEVERAL", "WRITTEN", "OTHER_NAMES", "annotations", "ModuleType"))
