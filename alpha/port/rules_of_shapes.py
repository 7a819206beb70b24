"""Rules for shapes: tensors that are made with sizes, views, and permutations of axes."""

from __future__ import annotations

import ast

from alpha.port.expressions import called_on, is_pixel_count, is_product, is_turn
from alpha.port.program_facts import KNOWN_KINDS, Facts
from alpha.port.tensor_kinds import (
    RANKS,
    Kind,
    axis_here,
    integer,
    integers,
    is_channels,
    is_length,
    is_spatial,
    last_name,
    named_kind,
)

__all__ = ["ShapeRules"]

SWAPS: dict[tuple[int, ...], str] = {(0, 2, 3, 1): "channels are last already", (0, 3, 1, 2): "channels stay last"}
PICTURE_SWAPS: dict[tuple[int, ...], str] = {
    (1, 2, 0): "a picture is (H, W, C) already",
    (2, 0, 1): "a picture stays (H, W, C)",
}
GRAM = "; with y = x.view(b, h * w, c) a Gram matrix is y.mT @ y"
FLATTENED = (
    "features of a flattened map are counted pixel by pixel here: weights of PyTorch for the "
    "layer behind it need a turn, "
    "which load_state_dict makes by itself in a Sequential, or after alpha.nn.utils.find_flattened(model, x)"
)


class ShapeRules:
    """Rules for the sizes and the order of axes that a program asks for.

    Args:
        facts: about the program.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def created(self, node: ast.Call, args: list[ast.expr]) -> None:
        """Look at the sizes of a tensor that is made."""
        if args and isinstance(args[0], (ast.Tuple, ast.List)):
            args = list(args[0].elts)
        if len(args) == 5 and self._facts.of_volumes and (is_channels(args[1]) or integer(args[1]) in (1, 2, 3, 4)):
            self._facts.report(node, "channels are the last axis: write the sizes as (n, d, h, w, c)", known=True)
            return
        if len(args) == 3 and self._facts.of_signals and is_channels(args[1]):
            self._facts.report(
                node, "channels are the last axis of sequences: write the sizes as (n, l, c)", known=False
            )
            return
        if len(args) not in (3, 4):
            return
        channels, rows, columns = args[-3:]
        sides = [integer(part) for part in (rows, columns)]
        square = ast.dump(rows) == ast.dump(columns) and (sides[0] == 1 or (sides[0] or 0) > 3 or is_spatial(rows))
        spatial = square or (is_spatial(rows) and is_spatial(columns))
        if sides == [1, 1] and integer(channels) == 1:
            return
        few = integer(channels) in (1, 2, 3, 4) or (
            len(args) == 4 and (is_channels(channels) or (integer(channels) or 0) > 4)
        )
        if not (few and spatial) or (len(args) == 3 and sides[0] == 1):
            return
        form = "(n, h, w, c)" if len(args) == 4 else "(h, w, c)"
        self._facts.report(node, f"channels are the last axis: write the sizes as {form}", known=True)

    def viewed(self, name: str, node: ast.Call, kind: Kind) -> Kind:
        """Look at a view, reshape or flatten, and return the kind of its result."""
        sizes = self._sizes_of(node)
        numbers = [integer(size) for size in sizes]
        if name == "flatten":
            return self._flattened(node, numbers, kind)
        if len(sizes) == 2:
            return self._viewed_as_two(node, sizes, kind)
        if len(sizes) in (3, 4) and numbers[-2:] == [1, 1] and (numbers[-3] != 1 or kind == "map"):
            return self._viewed_beside_map(node, sizes)
        if len(sizes) == 3:
            return self._viewed_as_three(node, sizes, kind)
        if len(sizes) in (4, 5) and numbers[:2] != [1, 1]:  # (1, 1, T, T) is a mask
            return self._viewed_as_map(node, sizes)
        return None

    def _flattened(self, node: ast.Call, numbers: list[int | None], kind: Kind) -> Kind:
        """Look at a flatten, whose arguments behind the tensor are `numbers`, and return the kind of its result."""
        start = next((integer(k.value) for k in node.keywords if k.arg == "start_dim"), numbers[0] if numbers else 0)
        if kind == "map" and start == 2:
            self._facts.report(
                node,
                "the pixels of a map are its axes 1 and 2: write .flatten(1, 2), which gives (N, H W, C)",
                known=True,
            )
            return "columns"
        if kind in ("map", "signal", "volume") and start == 1:
            self._facts.findings.add(node, "note", FLATTENED)
        end = next((integer(k.value) for k in node.keywords if k.arg == "end_dim"), [*numbers, 0, 0, -1][1])
        if (start, end) == (0, 1) and (kind in RANKS or (kind is None and self._facts.of_images)):
            self._facts.report(
                node,
                "joins the images with their channels, here with their rows: write x.movedim(-1, 1).flatten(0, 1), "
                "if it is a map",
                known=kind in KNOWN_KINDS,
            )
        return "flat" if start == 1 else None

    def _viewed_as_two(self, node: ast.Call, sizes: list[ast.expr], kind: Kind) -> Kind:
        """Look at a view with two axes and return the kind of its result."""
        if kind in ("map", "signal", "volume") and -1 in map(integer, sizes):
            self._facts.findings.add(node, "note", FLATTENED)
            return "flat"
        if self._mixes(sizes):
            self._columns(node)
            return "other"
        return "other" if kind in ("flat", "other") else None

    def _viewed_beside_map(self, node: ast.Call, sizes: list[ast.expr]) -> Kind:
        """Look at a view as (N, C, 1, 1) or (C, 1, 1), which stands beside a map, and return the kind of its result."""
        rank = ", 1" * (len(sizes) - 3)
        self._facts.report(
            node,
            f"the channels are the last axis: write "
            f"view({'-1' if len(sizes) == 3 else 'n'}{rank}, 1, c), or leave it out for a vector",
            known=True,
        )
        return "map" if len(sizes) == 4 else None

    def _viewed_as_three(self, node: ast.Call, sizes: list[ast.expr], kind: Kind) -> Kind:
        """Look at a view with three axes and return the kind of its result."""
        numbers = [integer(size) for size in sizes]
        pixels = is_pixel_count(sizes[2])
        certain = kind in ("map", "map?") or is_channels(sizes[1])
        if (pixels and certain) or (numbers[2] == -1 and kind == "map"):
            self._columns(node)
            return "columns"
        if all(map(is_spatial, sizes[1:])) and (is_channels(sizes[0]) or numbers[0] in (1, 3)):
            self._facts.report(node, "a picture is (H, W, C): write the sizes so", known=True)
            return "picture"
        if is_channels(sizes[1]) and is_length(sizes[2]):
            self._facts.report(node, "a sequence is (N, L, C): write view(n, l, c)", known=kind == "signal")
            return "signal"
        return "other"

    def _viewed_as_map(self, node: ast.Call, sizes: list[ast.expr]) -> Kind:
        """Look at a view with four axes, or with groups of channels five, and return the kind of its result."""
        numbers = [integer(size) for size in sizes]
        grouped = len(sizes) == 5
        equal = None not in numbers[-2:] and numbers[-1] == numbers[-2] and (numbers[-1] or 0) > 1
        two = ast.dump(sizes[-1]) == ast.dump(sizes[-2]) and not isinstance(sizes[-1], ast.Constant)
        if equal or two or (is_spatial(sizes[-1]) and is_spatial(sizes[-2])):
            self._facts.report(
                node,
                "groups of channels are the last two axes: write view(n, h, w, groups, c), and exchange its axes 3 "
                "and 4, not 1 and 2"
                if grouped
                else "a map is (N, H, W, C): write the channels last; weights of PyTorch for the "
                "layer that gives the features need unflattened=",
                known=True,
            )
            return "grouped" if grouped else "map"
        return "other"

    def _columns(self, node: ast.AST) -> None:
        """Report a view that puts the pixels of a map into one axis."""
        self._facts.report(
            node,
            "this mixes channels and pixels here: write y = x.view(b, h * w, c); a Gram matrix is "
            "y.mT @ y, tokens are y itself",
            known=True,
        )

    def _mixes(self, sizes: list[ast.expr]) -> bool:
        """True for the sizes of `x.view(b * c, h * w)`, which join a batch with its channels, and rows with columns."""
        first, second = sizes
        if not (is_product(first) and is_product(second)):
            return False
        return is_pixel_count(second) or self._rank4(second)

    def _rank4(self, node: ast.expr) -> bool:
        """True if an expression has two variables, and they are the last two lengths of a shape with four axes."""
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return len(names) == 2 and all(self._facts.axis_of.get(name) in ((2, 4), (3, 4)) for name in names)

    def permuted(self, node: ast.Call, kind: Kind) -> Kind:
        """Look at a permutation of axes and return the kind of its result."""
        numbers = [integer(size) for size in self._sizes_of(node)]
        axes = tuple(n for n in numbers if n is not None)
        if len(axes) != len(numbers):
            return None
        if axes in SWAPS:
            self._facts.report(node, f"{SWAPS[axes]}: leave it out", known=True)
            return "other" if axes == (0, 2, 3, 1) else "map"
        if axes in PICTURE_SWAPS and kind not in ("other", "flat"):
            self._facts.report(
                node, f"{PICTURE_SWAPS[axes]}: leave it out", known=named_kind(last_name(called_on(node))) is not None
            )
            return "picture" if axes == (2, 0, 1) else None
        if kind == "grouped" and (axes == (0, 2, 1, 3, 4) or set(axes) == {1, 2}):
            self._facts.report(
                node, "the groups and their channels are the axes 3 and 4: write transpose(3, 4)", known=True
            )
            return kind
        if kind in ("signal", "columns") and is_turn(axes):
            what = "a sequence is (N, L, C)" if kind == "signal" else "the pixels of a map are axis 1"
            self._facts.report(node, f"{what} already: leave it out" + GRAM * (kind == "columns"), known=True)
            return "other"
        if kind in ("map", "volume", "signal") and len(axes) == 2 and any(axis_here(axis, kind) for axis in axes):
            written = ", ".join(axis_here(axis, kind) or str(axis) for axis in axes)
            self._facts.report(node, f"write the axes {written}", known=True)
            return None
        return "other" if kind in ("columns", "other", "flat") else None

    def numpy(self, node: ast.Call, name: str) -> None:
        """Look at a permutation of axes by a function of numpy."""
        if name in ("transpose", "moveaxis", "rollaxis") and len(node.args) > 1:
            axes = tuple(integers(node.args[1]) or ())
            if axes in PICTURE_SWAPS or axes in SWAPS:
                self._facts.report(node, f"{ {**PICTURE_SWAPS, **SWAPS}[axes] }: leave it out", known=True)

    def _sizes_of(self, node: ast.Call) -> list[ast.expr]:
        """The sizes of a view, or the axes of a permutation, that a call gives."""
        args = list(node.args[1:] if self._facts.names.of(node.func) else node.args)
        if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
            args = list(args[0].elts)
        return args
