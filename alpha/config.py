"""Every ALPHA_* environment variable: name, default, meaning. Read when asked for, never at import."""

from __future__ import annotations

import difflib
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpha.errors import ConfigError

VERSION = "0.1.0"
PREFIX = "ALPHA_"
FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True)
class Variable:
    """One environment variable; each of its readers takes the empty string as unset.

    A value that means nothing is a `ConfigError`, which names the values that are allowed.

    Attributes:
        kind: which of the methods below checks it.
        choices: the names that `choice` allows, if there is a fixed list of them.
    """

    name: str
    default: str
    meaning: str
    kind: str = "get"
    choices: tuple[str, ...] = ()

    def check(self) -> str:
        """Text that says what is wrong with the variable's value; empty if nothing is."""
        try:
            getattr(self, self.kind)()
        except ConfigError as error:
            return str(error)
        return ""

    def get(self) -> str:
        """The text as it is."""
        return os.environ.get(self.name) or self.default

    def flag(self) -> bool:
        """True or False, in one of the usual words, in capitals or not."""
        text = self.get()
        value = FLAGS.get(text.lower()) if text else False
        if value is None:
            raise ConfigError(f"{self.name}={text!r} is neither on ({_spelled(True)}) nor off ({_spelled(False)})")
        return value

    def integer(self) -> int:
        """A whole number of at least 0."""
        text = self.get()
        try:
            value = int(text)
        except ValueError:
            raise ConfigError(f"{self.name}={text!r} is not a whole number") from None
        if value < 0:
            raise ConfigError(f"{self.name}={value} is negative")
        return value

    def folder(self) -> Path | None:
        """A folder, which need not be there yet, or None."""
        path = self.path()
        if path is not None and os.path.lexists(path) and not os.path.isdir(path):  # noqa: PTH112
            raise ConfigError(f"{self.name}={self.get()!r} is no folder")
        return path

    def path(self) -> Path | None:
        """A path, in which `~`, `~user` and `$NAME` stand for what a shell puts in their place, or None."""
        text = self.get()
        if not text:
            return None
        expanded = os.path.expandvars(text)
        missing = re.search(r"\$(\w+|\{\w+\})", expanded)
        if missing and not os.path.lexists(expanded):
            raise ConfigError(f"{self.name}={text!r}: the variable {missing[0]} is not set")
        try:
            return user_path(expanded)
        except ConfigError as error:
            raise ConfigError(f"{self.name}={text!r}: there is no home folder; give the whole path") from error

    def choice(self, names: Iterable[str] = ()) -> str:
        """One of `names` (by default of `choices`), or the default."""
        text = self.get()
        allowed = tuple(names) or self.choices
        if text == self.default or text in allowed:
            return text
        close = difflib.get_close_matches(text, allowed, n=5, cutoff=0.4)
        use = f"did you mean {_listed(close)}?" if close and len(allowed) > 10 else f"use {_listed(allowed)}"
        raise ConfigError(f"{self.name}={text!r} is unknown: {use}")


def _spelled(value: bool) -> str:
    return ", ".join(word for word, meaning in FLAGS.items() if meaning is value)


def _listed(names: Iterable[str]) -> str:
    return " or ".join(", ".join(map(repr, names)).rsplit(", ", 1))


DEBUG = Variable("ALPHA_DEBUG", "0", "1: print each kernel configuration of a convolution once as it is chosen", "flag")
CONV_KERNEL = Variable("ALPHA_CONV_KERNEL", "", "force this kernel configuration of convolutions")
TUNE = Variable(
    "ALPHA_TUNE", "0", "1: time the kernel configurations of each convolution once, and take the fastest", "flag"
)
CUDA_DRIVER = Variable(
    "ALPHA_CUDA_DRIVER",
    "pycuda",
    "pycuda: the GPU; emulated: the same kernels run by the CPU",
    "choice",
    choices=("pycuda", "emulated"),
)
ISOLATE = Variable("ALPHA_ISOLATE", "0", "1: each GPU array is an allocation of its own, for compute-sanitizer", "flag")
CACHE_DIR = Variable("ALPHA_CACHE_DIR", "", "where compiled kernels are kept (default ~/.cache/alpha)", "folder")
COMPILER = Variable(
    "ALPHA_COMPILER", "", "nvcc or nvrtc; default: nvcc if it is found", "choice", choices=("nvcc", "nvrtc")
)
ARCH = Variable("ALPHA_ARCH", "", "compile for this architecture, e.g. sm_80 (default: the GPU's)")
EMULATED_SEED = Variable(
    "ALPHA_EMULATED_SEED", "0", "emulated driver: order of blocks, threads and streams; 0 is ascending", "integer"
)
EMULATED_BLOCKS = Variable(
    "ALPHA_EMULATED_BLOCKS",
    "",
    "emulated driver: order of the blocks alone, ascending, descending or shuffled (default: by the seed)",
    "choice",
    choices=("ascending", "descending", "shuffled"),
)
EMULATED_SANITIZE = Variable(
    "ALPHA_EMULATED_SANITIZE", "", "emulated driver: build kernels with e.g. address,undefined"
)
EMULATED_OPTIMIZE = Variable(
    "ALPHA_EMULATED_OPTIMIZE",
    "3",
    "emulated driver: -O of the C++ compiler; with 1 a kernel compiles in half the time",
    "integer",
)
EMULATED_DEBUG = Variable("ALPHA_EMULATED_DEBUG", "0", "1: emulated driver: build kernels for a debugger", "flag")
CPU_THREADS = Variable("ALPHA_CPU_THREADS", "0", "workers of the cpu operators; 0: one per core", "integer")
DATA_DIR = Variable(
    "ALPHA_DATA_DIR",
    "",
    "where datasets are kept (default: ~/.cache/alpha/datasets; datasets/ beside an Alpha that is installed in place)",
    "folder",
)

VARIABLES = tuple(value for value in list(globals().values()) if isinstance(value, Variable))


def reader(*variables: Variable) -> Callable[[], tuple[Any, ...]]:
    """A function that returns the texts of the variables as the process holds them, to see whether one has changed.

    It reads the dict below `os.environ`: a text is one look-up, where `Variable.get` makes four calls.
    """
    held: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
    keys = [getattr(os.environ, "encodekey", str)(variable.name) for variable in variables]
    return lambda: tuple(map(held.get, keys))


def user_path(path: str | os.PathLike[str]) -> Path:
    """A path that a program or a command line names, in which `~` or `~user` at the beginning is the home folder.

    Raises:
        ConfigError: there is no such home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{os.fspath(path)}: there is no home folder; give the whole path") from error


def cache_dir() -> Path:
    """The folder of compiled kernels and of what was measured.

    Raises:
        ConfigError: there is no home folder, as for a user without a name if HOME is not set.
    """
    path = CACHE_DIR.path()
    if path is not None:
        return path
    try:
        return Path.home() / ".cache" / "alpha"
    except (RuntimeError, KeyError) as error:
        raise ConfigError(f"there is no home folder for ~/.cache/alpha, since HOME is not set: {error}") from error


def table(columns: int) -> str:
    """The variables as text, in lines of so many columns, if a word fits; `python -m alpha.utils.doctor` prints it."""
    beside = 38  # names and values
    fold = textwrap.TextWrapper(max(columns, beside + 20), subsequent_indent=" " * beside, break_on_hyphens=False)
    fold.break_long_words = False
    lines = []
    for v in VARIABLES:
        begin = f"{v.name:24} {v.get() or '-':12} "
        if len(begin) > beside:  # a long value, as a path is: the meaning has the next line
            lines.append(begin.rstrip())
            begin = ""
        fold.initial_indent = begin.ljust(beside)
        lines += fold.wrap(v.meaning)
    return "\n".join(lines)


def unknown() -> list[str]:
    """One line for each ALPHA_* variable of the environment that Alpha does not read."""
    known = [v.name for v in VARIABLES]
    lines = []
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in known:
            close = difflib.get_close_matches(name.removeprefix(PREFIX), [k.removeprefix(PREFIX) for k in known], n=1)
            lines.append(f"{name} is unknown" + (f": did you mean {PREFIX}{close[0]}?" if close else ""))
    return lines
