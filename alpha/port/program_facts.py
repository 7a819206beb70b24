"""Facts about a program of PyTorch that all of its rules share, and the one way in which rules report."""

from __future__ import annotations

import ast

from alpha.port.findings import Findings
from alpha.port.torch_names import Names

__all__ = ["Facts"]

# sets of axes that a reduction of images or volumes takes, without that of the batch
AXES_OF_IMAGES = ({2, 3}, {-1, -2}, {1, 2, 3})
AXES_OF_IMAGES_OR_VOLUMES = (*AXES_OF_IMAGES, {2, 3, 4}, {-1, -2, -3}, {1, 2, 3, 4})
# for an axis of a picture in PyTorch, its number in Alpha
OF_PICTURE = {0: "-1", 1: "0", 2: "1", -1: "1", -2: "0", -3: "-1"}
KNOWN_KINDS = ("map", "signal", "volume", "picture", "columns")  # kinds whose findings are certain


class Facts:
    """Facts about a program, and about the function that is being read.

    Args:
        names: what PyTorch calls the names of the program.
        findings: to which rules add.

    Attributes:
        of_images, of_signals, of_volumes: True if the program has layers of these.
        axis_of: for a variable that is a length, the number of its axis and of how many.
        values: for a variable that is a tuple, a list or a part of a shape, the expression.
        rank4: the variables whose indices or shapes show four axes.
    """

    def __init__(self, names: Names, findings: Findings) -> None:
        self.names, self.findings = names, findings
        self.of_images = self.of_signals = self.of_volumes = False
        self.axis_of: dict[str, tuple[int, int]] = {}
        self.values: dict[str, ast.expr] = {}
        self.rank4: set[str] = set()

    def begin(self) -> None:
        """Forget the variables of the last function, before another one is read."""
        self.axis_of, self.values, self.rank4 = {}, {}, set()

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """The tuple or list that a variable is, or the expression itself."""
        return self.values.get(node.id, node) if isinstance(node, ast.Name) else node

    def report(self, node: ast.AST, why: str, known: bool) -> None:
        """Add a finding: "change" if the kind of its tensor is known, "look" if it is a guess or not known."""
        self.findings.add(node, "change" if known else "look", why)
