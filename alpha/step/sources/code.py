"""Code of a step: the names in it, and whose code it is."""

from __future__ import annotations

import dis
import functools
import re
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

_PROVEN = ("alpha", "numpy", "ml_dtypes", "pycuda", "cuda", "nccl", "pytest", "_pytest")
_OTHERS = ("scipy", "torch", "tqdm", "PIL")  # a step is followed into these as into the program
_STANDARD = frozenset(sys.stdlib_module_names)
BY_NAME = ("alpha.train", "alpha.data")  # parts of Alpha that read a program's objects as a program does

# with these a code may read what it does not name; `getattr` and its like do so if the name is no constant
_COMPUTES = frozenset(
    (
        "vars",
        "dir",
        "__dict__",
        "__getattribute__",
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "attrgetter",
        "methodcaller",
        "getmembers",
        "asdict",
        "astuple",
        "__slots__",
    )
)
_BY_TEXT = frozenset(("getattr", "hasattr", "setattr", "delattr"))
_SCOPES = frozenset(("globals", "vars", "eval", "exec", "__dict__", "__globals__", "f_globals"))
_CALLS = ("PRECALL", "CALL", "CALL_FUNCTION", "CALL_METHOD")
STATE_OF_ANOTHER = ".state"  # a name for the attribute `state` of an object that is not the owner of a method
_PART = re.compile(r"[.\[]([A-Za-z_]\w*)")


class Facts(NamedTuple):
    """Facts about what a code and the functions within it may read.

    Attributes:
        names: all attributes of whatever object, variables, and texts.
        variables: the global variables that are loaded.
        imports: the level and the name of each module that is imported.
        computes: whether it may read attributes that it does not name.
        scopes: whether it may read global variables by a text.
    """

    names: frozenset[str]
    variables: frozenset[str]
    imports: tuple[tuple[int, str], ...]
    computes: bool
    scopes: bool


def code_of(function: Any) -> types.CodeType | None:
    """The code of a function or a method; None of anything else."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, types.CodeType) else None


@functools.lru_cache(maxsize=10_000)
def facts(code: types.CodeType) -> Facts:
    """Facts about what a code and the functions within it may read."""
    names: set[str] = set()
    variables: set[str] = set()
    texts: set[str] = set()
    imports: list[tuple[int, str]] = []
    computes = False
    for each in codes_in(code):
        names.update(each.co_names)
        texts.update(_texts(each.co_consts))
        steps = [step for step in dis.get_instructions(each) if step.opname not in ("CACHE", "EXTENDED_ARG")]
        for place, step in enumerate(steps):
            if _is_global(step.opname):
                variables.add(step.argval)
            elif step.opname == "IMPORT_NAME":
                level = steps[place - 2].argval if place > 1 else 0
                imports.append((level if isinstance(level, int) else 0, step.argval))
            elif step.opname == "MATCH_CLASS" or _formats_unseen(steps, place):
                computes = True
            if step.argval == "state" and _is_of_another(steps, place):
                texts.add(STATE_OF_ANOTHER)
            if "LOAD" in step.opname and step.argval in _BY_TEXT and not _has_constant_name(steps, place):
                computes = True
    named = frozenset(names | texts)
    computes = computes or not _COMPUTES.isdisjoint(names)
    return Facts(named, frozenset(variables), tuple(imports), computes, not _SCOPES.isdisjoint(names))


def _is_of_another(steps: list[dis.Instruction], place: int) -> bool:
    """True if an attribute, or a text, here may be one of another object than the owner of the method."""
    owner = steps[place - 1] if place else steps[place]
    return not (
        "ATTR" in steps[place].opname and owner.argval == "self" and owner.opname in ("LOAD_FAST", "LOAD_DEREF")
    )


def _formats_unseen(steps: list[dis.Instruction], place: int) -> bool:
    """True if a text that is no constant is asked for its `format` here: it may name attributes."""
    return steps[place].argval in ("format", "format_map") and not _is_text(steps[place - 1])


def _is_text(step: dis.Instruction) -> bool:
    """True if the step loads a text that is a constant."""
    return step.opname == "LOAD_CONST" and isinstance(step.argval, str)


def _has_constant_name(steps: list[dis.Instruction], place: int) -> bool:
    """True if the `getattr` that is loaded at this place is called at once with a text as its second argument."""
    depth, constant = 0, False
    for number, step in enumerate(steps[place + 1 :]):
        if number == 0 and step.opname == "PUSH_NULL":
            continue
        if step.opname in _CALLS and step.arg == depth and depth in (2, 3):
            return constant
        if "JUMP" in step.opname or step.opname in ("FOR_ITER", "RETURN_VALUE", "SEND"):
            return False
        before, depth = depth, depth + dis.stack_effect(step.opcode, step.arg, jump=False)
        if (before, depth) == (1, 2):
            constant = _is_text(step)
        elif depth <= 2:
            constant = False  # what lay there was a part of an expression
        if depth < 0:
            return False
    return False


def names_in(function: Any) -> frozenset[str]:
    """All names and texts in the code of a function and of the functions within it."""
    code = code_of(function)
    return facts(code).names if code is not None else frozenset()


def globals_in(function: types.FunctionType) -> set[str]:
    """The global variables of a function that its code may read: those that it loads, and its texts.

    Unlike `names_in` it leaves out attributes, which may have the name of a global variable that the code never reads.
    """
    found = facts(function.__code__)
    return set((found.variables | found.names) if found.scopes else found.variables) & function.__globals__.keys()


def _is_global(operation: str) -> bool:
    return "GLOBAL" in operation or operation in ("LOAD_NAME", "STORE_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code and those of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def _texts(values: Any) -> Iterator[str]:
    """The texts among constants, their parts between dots, and the attributes that a format names."""
    for value in values:
        if isinstance(value, str):
            yield value
            if len(value) < 200 and ("." in value or "[" in value):
                yield from value.split(".")
                yield from _PART.findall(value)
        elif isinstance(value, (tuple, frozenset)):
            yield from _texts(value)


def is_library(module: str | None) -> bool:
    """True if a module is part of Python, of Alpha or of another library that Alpha knows, so not of the program."""
    return is_known(module) or (module is not None and module.split(".", 1)[0] in _OTHERS)


def is_known(module: str | None) -> bool:
    """True if the functions of a module need not be followed unless they run: those of Python, Alpha and numpy."""
    return is_proven(module) or is_standard(module)


def is_proven(module: str | None) -> bool:
    """True if what a function of this module reads of itself is known not to change, or is seen in another way."""
    return module is not None and module.split(".", 1)[0] in _PROVEN


def is_standard(module: str | None) -> bool:
    """True if a module is part of Python, whose functions are looked at when they run."""
    return module is not None and module.split(".", 1)[0] in _STANDARD
