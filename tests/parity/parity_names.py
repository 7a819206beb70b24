"""Public names of Alpha that stand for those of PyTorch: found by name, so that a new operator is compared.

An operator's key is PyTorch's name of it. Every way in which Alpha offers the operator is compared: the function, the
method, Python's operator sign and the forms that write in place.
"""

from __future__ import annotations

import inspect
import operator
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rows.every import FUNCTIONS, LAYERS
from rows.optimizers import OPTIMIZERS

import alpha
import alpha.nn.functional as F
from alpha import Tensor

# PyTorch's names of Python's operator signs
SIGNS: dict[str, tuple[str, Callable[..., Any]]] = {
    "__add__": ("add", operator.add),
    "__sub__": ("sub", operator.sub),
    "__mul__": ("mul", operator.mul),
    "__truediv__": ("div", operator.truediv),
    "__floordiv__": ("floor_divide", operator.floordiv),
    "__mod__": ("remainder", operator.mod),
    "__pow__": ("pow", operator.pow),
    "__matmul__": ("matmul", operator.matmul),
    "__neg__": ("neg", operator.neg),
    "__pos__": ("positive", operator.pos),
    "__abs__": ("abs", operator.abs),
    "__invert__": ("bitwise_not", operator.invert),
    "__and__": ("bitwise_and", operator.and_),
    "__or__": ("bitwise_or", operator.or_),
    "__xor__": ("bitwise_xor", operator.xor),
    "__lshift__": ("bitwise_left_shift", operator.lshift),
    "__rshift__": ("bitwise_right_shift", operator.rshift),
    "__eq__": ("eq", operator.eq),
    "__ne__": ("ne", operator.ne),
    "__lt__": ("lt", operator.lt),
    "__le__": ("le", operator.le),
    "__gt__": ("gt", operator.gt),
    "__ge__": ("ge", operator.ge),
    "__getitem__": ("__getitem__", operator.getitem),
    "__radd__": ("__radd__", lambda x, other: other + x),
    "__rsub__": ("__rsub__", lambda x, other: other - x),
    "__rmul__": ("__rmul__", lambda x, other: other * x),
    "__rtruediv__": ("__rdiv__", lambda x, other: other / x),
    "__rpow__": ("__rpow__", lambda x, other: other**x),
    "__rmatmul__": ("__rmatmul__", lambda x, other: other @ x),
    "__rmod__": ("__rmod__", lambda x, other: other % x),
    "__rand__": ("__rand__", lambda x, other: other & x),
    "__ror__": ("__ror__", lambda x, other: other | x),
    "__rxor__": ("__rxor__", lambda x, other: other ^ x),
}
SIGNS_IN_PLACE: dict[str, tuple[str, Callable[..., Any]]] = {
    "__iadd__": ("add", operator.iadd),
    "__isub__": ("sub", operator.isub),
    "__imul__": ("mul", operator.imul),
    "__itruediv__": ("div", operator.itruediv),
    "__ipow__": ("pow", operator.ipow),
}
# a key and the further names of op_db that are the same operator
ALIASES: dict[str, tuple[str, ...]] = {"div": ("true_divide",), "swapaxes": ("transpose",)}


def unpool(rank: int) -> Callable[..., Any]:
    """`max_unpool` whose `output_size` may be PyTorch's whole shape, channels first."""

    def call(x: Any, *args: Any, output_size: Any = None, **kwargs: Any) -> Any:
        lengths = output_size[2:] if output_size and len(output_size) == rank + 2 else output_size
        return getattr(F, f"max_unpool{rank}d")(x, *args, output_size=lengths, **kwargs)

    return call


def last(x: Any) -> Any:
    """Images (.., C, H, W) with their channels last."""
    return F.movedim(x, -3, -1)


METHOD_OF_AN_AXIS = "unfold of an axis"  # which has the name of another function
# functions whose samples have another order of arguments, or results another order of axes
ORDERED: dict[str, Callable[..., Any]] = {
    "unfold": lambda x, *args, **kwargs: F.unfold(last(x), *args, **kwargs).transpose(-1, -2),
    "where": lambda x, condition, other: F.where(condition, x, other),
    "embedding": lambda weight, x, **options: F.embedding(x, weight, **options),
    "embedding_bag": lambda weight, x, *args, **options: F.embedding_bag(x, weight, *args, **options),
    **{f"max_unpool{rank}d": unpool(rank) for rank in (1, 2, 3)},
}

# public names that PyTorch's lists do not have, and why
OWN_FUNCTIONS: dict[str, str] = {
    **{row.name: row.own for row in FUNCTIONS if row.own},
    **dict.fromkeys(("rand_like", "randn_like", "randint_like", "rrelu"), "other random numbers than PyTorch's"),
    "triplet_margin_with_distance_loss": "its samples bring PyTorch's distance function",
    **dict.fromkeys(("rand_like", "randn_like", "randint_like"), "other random numbers than PyTorch's"),
    **dict.fromkeys(("fractional_max_pool2d", "fractional_max_pool3d"), "random; the layers are compared"),
    **dict.fromkeys(("rrelu", "alpha_dropout", "feature_alpha_dropout"), "other random numbers than PyTorch's"),
    **dict.fromkeys(("lp_pool1d", "lp_pool2d", "lp_pool3d"), "op_db has no entry; the layers are compared"),
    **dict.fromkeys(("dropout1d", "fold", "affine_grid"), "op_db has no entry"),
    **dict.fromkeys(("bernoulli", "multinomial", "normal", "gumbel_softmax"), "other random numbers than PyTorch's"),
    **dict.fromkeys(("upsample", "native_channel_shuffle"), "op_db has no entry"),
    **dict.fromkeys(("is_floating_point", "numel", "vander"), "op_db has no entry"),
    **dict.fromkeys(("detach", "is_complex", "is_nonzero", "is_same_size", "is_signed"), "op_db has no entry"),
    **{name: "the method in place is compared" for name in alpha.ops.api.inplace_functions.__all__},
    "empty_like": "its values are not specified",
    "ctc_loss": "PyTorch's gradient counts on a log_softmax before it; tests/ops/loss/test_loss_ctc.py compares both",
    "grad": "recording, not an operator",
}
OWN_METHODS: dict[str, str] = {
    "numpy": "leaves the framework",
    "astype": "numpy's name of a conversion",
    "backward": "recording, not an operator",
    "register_hook": "recording, not an operator",
    "zero_grad": "recording, not an operator",
    "requires_grad_": "recording, not an operator",
    "detach": "recording; op_db has no entry",
    "tolist": "leaves the framework",
    "cpu": "moves between devices; op_db has no entry",
    "cuda": "moves between devices; op_db has no entry",
    "type": "op_db has no entry",
    "pin_memory": "op_db has no entry",
    "size": "op_db has no entry",
    **dict.fromkeys(("get_device", "is_complex", "is_nonzero", "is_same_size", "is_signed"), "op_db has no entry"),
    "stride": "op_db has no entry",
    "dim": "op_db has no entry",
    "numel": "op_db has no entry",
    "element_size": "op_db has no entry",
    **dict.fromkeys(("nelement", "ndimension", "is_floating_point", "is_contiguous"), "op_db has no entry"),
    "type_as": "op_db has no entry",
    "zero_": "op_db has no entry",
    "copy_": "op_db has no entry",
    **dict.fromkeys(
        (
            *("normal_", "uniform_", "random_", "bernoulli_", "bernoulli", "multinomial"),
            *("cauchy_", "exponential_", "geometric_", "log_normal_"),
        ),
        "other random numbers than PyTorch's",
    ),
    **dict.fromkeys(("detach_", "retain_grad"), "recording, not an operator"),
    **dict.fromkeys(("fill_diagonal_", "new_tensor"), "op_db has no entry"),
    "new_empty": "its values are not specified",
    "to": "its arguments are names of devices and dtypes, which are Alpha's",
}
OWN_LAYERS: dict[str, str] = {
    "Module": "the base of layers",
    "ModuleList": "a container",
    "ModuleDict": "a container",
    "ParameterDict": "a container",
    "ParameterList": "a container",
    "Sequential": "a container",
    "CTCLoss": "as ctc_loss",
    **{row.name: row.own for row in LAYERS if row.own},
}
OWN_OPTIMIZERS: dict[str, str] = {
    "Optimizer": "the base of optimizers",
    "LRScheduler": "the base of schedules",
    "LBFGS": "its steps need a closure: optim/test_lbfgs.py compares them",
    **{row.name: row.own for row in OPTIMIZERS if row.own},
}


@dataclass(frozen=True)
class Way:
    """One way to call an operator: `call(input, *args, **kwargs)`.

    Attributes:
        name: how a user writes it.
        sign: one of Python's operator signs, which takes no keywords.
        method: the input has to be a tensor.
        in_place: the result is the input itself.
    """

    name: str
    call: Callable[..., Any]
    sign: bool = False
    method: bool = False
    in_place: bool = False


def _method(name: str) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def _written(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: function(x, *args, **{**kwargs, "inplace": True})


def operators() -> dict[str, list[Way]]:
    """Every operator that Alpha offers: its key, and the ways to call it."""
    ways: dict[str, list[Way]] = defaultdict(list)
    for name in F.__all__:
        key = name.removesuffix("_")
        if key in OWN_FUNCTIONS:
            continue
        function = ORDERED.get(name, getattr(F, name))
        ways[key].append(Way(f"F.{name}", function, in_place=key != name))
        if "inplace" in inspect.signature(function).parameters:
            ways[name].append(Way(f"F.{name}(inplace=True)", _written(function), in_place=True))
    for name in alpha.linalg.__all__:
        ways[f"linalg.{name}"].append(Way(f"alpha.linalg.{name}", getattr(alpha.linalg, name)))
    ways["einsum"].append(Way("alpha.einsum", lambda operands, equation: alpha.einsum(equation, *operands)))
    for name in alpha.__all__:
        value = getattr(alpha, name)
        same = value is getattr(F, name, None)
        if inspect.isfunction(value) and takes_tensor(value) and name not in OWN_FUNCTIONS and not same:
            ways[name].append(Way(f"alpha.{name}", value))
    for name, value in vars(Tensor).items():
        if not inspect.isfunction(value) or name in OWN_METHODS:
            continue
        if name in SIGNS:
            key, call = SIGNS[name]
            ways[key].append(Way(f"Tensor.{name}", call, sign=True, method=True))
        elif name in SIGNS_IN_PLACE:
            key, call = SIGNS_IN_PLACE[name]
            ways[key].append(Way(f"Tensor.{name}", call, sign=True, method=True, in_place=True))
        elif name.startswith("_"):
            continue  # Python's protocols: len, repr, copy, float
        elif name.endswith("_"):
            ways[name[:-1]].append(Way(f"Tensor.{name}", _method(name), method=True, in_place=True))
        else:
            ways[METHOD_OF_AN_AXIS if name == "unfold" else name].append(
                Way(f"Tensor.{name}", _method(name), method=True)
            )
    return dict(ways)


def takes_tensor(function: Callable[..., Any]) -> bool:
    """An operator's first argument is a tensor; the functions of the runtime take none."""
    parameters = list(inspect.signature(function).parameters.values())
    return bool(parameters) and "Tensor" in str(parameters[0].annotation)


def layers() -> list[str]:
    classes = {name: value for name, value in vars(alpha.nn).items() if inspect.isclass(value)}
    return [
        name
        for name in alpha.nn.__all__
        if name in classes and issubclass(classes[name], alpha.nn.Module) and name not in OWN_LAYERS
    ]


def optimizers() -> list[str]:
    optim = alpha.optim
    return [
        name
        for name in optim.__all__
        if name not in OWN_OPTIMIZERS and issubclass(getattr(optim, name), optim.Optimizer)
    ]


def schedules() -> list[str]:
    return [name for name in alpha.optim.__all__ if name not in (*OWN_OPTIMIZERS, *optimizers())]


def entries(key: str) -> list[Any]:
    """The entries of PyTorch's op_db for a key."""
    from torch.testing._internal.common_methods_invocations import op_db

    if key == METHOD_OF_AN_AXIS:
        return [entry for entry in op_db if entry.name == "unfold"]
    names = {key, f"nn.functional.{key}", *ALIASES.get(key, ())}
    if key == "unfold":  # alone it is a method of PyTorch's tensors
        names.remove(key)
    own = [entry for entry in op_db if entry.name in names]
    return own or [entry for entry in op_db if any(alias.name == key for alias in entry.aliases)]
