"""What the code of a step names, and whose code it is."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

_LIBRARIES = (*sys.stdlib_module_names, "alpha", "numpy", "scipy", "pycuda", "cuda", "torch", "tqdm", "PIL")


def names_in(function: Any) -> set[str]:
    """All names and texts in the code of a function and of the functions within it."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return set(_code_names(code)) if code is not None else set()


def _code_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_names(constant)
        elif isinstance(constant, str):
            yield constant


def is_library(module: str | None) -> bool:
    """Whether a module is part of Python, of Alpha or of another library, so not of the user's program."""
    return module is not None and module.split(".", 1)[0] in _LIBRARIES
