"""Which attributes of an object and members of a class count, and what is compared of a mapping and of a tensor."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.step.code import code_of, codes_in, is_proven
from alpha.step.compare import Values, same
from alpha.step.kinds import cached_by_class, is_a

Chooses = Callable[[Any, Any], bool]  # whether an attribute counts, by its name and its value


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The `__dict__` of an object; None if it has none."""
    overrides = is_a(getattr(type(value), "__getattribute__", None), types.FunctionType)
    try:
        held = object.__getattribute__(value, "__dict__") if overrides else value.__dict__
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def may_run(names: set[str], member: str) -> bool:
    """Whether the step may read or call a member of this name: it names it, or Python or `Module` does."""
    is_special = member.startswith("__") and member not in ("__init__", "__del__")
    return member in names or member == "forward" or is_special


def counts_of_class(names: set[str], computes: bool, key: Any, value: Any) -> bool:
    return computes or may_run(names, key)


def counts_of_alpha(names: set[str], of_tensors: bool, key: Any, value: Any) -> bool:
    """Whether a member of a class of Alpha counts: what has run, or is named, and what is no function."""
    if of_tensors and key[:2] == "__" and is_a(value, types.FunctionType):
        return True  # an operator, which no code names
    return key in names or not (key[:2] == "__" or callable(value) or hasattr(value, "__get__"))


def chooser(value: Any, names: set[str], computes: bool, without: tuple[str, ...]) -> Chooses:
    """Whether an attribute of this object counts."""
    of_bases, is_module = _names_of_bases(type(value)), is_a(value, Module)

    def chooses(key: Any, item: Any) -> bool:
        return key not in without and (computes or key in names or key in of_bases or (is_module and _is_part(item)))

    return chooses


@cached_by_class
def _names_of_bases(kind: type) -> frozenset[str]:
    """What the functions of the bases of a class name that are Alpha's, which are not looked at when they run."""
    found: set[str] = set()
    for base in kind.__mro__:
        if is_proven(base.__module__):
            for member in vars(base).values():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                code = code_of(function)
                found.update(name for each in codes_in(code) for name in each.co_names) if code else None
    return frozenset(found)


def mapping(values: Mapping[Any, Any]) -> Values:
    return len(values), *values.keys(), *values.values()


def items_of(values: Values) -> dict[Any, Any]:
    """The mapping of which `mapping` has given the values."""
    return dict(zip(values[1 : 1 + values[0]], values[1 + values[0] :], strict=True))


def equal_items(before: Values, now: Values) -> bool:
    """Whether attributes are the same in another order."""
    a, b = items_of(before[1:]), items_of(now[1:])
    return before[0] is now[0] and a.keys() == b.keys() and all(same((a[key],), (b[key],)) for key in a)


def tensor_values(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.array, tensor._requires_grad, tensor._node, len(tensor._hooks)


def is_leaf(tensor: Tensor) -> bool:
    """Whether a step may leave a gradient in the tensor, which lies on the GPU."""
    return tensor._node is None and tensor._requires_grad and not isinstance(tensor.array, np.ndarray)


def is_data(value: Any) -> bool:
    """Whether a value is an array or a tensor, or several of these."""
    return isinstance(value, (np.ndarray, Tensor)) or (type(value) is tuple and all(map(is_data, value)))


def _is_part(value: Any) -> bool:
    """Whether a module may use this attribute without naming it, as `children` finds submodules."""
    if is_a(value, (list, tuple)):
        return any(map(_is_part, value[:100]))
    if is_a(value, dict):
        return any(map(_is_part, list(value.values())[:100]))
    return is_a(value, (Tensor, Module))
