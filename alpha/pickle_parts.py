"""What a pickle makes and what that may cost: a budget of memory, the names that it may call, and whatever has keys."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from alpha.reading import most_bytes

LEAVES = (str, bytes, float, complex, bool, type(None))  # of keys
OF_AN_ITEM = 64  # bytes that a set or a dict needs for it


class Refused(Exception):
    """What a pickle holds is nothing that Alpha reads."""


class Budget:
    """The memory that may be made of a file of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size, self.left = size, most_bytes(size)

    def spend(self, count: int) -> None:
        """Refused, before anything is allocated, if all together is more than `most_bytes`."""
        self.left -= count
        if self.left < 0:
            raise Refused(
                f"its parts need more than {most_bytes(self.size):,} bytes, though it has {self.size:,}: they share "
                "numbers, or are packed; save copies of them (x.clone() in PyTorch), not packed"
            )


class Maker:
    """A name that a pickle may call. `make` checks what it is given, which is from the file, and only makes a value."""

    __slots__ = ("make",)
    __hash__ = None  # type: ignore[assignment]  # it is no value, so no key

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make


class Filler:
    """Fills dicts and sets with keys from a file, and gives up on keys that were made to collide.

    Python finds a place for a key by its hash, and anyone can make numbers, or tuples of numbers, whose places are all
    taken: n keys then cost n^2 steps. Other keys take a tenth of a microsecond each.
    """

    SECONDS = 5e-6  # for a key, fifty times the usual ..
    MORE = 0.1  # .. besides these, for all

    def __init__(self) -> None:
        self._seconds, self._keys = 0.0, 0

    def __call__(self, add: Callable[[list[Any]], Any], items: list[Any]) -> None:
        """Calls `add` on one thousand of the items after the other; ValueError if their keys collide."""
        for start in range(0, len(items), 1000):
            part, began = items[start : start + 1000], time.thread_time()
            add(part)
            self._seconds += time.thread_time() - began
            self._keys += len(part)
            if self._seconds > self.MORE + self.SECONDS * self._keys:
                raise ValueError(f"its keys collide: {self._keys:,} of them took {self._seconds:.1f} s")


def filled(kind: type, items: list[Any]) -> Any:
    """A tuple, set or frozenset of items, or a dict of pairs; ValueError if a key or an item of a set stands twice."""
    if kind is tuple:
        return tuple(items)
    found: Any = {} if kind is dict else set()
    Filler()(found.update, items)
    if len(found) < len(items):
        raise ValueError("a key, or an item of a set, stands twice")
    return kind(found)


class Keyed:
    """Makes and fills dicts and sets, whose keys are plain data; `makers` are those that a pickle names."""

    def __init__(self, budget: Budget) -> None:
        self._spend, self._fill = budget.spend, Filler()
        self.makers = {
            ("collections", "OrderedDict"): Maker(self._ordered),
            ("collections", "Counter"): Maker(self._counter),
            **{(module, "set"): Maker(self._set) for module in ("builtins", "__builtin__")},
            **{(module, "frozenset"): Maker(self.frozen) for module in ("builtins", "__builtin__")},
        }

    def _key(self, key: Any) -> None:
        """TypeError for what is no key. Pays for what its hash reads: a part is read as often as it is in the key."""
        parts = [key]
        while parts:
            part = parts.pop()
            kind = type(part)
            if kind is tuple or kind is frozenset:
                self._spend(OF_AN_ITEM // 2 * (1 + len(part)))
                parts.extend(part)
            elif kind is int:
                self._spend(part.bit_length() >> 3)
            elif kind not in LEAVES and not isinstance(part, np.dtype):
                raise TypeError(f"a {kind.__name__} is no key")

    def put(self, target: dict[Any, Any], keys: list[Any], values: list[Any]) -> None:
        if len(keys) != len(values):
            raise ValueError("a key of a dict has no value")
        others = [key for key in keys if type(key) is not str]  # the hash of a text has a secret
        for key in others:
            self._key(key)

        def assign(pairs: Iterable[tuple[Any, Any]]) -> None:
            for key, value in pairs:
                target[key] = value

        pairs = zip(keys, values, strict=True)
        if others:
            self._fill(assign, list(pairs))
        else:
            assign(pairs)

    def add(self, target: set[Any], items: list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]) -> set[Any]:
        if type(items) not in (list, tuple, set, frozenset):
            raise TypeError(f"a set cannot be made of a {type(items).__name__}")
        self._spend(OF_AN_ITEM * len(items))
        for item in items:
            self._key(item)
        self._fill(target.update, list(items))
        return target

    def _set(self, items: Any = ()) -> set[Any]:
        return self.add(set(), items)

    def frozen(self, items: Any = ()) -> frozenset[Any]:
        return frozenset(self.add(set(), items))

    def _ordered(self, pairs: Any = ()) -> OrderedDict[Any, Any]:
        found: OrderedDict[Any, Any] = OrderedDict()
        if type(pairs) not in (list, tuple):
            raise TypeError(f"a dict cannot be made of a {type(pairs).__name__}")
        self._spend(4 * OF_AN_ITEM * len(pairs))
        if not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
            raise TypeError("a dict is made of pairs")
        self.put(found, [key for key, _ in pairs], [value for _, value in pairs])
        return found

    def _counter(self, counts: Any) -> Counter[Any]:
        if type(counts) is not dict:
            raise TypeError(f"a Counter cannot be made of a {type(counts).__name__}")
        self._spend(2 * OF_AN_ITEM * len(counts))
        found: Counter[Any] = Counter()
        self.put(found, list(counts), list(counts.values()))
        return found
