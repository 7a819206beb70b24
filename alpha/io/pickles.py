"""Pickles of plain data, read without running anything that they name.

`Reader` knows the instructions that plain data and tensors need, in protocols 1 to 5, and no other: none makes an
object of a class, sets an attribute or imports. A name in a pickle is what the caller's `find` gives for it; it may
be called if that is a `Maker`. What a pickle costs is bounded by its length: lengths are compared with what is left
before anything is allocated, and what makes much of little (a part that is used many times) is paid from a `Budget`.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from alpha.io.reading import most_bytes

Values = npt.NDArray[Any]
LEAVES = frozenset({str, bytes, float, complex, bool, type(None)})  # of keys
OF_AN_ITEM = 64  # bytes that a set or a dict needs for it


class Refused(Exception):
    """Error for a pickle that holds something that Alpha does not read."""


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
    """Value that was read, with `of_array(x)` in place of an array x, and `of_arrays(d)` of a dict d of named arrays.

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


class Reader:
    """Reads one pickle.

    Args:
        data: the pickle.
        find: gives what a module and a name stand for, a value or a Maker; raises Refused for all others.
        persistent: gives the value of a persistent id, which is a value of the pickle.
        budget: pays for what is made of parts that may be used many times.
    """

    def __init__(
        self, data: bytes, find: Callable[[str, str], Any], persistent: Callable[[Any], Any], budget: Budget
    ) -> None:
        self._data, self._find, self._persistent = data, find, persistent
        self._place = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []  # heights of the stack
        self._memo: dict[int, Any] = {}
        self._keyed = Keyed(budget)

    def load(self) -> Any:
        """The value. What is raised of a damaged pickle is a Refused, ValueError, TypeError, or one of their kind."""
        data, steps = self._data, [self.STEPS.get(bytes([code])) for code in range(256)]
        while self._place < len(data):
            code = data[self._place]
            self._place += 1
            step = steps[code]
            if step is not None:
                step(self)
            elif code == pickle.STOP[0]:
                return self._pop()
            else:
                raise Refused(f"its pickle has the instruction {bytes([code])!r}, which plain data do not need")
        raise ValueError("the pickle has no end")

    # -- the bytes and the stack

    def _take(self, count: int) -> bytes:
        start = self._place
        data = self._data[start : start + count]
        if len(data) != count or count < 0:
            raise ValueError(f"{count:,} bytes are declared at {start:,} of a pickle of {len(self._data):,}")
        self._place = start + count
        return data

    def _number(self, form: str) -> int:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(value)

    def _line(self) -> bytes:
        stop = self._data.find(b"\n", self._place)
        line = self._take(stop - self._place)
        self._place += 1
        return line

    def _pop(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise ValueError("an instruction needs a value that is not there")
        return self._stack.pop()

    def _marked(self) -> list[Any]:
        """Values above the last mark, taken from the stack."""
        if not self._marks:
            raise ValueError("an instruction needs a mark that is not there")
        height = self._marks.pop()
        found = self._stack[height:]
        del self._stack[height:]
        return found

    def _top(self, kinds: type | tuple[type, ...]) -> Any:
        value = self._pop()
        if not isinstance(value, kinds):
            raise TypeError(f"an instruction fits no {type(value).__name__}")
        self._stack.append(value)
        return value

    # -- instructions

    def _proto(self) -> None:
        version = self._take(1)[0]
        if version > pickle.HIGHEST_PROTOCOL:
            raise ValueError(f"the pickle has protocol {version}")

    def _frame(self) -> None:
        count, left = self._number("<Q"), len(self._data) - self._place
        if count > left:
            raise ValueError(f"a frame of {count:,} bytes is declared, {left:,} are there")

    def _int(self) -> None:
        line = self._line()
        self._stack.append(line == b"01" if line in (b"00", b"01") else int(line))

    def _long(self) -> None:
        self._stack.append(int(self._line().removesuffix(b"L")))

    def _long_bytes(self, form: str) -> None:
        self._stack.append(int.from_bytes(self._take(self._number(form)), "little", signed=True))

    def _text(self, form: str) -> None:
        self._stack.append(str(self._take(self._number(form)), "utf-8", "surrogatepass"))

    def _tuple(self, count: int) -> None:
        self._stack.append(tuple([self._pop() for _ in range(count)][::-1]))

    def _append(self) -> None:
        value = self._pop()
        self._top(list).append(value)

    def _appends(self) -> None:
        values = self._marked()
        self._top(list).extend(values)

    def _setitem(self) -> None:
        value, key = self._pop(), self._pop()
        self._keyed.put(self._top(dict), [key], [value])

    def _setitems(self) -> None:
        items = self._marked()
        self._keyed.put(self._top(dict), items[::2], items[1::2])

    def _additems(self) -> None:
        items = self._marked()
        self._keyed.add(self._top(set), items)

    def _name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise TypeError("a name is no text")
        known = self._keyed.makers.get((module, name))
        self._stack.append(known if known is not None else self._find(module, name))

    def _global(self) -> None:
        module, name = self._line(), self._line()
        self._name(module.decode(), name.decode())

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self._name(module, name)

    def _reduce(self) -> None:
        arguments, maker = self._pop(), self._pop()
        if type(maker) is not Maker or type(arguments) is not tuple:
            raise TypeError(f"a {type(maker).__name__} cannot be called with a {type(arguments).__name__}")
        self._stack.append(maker.make(*arguments))

    def _build(self) -> None:
        """Passes over the attributes of PyTorch's state dicts, which are versions of modules; nothing else has any."""
        self._pop()
        changed = self._pop()
        if type(changed) is not OrderedDict:
            raise Refused(f"it sets the state of a {type(changed).__name__}, which is no state dict")
        self._stack.append(changed)

    def _get(self, form: str) -> None:
        self._stack.append(self._memo[self._number(form)])

    def _memoize(self, place: int) -> None:
        self._memo[place] = self._top(object)

    def _pop_one(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    STEPS: ClassVar[dict[bytes, Callable[[Any], None]]] = {
        pickle.PROTO: _proto,
        pickle.FRAME: _frame,
        pickle.MARK: lambda self: self._marks.append(len(self._stack)),
        pickle.POP: _pop_one,
        pickle.POP_MARK: lambda self: self._marked() and None,
        pickle.NONE: lambda self: self._stack.append(None),
        pickle.NEWTRUE: lambda self: self._stack.append(True),
        pickle.NEWFALSE: lambda self: self._stack.append(False),
        pickle.INT: _int,
        pickle.LONG: _long,
        pickle.BININT: lambda self: self._stack.append(self._number("<i")),
        pickle.BININT1: lambda self: self._stack.append(self._take(1)[0]),
        pickle.BININT2: lambda self: self._stack.append(self._number("<H")),
        pickle.LONG1: lambda self: self._long_bytes("<B"),
        pickle.LONG4: lambda self: self._long_bytes("<i"),
        pickle.BINFLOAT: lambda self: self._stack.append(struct.unpack(">d", self._take(8))[0]),
        pickle.SHORT_BINUNICODE: lambda self: self._text("<B"),
        pickle.BINUNICODE: lambda self: self._text("<I"),
        pickle.BINUNICODE8: lambda self: self._text("<Q"),
        pickle.SHORT_BINBYTES: lambda self: self._stack.append(self._take(self._take(1)[0])),
        pickle.BINBYTES: lambda self: self._stack.append(self._take(self._number("<I"))),
        pickle.BINBYTES8: lambda self: self._stack.append(self._take(self._number("<Q"))),
        pickle.BYTEARRAY8: lambda self: self._stack.append(bytearray(self._take(self._number("<Q")))),
        pickle.EMPTY_TUPLE: lambda self: self._stack.append(()),
        pickle.TUPLE1: lambda self: self._tuple(1),
        pickle.TUPLE2: lambda self: self._tuple(2),
        pickle.TUPLE3: lambda self: self._tuple(3),
        pickle.TUPLE: lambda self: self._stack.append(tuple(self._marked())),
        pickle.EMPTY_LIST: lambda self: self._stack.append([]),
        pickle.APPEND: _append,
        pickle.APPENDS: _appends,
        pickle.EMPTY_DICT: lambda self: self._stack.append({}),
        pickle.SETITEM: _setitem,
        pickle.SETITEMS: _setitems,
        pickle.EMPTY_SET: lambda self: self._stack.append(set()),
        pickle.ADDITEMS: _additems,
        pickle.FROZENSET: lambda self: self._stack.append(self._keyed.frozen(self._marked())),
        pickle.GLOBAL: _global,
        pickle.STACK_GLOBAL: _stack_global,
        pickle.REDUCE: _reduce,
        pickle.BUILD: _build,
        pickle.BINPERSID: lambda self: self._stack.append(self._persistent(self._pop())),
        pickle.BINGET: lambda self: self._get("<B"),
        pickle.LONG_BINGET: lambda self: self._get("<I"),
        pickle.BINPUT: lambda self: self._memoize(self._take(1)[0]),
        pickle.LONG_BINPUT: lambda self: self._memoize(self._number("<I")),
        pickle.MEMOIZE: lambda self: self._memoize(len(self._memo)),
    }
