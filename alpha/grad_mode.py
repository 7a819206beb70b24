"""Whether operators are recorded, per thread: `no_grad`, `enable_grad` and `is_grad_enabled`."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
Mode = TypeVar("Mode", bound="no_grad")


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

    _enabled = False

    def __enter__(self: Mode) -> Mode:
        _state.outer.append(_state.enabled)
        _state.enabled = self._enabled
        return self

    def __exit__(self, *_: object) -> None:
        _state.enabled = _state.outer.pop()

    def __call__(self, function: F) -> F:
        """The function in this mode; `TypeError` for a class or an asynchronous function."""
        mode = type(self)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) or inspect.isclass(function):
            raise TypeError(
                f"{mode.__name__}: {function.__name__} is a class or an asynchronous function; "
                f"use `with {mode.__name__}():` in it"
            )
        if inspect.isgeneratorfunction(function):
            return cast(F, _generating(function, mode))

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with mode():
                return function(*args, **kwargs)

        return cast(F, call)


class enable_grad(no_grad):
    """Operators are recorded inside `with alpha.enable_grad(): ...`, also within `no_grad`, or in a decorated function.

    All else is as for `no_grad`.
    """

    _enabled = True


def _generating(
    function: Callable[..., Generator[Any, Any, Any]], mode: type[no_grad]
) -> Callable[..., Generator[Any, Any, Any]]:
    """A generator function each of whose steps runs in the mode."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, generator)
        while True:
            try:
                with mode():
                    value = step()
            except StopIteration as end:
                return end.value
            try:
                sent = yield value
            except GeneratorExit:
                with mode():
                    generator.close()
                raise
            except BaseException as error:
                step = functools.partial(generator.throw, error)
            else:
                step = functools.partial(generator.send, sent)

    return call
