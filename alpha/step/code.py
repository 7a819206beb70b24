"""What the code of a step names, and whose code it is."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator
from typing import Any

_OTHERS = ("alpha", "numpy", "scipy", "pycuda", "cuda", "torch", "tqdm", "PIL", "pytest", "_pytest")
_LIBRARIES = (*sys.stdlib_module_names, *_OTHERS)


def names_in(function: Any) -> set[str]:
    """All names and texts in the code of a function and of the functions within it."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return set(_code_names(code)) if code is not None else set()


def globals_in(function: types.FunctionType) -> set[str]:
    """The global variables of a function that its code may read: those that it loads, and its texts.

    Unlike `names_in` it leaves out attributes, which may have the name of a global variable that the code never reads.
    """
    codes = list(_codes(function.__code__))
    loaded = {step.argval for code in codes for step in dis.get_instructions(code) if _is_global(step.opname)}
    texts = {constant for code in codes for constant in code.co_consts if isinstance(constant, str)}
    return (loaded | texts) & function.__globals__.keys()


def _is_global(operation: str) -> bool:
    return "GLOBAL" in operation or operation in ("LOAD_NAME", "STORE_NAME")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code and those of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _code_names(code: types.CodeType) -> Iterator[str]:
    for each in _codes(code):
        yield from each.co_names
        yield from (constant for constant in each.co_consts if isinstance(constant, str))


def is_library(module: str | None) -> bool:
    """Whether a module is part of Python, of Alpha or of another library, so not of the user's program."""
    return module is not None and module.split(".", 1)[0] in _LIBRARIES
