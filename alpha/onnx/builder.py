"""Builder of a network from the nodes of an ONNX file: its values, the order of their axes, its layers and weights."""

from __future__ import annotations

import hashlib
import importlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from alpha import nn
from alpha.core.tensor import Tensor
from alpha.errors import CheckpointError, ExportError
from alpha.module.module import Module
from alpha.onnx.imported import Call, Network, Part
from alpha.onnx.package import onnx_package, tensor_values
from alpha.onnx.recorder import Host

UNNAMED = "constant", "onnx::", "val_"  # how programs begin the names of numbers that no layer has


class Node:
    """A node of the file with its attributes as values of Python.

    Attributes:
        operator, name: of ONNX.
        inputs: names, without empty ones at the end.
        attributes: by name.
    """

    def __init__(self, proto: Any, number: int) -> None:
        helper = onnx_package().helper
        self.operator, self.name = proto.op_type, proto.name or f"{proto.op_type}_{number}"
        self.inputs = list(proto.input)
        while self.inputs and not self.inputs[-1]:
            self.inputs.pop()
        self.outputs = [name for name in proto.output if name]
        self.attributes = {found.name: helper.get_attribute_value(found) for found in proto.attribute}
        self.proto = proto
        self._taken: set[str] = set()  # names of attributes for which a reader has asked

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, bytes as a string."""
        self._taken.add(name)
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def passes(self, *names: str) -> None:
        """Let attributes pass: what they do is in the shapes of the results, or left to the mode of the network."""
        self._taken.update(names)

    def check_attributes(self, opset: int) -> None:
        """Refuse an attribute that has another value than ONNX's default, and for which no reader has asked.

        Raises:
            ExportError: there is one; the message has its name and value.
        """
        for name in sorted(self.attributes.keys() - self._taken):
            value = self.get(name)
            if value != self._usual(name, opset):
                shown = value if isinstance(value, (int, float, str, list)) else f"a {type(value).__name__}"
                raise self.refused(f"with {name}={shown} is not offered")

    def _usual(self, name: str, opset: int) -> Any:
        """The value that an attribute has by default; None if it has none."""
        defs = importlib.import_module("onnx.defs")
        if not defs.has(self.operator):
            return None
        found = defs.get_schema(self.operator, opset).attributes.get(name)
        if found is None or not found.default_value.type:
            return None
        value = onnx_package().helper.get_attribute_value(found.default_value)
        return value.decode() if isinstance(value, bytes) else value

    def has(self, number: int) -> bool:
        """True if an input is given."""
        return number < len(self.inputs) and bool(self.inputs[number])

    def refused(self, why: str) -> ExportError:
        return ExportError(f"onnx.load: the node {self.name} ({self.operator}) {why}")


class Builder:
    """Network that is being made of a file, node by node.

    Attributes:
        opset: of the file.
        lengths: shapes by the names of values, as far as they are known; None for a length that is not.
        last: names of maps, whose channels are last in the network, second in the file.
        flat: maps that were flattened in NHWC: their lengths (C, ..) in the file.
    """

    def __init__(self, proto: Any, lengths: Mapping[str, tuple[int | None, ...]]) -> None:
        graph = proto.graph
        self.opset = max(item.version for item in proto.opset_import if item.domain in ("", "ai.onnx"))
        self.turned = {prop.key: prop.value for prop in proto.metadata_props}.get("layout", "NCHW") == "NCHW"
        self.graph, self._nodes = graph, list(graph.node)  # whose ids are those of the nodes as long as they are held
        self.constants: dict[str, Host] = {tensor.name: tensor_values(tensor) for tensor in graph.initializer}
        self.named = set(self.constants)
        self.lengths: dict[str, tuple[int | None, ...] | None] = {**lengths}
        self.lengths |= {name: array.shape for name, array in self.constants.items()}
        self.last: set[str] = set()
        self.flat: dict[str, tuple[int, ...]] = {}
        self.calls: list[Call] = []
        self.given = [info.name for info in graph.input if info.name not in self.constants]
        self.network = Network([], self.given, [info.name for info in graph.output])
        self._layers: dict[tuple[str, ...], str] = {}
        self._weights: dict[tuple[Any, ...], str] = {}
        self._columns: dict[str, tuple[int, ...]] = {}
        self._shared: dict[tuple[str, str], Tensor] = {}
        self._forms: dict[tuple[str, str], str] = {}
        self._users: dict[str, list[Any]] = {}
        self._read: set[int] = set()  # ids of nodes that became a part of a layer before them
        for node in self._nodes:
            for name in node.input:
                self._users.setdefault(name, []).append(node)

    def build(self, readers: Mapping[str, Callable[[Builder, Node], None]]) -> Network:
        """The network, of whose nodes each is read by the reader of its operator.

        Raises:
            ExportError: there is no reader, or it refuses the node.
        """
        for name in self.given:
            if self.turned and self.rank(name) in (4, 5):
                self.last.add(name)
        for number, proto in enumerate(self._nodes):
            if id(proto) in self._read:
                continue
            node = Node(proto, number)
            if proto.domain not in ("", "ai.onnx"):
                raise node.refused(f"is of the domain {proto.domain}; only operators of ONNX itself are offered")
            reader = Builder._fold if self._is_constant(node) else readers.get(node.operator)
            if reader is None:
                raise node.refused("is not offered; alpha.onnx.load reads convolutional networks")
            try:
                reader(self, node)
                if reader is not Builder._fold:
                    node.check_attributes(self.opset)
            except (CheckpointError, ExportError):
                raise
            except Exception as error:
                raise node.refused(f"cannot be read: {type(error).__name__}: {error}") from error
        results = [self._result(info.name) for info in self.graph.output]
        self._finish(results)
        return self.network

    def _result(self, name: str) -> str:
        if name in self.constants:
            return self.weight(name)
        return self.maps(name) if self.turned and self.rank(name) in (4, 5) else self.natural(name)

    def _finish(self, results: Sequence[str]) -> None:
        """Keep the calls on which the results depend, and note when a value is needed no more."""
        needed, kept = set(results), []
        for call in reversed(self.calls):
            if needed.intersection(call.outputs):
                needed.update(call.inputs)
                kept.append(call)
        self.network.calls = tuple(kept[::-1])
        made = {*self.given, *(name for call in self.network.calls for name in call.outputs)}
        for name in sorted(needed - made):
            if name[:1] != "@":
                raise ExportError(
                    f"onnx.load: the value {name} is a shape or a mask, from which nothing can be computed"
                )
        self.network._results = tuple(results)
        last = {name: number for number, call in enumerate(self.network.calls) for name in call.inputs}
        self.network._last = {name: number for name, number in last.items() if name not in results}

    # -- constants -------------------------------------------------------------------------------------

    def _is_constant(self, node: Node) -> bool:
        """True if a node depends on no input; a shape that is known but for the batch counts as none."""
        return node.operator != "Dropout" and all(name in self.constants for name in node.inputs if name)

    def _fold(self, node: Node) -> None:
        """Compute a node by onnx's own evaluation."""
        onnx_package()
        from onnx.reference import ReferenceEvaluator

        feed = {name: self.constants[name] for name in node.inputs if name}
        opsets = {"": self.opset}
        found = ReferenceEvaluator(node.proto, opsets=opsets).run(None, feed)
        for name, value in zip(node.outputs, found, strict=False):
            self.constants[name] = np.asarray(value)
            self.lengths[name] = self.constants[name].shape

    def constant(self, node: Node, number: int, default: Any = None) -> Any:
        """A constant input as an array; the default if it is not given.

        Raises:
            ExportError: it is no constant.
        """
        if not node.has(number):
            return default
        name = node.inputs[number]
        if name not in self.constants:
            raise node.refused(f"has an input {name} that is no constant")
        return self.constants[name]

    def weight(self, name: str, array: Host | None = None) -> str:
        """A constant as a parameter (numbers of several elements that the file names) or a buffer of the network."""
        values = self.constants[name] if array is None else array
        key = (name, values.shape, hashlib.blake2b(values.tobytes()).digest())
        if key not in self._weights:
            path = self.path(name, f"constant_{len(self._weights)}")
            owner, _, last = path.rpartition(".")
            named = name in self.named and not name.startswith(UNNAMED)
            trains = named and values.size > 1 and values.dtype.kind == "f"
            kept: Tensor = nn.Parameter(values) if trains else nn.Buffer(np.array(values), persistent=named)
            setattr(self.part(owner), last, kept)
            self._weights[key] = f"@{path}"
        return self._weights[key]

    def bias_behind(self, node: Node, length: int) -> tuple[str, str] | None:
        """The bias that is added to a product and to nothing else, and the name of the sum, whose node is then read."""
        users = self._users.get(node.outputs[0], [])
        if len(users) != 1 or users[0].op_type != "Add" or node.outputs[0] in self.network.output_names:
            return None
        if users[0].attribute:  # of files before opset 7
            return None
        others = [name for name in users[0].input if name != node.outputs[0]]
        if len(others) != 1 or others[0] not in self.named or self.constants[others[0]].shape != (length,):
            return None
        self._read.add(id(users[0]))
        return others[0], users[0].output[0]

    # -- names -----------------------------------------------------------------------------------------

    def path(self, name: str, otherwise: str) -> str:
        """A dotted name of a part of the network that nothing has: the file's, if it is one."""
        good = re.fullmatch(r"\w+(\.\w+)*", name) and not name.startswith(UNNAMED)
        path = name if good else re.sub(r"\W+", "_", otherwise).strip("_") or "part"
        found, number = path, 1
        while self._taken(found):
            found, number = f"{path}_{number}", number + 1
        return found

    def _taken(self, path: str) -> bool:
        owner: Any = self.network
        for name in path.split("."):
            if not isinstance(owner, Module):
                return True
            if not hasattr(owner, name):
                return False
            owner = getattr(owner, name)
        return True

    def part(self, path: str) -> Module:
        """The part of a dotted name, which is made if there is none."""
        owner: Module = self.network
        for name in path.split(".") if path else ():
            if not isinstance(vars(owner).get(name), Module):
                setattr(owner, name, Part())
            owner = vars(owner)[name]
        return owner

    def layer(self, node: Node, weights: Sequence[str], make: Callable[[], Module], form: Any = ()) -> str:
        """Dotted name of the layer of a node; a node with the same weights, attributes and form has the same layer.

        Args:
            node, weights: of the file.
            make: makes the layer.
            form: all that a layer follows beside weights and attributes, as the axes of its input.
        """
        key = (node.operator, repr(sorted(node.attributes.items())), repr(form), *weights)
        if key not in self._layers:
            first, _, last = weights[0].rpartition(".")
            wanted = first if first and last in ("weight", "gamma", "kernel") else ""
            path = self.path(wanted, node.name)
            owner, _, name = path.rpartition(".")
            made = make()
            self._share(made, weights)
            setattr(self.part(owner), name, made)
            self._layers[key] = path
        return self._layers[key]

    def _share(self, layer: Module, weights: Sequence[str]) -> None:
        """Let a layer have the parameters of the layer before that has the same weights of the file."""
        for name, attribute in zip(weights, ("weight", "bias", "running_mean", "running_var"), strict=False):
            own = getattr(layer, attribute, None)
            if isinstance(own, Tensor):
                kept = self._shared.setdefault((name, attribute), own)
                if kept.shape == own.shape and _same(kept, own):
                    setattr(layer, attribute, kept)

    # -- values ----------------------------------------------------------------------------------------

    def rank(self, name: str) -> int | None:
        """The number of axes of a value, None if the file does not tell."""
        lengths = self.lengths.get(name)
        return None if lengths is None else len(lengths)

    def _told_rank(self, name: str) -> int:
        rank = self.rank(name)
        if rank is None:
            raise ExportError(
                f"onnx.load: the file does not tell the shape of the value {name}; a node before it has inputs or "
                "attributes that do not fit, or the file is damaged"
            )
        return rank

    def known_rank(self, node: Node, name: str) -> int:
        rank = self.rank(name)
        if rank is None:
            raise node.refused(f"has an input {name} of which the file does not tell the shape")
        return rank

    def call(self, run: str, inputs: Sequence[str], outputs: Sequence[str], last: bool = False, **options: Any) -> None:
        """Add a call to the forward; `last`: what it makes are maps with the channels last."""
        self.calls.append(Call(run, tuple(inputs), tuple(outputs), options))
        if last:
            self.last.update(outputs)

    def maps(self, name: str) -> str:
        """A value with the channels last."""
        if name in self.last:
            return name
        rank = self._told_rank(name)
        return self._turned(self.natural(name), "last", (0, *range(2, rank), 1))

    def natural(self, name: str) -> str:
        """A value with the axes of the file; a constant as a weight."""
        if name in self.constants:
            return self.weight(name)
        if name in self.flat:
            key = name, "natural"
            if key not in self._forms:
                self._forms[key] = f"{name} in order"
                self.call("Unflatten", [name], [self._forms[key]], lengths=self.flat[name])
            return self._forms[key]
        if name not in self.last:
            return name
        rank = self._told_rank(name)
        return self._turned(name, "natural", (0, rank - 1, *range(1, rank - 1)))

    def product(self, x: str, weight: str) -> tuple[str, tuple[int, ...]]:
        """The operand of a product with a weight, and the lengths (C, ..) of the flattened map whose columns both have.

        All products with a weight have the columns of the first one, so that it is one parameter: those of a map that
        was flattened in NHWC, or, with the lengths (), those of the file.
        """
        own = self.flat.get(x, ())
        columns = self._columns.setdefault(weight, own)
        if own == columns:
            return (x if own else self.natural(x)), columns
        x = self.natural(x)
        if columns:
            key = x, f"columns of {columns}"
            if key not in self._forms:
                self._forms[key] = f"{x} by {columns}"
                self.call("Flattened", [x], [self._forms[key]], lengths=columns)
            x = self._forms[key]
        return x, columns

    def _turned(self, name: str, form: str, order: tuple[int, ...]) -> str:
        key = name, form
        if key not in self._forms:
            made = self._forms[key] = f"{name} turned"
            self.lengths[made] = self.lengths.get(name)
            self.call("Permute", [name], [made], last=form == "last", order=order)
        return self._forms[key]

    def aligned(self, node: Node) -> tuple[list[str], bool]:
        """The operands of a node that are broadcast, in one order of axes, and whether that has the channels last."""
        values = [name for name in node.inputs if name not in self.constants]
        rank = max((self.rank(name) or 0 for name in node.inputs), default=0)
        last = any(name in self.last for name in values) and all(self.rank(name) == rank for name in values)
        if not last:
            return [self.natural(name) for name in node.inputs], False
        return [self._beside(name, rank) if name in self.constants else self.maps(name) for name in node.inputs], True

    def _beside(self, name: str, rank: int) -> str:
        """A constant that is broadcast to maps with the channels last."""
        array = self.constants[name]
        if array.ndim > 1 or (array.ndim == 1 and array.size > 1):
            array = np.moveaxis(array.reshape((1,) * (rank - array.ndim) + array.shape), 1, -1)
            while array.ndim > 1 and array.shape[0] == 1:
                array = array[0]
        return self.weight(name, np.ascontiguousarray(array))

    def axis(self, node: Node, name: str, axis: int) -> int:
        """An axis of the file in the order of axes that a value has."""
        rank = self.known_rank(node, name)
        axis %= rank
        if name not in self.last or axis == 0:
            return axis
        return rank - 1 if axis == 1 else axis - 1


def lengths_of(info: Any) -> tuple[int | None, ...] | None:
    kind = info.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(axis.dim_value if axis.HasField("dim_value") else None for axis in kind.shape.dim)


def _same(a: Tensor, b: Tensor) -> bool:
    return a is not b and bool(np.array_equal(a.numpy(), b.numpy()))


def size(lengths: Sequence[int | None]) -> int | None:
    """The product of lengths, if all are known."""
    known = [n for n in lengths if n is not None]
    return math.prod(known) if len(known) == len(lengths) else None
