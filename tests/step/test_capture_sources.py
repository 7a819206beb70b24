"""Values that a captured step reads on the host: its result is never stale, or the step is refused by name.

A source is one way to hold a number. It gives a function that reads the number, as a step would, and one that changes
it. Each source is changed at several moments, and each result is compared with that of the function itself.
"""

from __future__ import annotations

import abc
import argparse
import array
import collections
import contextvars
import copy
import copyreg
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import importlib
import io
import itertools
import json
import logging
import operator
import os
import pathlib
import random
import re
import sys
import threading
import time
import types
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.errors import CaptureError, CaptureWarning
from alpha.ops.activation import relu_family as activation
from alpha.step import host_state, look, ran, visit
from alpha.step.watch import Watch

pytestmark = pytest.mark.usefixtures("cuda")

Read = Callable[[], Any]
Write = Callable[[float], None]
SOURCES: dict[str, tuple[Callable[[], tuple[Read, Write]], str]] = {}
VALUES = (3.0, 0.5, -0.0, 2.0)
SCALE = 1.0
TABLE: dict[str, Any] = {}


def source(refused: str = "") -> Callable[[Callable[[], tuple[Read, Write]]], None]:
    """A row of the table: it is captured, or refused with words that match `refused`."""

    def add(make: Callable[[], tuple[Read, Write]]) -> None:
        SOURCES[make.__name__.strip("_").replace("_", " ")] = make, refused

    return add


def holder(make: Callable[[], Any], read: Callable[[Any], Any], write: Callable[[Any, float], Any]) -> Any:
    """A source that is an object, which a closure has."""

    def build() -> tuple[Read, Write]:
        held = make()
        return lambda: read(held), lambda value: write(held, value)

    return build


def setter(name: str) -> Callable[[Any, float], None]:
    return lambda held, value: setattr(held, name, value)


def putter(key: Any) -> Callable[[Any, float], None]:
    return lambda held, value: held.__setitem__(key, value)


@source()
def keyword_defaults() -> tuple[Read, Write]:
    def read(*, scale: float = 1.0) -> float:
        return scale

    return read, lambda value: read.__kwdefaults__.__setitem__("scale", value)


@source()
def registered_classes() -> tuple[Read, Write]:
    class Kind(abc.ABC):  # noqa: B024
        pass

    objects = [type("One", (), {})() for _ in range(9)]
    left = iter(objects)
    return lambda: float(
        sum([isinstance(o, Kind) for o in objects])
    ), lambda _: Kind.register(type(next(left))) and None


@source()
def a_registry_of_python() -> tuple[Read, Write]:
    """A registry has functions that lead to whatever another package has, which the step never calls."""
    held, others = types.SimpleNamespace(scale=1.0), type("Others", (), {})
    many = [[] for _ in range(30_000)]  # type: ignore[var-annotated]
    copyreg.pickle(others, lambda _: (len, (many,)))
    return lambda: copy.copy(held).scale, lambda value: setattr(held, "scale", value)


# -- attributes -----------------------------------------------------------------------------------------


class Plain:
    scale = 1.0


class Slots:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 1.0


class Base:
    scale = 1.0


class Derived(Base):
    pass


class Dynamic:
    def __init__(self) -> None:
        self.table = {"scale": 1.0}

    def __getattr__(self, name: str) -> Any:
        return self.table[name]


class Everything:
    def __init__(self) -> None:
        self.table = {"scale": 1.0}

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, "table")[name]


class Descriptor:
    def __get__(self, owner: Any, kind: Any = None) -> float:
        return float(owner._hidden)


class Described:
    scale = Descriptor()

    def __init__(self) -> None:
        self._hidden = 1.0


class WithProperty:
    def __init__(self) -> None:
        self.inner = types.SimpleNamespace(value=1.0)

    @property
    def scale(self) -> float:
        return float(self.inner.value)


class Cached:
    def __init__(self) -> None:
        self.value = 1.0

    @functools.cached_property
    def scale(self) -> float:
        return self.value


class Meta(type):
    scale = 1.0


class WithMeta(metaclass=Meta):
    pass


class WithStatic:
    @staticmethod
    def scale() -> float:
        return 1.0


class WithClassMethod:
    factor = 1.0

    @classmethod
    def scale(cls) -> float:
        return cls.factor


class Callable_:
    def __init__(self) -> None:
        self.factor = 1.0

    def __call__(self) -> float:
        return self.factor


class Operators:
    def __init__(self) -> None:
        self.value = 1.0

    def __float__(self) -> float:
        return self.value

    def __getitem__(self, key: Any) -> float:
        return self.value

    def __iter__(self) -> Iterator[float]:
        yield self.value

    def __len__(self) -> int:
        return 1 if self.value == 1.0 else 2


class Floating(float):
    extra = 1.0


class Listing(list):  # type: ignore[type-arg]
    pass


class Mapping_(dict):  # type: ignore[type-arg]
    def __missing__(self, key: str) -> float:
        return self.default  # type: ignore[attr-defined,no-any-return]


class Color(enum.Enum):
    RED = 1.0


@dataclasses.dataclass
class Config:
    scale: float = 1.0
    count: int = 0


@dataclasses.dataclass(slots=True)
class SlotConfig:
    scale: float = 1.0


class ArrayArg(NamedTuple):
    box: list[float]


class Layered(nn.Module):
    scale = 1.0


def fresh(kind: type) -> type:
    """A class of its own, so that its attributes may be written."""
    return type(
        kind.__name__, kind.__bases__, {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__")}
    )


prefix = "sca"
FORM = "{0.scale}"
IMAGES = np.zeros((9, 999, 9, 3), np.uint8)
ATTRIBUTES: dict[str, tuple[Any, Any, Any]] = {
    "an attribute of an object": (types.SimpleNamespace, lambda o: getattr(o, "scale", 1.0), setter("scale")),
    "over that of the class": (Plain, lambda o: o.scale, setter("scale")),
    "of the class": (lambda: fresh(Plain)(), lambda o: o.scale, lambda o, v: setattr(type(o), "scale", v)),
    "of a class itself": (lambda: fresh(Plain), lambda o: o.scale, setter("scale")),
    "over that of the base": (
        lambda: type("D", (fresh(Base),), {})(),
        lambda o: o.scale,
        lambda o, v: setattr(type(o), "scale", v),
    ),
    "of the base": (
        lambda: type("D", (fresh(Base),), {})(),
        lambda o: o.scale,
        lambda o, v: setattr(type(o).__mro__[1], "scale", v),
    ),
    "that comes later": (lambda: type("P", (), {})(), lambda o: getattr(o, "scale", 1.0), setter("scale")),
    "that hasattr asks for": (
        lambda: type("P", (), {})(),
        lambda o: 2.0 if hasattr(o, "scale") else 1.0,
        setter("scale"),
    ),
    "that is deleted": (
        lambda: types.SimpleNamespace(scale=5.0),
        lambda o: getattr(o, "scale", 1.0),
        lambda o, v: vars(o).pop("scale", None),
    ),
    "with a computed name": (Plain, lambda o: getattr(o, prefix + "le"), setter("scale")),
    "in vars": (Config, lambda o: vars(o)["scale"], setter("scale")),
    "in __dict__": (Config, lambda o: o.__dict__["scale"], setter("scale")),
    "of another __dict__": (Config, lambda o: o.scale, lambda o, v: setattr(o, "__dict__", {"scale": v})),
    "of another class": (
        Plain,
        lambda o: o.scale,
        lambda o, v: setattr(o, "__class__", type("Q", (Plain,), {"scale": v})),
    ),
    "of a slot": (Slots, lambda o: o.scale, setter("scale")),
    "of a slot that is filled later": (
        lambda: Slots.__new__(Slots),
        lambda o: getattr(o, "scale", 1.0),
        setter("scale"),
    ),
    "of attrgetter": (Config, operator.attrgetter("scale"), setter("scale")),
    "of an object in an object": (
        lambda: types.SimpleNamespace(a=types.SimpleNamespace(b=Config())),
        lambda o: o.a.b.scale,
        lambda o, v: setattr(o.a.b, "scale", v),
    ),
    "of a dataclass": (Config, lambda o: o.scale, setter("scale")),
    "of asdict": (Config, lambda o: dataclasses.asdict(o)["scale"], setter("scale")),
    "of a dataclass with slots": (SlotConfig, lambda o: o.scale, setter("scale")),
    "of argparse": (lambda: argparse.Namespace(scale=1.0), lambda o: o.scale, setter("scale")),
    "of an exception": (lambda: ValueError("a"), lambda o: getattr(o, "scale", 1.0), setter("scale")),
    "of a module": (lambda: types.ModuleType("config"), lambda o: getattr(o, "scale", 1.0), setter("scale")),
    "of a format": (Config, lambda o: float(FORM.format(o)), setter("scale")),
    "that a format alone names": (
        lambda: types.SimpleNamespace(scale=1.0),
        lambda o: float(FORM.format(o)),
        setter("scale"),
    ),
    "of a match": (Config, lambda o: matched(o), setter("scale")),
    "of __getattr__": (Dynamic, lambda o: o.scale, lambda o, v: o.table.update(scale=v)),
    "of __getattribute__": (
        Everything,
        lambda o: o.scale,
        lambda o, v: object.__getattribute__(o, "table").update(scale=v),
    ),
    "of a descriptor": (Described, lambda o: o.scale, setter("_hidden")),
    "of a property": (WithProperty, lambda o: o.scale, lambda o, v: setattr(o.inner, "value", v)),
    "of a cached property": (Cached, lambda o: o.scale, setter("scale")),
    "of a metaclass": (lambda: WithMeta, lambda o: o.scale, lambda o, v: setattr(Meta, "scale", v)),
    "a static method": (
        lambda: fresh(WithStatic)(),
        lambda o: o.scale(),
        lambda o, v: setattr(type(o), "scale", staticmethod(lambda: v)),
    ),
    "of a class method": (
        lambda: fresh(WithClassMethod)(),
        lambda o: o.scale(),
        lambda o, v: setattr(type(o), "factor", v),
    ),
    "of a callable object": (Callable_, lambda o: o(), setter("factor")),
    "of a __call__ that is exchanged": (
        lambda: fresh(Callable_)(),
        lambda o: o(),
        lambda o, v: setattr(type(o), "__call__", lambda self: v),
    ),
    "of __float__": (Operators, lambda o: float(o), setter("value")),
    "of __getitem__": (Operators, lambda o: o["a"], setter("value")),
    "of __iter__": (Operators, lambda o: next(iter(o)), setter("value")),
    "of __len__": (Operators, lambda o: float(len(o)), setter("value")),
    "of a number with attributes": (lambda: Floating(2.0), lambda o: o * o.extra, setter("extra")),
    "of an enum": (
        lambda: enum.Enum("E", {"RED": 1.0}),
        lambda o: o.RED.value,
        lambda o, v: setattr(o.RED, "_value_", v),
    ),
    "of a network": (Layered, lambda o: o.scale, setter("scale")),
    "of a class of networks": (lambda: fresh(Layered)(), lambda o: o.scale, lambda o, v: setattr(type(o), "scale", v)),
    "training of a class": (
        lambda: fresh(Layered)(),
        lambda o: 2.0 if o.training else 1.0,
        lambda o, v: setattr(type(o), "training", v > 0),
    ),
    "of a layer": (lambda: nn.Dropout(0.5), lambda o: o.p, lambda o, v: setattr(o, "p", abs(v) / 4)),
    "of an optimizer": (
        lambda: alpha.optim.SGD([alpha.zeros(1, requires_grad=True)], lr=0.1),
        lambda o: getattr(o, "scale", 1.0),
        setter("scale"),
    ),
    "of a loader": (
        lambda: alpha.data.DataLoader(alpha.data.TensorDataset(alpha.zeros(8, 1)), batch_size=1),
        lambda o: float(getattr(o, "scale", 1.0)),
        setter("scale"),
    ),
    "the length of a loader": (
        lambda: alpha.data.DataLoader(
            alpha.data.ArrayDataset(np.zeros((9, 999, 9, 3), np.uint8), np.zeros(9, np.int64)), 3
        ),
        lambda o: 1.0 / len(o),
        lambda o, v: setattr(o, "batch_size", int(abs(v) * 2) or 9),
    ),
    "the seed of a generator": (
        alpha.Generator,
        lambda o: o.initial_seed() / 2**60,
        lambda o, v: o.manual_seed(int(v * 2**50) or 1),
    ),
}


def matched(value: Any) -> float:
    match value:
        case Config(scale=s):
            return s
    return 0.0


# -- containers -----------------------------------------------------------------------------------------

CONTAINERS: dict[str, tuple[Any, Any, Any]] = {
    "a list": (lambda: [1.0], lambda o: o[0], putter(0)),
    "the length of a list": (lambda: [0], lambda o: float(len(o)), lambda o, v: o.append(v)),
    "a long list": (lambda: [1.0] * 10_000, lambda o: o[9_000], putter(9_000)),
    "a list in a tuple": (lambda: ([1.0],), lambda o: o[0][0], lambda o, v: o[0].__setitem__(0, v)),
    "a dict": (lambda: {"a": 1.0}, lambda o: o["a"], putter("a")),
    "a dict without the key": (dict, lambda o: o.get("a", 1.0), putter("a")),
    "an attribute of a key": (
        lambda: {Config_(): 1.0},
        lambda o: next(iter(o)).scale,
        lambda o, v: setattr(next(iter(o)), "scale", v),
    ),
    "a set": (lambda: {1.0}, lambda o: max(o), lambda o, v: (o.clear(), o.add(v))),
    "a deque": (lambda: collections.deque([1.0]), lambda o: o[0], putter(0)),
    "a Counter": (lambda: collections.Counter(a=1.0), lambda o: o["a"], putter("a")),
    "an OrderedDict": (lambda: collections.OrderedDict(a=1.0), lambda o: o["a"], putter("a")),
    "the order of an OrderedDict": (
        lambda: collections.OrderedDict(a=1.0, b=2.0),
        lambda o: next(iter(o.values())),
        lambda o, v: o.move_to_end(next(iter(o))),
    ),
    "a defaultdict": (lambda: collections.defaultdict(lambda: 1.0, a=1.0), lambda o: o["a"], putter("a")),
    "a default factory": (
        lambda: collections.defaultdict(lambda: 1.0),
        lambda o: o.default_factory(),
        lambda o, v: setattr(o, "default_factory", lambda: v),
    ),
    "a ChainMap": (lambda: collections.ChainMap({}, {"a": 1.0}), lambda o: o["a"], putter("a")),
    "a UserDict": (lambda: collections.UserDict(a=1.0), lambda o: o["a"], putter("a")),
    "a UserList": (lambda: collections.UserList([1.0]), lambda o: o[0], putter(0)),
    "a class of lists": (lambda: Listing([1.0]), lambda o: o[0], putter(0)),
    "an attribute of a list": (lambda: Listing([1.0]), lambda o: getattr(o, "scale", 1.0), setter("scale")),
    "a class of dicts": (lambda: Mapping_(a=1.0), lambda o: o["a"], putter("a")),
    "a key that is missing": (lambda: with_default(), lambda o: o["b"], setter("default")),
    "a named tuple": (lambda: ArrayArg([1.0]), lambda o: o.box[0], lambda o, v: o.box.__setitem__(0, v)),
    "a view of a dict": (lambda: keep({"a": 1.0}).values(), lambda o: next(iter(o)), lambda o, v: KEPT[-1].update(a=v)),
    "a mappingproxy": (
        lambda: types.MappingProxyType(keep({"a": 1.0})),
        lambda o: o["a"],
        lambda o, v: KEPT[-1].update(a=v),
    ),
    "a bytearray": (lambda: bytearray(b"\1"), lambda o: float(o[0]), lambda o, v: o.__setitem__(0, int(abs(v) * 2))),
    "an array": (lambda: array.array("d", [1.0]), lambda o: o[0], putter(0)),
    "a memoryview": (
        lambda: memoryview(keep(bytearray(b"\1"))),
        lambda o: float(o[0]),
        lambda o, v: KEPT[-1].__setitem__(0, int(abs(v) * 2)),
    ),
    "a number of ctypes": (lambda: ctypes.c_double(1.0), lambda o: o.value, setter("value")),
    "an array of ctypes": (lambda: (ctypes.c_double * 2)(1.0, 1.0), lambda o: o[0], putter(0)),
    "numpy": (lambda: np.ones(3), lambda o: float(o[0]), putter(0)),
    "the shape of numpy": (
        lambda: np.ones((4, 2)),
        lambda o: float(len(o)),
        lambda o, v: o.resize((2, 4) if v > 1 else (8, 1), refcheck=False),
    ),
    "numpy without axes": (lambda: np.array(1.0), lambda o: float(o), putter(())),
    "numpy of objects": (
        lambda: np.array([Config(), 1], object),
        lambda o: o[0].scale,
        lambda o, v: setattr(o[0], "scale", v),
    ),
    "a part of numpy": (
        lambda: keep(np.ones(100))[10:20],
        lambda o: float(o[0]),
        lambda o, v: KEPT[-1].__setitem__(10, v),
    ),
    "a tensor on cpu": (lambda: alpha.tensor([1.0]), lambda o: o.item(), lambda o, v: o.fill_(v)),
    "a ContextVar": (lambda: contextvars.ContextVar("scale", default=1.0), lambda o: o.get(), lambda o, v: o.set(v)),
    "a threading.local": (threading.local, lambda o: getattr(o, "scale", 1.0), setter("scale")),
    "a weakref": (lambda: weakref.ref(keep(Plain())), lambda o: o().scale, lambda o, v: setattr(o(), "scale", v)),
    "a weak proxy": (lambda: weakref.proxy(keep(Plain())), lambda o: o.scale, setter("scale")),
    "a WeakValueDictionary": (
        lambda: weakref.WeakValueDictionary(a=keep(Plain())),
        lambda o: o["a"].scale,
        lambda o, v: setattr(o["a"], "scale", v),
    ),
    "a bound get": (lambda: keep({"a": 1.0}).get, lambda o: o("a"), lambda o, v: KEPT[-1].update(a=v)),
    "a bound method": (lambda: keep(WithMethod()).scale, lambda o: o(), lambda o, v: setattr(KEPT[-1], "factor", v)),
    "a partial": (
        lambda: functools.partial(operator.getitem, keep([1.0]), 0),
        lambda o: o(),
        lambda o, v: KEPT[-1].__setitem__(0, v),
    ),
    "a Decimal": (lambda: [decimal.Decimal(1)], lambda o: float(o[0]), lambda o, v: putter(0)(o, decimal.Decimal(v))),
    "a Fraction": (
        lambda: [fractions.Fraction(1)],
        lambda o: float(o[0]),
        lambda o, v: putter(0)(o, fractions.Fraction(v)),
    ),
    "a timedelta": (
        lambda: [datetime.timedelta(1)],
        lambda o: o[0].total_seconds(),
        lambda o, v: putter(0)(o, datetime.timedelta(seconds=v)),
    ),
    "a path": (
        lambda: [pathlib.PurePath("1")],
        lambda o: float(o[0].name),
        lambda o, v: putter(0)(o, pathlib.PurePath(str(v))),
    ),
}
KEPT: list[Any] = []


class Config_:
    scale = 1.0


class WithMethod:
    factor = 1.0

    def scale(self) -> float:
        return self.factor


def keep(value: Any) -> Any:
    KEPT.append(value)
    return value


def with_default() -> Any:
    table = Mapping_()
    table.default = 1.0  # type: ignore[attr-defined]
    return table


for group in (ATTRIBUTES, CONTAINERS):
    for title, (make, read, write) in group.items():
        SOURCES[title] = holder(make, read, write), ""

# -- functions ------------------------------------------------------------------------------------------


@source()
def a_variable() -> tuple[Read, Write]:
    scale = 1.0

    def write(value: float) -> None:
        nonlocal scale
        scale = value

    return lambda: scale, write


@source()
def a_global() -> tuple[Read, Write]:
    globals()["SCALE"] = 1.0
    return lambda: SCALE, lambda value: globals().update(SCALE=value)


@source()
def a_global_that_comes_later() -> tuple[Read, Write]:
    globals().pop("LATER", None)

    def read() -> float:
        try:
            return LATER  # type: ignore[name-defined,no-any-return]
        except NameError:
            return 1.0

    return read, lambda value: globals().update(LATER=value)


@source()
def a_global_over_a_builtin() -> tuple[Read, Write]:
    globals().pop("abs", None)
    return lambda: abs(-1.0), lambda value: globals().update(abs=lambda _: value)


@source()
def a_global_by_its_text() -> tuple[Read, Write]:
    globals()["SCALE"] = 1.0
    return lambda: globals()["SCALE"], lambda value: globals().update(SCALE=value)


@source()
def eval_of_a_text() -> tuple[Read, Write]:
    globals()["SCALE"] = 1.0
    return lambda: eval("SCA" + "LE"), lambda value: globals().update(SCALE=value)


@source()
def an_environment_variable() -> tuple[Read, Write]:
    os.environ.pop("CAPTURE_TEST", None)
    return lambda: float(os.environ.get("CAPTURE_TEST", "1")), lambda value: os.environ.update(CAPTURE_TEST=str(value))


@source()
def getenv() -> tuple[Read, Write]:
    os.environ["CAPTURE_TEST"] = "1"
    return lambda: float(os.getenv("CAPTURE_TEST", "1")), lambda value: os.environ.update(CAPTURE_TEST=str(value))


@source()
def arguments_of_the_program() -> tuple[Read, Write]:
    sys.argv[1:] = ["1"]
    return lambda: float(sys.argv[1]), lambda value: sys.argv.__setitem__(1, str(value))


def program_module() -> types.ModuleType:
    package, module = types.ModuleType("captured_package"), types.ModuleType("captured_package.config")
    package.config = module  # type: ignore[attr-defined]
    module.scale = 1.0  # type: ignore[attr-defined]
    sys.modules |= {"captured_package": package, "captured_package.config": module}
    return module


@source()
def an_import_in_the_step() -> tuple[Read, Write]:
    module = program_module()

    def read() -> float:
        import captured_package.config  # type: ignore[import-not-found]

        return captured_package.config.scale  # type: ignore[no-any-return]

    return read, functools.partial(setattr, module, "scale")


@source()
def a_name_that_is_imported_in_the_step() -> tuple[Read, Write]:
    module = program_module()

    def read() -> float:
        from captured_package.config import scale

        return scale  # type: ignore[no-any-return]

    return read, functools.partial(setattr, module, "scale")


@source()
def a_module_in_a_module() -> tuple[Read, Write]:
    module = program_module()
    package = sys.modules["captured_package"]
    return lambda: package.config.scale, functools.partial(setattr, module, "scale")


@source(refused="the table of all modules|importlib|captured_package")
def the_table_of_modules() -> tuple[Read, Write]:
    module = program_module()
    return lambda: sys.modules["captured_package.config"].scale, functools.partial(setattr, module, "scale")


@source()
def a_default() -> tuple[Read, Write]:
    def read(value: float = 1.0) -> float:
        return value

    return read, lambda value: setattr(read, "__defaults__", (value,))


@source()
def a_code() -> tuple[Read, Write]:
    def read() -> float:
        return 1.0

    def write(value: float) -> None:
        read.__code__ = (lambda: 3.0).__code__ if value == 3.0 else (lambda: 0.25).__code__

    return lambda: read(), write


@source()
def an_attribute_of_a_function() -> tuple[Read, Write]:
    def read() -> float:
        return getattr(read, "scale", 1.0)

    return read, lambda value: setattr(read, "scale", value)


@source()
def a_wrapped_function() -> tuple[Read, Write]:
    box = [1.0]

    @functools.wraps(np.sum)
    def read() -> float:
        return box[0]

    return read, lambda value: box.__setitem__(0, value)


@source()
def lru_cache() -> tuple[Read, Write]:
    box = [1.0]

    @functools.lru_cache(maxsize=2)
    def read() -> float:
        return box[0]

    def write(value: float) -> None:
        box[0] = value
        read.cache_clear()

    return lambda: read(), write


@source()
def singledispatch() -> tuple[Read, Write]:
    @functools.singledispatch
    def read(value: Any) -> float:
        return 1.0

    return lambda: read(1), lambda value: read.register(int)(lambda _: value) and None


@source()
def a_function_within_numpy() -> tuple[Read, Write]:
    box = [1.0]
    function = np.frompyfunc(lambda _: box[0], 1, 1)
    return lambda: function(0.0), lambda value: box.__setitem__(0, value)


@source()
def a_partial_that_is_set_anew() -> tuple[Read, Write]:
    function = functools.partial(float, 1.0)
    return lambda: function(), lambda value: function.__setstate__((float, (value,), {}, None))  # type: ignore


@source()
def a_level_of_logging() -> tuple[Read, Write]:
    logger = logging.getLogger("captured")
    logger.setLevel(logging.INFO)
    write = lambda value: logger.setLevel(logging.ERROR if value > 1 else logging.INFO)  # noqa: E731
    return lambda: 2.0 if logger.isEnabledFor(logging.INFO) else 1.0, write


@source()
def output() -> tuple[Read, Write]:
    """A function that only writes something for people to read does not stop a capture."""
    logger, box = logging.getLogger("captured"), [1.0]

    def read() -> float:
        logger.debug("the scale is %s", box[0])
        print(end="")
        return box[0]

    return read, lambda value: box.__setitem__(0, value)


@source()
def json_and_copies() -> tuple[Read, Write]:
    table = {"a": [1.0]}
    return lambda: json.loads(json.dumps(copy.deepcopy(table)))["a"][0], lambda value: table.update(a=[value])


@source()
def a_gradient() -> tuple[Read, Write]:
    held = [alpha.zeros(1, device="cuda"), alpha.zeros(1, requires_grad=True)]

    def write(value: float) -> None:
        held[value > 1].grad = alpha.zeros(1, device="cuda" if value <= 1 else "cpu")

    return lambda: float(sum(2**index for index, tensor in enumerate(held) if tensor.grad is not None)), write


@source()
def a_registry() -> tuple[Read, Write]:
    table = {"scale": lambda: 1.0}
    return lambda: table["scale"](), lambda value: table.update(scale=lambda: value)


@source()
def a_context_manager() -> tuple[Read, Write]:
    import contextlib

    box = [1.0]

    @contextlib.contextmanager
    def inside() -> Iterator[float]:
        yield box[0]

    def read() -> float:
        with inside() as value:
            return value

    return read, lambda value: box.__setitem__(0, value)


# -- Alpha's own ----------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore what the sources write outside of themselves."""
    relu, forward, argv, environ = F.relu, nn.ReLU.forward, list(sys.argv), dict(os.environ)
    yield
    F.relu, activation.relu, nn.ReLU.forward = relu, relu, forward  # type: ignore[method-assign]
    sys.argv[:] = argv
    os.environ.clear()
    os.environ.update(environ)
    for name in ("abs", "LATER"):
        globals().pop(name, None)
    for name in ("captured_package", "captured_package.config"):
        sys.modules.pop(name, None)
    Meta.scale = 1.0
    KEPT.clear()


def of_relu(value: float) -> Any:
    return lambda *args: args[-1] * value


@source()
def a_function_of_Alpha() -> tuple[Read, Write]:
    return lambda: F.relu(alpha.ones(1, device="cuda")), lambda value: setattr(F, "relu", of_relu(value))


@source()
def an_inner_function_of_Alpha() -> tuple[Read, Write]:
    layer = nn.ReLU()
    return lambda: layer(alpha.ones(1, device="cuda")), lambda value: setattr(activation, "relu", of_relu(value))


@source()
def forward_of_a_class_of_Alpha() -> tuple[Read, Write]:
    layer = nn.ReLU()
    return lambda: layer(alpha.ones(1, device="cuda")), lambda value: setattr(nn.ReLU, "forward", of_relu(value))


@source()
def forward_of_a_layer() -> tuple[Read, Write]:
    layer = nn.ReLU()
    return lambda: layer(alpha.ones(1, device="cuda")), lambda value: setattr(layer, "forward", of_relu(value))


@source(refused="hook")
def a_hook_that_comes_later() -> tuple[Read, Write]:
    class Net(nn.Module):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x * 1.0

    net = Net()
    write = lambda value: net.register_forward_hook(lambda module, args, out: out * value) and None  # noqa: E731
    return lambda: net(alpha.ones(1, device="cuda")), write


@source(refused="the seed|random numbers")
def the_seed_of_the_program() -> tuple[Read, Write]:
    return lambda: float(alpha.get_rng_state()["seed"] % 7), lambda value: alpha.manual_seed(int(value * 2)) and None


# -- what cannot be decided -----------------------------------------------------------------------------


@source(refused="itertools.count")
def a_counter() -> tuple[Read, Write]:
    count = itertools.count(1)
    return lambda: float(next(count)), lambda value: None


@source(refused="generator")
def a_generator() -> tuple[Read, Write]:
    values = (float(value) for value in range(1000))
    return lambda: next(values), lambda value: None


@source(refused="StringIO")
def a_file() -> tuple[Read, Write]:
    file = io.StringIO("1\n" * 1000)
    return lambda: float(file.readline()), lambda value: None


@source(refused="time.perf_counter")
def the_time() -> tuple[Read, Write]:
    return lambda: float(time.perf_counter() > 0), lambda value: None


@source(refused="time.time")
def the_time_by_a_name() -> tuple[Read, Write]:
    now = time.time
    return lambda: float(now() > 0), lambda value: None


@source(refused="datetime.now|date.today")
def the_date() -> tuple[Read, Write]:
    return lambda: float(datetime.datetime.now().year > 0), lambda value: None


@source(refused="os.urandom|random")
def a_uuid() -> tuple[Read, Write]:
    return lambda: float(uuid.uuid4().int > 0), lambda value: None


@source(refused="Python's random|a generator on the host")
def a_random_number() -> tuple[Read, Write]:
    draws = random.Random(0)
    return lambda: draws.random(), lambda value: None


@source(refused="SystemRandom|os.urandom")
def a_random_number_of_the_system() -> tuple[Read, Write]:
    draws = random.SystemRandom()
    return lambda: float(draws.random() >= 0), lambda value: None


@source(refused="open")
def the_content_of_a_file() -> tuple[Read, Write]:
    def read() -> float:
        with pathlib.Path(__file__).open() as file:
            return float(len(file.readline()) > 0)

    return read, lambda value: None


@source(refused="os.stat|os.path|posix")
def whether_a_file_exists() -> tuple[Read, Write]:
    return lambda: float(pathlib.Path(__file__).exists()), lambda value: None


@source(refused="numpy array of")
def a_large_array() -> tuple[Read, Write]:
    values = np.ones(100_000)
    return lambda: float(values[70_000]), lambda value: values.__setitem__(70_000, value)


@source(refused="list of 200,000 elements")
def a_very_long_list() -> tuple[Read, Write]:
    values = [1.0] * 200_000
    return lambda: values[7], lambda value: values.__setitem__(7, value)


@source(refused="_thread|thread|_shutdown_locks")
def another_thread() -> tuple[Read, Write]:
    box = [1.0]

    def read() -> float:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        return box[0]

    return read, lambda value: box.__setitem__(0, value)


@source(refused="sys._getframe")
def a_frame() -> tuple[Read, Write]:
    return lambda: float(sys._getframe().f_lineno > 0), lambda value: None


@source(refused="import_module|the table of all modules")
def a_module_by_its_text() -> tuple[Read, Write]:
    module = program_module()
    return lambda: importlib.import_module("captured_package.config").scale, functools.partial(setattr, module, "scale")


# -- the table ------------------------------------------------------------------------------------------

MOMENTS = ((5, 5, 5, 5, 5), (1, 6, 1, 6), (2, 2, 2, 6))  # calls between two changes


def in_a_function(read: Read) -> Callable[[alpha.Tensor], alpha.Tensor]:
    return lambda x: x * read()


def in_a_method(read: Read) -> Callable[[alpha.Tensor], alpha.Tensor]:
    class Owner:
        def __init__(self) -> None:
            self.read = read

        def step(self, x: alpha.Tensor) -> alpha.Tensor:
            return self.inner(x)

        def inner(self, x: alpha.Tensor) -> alpha.Tensor:
            return x * self.read()

    return Owner().step


def in_a_network(read: Read) -> Callable[[alpha.Tensor], alpha.Tensor]:
    class Net(nn.Module):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x * read()

    net = nn.Sequential(Net(), nn.Identity())
    return lambda x: net(x)


def in_a_callback(read: Read) -> Callable[[alpha.Tensor], alpha.Tensor]:
    return functools.partial(lambda reads, x: x * next(iter([r() for r in reads])), (read,))


PLACES = (in_a_function, in_a_method, in_a_network, in_a_callback)


@pytest.mark.parametrize("name", SOURCES)
def test_a_number_on_the_host_is_never_stale(name: str) -> None:
    make, refused = SOURCES[name]
    number = [*SOURCES].index(name)
    moments, place = MOMENTS[number % len(MOMENTS)], PLACES[number % len(PLACES)]
    if not refused:
        moments = MOMENTS[0] if number % 2 else moments
    check(make, refused, moments, place)


def check(make: Any, refused: str, moments: tuple[int, ...], place: Any) -> None:
    read, write = make()
    function = place(read)
    step = alpha.capture(function)
    x = alpha.tensor(np.array([1.0, -2.0], np.float32), device="cuda")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CaptureWarning)
        for change, calls in enumerate(moments):
            if change:
                write(VALUES[(change - 1) % len(VALUES)])
            for call in range(calls):
                got = step(x).numpy()
                if not refused:
                    expected = function(x).numpy()
                    np.testing.assert_array_equal(got, expected, err_msg=f"call {call} after change {change}")
                    assert np.array_equal(np.signbit(got), np.signbit(expected))
    said = [str(w.message) for w in caught if issubclass(w.category, CaptureWarning)]
    if refused:
        assert said
        assert re.search(refused, said[0]), said[0]
        assert not step.graphs
        read, write = make()
        strict = alpha.capture(strict=True)(place(read))

        def calls() -> None:
            strict(x)
            write(3.0)
            for _ in range(6):
                strict(x)

        with pytest.raises(CaptureError, match=refused):
            calls()
    else:
        assert not said, said
        assert step.graphs, step.describe()


@pytest.mark.parametrize("name", ["relu", "__mul__", "__rsub__", "__neg__"])
def test_methods_of_tensors_are_never_stale(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class of the arguments is none that an object of the step leads to."""

    @alpha.capture
    def step(x: alpha.Tensor) -> alpha.Tensor:
        return 1 - (-x * 2.0).relu()

    x = alpha.tensor(np.array([1.0, -2.0], np.float32), device="cuda")
    for _ in range(6):
        assert step(x).tolist() == [1, -3]
    assert step.graphs
    method = getattr(alpha.Tensor, name)
    monkeypatch.setattr(alpha.Tensor, name, lambda self, *args: method(method(self, *args), *args))
    expected = step.captured_function(x).tolist()
    assert [step(x).tolist() for _ in range(6)] == [expected] * 6


def nothing(*_: Any) -> Any:
    return None


PLANTED = {  # what is forgotten, and a source that shows it
    "globals": (Watch, "_watch_scopes", "a global"),
    "what has run": (Watch, "_visit_what_ran", "a function within numpy"),
    "items": (look, "dicts", "a dict"),
    "attributes": (look, "everything", "forward of a layer"),
    "classes": (Watch, "_enter_class", "of the class"),
    "functions that ask the system": (ran, "asks", "the time"),
    "types in C": (visit, "hidden_base", "a counter"),
    "draws of random numbers": (host_state, "_state", "a random number"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_forgotten_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, row = PLANTED[name]
    monkeypatch.setattr(owner, function, nothing)
    make, refused = SOURCES[row]
    with pytest.raises((AssertionError, StopIteration)):
        check(make, refused, MOMENTS[0], in_a_function)


def test_what_the_garbage_collector_calls_is_no_part_of_a_step() -> None:
    """The collector runs at any moment, as a callback of a test tool that measures it, or as a finalizer."""
    told: list[bytes] = []

    class Dying:
        def __del__(self) -> None:
            told.append(os.urandom(1))

    def collected(phase: str, info: dict[str, int]) -> None:
        told.append(os.urandom(1))

    def step(x: alpha.Tensor) -> alpha.Tensor:
        for _ in range(100):
            circle = [Dying()]
            circle.append(circle)  # type: ignore[arg-type]
        return x * 2

    captured = alpha.capture(step, strict=True)
    x = alpha.ones(2, device="cuda")
    gc.callbacks.append(collected)
    before = gc.get_threshold()
    gc.set_threshold(10)
    try:
        results = [captured(x).tolist() for _ in range(5)]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
    assert told
    assert captured.graphs
    assert results == [[2, 2]] * 5
