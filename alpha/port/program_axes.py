"""Axes in a program of PyTorch: what each expression is, as far as the text tells, and the rules for its calls."""

from __future__ import annotations

import ast
import re

from alpha.port.expressions import is_turn, keeps_axes, of_images
from alpha.port.findings import Findings
from alpha.port.program_facts import AXES_OF_IMAGES_OR_VOLUMES, Facts
from alpha.port.rules_of_calls import CallRules
from alpha.port.rules_of_reads import ReadRules
from alpha.port.rules_of_shapes import ShapeRules
from alpha.port.tensor_kinds import (
    FUNCTIONS,
    FUNCTIONS_1D,
    FUNCTIONS_3D,
    MAPS,
    RANKS,
    SIGNALS,
    VOLUMES,
    Kind,
    Layer,
    integer,
    integers,
    layer_of,
    made_by,
    named_kind,
)
from alpha.port.torch_names import Names

__all__ = ["read_axes"]

KEEPING = re.compile(
    r"\w*(relu6?|elu|gelu|silu|tanh|sigmoid|dropout|shrink|softsign|threshold)_?|clamp|clip|abs|exp|log|sqrt|rsqrt|pow|"
    r"contiguous|cuda|cpu|numpy|to|float|double|half|type|clone|detach|requires_grad_|add|mul|sub|div|add_|mul_|"
    r"sub_|div_|square|neg|sign|sin|cos|erf|reciprocal|maximum|minimum|nan_to_num|type_as|clamp_|round|floor|ceil|"
    r"softplus|hardswish|mish|zeros_like|ones_like|"
    r"rand_like|randn_like|empty_like|batch_norm|group_norm|normalize|softmax|log_softmax|flip|roll|"
    r"squeeze_|masked_fill|where|lerp|checkpoint|expand_as|pad"
)
JOINING = {"cat", "concat", "concatenate"}
REDUCING = {"argmax", "argmin", "max", "min", "sum", "mean", "std", "var", "norm", "prod", "median", "any", "all"}
EINOPS = {"rearrange", "reduce", "repeat", "Rearrange", "Reduce"}


def read_axes(tree: ast.Module, names: Names, findings: Findings) -> None:
    """Add findings about axes to those of a program."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    program = Program(classes, names, findings)
    program.read(tree)


class Program:
    """The classes of a program, their layers, and what their forwards return."""

    def __init__(self, classes: dict[str, ast.ClassDef], names: Names, findings: Findings) -> None:
        self.classes, self.names, self.findings = classes, names, findings
        self._layers: dict[str, dict[str, Layer | None]] = {}
        self._first: dict[str, Kind] = {}
        self._returns: dict[tuple[str, Kind], Kind] = {}
        self.facts = Facts(names, findings)
        self.shapes, self.reads = ShapeRules(self.facts), ReadRules(self.facts)
        self.calls = CallRules(self.facts, self.shapes, self.reads)
        self.of_vectors = False  # whether the program has networks, and none of images

    def read(self, tree: ast.Module) -> None:
        """Read what stands outside of functions, then each function once, with what its class tells."""
        words = {word for node in ast.walk(tree) for word in (getattr(node, "attr", ""), getattr(node, "id", ""))}
        words |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        modules = [base for c in self.classes.values() for base in c.bases if self.names.of(base).endswith("Module")]
        images = any(
            MAPS.fullmatch(word) or FUNCTIONS.fullmatch(word) or re.search("im(g|age)", word) for word in words
        )
        self.of_vectors = bool(modules) and not images
        spatial = any(
            set(integers(n) or ()) in AXES_OF_IMAGES_OR_VOLUMES
            for n in ast.walk(tree)
            if isinstance(n, (ast.Tuple, ast.List))
        )
        self.facts.of_images = images or spatial
        self.facts.of_signals = any(SIGNALS.fullmatch(word) or FUNCTIONS_1D.fullmatch(word) for word in words)
        self.facts.of_volumes = any(VOLUMES.fullmatch(word) or FUNCTIONS_3D.fullmatch(word) for word in words)
        Body(self, None, {}).block(tree.body)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                owner = next((c for c in self.classes.values() if node in c.body), None)
                self.function(node, owner)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: ast.ClassDef | None) -> None:
        if owner is not None and node.name == "forward":
            self.returned(owner.name, self.first_kind(owner), noting=True)
            return
        kinds: dict[str, Kind] = {}
        for argument in node.args.args:
            kinds[argument.arg] = named_kind(argument.arg)
        if owner is not None and node.name == "__call__" and len(node.args.args) == 2 and not self.layers(owner.name):
            kinds[node.args.args[1].arg] = "picture?"  # a transform
        Body(self, owner, kinds).block(node.body)

    def first_kind(self, owner: ast.ClassDef) -> Kind:
        """The kind of a module's input: the one that all of its layers take, or the one that the first layer takes."""
        if owner.name not in self._first:
            self._first[owner.name] = None  # a class that has itself as a layer
            self._first[owner.name] = self._first_kind(owner)
        return self._first[owner.name]

    def _first_kind(self, owner: ast.ClassDef) -> Kind:
        effects = {layer.effect for layer in self._flat(owner.name) if layer is not None} - {
            "keep",
            "flat",
            "unknown",
            "axis",
        }
        ranked = effects & set(RANKS)
        if len(ranked) == 1 and effects - {"norm"} == ranked:
            return ranked.pop()
        first = self._first_effect(owner) or ""
        if first in RANKS:
            return first
        return "other" if first == "features" or (effects and not ranked) else None

    def _first_effect(self, owner: ast.ClassDef) -> str | None:
        """The effect of the first layer that the forward calls with its first argument."""
        forward = next((n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
        if forward is None or len(forward.args.args) < 2:
            return None
        given, layers = forward.args.args[1].arg, self.layers(owner.name)
        calls = [
            node for node in ast.walk(forward) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ]
        for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
            takes = any(isinstance(part, ast.Name) and part.id == given for part in call.args)
            name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if takes and (made := made_by(name)) is not None:
                return made
            if takes and (effect := self.effect(layers.get(name))) not in (None, "keep", "axis"):
                return effect
        return None

    def effect(self, layer: Layer | None) -> str | None:
        """The effect of the first layer of a sequence that has one, or of a class."""
        if layer is not None and layer.effect == "unknown":
            return "map" if of_images(layer.name.partition("->")[0]) else "unknown"
        if layer is None or layer.effect not in ("sequence", "class"):
            return None if layer is None else layer.effect
        if layer.effect == "sequence":
            return next(
                (effect for part in layer.parts if (effect := self.effect(part)) not in (None, "keep", "axis")), None
            )
        kind = self.first_kind(self.classes[layer.name])
        return kind if kind in RANKS else {"other": "features"}.get(kind or "")

    def _flat(self, name: str, depth: int = 0) -> list[Layer | None]:
        found: list[Layer | None] = []
        waiting = list(self.layers(name).values())
        while waiting:
            layer = waiting.pop()
            if layer is not None and layer.effect == "sequence":
                waiting += layer.parts
            elif layer is not None and layer.effect == "class" and depth < 4 and layer.name != name:
                found += self._flat(layer.name, depth + 1)
            else:
                found.append(layer)
        return found

    def layers(self, name: str) -> dict[str, Layer | None]:
        """The layers of a class by the names of its attributes."""
        if name not in self._layers:
            found: dict[str, Layer | None] = {}
            self._layers[name] = found
            for node in ast.walk(self.classes[name]):
                if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Attribute):
                    of_self = isinstance(target.value, ast.Name) and target.value.id == "self"
                    if of_self and (layer := self.layer(node.value)) is not None:
                        found[target.attr] = layer
                elif isinstance(node, ast.Call) and (layer := self.layer(node)) is not None:
                    found.setdefault(f"[{node.lineno}:{node.col_offset}]", layer)
        return self._layers[name]

    def layer(self, node: ast.expr) -> Layer | None:
        """The layer that an expression makes; None if it makes none, or one that is not known."""
        if not isinstance(node, ast.Call):
            return None
        if isinstance(node.func, ast.Name) and node.func.id in self.classes:
            return Layer("class", node.func.id)
        full = self.names.of(node.func)
        name = full.rpartition(".")[2]
        if full.startswith("einops."):
            text = getattr(node.args[0], "value", "") if node.args else ""
            return Layer("unknown", text if isinstance(text, str) else "")
        if not full.startswith("torch.nn.") or full.startswith(("torch.nn.functional.", "torch.nn.init.")):
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                return Layer("keep") if node.func.value.id == "self" and "make" in node.func.attr else None
            return None
        if name == "Sequential":
            return Layer("sequence", parts=tuple(self.layer(part) for part in node.args))
        if name == "ModuleList":
            return None
        return layer_of(name, node)

    def apply(self, layer: Layer | None, kind: Kind) -> Kind:
        """The kind of what a layer gives."""
        if layer is None or layer.effect == "unknown":
            return None
        if layer.effect == "sequence":
            for part in layer.parts:
                kind = self.apply(part, kind) if part is not None else kind
            return kind
        if layer.effect == "class":
            return self.returned(layer.name, kind)
        if layer.effect == "features":
            return kind if kind in ("other", "flat") else "other"
        if layer.effect == "axis" and layer.made is not None:
            self.calls.along(layer.made, layer.name, kind)
            return kind
        if layer.effect == "norm":
            return kind if kind in ("other", "flat", "signal") else "other"
        return layer.effect if layer.effect in (*RANKS, "flat") else kind

    def returned(self, name: str, kind: Kind, noting: bool = False) -> Kind:
        """The kind that the forward of a class returns for an input of this kind."""
        key = (name, kind)
        if noting or key not in self._returns:
            self._returns[key] = None
            owner = self.classes[name]
            forward = next(
                (n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "forward" and n.args.args), None
            )
            if forward is None:
                parents = [base.id for base in owner.bases if isinstance(base, ast.Name) and base.id in self.classes]
                return self.returned(parents[0], kind) if parents else kind
            arguments = forward.args.args[1:]
            kinds: dict[str, Kind] = {}
            for number, argument in enumerate(arguments):
                also = kind in RANKS and not forward.args.defaults
                kinds[argument.arg] = kind if number == 0 or also else named_kind(argument.arg)
            body = Body(self, owner, kinds)
            self.findings.silent += not noting
            try:
                body.block(forward.body)
            finally:
                self.findings.silent -= not noting
            self._returns[key] = body.result
        return self._returns[key]


class Body:
    """The statements of one function, in order, with the kinds of its variables.

    Attributes:
        result: the kind of what is returned.
    """

    def __init__(self, program: Program, owner: ast.ClassDef | None, kinds: dict[str, Kind]) -> None:
        self._program, self._owner, self._kinds = program, owner, kinds
        self._layers: dict[str, Layer | None] = {}
        self._turned: dict[str, ast.Call] = {}  # variables that are x.transpose(1, 2), and where
        program.facts.begin()
        self.result: Kind = None
        self._classifies = False

    def block(self, statements: list[ast.stmt]) -> None:
        self._classifies = self._classifies or _counts_labels(statements)
        self._find_rank4(statements)
        for statement in statements:
            self._statement(statement)

    def _find_rank4(self, statements: list[ast.stmt]) -> None:
        """Note variables of which an index cuts the channels or the pixels of four axes, as `x[:, :3, :, :]`."""
        parts = [part for statement in statements for part in ast.walk(statement)]
        for node in parts:
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and _cuts_map(node.slice):
                name = node.value.id
                self._program.facts.rank4.add(name)
                if self._kinds.get(name) is None:
                    self._kinds[name] = "map?"

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return  # read by themselves
        if isinstance(node, ast.Assign):
            kind = self.kind(node.value)
            for target in node.targets:
                self._assign(target, node.value, kind)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value, self.kind(node.value))
        elif isinstance(node, ast.AugAssign):
            kind = self.kind(node.value)
            self.kind(node.target)
            if isinstance(node.target, ast.Name) and kind in RANKS and kind != "map?":
                self._kinds[node.target.id] = kind
        elif isinstance(node, ast.Return):
            kind = self.kind(node.value)
            self.result = self.result or kind
        else:
            for field in ("test", "iter", "value", "exc", "msg"):
                if isinstance(part := getattr(node, field, None), ast.expr):
                    self.kind(part)
            for item in getattr(node, "items", []):
                self.kind(item.context_expr)
            if isinstance(node, (ast.For, ast.AsyncFor)):
                self._loop(node)
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(node, field, [])
                if isinstance(inner, list):
                    for statement in inner:
                        self._statement(statement)
            for handler in getattr(node, "handlers", []):
                for statement in handler.body:
                    self._statement(statement)

    def _loop(self, node: ast.For | ast.AsyncFor) -> None:
        for part in ast.walk(node.target):
            if isinstance(part, ast.Name):
                self._kinds[part.id] = named_kind(part.id)

    def _assign(self, target: ast.expr, value: ast.expr, kind: Kind) -> None:
        self._program.reads.assigned(target, value, self._guess(value))
        if isinstance(target, ast.Name):
            self._turned.pop(target.id, None)
            if isinstance(value, ast.Call) and self._is_turned(value):
                self._turned[target.id] = value
            self._kinds[target.id] = kind or (named_kind(target.id) if not isinstance(value, ast.Constant) else None)
            layer = self._program.layer(value)
            if layer is not None:
                self._layers[target.id] = layer
        elif isinstance(target, ast.Subscript):
            self.kind(target)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            for number, part in enumerate(target.elts):
                if isinstance(part, ast.Name):
                    known = self.kind(values[number]) if len(values) == len(target.elts) else None
                    self._kinds[part.id] = known or named_kind(part.id)
                    if self._program.reads.unpacks_map(target, value) and number == 0:
                        self._mark(value)

    def _mark(self, value: ast.expr) -> None:
        """Note that a tensor whose shape is unpacked into n, c, h, w is a map."""
        base = value.func.value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
        base = value.value if isinstance(value, ast.Attribute) else base
        if isinstance(base, ast.Name):
            self._kinds[base.id] = "map"

    # -- expressions ---------------------------------------------------------------------------------------------------

    def _guess(self, node: ast.expr) -> Kind:
        """The kind of the tensor whose shape an expression reads."""
        part: ast.expr = node
        while True:
            if isinstance(part, ast.Subscript):
                part = part.value
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "size":
                part = part.func.value
            elif isinstance(part, ast.Attribute) and part.attr in ("shape", "data"):
                part = part.value
            else:
                break
        return self._kinds.get(part.id) if isinstance(part, ast.Name) else None

    def kind(self, node: ast.expr | None) -> Kind:
        """The kind of an expression; its calls and indices are looked at on the way."""
        if node is None:
            return None
        if isinstance(node, ast.Name):
            return self._kinds.get(node.id)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Attribute):
            owner = self.kind(node.value)
            if node.attr in ("data", "grad"):
                return owner
            return named_kind(node.attr) if named_kind(node.attr) == "filter?" else None
        if isinstance(node, ast.BinOp):
            left, right = self.kind(node.left), self.kind(node.right)
            if isinstance(node.op, ast.MatMult):
                return "other"
            sure = ("map", "signal", "volume", "other", "map?", "picture?")
            return next((k for k in sure if k in (left, right)), left or right)
        if isinstance(node, ast.IfExp):
            self.kind(node.test)
            return self.kind(node.body) or self.kind(node.orelse)
        found = [self.kind(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            for generator in node.generators:
                self.kind(generator.iter)
        if isinstance(node, (ast.UnaryOp, ast.Compare)):
            return found[0]
        return None

    def _call(self, node: ast.Call) -> Kind:
        program = self._program
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        full = program.names.of(node.func)
        if full.startswith("einops.") or (isinstance(node.func, ast.Name) and node.func.id in EINOPS):
            program.calls.einops(node)
            return None
        arguments = [self.kind(part.value if isinstance(part, ast.Starred) else part) for part in node.args]
        for value in keywords.values():
            self.kind(value)
        if full:
            name = full.rpartition(".")[2]
            function = full.startswith(("torch.nn.functional.", "torch.")) and not name[:1].isupper()
            if not function:
                program.calls.layer(node, name)
                return None
            first = self._first(name, node, arguments)
            program.calls.call(node, name, node.args[0] if node.args else None, node.args[1:], first, self)
            return self._made(name, first, node)
        if isinstance(node.func, ast.Attribute):
            name, owner = node.func.attr, node.func.value
            if isinstance(owner, ast.Name) and owner.id == "self" and self._owner is not None:
                layers = program.layers(self._owner.name)
                if name in layers and arguments:
                    return self._through(layers[name], arguments[0], node)
                return None
            if isinstance(owner, ast.Name) and owner.id in ("np", "numpy"):
                program.shapes.numpy(node, name)
                first = self._first(name, node, arguments)
                if first in RANKS or first == "picture":
                    program.calls.call(node, name, node.args[0], node.args[1:], first, self)
                return self._made(name, first, node)
            kind = self.kind(owner)
            if self._is_turned(node) and isinstance(owner, ast.Call) and owner.args:
                inner = owner.args[0]
                if isinstance(inner, ast.Call) and self._is_turned(inner):
                    why = "turned and turned back: layers of sequences take (N, L, C), so leave both out"
                    program.findings.add(node, "look", why)
            program.calls.call(node, name, owner, node.args, kind, self)
            return self._made(name, kind, node)
        if isinstance(node.func, ast.Name):
            if node.func.id in self._layers and arguments:
                return self._through(self._layers[node.func.id], arguments[0], node)
        else:
            layer = program.layer(node.func) if isinstance(node.func, ast.Call) else None
            self.kind(node.func)
            if layer is not None and arguments:
                return self._through(layer, arguments[0], node)
        return None

    def _through(self, layer: Layer | None, kind: Kind, node: ast.Call) -> Kind:
        given = node.args[0] if node.args else None
        if layer is not None and layer.effect in RANKS and isinstance(given, ast.Name) and kind in (None, "map?"):
            self._kinds[given.id] = layer.effect  # which the layer takes
        turned = given if isinstance(given, ast.Call) else self._turned.get(getattr(given, "id", ""))
        if (
            self._program.effect(layer) in ("signal", "norm")
            and isinstance(turned, ast.Call)
            and self._is_turned(turned)
        ):
            self._program.findings.add(turned, "change", "a sequence stays (N, L, C): leave it out")
        return self._program.apply(layer, kind)

    def _first(self, name: str, node: ast.Call, arguments: list[Kind]) -> Kind:
        """The kind of the first tensor of a function, or of those that it joins."""
        if name in JOINING and node.args and isinstance(node.args[0], (ast.List, ast.Tuple)):
            kinds = [self._kinds.get(part.id) if isinstance(part, ast.Name) else None for part in node.args[0].elts]
            return next((kind for kind in ("map", "signal", "volume") if kind in kinds), arguments[0])
        return arguments[0] if arguments else None

    def _is_turned(self, node: ast.Call) -> bool:
        """True for `x.transpose(1, 2)` and `x.permute(0, 2, 1)`, unless the channels of x are known to be second."""
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("transpose", "permute", "swapaxes"):
            return False
        numbers = tuple(n for n in map(integer, node.args) if n is not None)
        return is_turn(numbers) and self.kind(node.func.value) not in RANKS

    def _made(self, name: str, kind: Kind, node: ast.Call) -> Kind:
        """The kind of the result of a function or a method, by the kind of its first tensor."""
        if (made := made_by(name)) is not None:
            return made
        if KEEPING.fullmatch(name) or name in JOINING:
            return kind
        if name in ("view", "reshape", "flatten", "view_as", "reshape_as"):
            return self._program.shapes.viewed(name, node, kind)
        if name in ("linear", "bmm", "matmul", "mm", "einsum", "embedding", "scaled_dot_product_attention"):
            return "other"
        if name in REDUCING:
            return kind if keeps_axes(node) else "other" if kind in RANKS and kind != "map?" else None
        if name in ("transpose", "permute"):
            return self._program.shapes.permuted(node, kind)
        if name in ("chunk", "split", "unbind"):
            return kind
        if name == "eye" or (name in ("repeat", "tile", "expand") and len(node.args) == 2):
            return "other"
        return None

    def _subscript(self, node: ast.Subscript) -> Kind:
        kind = self.kind(node.value)
        for part in ast.walk(node.slice):
            if isinstance(part, ast.Call):
                self._call(part)
        self._program.reads.index(node, kind, self)
        if kind in RANKS and integer(node.slice) is not None:
            return "picture?" if isinstance(node.value, ast.Name) and kind == "map" else None
        if kind is None and _cuts_map(node.slice):
            return "map?"
        if isinstance(node.slice, ast.Tuple) and kind in RANKS and any(integer(n) is not None for n in node.slice.elts):
            return "other"  # an axis less
        return kind if isinstance(node.slice, (ast.Slice, ast.Tuple)) else None

    @property
    def classifies(self) -> bool:
        """True if the second axis is classes (N, classes): labels are counted, or the program has no images."""
        return self._classifies or self._program.of_vectors


def _cuts_map(index: ast.expr) -> bool:
    """True for `[:, a:b, :, :]` and `[:, :, a:b, c:d]`: slices of four axes, the first of them whole."""
    parts = index.elts if isinstance(index, ast.Tuple) else []
    if len(parts) != 4 or not all(isinstance(part, ast.Slice) for part in parts[:1] + parts[2:]):
        return False
    whole = [isinstance(part, ast.Slice) and not (part.lower or part.upper or part.step) for part in parts]
    cut = any(isinstance(part, ast.Slice) and (part.lower or part.step) for part in parts[2:])
    return whole == [True, False, True, True] or (whole[:2] == [True, True] and cut)


def _counts_labels(statements: list[ast.stmt]) -> bool:
    """True if predictions are compared with labels, and the labels are counted by images."""
    compared = counted = False
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and node.attr in ("eq", "topk"):
                compared = True
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq) for op in node.ops):
                compared = compared or not any(
                    isinstance(part, ast.Constant) for part in (node.left, *node.comparators)
                )
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
                counted = counted or (len(node.args) == 1 and integer(node.args[0]) == 0)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
                counted = True
    return compared and counted
