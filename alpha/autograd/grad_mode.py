"""Recording of operators, switched per thread: `no_grad`, `enable_grad`, `set_grad_enabled` and `inference_mode`."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Mode = TypeVar("Mode", bound="no_grad")


class _State(threading.local):
    def __init__(self) -> None:  # once per thread
        self.enabled = True
        self.outer: list[bool] = []  # to go back to, innermost last


_state = _State()


def is_grad_enabled() -> bool:
    """True if operators in this thread are recorded."""
    return _state.enabled


def without_grad(function: Callable[[], T]) -> T:
    """Call `function` in the mode of `no_grad`, and return its result.

    An interrupt may come in the code of a context manager, too, and `no_grad` would stay on then. Here it does not.
    """
    enabled, depth = _state.enabled, len(_state.outer)
    try:
        _state.enabled = False
        result = function()
        _state.enabled = enabled
    except BaseException:
        _state.enabled = enabled
        del _state.outer[depth:]
        raise
    return result


class no_grad:
    """No graph is recorded inside `with alpha.no_grad(): ...`, or in a function decorated with `@alpha.no_grad()`.

    The parentheses of the decorator may be left out. It acts on the thread that enters it. A decorated generator
    function records nothing while it runs, and leaves its caller's mode alone between two values.

    Examples:
        >>> import alpha
        >>> w = alpha.ones(2, requires_grad=True)
        >>> with alpha.no_grad():
        ...     y = w * 2
        ...
        >>> y.requires_grad
        False
    """

    _enabled = False

    if not TYPE_CHECKING:  # which would take the result of each call for an unknown one

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            """A new mode, or the function of a decorator without parentheses in it."""
            if len(args) == 1 and not kwargs and callable(args[0]):
                return cls()(args[0])
            return super().__new__(cls)

    def _again(self: Mode) -> Mode:
        """A mode like this one, for a call of a decorated function."""
        return type(self)()

    def __enter__(self: Mode) -> Mode:
        _state.outer.append(_state.enabled)
        _state.enabled = self._enabled
        return self

    def __exit__(self, *_: object) -> None:
        _state.enabled = _state.outer.pop()

    def __call__(self, function: F) -> F:
        """The function in this mode; `TypeError` for a class or an asynchronous function."""
        mode = self._again
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) or inspect.isclass(function):
            raise TypeError(
                f"{type(self).__name__}: {function.__name__} is a class or an asynchronous function; "
                f"use `with {type(self).__name__}():` in it"
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


class set_grad_enabled(no_grad):
    """Operators are recorded from here on in this thread, or not; `with` restores the mode that was before the call.

    As a decorator it sets the mode within the function alone.

    Args:
        mode: whether they are recorded.
    """

    def __init__(self, mode: bool) -> None:
        self._enabled = bool(mode)
        self._before = _state.enabled
        _state.enabled = self._enabled

    def _again(self) -> set_grad_enabled:
        return type(self)(self._enabled)

    def __enter__(self) -> set_grad_enabled:
        _state.outer.append(self._before)
        _state.enabled = self._enabled
        return self

    def __call__(self, function: F) -> F:
        _state.enabled = self._before
        return super().__call__(function)


class inference_mode(no_grad):
    """`no_grad` under PyTorch's other name; results may be used in a graph later on, which PyTorch refuses.

    Args:
        mode: False records operators, as `enable_grad`.
    """

    def __init__(self, mode: bool = True) -> None:
        self._enabled = not mode

    def _again(self) -> inference_mode:
        return type(self)(not self._enabled)


def _generating(
    function: Callable[..., Generator[Any, Any, Any]], mode: Callable[[], no_grad]
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
