"""Rules for calls: layers, functions and methods of tensors, and patterns of einops."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from alpha.port.expressions import axes_of_kind, keeps_axes, name_of_kind, of_dataset, of_images
from alpha.port.program_facts import AXES_OF_IMAGES, AXES_OF_IMAGES_OR_VOLUMES, KNOWN_KINDS, OF_PICTURE, Facts
from alpha.port.rules_of_reads import ReadRules
from alpha.port.rules_of_shapes import ShapeRules
from alpha.port.tensor_kinds import (
    CHANNELS,
    FORMS,
    RANKS,
    Kind,
    axis_here,
    axis_meaning,
    integer,
    integers,
    is_channels,
    last_name,
    named_kind,
)

__all__ = ["CallRules"]

# functions by the place of `dim` among the arguments behind the tensor
DIM_IS_FIRST = {
    *("softmax", "log_softmax", "argmax", "argmin", "max", "min", "sum", "mean", "std", "var", "prod", "median"),
    *("cat", "concat", "concatenate", "unbind", "logsumexp", "cumsum", "amax", "amin", "softmin", "glu", "any", "all"),
    *("select", "index_select", "narrow", "gather", "scatter", "scatter_", "scatter_add", "scatter_add_"),
    *("scatter_reduce", "scatter_reduce_", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill"),
    *("index_fill_", "index_reduce", "index_reduce_", "sort", "argsort", "mode", "cummax", "cummin", "cumprod"),
    *("cumprod_", "cumsum_", "logcumsumexp", "nansum", "nanmean", "nanmedian", "count_nonzero", "aminmax"),
    *("std_mean", "var_mean"),
}
DIM_IS_SECOND = {
    *("norm", "vector_norm", "chunk", "split", "split_with_sizes", "tensor_split", "topk", "kthvalue", "quantile"),
    *("nanquantile", "diff", "renorm", "renorm_", "repeat_interleave", "take_along_dim"),
}
# functions whose axis 1 is reported even if nothing is known of the tensor
ASKED_WITHOUT_A_KIND = {"softmax", "log_softmax", "argmax", "argmin"}
SIZED = {"interpolate", "upsample", "adaptive_avg_pool2d", "adaptive_max_pool2d"}  # by their first argument
MOMENTS = {"mean", "std", "var", "norm", "max"}
CREATING = {"randn", "rand", "zeros", "ones", "empty", "full", "Tensor", "FloatTensor", "randint", "normal"}


class Call(NamedTuple):
    """A function of a tensor, or a method, that is called.

    Attributes:
        node: the call.
        name: the last part of the function's name.
        tensor: the first tensor; None if there is none.
        args: the arguments behind the tensor.
        keywords: the arguments with names.
        kind: of the tensor.
        body: the function in which the call stands, whose `kind` tells that of an expression.
    """

    node: ast.Call
    name: str
    tensor: ast.expr | None
    args: list[ast.expr]
    keywords: dict[str | None, ast.expr]
    kind: Kind
    body: Any


class CallRules:
    """Rules for calls: `call` finds the one for a function by its name.

    Args:
        facts: about the program.
        shapes: the rules for a call that makes a tensor.
        reads: the rules for a call that reads a length.
    """

    def __init__(self, facts: Facts, shapes: ShapeRules, reads: ReadRules) -> None:
        self._facts, self._shapes, self._reads = facts, shapes, reads
        self._rules: dict[str, Callable[[Call], None]] = {
            **dict.fromkeys(DIM_IS_FIRST | DIM_IS_SECOND, self._reduce),
            **dict.fromkeys(CREATING, self._create),
            "size": self._size,
            "pad": self._pad,
            "einsum": self._einsum,
            "flip": self._flip,
            "roll": self._flip,
            "rot90": self._flip,
            "expand": self._expand,
            "repeat": self._expand,
            "expand_as": self._expand_as,
            "unsqueeze": self._unsqueeze,
            "squeeze": self._unsqueeze,
            "normalize": self._normalize,
            "cosine_similarity": self._normalize,
            **dict.fromkeys(SIZED, self._sized),
        }

    def layer(self, node: ast.Call, name: str) -> None:
        """Look at the arguments of a layer."""
        first = node.args[0] if node.args else None
        if name == "LayerNorm" and isinstance(first, (ast.List, ast.Tuple)) and len(first.elts) == 3:
            self._facts.report(node, "a map is (H, W, C): write nn.LayerNorm((h, w, c))", known=True)
        elif name == "Unflatten" and len(node.args) == 2 and isinstance(node.args[1], (ast.List, ast.Tuple)):
            if len(node.args[1].elts) == 3:
                self._facts.report(node, "a map is made as (H, W, C): write nn.Unflatten(1, (h, w, c))", known=True)
        elif name in ("Tensor", "FloatTensor") and node.args:
            self._shapes.created(node, list(node.args))

    def call(
        self, node: ast.Call, name: str, tensor: ast.expr | None, args: list[ast.expr], kind: Kind, body: Any
    ) -> None:
        """Look at a function of a tensor, or a method; `args` are those behind the tensor."""
        if kind is None and tensor is not None:
            kind = named_kind(last_name(tensor))
        if name in self._rules:
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            self._rules[name](Call(node, name, tensor, args, keywords, kind, body))

    def along(self, node: ast.Call, name: str, kind: Kind) -> None:
        """Look at the axis of a layer such as `nn.Softmax(dim=1)`, which is called with a tensor of this kind."""
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        dim = keywords.get("dim") or (node.args[0] if node.args else None)
        if kind in RANKS:
            self._axes(node, name, dim, kind)

    def _axes(self, node: ast.Call, name: str, dim: ast.expr | None, kind: Kind, body: Any = None) -> None:
        """Look at the axes `dim` of a function that reduces, joins or cuts tensors."""
        axes = integers(self._facts.value(dim))
        if axes is None:
            if dim is None and name in ("softmax", "log_softmax") and kind in ("map", "volume"):
                self._facts.report(node, "without dim= PyTorch takes axis 1, the channels: write dim=-1", known=True)
            return
        if kind in ("other", "flat", "filter?") and not (kind == "filter?" and set(axes) & {2, 3} and len(axes) > 1):
            return
        if kind == "picture":
            if any(axis in OF_PICTURE for axis in axes):
                written = ", ".join(OF_PICTURE[axis] for axis in axes)
                self._facts.report(node, f"a picture is (H, W, C): write {written}", known=True)
            return
        if not any(axis_here(axis, kind) for axis in axes):
            return
        written = ", ".join(axis_here(axis, kind) or str(axis) for axis in axes)
        both = len(axes) > 1 and set(axes) - {0} in (AXES_OF_IMAGES if kind is None else AXES_OF_IMAGES_OR_VOLUMES)
        form = FORMS[RANKS.get(kind or "map", 4)]
        if both:
            self._facts.report(
                node,
                f"the axes of a {name_of_kind(kind)} are {axes_of_kind(kind)}: write ({written})",
                known=kind is None or kind in KNOWN_KINDS,
            )
        elif kind in ("map", "signal", "volume") or (kind == "map?" and axes[0] in (1, -3)):
            self._facts.report(
                node,
                f"axis {axes[0]} of {form} is {axis_meaning(axes[0], kind)}: write {written}",
                known=kind in KNOWN_KINDS,
            )
        elif kind is None and axes == [1] and name in MOMENTS and keeps_axes(node) and not body.classifies:
            self._facts.report(
                node, "axis 1 of a map (N, C, H, W) is the channels: write -1, if it is one", known=False
            )
        elif kind is None and ((self._is_asked(name) and axes[0] == 1 and not body.classifies) or axes[0] == 3):
            self._facts.report(
                node,
                f"axis {axes[0]} of a map (N, C, H, W) is {axis_meaning(axes[0], kind)}: write {written}, if it is one",
                known=False,
            )

    def _is_asked(self, name: str) -> bool:
        """True for a function whose axis 1 is reported even if nothing is known of its tensor."""
        return name in ASKED_WITHOUT_A_KIND or (name == "max" and self._facts.of_images)

    def _pad(self, call: Call) -> None:
        """Look at the numbers of a padding."""
        node, args, keywords, kind = call.node, call.args, call.keywords, call.kind
        given = self._facts.value(keywords.get("pad") or (args[0] if args else None))
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
            self._facts.report(
                node,
                "four numbers pad the last two axes, columns and channels here: write F.pad(x, "
                "(0, 0, left, right, top, bottom)), or nn.ZeroPad2d",
                known=kind in KNOWN_KINDS,
            )
        elif kind in ("map", "signal", "volume") or (kind == "map?" and length == 6):
            self._facts.report(
                node,
                "numbers are for the last axis first, which is the channels here: put the pair of the channels first, "
                "(0, 0) if they are not padded",
                known=kind in KNOWN_KINDS,
            )

    def _flip(self, call: Call) -> None:
        """Look at the axes of a flip, a roll or a quarter turn."""
        node, name, args, keywords, kind = call.node, call.name, call.args, call.keywords, call.kind
        given = self._facts.value(keywords.get("dims")) or (
            args[0] if name == "flip" and args else args[1] if len(args) > 1 else None
        )
        axes = integers(given) or []
        if name == "flip" and len(args) > 1:
            axes = [n for n in map(integer, args) if n is not None]
        if kind in ("other", "flat"):
            return
        told = {1, 2, 3, -1, -2, -3} if kind in (*RANKS, "picture", "picture?") else {2, 3, -1, -2}
        if set(axes) & told:
            one = kind in ("picture", "picture?")
            numbers = [OF_PICTURE.get(axis) if one else axis_here(axis, kind) for axis in axes]
            written = ", ".join(number or str(axis) for number, axis in zip(numbers, axes, strict=True))
            self._facts.report(
                node,
                "the last axis is the channels, so this exchanges other axes: "
                f"write {written} for {'(H, W, C)' if one else axes_of_kind(kind)}",
                known=kind in KNOWN_KINDS,
            )

    def _einsum(self, call: Call) -> None:
        """Look at the letters of an einsum."""
        node = call.node
        text = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
        for letters in re.split(r",|->", text.replace(" ", "")) if isinstance(text, str) else []:
            pixels = re.fullmatch(r"[bn][a-z]hw|[cdk]hw", letters) is not None
            if pixels or (len(letters) > 2 and letters[:2] in ("nc", "bc")):
                place = 0 if pixels and len(letters) == 3 else 1  # of the channels
                turned = letters[:place] + letters[place + 1 :] + letters[place]
                why = f"{letters!r} has the channels before what they are of: write {turned!r}"
                self._facts.report(node, why, known=pixels)
                return

    def _create(self, call: Call) -> None:
        """Look at a function that makes a tensor of given sizes."""
        if self._facts.names.of(call.node.func) and call.name not in ("randint", "normal"):
            self._shapes.created(call.node, list(call.node.args))

    def _expand(self, call: Call) -> None:
        """Look at the four sizes of an expand, or the four counts of a repeat."""
        args = call.args
        if len(args) == 4 and integer(args[1]) not in (1, -1) and is_channels(args[1]):
            self._facts.report(
                call.node, "the channels are the last axis: write them last", known=call.kind in KNOWN_KINDS
            )

    def _unsqueeze(self, call: Call) -> None:
        """Look at an axis of length 1 that is added or taken away."""
        node, name, args, kind = call.node, call.name, call.args, call.kind
        axis = integer(args[0]) if args else None
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        twice = isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == name
        before = integer(inner.args[0]) if twice and isinstance(inner, ast.Call) and inner.args else None
        if name == "unsqueeze" and (before, axis) in ((-1, -1), (2, 3), (2, 2)):
            self._facts.report(
                node, "channels beside a map are (N, 1, 1, C): write .unsqueeze(1).unsqueeze(1)", known=True
            )
        elif name == "squeeze" and axis is not None and (here := axis_here(axis, kind)):
            if kind in ("map", "signal", "volume") or (kind == "map?" and axis == 1):
                form = FORMS[RANKS[kind]]
                self._facts.report(
                    node,
                    f"axis {axis} of {form} is {axis_meaning(axis, kind)}: write {name}({here})",
                    known=kind in KNOWN_KINDS,
                )
        elif name == "unsqueeze" and axis == 1 and (kind == "map?" or of_dataset(inner)):
            self._facts.report(
                node, "an axis of channels is the last one: write unsqueeze(-1)", known=kind in KNOWN_KINDS
            )

    def _expand_as(self, call: Call) -> None:
        """Look at `mask.expand_as(image)`: it adds an axis in front, where a picture of PyTorch has its channels."""
        node, kind = call.node, call.kind
        other = call.body.kind(node.args[0]) if node.args else None
        known = kind is not None and not kind.endswith("?")
        if other in (*RANKS, "picture", "picture?") and not known:
            self._facts.report(
                node,
                "axes are added in front, where the channels are in PyTorch only: a mask of an image is "
                "mask.unsqueeze(-1).expand_as(image)",
                known=False,
            )

    def _size(self, call: Call) -> None:
        """Look at the length of one axis, `x.size(1)`."""
        if len(call.node.args) == 1:
            self._reads.length(call.node, call.tensor, integer(call.node.args[0]), call.kind)

    def _sized(self, call: Call) -> None:
        """Look at the size of the maps that an operator makes."""
        named = call.keywords.get("size") or call.keywords.get("output_size")
        self._reads.sides(named or (call.args[0] if call.args else None), call.body)

    def _normalize(self, call: Call) -> None:
        """Look at `normalize` and `cosine_similarity`, whose axis is 1 if none is given."""
        node, args, keywords, kind = call.node, call.args, call.keywords, call.kind
        dim = keywords.get("dim") or (args[1] if len(args) > 1 else None)
        axis = 1 if dim is None else integer(dim)
        default = " (the default)" if dim is None else ""
        if axis is not None and kind in RANKS and (here := axis_here(axis, kind)):
            self._facts.report(
                node,
                f"dim={axis}{default} means {axis_meaning(axis, kind)}: write dim={here}",
                known=kind in KNOWN_KINDS,
            )

    def _reduce(self, call: Call) -> None:
        """Find the argument `dim` of a function, and look at its axes."""
        place, keywords = 1 if call.name in DIM_IS_SECOND else 0, call.keywords
        dim = keywords.get("dim") or keywords.get("axis") or (call.args[place] if len(call.args) > place else None)
        self._axes(call.node, call.name, dim, call.kind, call.body)

    def einops(self, node: ast.Call) -> None:
        """Look at the pattern of einops."""
        texts = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        for text in texts:
            for side in text.split("->"):
                parts = side.split()
                if (
                    self._facts.of_signals
                    and len(parts) == 3
                    and CHANNELS.fullmatch(parts[1])
                    and parts[2] in ("n", "l", "t")
                ):
                    self._facts.report(
                        node, f"{side.strip()!r} has the channels second: a sequence is 'b l c'", known=False
                    )
                    return
                if of_images(side):
                    self._facts.report(
                        node, f"{side.strip()!r} has the channels second: write them last, as 'b h w c'", known=True
                    )
                    return
