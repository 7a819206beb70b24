"""What a pickle makes and what that may cost: a budget of memory, the names that it may call, and whatever has keys."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.io.reading import most_bytes

Values = npt.NDArray[Any]
LEAVES = frozenset({str, bytes, float, complex, bool, type(None)})  # of keys
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


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Stops Python's search for cycles, which a reader that makes many parts, none of them free, starts in vain."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


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
        self._parts = 200_000 + 4 * budget.size  # of keys, which may be read
        self.makers = {
            ("collections", "OrderedDict"): Maker(self._ordered),
            ("collections", "Counter"): Maker(self._counter),
            **{(module, "set"): Maker(self._set) for module in ("builtins", "__builtin__")},
            **{(module, "frozenset"): Maker(self.frozen) for module in ("builtins", "__builtin__")},
        }

    def _check(self, keys: Iterable[Any]) -> None:
        """TypeError for what is no key; Refused if the hashes of all keys read too many parts.

        A tuple in a tuple is read as often as it stands there, and ten in each of ten .. make any number of a few.
        """
        parts = list(keys)
        self._parts -= len(parts)
        while parts:
            part = parts.pop()
            kind = type(part)
            if kind is tuple or kind is frozenset:
                self._parts -= len(part)
                if self._parts >= 0:
                    parts.extend(part)
            elif kind is int:
                self._parts -= part.bit_length() >> 10
            elif kind not in LEAVES and not isinstance(part, np.dtype):
                raise TypeError(f"a {kind.__name__} is no key")
            if self._parts < 0:
                raise Refused("its keys hold the same parts too many times; in PyTorch, save them as lists of pairs")

    def put(self, target: dict[Any, Any], keys: list[Any], values: list[Any]) -> None:
        if len(keys) != len(values):
            raise ValueError("a key of a dict has no value")
        others = [key for key in keys if type(key) is not str]  # the hash of a text has a secret
        self._check(others)

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
        self._check(items)
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


PARTS = frozenset({np.ndarray, dict, OrderedDict, Counter, list, tuple})  # of what was read, those that may hold arrays
SHORT = 8
DEEPEST = 400  # parts in parts in parts; each takes two calls, of Python's thousand
UNFINISHED = object()


def with_results(value: Any, of_array: Callable[[Values], Any], of_arrays: Callable[[dict[str, Any]], Any]) -> Any:
    """What was read, with `of_array(x)` in place of an array x, and `of_arrays(d)` of a dict d of names and arrays.

    A part that stands in several others is converted once, so it stays one object; lists and dicts change in place.
    RecursionError if a part contains itself, or is in more than 400 others.
    """
    done: dict[int, Any] = {}  # the result by the id of a part
    kept: list[Any] = []  # parts whose result is another object, which so keep their ids

    def items_of(part: Any) -> Any:
        return part.values() if isinstance(part, dict) else part

    def converted(part: Any, depth: int) -> Any:
        if id(part) in done:
            if done[id(part)] is UNFINISHED:
                raise RecursionError
            return done[id(part)]
        leaves = type(part) is not np.ndarray and PARTS.isdisjoint(map(type, items_of(part)))
        if leaves and len(part) <= SHORT:  # it is quicker looked at again than remembered
            return part
        if depth > DEEPEST:
            raise RecursionError
        result: Any = part
        done[id(part)] = UNFINISHED
        if type(part) is np.ndarray:
            result = of_array(part)
        elif not leaves:
            items = [converted(item, depth + 1) if type(item) in PARTS else item for item in items_of(part)]
            if isinstance(part, dict):
                arrays = all(type(item) is np.ndarray for item in part.values()) and all(type(k) is str for k in part)
                for key, item in zip(part, items, strict=True):
                    part[key] = item
                result = of_arrays(part) if arrays else part
            elif isinstance(part, list):
                part[:] = items
            elif any(new is not old for new, old in zip(items, part, strict=True)):
                result = tuple(items)
        if result is not part:
            kept.append(part)
        done[id(part)] = result
        return result

    return converted(value, 0) if type(value) in PARTS else value
