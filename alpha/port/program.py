"""A program of PyTorch, read by Python's `ast`: the findings about its names and its axes."""

from __future__ import annotations

import ast

from alpha.errors import AlphaError
from alpha.port.findings import Finding, Findings
from alpha.port.program_axes import read_axes
from alpha.port.torch_names import Names

__all__ = ["NotAProgram", "read_program"]


class NotAProgram(AlphaError):
    """A text that is no program of Python."""


def read_program(source: str, name: str = "the program") -> list[Finding]:
    """Read what a program of PyTorch must change to run in Alpha; it is not run.

    Args:
        source: its text.
        name: how errors call it.

    Returns:
        The findings by line. Levels: "import" (another module), "missing" (a name or an argument that Alpha does not
        have), "change" (axes that mean channels or pixels), "look" (the same, if the tensor is what it seems to be),
        "note" (what matters only if weights of PyTorch are loaded).

    Raises:
        NotAProgram: the text is no Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        raise NotAProgram(f"{name}{where}: is no program of Python 3: {getattr(error, 'msg', error)}") from error
    findings = Findings(source)
    names = Names(tree, findings)
    read_axes(tree, names, findings)
    return findings.all()
