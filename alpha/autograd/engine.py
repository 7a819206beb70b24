"""Backward: the walk through the record that `Function.apply` has made.

The walk is iterative (a heap by creation order, so that depth costs no recursion), adds gradients in place only if it
owns the array, and frees what a node saved as soon as the node has run. Every gradient that comes in passes one check,
`check_gradient`.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.autograd.first_step import FirstStep
from alpha.autograd.function import Function, tensor_class
from alpha.autograd.listeners import Uses, uses_behind
from alpha.autograd.versions import array_of, check_history
from alpha.core.primitive import REGISTRY, Array, Form, contiguous, device_name, form_of, shares_memory
from alpha.core.tensor_hooks import Hook, HookHandle
from alpha.errors import GradientError, ShapeError, type_name
from alpha.runtime.recording import NO_LAYER
from alpha.runtime.recording import state as listening

if TYPE_CHECKING:
    from alpha.core.tensor import Tensor


def check_gradient(grad: Array, wanted: Form, what: str, *details: object) -> Array:
    """The gradient array if it is of that form; every gradient that comes in passes here.

    Args:
        what: names the gradient in an error, a format of `details`.

    Raises:
        ShapeError: the shape is another one.
        GradientError: the device or the dtype is another one.
        TypeError: it is no array.
    """
    host, shape, dtype = wanted
    if not (type(grad) is np.ndarray and grad.flags.c_contiguous) and not hasattr(grad, "block"):
        if not isinstance(grad, (np.ndarray, np.generic)):
            raise TypeError(f"{what.format(*details)} is a {type_name(grad)}, an array is needed")
        grad = contiguous(grad)
    if grad.shape != shape:
        raise ShapeError(f"{what.format(*details)} has shape {tuple(grad.shape)}, the tensor {tuple(shape)}")
    if isinstance(grad, np.ndarray) is not host or grad.dtype != dtype:
        raise GradientError(
            f"{what.format(*details)} is {grad.dtype.name} on {device_name(grad)}, "
            f"the tensor {dtype.name} on {'cpu' if host else 'cuda'}"
        )
    return grad


def checked_tensor(grad: Any, tensor: Tensor, what: str) -> Tensor:
    """A gradient that a user gives for a tensor; raises as `check_gradient`."""
    if not isinstance(grad, tensor_class()):
        raise TypeError(f"{what} is a {type_name(grad)}, a Tensor is needed; use alpha.tensor(..)")
    check_gradient(array_of(grad), form_of(tensor.array), what)
    return grad


def backward(roots: Sequence[tuple[Tensor, Array]], retain_graph: bool = False, targets: Targets | None = None) -> None:
    """Accumulate d(sum of output . grad)/d(leaf) into `.grad` of every leaf that an output depends on.

    Args:
        roots: (output, grad) for each output.
        retain_graph: keep what the nodes saved.
        targets: if given, only the gradients of its tensors are found. They are put there, and no `.grad` changes.
    """
    uses = uses_behind([output for output, _ in roots]) if targets is None else None
    listener = listening.listener
    layer = NO_LAYER if listener is None else listener.layer
    try:
        if uses is not None:
            uses.begin()
        _Walk(retain_graph, targets, uses).walk_from(roots)
        if uses is not None:
            uses.finish()
    except BaseException:
        if uses is not None:
            uses.abandon()
        raise
    finally:
        if listener is not None:
            listener.layer = layer
    for device in {output.device for output, _ in roots}:
        device.mark_step()


class _Walk:
    """One walk from the outputs to the leaves, newest node first; see `backward`.

    A method drops an array as soon as it has no use for it, so that its memory is free for what runs next.

    Attributes:
        pending: the gradients that have arrived at nodes which have not run, by `Function.id`.
        totals: those of targets, and of leaves with hooks, which see the whole gradient.
    """

    __slots__ = ("add", "heap", "listener", "pending", "retain_graph", "targets", "totals", "uses")

    def __init__(self, retain_graph: bool, targets: Targets | None, uses: Uses | None) -> None:
        self.retain_graph, self.targets, self.uses = retain_graph, targets, uses
        self.listener = listening.listener
        self.add = REGISTRY["add"]
        self.pending: dict[int, _Gradient] = {}
        self.heap: list[int] = []  # of negated ids
        self.totals: dict[Tensor, Array] = {}

    def walk_from(self, roots: Sequence[tuple[Tensor, Array]]) -> None:
        """Walk from (output, grad) for each output to the leaves.

        A captured step also watches what methods of the program read that have the name of a function which has run
        (alpha/step/sources/ran.py), so this one is not called `run`, as many of a program's are.
        """
        for output, grad in roots:
            self._begin(output, grad)
        while self.heap:
            self._visit(self.pending.pop(-heapq.heappop(self.heap)))
        self._end()

    def _begin(self, output: Tensor, grad: Array) -> None:
        check_history("backward", output)
        if not output._requires_grad:
            raise GradientError("backward: the tensor does not require a gradient")
        root = output._node or output
        if isinstance(root, Function):
            root.gradient_is_seen = True
        forget_magnitude(grad)  # the user may have written to it
        if self.targets is None or root in self.targets.path:
            if isinstance(root, Function) and root.id in self.pending:  # given twice; no use of the output gives it
                self.pending[root.id].add(grad)
            else:
                self._arrive(root, grad, owned=False)
            if self.uses is not None:
                self.uses.count(root, True, self.totals)

    def _visit(self, gradient: _Gradient) -> None:
        """Run the rule of the node at which this whole gradient has arrived."""
        node, owned, targets = gradient.node, gradient.owned, self.targets
        node.begun, node._other_part = gradient.begun, gradient.other
        if self.listener is not None:
            self.listener.layer = node.layer
        if node.hooks and gradient.other is not None:  # the hook is newer than the last part
            gradient.add(gradient.other)
            node._other_part = None
        dY = _run_hooks(node.hooks, gradient.array, node.name) if node.hooks else gradient.array
        if targets is not None and node in targets.found:
            targets.found[node] = dY if owned and dY is gradient.array else _copy(dY)
        del gradient
        if targets is not None and node not in targets.through:
            return
        while node.first_run is not None:  # a second run may end in the first one of a function within it
            node.first_run[0].run_again()
        if node.adds_gradient and self._added_behind(node, dY):
            return
        step = None
        if node.takes_first_steps and getattr(node.edges[0], "offers_first_step", False):
            node.behind = step = self._step_behind(node)
        results = node.backward(dY) if targets is None else targets.run(node, dY)
        held = [dY, node._other_part, *(node._saved or ())]
        node.begun = node._other_part = None
        if step is not None:
            node.behind, step = None, step if step.taken else None
        if not self.retain_graph:
            node.free()
        del dY
        self._hand_on(node, results if isinstance(results, (tuple, list)) else (results,), held, step)

    def _added_behind(self, node: Function, dY: Array) -> bool:
        """Add the node's gradient in place to what has arrived behind it, if that is ours; return whether it was."""
        edge = node.edges[0]
        found = self.pending.get(edge.id) if isinstance(edge, Function) and self.targets is None else None
        if found is None or not found.owned:
            return False
        node.add_gradient(dY, found.array)
        forget_magnitude(found.array)
        found.uses += 1
        if not self.retain_graph:
            node.free()
        return True

    def _step_behind(self, node: Function) -> FirstStep | None:
        """First step of the node behind, if `node` gives the last part of its gradient, which nobody else asks for."""
        edge = node.edges[0]
        if not isinstance(edge, Function) or edge.hooks or edge.first_run is not None or self.targets is not None:
            return None
        found = self.pending.get(edge.id)
        if edge.recorded_uses != (1 if found is None else found.uses + 1):
            return None
        step = edge.first_step()
        if step is not None and found is not None:
            step.other = found.array
        return step

    def _hand_on(
        self, node: Function, grads: Sequence[Array | None], held: list[Array | None], step: FirstStep | None
    ) -> None:
        """Give what a node's rule has returned to the nodes and leaves behind it.

        Args:
            held: arrays that somebody else may hold; a saved one that nobody has asked for is None.
            step: the first step of the node behind the first input, if the rule took it.
        """
        if len(grads) != len(node.edges):
            raise GradientError(f"{node.name}: backward returned {len(grads)} gradients for {len(node.edges)} inputs")
        targets, uses = self.targets, self.uses
        for index, edge in enumerate(node.edges):
            dX = grads[index]
            if edge is None or dX is None or (targets is not None and edge not in targets.path):
                if uses is not None:
                    uses.count(edge, False, self.totals)
                continue
            form = edge.form if isinstance(edge, Function) else form_of(edge.array)
            assert form is not None  # a node behind an edge was recorded
            dX = check_gradient(dX, form, "{0.name}: the gradient of input {1}", node, index)
            others = [*held, *grads[index + 1 :]]  # the same array may come again
            owned = not node.lends and not shares_memory(dX, others)
            held.append(dX)
            self._arrive(edge, dX, owned, step if index == 0 else None)
            if isinstance(edge, Function):
                self.pending[edge.id].uses += 1
            if uses is not None:
                uses.count(edge, True, self.totals)

    def _arrive(self, edge: Function | Tensor, dX: Array, owned: bool, step: FirstStep | None = None) -> None:
        """Add a gradient to those that have arrived at a node or a leaf.

        Args:
            owned: nobody else holds its memory.
            step: the first step of the node, if it was taken; dX then is all of the gradient.
        """
        if isinstance(edge, Function):
            found = self.pending.get(edge.id)
            if found is None:
                self.pending[edge.id] = found = _Gradient(edge, dX, owned)
                heapq.heappush(self.heap, -edge.id)
            elif step is None:
                if edge.takes_parts and self._is_last_part(edge, found):
                    found.other = dX
                else:
                    found.add(dX)
            else:
                found.array, found.owned = dX, owned
            found.begun = step
        elif self.targets is None and not edge._hooks:
            _deposit(edge, dX, owned)
        elif edge in self.totals:
            forget_magnitude(self.add(self.totals[edge], dX, out=self.totals[edge]))
        else:
            self.totals[edge] = dX if owned else edge.device.copy(dX)

    def _is_last_part(self, node: Function, found: _Gradient) -> bool:
        """True if this part of the node's gradient is the last one, and only the node's rule sees the sum.

        It is False on the host, where an addition in place takes as long, and less memory.
        """
        assert node.form is not None
        host, *_ = node.form
        return not host and not node.hooks and self.targets is None and node.recorded_uses == found.uses + 1

    def _end(self) -> None:
        for leaf, total in self.totals.items():
            if self.targets is None:
                _deposit(leaf, total, owned=True)
            else:
                hooked = _run_hooks(leaf._hooks, total, "a leaf")
                self.targets.found[leaf] = hooked if hooked is total else _copy(hooked)


class Targets:
    """The tensors whose gradients are asked for, and the part of the record between the outputs and them.

    Attributes:
        found: of each target, a leaf or the node that made it, the gradient; None for one that was not reached.
        through: the nodes on a path from an output to a target.
        path: all of these, which is where gradients go.
    """

    def __init__(self, outputs: Iterable[Tensor], targets: Iterable[Tensor]) -> None:
        self.found: dict[Function | Tensor, Array | None] = dict.fromkeys(t._node or t for t in targets)
        self.path: set[Function | Tensor] = set(self.found)
        for node in self.found:
            if isinstance(node, Function):
                node.gradient_is_seen = True
        self.through: set[Function] = set()
        left = [output._node for output in outputs if output._node is not None]
        met = set(left)
        while left:
            behind = [edge for edge in left.pop().edges if isinstance(edge, Function) and edge not in met]
            met.update(behind)
            left += behind
        for node in sorted(met, key=lambda node: node.id):  # an edge leads to an older node
            if any(edge in self.path for edge in node.edges if edge is not None):
                self.through.add(node)
                self.path.add(node)

    def run(self, node: Function, dY: Array) -> Any:
        """The gradients of a node's inputs, only those on a path to a target."""
        needs = node.needs_input_grad
        node.needs_input_grad = tuple([edge is not None and edge in self.path for edge in node.edges])
        try:
            return node.backward(dY)
        finally:
            node.needs_input_grad = needs


class _Gradient:
    """The gradient that has arrived at a node so far; added in place once the array is ours."""

    __slots__ = ("array", "begun", "node", "other", "owned", "uses")

    def __init__(self, node: Function, array: Array, owned: bool = False) -> None:
        self.node, self.array, self.owned = node, array, owned
        self.uses = 0  # of the node's output that have given their part
        self.begun: FirstStep | None = None
        self.other: Array | None = None  # the last part, if the node adds it up itself

    def add(self, array: Array) -> None:
        self.array = REGISTRY["add"](self.array, array, out=self.array if self.owned else None)
        forget_magnitude(self.array)
        self.owned = True


def forget_magnitude(array: Array) -> None:
    """Forget the magnitude found when the array was made; it may be wrong now, see alpha/ops/conv2d/magnitudes.py."""
    if type(array) is not np.ndarray:
        array.magnitude = None


def _copy(array: Array) -> Array:
    return tensor_class()(array).device.copy(array)


def _run_hooks(hooks: dict[HookHandle, Hook], array: Array, name: str) -> Array:
    """The gradient after every hook, in the order of registration; each sees a copy of what the one before left."""
    tensor_type = tensor_class()
    for hook in tuple(hooks.values()):
        given = tensor_type(_copy(array))
        result = hook(given)
        if result is not None:
            array = checked_tensor(result, given, f"{name}: the gradient that a hook returned").array
            forget_magnitude(array)
    return array


class Retaining(HookHandle):
    """Keeps the gradient in `.grad` of a tensor that is no leaf, as the other hooks leave it."""

    last = True


def retain(tensor: Tensor, node: Function) -> None:
    """Let the node of a tensor keep its gradient in `.grad`; the node does not keep the tensor."""
    if any(isinstance(handle, Retaining) for handle in node.hooks):
        return
    owner = weakref.ref(tensor)

    def keep(gradient: Tensor) -> None:
        if (held := owner()) is not None:
            _deposit(held, gradient.array, owned=True)

    Retaining(node.hooks, keep)


def _deposit(leaf: Tensor, array: Array, owned: bool) -> None:
    """Add to `.grad` of a leaf that still requires one; `owned` tells that nobody else holds the array's memory."""
    if leaf._hooks:
        hooked = _run_hooks(leaf._hooks, array, "a leaf")
        array, owned = hooked, owned and hooked is array
    if not leaf._requires_grad:  # since the forward pass; as in PyTorch hooks have seen the gradient
        return
    grad = leaf._grad
    if grad is None:
        leaf._grad = tensor_class()(array if owned else leaf.device.copy(array))
    else:
        REGISTRY["add"](array_of(grad), array, out=grad.array)
        grad._version.bump("backward")
