"""Define-by-run gradients: `Function` records a step, `backward` walks the record.

A `Function` writes its forward and its gradient rule once, on arrays, with primitives. `apply`
makes the output tensor and the graph node. Backward is iterative (a heap by creation order, so that
depth costs no recursion), adds gradients in place only where it owns the array, and frees what a
node saved as soon as the node has run.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from alpha.errors import DeviceError, GradientError
from alpha.numerics import is_floating
from alpha.primitive import Array

if TYPE_CHECKING:
    from alpha.tensor import Tensor

Hook = Callable[["Tensor"], "Tensor | None"]
Edge = Union["Function", "Tensor", None]  # the producing node, a leaf, or no gradient wanted


class _State(threading.local):
    enabled = True


_state = _State()
_ids = itertools.count()


class Version:
    """How often the memory of a tensor was written in place, all and recorded; views share one."""

    __slots__ = ("recorded", "value", "writer")

    def __init__(self) -> None:
        self.value = self.recorded = 0
        self.writer = ""

    def bump(self, writer: str, recorded: bool = False) -> None:
        self.value += 1
        self.recorded += recorded
        self.writer = writer


class no_grad(contextlib.ContextDecorator):
    """No graph is recorded inside: `with alpha.no_grad(): ...`, or as a decorator."""

    def __enter__(self) -> no_grad:
        self._outer = _state.enabled
        _state.enabled = False
        return self

    def __exit__(self, *_: object) -> None:
        _state.enabled = self._outer

    def _recreate_cm(self) -> no_grad:
        return no_grad()


def is_grad_enabled() -> bool:
    return _state.enabled


class Function:
    """One recorded operator. Subclasses define `forward(*arrays, **options)` and `backward(dY)`.

    `forward` returns the output array and keeps what the gradient needs with `self.save(...)`
    (arrays of inputs or of the output, guarded against later in-place writes) or as plain
    attributes. `backward` takes the output's gradient array and returns one gradient, or None, an
    input; `self.needs[i]` tells which are wanted.
    """

    needs: tuple[bool, ...] = ()
    in_place = False
    is_view = False

    def __init__(self) -> None:
        self.id = next(_ids)
        self.edges: tuple[Edge, ...] = ()
        self.hooks: list[Hook] = []
        self._saved: tuple[Array, ...] | None = ()
        self._guards: list[tuple[Version, int]] = []
        self.seen = 0  # recorded writes to the memory of a view before it was taken

    @property
    def name(self) -> str:
        return type(self).__name__

    def forward(self, *arrays: Array, **options: Any) -> Array:
        raise DeviceError(f"{self.name} has no forward")

    def backward(self, dY: Array) -> Any:
        raise GradientError(f"{self.name} has no gradient rule")

    def save(self, *arrays: Array) -> None:
        """Keep arrays for `backward`; read them there as `self.saved`."""
        self._saved = arrays

    @property
    def saved(self) -> tuple[Array, ...]:
        if self._saved is None:
            raise GradientError(
                f"{self.name}: the graph was freed by an earlier backward(); "
                "pass retain_graph=True to that one to walk it twice"
            )
        for version, value in self._guards:
            if version.value != value:
                raise GradientError(
                    f"{self.name}: a tensor saved for backward was written in place by "
                    f"{version.writer} (version {version.value}, saved at {value})"
                )
        return self._saved

    def free(self) -> None:
        self._saved = None

    @classmethod
    def apply(cls, *inputs: Tensor | None, **options: Any) -> Tensor:
        """Run forward on the inputs' arrays and record the step where a gradient is wanted."""
        from alpha.tensor import Tensor

        node = cls()
        tensors = [tensor for tensor in inputs if tensor is not None]
        _same_device(node.name, tensors)
        node.needs = tuple(_state.enabled and tensor is not None and tensor.requires_grad for tensor in inputs)
        recording = any(node.needs)
        _check_views(node.name, tensors)
        if cls.in_place:
            _check_writable(node.name, tensors[0], recording)
        Y = node.forward(*(None if t is None else t.array for t in inputs), **options)
        if cls.in_place:
            output = tensors[0]
            output._version.bump(node.name, recording)
        else:
            output = Tensor(Y)
        if cls.is_view:
            output._version = tensors[0]._version  # one memory, one version
            node.seen = output._version.recorded
        if recording and is_floating(Y.dtype):
            node.edges = tuple(
                tensor._edge() if tensor is not None and needed else None
                for tensor, needed in zip(inputs, node.needs, strict=True)
            )
            node._guard((*tensors, output))
            output._node = node
            output.requires_grad = True
        return output

    def _guard(self, tensors: Sequence[Tensor]) -> None:
        """Remember the version of each saved array that is a tensor's."""
        for array in self._saved or ():
            for tensor in tensors:
                if tensor.array is array:
                    self._guards.append((tensor._version, tensor._version.value))
                    break


def _same_device(name: str, tensors: Sequence[Tensor]) -> None:
    first = tensors[0].device
    for tensor in tensors[1:]:
        if tensor.device is not first:
            raise DeviceError(
                f"{name}: tensors on {first.name} and on {tensor.device.name}; move them together with .to(device)"
            )


def _check_views(name: str, tensors: Sequence[Tensor]) -> None:
    """A view's node does not know of an operator that wrote its base after it was taken."""
    for tensor in tensors:
        node, version = tensor._node, tensor._version
        if node is not None and node.is_view and node.seen != version.recorded:
            raise GradientError(
                f"{name}: {version.writer} wrote the base of a view ({node.name}) in place; "
                "take the view after the write"
            )


def _check_writable(name: str, target: Tensor, recording: bool) -> None:
    if recording and target.requires_grad and target._node is None:
        raise GradientError(
            f"{name}: a leaf tensor that requires a gradient cannot be written in place; "
            "use the operator without the trailing underscore, or no_grad()"
        )
    if target._node is not None and target._node.is_view:
        raise GradientError(
            f"{name}: a view ({target._node.name}) in the graph cannot be written in place; "
            "write its base, or use the operator without the trailing underscore"
        )


def backward(output: Tensor, grad: Array, retain_graph: bool = False) -> None:
    """Accumulate d(output . grad)/d(leaf) into `.grad` of every leaf that `output` depends on."""
    from alpha.ops.elementwise import add

    if output._node is None:
        if not output.requires_grad:
            raise GradientError("backward: the tensor does not require a gradient")
        _deposit(output, output.device.copy(grad))
        return
    pending: dict[int, _Gradient] = {output._node.id: _Gradient(output._node, grad)}
    heap = [-output._node.id]
    totals: dict[Tensor, Array] = {}  # of leaves with hooks, which see the whole gradient
    while heap:
        gradient = pending.pop(-heapq.heappop(heap))
        node = gradient.node
        dY = _run_hooks(node.hooks, gradient.array)
        del gradient
        results = node.backward(dY)
        grads = results if isinstance(results, tuple) else (results,)
        if not retain_graph:
            node.free()
        for edge, dX, fresh in _fresh(node, grads, dY):
            if not isinstance(edge, Function):
                array = dX if fresh else edge.device.copy(dX)
                if not edge._hooks:
                    _deposit(edge, array)
                elif edge in totals:
                    add(totals[edge], array, out=totals[edge])
                else:
                    totals[edge] = array
            elif edge.id in pending:
                pending[edge.id].add(dX)
            else:
                pending[edge.id] = _Gradient(edge, dX, owned=fresh)
                heapq.heappush(heap, -edge.id)
        del dY, results, grads
    for leaf, total in totals.items():
        _deposit(leaf, total)


class _Gradient:
    """The gradient that has arrived at a node so far; added in place once the array is ours."""

    __slots__ = ("array", "node", "owned")

    def __init__(self, node: Function, array: Array, owned: bool = False) -> None:
        self.node, self.array, self.owned = node, array, owned

    def add(self, array: Array) -> None:
        from alpha.ops.elementwise import add

        self.array = add(self.array, array, out=self.array if self.owned else None)
        self.owned = True


def _fresh(node: Function, grads: Sequence[Array | None], dY: Array) -> Iterator[tuple[Any, Array, bool]]:
    """(edge, gradient, whether nobody else holds its memory) for each wanted input."""
    if len(grads) != len(node.edges):
        raise GradientError(f"{node.name}: backward returned {len(grads)} gradients for {len(node.edges)} inputs")
    seen = [dY]
    for edge, dX in zip(node.edges, grads, strict=True):
        if edge is None or dX is None:
            continue
        yield edge, dX, not any(_share_memory(dX, other) for other in seen)
        seen.append(dX)


def _share_memory(a: Array, b: Array) -> bool:
    hosts = [isinstance(array, np.ndarray) for array in (a, b)]
    if all(hosts):
        return bool(np.may_share_memory(a, b))
    return not any(hosts) and a.block is b.block


def _run_hooks(hooks: Sequence[Hook], array: Array) -> Array:
    from alpha.tensor import Tensor

    for hook in hooks:
        result = hook(Tensor(array))
        if result is not None:
            array = result.array
    return array


def _deposit(leaf: Tensor, array: Array) -> None:
    from alpha.ops.elementwise import add
    from alpha.tensor import Tensor

    hooked = _run_hooks(leaf._hooks, array)
    if hooked is not array:  # a tensor of the hook's own
        array = leaf.device.copy(hooked)
    if leaf.grad is None:
        leaf.grad = Tensor(array)
    else:
        leaf.grad = Tensor(add(leaf.grad.array, array, out=leaf.grad.array))
