"""Numbers in attributes: a captured step that reads one is never stale."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import operator
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from host_sources import Config, Plain, Sources, nothing, setter

import alpha
from alpha import nn
from alpha.step.sources.watch import Watch

pytestmark = pytest.mark.usefixtures("cuda")
SOURCES = Sources(3)


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


@dataclasses.dataclass(slots=True)
class SlotConfig:
    scale: float = 1.0


class Layered(nn.Module):
    scale = 1.0


def fresh(kind: type) -> type:
    """A class of its own, so that its attributes may be written."""
    return type(
        kind.__name__, kind.__bases__, {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__")}
    )


prefix = "sca"
FORM = "{0.scale}"
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


SOURCES.add_objects(ATTRIBUTES)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Restore what a source writes outside of itself."""
    yield
    Meta.scale = 1.0


@pytest.mark.parametrize("name", SOURCES)
def test_a_number_in_an_attribute_is_never_stale(name: str) -> None:
    SOURCES.check(name)


PLANTED = {  # what is forgotten, and a source that shows it
    "classes": (Watch, "_enter_class", "of the class")
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_forgotten_of_attributes_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, function, row = PLANTED[name]
    monkeypatch.setattr(owner, function, nothing)
    SOURCES.check_noticed(row)
