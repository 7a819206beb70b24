"""Forms of operators that write in place: the class of one follows from the operator's own class."""

from __future__ import annotations

from alpha.autograd.function import Function
from alpha.core.primitive import Array, device_of
from alpha.ops.kernel.views import View, write_view


def in_place(step: type[Function], written_as: str) -> type[Function]:
    """An operator whose result is written into its first input; its `forward` asks `self.inplace`."""
    return type(f"{step.__name__}InPlace", (step,), {"inplace": True, "written_as": written_as})


def place(step: Function, X: Array) -> Array | None:
    """Array for the result of an elementwise operator: its input X, or None for a new array."""
    return X if step.inplace else None


def kept(step: Function, X: Array) -> Array:
    """Array that the gradient may read later: X, or its copy if X will be overwritten and a gradient is needed."""
    return device_of(X).copy(X) if step.inplace and True in step.needs_input_grad else X


def overwrite(X: Array, Y: Array) -> Array:
    """X with the values of Y, which has its shape and dtype."""
    whole = View.whole(tuple(X.shape))
    write_view(X, whole, Y, whole)
    return X
