"""Backward: the walk through the record that `Function.apply` has made.

It is iterative (a heap by creation order, so that depth costs no recursion), adds gradients in place only if it owns
the array, and frees what a node saved as soon as the node has run. Every gradient that comes in passes one check,
`check_gradient`.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.autograd import (
    Form,
    Function,
    Hook,
    HookHandle,
    check_history,
    contiguous,
    form_of,
    shares_memory,
    tensor_class,
)
from alpha.errors import GradientError, ShapeError
from alpha.primitive import Array, device_name

if TYPE_CHECKING:
    from alpha.tensor import Tensor


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
            raise TypeError(f"{what.format(*details)} is a {type(grad).__name__}, an array is needed")
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
        raise TypeError(f"{what} is a {type(grad).__name__}, a Tensor is needed; use alpha.tensor(..)")
    check_gradient(grad.array, form_of(tensor.array), what)
    return grad


def backward(output: Tensor, grad: Array, retain_graph: bool = False) -> None:
    """Accumulate d(output . grad)/d(leaf) into `.grad` of every leaf that `output` depends on."""
    from alpha.ops.elementwise import add

    check_history("backward", output)
    if output._node is None:
        if not output.requires_grad:
            raise GradientError("backward: the tensor does not require a gradient")
        _deposit(output, grad, owned=False)
        return
    pending: dict[int, _Gradient] = {output._node.id: _Gradient(output._node, grad)}
    heap = [-output._node.id]
    totals: dict[Tensor, Array] = {}  # of leaves with hooks, which see the whole gradient
    while heap:
        gradient = pending.pop(-heapq.heappop(heap))
        node = gradient.node
        dY = _run_hooks(node.hooks, gradient.array, node.name) if node.hooks else gradient.array
        del gradient
        results = node.backward(dY)
        grads = results if isinstance(results, (tuple, list)) else (results,)
        others = [dY, *(node._saved or ())]  # arrays that somebody else may hold
        if not retain_graph:
            node.free()
        if len(grads) != len(node.edges):
            raise GradientError(f"{node.name}: backward returned {len(grads)} gradients for {len(node.edges)} inputs")
        for index, edge in enumerate(node.edges):
            dX = grads[index]
            if edge is None or dX is None:
                continue
            form = edge.form if isinstance(edge, Function) else form_of(edge.array)
            assert form is not None  # a node behind an edge was recorded
            dX = check_gradient(dX, form, "{0.name}: the gradient of input {1}", node, index)
            fresh = not shares_memory(dX, others)
            others.append(dX)
            if isinstance(edge, Function):
                if edge.id in pending:
                    pending[edge.id].add(dX)
                else:
                    pending[edge.id] = _Gradient(edge, dX, owned=fresh)
                    heapq.heappush(heap, -edge.id)
            elif not edge._hooks:
                _deposit(edge, dX, fresh)
            elif edge in totals:
                add(totals[edge], dX, out=totals[edge])
            else:
                totals[edge] = dX if fresh else edge.device.copy(dX)
        del dY, results, grads, others, dX  # their memory is free for the next node
    for leaf, total in totals.items():
        _deposit(leaf, total, owned=True)


class _Gradient:
    """The gradient that has arrived at a node so far; added in place once the array is ours."""

    __slots__ = ("array", "node", "owned")

    def __init__(self, node: Function, array: Array, owned: bool = False) -> None:
        self.node, self.array, self.owned = node, array, owned

    def add(self, array: Array) -> None:
        from alpha.ops.elementwise import add

        self.array = add(self.array, array, out=self.array if self.owned else None)
        self.owned = True


def _run_hooks(hooks: dict[HookHandle, Hook], array: Array, name: str) -> Array:
    """The gradient after every hook, in the order of registration; each sees a copy of what the one before left."""
    tensor_type = tensor_class()
    for hook in tuple(hooks.values()):
        given = tensor_type(tensor_type(array).device.copy(array))
        result = hook(given)
        if result is not None:
            array = checked_tensor(result, given, f"{name}: the gradient that a hook returned").array
    return array


def _deposit(leaf: Tensor, array: Array, owned: bool) -> None:
    """Add to `.grad` of a leaf; `owned` tells that nobody else holds the array's memory."""
    if leaf._hooks:
        hooked = _run_hooks(leaf._hooks, array, "a leaf")
        array, owned = hooked, owned and hooked is array
    grad = leaf._grad
    if grad is None:
        leaf._grad = tensor_class()(array if owned else leaf.device.copy(array))
    else:
        from alpha.ops.elementwise import add

        add(grad.array, array, out=grad.array)
        grad._version.bump("backward")
