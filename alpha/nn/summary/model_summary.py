"""The table of a model's layers, from what one forward pass records."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import enable_grad
from alpha.autograd.memory_mode import FAST, get_memory_mode, memory_mode
from alpha.autograd.recompute import no_checkpoints
from alpha.core.host_values import DTypeLike
from alpha.core.nested import tensors_in
from alpha.core.numerics import computed_precision, get_precision
from alpha.core.primitive import Array
from alpha.core.rng import get_rng_state, set_rng_state
from alpha.core.tensor import Tensor, as_dtype
from alpha.errors import ShapeError
from alpha.module.module import Module, device_of, evaluation_of
from alpha.nn.batchnorm import _BatchNorm
from alpha.nn.dragon_norms import SqBatchNorm
from alpha.nn.lazy import initialised
from alpha.nn.summary.kept_sides import AGAIN, BOTH, INPUT, NEITHER, OUTPUT, kept_sides
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.convolution.conv_arguments import ConvAxes
from alpha.ops.kernel.options import integer
from alpha.ops.matmul.matmul import Linear, Matmul
from alpha.ops.sequence.recurrence import Recurrent

Given = tuple[int, ...] | Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Cost:
    """Cost of operators: their operations and bytes.

    Attributes:
        flops: operations of convolutions and matrix products, two a multiply-add. Those of a convolution are of each
            output, or of each input if it is transposed, with each tap of the filter, also where padding is met. No
            zeros that a stride or a dilation would put between operands are among them.
        convolution: those of them that belong to convolutions.
        useful: those of convolutions that meet no padding. C-K-S skips the others. With groups these are the products
            within the groups.
        moved: bytes that the operators read and write, each operand and each result once. What is multiplied counts in
            the dtype in which that is done.
        kept: bytes of activations that stay until the backward pass.
    """

    flops: int = 0
    convolution: int = 0
    useful: float = 0.0
    moved: int = 0
    kept: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.convolution + other.convolution,
            self.useful + other.useful,
            self.moved + other.moved,
            self.kept + other.kept,
        )


@dataclass(frozen=True)
class Row:
    """One call of one module; `parameters` and `cost` are its own, without its submodules'."""

    name: str
    kind: str
    shape: tuple[int, ...]
    parameters: int
    cost: Cost


class Table(str):
    """The text of `Module.summary`; a notebook or a prompt shows it as it is printed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def summary(self: Module, input_shape: Given, dtype: DTypeLike = None) -> Table:
    """A table of layers, from one forward pass in the precision in force; the module stays as it was.

    What the module computes within a `no_grad` of its own is not counted, as nothing of it is recorded.

    Its columns are the shape of the output, the parameters, the operations of convolutions and matrix products in
    millions (MFLOP), the share of them that can be skipped, the bytes that operators read
    and write, and the bytes of activations that are kept for the backward pass, as if there was
    no `alpha.checkpoint`. K, M and G are KiB, MiB and GiB.

    MFLOP counts each output of a convolution with each tap of its filter, and each input of a transposed one, also
    where they meet the zeros of the padding; "skipped" is the share of those that do. So MFLOP x (1 - skipped) is what
    must be computed, in each line and in all. Zeros that a stride or a dilation would put between operands count in
    neither column, as no kernel multiplies them. A kernel may skip less: `alpha.profile` says how much it did.

    In a memory mode other than "fast" the column "keeps" says what stays of a batch normalisation in training: its
    "input", its "output", "both", "input, again" if the output is computed again, or "again" if both are. The bytes are
    those of "fast" in each mode; a plan has those of the mode (`alpha.memory_plan`).

    Args:
        input_shape: (N, H, W, C) of a batch of zeros, or the shape that `forward` takes; or an example: a Tensor,
            or a tuple of all that `forward` takes.
        dtype: of the zeros, such as "int64" for a model that begins with an `Embedding`; by default that of the
            first parameter.

    Raises:
        TypeError: `input_shape` is neither integers, nor a Tensor, nor Tensors alone.
        ValueError: an axis is shorter than 0, or a Tensor is given together with `dtype`.
    """
    arguments = _arguments(self, input_shape, dtype)
    model = initialised(self, arguments)
    shapes = ", ".join([str(x.shape) for x in arguments])
    with memory_mode(FAST):
        rows = trace(model, arguments)
    if get_memory_mode() == FAST:
        return Table(_table(rows, model, shapes, {}))
    sides, note = _sides(model, arguments)
    return Table(f"{_table(rows, model, shapes, sides)}\n{note}")


Module.summary = summary  # type: ignore[method-assign]


def _sides(model: Module, arguments: tuple[Tensor, ...]) -> tuple[dict[str, str], str]:
    """The array that each batch normalisation keeps, by its name, and a line about all of them."""
    mode = f'The bytes kept are those of the memory mode "{FAST}"\nIn the memory mode "{get_memory_mode()}"'
    try:
        sides = kept_sides(model, arguments)
    except (ShapeError, TypeError, ValueError) as error:
        return {}, f"{mode}: what batch normalisations keep is unknown ({error})"
    counts = Counter(sides.values())
    kept = [f"{side} ({counts[side]})" for side in (OUTPUT, AGAIN, NEITHER, INPUT, BOTH) if counts[side]]
    if missing := _weighted(model) - sides.keys():
        kept.append(f"unknown ({len(missing)}: no values reach it, or its calls keep different arrays)")
    return sides, f"{mode} batch normalisations keep: {', '.join(kept) or 'nothing, there are none with a weight'}"


def _weighted(model: Module) -> set[str]:
    """The names of the batch normalisations with a weight that normalise by a batch in training."""
    modules = model.named_modules()
    return {name for name, m in modules if isinstance(m, (_BatchNorm, SqBatchNorm)) and m.weight is not None}


def _arguments(model: Module, given: Given, dtype: DTypeLike) -> tuple[Tensor, ...]:
    """The tensors that the model runs on: those that are given, or zeros of a shape."""
    values: tuple[Any, ...] = (given,) if isinstance(given, (Tensor, int, float, str)) else tuple(given)
    if values and all(isinstance(value, Tensor) for value in values):
        if dtype is not None:
            raise ValueError(f"summary: dtype={dtype!r} belongs to a shape; the tensors that are given have theirs")
        return values
    if any(isinstance(value, Tensor) for value in values):
        others = sorted({type(value).__name__ for value in values if not isinstance(value, Tensor)})
        raise TypeError(
            f"summary: an example of Tensors has {', '.join(others)} among them; give Tensors alone, or the lengths of "
            "the axes of one input"
        )
    values = tuple([integer("summary", f"input_shape[{i}]", value, 0) for i, value in enumerate(values)])
    floats = [p.dtype for p in model.parameters()] or [np.dtype(np.float32)]
    return (Tensor(device_of(model).zeros(values, floats[0] if dtype is None else as_dtype(dtype))),)


def trace(model: Module, arguments: tuple[Tensor, ...]) -> list[Row]:
    """Run `model` once, in evaluation mode, and collect what each module recorded."""
    ledger = _Ledger(model)
    names = {id(module): name for name, module in model.named_modules()}
    rows: list[Row] = []
    counted: set[int] = set()
    running = [Cost()]  # of the modules whose forward has begun, and of nobody's

    def enter(module: Module, args: tuple[Any, ...]) -> None:
        running[-1] += ledger.charge(tensors_in(args))  # what the caller made itself
        running.append(Cost())

    def leave(module: Module, args: tuple[Any, ...], output: Any) -> None:
        tensors = list(tensors_in(output))
        own = {id(v): v for v in vars(module).values() if isinstance(v, Tensor)}
        parameters = sum(v.size for i, v in own.items() if i in ledger.own and i not in counted)
        counted.update(own)
        cost = running.pop() + ledger.charge(tensors)
        if parameters or cost != Cost() or not any(module.children()):
            shape = tensors[0].shape if tensors else ()
            kind = type(module).__name__
            rows.append(Row(names[id(module)] or "(model)", kind, shape, parameters, cost))

    with _traced(model), no_checkpoints():
        handles = [module.register_forward_pre_hook(enter) for module in model.modules()]
        handles += [module.register_forward_hook(leave) for module in model.modules()]
        try:
            model(*arguments)
        finally:
            for handle in handles:
                handle.remove()
    return rows


@contextlib.contextmanager
def _traced(model: Module) -> Iterator[None]:
    """Evaluation mode with every operator recorded, then everything as before, the random numbers, too."""
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    state = get_rng_state()
    with evaluation_of(model), enable_grad():
        for parameter in frozen:
            parameter.requires_grad = parameter.dtype.kind == "f"
        try:
            yield
        finally:
            set_rng_state(state)
            for parameter in frozen:
                parameter.requires_grad = False


class _Ledger:
    """Charges each node of the graph once, to the innermost module that was running."""

    def __init__(self, model: Module) -> None:
        self.own = {id(parameter) for parameter in model.parameters()}
        self._trained = {id(p) for p in model.parameters() if p.requires_grad}
        self._trains: dict[int, bool] = {}  # node id -> whether training would record it
        self._memory = {id(_root(tensor.array)) for _, tensor in model.named_tensors()}
        self._held: list[Array] = []  # an id is one array's as long as the array lives

    def charge(self, tensors: Iterable[Tensor]) -> Cost:
        """The cost of the nodes behind `tensors` that nobody was charged for yet."""
        total = Cost()
        for node in self._new(tensors):
            self._trains[node.id] = any(self._wanted(edge) for edge in node.edges)
            total += _work(node) + Cost(moved=_moved(node))
            if self._trains[node.id]:
                total += Cost(kept=self._kept(node))
        return total

    def _new(self, tensors: Iterable[Tensor]) -> list[Function]:
        stack: list[Any] = [tensor._node for tensor in tensors]
        found: dict[int, Function] = {}
        while stack:
            node = stack.pop()
            if isinstance(node, Function) and node.id not in self._trains | found.keys():
                found[node.id] = node
                stack += node.edges
        return [found[i] for i in sorted(found)]  # as they were made: inputs first

    def _wanted(self, edge: Any) -> bool:
        if isinstance(edge, Function):
            return self._trains[edge.id]
        return id(edge) in self._trained

    def _kept(self, node: Function) -> int:
        """Bytes that this node is the first to hold: saved arrays and array attributes."""
        total = 0
        for value in arrays_in(list(vars(node).values())):
            root = _root(value)
            if id(root) not in self._memory:
                self._memory.add(id(root))
                self._held.append(root)
                total += int(value.nbytes)
        return total


def _work(node: Function) -> Cost:
    """Operations of a convolution or a matrix product, from its shapes."""
    shape = getattr(node, "s", None)
    if isinstance(shape, (ConvShape, ConvAxes)):
        return Cost(shape.flops, shape.flops, shape.useful * shape.flops)
    if isinstance(node, Recurrent):
        return Cost(node.flops)
    if isinstance(node, Linear):
        X, W = node.saved
        return Cost(2 * X.size * W.shape[0])
    if isinstance(node, Matmul):
        A, B = node.saved
        return Cost(2 * A.size * B.shape[-2 if node.transpose_b else -1])
    return Cost()


def _moved(node: Function) -> int:
    """Bytes of the operands and of the result; none of a view."""
    if node.is_view or node.form is None:
        return 0
    _, shape, dtype = node.form
    read = list(node.read_bytes)
    if _work(node) != Cost():
        read[:2] = [operand.nbytes for operand in node.saved[:2]]
    return sum(read) + math.prod(shape) * dtype.itemsize


def _root(array: Array) -> Any:
    """Owner of the memory of an array, one object for all views of it."""
    if not isinstance(array, np.ndarray):
        return array.block
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def arrays_in(values: Iterable[Any]) -> Iterator[Array]:
    """The arrays among some values, and in tuples and lists among them."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from arrays_in(value)
        elif isinstance(value, np.ndarray) or hasattr(value, "block"):
            yield value


# -- text -----------------------------------------------------------------------------------------


def _table(rows: list[Row], model: Module, shapes: str, sides: dict[str, str]) -> str:
    def side(text: str) -> tuple[str, ...]:
        return (text,) if sides else ()

    header = ("layer", "type", "output", "parameters", "MFLOP", "skipped", "moved", "kept", *side("keeps"))
    body = [
        (row.name, row.kind, str(row.shape), *_cells(row.parameters, row.cost), *side(sides.get(row.name, "")))
        for row in rows
    ]
    cost = sum((row.cost for row in rows), Cost())
    parameters = [p.size for p in model.parameters()]
    trained = sum(p.size for p in model.parameters() if p.requires_grad)
    total = ("total", "", "", *_cells(sum(parameters), cost), *side(""))
    widths = [max(map(len, column)) for column in zip(header, *body, total, strict=True)]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))

    def line(cells: tuple[str, ...]) -> str:
        padded = [
            cell.ljust(width) if i < 3 or i == 8 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    frozen = "" if trained == sum(parameters) else f", {trained:,} of them trained"
    notes = (
        f"{type(model).__name__} on {shapes}: {sum(parameters):,} parameters{frozen}, "
        f"precision {computed_precision(device_of(model).name, get_precision())}\n"
        f"A forward pass: {cost.flops / 1e9:,.2f} GFLOP, {cost.moved / 2**20:,.1f} MiB read and written, "
        f"{cost.kept / 2**20:,.1f} MiB kept for the backward pass"
    )
    return "\n".join([line(header), rule, *map(line, body), rule, line(total), notes])


def _cells(parameters: int, cost: Cost) -> tuple[str, ...]:
    return (
        f"{parameters:,}" if parameters else "",
        f"{cost.flops / 1e6:,.1f}" if cost.flops else "",
        f"{(cost.convolution - cost.useful) / cost.flops:.1%}" if cost.convolution else "",
        _bytes(cost.moved),
        _bytes(cost.kept),
    )


def _bytes(count: int) -> str:
    """A number of bytes with three digits, in KiB, MiB or GiB; nothing for none."""
    if not count:
        return ""
    size, unit = count / 2**10, "K"
    for larger in "MG":
        if size >= 999.5:
            size, unit = size / 2**10, larger
    return f"{size:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}{unit}"
