"""The rules: which calls, indices and assignments of a program of PyTorch mean other axes where channels are last."""

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
    called_on,
    is_pixel_count,
    is_product,
    is_turn,
    keeps_axes,
    measured_tensor,
    name_of_kind,
    of_dataset,
    of_images,
    reads_shape,
)
from alpha.port.findings import Findings
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
    integers,
    is_channels,
    is_length,
    is_spatial,
    last_name,
    named_kind,
)
from alpha.port.torch_names import Names

__all__ = ["Rules"]

# sets of axes that a reduction of images or volumes takes, without that of the batch
AXES_OF_IMAGES = ({2, 3}, {-1, -2}, {1, 2, 3})
AXES_OF_IMAGES_OR_VOLUMES = (*AXES_OF_IMAGES, {2, 3, 4}, {-1, -2, -3}, {1, 2, 3, 4})
OF_PICTURE = {0: "-1", 1: "0", 2: "1", -1: "1", -2: "0", -3: "-1"}
# functions by the place of `dim` among the arguments behind the tensor
DIM_IS_FIRST = {
    *("softmax", "log_softmax", "argmax", "argmin", "max", "min", "sum", "mean", "std", "var", "prod", "median"),
    *("cat", "concat", "concatenate", "unbind", "logsumexp", "cumsum", "amax", "amin", "softmin", "glu", "any", "all"),
}
DIM_IS_SECOND = {"norm", "chunk", "split", "select", "index_select", "narrow", "topk", "std_mean", "var_mean"}
# functions whose axis 1 is asked about even if nothing is known of the tensor
ASKED_WITHOUT_A_KIND = {"softmax", "log_softmax", "argmax", "argmin"}
KNOWN_KINDS = ("map", "signal", "volume", "picture", "columns")  # all others are guessed
MOMENTS = {"mean", "std", "var", "norm", "max"}
CREATING = {"randn", "rand", "zeros", "ones", "empty", "full", "Tensor", "FloatTensor", "randint", "normal"}
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


class Rules:
    """Rules that add to the findings of a program.

    Args:
        names: what PyTorch calls the names of the program.
        findings: to which they add.
    """

    def __init__(self, names: Names, findings: Findings) -> None:
        self._names, self._findings = names, findings
        self._axis_of: dict[str, tuple[int, int]] = {}  # of variables: the axis whose length they are, of how many
        self._values: dict[str, ast.expr] = {}  # of variables that are a tuple or a list
        self.rank4: set[str] = set()  # variables of this function whose indices or shapes show four axes
        self.of_images = self.of_signals = self.of_volumes = False  # whether the program has layers of these

    def begin(self) -> None:
        """Begin a function, whose variables are others."""
        self._axis_of, self.rank4, self._values = {}, set(), {}

    def _value(self, node: ast.expr | None) -> ast.expr | None:
        """The tuple or list that a variable is, or the expression itself."""
        return self._values.get(node.id, node) if isinstance(node, ast.Name) else node

    def _add(self, node: ast.AST, why: str, known: bool) -> None:
        """Note what must change if the tensor is known to be of its kind, and what should be looked at if it is not."""
        self._findings.add(node, "change" if known else "look", why)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def layer(self, node: ast.Call, name: str) -> None:
        """Look at the arguments of a layer."""
        first = node.args[0] if node.args else None
        if name == "LayerNorm" and isinstance(first, (ast.List, ast.Tuple)) and len(first.elts) == 3:
            self._add(node, "a map is (H, W, C): write nn.LayerNorm((h, w, c))", known=True)
        elif name == "Unflatten" and len(node.args) == 2 and isinstance(node.args[1], (ast.List, ast.Tuple)):
            if len(node.args[1].elts) == 3:
                self._add(node, "a map is made as (H, W, C): write nn.Unflatten(1, (h, w, c))", known=True)
        elif name in ("Tensor", "FloatTensor") and node.args:
            self._created(node, list(node.args))

    def call(
        self, node: ast.Call, name: str, tensor: ast.expr | None, args: list[ast.expr], kind: Kind, body: Any
    ) -> None:
        """Look at a function of a tensor, or a method; `args` are those behind the tensor."""
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        if kind is None and tensor is not None:
            kind = named_kind(last_name(tensor))
        if name == "size" and len(node.args) == 1:
            self._length(node, tensor, integer(node.args[0]), kind)
        elif name == "pad":
            self._pad(node, args, keywords, kind)
        elif name == "einsum":
            self._einsum(node)
        elif name in ("flip", "roll"):
            self._flip(node, name, args, keywords, kind)
        elif name in CREATING and self._names.of(node.func):
            self._created(node, list(node.args) if name not in ("randint", "normal") else [])
        elif (
            name in ("expand", "repeat") and len(args) == 4 and integer(args[1]) not in (1, -1) and is_channels(args[1])
        ):
            self._add(node, "the channels are the last axis: write them last", known=kind in KNOWN_KINDS)
        elif name in ("unsqueeze", "squeeze"):
            self._unsqueeze(node, name, args, kind)
        elif name == "expand_as" and node.args:
            self._expanded(node, kind, body.kind(node.args[0]))
        elif name in ("normalize", "cosine_similarity"):
            dim = keywords.get("dim") or (args[1] if len(args) > 1 else None)
            axis = 1 if dim is None else integer(dim)
            default = " (the default)" if dim is None else ""
            if axis is not None and kind in RANKS and (here := axis_here(axis, kind)):
                self._add(
                    node,
                    f"dim={axis}{default} means {axis_meaning(axis, kind)}: write dim={here}",
                    known=kind in KNOWN_KINDS,
                )
        elif name in DIM_IS_FIRST | DIM_IS_SECOND:
            place = 1 if name in DIM_IS_SECOND else 0
            dim = keywords.get("dim") or keywords.get("axis") or (args[place] if len(args) > place else None)
            self._axes(node, name, dim, kind, body)

    def along(self, node: ast.Call, name: str, kind: Kind) -> None:
        """Look at a layer that works along an axis, as `nn.Softmax(dim=1)`, where it is given a tensor of a kind."""
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        dim = keywords.get("dim") or (node.args[0] if node.args else None)
        if kind in RANKS:
            self._axes(node, name, dim, kind)

    def _axes(self, node: ast.Call, name: str, dim: ast.expr | None, kind: Kind, body: Any = None) -> None:
        """Look at the axes of a reduction, a softmax, or what joins and cuts tensors."""
        axes = integers(self._value(dim))
        if axes is None:
            if dim is None and name in ("softmax", "log_softmax") and kind in ("map", "volume"):
                self._add(
                    node, "without dim= PyTorch takes axis 1, the channels: write dim=-1", known=kind in KNOWN_KINDS
                )
            return
        if kind in ("other", "flat", "filter?") and not (kind == "filter?" and set(axes) & {2, 3} and len(axes) > 1):
            return
        if kind == "picture":
            if any(axis in OF_PICTURE for axis in axes):
                written = ", ".join(OF_PICTURE[axis] for axis in axes)
                self._add(node, f"a picture is (H, W, C): write {written}", known=kind in KNOWN_KINDS)
            return
        if not any(axis_here(axis, kind) for axis in axes):
            return
        written = ", ".join(axis_here(axis, kind) or str(axis) for axis in axes)
        both = len(axes) > 1 and set(axes) - {0} in (AXES_OF_IMAGES if kind is None else AXES_OF_IMAGES_OR_VOLUMES)
        form = FORMS[RANKS.get(kind or "map", 4)]
        if both:
            self._add(
                node,
                f"the axes of a {name_of_kind(kind)} are {axes_of_kind(kind)}: write ({written})",
                known=kind is None or kind in KNOWN_KINDS,
            )
        elif kind in ("map", "signal", "volume") or (kind == "map?" and axes[0] in (1, -3)):
            self._add(
                node,
                f"axis {axes[0]} of {form} is {axis_meaning(axes[0], kind)}: write {written}",
                known=kind in KNOWN_KINDS,
            )
        elif kind is None and axes == [1] and name in MOMENTS and keeps_axes(node) and not body.classifies:
            self._add(node, "axis 1 of a map (N, C, H, W) is the channels: write -1, if it is one", known=False)
        elif kind is None and ((self._is_asked(name) and axes[0] == 1 and not body.classifies) or axes[0] == 3):
            self._add(
                node,
                f"axis {axes[0]} of a map (N, C, H, W) is {axis_meaning(axes[0], kind)}: write {written}, if it is one",
                known=False,
            )

    def _is_asked(self, name: str) -> bool:
        return name in ASKED_WITHOUT_A_KIND or (name == "max" and self.of_images)

    def _pad(self, node: ast.Call, args: list[ast.expr], keywords: dict[str | None, ast.expr], kind: Kind) -> None:
        given = self._value(keywords.get("pad") or (args[0] if args else None))
        if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Mult):
            part, count = (
                (given.left, integer(given.right))
                if isinstance(given.left, (ast.List, ast.Tuple))
                else (given.right, integer(given.left))
            )
            length = len(part.elts) * count if isinstance(part, (ast.List, ast.Tuple)) and count else 0
        else:
            length = len(given.elts) if isinstance(given, (ast.List, ast.Tuple)) else 0
        if kind in ("other", "flat") or not length:
            return
        if length == 4 and kind not in ("signal", "volume"):
            self._add(
                node,
                "four numbers pad the last two axes, columns and channels here: write F.pad(x, "
                "(0, 0, left, right, top, bottom)), or nn.ZeroPad2d",
                known=kind in KNOWN_KINDS,
            )
        elif kind in ("map", "signal", "volume") or (kind == "map?" and length == 6):
            self._add(
                node,
                "numbers are for the last axis first, which is the channels here: put the pair of the channels first, "
                "(0, 0) if they are not padded",
                known=kind in KNOWN_KINDS,
            )

    def _flip(
        self, node: ast.Call, name: str, args: list[ast.expr], keywords: dict[str | None, ast.expr], kind: Kind
    ) -> None:
        given = self._value(keywords.get("dims")) or (
            args[0] if name == "flip" and args else args[1] if len(args) > 1 else None
        )
        axes = integers(given) or []
        if name == "flip" and len(args) > 1:
            axes = [n for n in map(integer, args) if n is not None]
        if kind in ("other", "flat"):
            return
        told = {1, 2, 3, -1, -2, -3} if kind in (*RANKS, "picture", "picture?") else {2, 3, -1, -2}
        if set(axes) & told:
            numbers = [OF_PICTURE.get(axis) if kind == "picture" else axis_here(axis, kind) for axis in axes]
            written = ", ".join(number or str(axis) for number, axis in zip(numbers, axes, strict=True))
            self._add(
                node,
                "the last axis is the channels, so this exchanges other axes: "
                f"write {written} for {axes_of_kind(kind)}",
                known=kind in KNOWN_KINDS,
            )

    def _einsum(self, node: ast.Call) -> None:
        """Look at the letters of an einsum."""
        text = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        for letters in re.split(r",|->", text.replace(" ", "")) if isinstance(text, str) else []:
            pixels = re.fullmatch(r"[bn][a-z]hw|[cdk]hw", letters) is not None
            if pixels or (len(letters) > 2 and letters[:2] in ("nc", "bc")):
                place = 0 if pixels and len(letters) == 3 else 1  # of the channels
                turned = letters[:place] + letters[place + 1 :] + letters[place]
                why = f"{letters!r} has the channels before what they are of: write {turned!r}"
                self._add(node, why, known=pixels)
                return

    def _expanded(self, node: ast.Call, kind: Kind, other: Kind) -> None:
        """Look at `mask.expand_as(image)`, whose new axis is the first in PyTorch, and the last here."""
        known = kind is not None and not kind.endswith("?")
        if other in (*RANKS, "picture", "picture?") and not known:
            self._add(
                node,
                "axes are added in front, where the channels are in PyTorch only: a mask of an image is "
                "mask.unsqueeze(-1).expand_as(image)",
                known=False,
            )

    def _unsqueeze(self, node: ast.Call, name: str, args: list[ast.expr], kind: Kind) -> None:
        axis = integer(args[0]) if args else None
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        twice = isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == name
        before = integer(inner.args[0]) if twice and isinstance(inner, ast.Call) and inner.args else None
        if name == "unsqueeze" and (before, axis) in ((-1, -1), (2, 3), (2, 2)):
            self._add(node, "channels beside a map are (N, 1, 1, C): write .unsqueeze(1).unsqueeze(1)", known=True)
        elif name == "squeeze" and axis is not None and (here := axis_here(axis, kind)):
            if kind in ("map", "signal", "volume") or (kind == "map?" and axis == 1):
                form = FORMS[RANKS[kind]]
                self._add(
                    node,
                    f"axis {axis} of {form} is {axis_meaning(axis, kind)}: write {name}({here})",
                    known=kind in KNOWN_KINDS,
                )
        elif name == "unsqueeze" and axis == 1 and (kind == "map?" or of_dataset(inner)):
            self._add(node, "an axis of channels is the last one: write unsqueeze(-1)", known=kind in KNOWN_KINDS)

    def _created(self, node: ast.Call, args: list[ast.expr]) -> None:
        """Look at the sizes of a tensor that is made."""
        if args and isinstance(args[0], (ast.Tuple, ast.List)):
            args = list(args[0].elts)
        if len(args) == 5 and self.of_volumes and (is_channels(args[1]) or integer(args[1]) in (1, 2, 3, 4)):
            self._add(node, "channels are the last axis: write the sizes as (n, d, h, w, c)", known=True)
            return
        if len(args) == 3 and self.of_signals and is_channels(args[1]):
            self._add(node, "channels are the last axis of sequences: write the sizes as (n, l, c)", known=False)
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
        self._add(node, f"channels are the last axis: write the sizes as {form}", known=True)

    def _length(self, node: ast.expr, tensor: ast.expr | None, axis: int | None, kind: Kind) -> None:
        """Look at a length, `x.size(1)` or `x.shape[1]`."""
        here = axis_here(axis, kind)
        if kind in ("map", "signal", "volume") and axis is not None and here:
            form = FORMS[RANKS[kind]]
            self._add(
                node,
                f"axis {axis} of {form} is {axis_meaning(axis, kind)}: write axis {here}",
                known=kind in KNOWN_KINDS,
            )
        elif kind == "picture" and axis in OF_PICTURE:
            self._add(node, f"a picture is (H, W, C): write axis {OF_PICTURE[axis]}", known=kind in KNOWN_KINDS)
        elif kind == "map?" and axis is not None and here and last_name(tensor) in self.rank4:
            self._add(
                node, f"axis {axis} of (N, C, H, W) is {axis_meaning(axis, kind)}: write axis {here}", known=False
            )
        elif kind == "map?" and axis == 1 and last_name(tensor).endswith("s"):
            self._add(node, "axis 1 of (N, C, H, W) is the channels: write axis -1", known=False)
        elif kind == "filter?" and here and (axis in (2, 3) or "conv" in last_name(getattr(tensor, "value", None))):
            self._add(node, f"a filter is (out, height, width, in): write axis {here}", known=kind in KNOWN_KINDS)

    # -- forms ---------------------------------------------------------------------------------------------------------

    def _sizes_of(self, node: ast.Call) -> list[ast.expr]:
        """The arguments of a view or a permutation, behind the tensor."""
        args = list(node.args[1:] if self._names.of(node.func) else node.args)
        if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
            args = list(args[0].elts)
        return args

    def viewed(self, name: str, node: ast.Call, kind: Kind) -> Kind:
        """Look at a view, reshape or flatten; the kind of its result."""
        sizes = self._sizes_of(node)
        numbers = [integer(size) for size in sizes]
        if name == "flatten":
            start = next(
                (integer(k.value) for k in node.keywords if k.arg == "start_dim"), numbers[0] if numbers else 0
            )
            if kind == "map" and start == 2:
                self._add(
                    node,
                    "the pixels of a map are its axes 1 and 2: write .flatten(1, 2), which gives (N, H W, C)",
                    known=kind in KNOWN_KINDS,
                )
                return "columns"
            if kind in ("map", "signal", "volume") and start == 1:
                self._findings.add(node, "note", FLATTENED)
            end = next((integer(k.value) for k in node.keywords if k.arg == "end_dim"), [*numbers, 0, 0, -1][1])
            if (start, end) == (0, 1) and (kind in RANKS or (kind is None and self.of_images)):
                self._add(
                    node,
                    "joins the images with their channels, here with their rows: write x.movedim(-1, 1).flatten(0, 1), "
                    "if it is a map",
                    known=kind in KNOWN_KINDS,
                )
            return "flat" if start == 1 else None
        if len(sizes) == 2:
            if kind in ("map", "signal", "volume") and -1 in numbers:
                self._findings.add(node, "note", FLATTENED)
                return "flat"
            if self._mixes(sizes):
                self._columns(node)
                return "other"
            return "other" if kind in ("flat", "other") else None
        if len(sizes) in (3, 4) and numbers[-2:] == [1, 1] and (numbers[-3] != 1 or kind == "map"):
            rank = ", 1" * (len(sizes) - 3)
            self._add(
                node,
                f"the channels are the last axis: write "
                f"view({'-1' if len(sizes) == 3 else 'n'}{rank}, 1, c), or leave it out for a vector",
                known=True,
            )
            return "map" if len(sizes) == 4 else None
        if len(sizes) == 3:
            pixels = is_pixel_count(sizes[2])
            certain = kind in ("map", "map?") or is_channels(sizes[1])
            if (pixels and certain) or (numbers[2] == -1 and kind == "map"):
                self._columns(node)
                return "columns"
            if all(map(is_spatial, sizes[1:])) and (is_channels(sizes[0]) or numbers[0] in (1, 3)):
                self._add(node, "a picture is (H, W, C): write the sizes so", known=True)
                return "picture"
            if is_channels(sizes[1]) and is_length(sizes[2]):
                self._add(node, "a sequence is (N, L, C): write view(n, l, c)", known=kind == "signal")
                return "signal"
            return "other"
        if len(sizes) in (4, 5) and numbers[:2] != [1, 1]:  # (1, 1, T, T) is a mask
            grouped = len(sizes) == 5
            equal = None not in numbers[-2:] and numbers[-1] == numbers[-2] and (numbers[-1] or 0) > 1
            two = ast.dump(sizes[-1]) == ast.dump(sizes[-2]) and not isinstance(sizes[-1], ast.Constant)
            if equal or two or (is_spatial(sizes[-1]) and is_spatial(sizes[-2])):
                self._add(
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
        return None

    def _columns(self, node: ast.AST) -> None:
        self._add(
            node,
            "this mixes channels and pixels here: write y = x.view(b, h * w, c); a Gram matrix is "
            "y.mT @ y, tokens are y itself",
            known=True,
        )

    def _mixes(self, sizes: list[ast.expr]) -> bool:
        """True if two sizes are products of a batch and its channels, and of rows and columns."""
        first, second = sizes
        if not (is_product(first) and is_product(second)):
            return False
        return is_pixel_count(second) or self._rank4(second)

    def _rank4(self, node: ast.expr) -> bool:
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return len(names) == 2 and all(self._axis_of.get(name) in ((2, 4), (3, 4)) for name in names)

    def permuted(self, node: ast.Call, kind: Kind) -> Kind:
        """Look at a permutation of axes; the kind of its result."""
        numbers = [integer(size) for size in self._sizes_of(node)]
        axes = tuple(n for n in numbers if n is not None)
        if len(axes) != len(numbers):
            return None
        if axes in SWAPS:
            self._add(node, f"{SWAPS[axes]}: leave it out", known=True)
            return "other" if axes == (0, 2, 3, 1) else "map"
        if axes in PICTURE_SWAPS and kind not in ("other", "flat"):
            self._add(
                node, f"{PICTURE_SWAPS[axes]}: leave it out", known=named_kind(last_name(called_on(node))) is not None
            )
            return "picture" if axes == (2, 0, 1) else None
        if kind == "grouped" and (axes == (0, 2, 1, 3, 4) or set(axes) == {1, 2}):
            self._add(node, "the groups and their channels are the axes 3 and 4: write transpose(3, 4)", known=True)
            return kind
        if kind in ("signal", "columns") and is_turn(axes):
            what = "a sequence is (N, L, C)" if kind == "signal" else "the pixels of a map are axis 1"
            self._add(node, f"{what} already: leave it out" + GRAM * (kind == "columns"), known=kind in KNOWN_KINDS)
            return "other"
        if kind in ("map", "volume", "signal") and len(axes) == 2 and any(axis_here(axis, kind) for axis in axes):
            written = ", ".join(axis_here(axis, kind) or str(axis) for axis in axes)
            self._add(node, f"write the axes {written}", known=kind in KNOWN_KINDS)
            return None
        return "other" if kind in ("columns", "other", "flat") else None

    def numpy(self, node: ast.Call, name: str) -> None:
        """Look at a function of numpy."""
        if name in ("transpose", "moveaxis", "rollaxis") and len(node.args) > 1:
            axes = tuple(integers(node.args[1]) or ())
            if axes in PICTURE_SWAPS or axes in SWAPS:
                self._add(node, f"{ {**PICTURE_SWAPS, **SWAPS}[axes] }: leave it out", known=True)

    def einops(self, node: ast.Call) -> None:
        """Look at the pattern of einops."""
        texts = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        for text in texts:
            for side in text.split("->"):
                parts = side.split()
                if self.of_signals and len(parts) == 3 and CHANNELS.fullmatch(parts[1]) and parts[2] in ("n", "l", "t"):
                    self._add(node, f"{side.strip()!r} has the channels second: a sequence is 'b l c'", known=False)
                    return
                if of_images(side):
                    self._add(
                        node, f"{side.strip()!r} has the channels second: write them last, as 'b h w c'", known=True
                    )
                    return

    # -- indices and assignments ---------------------------------------------------------------------------------------

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
            self._add(node, "a filter is (out, height, width, in): write weight[out, :, :, in]", known=False)

    def _of_shape(self, node: ast.Subscript, tensor: ast.expr, kind: Kind) -> None:
        if not isinstance(node.slice, ast.Slice):
            self._length(node, tensor, integer(node.slice), kind)
            return
        begin, end = integer(node.slice.lower), node.slice.upper
        if end is not None or begin not in (2, -2) or kind in ("other", "flat"):
            return
        if kind == "filter?":
            self._add(node, "a filter is (out, height, width, in): write shape[1:3]", known=True)
        elif kind in ("map", "map?") or begin == 2:
            self._add(
                node,
                "rows and columns are the axes 1 and 2: write shape[1:3], of a picture shape[:2]",
                known=kind in KNOWN_KINDS,
            )

    def _of_tensor(self, node: ast.Subscript, parts: list[ast.expr], kind: Kind) -> None:
        new = [isinstance(part, ast.Constant) and part.value is None for part in parts]
        whole = [isinstance(part, ast.Slice) and not (part.lower or part.upper or part.step) for part in parts]
        if len(parts) >= 3 and new[-2:] == [True, True] and not any(new[:-2][-1:]) and (whole[-3] or len(parts) == 4):
            self._add(
                node,
                "channels beside a map are its last axis: write [:, None, None] of (N, C), and nothing of (C,)",
                known=len(parts) == 4,
            )
            return
        if any(new):
            return
        dots = [isinstance(part, ast.Constant) and part.value is Ellipsis for part in parts]
        spatial = {"signal": "positions", "volume": "slices, rows, columns"}.get(kind or "", "rows, columns")
        if kind in ("map", "signal", "volume") and dots[:1] == [True] and not all(whole[1:]):
            self._add(node, f"the last axis is the channels: write [:, {spatial}]", known=kind in KNOWN_KINDS)
        elif kind in ("map", "signal", "volume") and True not in dots:
            if len(parts) > 2 and not all(whole[2:]):
                self._add(
                    node, f"the axes begin with 1 behind the batch: write [:, {spatial}]", known=kind in KNOWN_KINDS
                )
            elif len(parts) > 1 and not whole[1]:
                self._add(node, "channels are the last axis: write [..., channels]", known=kind in KNOWN_KINDS)
        elif kind == "map?" and len(parts) == 2 and whole[0] and isinstance(parts[1], ast.List):
            self._add(node, "channels are the last axis: write [..., channels]", known=False)
        elif kind == "map?" and len(parts) == 4 and whole[:2] == [True, True] and not all(whole):
            self._add(node, "rows and columns of a map are the axes 1 and 2: write [:, rows, columns]", known=False)
        elif (kind == "picture" and not all(whole)) or (
            kind in ("picture?", "map?") and whole == [True, False, False] and are_slices(parts)
        ):
            self._add(node, "a picture is (H, W, C): write [rows, columns, channels]", known=kind in KNOWN_KINDS)
        elif kind is None and len(parts) == 4 and whole[:2] == [True, True]:
            cut = [part for part in parts[2:] if isinstance(part, ast.Slice) and (part.lower or part.step)]
            if cut:
                self._add(node, "rows and columns of a map are the axes 1 and 2: write [:, rows, columns]", known=False)
        elif kind in (None, "map?") and len(parts) == 4 and whole == [True, False, True, True]:
            self._add(node, "channels are the last axis: write [..., channels]", known=False)
        elif kind is None and len(parts) == 3 and whole == [True, True, False]:
            last = integer(parts[2]) == -1 or (self.of_signals and isinstance(parts[2], ast.Slice))
            if last:
                self._add(
                    node,
                    "the positions of (N, C, L) are axis 1: write [:, positions], if it is a sequence",
                    known=False,
                )

    def unpacks_map(self, target: ast.expr, value: ast.expr) -> bool:
        """True if a shape of four axes is unpacked into names of channels, rows and columns."""
        names = [last_name(part) for part in target.elts] if isinstance(target, (ast.Tuple, ast.List)) else []
        return len(names) == 4 and reads_shape(value) and are_maps(names)

    def assigned(self, target: ast.expr, value: ast.expr, kind: Kind) -> None:
        """Look at names that are given to lengths of axes; remember tuples."""
        if isinstance(target, ast.Name):
            self._values.pop(target.id, None)
            if isinstance(value, (ast.Tuple, ast.List, ast.BinOp)):
                self._values[target.id] = value
        if isinstance(target, (ast.Tuple, ast.List)):
            names = [last_name(part) for part in target.elts]
            if reads_shape(value):
                self._axis_of = {**self._axis_of, **{name: (n, len(names)) for n, name in enumerate(names)}}
                if len(names) == 4 and kind is None and named_kind(last_name(measured_tensor(value))) == "filter?":
                    self._add(
                        value, "a filter is (out, height, width, in): write out, h, w, in = weight.shape", known=True
                    )
                elif len(names) == 4 and (kind == "map" or are_maps(names)):
                    self._add(value, "a map is (N, H, W, C): write n, h, w, c = x.shape", known=True)
                elif len(names) == 3 and (
                    kind == "signal" or (is_channels(target.elts[1]) and is_length(target.elts[2]))
                ):
                    self._add(value, "a sequence is (N, L, C): write n, l, c = x.shape", known=kind == "signal")
                elif len(names) == 5 and kind == "volume":
                    self._add(
                        value, "a volume is (N, D, H, W, C): write n, d, h, w, c = x.shape", known=kind in KNOWN_KINDS
                    )
                elif len(names) == 3 and (CHANNELS.fullmatch(names[0]) or names[0] == "_") and are_sides(names[1:]):
                    self._add(value, "a picture is (H, W, C): write h, w, c = x.shape", known=names[0] != "_")
            elif isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for part, length in zip(target.elts, value.elts, strict=True):
                    self.assigned(part, length, kind)
            elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) and len(names) == 2:
                begin = integer(value.slice.lower)
                if begin == 1 and reads_shape(value.value) and are_sides(names) and kind in ("picture?", "map?"):
                    self._add(value, "a picture is (H, W, C): write shape[:2]", known=kind in KNOWN_KINDS)
                if begin == -2 and HEIGHT.fullmatch(names[0]) and kind not in ("other", "map"):
                    why = "rows and columns are the axes 1 and 2: write shape[1:3], of a picture shape[:2]"
                    self._add(value, why, known=True)
            return
        axis = axis_read(value)
        name = last_name(target)
        if axis is None or kind in ("map", "signal", "volume", "picture", "other", "flat"):
            return
        if (HEIGHT.fullmatch(name) and axis in (1, 2, -2)) or (WIDTH.fullmatch(name) and axis in (2, 3, -1)):
            rows = "rows" if HEIGHT.fullmatch(name) else "columns"
            batch, picture = (1, 0) if rows == "rows" else (2, 1)
            self._add(
                value, f"the {rows} of (N, H, W, C) are axis {batch}, of a picture (H, W, C) axis {picture}", known=True
            )
        elif re.fullmatch(r"(n_?)?(c|ch)|(\w+_)?(channels?|planes)", name) and axis == 1:
            self._add(value, "the channels are the last axis: write -1", known=False)
