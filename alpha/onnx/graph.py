"""The ONNX graph that is being written: nodes, initializers, and in which order of axes each value is there.

Alpha's maps are NHWC and ONNX's operators of maps take NCHW. So a value of a forward may be there in several orders of
axes, each under a name of its own, its `forms`. An operator of maps asks for the order that it needs and gives its
result in that order; an operator that has no axes, or names them, takes the order that is there. A transpose stands
where an order is asked for that is not there yet, and nowhere else. An order `p` says that axis i of the ONNX value is
axis p[i] of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.core.numerics import BFLOAT16
from alpha.errors import ExportError
from alpha.onnx.package import onnx_package
from alpha.onnx.recorder import Host, Length, Value, host_values, length_of

if TYPE_CHECKING:
    from alpha.core.tensor import Tensor
    from alpha.onnx.recorder import Step

Order = tuple[int, ...]
Node = tuple[str, tuple[float | None, ...], dict[str, Any]]  # operator, numbers behind its operand, attributes
INT64 = np.dtype(np.int64)


def natural(rank: int) -> Order:
    """Alpha's own order of axes."""
    return tuple(range(rank))


def channels_first(rank: int) -> Order:
    """The order of ONNX's maps: N, C, and the axes between."""
    return (0, rank - 1, *range(1, rank - 1))


@dataclass
class Flat:
    """Form of a value (N, F) that is a map whose axes but the first were flattened in another order.

    Attributes:
        name: of the ONNX value (N, F).
        places: feature i of it is feature places[i] of the value.
        order, lengths: the order of axes of the map, and its lengths, without N.
    """

    name: str
    places: Host
    order: Order
    lengths: tuple[int, ...]


class Graph:
    """Nodes and initializers of an ONNX graph, written in the order of the forward.

    Attributes:
        batch: an ONNX input and its axis that follows the batch; None if no axis does.
        batches: the lengths of the batch in both runs.
    """

    def __init__(self, names: Mapping[int, tuple[str, Tensor]], batches: tuple[int, int]) -> None:
        self.batches = batches
        self.second_batch = batches[1]
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.batch: tuple[str, int] | None = None
        self._helper = onnx_package().helper
        self._tensors = onnx_package().numpy_helper
        self._forms: dict[Value, dict[Order, str]] = {}
        self._flat: dict[Value, Flat] = {}
        self._merged: dict[Value, Value] = {}
        self._sources: dict[str, str] = {}  # of the result of a reshape, what was reshaped
        self._constants: dict[tuple[Any, ...], str] = {}
        self._parameters = dict(names)  # by the ids of their arrays
        self._written: dict[int, str] = {}
        self._count: dict[str, int] = {}
        self._taken: set[str] = set()
        self.layer = ""

    # -- nodes -----------------------------------------------------------------------------------------

    def emit(self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        """Write a node and return the name of its output, or the names if there are several."""
        number = self._count[operator] = self._count.get(operator, 0) + 1
        name = f"{operator}_{number}"
        names = [self.free(name if outputs == 1 else f"{name}_{i}") for i in range(outputs)]
        node = self._helper.make_node(operator, list(inputs), names, name=name, **attributes)
        if self.layer:
            node.doc_string = self.layer
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def free(self, name: str) -> str:
        """The name, or one like it that nothing has."""
        found, number = name, 1
        while found in self._taken:
            found, number = f"{name}_{number}", number + 1
        self._taken.add(found)
        return found

    def constant(self, values: Any, dtype: Any = None, name: str = "constant") -> str:
        """An initializer of these values; equal small ones are one."""
        array = np.ascontiguousarray(values if dtype is None else np.asarray(values, dtype))
        array = array.reshape(np.shape(values))
        if array.dtype == BFLOAT16:
            raise ExportError(f"onnx.export: {name} is bfloat16; export a model of float32: model.float()")
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 64 and name == "constant" else None
        if key is not None and key in self._constants:
            return self._constants[key]
        found = self.free(name)
        self.initializers[found] = self._tensors.from_array(array, found)
        if key is not None:
            self._constants[key] = found
        return found

    def parameter(self, tensor: Tensor) -> str:
        """The initializer of a tensor that an operator reads beside its inputs, under its name in the model."""
        key = id(tensor.array)
        if key not in self._written:
            name = self._parameters.get(key, ("constant", tensor))[0]
            self._written[key] = self.constant(host_values(tensor), name=name)
        return self._written[key]

    def lengths(self, lengths: Sequence[Length | int]) -> str:
        """A tensor (R,) of int64 with these lengths, some of which may follow the batch."""
        parts: list[str] = []
        known = [n if isinstance(n, Length) else Length(n) for n in lengths]
        if all(n.is_fixed for n in known):
            return self.constant([n.fixed for n in known], INT64)
        assert self.batch is not None
        name, axis = self.batch
        N = self.emit("Shape", [name], start=axis, end=axis + 1)
        for n in known:
            part = N if n.per_image else self.constant([n.fixed], INT64)
            if n.per_image not in (0, 1):
                part = self.emit("Mul", [part, self.constant([n.per_image], INT64)])
            if n.per_image and n.fixed:
                part = self.emit("Add", [part, self.constant([n.fixed], INT64)])
            parts.append(part)
        return parts[0] if len(parts) == 1 else self.emit("Concat", parts, axis=0)

    def reshaped(self, name: str, lengths: Sequence[Length | int]) -> str:
        """An ONNX value under another shape; of two reshapes the first is left out."""
        source = self._sources.get(name, name)
        known = [n if isinstance(n, Length) else Length(n) for n in lengths]
        following = [i for i, n in enumerate(known) if not n.is_fixed]
        if len(following) == 1 and all(n.fixed for n in known if n.is_fixed):
            shape = self.constant([-1 if not n.is_fixed else n.fixed for n in known], INT64)
        else:
            shape = self.lengths(known)
        result: str = self.emit("Reshape", [source, shape])
        self._sources[result] = source
        return result

    def length_of(self, n: int, m: int) -> Length:
        """The length that is n and m in the two runs."""
        return length_of(n, m, self.batches)

    # -- values ----------------------------------------------------------------------------------------

    def bind(self, value: Value, name: str, order: Order | None = None) -> None:
        """Let a value be there under a name, in an order of axes."""
        self._forms.setdefault(value, {})[natural(value.rank) if order is None else order] = name

    def bind_flat(self, value: Value, flat: Flat) -> None:
        """Let a value be there as a flattened map."""
        self._flat[value] = flat

    def flat(self, value: Value) -> Flat | None:
        """The flattened map, if the value is there in no other form."""
        return None if value in self._forms else self._flat.get(value)

    def merge(self, value: Value, source: Value) -> None:
        """Let a value be another one whose first axes are one axis: products take it with all its axes."""
        self._merged[value] = source

    def merged(self, value: Value) -> Value | None:
        """The value whose first axes are one axis of this one, if it is there in no other form."""
        return None if value in self._forms else self._merged.get(value)

    def made(self, lengths: Sequence[Length], name: str, like: Value) -> Value:
        """A value that no operator of the forward makes, in natural order."""
        shape = tuple(n.fixed + n.per_image * self.batches[0] for n in lengths)
        value = Value(shape, like.dtype, depends=True, lengths=tuple(lengths))
        self.bind(value, name)
        return value

    def held(self, value: Value) -> Order:
        """An order in which the value is there; natural of a constant."""
        return next(iter(self._forms.get(value, {natural(value.rank): ""})))

    def same(self, value: Value, source: Value) -> None:
        """Let a value be there in all forms of another one."""
        for others in (self._flat, self._merged):
            if source in others and source not in self._forms:
                others[value] = others[source]  # type: ignore[assignment]
        if source.values is not None and source not in self._forms:
            self.get(source)
        if source in self._forms:
            self._forms[value] = self._forms[source]

    def get(self, value: Value, order: Order | None = None) -> str:
        """The name of the value in an order of axes, natural by default."""
        wanted = natural(value.rank) if order is None else order
        whole = self.merged(value)
        if whole is not None:
            self.bind(value, self.reshaped(self.get(whole), value.lengths))
        forms = self._forms.setdefault(value, {})
        if wanted not in forms:
            if value.values is not None:
                forms[wanted] = self._initializer(value, wanted)
            else:
                forms[wanted] = self._turned(value, wanted)
        return forms[wanted]

    def _initializer(self, value: Value, order: Order) -> str:
        assert value.values is not None
        name = self.constant(np.transpose(value.values, order), name=value.name or "constant")
        if value.values.shape == value.shape:
            return name
        shape = self.lengths([value.lengths[axis] for axis in order])
        result: str = self.emit("Expand", [name, shape])
        return result

    def _turned(self, value: Value, wanted: Order) -> str:
        forms = self._forms[value]
        if not forms:
            flat = self._flat.get(value)
            if flat is None:
                raise ExportError(f"onnx.export: a value {value.shape} has no form; this is a fault of alpha.onnx")
            rank = len(flat.lengths) + 1
            grid = self.reshaped(flat.name, [value.lengths[0], *flat.lengths])
            turned = self.emit("Transpose", [grid], perm=[flat.order.index(axis) for axis in range(rank)])
            forms[natural(2)] = self.reshaped(turned, value.lengths)
            return self.get(value, wanted)
        order, name = next(iter(forms.items()))
        result: str = self.emit("Transpose", [name], perm=[order.index(axis) for axis in wanted])
        return result

    def shape_in(self, value: Value, order: Order) -> list[Length]:
        """The lengths of a value in an order of axes."""
        return [value.lengths[axis] for axis in order]

    # -- operators without axes ------------------------------------------------------------------------

    def aligned(self, values: Sequence[Value], rank: int) -> tuple[list[str], Order]:
        """The names of operands that are broadcast, in one order of the result's axes, and this order."""
        orders = [self.held(value) for value in values if value.rank == rank and value.depends]
        order = next((held for held in orders if held != natural(rank)), natural(rank))
        return [self.operand(value, order) for value in values], order

    def operand(self, value: Value, order: Order) -> str:
        """A value that is broadcast to a result whose axes are in an order."""
        rank = len(order)
        if value.rank == rank:
            return self.get(value, order)
        if order == natural(rank) or value.rank == 0:
            return self.get(value)
        if value.values is not None and value.values.shape == value.shape:
            whole = value.values.reshape((1,) * (rank - value.rank) + value.shape)
            turned = np.transpose(whole, order)
            while turned.ndim and turned.shape[0] == 1:
                turned = turned[0]
            return self.constant(turned, name=value.name or "constant")
        whole_name = self.reshaped(self.get(value), [1] * (rank - value.rank) + list(value.lengths))
        result: str = self.emit("Transpose", [whole_name], perm=list(order))
        return result

    def elementwise(self, step: Step, operator: str, *values: Value, **attributes: Any) -> None:
        """Write one node of operands that are broadcast, the output of the step."""
        names, order = self.aligned(values, step.output.rank)
        self.bind(step.output, self.emit(operator, names, **attributes), order)

    def of_one(self, step: Step, *chain: Node) -> None:
        """Write nodes of one operand, one after the other, each (operator, numbers behind the operand, attributes).

        None among the numbers is the operand of the first node.
        """
        x = step.value(0)
        flat = self.flat(x)
        order = self.held(x)
        name = flat.name if flat is not None else self.get(x, order)
        first = name
        for operator, numbers, attributes in chain:
            others = [first if n is None else self.number(n, x.dtype) for n in numbers]
            name = self.emit(operator, [name, *others], **attributes)
        if flat is None:
            self.bind(step.output, name, order)
        else:
            self.bind_flat(step.output, Flat(name, flat.places, flat.order, flat.lengths))

    def number(self, value: float, dtype: Any = np.float32) -> str:
        """A constant without axes."""
        return self.constant(np.asarray(value, dtype))

    def rename_output(self, name: str, wanted: str, once: bool) -> None:
        """Let a value have the name of an output, by a node of its own if it is an input, a constant or two outputs."""
        makers = [node for node in self.nodes if name in node.output]
        if not makers or not once:
            self.nodes.append(self._helper.make_node("Identity", [name], [wanted], name=f"output {wanted}"))
            return
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, other in enumerate(names):
                    if other == name:
                        names[i] = wanted

    # -- the end ---------------------------------------------------------------------------------------

    def finish(self, outputs: Sequence[str]) -> list[Any]:
        """The nodes on which the outputs depend, in order; other initializers are dropped."""
        needed, kept = set(outputs), []
        for node in reversed(self.nodes):
            if any(name in needed for name in node.output):
                needed.update(node.input)
                kept.append(node)
        self.initializers = {name: tensor for name, tensor in self.initializers.items() if name in needed}
        return kept[::-1]
