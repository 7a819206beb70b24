"""`device=` and `dtype=` of layers, behind their own arguments as in PyTorch: `nn.Linear(3, 4, device="cuda")`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["with_place"]

Initialiser = Callable[..., None]


def with_place(init: Initialiser) -> Initialiser:
    """An `__init__` that takes `device` and `dtype`, too, and moves what it has made as `to(device, dtype)` does.

    The layer has the numbers that it has without them.
    """

    @functools.wraps(init)
    def placed(self: Any, *args: Any, device: Any = None, dtype: Any = None, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if device is not None or dtype is not None:
            self.to(device, dtype)

    return placed
