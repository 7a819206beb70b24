"""The kinds of Python objects whose content can be compared, and how that is read.

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

from alpha.runtime.recording import StepValue
from alpha.step.compare import MISSING, Values

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
    """As `isinstance`, without a question to the object: a program's class or a weak proxy may answer for another."""
    return issubclass(type(value), kinds)


def is_constant(value: Any) -> bool:
    """Whether a value never changes and leads to nothing that does."""
    kind = type(value)
    return kind in IMMUTABLE or (is_a(value, np.generic) and kind is not np.void) or is_a(value, np.dtype)


def is_seen_elsewhere(value: Any) -> bool:
    """Whether a change of this object is noticed without a comparison, or means nothing."""
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
    """What an object of some C types leads to, by the text behind its name; None if it is of no such type.

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
