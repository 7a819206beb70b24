"""Whether operators are recorded, per thread: `no_grad` and `is_grad_enabled`."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class _State(threading.local):
    def __init__(self) -> None:  # once per thread
        self.enabled = True
        self.outer: list[bool] = []  # to go back to, innermost last


_state = _State()


def is_grad_enabled() -> bool:
    """True if operators in this thread are recorded."""
    return _state.enabled


class no_grad:
    """No graph is recorded inside `with alpha.no_grad(): ...`, or in a function decorated with `@alpha.no_grad()`.

    It acts on the thread that enters it. A decorated generator function records nothing while it runs, and leaves its
    caller's mode alone between two values.
    """

    def __enter__(self) -> no_grad:
        _state.outer.append(_state.enabled)
        _state.enabled = False
        return self

    def __exit__(self, *_: object) -> None:
        _state.enabled = _state.outer.pop()

    def __call__(self, function: F) -> F:
        """The function without recording; `TypeError` for a class or an asynchronous function."""
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) or inspect.isclass(function):
            raise TypeError(
                f"no_grad: {function.__name__} is a class or an asynchronous function; use `with no_grad():` in it"
            )
        if inspect.isgeneratorfunction(function):
            return cast(F, _without_grad(function))

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with no_grad():
                return function(*args, **kwargs)

        return cast(F, call)


def _without_grad(function: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Generator[Any, Any, Any]]:
    """A generator function each of whose steps runs under `no_grad`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, generator)
        while True:
            try:
                with no_grad():
                    value = step()
            except StopIteration as end:
                return end.value
            try:
                sent = yield value
            except GeneratorExit:
                with no_grad():
                    generator.close()
                raise
            except BaseException as error:
                step = functools.partial(generator.throw, error)
            else:
                step = functools.partial(generator.send, sent)

    return call
