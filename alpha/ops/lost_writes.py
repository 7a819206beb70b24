"""Writes that would be lost: an in-place method on a copy that nothing refers to."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from alpha.tensor import Tensor


def _counted(self: Any, *args: Any, **kwargs: Any) -> int:
    return sys.getrefcount(self)


class _Probe:
    counted = _counted


def _references() -> tuple[int, int]:
    """What `sys.getrefcount` counts in a method of an object that nothing else refers to, and of one with a name."""
    probe = _Probe()
    return _Probe().counted(1), probe.counted(1)


# a Python whose calls keep no count of the object, as from 3.14 on, does not tell the two apart
_UNNAMED, _NAMED = _references() if hasattr(sys, "getrefcount") else (0, 0)


def copy_of_view(copy: Tensor) -> Tensor:
    """The copy, marked as what PyTorch gives as a view."""
    copy._copied = True
    return copy


def refusing_lost_writes(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which refuses to write a copy that nothing refers to, as that of `q[:, 0].fill_(5)`.

    PyTorch has a view there and writes q. If this Python does not tell such a copy by its references, as from 3.14 on,
    the method stays as it is.
    """
    if _UNNAMED >= _NAMED:
        return function

    @functools.wraps(function)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "_copied", False) and sys.getrefcount(self) <= _UNNAMED:
            raise ValueError(
                f"{name}: this is a copy that nothing refers to, so what is written would be lost; write the part of "
                f"the tensor, as in q[:, 0] = 5 or q[:, 0] += 1, or give the copy a name"
            )
        return function(self, *args, **kwargs)

    return method
