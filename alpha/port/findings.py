"""Findings about a program: what a line must change, and why."""

from __future__ import annotations

import ast
from dataclasses import dataclass

__all__ = ["Finding", "Findings"]

LEVELS = {
    "import": "another module",
    "missing": "Alpha has no such name, or not this argument",
    "change": "the axes are others here",
    "look": "the axes are others here if this is a batch of images, a picture or a filter",
    "note": "matters for weights of PyTorch only",
}


@dataclass(frozen=True, order=True)
class Finding:
    """A line that must change, or that should be looked at.

    Attributes:
        line, column: where the expression begins, counted from 1.
        level: "import", "missing", "change", "look" or "note".
        code: the expression, shortened.
        why: the reason, and what to write.
    """

    line: int
    column: int
    level: str
    code: str
    why: str


class Findings:
    """The findings of a program, each once.

    Args:
        source: the text of the program.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: dict[tuple[int, int, str], Finding] = {}
        self.silent = 0  # above 0: nothing is noted, because code is read to learn what it returns

    def add(self, node: ast.AST, level: str, why: str) -> None:
        """Note a finding at a node of the syntax tree."""
        if self.silent:
            return
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        code = " ".join((ast.get_source_segment(self._source, node) or "").split())
        code = code if len(code) <= 70 else f"{code[:67]}.."
        self._found.setdefault((line, column, why), Finding(line, column, level, code, why))

    def all(self) -> list[Finding]:
        """All findings by line."""
        return sorted(self._found.values())
