"""Tracing: one observer that is told of every operator while a function runs, as `alpha.onnx.export` needs it.

A forward is a list of operators. Nearly all of them are calls of `Function.apply`, which tells the tracer of each. A
function whose result no `Function` makes alone (a place of the largest element, rows that an index names) is declared
by `traced_whole`, and is one operator for the tracer: what it calls inside is not told. Values that a program reads on
the host leave the list of operators, so the tracer is told of that, too.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from alpha.autograd.function import Function
    from alpha.core.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


class Tracer(Protocol):
    """Observer of the operators of a thread."""

    def operator(
        self, node: Function, inputs: Sequence[Tensor | None], options: dict[str, Any], run: Callable[[], Tensor]
    ) -> Tensor:
        """Result of `run`, which computes the operator."""

    def whole(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Result of `function(*args, **kwargs)`, a function that is traced as one operator."""

    def read(self, tensor: Tensor) -> None:
        """Take note that the values of a tensor go to the host."""


class _State(threading.local):
    tracer: Tracer | None = None


state = _State()


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    """Tell the tracer of the operators that this thread runs inside."""
    outer, state.tracer = state.tracer, tracer
    try:
        yield
    finally:
        state.tracer = outer


@contextmanager
def untraced() -> Iterator[None]:
    """Tell nobody of the operators inside: they are a part of one that has been told."""
    outer, state.tracer = state.tracer, None
    try:
        yield
    finally:
        state.tracer = outer


def traced_whole(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which a tracer sees as one operator of its name."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        tracer = state.tracer
        if tracer is None:
            return function(*args, **kwargs)
        result: R = tracer.whole(function, args, kwargs)
        return result

    vars(call)["__signature__"] = inspect.signature(function)
    vars(call)["traced"] = function
    del vars(call)["__wrapped__"]  # by which `unchecked` would find the function that tells nobody
    return call
