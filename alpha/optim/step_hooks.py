"""Surroundings of an optimizer's step: hooks before and after it, its phase, and that of its closure."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, cast

from alpha.runtime.recording import phase, refuse

Hook = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]  # (optimizer, args, kwargs)
Step = TypeVar("Step", bound=Callable[..., Any])
T = TypeVar("T")


def with_hooks(step: Step) -> Step:
    """Wrap `step` so that it calls the optimizer's hooks, but not when one `step` calls another."""

    @wraps(step)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._stepping or not (self._pre_hooks or self._post_hooks):
            return step(self, *args, **kwargs)
        refuse(f"{self._name}: hooks of its step run on the host")
        self._stepping = True
        try:
            for hook in self._pre_hooks:
                given = hook(self, args, kwargs)
                if given is not None:
                    if not isinstance(given, tuple) or list(map(type, given)) != [tuple, dict]:
                        raise TypeError(
                            f"{self._name}: a hook before the step returned a {type(given).__name__}; it returns None "
                            "or (args, kwargs), a tuple and a dict"
                        )
                    args, kwargs = given
            result = step(self, *args, **kwargs)
            for hook in self._post_hooks:
                hook(self, args, kwargs)
        finally:
            self._stepping = False
        return result

    return cast(Step, call)


def evaluated(closure: Callable[[], T]) -> T:
    """The result of a closure, whose forward pass is no part of the update that calls it."""
    with phase("forward"):
        return closure()


def as_update(step: Step) -> Step:
    """Wrap a `step` of a program's own, so that what it does is the update, but not what its closure does."""
    parameters = inspect.signature(step).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    place = names.index("closure") - 1 if "closure" in names else -1  # behind the optimizer

    @wraps(step)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if callable(kwargs.get("closure")):
            kwargs["closure"] = partial(evaluated, kwargs["closure"])
        elif 0 <= place < len(args) and callable(args[place]):
            args = (*args[:place], partial(evaluated, args[place]), *args[place + 1 :])
        with phase("update"):
            return step(self, *args, **kwargs)

    return cast(Step, call)
