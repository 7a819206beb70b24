"""The `__all__` of a package that takes its names from rooms, by `from room import *`.

Type checkers follow these imports by themselves.
"""

from __future__ import annotations

from collections.abc import Container
from types import ModuleType


def exported(namespace: dict[str, object], *, without: Container[str] = ()) -> list[str]:
    """The names that a module, whose `globals()` is the namespace, took from its rooms.

    Modules, names that begin with an underscore, and those in `without` are not among them.
    """
    return [
        name
        for name, value in namespace.items()
        if not (name.startswith("_") or isinstance(value, ModuleType) or name in without)
    ]


def export(namespace: dict[str, object], *modules: str, without: Container[str] = ()) -> None:
    """Set `__all__` of a module to the names that it took from its rooms, and to the names of these modules."""
    namespace["__all__"] = sorted([*exported(namespace, without=without), *modules])
