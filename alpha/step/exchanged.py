"""Whether a function or a class in a module of Alpha has been exchanged, as by `alpha.nn.functional.relu = f`.

Alpha's functions call each other by thousands of names, too many to compare before each replay. So its modules count
what is assigned to them from outside.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

_count = 0


class _Counting(ModuleType):
    """A module that counts how often one of its attributes is assigned or deleted."""

    def __setattr__(self, name: str, value: Any) -> None:
        global _count
        _count += 1
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        global _count
        _count += 1
        super().__delattr__(name)


def count_exchanges() -> None:
    """Let all modules of Alpha that are imported by now count."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "alpha" and type(module) is ModuleType:
            module.__class__ = _Counting


def exchanges() -> tuple[int, ...]:
    """How often something was exchanged."""
    return (_count,)
