"""The look before a replay: whether what was read of many objects is still the same, without a call per object.

Each reader here takes a list of objects of one kind and gives two sequences: what must be the same objects, and numbers
and texts that must be equal, first of all how many there are. Both are read by C functions of Python's library.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any

from alpha.optim.optimizer import Optimizer
from alpha.step.compare import Values

Seen = tuple[Iterable[Any], Iterable[Any]]
Reader = Callable[[list[Any]], Seen]

DICT = operator.attrgetter("__dict__")
_CELL = operator.attrgetter("cell_contents")
_FUNCTION = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")
_ORDER = operator.attrgetter("__mro__")
TENSOR = operator.attrgetter("array", "_requires_grad", "_node", "_hooks")  # what counts of a tensor


def lists(owners: list[Any]) -> Seen:
    return chain.from_iterable(map(list.__iter__, owners)), map(list.__len__, owners)


def dicts(owners: list[Any]) -> Seen:
    keys, values = (chain.from_iterable(map(part, owners)) for part in (dict.keys, dict.values))
    return chain(keys, values), map(dict.__len__, owners)


def sets(owners: list[Any]) -> Seen:
    return chain.from_iterable(map(set.__iter__, owners)), map(set.__len__, owners)


def deques(owners: list[Any]) -> Seen:
    return chain.from_iterable(map(deque.__iter__, owners)), map(deque.__len__, owners)


def cells(owners: list[Any]) -> Seen:
    return map(_CELL, owners), ()


def functions(owners: list[Any]) -> Seen:
    return chain.from_iterable(map(_FUNCTION, owners)), ()


def orders(owners: list[Any]) -> Seen:
    return map(_ORDER, owners), ()


def tensors(owners: list[Any]) -> Seen:
    return chain.from_iterable(map(TENSOR, owners)), ()


def everything(owners: list[Any]) -> Seen:
    """All attributes."""
    held = [*map(DICT, owners)]
    return chain(map(type, owners), chain.from_iterable(map(dict.values, held))), chain(map(len, held), _last(held))


def named(names: Sequence[str], direct: bool = False) -> Reader:
    """Reads these attributes, or items if `direct`, and whether others have come or gone."""
    get = operator.itemgetter(*names) if len(names) > 1 else operator.itemgetter(*names, *names) if names else None

    def read(owners: list[Any]) -> Seen:
        held = owners if direct else [*map(DICT, owners)]
        values = chain.from_iterable(map(get, held)) if get is not None else ()
        return chain(map(type, owners), values), chain(map(len, held), _last(held))

    return read


def slots(names: Sequence[str]) -> Reader:
    get = operator.attrgetter(*names) if len(names) > 1 else operator.attrgetter(*names, *names)

    def read(owners: list[Any]) -> Seen:
        return chain(map(type, owners), chain.from_iterable(map(get, owners))), ()

    return read


def _last(held: Iterable[Any]) -> Iterable[Any]:
    """The last key of each: a new one comes last, so that one in the place of another is seen, too."""
    return map(next, map(reversed, held), repeat(None))  # type: ignore[arg-type]


def optimizers(hidden: frozenset[str], counts: tuple[str, ...]) -> Reader:
    """Reads groups without the `hidden` hyper-parameters, and states without `counts`."""
    getters: dict[tuple[Any, ...], Any] = {}

    def getter(keys: tuple[Any, ...]) -> Any:
        if keys not in getters:
            getters[keys] = operator.itemgetter(*keys, *keys[:1]) if keys else lambda held: ()
        return getters[keys]

    def of_groups(optimizer: Optimizer) -> Iterable[Any]:
        for group in optimizer.param_groups:
            yield group
            yield from getter(tuple([key for key in group if key not in hidden]))(group)

    def read(owners: list[Any]) -> Seen:
        same: list[Iterable[Any]] = []
        equal: list[Any] = []
        for optimizer in owners:
            state = optimizer.state
            same += [(state, optimizer.param_groups), of_groups(optimizer), state.keys(), state.values()]
            equal += [len(state), *map(len, state.values()), *map(len, optimizer.param_groups)]
            equal += [*map(optimizer._structure, optimizer.param_groups), ages(state.values(), counts)]
            shapes: dict[tuple[Any, ...], list[Any]] = {}
            for keys, held in zip(map(tuple, state.values()), state.values(), strict=True):
                shapes.setdefault(keys, []).append(held)
            for keys, several in shapes.items():
                get = getter(tuple([key for key in keys if key not in counts]))
                same.append(chain.from_iterable(map(get, several)))
        return chain.from_iterable(same), equal

    return read


def ages(states: Iterable[dict[str, Any]], counts: tuple[str, ...]) -> Values:
    """Which parameters have had equally many steps: an optimizer updates these together. One number if all have."""
    found: dict[Any, int] = {}
    pattern = [found.setdefault(tuple(map(state.get, counts)), len(found)) for state in states] if counts else []
    return tuple(pattern) if len(found) > 1 else (1,)
