"""Exceptions between two instructions of Alpha's own code: one run of a program for each instruction, for tests.

A test tries a few instructions of its program. With ALPHA_TEST_CUTS=all it tries each one that the program meets, which
takes minutes.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import alpha

PACKAGE = Path(alpha.__file__).parent
ALL = os.environ.get("ALPHA_TEST_CUTS", "") == "all"


class Cut(KeyboardInterrupt):
    """The exception that is raised; a class of its own, so that no other one is taken for it."""


class Cutter:
    """Raises `Cut` before an instruction of the files of `folders` of Alpha.

    Args:
        number: which one, counted as they run, from 1; 0 for none.

    Attributes:
        met: each instruction that has run: its code and its offset there.
    """

    def __init__(self, number: int, *folders: str) -> None:
        assert all((PACKAGE / folder).exists() for folder in folders), folders
        self._number, self._folders = number, tuple(str(PACKAGE / folder) for folder in folders)
        self.met: list[tuple[CodeType, int]] = []

    @property
    def place(self) -> str:
        """The last instruction, in words."""
        code, offset = self.met[-1]
        line = max((line or 0 for start, end, line in code.co_lines() if start <= offset < end), default=0)
        return f"instruction {len(self.met)}: {Path(code.co_filename).name}:{line}, {code.co_name} + {offset}"

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename.startswith(self._folders):
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self._step
        return None

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            self.met.append((frame.f_code, frame.f_lasti))
            if len(self.met) == self._number:
                raise Cut  # and nothing is traced from here on
        return self._step

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count inside."""
        sys._getframe().f_trace_opcodes = True  # Python 3.12 tells of instructions only if a frame has asked before
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(None)

    def run(self, program: Callable[[], object]) -> str:
        """Run a program that is cut off; the place."""

        def alone() -> Iterator[None]:
            with self.running():
                program()
            yield

        try:
            next(alone())  # what a cut leaves of an exception that is being handled ends with the generator
        except Cut:
            return self.place
        return ""


def instructions(program: Callable[[], object], few: int, *folders: str) -> list[int]:
    """Numbers of instructions that the program meets, one of each place in its code; or `few`, with the last ones."""
    cutter = Cutter(0, *folders)
    cutter.run(program)
    draw = random.Random(few)
    places: dict[tuple[CodeType, int], list[int]] = {}
    assert cutter.met, "the program meets no instruction of these files"
    for number, place in enumerate(cutter.met, 1):
        places.setdefault(place, []).append(number)
    found = sorted(draw.choice(numbers) for numbers in places.values())
    last = found[-(few // 4) :]
    return found if ALL or len(found) <= few else sorted([*draw.sample(found[: -len(last)], few - len(last)), *last])
