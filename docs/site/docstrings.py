"""Extension of griffe, which reads the docstrings for the API: the shapes of a first line get a line of their own."""

from __future__ import annotations

import re
from typing import Any

import griffe

SHAPES = re.compile(r"(.*?\S) {3,}(\S.*)")  # `The sine, elementwise   x (...) -> (...)`


class Shapes(griffe.Extension):
    """Set the shapes behind three spaces as code, on the line below."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.is_alias or obj.docstring is None:
            return
        first, *rest = obj.docstring.value.split("\n")
        if found := SHAPES.fullmatch(first):
            obj.docstring.value = "\n".join([found[1], "", f"`{found[2]}`", *rest])
