"""Record of what has run on the host in the calls of a step: the program's code, and what it has asked the system for.

A step can only depend on what its code reads. What functions are called is not always known from their names, so the
first calls of a step are watched by Python's own means (`sys.setprofile`), which tells of each function that begins,
written in Python or in C. Alpha's and numpy's functions are known and left out; those of Python's library and of other
packages are looked at as the program's own. A C function shows no code, so it must be in a list of functions whose
result depends on their arguments alone.

A function or a class in a module of Alpha may be exchanged, as by `alpha.nn.functional.relu = f`. Alpha's functions
call each other by thousands of names, too many to compare before each replay. So its modules count what is assigned to
them from outside.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from alpha.step.sources.code import BY_NAME, facts, is_proven, is_standard

# modules of C functions whose results depend on the arguments alone
_PURE = frozenset(
    [
        "math",
        "cmath",
        "_operator",
        "operator",
        "itertools",
        "_functools",
        "_collections",
        "_collections_abc",
        "_abc",
        "_weakref",
        "_struct",
        "zlib",
        "binascii",
        "_bisect",
        "_heapq",
        "_statistics",
        "_sre",
        "_string",
        "_codecs",
        "unicodedata",
        "_hashlib",
        "_blake2",
        "_md5",
        "_sha1",
        "_sha2",
        "_sha3",
        "_sha256",
        "_sha512",
        "atexit",
        "_warnings",
        "_typing",
        "_stat",
        "_opcode",
        "_ast",
        "_symtable",
        "_json",
        "_csv",
        "array",
        "_contextvars",
        "_datetime",
        "_decimal",
        "faulthandler",
        "errno",
        "marshal",
        "_locale",
    ]
)
_PURE_OF = {  # of other modules these functions alone
    "posix": "fspath getpid",
    "nt": "fspath getpid",
    "sys": "intern getsizeof exc_info exception is_finalizing getdefaultencoding getfilesystemencoding audit "
    "getfilesystemencodeerrors",
    "_io": "text_encoding",
    "io": "text_encoding",
    "_imp": "acquire_lock release_lock lock_held",
    "_thread": "allocate_lock allocate get_ident RLock get_native_id",
    "time": "sleep",
    "gc": "isenabled",
}
_IMPURE_BUILTINS = frozenset(("open", "input", "breakpoint"))
_OUTPUT = {("logging", name) for name in ("debug", "info", "warning", "error", "exception", "critical", "log")} | {
    ("warnings", name) for name in ("warn", "warn_explicit", "showwarning")
}
_STREAMS = frozenset(("write", "writelines", "flush"))
_CLOCKS = frozenset(("now", "today", "utcnow"))
_PURE_TYPES = frozenset(  # modules of types whose methods read the object and their arguments alone
    [
        "builtins",
        "itertools",
        "collections",
        "_collections",
        "array",
        "re",
        "_sre",
        "_struct",
        "decimal",
        "datetime",
        "_decimal",
        "functools",
        "types",
        "fractions",
        "_thread",
        "threading",
        "_contextvars",
        "contextvars",
        "hashlib",
        "_hashlib",
        "_blake2",
        "_sha1",
        "_sha2",
        "_sha3",
        "_md5",
        "_sha256",
        "_sha512",
        "weakref",
        "operator",
        "_operator",
        "ctypes",
        "_ctypes",
        "random",
        "_random",
        "enum",
        "typing",
        "zoneinfo",
        "_json",
        "string",
    ]
)
_NUMPY_FILES = ("npyio", "_datasource", "memmap", "_format_impl")

_INNER = ("alpha.runtime", "alpha.step")

_KNOWN, _STANDARD, _PROGRAM, _SILENT = "known", "standard", "program", "silent"


class Ran:
    """The functions that have run in the calls of a step that were watched.

    Attributes:
        codes: the codes that are not known, each with the global variables of its functions.
        names: what these name, and the names of all functions that have run, those of Alpha, too.
        own_names: what those name that are not Alpha's.
        computes: whether one of them may read attributes that it does not name.
        asked: what the last call has asked for that is not among its arguments, such as the time, in words.
    """

    def __init__(self) -> None:
        self.codes: dict[tuple[types.CodeType, int], dict[str, Any]] = {}
        self.names: set[str] = set()
        self.own_names: set[str] = set()
        self.computes = False
        self.asked: list[str] = []
        self._kinds: dict[types.CodeType, str] = {}
        self._silent: Any = None  # the frame that only writes something for people to read, or is none of the step
        self._of_gc: set[Any] = set()  # the codes that the garbage collector calls, whenever it runs

    @property
    def count(self) -> int:
        """Number of codes and names that are known: it grows with each function that runs for the first time."""
        return len(self.codes) + len(self.names)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what runs inside, in this thread."""
        self.asked, self._silent = [], None
        self._of_gc = {getattr(callback, "__code__", None) for callback in gc.callbacks}
        other = sys.getprofile()
        if other is not None and not callable(other):
            self.asked.append(f"a {type(other).__name__} is active, which hides from Alpha what the step calls")
            yield
            return
        sys.setprofile(self._told if other is None else self._telling(other))
        try:
            yield
        finally:
            sys.setprofile(other)
            self._silent = None

    def _telling(self, other: Callable[..., Any]) -> Callable[..., Any]:
        """Profiler that tells the profiler of the program, too."""

        def tell(frame: types.FrameType, event: str, arg: Any) -> None:
            other(frame, event, arg)
            self._told(frame, event, arg)

        return tell

    def _told(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            kind = self._kinds.get(code) or self._kind(frame)
            if kind is _KNOWN or self._silent is not None:
                return
            if kind is _SILENT:
                self._silent = frame
            elif not _serves_runtime(frame) if kind is _PROGRAM else not _serves_alpha(frame):
                self._note(code, frame.f_globals)
        elif event == "return":
            if frame is self._silent:
                self._silent = None
        elif event == "c_call":
            if self._silent is None and self._kinds.get(frame.f_code) in (_STANDARD, _PROGRAM):
                if arg is print:
                    self._silent = arg
                elif (why := asks(arg)) and not (self._kinds[frame.f_code] is _STANDARD and _serves_alpha(frame)):
                    self.asked.append(f"it calls {why}, at {_place(frame)}")
        elif self._silent is arg and arg is not None:  # "c_return" or "c_exception" of print
            self._silent = None

    def _kind(self, frame: types.FrameType) -> str:
        code, module = frame.f_code, frame.f_globals.get("__name__")
        module = module if isinstance(module, str) else ""
        if code in self._of_gc or code.co_name == "__del__":
            kind = _SILENT
        elif module.startswith("numpy") and any(part in module for part in _NUMPY_FILES):
            kind = _PROGRAM
        elif is_proven(module) and not module.startswith(BY_NAME):
            kind = _KNOWN
            if module.startswith("alpha") and not module.startswith(_INNER) and code.co_name != "__init__":
                self.names.add(code.co_name)
        elif is_standard(module):
            kind = _SILENT if (module.split(".")[0], code.co_name) in _OUTPUT else _STANDARD
        else:
            kind = _PROGRAM
        self._kinds[code] = kind
        return kind

    def _note(self, code: types.CodeType, scope: dict[str, Any]) -> None:
        if (code, id(scope)) not in self.codes:
            self.codes[code, id(scope)] = scope
            found = facts(code)
            self.names |= found.names
            if not str(scope.get("__name__")).startswith(BY_NAME):
                self.own_names |= found.names
            if code.co_name != "__init__" or not is_standard(scope.get("__name__")):
                self.names.add(code.co_name)
            self.computes |= found.computes


def _serves_runtime(frame: types.FrameType) -> bool:
    """True if the runtime of Alpha has called the function, such as a finalizer; it knows no functions of a program."""
    outer = frame.f_back
    return outer is not None and str(outer.f_globals.get("__name__")).startswith("alpha.runtime")


def _serves_alpha(frame: types.FrameType) -> bool:
    """True if a function of Python's library runs because Alpha or another known library has called it."""
    outer = frame.f_back
    while outer is not None:
        module = outer.f_globals.get("__name__")
        if not is_standard(module if isinstance(module, str) else ""):
            return is_proven(module) and not str(module).startswith(BY_NAME)
        outer = outer.f_back
    return False


def _place(frame: types.FrameType) -> str:
    """The line of the program that is running."""
    inner = frame
    while inner.f_back is not None and is_standard(inner.f_globals.get("__name__")):
        inner = inner.f_back
    return f"{inner.f_code.co_filename}:{inner.f_lineno}"


def asks(function: Any) -> str:
    """The name of a C function whose result may depend on more than its arguments; empty if it does not."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if owner is None:
        return ""
    if isinstance(owner, types.ModuleType):
        module = owner.__name__
        if module == "builtins":
            return name if name in _IMPURE_BUILTINS else ""
        if module in _PURE or name in _PURE_OF.get(module, "").split():
            return ""
        if is_proven(module):
            return f"{module}.{name}" if name in ("fromfile", "memmap") else ""
        return f"{'os' if module in ('posix', 'nt') else module}.{name}"
    kind = owner if isinstance(owner, type) else type(owner)
    own = next((base for base in kind.__mro__ if name in vars(base)), kind)
    if name in _CLOCKS and own.__module__ == "datetime":
        return f"{own.__name__}.{name}"
    if own.__module__.split(".")[0] in _PURE_TYPES or (is_proven(own.__module__) and name != "tofile"):
        return ""
    if own.__module__ == "_io" and (own.__name__ in ("StringIO", "BytesIO") or name in _STREAMS):
        return ""
    if own.__module__ == "_asyncio" or own.__module__ not in sys.modules:
        return f"{own.__module__}.{own.__name__}.{name}"
    return f"{own.__name__}.{name}"


_count = 0


class _Counting(ModuleType):
    """A module that counts how often one of its attributes is assigned or deleted."""

    def __setattr__(self, name: str, value: Any) -> None:
        global _count
        _count += 1
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        global _count
        _count += 1
        super().__delattr__(name)


def count_exchanges() -> None:
    """Let all modules of Alpha that are imported by now count."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "alpha" and type(module) is ModuleType:
            module.__class__ = _Counting


def exchanges() -> tuple[int, ...]:
    """Number of times that something was exchanged."""
    return (_count,)
