"""Kinds of Python objects whose content can be compared, and how that is read.

The list is closed: an object of any other kind may hold what no reader here sees, so a step that reaches one is not
captured. Objects of classes that are written in Python hold attributes and nothing else, unless such a class has a base
that is written in C.
"""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import datetime
import decimal
import fractions
import functools
import gc
import json.encoder
import json.scanner
import operator
import pathlib
import random
import re
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.runtime.recording import StepValue
from alpha.step.sources.code import code_of, codes_in, is_proven
from alpha.step.sources.dependence import MISSING, Values, same

T = TypeVar("T")

LARGE = 1 << 16  # bytes or elements above which a content is not compared

# what never changes and leads nowhere
IMMUTABLE: frozenset[type] = frozenset(
    (
        *(int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented), range),
        *(decimal.Decimal, fractions.Fraction, datetime.datetime, datetime.date, datetime.time, datetime.timedelta),
        *(datetime.timezone, uuid.UUID, re.Pattern, re.Match, types.GenericAlias, types.CodeType, np.ufunc, object),
        *(pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath),
        *(types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType),
        *(types.MethodDescriptorType, types.ClassMethodDescriptorType),
        *(kind for kind in (json.scanner.make_scanner, vars(json.encoder)["c_make_encoder"]) if isinstance(kind, type)),
        *(type(vars(collections.namedtuple("Field", "name"))["name"]), type(threading.Lock()), type(threading.RLock())),
    )
)
# what is looked at in another way: a draw of random numbers is a change that `HostState` sees
_SEEN_ELSEWHERE = (
    *(random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator, np.random.SeedSequence),
    StepValue,
)
LRU = type(functools.lru_cache(lambda: None))
_CTYPES: Any = ctypes.c_int.__mro__[-2]
_POINTERS = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_wchar_p, ctypes._Pointer, ctypes._CFuncPtr)  # type: ignore
_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
_NAMERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
# C types whose content one of the functions below reads, so that classes may be derived from them
_BASES: frozenset[type] = frozenset(
    (
        *(object, int, float, complex, str, bytes, list, dict, tuple, set, frozenset, collections.deque, bytearray),
        *(collections.OrderedDict, collections.defaultdict, array.array, np.ndarray, type, BaseException, Exception),
        *(types.SimpleNamespace, threading.local, functools.partial, property, staticmethod, classmethod, weakref.ref),
        *(decimal.Decimal, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
        *(types.ModuleType, random.Random, _CTYPES),
    )
)


def is_a(value: Any, kinds: Any) -> bool:
    """True if the type of the value is one of these kinds.

    The object is not asked: a program's class or a weak proxy may answer for another one.
    """
    return issubclass(type(value), kinds)


def is_constant(value: Any) -> bool:
    """True if a value never changes and leads to nothing that does."""
    kind = type(value)
    return kind in IMMUTABLE or (is_a(value, np.generic) and kind is not np.void) or is_a(value, np.dtype)


def is_seen_elsewhere(value: Any) -> bool:
    """True if a change of this object is noticed without a comparison, or means nothing."""
    if is_a(value, random.SystemRandom):
        return False
    return is_a(value, _SEEN_ELSEWHERE) or value in _standard_streams()


class _Is(list[Any]):
    """A list that is searched by identity."""

    def __contains__(self, value: object) -> bool:
        return any(value is item for item in self)


def _standard_streams() -> _Is:
    return _Is((sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))


def cached_by_class(function: Callable[[type], T]) -> Callable[[type], T]:
    """The function of a class, which is computed once for each class that lives."""
    known: weakref.WeakKeyDictionary[type, T] = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def call(kind: type) -> T:
        if kind not in known:
            known[kind] = function(kind)
        return known[kind]

    return call


@cached_by_class
def hidden_base(kind: type) -> type | None:
    """The first base of a class that is written in C and holds what nothing here reads; None if there is none."""
    for base in kind.__mro__:
        below = base.__base__
        if base in _BASES or below is None or issubclass(base, (BaseException, _CTYPES)):
            continue
        slots = vars(base).get("__slots__", ())
        words = 1 if isinstance(slots, str) else len(tuple(slots))
        words += ("__dict__" in vars(base)) + ("__weakref__" in vars(base))
        if (
            base.__basicsize__ - below.__basicsize__ > words * tuple.__itemsize__
            or base.__itemsize__ != below.__itemsize__
        ):
            return base
    return None


def slots_of(kind: type) -> list[str]:
    """The names of the slots of a class and its bases."""
    return [
        name
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    ]


Parts = Mapping[str, Any]


def parts_of(value: Any) -> Parts | None:
    """Parts to which an object of some C types leads, by the text behind its name; None if it is of no such type.

    The object itself never exchanges these parts.
    """
    if is_a(value, types.MethodType):
        return {"": value.__self__, ".__func__": value.__func__}
    if is_a(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
        owner = value.__self__
        return {} if isinstance(owner, types.ModuleType) else {".__self__": owner}
    if is_a(value, functools.partial):
        return {"": value.func, ".args": value.args, ".keywords": value.keywords}
    if is_a(value, (staticmethod, classmethod)):
        return {"": value.__func__}
    if is_a(value, property):
        return {"": value.fget, ".setter": value.fset}
    if is_a(value, _VIEWS):
        return {"": value.mapping}
    if is_a(value, _PROXIES):
        try:
            return {"": value.__init__.__self__}
        except ReferenceError:
            return {}
    if is_a(value, slice):
        return {".start": value.start, ".stop": value.stop, ".step": value.step}
    if is_a(value, (tuple, frozenset)):
        return {f"[{index}]": item for index, item in enumerate(tuple.__iter__(value) if is_a(value, tuple) else value)}
    return None


def reader_of(value: Any) -> Callable[[], Values] | None:
    """A function that reads the content of an object; None if its type is not known or its content is too large."""
    if is_a(value, np.ndarray):
        if value.dtype.hasobject:
            return (lambda: (value.shape, *value.ravel().tolist())) if value.size <= LARGE else None
        return (lambda: (value.shape, str(value.dtype), value.tobytes())) if value.nbytes <= LARGE else None
    if is_a(value, np.void):
        return lambda: (value.tobytes(),)
    if is_a(value, (bytearray, array.array)):
        return (lambda: (bytes(value),)) if len(value) <= LARGE else None
    if is_a(value, memoryview):
        return (lambda: (value.tobytes(),)) if value.nbytes <= LARGE else None
    if is_a(value, _CTYPES):
        if is_a(value, _POINTERS) or _has_pointers(type(value)) or ctypes.sizeof(value) > LARGE:
            return None
        return lambda: (bytes(value),)
    if is_a(value, contextvars.ContextVar):
        return lambda: (value.get(MISSING),)
    if is_a(value, weakref.ref):
        return lambda: (value(),)
    if is_a(value, types.MappingProxyType):
        return lambda: (len(value), *value.keys(), *value.values())
    if is_a(value, collections.OrderedDict):
        return lambda: (len(value), *value.keys(), *value.values())
    if is_a(value, LRU):
        return lambda: tuple(chain.from_iterable([d.values() for d in _caches(value)]))
    return None


def results_of(value: Any) -> list[Any]:
    """The results that a function with `lru_cache` keeps."""
    found: list[Any] = []
    for item in chain.from_iterable([held.values() for held in _caches(value)]):
        link = type(item).__name__ == "_lru_list_elem"
        found += [part for part in gc.get_referents(item) if type(part) is not type(item)] if link else [item]
    return found


def _caches(function: Any) -> list[dict[Any, Any]]:
    """The dict of results of a function with `lru_cache`; it is not among its attributes."""
    own = vars(function)
    return [held for held in gc.get_referents(function) if type(held) is dict and held is not own]


def _has_pointers(kind: Any) -> bool:
    if issubclass(kind, _POINTERS) or kind is ctypes.py_object:
        return True
    if issubclass(kind, ctypes.Array):
        return _has_pointers(kind._type_)
    fields = [field[1] for base in kind.__mro__ for field in vars(base).get("_fields_", ())]
    return any(map(_has_pointers, fields))


def names_of(value: Any) -> list[str] | None:
    """The attributes that a function of `operator` reads; None of anything else."""
    if not is_a(value, _NAMERS):
        return None
    texts = value.__reduce__()[1]
    return [part for text in texts if isinstance(text, str) for part in text.split(".")]


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
    """True if the step may read or call a member of this name: its code names it, or Python or `Module` does."""
    is_special = member.startswith("__") and member not in ("__init__", "__del__")
    return member in names or member == "forward" or is_special


def counts_of_class(names: set[str], computes: bool, key: Any, value: Any) -> bool:
    return computes or may_run(names, key)


def counts_of_alpha(names: set[str], of_tensors: bool, key: Any, value: Any) -> bool:
    """True if a member of a class of Alpha counts: if it has run or is named, or if it is no function."""
    if of_tensors and key[:2] == "__" and is_a(value, types.FunctionType):
        return True  # an operator, which no code names
    return key in names or not (key[:2] == "__" or callable(value) or hasattr(value, "__get__"))


def chooser(value: Any, names: set[str], computes: bool, without: tuple[str, ...]) -> Chooses:
    """Function that tells whether an attribute of this object counts."""
    of_bases, is_module = _names_of_bases(type(value)), is_a(value, Module)

    def chooses(key: Any, item: Any) -> bool:
        return key not in without and (computes or key in names or key in of_bases or (is_module and _is_part(item)))

    return chooses


@cached_by_class
def _names_of_bases(kind: type) -> frozenset[str]:
    """Names in the functions of the bases of a class that are Alpha's, which are not looked at when they run."""
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
    """True if attributes are the same in another order."""
    a, b = items_of(before[1:]), items_of(now[1:])
    return before[0] is now[0] and a.keys() == b.keys() and all(same((a[key],), (b[key],)) for key in a)


def tensor_values(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.array, tensor._requires_grad, tensor._node, len(tensor._hooks)


def is_leaf(tensor: Tensor) -> bool:
    """True if a step may leave a gradient in the tensor, which lies on the GPU."""
    return tensor._node is None and tensor._requires_grad and not isinstance(tensor.array, np.ndarray)


def is_data(value: Any) -> bool:
    """True if a value is an array or a tensor, or several of these."""
    return isinstance(value, (np.ndarray, Tensor)) or (type(value) is tuple and all(map(is_data, value)))


def _is_part(value: Any) -> bool:
    """True if a module may use this attribute without naming it, as `children` finds submodules."""
    if is_a(value, (list, tuple)):
        return any(map(_is_part, value[:100]))
    if is_a(value, dict):
        return any(map(_is_part, list(value.values())[:100]))
    return is_a(value, (Tensor, Module))
