"""`device` and `dtype` of layers, behind their own arguments as in PyTorch: `nn.Linear(3, 4, True, "cuda")`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from alpha.runtime.registry import names_device

__all__ = ["with_place"]

Initialiser = Callable[..., None]


def with_place(init: Initialiser) -> Initialiser:
    """An `__init__` that takes `device` and `dtype`, too, and moves what it has made as `to(device, dtype)` does.

    Both may be given by name, or by position behind the arguments that `init` takes by position. The layer has the
    numbers that it has without them.
    """
    kinds = [parameter.kind for parameter in inspect.signature(init).parameters.values()]
    own = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) - 1
    fixed = inspect.Parameter.VAR_POSITIONAL not in kinds

    @functools.wraps(init)
    def placed(self: Any, *args: Any, device: Any = None, dtype: Any = None, **kwargs: Any) -> None:
        behind = args[own:] if fixed and len(args) <= own + 2 else ()
        if behind:
            args = args[:own]
            if device is not None or (dtype is not None and len(behind) == 2):
                raise TypeError(f"{type(self).__name__}: device or dtype is given twice, by position and by name")
            device = behind[0]
            dtype = behind[1] if len(behind) == 2 else dtype
        init(self, *args, **kwargs)
        if behind and not (hasattr(self, "reset_parameters") or any(True for _ in self.children())):
            raise TypeError(f"{type(self).__name__}: {own} arguments are taken by position, not {own + len(behind)}")
        if behind and device is not None and not names_device(device):
            raise TypeError(f"{type(self).__name__}: device={device!r} is no device, such as 'cuda'")
        if device is not None or dtype is not None:
            self.to(device, dtype)

    return placed
