"""Hyper-parameters: how an optimizer declares them, and the rules by which their values are checked.

An optimizer declares each of them once, as a field of its class:

    @hyper_parameters
    class Momentum(FusedOptimizer):
        params: InitVar[Parameters]
        lr: InitVar[float] = hyper(1e-3, natural)
        beta: InitVar[float] = hyper(0.9, share)
        _: KW_ONLY
        maximize: InitVar[bool] = hyper(False, flag)

`hyper_parameters` makes the constructor of this, `Momentum(params, lr=1e-3, beta=0.9, *, maximize=False)`, the defaults
of groups, and the rules by which values are checked. Fields mean what they mean in `dataclasses`: those after `KW_ONLY`
are given by name, a subclass inherits the fields of its base, and an `InitVar` is an argument that does not become an
attribute; the values are in `param_groups`.

A rule is a function that returns the checked value, or raises TypeError or ValueError with the reason.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakSet

import numpy as np

from alpha.core.host_values import is_integer

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # it is for type checkers only, and Python has it from 3.11 on

    def dataclass_transform(**options):
        return lambda decorator: decorator


Rule = Callable[[Any], Any]
Kind = TypeVar("Kind", bound=type[Any])  # of an optimizer


# -- fields ----------------------------------------------------------------------------------------


class Field:
    """A field of an optimizer, which one of the four functions below declares."""

    __slots__ = ("added", "annotation", "by_name", "declared_by", "default", "rule")

    def __init__(self, declared_by: str, default: Any, rule: Rule | None = None, added: bool = False) -> None:
        self.declared_by, self.default, self.rule, self.added = declared_by, default, rule, added
        self.annotation, self.by_name = "", False  # those of the class, which `hyper_parameters` enters


def hyper(default: Any, rule: Rule, added: bool = False) -> Any:
    """Declare a hyper-parameter whose values pass `rule`. Old checkpoints lack one that was `added` later."""
    return Field("hyper", default, rule, added)


def fixed(value: Any, added: bool = False, init: Literal[False] = False) -> Any:
    """Declare that a hyper-parameter of the base is no argument of the subclass: its groups have this value."""
    return Field("fixed", value, None, added)


def unused() -> Any:
    """Declare an argument by which PyTorch chooses an implementation: None, True or False, which changes nothing."""
    return Field("unused", None)


def only(default: Any) -> Any:
    """Declare an argument of PyTorch's of which Alpha offers only the default."""
    return Field("only", default)


@dataclass_transform(eq_default=False, field_specifiers=(fixed,))
def hyper_parameters(kind: Kind) -> Kind:
    """Give an optimizer the constructor and the rules that its fields and those of its base declare."""
    fields, by_name = dict(kind._fields), False
    for name, annotation in kind.__annotations__.items():
        by_name = by_name or annotation == "KW_ONLY"
        field = vars(kind).get(name)
        if isinstance(field, Field):
            field.annotation, field.by_name = annotation.removeprefix("InitVar[").removesuffix("]"), by_name
            fields[name] = field
            delattr(kind, name)
    kind._fields = fields
    kind.rules = {name: field.rule for name, field in fields.items() if field.rule}
    kind._written = {name: written(rule) for name, rule in kind.rules.items()}
    kind.added = {name: field.default for name, field in fields.items() if field.added}
    kind.__init__ = _constructor(kind)
    return kind


def _constructor(kind: type[Any]) -> FunctionType:
    """The `__init__` of the fields: the code of `_take_arguments`, with the fields as its arguments."""
    arguments = {name: field for name, field in kind._fields.items() if field.declared_by != "fixed"}
    by_place = {name: field.default for name, field in arguments.items() if not field.by_name}
    by_name = {name: field.default for name, field in arguments.items() if field.by_name}
    names = ("self", "params", *by_place, *by_name)
    code = _take_arguments.__code__.replace(
        co_argcount=2 + len(by_place), co_kwonlyargcount=len(by_name), co_nlocals=len(names), co_varnames=names
    )
    module = vars(sys.modules[kind.__module__])  # whose names are in the annotations
    init = FunctionType(code, module, "__init__", tuple(by_place.values()))
    init.__kwdefaults__ = by_name
    annotations = {name: field.annotation for name, field in arguments.items()}
    init.__annotations__ = {"params": "Parameters", **annotations, "return": "None"}
    init.__qualname__ = f"{kind.__qualname__}.__init__"
    return init


def _take_arguments(self: Any, params: Any) -> None:
    self._take_fields(locals())  # all arguments of the constructor, by their names


# -- rules -----------------------------------------------------------------------------------------


def number(value: Any) -> float:
    """A finite number; numpy's scalars become Python's."""
    plain = value.item() if isinstance(value, (np.integer, np.floating)) else value
    if not isinstance(plain, (int, float)) or isinstance(plain, bool):
        raise TypeError(f"is a {type(value).__name__}, not a number")
    if not math.isfinite(plain):
        raise ValueError("is not finite")
    return plain


def natural(value: Any) -> float:
    """A finite number of at least 0."""
    checked = number(value)
    if checked < 0:
        raise ValueError("is negative")
    return checked


def written(rule: Rule) -> Rule:
    """The rule of what is given with a group or written into it: there a negative number is no slip, as in PyTorch."""
    return number if rule is natural else rule


def share(value: Any) -> float:
    """A number in [0, 1)."""
    checked = number(value)
    if not 0 <= checked < 1:
        raise ValueError("is not in [0, 1)")
    return checked


def closed_share(value: Any) -> float:
    """A number in [0, 1]."""
    checked = number(value)
    if not 0 <= checked <= 1:
        raise ValueError("is not in [0, 1]")
    return checked


def whole(value: Any, least: int = 0) -> int:
    """A whole number of at least `least`."""
    if not is_integer(value) or value < least:
        raise ValueError(f"is not a whole number of at least {least}")
    return int(value)


positive_whole = functools.partial(whole, least=1)


def flag(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"is a {type(value).__name__}, not True or False")
    return bool(value)


def several(count: int, rule: Rule, of: str = "numbers") -> Rule:
    """The rule of a tuple of two or three values, each of which passes `rule`; `of` says what they are.

    A tuple of which no value changes is returned itself, so that a captured step sees at once that it is the same.
    """
    text = f"is not a tuple of {'two' if count == 2 else 'three'} {of}"

    def checked(value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != count:
            raise TypeError(text)
        new = tuple(map(rule, value))
        return value if isinstance(value, tuple) and all(map(operator.is_, value, new)) else new

    return checked


_two_decays = several(2, number, "numbers in [0, 1)")


def decays(value: Any) -> tuple[float, float]:
    """Two numbers in [0, 1)."""
    checked: tuple[float, float] = _two_decays(value)
    if not (0 <= checked[0] < 1 and 0 <= checked[1] < 1):
        raise ValueError("are not two numbers in [0, 1)")
    return checked


def check(owner: str, values: dict[str, Any], rules: Mapping[str, Rule]) -> None:
    """Refuse values that mean nothing; what the rules return replaces them."""
    for name, rule in rules.items():
        if name not in values:
            continue
        try:
            values[name] = rule(values[name])
        except (TypeError, ValueError) as error:
            raise type(error)(f"{owner}: {name}={values[name]!r} {error}") from None


def ordered(owner: str, params: Iterable[Any]) -> list[Any]:
    """A list of parameters; `TypeError` for a set, since a state belongs to a parameter by its place."""
    if isinstance(params, (set, frozenset, WeakSet)):
        raise TypeError(f"{owner}: params is a set, whose order changes from run to run; give a list")
    return list(params)
