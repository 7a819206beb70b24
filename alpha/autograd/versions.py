"""Writes in place: how often a memory was written, which tensors know of it, and what may not be written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from alpha.core.origins import seen_of
from alpha.errors import GradientError

if TYPE_CHECKING:
    from alpha.autograd.function import Function
    from alpha.core.primitive import Array
    from alpha.core.tensor import Tensor


class PartRecord(Protocol):
    """Record that a part keeps of the whole tensor; alpha/ops/array/parts/view_parts.py has the class."""

    box: Any
    copied: bool

    def whole(self, part: Tensor) -> Tensor | None: ...

    def take_again(self, part: Tensor) -> bool: ...

    def written(self, part: Tensor) -> None: ...


class Always:
    """Value of `Tensor._base_version` if the tensor needs to know no recorded writes, but its version must be asked."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return True


ALWAYS = Always()


class Version:
    """Number of writes in place to the memory of a tensor, all of them and recorded ones; views share one `Version`."""

    value = recorded = 0  # of the class, as nearly all are never written: each result of an operator has a version
    writer = ""
    shared = False  # whether another library has the memory, too, whose writes nobody counts
    unaware: Always | None = None  # what `Tensor._base_version` is of a tensor that needs to know no recorded writes

    def refresh(self) -> None:
        """Read the memory again if it is a copy of a part of other memory, which was written since."""

    def base(self) -> Version | None:
        """The version of the memory of which this one is a copy of a part; None for any other memory."""
        return None

    def check_writable(self, name: str) -> None:
        """`GradientError` if the memory is a copy that cannot be written."""

    def bump(self, writer: str, recorded: bool = False) -> None:
        self.value += 1
        self.recorded += recorded
        self.writer = writer


def knows_history(tensor: Tensor) -> bool:
    """True if the tensor's node knows of all recorded writes to the tensor's memory."""
    seen = seen_of(tensor)
    return seen is None or seen == tensor._version.recorded


def check_history(name: str, tensor: Tensor) -> None:
    """`GradientError` if a recorded operator wrote the tensor's memory through another tensor: its node misses that."""
    if not knows_history(tensor):
        version = tensor._version
        kind = f"the base of a view ({tensor._node.name})" if tensor._node is not None else "the memory of a tensor"
        raise GradientError(
            f"{name}: {version.writer} wrote {kind} in place through another tensor, whose gradient would be lost; "
            "take the view after the write, or write a copy"
        )


def array_of(tensor: Tensor) -> Array:
    """The array of a tensor with the values of now, for code that reads it without an operator of the tensor."""
    if tensor._version.unaware is not None:
        tensor._version.refresh()
    return tensor.array


def part_of(tensor: Tensor) -> PartRecord | None:
    """Record of the whole tensor if an index gave this one as a view of a part; None for any other tensor."""
    return getattr(tensor, "_part", None)


def check_writable(name: str, target: Tensor, recording: bool) -> None:
    """`GradientError` if writing the tensor in place would lose a gradient."""
    if recording and target._requires_grad and target._node is None:
        raise GradientError(
            f"{name}: a leaf tensor that requires a gradient cannot be written in place; "
            "use an operator that gives a new tensor, or no_grad()"
        )
    target._version.check_writable(name)
    part = part_of(target)
    whole = None if part is None else part.whole(target)
    if whole is not None:
        check_history(name, whole)
        check_writable(name, whole, recording)
    elif target._node is not None and target._node.is_view:
        _check_view(name, target._node, recording)


def _check_view(name: str, view: Function, recording: bool) -> None:
    """`GradientError` unless the memory was made by a recorded operator and all views on the way may be written.

    The base and other views of it do not know of the write, and are refused when they are used (`check_history`).
    """
    base: Any = view
    while getattr(base, "is_view", False):
        if not base.is_writable:
            raise GradientError(
                f"{name}: a view ({base.name}) in the graph cannot be written in place; "
                "write its base, or use an operator that gives a new tensor"
            )
        base = base.edges[0]
    if recording and not hasattr(base, "edges"):
        raise GradientError(
            f"{name}: a view ({view.name}) of a leaf tensor that requires a gradient cannot be written in place; "
            "use an operator that gives a new tensor, or no_grad()"
        )
