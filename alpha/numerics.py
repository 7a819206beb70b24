"""The precision of convolutions on tensor cores: one switch.

    alpha.set_precision("tf32")            # from here on, in this thread
    with alpha.precision("float32"): ...   # inside only

"float32" (the default) is at least as accurate as float32 arithmetic; "tf32" keeps 11 bits of each operand and
sums in float32. An operator may compute more accurately than asked, where that is all there is (cpu, older GPUs). The
backward pass of an operator has the precision of its forward pass.
"""

from __future__ import annotations

import contextlib
import threading

PRECISIONS = ("float32", "tf32")


class _State(threading.local):
    name = "float32"


_state = _State()


def get_precision() -> str:
    """The precision in force in this thread."""
    return _state.name


def set_precision(name: str) -> None:
    """Set the precision for this thread; `ValueError` for a name that is none of "float32", "tf32"."""
    if name not in PRECISIONS:
        raise ValueError(f"precision {name!r} is not one of {', '.join(PRECISIONS)}")
    _state.name = name


class precision(contextlib.ContextDecorator):
    """`with alpha.precision("tf32"): ...`, or as a decorator."""

    def __init__(self, name: str) -> None:
        if name not in PRECISIONS:
            raise ValueError(f"precision {name!r} is not one of {', '.join(PRECISIONS)}")
        self.name = name
        self._outer: list[str] = []

    def __enter__(self) -> precision:
        self._outer.append(_state.name)
        _state.name = self.name
        return self

    def __exit__(self, *_: object) -> None:
        _state.name = self._outer.pop()
