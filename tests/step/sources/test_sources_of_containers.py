"""Numbers in containers: a captured step that reads one is never stale."""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import datetime
import decimal
import fractions
import functools
import operator
import pathlib
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from host_sources import Config, Plain, Sources, nothing, putter, setter

import alpha
from alpha.step.sources import look

pytestmark = pytest.mark.usefixtures("cuda")
SOURCES = Sources(54)


class Listing(list):  # type: ignore[type-arg]
    pass


class Mapping_(dict):  # type: ignore[type-arg]
    def __missing__(self, key: str) -> float:
        return self.default  # type: ignore[attr-defined,no-any-return]


class ArrayArg(NamedTuple):
    box: list[float]


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


SOURCES.add_objects(CONTAINERS)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    KEPT.clear()


@pytest.mark.parametrize("name", SOURCES)
def test_a_number_in_a_container_is_never_stale(name: str) -> None:
    SOURCES.check(name)


PLANTED = {  # what is forgotten, and a source that shows it
    "items": (look, "dicts", "a dict")
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_forgotten_of_containers_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, row = PLANTED[name]
    monkeypatch.setattr(owner, function, nothing)
    SOURCES.check_noticed(row)
