"""The part of a step that asks for memory: its phase and its layer."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from alpha.autograd import engine
from alpha.autograd.function import Function
from alpha.module.module import Module
from alpha.optim.optimizer import Optimizer
from alpha.optim.step_hooks import evaluated
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.recording import NO_LAYER, Layer, layer_names
from alpha.step.capturing.attempt import Attempt

FORWARD, BACKWARD, UPDATE, BETWEEN, OWN = "forward", "backward", "update", "between", "own"
_PHASES: dict[CodeType, str] = {
    engine._Walk.walk_from.__code__: BACKWARD,
    Optimizer.step.__code__: UPDATE,  # and of each `step` of a program's own, which has the same wrapper
    evaluated.__code__: FORWARD,  # of the closure of an update
    Attempt.__init__.__code__: BETWEEN,
    CudaDevice.outside_capture.__code__: OWN,
}


class Where:
    """Says which phase and which layer of a step the caller belongs to.

    The phase follows from the functions that are running. Their variables are not read, since that would keep arrays
    alive. The layer is that of the module whose call is running, or in which the node of the graph was made whose
    gradient is computed; hooks would tell, too, but a step with hooks is not captured.
    """

    def __init__(self) -> None:
        self._known: dict[int, Layer] = {}  # of modules, by their ids
        self._layers = [NO_LAYER]  # the innermost last
        self._called: dict[int, None] = {}  # the outermost modules, in the order of their first calls

    def follow(self, modules: Iterable[Module]) -> None:
        """Know these modules as parts of those that lie in no other of them."""
        for root in roots_of(modules):
            number = self._known[id(root)].root if id(root) in self._known else len(self._known) + 1
            for name, module in root.named_modules():
                self._known.setdefault(id(module), Layer(number, type(root).__name__, name))

    def layer_of(self, module: Module) -> Layer:
        """The layer that a module is, which is followed."""
        return self._known[id(module)]

    def names(self) -> dict[Layer, str]:
        """Names of all layers, as a profile of the step has them."""
        order = {root: place for place, root in enumerate(self._called)}
        known = sorted(self._known.values(), key=lambda layer: order.get(layer.root, len(order)))
        return layer_names([NO_LAYER, *known])

    def __call__(self) -> tuple[str, Layer]:
        frame = sys._getframe(1)
        while frame is not None:
            phase = _PHASES.get(frame.f_code)
            if phase is not None:
                return phase, self._layers[-1]
            frame = frame.f_back  # type: ignore[assignment]
        return FORWARD, self._layers[-1]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context in which calls of modules and gradients of nodes in this thread are followed."""
        call, record, thread = Module.__call__, Function._record, threading.get_ident()

        def called(module: Module, /, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return call(module, *args, **kwargs)
            layer = self._known.get(id(module), self._layers[-1])
            if layer != NO_LAYER:
                self._called.setdefault(layer.root)
            return self._within(layer, call, module, *args, **kwargs)

        def recorded(node: Function, *args: Any) -> None:
            record(node, *args)
            if threading.get_ident() == thread and self._layers[-1] != NO_LAYER:
                node.backward = self._followed(node, self._layers[-1])  # type: ignore[assignment, method-assign]

        try:
            Module.__call__ = called  # type: ignore[method-assign, assignment]
            Function._record = recorded  # type: ignore[method-assign, assignment]
            yield
        finally:
            Module.__call__, Function._record = call, record  # type: ignore[method-assign]

    def _within(self, layer: Layer, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self._layers.append(layer)
        try:
            return function(*args, **kwargs)
        finally:
            self._layers.pop()

    def _followed(self, node: Function, layer: Layer) -> Callable[[Any], Any]:
        gradient, held = type(node).backward, weakref.ref(node)  # a node that held itself would live too long

        def backward(dY: Any) -> Any:
            node = held()
            assert node is not None
            return self._within(layer, gradient, node, dY)

        return backward


def roots_of(modules: Iterable[Module]) -> list[Module]:
    """Modules that lie in no other of these."""
    modules = list(modules)
    below = {id(inner) for module in modules for inner in list(module.modules())[1:]}
    return [module for module in modules if id(module) not in below]
