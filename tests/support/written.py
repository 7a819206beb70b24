"""Checks that launches say what they write: by what kernels are declared to take, and by what they do."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, State, Table
from alpha.runtime import recording
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.recording import About, Listener


@functools.cache
def parameters_of(source: str, entry: str) -> list[str]:
    """The parameters of a kernel of `cuda/<source>`, each with its type."""
    text = re.sub(r"//[^\n]*", "", (source_root() / source).read_text())
    begin = re.search(rf"__global__[^;{{}}]*?\b{entry}\(", text)
    assert begin, f"{source} has no kernel {entry}"
    found, depth, part = [], 0, ""
    for character in text[begin.end() :]:
        depth += (character in "([<") - (character in ")]>")
        if depth < 0:
            break
        if character == "," and depth == 0:
            found.append(part.strip())
            part = ""
        else:
            part += character
    return [*found, part.strip()]


def undeclared(launch: KernelLaunch, plan: Plan, arrays: Mapping[str, Any]) -> list[str]:
    """Arrays that a kernel is given, and of which the launch does not say what the parameters of the kernel say.

    One that it may write must be said to be written, and one that is const must not, unless it is a workspace.
    """
    found = []
    parameters, written = parameters_of(launch.source, launch.entry), plan.written(launch)
    for argument, parameter in zip(launch.arguments, parameters, strict=True):
        title, may_write = f"{launch.source}:{launch.entry}", "const" not in parameter
        if isinstance(argument, ArrayArg) and arrays.get(argument.name) is not None:
            said = argument.name in written
            if may_write and not said:
                found.append(f"{title} may write {parameter}")
            if said and not may_write and argument.name not in plan.workspaces:
                found.append(f"{title} only reads {parameter}")
        elif isinstance(argument, Table) and may_write and not isinstance(argument, State):
            found.append(f"{title} may write {parameter}")
    return found


class WriteChecker(Listener):
    """Reads the arrays of each launch that it does not say it writes, before and after it.

    Args:
        computes: whether the device computes. Otherwise only the parameters of kernels are looked at.

    Attributes:
        found: what is written though the launch does not say so.
        launches: how many were checked.
    """

    def __init__(self, computes: bool) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.launches = 0
        self._computes = computes
        self._before: list[tuple[str, DeviceArray, bytes]] = []

    def note(
        self, arrays: Iterable[Any], *node: Any, about: tuple[About, Any] | None = None, read: int | None = None
    ) -> None:
        self.compare()
        if about is None:  # it may write all of its arrays
            return
        launch: Any = about[0]
        self.launches += 1
        self.found.update(undeclared(launch._launch, launch._plan, about[1]))
        if not self._computes:
            return
        names = {id(array): name for name, array in about[1].items()}
        written = {id(array) for array in launch.written(about[1])}
        for array in arrays:
            if isinstance(array, DeviceArray) and id(array) not in written:
                title = f"{node[0]} writes {names.get(id(array), 'a table')}"
                self._before.append((title, array, _bytes(array)))

    def compare(self) -> None:
        """Note what the last launch has written."""
        self.found.update(title for title, array, before in self._before if _bytes(array) != before)
        self._before = []


def _bytes(array: DeviceArray) -> bytes:
    target = np.empty(array.nbytes, np.uint8)
    if array.nbytes:
        array.device.driver.download(target, array.address)
    return target.tobytes()


@contextmanager
def checked_writes(computes: bool = True) -> Iterator[WriteChecker]:
    """Checks all launches within."""
    checker, before = WriteChecker(computes), recording.state.listener
    recording.state.listener = checker
    try:
        yield checker
        checker.compare()
    finally:
        recording.state.listener = before
