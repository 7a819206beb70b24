"""Hooks of an optimizer's step: functions that are called before and after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from alpha.runtime.recording import refuse

Hook = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]  # (optimizer, args, kwargs)
Step = TypeVar("Step", bound=Callable[..., Any])


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
