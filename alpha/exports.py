"""The `__all__` of a package that takes its names from rooms, by `from room import *`.

Type checkers follow these imports by themselves.
"""

from __future__ import annotations

from collections.abc import Container
from types import ModuleType


def export(namespace: dict[str, object], *modules: str, without: Container[str] = ()) -> None:
    """Set `__all__` of a module to the names that it took from its rooms.

    Args:
        namespace: `globals()` of the module. Modules, and names that begin with an underscore, are not exported.
        modules: the names of modules that are exported.
        without: names that are not.
    """
    names = [
        name
        for name, value in namespace.items()
        if not (name.startswith("_") or isinstance(value, ModuleType) or name in without)
    ]
    namespace["__all__"] = sorted([*names, *modules])
