"""Writes that would be lost: a function or method in place, of a copy that nothing refers to."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from alpha.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def _counted(*args: Any) -> int:
    return sys.getrefcount(args[0])


_found: list[int] = []  # by the last assignment to an item of a probe


def _counted_by_item(*args: Any) -> None:
    _found[:] = [sys.getrefcount(args[0])]


class _Probe:
    counted = _counted
    __setitem__ = _counted_by_item


def _references() -> tuple[int, int]:
    """What `sys.getrefcount` counts of a first argument that nothing else refers to, and of one with a name.

    A method counts as a function does; here are the larger count of the one, and the smaller of the other.
    """
    probe = _Probe()
    return max(_Probe().counted(1), _counted(_Probe())), min(probe.counted(1), _counted(probe))


def _references_by_item() -> tuple[int, int]:
    """The same counts of the first argument of `__setitem__`, as an assignment calls it."""
    probe = _Probe()
    _Probe()[1] = 1
    unnamed = _found[0]
    probe[1] = 1
    return unnamed, _found[0]


# a Python whose calls keep no count of the object, as from 3.14 on, does not tell the two apart
_UNNAMED, _NAMED = _references() if hasattr(sys, "getrefcount") else (0, 0)
_ITEM_UNNAMED, _ITEM_NAMED = _references_by_item() if hasattr(sys, "getrefcount") else (0, 0)


def copy_of_view(copy: Tensor) -> Tensor:
    """The copy, marked as what PyTorch gives as a view."""
    copy._copied = True
    return copy


def refusing_lost_writes(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """The function or method in place, which refuses to write a copy that nothing refers to, as `q[:, 0].fill_(5)`.

    PyTorch has a view there and writes q. If this Python does not tell such a copy by its references, as from 3.14 on,
    the function stays as it is.
    """
    if _UNNAMED >= _NAMED:
        return function
    name = name or function.__name__

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if args and getattr(args[0], "_copied", False) and sys.getrefcount(args[0]) <= _UNNAMED:
            raise ValueError(
                f"{name}: this is a copy that nothing refers to, so what is written would be lost; write the part of "
                f"the tensor, as in q[:, 0] = 5 or q[:, 0] += 1, or give the copy a name"
            )
        return function(*args, **kwargs)

    return call


def refusing_lost_items(set_item: Callable[[Tensor, Any, Any], None]) -> Callable[..., None]:
    """`__setitem__`, which refuses to write a copy that nothing refers to, as `q[:, 1][0] = 5`."""
    if _ITEM_UNNAMED >= _ITEM_NAMED:
        return set_item

    @functools.wraps(set_item)
    def call(*args: Any) -> None:
        if getattr(args[0], "_copied", False) and sys.getrefcount(args[0]) <= _ITEM_UNNAMED:
            raise ValueError(
                "index: the tensor before the last index is a copy that nothing refers to, so what is written would be "
                "lost; write one index, as in q[0, 1] = 5 for q[:, 1][0] = 5, or give the copy a name"
            )
        set_item(*args)

    return call
