"""Rows of a table that an index names: the embedding of words or classes."""

from __future__ import annotations

from typing import Any

from alpha.autograd.function import Function
from alpha.autograd.grad_mode import no_grad
from alpha.autograd.tracing import traced_whole
from alpha.autograd.versions import array_of
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.options import integer, only_offered, real
from alpha.ops.kernel.rows.row_indices import INT64, NO_PLACE, add_zeros, places, take_rows
from alpha.ops.kernel.views import View, write_view

__all__ = ["embedding"]


class Rows(Function):
    """Rows of a table, each as often as it is named   W (R, C), F (I,) -> Y (I, C)"""

    def forward(self, W: Array, *, F: Array, padding: int | None) -> Array:
        self.sizes, self.F, self.padding = (1, *W.shape), F, padding
        return take_rows(W.reshape(self.sizes), F).reshape((F.size, W.shape[1]))

    def backward(self, dY: Array) -> Any:
        """Equal rows add up in the order of the index; the row `padding` gets 0."""
        _, R, C = self.sizes
        dW = add_zeros(self.sizes, self.F, dY.reshape((1, *dY.shape))).reshape((R, C))
        if self.padding is not None:
            zero = device_of(dY).zeros((), dY.dtype)
            write_view(dW, View.whole((R, C)).sliced(0, self.padding, 1), zero, View((1, C), (0, 0)))
        return dW


@check_arguments
@traced_whole
def embedding(
    x: AnyTensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a table that an index names   x (...) of int64 or int32, weight (R, C) -> (..., C)

    The gradients of equal rows are added in the order of the index. An index that is negative or out of range is an
    error on cpu. On cuda nothing waits for the device, so its row is NaN.

    Args:
        padding_idx: the row whose gradient is 0; a negative one counts from the end.
        max_norm: rows that are named and longer than this are first made as long, in place and without a gradient.
        norm_type: the p of the norm that max_norm limits.
        scale_grad_by_freq, sparse: only False is offered.

    Raises:
        TypeError: x has no integers.
        IndexError: on cpu, the table has no such row.
        ShapeError: weight is no matrix, or has no row padding_idx.
    """
    only_offered("embedding", scale_grad_by_freq=(scale_grad_by_freq, False), sparse=(sparse, False))
    if x.dtype.kind != "i":
        raise TypeError(f"embedding: x has dtype {x.dtype.name}; an index of int64 or int32 is needed")
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight (R, C) is needed  (weight {weight.shape})")
    padding = None if padding_idx is None else padding_row("embedding", padding_idx, weight.shape[0])
    p = real("embedding", "norm_type", norm_type)
    index = as_dtype(array_of(x), INT64).reshape(x.size)
    try:
        F = places(index, weight.shape[0], 1, None, NO_PLACE, from_end=False)
    except IndexError as error:
        raise IndexError(f"embedding: {error}  (weight {weight.shape})") from None
    if max_norm is not None:
        _shorten(weight, Tensor(F), real("embedding", "max_norm", max_norm), p)
    return Rows.apply(weight, F=F, padding=padding).reshape(*x.shape, weight.shape[1])


def padding_row(operator: str, padding_idx: int, rows: int) -> int:
    """The row of a table that `padding_idx` names, counted from the end if it is negative."""
    row = integer(operator, "padding_idx", padding_idx)
    if not -rows <= row < rows:
        raise ShapeError(f"{operator}: padding_idx={row} is no row of a table of {rows} rows")
    return row % rows


def _shorten(weight: Tensor, index: Tensor, limit: float, p: float) -> None:
    """Scale the rows that are longer than the limit to its length."""
    with no_grad():
        index = index.where(index >= 0, weight.shape[0])  # no row of the table, while -1 is the last one
        rows = weight[index]
        norms = rows.norm(p, 1, keepdim=True)
        weight[index] = rows * (limit / (norms + 1e-7)).where(norms > limit, 1.0)
