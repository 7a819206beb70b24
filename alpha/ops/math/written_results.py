"""Results that an operator writes into its first operand, if that can hold them."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.indexing.getitem_setitem import set_item
from alpha.ops.kernel.common_dtype import kind_of


def check_holds(operator: str, x: Tensor, result: Tensor) -> None:
    """An error unless x can become the result of an operator.

    Raises:
        TypeError: the dtype of x cannot hold the result, as integers cannot hold floating numbers.
        ShapeError: the result has another shape.
    """
    if kind_of(result.dtype) > kind_of(x.dtype):
        raise TypeError(
            f"{operator}: the result has dtype {result.dtype.name}, which x of dtype {x.dtype.name} cannot hold; "
            "use the operator that does not write x"
        )
    if result.shape != x.shape:
        raise ShapeError(f"{operator}: the result {result.shape} does not fit into {x.shape}")


def written(operator: str, x: Tensor, result: Tensor) -> Tensor:
    """x, with the result of an operator as its new value, in the dtype of x; errors are those of `check_holds`."""
    check_holds(operator, x, result)
    set_item(x, Ellipsis, result)
    return x
