"""Attributes that a program may set to certain values, which change nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

TF32 = "alpha.set_precision('tf32') computes products and convolutions in tf32"
ANY = object()  # every value changes nothing

ALLOW_TF32 = (False, (False,), TF32)
FP32_PRECISION = ("ieee", ("ieee", "none"), TF32)

# the first value, the values that change nothing, and what to do for another one
Switch = tuple[Any, Any, str]


class Switches(ModuleType):
    """A module or an object whose attributes are switches: a value that would change results is a `ValueError`."""

    _switches: Mapping[str, Switch]

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or isinstance(value, ModuleType):  # what Python's imports set
            return super().__setattr__(name, value)
        if name not in self._switches:
            raise AttributeError(f"{self.__name__} has no switch {name!r}, but {', '.join(self._switches)}")
        _, free, instead = self._switches[name]
        if free is not ANY and value not in free:
            raise ValueError(f"{self.__name__}.{name} = {value!r} would change results: {instead}")
        return super().__setattr__(name, value)


def with_switches(module: str | ModuleType, **switches: Switch) -> None:
    """Give a module, by its `__name__`, these switches with their first values."""
    target = sys.modules[module] if isinstance(module, str) else module
    vars(target)["_switches"] = switches
    vars(target).update({name: first for name, (first, _, _) in switches.items()})
    if type(target) is ModuleType:
        target.__class__ = Switches


def switch(first: Any, instead: str = "") -> Switch:
    """A switch for which only its first value changes nothing, or every value if there is nothing to do `instead`."""
    return first, (first,) if instead else ANY, instead
