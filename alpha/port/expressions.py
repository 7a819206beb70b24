"""Questions about expressions of a program of PyTorch, which its syntax tree answers."""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from alpha.port.tensor_kinds import CHANNELS, HEIGHT, WIDTH, Kind, integer, is_spatial, last_name


def are_slices(parts: list[ast.expr]) -> bool:
    """True if all parts of an index are ranges."""
    return all(isinstance(part, ast.Slice) for part in parts)


def are_sides(names: list[str]) -> bool:
    """True for the names of a height and a width."""
    return HEIGHT.fullmatch(names[0]) is not None and WIDTH.fullmatch(names[1]) is not None


def measured_tensor(node: ast.expr) -> ast.expr:
    """The tensor of `x.shape` and `x.size()`."""
    part = node.func if isinstance(node, ast.Call) else node
    return part.value if isinstance(part, ast.Attribute) else part


def of_dataset(node: ast.expr | None) -> bool:
    """True for the images of a dataset, as `self.train_set.data`."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("data", "train_data", "test_data")
        and re.search(r"(data|train|test)_?set|mnist|cifar", last_name(node.value), re.IGNORECASE) is not None
    )


def name_of_kind(kind: Kind) -> str:
    """The word for a kind of tensor in a finding."""
    return {"signal": "sequence", "volume": "volume"}.get(kind or "", "map")


def axes_of_kind(kind: Kind) -> str:
    """The axes of a kind in Alpha."""
    return {"signal": "(N, L, C)", "volume": "(N, D, H, W, C)"}.get(kind or "", "(N, H, W, C)")


def of_images(side: str) -> bool:
    """True for one side of a pattern of einops that has four axes, the second of them channels."""
    parts = re.findall(r"\([^)]*\)|\S+", side)
    return len(parts) == 4 and CHANNELS.fullmatch(parts[1]) is not None and re.search(r"h|x", parts[2]) is not None


def is_turn(axes: tuple[int, ...]) -> bool:
    """True if a permutation exchanges the second and the third of three axes."""
    two = len(axes) == 2 and {axis % 3 for axis in axes} == {1, 2}
    return axes == (0, 2, 1) or two


def keeps_axes(node: ast.Call) -> bool:
    """True for a call with keepdim=True."""
    return any(part.arg == "keepdim" and getattr(part.value, "value", False) is True for part in node.keywords)


def called_on(node: ast.Call) -> ast.AST | None:
    """The expression on which a method is called; None for a function."""
    return node.func.value if isinstance(node.func, ast.Attribute) else None


def axis_read(node: ast.expr) -> int | None:
    """The axis whose length an expression reads; None if it reads none."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and node.args:
        return integer(node.args[0])
    if (
        isinstance(node, ast.Subscript)
        and not isinstance(node.slice, (ast.Slice, ast.Tuple))
        and reads_shape(node.value)
    ):
        return integer(node.slice)
    return None


def reads_shape(node: ast.expr) -> bool:
    """True for `x.shape` and `x.size()`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def are_maps(names: list[str]) -> bool:
    """True if four names are those of the axes of a map."""
    spatial = HEIGHT.fullmatch(names[2]) is not None and WIDTH.fullmatch(names[3]) is not None
    return spatial or (
        re.fullmatch(r"(n_?)?(c|C|ch)|(\w+_)?channels?", names[1]) is not None and names[2:] == ["_", "_"]
    )


def is_product(node: ast.expr) -> TypeGuard[ast.BinOp]:
    """True for a product."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def is_pixel_count(node: ast.expr) -> bool:
    """True for a product of rows and columns, as h * w."""
    return is_product(node) and is_spatial(node.left) and is_spatial(node.right)
