"""Layout of the filters of a convolution, as far as the origin of a tensor tells it.

The rule: a Tensor of Alpha has its filters in NHWC, whatever dict holds it, but for three kinds of origin:

- A tensor that `alpha.load` has read from a file of PyTorch is in NCHW. So are its copies: `clone`, `to`, `detach`.
- A tensor that was made from values of another program (an array of numpy, a tensor of PyTorch, a list) may be in
  either layout, if its shape fits both, as (8, 3, 3, 3) does. Its layout is not known.
- What an operator makes of a tensor of these two kinds is of a layout that is not known.

A parameter or buffer of a module is in NHWC, for that is how the module reads it. Tensors of these origins are rare, so
nothing asks for them: the origin stands in the place of `Tensor._base_version`, where an operator finds that something
is unusual about its input, and only then looks closer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from alpha.core.numerics import is_floating

if TYPE_CHECKING:
    from alpha.autograd.function import Function
    from alpha.autograd.versions import Always
    from alpha.core.primitive import Array
    from alpha.core.tensor import Tensor

LAYOUTS = ("NHWC", "NCHW")  # Alpha's and PyTorch's


class Origin:
    """Value of `Tensor._base_version` for a tensor whose filters are not known to be in NHWC.

    Attributes:
        layout: "NCHW", or None if it is not known.
        seen: what `Tensor._base_version` would be otherwise.
    """

    __slots__ = ("layout", "seen")

    def __init__(self, layout: str | None, seen: int | Always | None = 0) -> None:
        self.layout, self.seen = layout, seen


def seen_of(tensor: Tensor) -> int | Always | None:
    """The recorded writes to its memory that a tensor knows of, by `Tensor._base_version`; None if it need not know."""
    seen = tensor._base_version
    return seen.seen if isinstance(seen, Origin) else seen


def layout_of(tensor: Tensor) -> str | None:
    """ "NHWC", "NCHW", or None if it is not known."""
    return tensor._base_version.layout if isinstance(tensor._base_version, Origin) else "NHWC"


def mark(tensor: Tensor, layout: str | None) -> Tensor:
    """The tensor, of whose filters is known that they are in NCHW, or with None that nothing is known."""
    tensor._base_version = Origin(layout, seen_of(tensor))
    return tensor


def inherit(tensor: Tensor, source: Tensor) -> Tensor:
    """The tensor, with the origin of one whose values it has."""
    if isinstance(source._base_version, Origin):
        return mark(tensor, source._base_version.layout)
    tensor._base_version = seen_of(tensor)
    return tensor


def unmark(tensor: Tensor) -> None:
    """Let a tensor be in NHWC."""
    tensor._base_version = seen_of(tensor)


def settle(part: Tensor, name: str, is_filter: bool) -> None:
    """Let a tensor be in NHWC, because it becomes a part of a module.

    Raises:
        ValueError: it is the filters of a convolution, and they are known to be in NCHW.
    """
    if is_filter and layout_of(part) == "NCHW":
        raise ValueError(
            f"{name}: these filters {part.shape} come from a file of PyTorch, so they are in NCHW; give the file to "
            "load_state_dict, or assign alpha.nn.Parameter(filters.movedim(1, -1))"
        )
    unmark(part)


def of_values(tensor: Tensor) -> Tensor:
    """A tensor with values from outside of Alpha, marked if a filter of its shape fits both layouts."""
    shape = tensor.array.shape
    if len(shape) > 2 and shape[1] > 1 and shape[1:-1] == shape[2:] and is_floating(tensor.array.dtype):
        mark(tensor, None)
    return tensor


def carry(node: Function, origin: Origin) -> None:
    """Let the result of an operator have the origin that one of its inputs has."""
    give = node.give

    def marked(Y: Array, inputs: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> Any:
        vars(node).pop("give", None)  # it refers to the node
        output = give(Y, inputs, tensors)
        if not (
            output._belongs
            or (True in node.needs_input_grad and _trains(tensors))
            or not is_floating(output.array.dtype)
        ):
            mark(output, origin.layout if node.copies else None)
        return output

    node.give = marked  # type: ignore[method-assign]


def _trains(tensors: Sequence[Tensor]) -> bool:
    """True if weights of Alpha take part, so that the result is no weight but an activation."""
    return any(tensor._requires_grad and not isinstance(tensor._base_version, Origin) for tensor in tensors)
