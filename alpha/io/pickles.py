"""Pickles of plain data, read without running anything that they name.

`Reader` knows the instructions that plain data and tensors need, in protocols 1 to 5, and no other: none makes an
object of a class, sets an attribute or imports. A name in a pickle is what the caller's `find` gives for it; it may
be called if that is a `Maker`. What a pickle costs is bounded by its length: lengths are compared with what is left
before anything is allocated, and what makes much of little (a part that is used many times) is paid from a `Budget`.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar

from alpha.io.pickle_parts import Budget, Keyed, Maker, Refused


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
        """What is above the last mark, taken from the stack."""
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
