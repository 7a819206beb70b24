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
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step.attempt import Attempt

FORWARD, BACKWARD, UPDATE, BETWEEN, OWN = "forward", "backward", "update", "between", "own"
_PHASES: dict[CodeType, str] = {
    engine._walk.__code__: BACKWARD,
    Optimizer.step.__code__: UPDATE,
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
        self._names: dict[int, str] = {}  # of modules, by their ids
        self._layers = [""]  # the innermost last

    def follow(self, modules: Iterable[Module]) -> None:
        """Name these modules as seen from those that lie in no other of them."""
        roots = roots_of(modules)
        for root in roots:
            kind = type(root).__name__
            for name, module in root.named_modules("" if len(roots) == 1 else kind):
                self._names.setdefault(id(module), name or kind)

    def __call__(self) -> tuple[str, str]:
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
            return self._within(self._names.get(id(module), self._layers[-1]), call, module, *args, **kwargs)

        def recorded(node: Function, *args: Any) -> None:
            record(node, *args)
            if threading.get_ident() == thread and self._layers[-1]:
                node.backward = self._followed(node, self._layers[-1])  # type: ignore[assignment, method-assign]

        try:
            Module.__call__ = called  # type: ignore[method-assign, assignment]
            Function._record = recorded  # type: ignore[method-assign, assignment]
            yield
        finally:
            Module.__call__, Function._record = call, record  # type: ignore[method-assign]

    def _within(self, layer: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self._layers.append(layer)
        try:
            return function(*args, **kwargs)
        finally:
            self._layers.pop()

    def _followed(self, node: Function, layer: str) -> Callable[[Any], Any]:
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
