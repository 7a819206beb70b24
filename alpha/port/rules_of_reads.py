"""Rules for what a program reads of a tensor: lengths of axes, indices, and the names that lengths are given."""

from __future__ import annotations

import ast
import re
from typing import Any

from alpha.port.expressions import (
    are_maps,
    are_sides,
    are_slices,
    axes_of_kind,
    axis_read,
    measured_tensor,
    name_of_kind,
    reads_shape,
)
from alpha.port.program_facts import KNOWN_KINDS, OF_PICTURE, Facts
from alpha.port.tensor_kinds import (
    CHANNELS,
    FORMS,
    HEIGHT,
    RANKS,
    WIDTH,
    Kind,
    axis_here,
    axis_meaning,
    integer,
    is_channels,
    is_length,
    last_name,
    named_kind,
)

__all__ = ["ReadRules"]

PART_OF_CHANNELS = "channels are the last axis: write [..., channels]"
PART_OF_PIXELS = "rows and columns of a map are the axes 1 and 2: write [:, rows, columns]"
PART_OF_PICTURE = "a picture is (H, W, C): write [rows, columns, channels]"


class ReadRules:
    """Rules for lengths of axes and for parts of tensors.

    Args:
        facts: about the program.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def length(self, node: ast.expr, tensor: ast.expr | None, axis: int | None, kind: Kind) -> None:
        """Look at a length, `x.size(1)` or `x.shape[1]`."""
        here = axis_here(axis, kind)
        if kind in ("map", "signal", "volume") and axis is not None and here:
            form = FORMS[RANKS[kind]]
            self._facts.report(
                node, f"axis {axis} of {form} is {axis_meaning(axis, kind)}: write axis {here}", known=True
            )
        elif kind == "picture" and axis in OF_PICTURE:
            self._facts.report(node, f"a picture is (H, W, C): write axis {OF_PICTURE[axis]}", known=True)
        elif kind == "map?" and axis is not None and here and last_name(tensor) in self._facts.rank4:
            self._facts.report(
                node, f"axis {axis} of (N, C, H, W) is {axis_meaning(axis, kind)}: write axis {here}", known=False
            )
        elif kind == "map?" and axis == 1 and last_name(tensor).endswith("s"):
            self._facts.report(node, "axis 1 of (N, C, H, W) is the channels: write axis -1", known=False)
        elif kind == "filter?" and here and (axis in (2, 3) or "conv" in last_name(getattr(tensor, "value", None))):
            self._facts.report(node, f"a filter is (out, height, width, in): write axis {here}", known=False)

    def index(self, node: ast.Subscript, kind: Kind, body: Any) -> None:
        """Look at an index of a tensor, or of its shape."""
        owner = node.value
        of_shape = isinstance(owner, ast.Attribute) and owner.attr == "shape"
        of_size = isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "size"
        if of_shape or of_size:
            tensor = owner.value if isinstance(owner, ast.Attribute) else owner.func.value  # type: ignore[attr-defined]
            self._of_shape(node, tensor, body.kind(tensor) or named_kind(last_name(tensor)))
        elif isinstance(node.slice, ast.Tuple):
            self._of_tensor(node, node.slice.elts, kind)
        elif (
            isinstance(owner, ast.Subscript)
            and None not in (integer(node.slice), integer(owner.slice))
            and body.kind(owner.value) == "filter?"
        ):
            self._facts.report(node, "a filter is (out, height, width, in): write weight[out, :, :, in]", known=False)

    def _of_shape(self, node: ast.Subscript, tensor: ast.expr, kind: Kind) -> None:
        """Look at an index or a range of a shape."""
        if not isinstance(node.slice, ast.Slice):
            self.length(node, tensor, integer(node.slice), kind)
            return
        begin, end = integer(node.slice.lower), node.slice.upper
        if end is not None or begin not in (2, -2) or kind in ("other", "flat"):
            return
        if kind == "filter?":
            self._facts.report(node, "a filter is (out, height, width, in): write shape[1:3]", known=True)
        elif kind in ("signal", "volume"):
            if begin == 2:
                form = f"the axes of a {name_of_kind(kind)} are {axes_of_kind(kind)}"
                self._facts.report(node, f"{form}: write shape[1:{RANKS[kind] - 1}]", known=True)
        elif kind in ("map", "map?") or begin == 2:
            self._facts.report(
                node,
                "rows and columns are the axes 1 and 2: write shape[1:3], of a picture shape[:2]",
                known=kind in KNOWN_KINDS,
            )

    def sides(self, node: ast.expr | None, body: Any) -> None:
        """Look at the size of maps that an operator is given, which `x.shape[-2:]` is not, whatever x is."""
        size = self._facts.value(node)
        if isinstance(size, ast.Call) and len(size.args) == 1:  # tuple(..), list(..)
            size = self._facts.value(size.args[0])
        if not (isinstance(size, ast.Subscript) and reads_shape(size.value) and isinstance(size.slice, ast.Slice)):
            return
        tensor = measured_tensor(size.value)
        if (
            integer(size.slice.lower) == -2
            and size.slice.upper is None
            and not (body.kind(tensor) or named_kind(last_name(tensor)))
        ):
            why = "rows and columns are the axes 1 and 2: write shape[1:3]"
            self._facts.report(size, why, known=True)

    def _of_tensor(self, node: ast.Subscript, parts: list[ast.expr], kind: Kind) -> None:
        """Look at an index of several axes, by the kind of its tensor."""
        new = [isinstance(part, ast.Constant) and part.value is None for part in parts]
        whole = [isinstance(part, ast.Slice) and not (part.lower or part.upper or part.step) for part in parts]
        if len(parts) >= 3 and new[-2:] == [True, True] and not any(new[:-2][-1:]) and (whole[-3] or len(parts) == 4):
            why = "channels beside a map are its last axis: write [:, None, None] of (N, C), and nothing of (C,)"
            self._facts.report(node, why, known=len(parts) == 4)
        elif any(new):
            return
        elif kind in ("map", "signal", "volume"):
            self._of_batch(node, parts, whole, kind)
        elif kind == "picture" and not all(whole):
            self._facts.report(node, PART_OF_PICTURE, known=True)
        elif kind in ("picture?", "map?") and whole == [True, False, False] and are_slices(parts):
            self._facts.report(node, PART_OF_PICTURE, known=False)
        elif kind in (None, "map?") and len(parts) == 4 and whole == [True, False, True, True]:
            self._facts.report(node, PART_OF_CHANNELS, known=False)
        elif kind == "map?":
            self._of_guessed_map(node, parts, whole)
        elif kind is None:
            self._of_unknown(node, parts, whole)

    def _of_batch(self, node: ast.Subscript, parts: list[ast.expr], whole: list[bool], kind: Kind) -> None:
        """Look at an index of a tensor that is known to have an axis of channels."""
        dots = [isinstance(part, ast.Constant) and part.value is Ellipsis for part in parts]
        spatial = {"signal": "positions", "volume": "slices, rows, columns"}.get(kind or "", "rows, columns")
        if dots[:1] == [True] and not all(whole[1:]):
            self._facts.report(node, f"the last axis is the channels: write [:, {spatial}]", known=True)
        elif True in dots:
            return
        elif len(parts) > 2 and not all(whole[2:]):
            self._facts.report(node, f"the axes begin with 1 behind the batch: write [:, {spatial}]", known=True)
        elif len(parts) > 1 and not whole[1]:
            self._facts.report(node, PART_OF_CHANNELS, known=True)

    def _of_guessed_map(self, node: ast.Subscript, parts: list[ast.expr], whole: list[bool]) -> None:
        """Look at an index of a tensor that is a map by its name."""
        if len(parts) == 2 and whole[0] and isinstance(parts[1], ast.List):
            self._facts.report(node, PART_OF_CHANNELS, known=False)
        elif len(parts) == 4 and whole[:2] == [True, True] and not all(whole):
            self._facts.report(node, PART_OF_PIXELS, known=False)

    def _of_unknown(self, node: ast.Subscript, parts: list[ast.expr], whole: list[bool]) -> None:
        """Look at an index of a tensor of which nothing is known."""
        if len(parts) == 4 and whole[:2] == [True, True]:
            if any(isinstance(part, ast.Slice) and (part.lower or part.step) for part in parts[2:]):
                self._facts.report(node, PART_OF_PIXELS, known=False)
        elif whole == [True, True, False] and (
            integer(parts[2]) == -1 or (self._facts.of_signals and isinstance(parts[2], ast.Slice))
        ):
            why = "the positions of (N, C, L) are axis 1: write [:, positions], if it is a sequence"
            self._facts.report(node, why, known=False)

    def unpacks_map(self, target: ast.expr, value: ast.expr) -> bool:
        """True if a shape of four axes is unpacked into names of channels, rows and columns."""
        names = [last_name(part) for part in target.elts] if isinstance(target, (ast.Tuple, ast.List)) else []
        return len(names) == 4 and reads_shape(value) and are_maps(names)

    def assigned(self, target: ast.expr, value: ast.expr, kind: Kind) -> None:
        """Look at names that are given to lengths of axes; remember tuples."""
        if isinstance(target, ast.Name):
            self._facts.values.pop(target.id, None)
            part_of_shape = isinstance(value, ast.Subscript) and reads_shape(value.value)
            if part_of_shape or isinstance(value, (ast.Tuple, ast.List, ast.BinOp)):
                self._facts.values[target.id] = value
        if not isinstance(target, (ast.Tuple, ast.List)):
            self._named_length(target, value, kind)
        elif reads_shape(value):
            self._named_shape(target.elts, value, kind)
        elif isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            for part, length in zip(target.elts, value.elts, strict=True):
                self.assigned(part, length, kind)
        elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) and len(target.elts) == 2:
            self._named_sides(target.elts, value, integer(value.slice.lower), kind)

    def _named_shape(self, targets: list[ast.expr], value: ast.expr, kind: Kind) -> None:
        """Look at the names into which a whole shape is unpacked."""
        names = [last_name(part) for part in targets]
        self._facts.axis_of = {**self._facts.axis_of, **{name: (n, len(names)) for n, name in enumerate(names)}}
        if len(names) == 4 and kind is None and named_kind(last_name(measured_tensor(value))) == "filter?":
            self._facts.report(
                value, "a filter is (out, height, width, in): write out, h, w, in = weight.shape", known=True
            )
        elif len(names) == 4 and (kind == "map" or are_maps(names)):
            self._facts.report(value, "a map is (N, H, W, C): write n, h, w, c = x.shape", known=True)
        elif len(names) == 3 and (kind == "signal" or (is_channels(targets[1]) and is_length(targets[2]))):
            self._facts.report(value, "a sequence is (N, L, C): write n, l, c = x.shape", known=kind == "signal")
        elif len(names) == 5 and kind == "volume":
            self._facts.report(value, "a volume is (N, D, H, W, C): write n, d, h, w, c = x.shape", known=True)
        elif len(names) == 3 and (CHANNELS.fullmatch(names[0]) or names[0] == "_") and are_sides(names[1:]):
            self._facts.report(value, "a picture is (H, W, C): write h, w, c = x.shape", known=names[0] != "_")

    def _named_sides(self, targets: list[ast.expr], value: ast.Subscript, begin: int | None, kind: Kind) -> None:
        """Look at two names for a part of a shape, which begins with the axis `begin`."""
        names = [last_name(part) for part in targets]
        if begin == 1 and reads_shape(value.value) and are_sides(names) and kind in ("picture?", "map?"):
            self._facts.report(value, "a picture is (H, W, C): write shape[:2]", known=False)
        if begin == -2 and HEIGHT.fullmatch(names[0]) and kind not in ("other", "map"):
            why = "rows and columns are the axes 1 and 2: write shape[1:3], of a picture shape[:2]"
            self._facts.report(value, why, known=True)

    def _named_length(self, target: ast.expr, value: ast.expr, kind: Kind) -> None:
        """Look at the name that is given to the length of one axis."""
        axis = axis_read(value)
        name = last_name(target)
        if axis is None or kind in ("map", "signal", "volume", "picture", "other", "flat"):
            return
        if (HEIGHT.fullmatch(name) and axis in (1, 2, -2)) or (WIDTH.fullmatch(name) and axis in (2, 3, -1)):
            rows = "rows" if HEIGHT.fullmatch(name) else "columns"
            batch, picture = (1, 0) if rows == "rows" else (2, 1)
            self._facts.report(
                value, f"the {rows} of (N, H, W, C) are axis {batch}, of a picture (H, W, C) axis {picture}", known=True
            )
        elif re.fullmatch(r"(n_?)?(c|ch)|(\w+_)?(channels?|planes)", name) and axis == 1:
            self._facts.report(value, "the channels are the last axis: write -1", known=False)
