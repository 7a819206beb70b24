"""Listeners, which are told during a backward pass that the gradient of a leaf is complete.

Data parallelism sends gradients to other processes while the pass goes on; see alpha/distributed/data_parallel.py. A
leaf may be used several times, so its uses in the record are counted before the pass begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from alpha.autograd.function import Function

if TYPE_CHECKING:
    from alpha.core.tensor import Tensor


class Listener(Protocol):
    """Told of the gradients of leaves; one listener may have many leaves."""

    def begin(self) -> None:
        """Take note that a pass begins that may reach one of its leaves."""

    def ready(self, leaf: Tensor) -> None:
        """Take note that nothing more is added to `.grad` of the leaf in this pass."""

    def finish(self) -> None:
        """Take note that the pass has ended, after `ready` of each leaf that got a gradient."""

    def abandon(self) -> None:
        """Take note that the pass has failed."""


_listeners: dict[int, tuple[ref[Tensor], ref[Listener]]] = {}  # by the id of a leaf; neither is held


def listen(leaf: Tensor, listener: Listener) -> None:
    """Tell the listener of the gradients of a leaf, in place of the one before, as long as both live."""
    forget = partial(_forget, id(leaf))
    _listeners[id(leaf)] = ref(leaf, forget), ref(listener, forget)


def _forget(number: int, gone: ref[Tensor] | ref[Listener]) -> None:
    if gone in _listeners.get(number, ()):
        del _listeners[number]


def listener_of(leaf: Tensor) -> Listener | None:
    """The listener of a leaf, if there is one."""
    found = _listeners.get(id(leaf))
    return None if found is None else found[1]()


def uses_behind(outputs: Iterable[Tensor]) -> Uses | None:
    """Uses of leaves with listeners behind some outputs; None if there are no listeners at all."""
    return Uses(outputs) if _listeners else None


class Uses:
    """The uses of leaves with listeners, in the record behind some outputs, that a backward pass has not met yet."""

    def __init__(self, outputs: Iterable[Tensor]) -> None:
        self._left: Counter[Tensor] = Counter()
        self._got: dict[Tensor, bool] = {}  # leaves that have got a gradient: whether their listeners know it
        roots = [output._node or output for output in outputs]
        nodes = list({root for root in roots if isinstance(root, Function)})
        met = set(nodes)
        self._left.update(root for root in roots if not isinstance(root, Function) and listener_of(root) is not None)
        while nodes:
            for edge in nodes.pop().edges:
                if isinstance(edge, Function):
                    if edge not in met:
                        met.add(edge)
                        nodes.append(edge)
                elif edge is not None and listener_of(edge) is not None:
                    self._left[edge] += 1

    def count(self, edge: Function | Tensor | None, got: bool, held: Container[Tensor]) -> None:
        """Count a use.

        Args:
            got: a gradient has come through it.
            held: leaves whose `.grad` gets it at the end of the pass, as their hooks see the total.
        """
        if isinstance(edge, Function) or edge is None or edge not in self._left:
            return
        if got:
            self._got.setdefault(edge, False)
        self._left[edge] -= 1
        if self._left[edge] == 0 and edge in self._got and edge not in held:
            self._tell(edge)

    def _tell(self, leaf: Tensor) -> None:
        self._got[leaf] = True
        if (listener := listener_of(leaf)) is not None:
            listener.ready(leaf)

    def begin(self) -> None:
        """Tell that the pass begins."""
        for listener in self._listeners():
            listener.begin()

    def finish(self) -> None:
        """Tell of the leaves that are left, and that the pass has ended."""
        for leaf in [leaf for leaf, told in self._got.items() if not told]:
            self._tell(leaf)
        for listener in self._listeners():
            listener.finish()

    def abandon(self) -> None:
        """Tell that the pass has failed."""
        for listener in self._listeners():
            listener.abandon()

    def _listeners(self) -> list[Listener]:
        """Each listener of a leaf that the outputs depend on."""
        found = {id(listener): listener for leaf in self._left if (listener := listener_of(leaf)) is not None}
        return list(found.values())
