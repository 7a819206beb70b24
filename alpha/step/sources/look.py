"""The look before a replay: whether what was read of many objects is still the same, without a call per object.

Each reader here takes a list of objects of one kind and gives two sequences: what must be the same objects, and numbers
and texts that must be equal, first of all how many there are. Both are read by C functions of Python's library.
Whether the objects are the same is one comparison of their addresses.
"""

from __future__ import annotations

import ctypes
import operator
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from alpha.optim.optimizer import Optimizer
from alpha.step.sources.dependence import Values

Parts = list[Iterable[Any]]
Reader = Callable[[list[Any], Parts, Parts], None]  # adds to what must be the same objects, and to what must be equal

DICT = operator.attrgetter("__dict__")
_CELL = operator.attrgetter("cell_contents")
_FUNCTION = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")
_ORDER = operator.attrgetter("__mro__")
_PARTIAL = operator.attrgetter("func", "args", "keywords")
_LEAF = operator.attrgetter("array", "_requires_grad", "_node")  # what counts of a tensor, beside its hooks
_TENSOR = operator.attrgetter("array", "_requires_grad", "_node", "_grad")
_END = object()  # which no other object is, so that as many objects lie before it as before


def addresses(objects: tuple[Any, ...]) -> bytes:
    """The addresses of the items of a tuple, which CPython keeps one behind the other, behind the head of the tuple."""
    return ctypes.string_at(id(objects) + tuple.__basicsize__, len(objects) * tuple.__itemsize__)


def lists(owners: list[Any], same: Parts, equal: Parts) -> None:
    same += map(list.__iter__, owners)
    equal.append(map(list.__len__, owners))


def dicts(owners: list[Any], same: Parts, equal: Parts) -> None:
    same += owners
    same += map(dict.values, owners)
    equal.append(map(dict.__len__, owners))


def sets(owners: list[Any], same: Parts, equal: Parts) -> None:
    same += map(set.__iter__, owners)
    equal.append(map(set.__len__, owners))


def deques(owners: list[Any], same: Parts, equal: Parts) -> None:
    same += map(deque.__iter__, owners)
    equal.append(map(deque.__len__, owners))


def cells(owners: list[Any], same: Parts, equal: Parts) -> None:
    same.append(map(_CELL, owners))


def functions(owners: list[Any], same: Parts, equal: Parts) -> None:
    same += map(_FUNCTION, owners)


def partials(owners: list[Any], same: Parts, equal: Parts) -> None:
    same += map(_PARTIAL, owners)


def orders(owners: list[Any], same: Parts, equal: Parts) -> None:
    same += (map(type, owners), map(_ORDER, owners))


def leaves(owners: list[Any], same: Parts, equal: Parts) -> None:
    """Tensors without their gradients, of which a replay takes care."""
    same += map(_LEAF, owners)


def tensors(owners: list[Any], same: Parts, equal: Parts) -> None:
    same += map(_TENSOR, owners)


def everything(owners: list[Any], same: Parts, equal: Parts) -> None:
    """All attributes."""
    held = [*map(DICT, owners)]
    same.append(map(type, owners))
    same += map(dict.values, held)
    same.append((_END,))
    equal.append(_last(held))


def results(owners: list[Any], same: Parts, equal: Parts) -> None:
    """The results of functions, which are texts or numbers."""
    equal += [read() for read in owners]


class Items:
    """Reads items of dicts that stay the dicts of their owners, as those of modules and classes."""

    def __init__(self) -> None:
        self._read: list[tuple[Callable[[Any], tuple[Any, ...]], Any]] = []

    def add(self, held: Any, names: list[str]) -> None:
        if names:
            self._read.append((_getter(names), held))

    def __call__(self, owners: list[Any], same: Parts, equal: Parts) -> None:
        same += [get(held) for get, held in self._read]
        equal += (map(len, owners), _last(owners))


def named(names: Sequence[str]) -> Reader:
    """Reads these attributes, and whether others have come or gone."""
    get = operator.itemgetter(*names) if len(names) > 1 else operator.itemgetter(*names, *names) if names else None

    def read(owners: list[Any], same: Parts, equal: Parts) -> None:
        held = [*map(DICT, owners)]
        same.append(map(type, owners))
        if get is not None:
            same += map(get, held)
        equal += (map(len, held), _last(held))

    return read


def slots(names: Sequence[str]) -> Reader:
    get = operator.attrgetter(*names) if len(names) > 1 else operator.attrgetter(*names, *names)

    def read(owners: list[Any], same: Parts, equal: Parts) -> None:
        same.append(map(type, owners))
        same += map(get, owners)

    return read


def _last(held: Iterable[Any]) -> Iterable[Any]:
    """The last key of each: a new one comes last, so that one in the place of another is seen, too."""
    return map(next, map(reversed, held), repeat(None))


def _getter(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    return operator.itemgetter(*keys, keys[0]) if keys else lambda _: ()


def optimizer(optimizer: Optimizer, hidden: frozenset[str], counts: tuple[str, ...]) -> Reader:
    """Reads the groups of this one without the `hidden` hyper-parameters, and its states without `counts`."""
    of_groups = [_getter([key for key in group if key not in hidden]) for group in optimizer.param_groups]
    states: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for held in optimizer.state.values():
        states.setdefault(tuple([key for key in held if key not in counts]), []).append(held)
    of_states = [(_getter(keys), several) for keys, several in states.items()]
    every = list(optimizer.state.values())
    age = (
        operator.itemgetter(*counts)
        if counts and all(counts_ in held for held in every for counts_ in counts)
        else None
    )

    def read(owners: list[Any], same: Parts, equal: Parts) -> None:
        state, groups = optimizer.state, optimizer.param_groups
        same += ((state, groups), groups, state, state.values())
        same += [get(group) for get, group in zip(of_groups, groups, strict=False)]
        for get, several in of_states:
            same += map(get, several)  # these are the states, which are compared themselves
        together = (1,) if age is not None and len({*map(age, every)}) == 1 else ages(every, counts)
        equal += ((len(groups), len(state), together), map(len, groups))
        if not counts:  # whatever is in the states may be read
            equal.append(map(len, every))
        equal.append(map(optimizer._structure, groups))

    return read


def ages(states: Iterable[dict[str, Any]], counts: tuple[str, ...]) -> Values:
    """Group of each parameter by its number of steps: an optimizer updates a group at once. 1 for a single group."""
    found: dict[Any, int] = {}
    pattern = [found.setdefault(tuple(map(state.get, counts)), len(found)) for state in states] if counts else []
    return tuple(pattern) if len(found) > 1 else (1,)
