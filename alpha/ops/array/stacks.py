"""Lists of tensors of at least one, two or three axes: given so many axes, and joined along the last of these."""

from __future__ import annotations

from typing import Any

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.joining import Tensors, cat, listed, tensors_of
from alpha.ops.array.layout import view as reshaped
from alpha.ops.kernel.options import integer

__all__ = ["column_stack", "dstack", "hstack", "vstack"]


def at_least(x: Tensor, rank: int) -> Tensor:
    """x with new axes of length 1 up to `rank` axes, a view: (N,) is (1, N) or (1, N, 1), (M, N) is (M, N, 1)."""
    shape = x.shape
    if not shape:
        shape = (1,) * rank
    elif len(shape) == 1 and rank > 1:
        shape = (1, *shape)
    if len(shape) == 2 and rank == 3:
        shape = (*shape, 1)
    return reshaped(x, shape)


def hstack(tensors: Tensors) -> Tensor:
    """The tensors one after the other along the second axis, vectors and numbers along the only one

    (M, N0, ..), (M, N1, ..), .. -> (M, N0 + N1 + .., ..)
    """
    given = [at_least(x, 1) for x in tensors_of("hstack", tensors)]
    return _joined("hstack", given, 0 if given[0].ndim == 1 else 1)


def vstack(tensors: Tensors) -> Tensor:
    """The tensors joined along the first axis; a vector is a row   (M, N, ..), (N,), .. -> (M + 1 + .., N, ..)"""
    return _joined("vstack", [at_least(x, 2) for x in tensors_of("vstack", tensors)], 0)


def dstack(tensors: Tensors) -> Tensor:
    """The tensors one behind the other along the third axis, which is added to vectors and matrices

    (M, N), (M, N), .. -> (M, N, number of tensors)
    """
    return _joined("dstack", [at_least(x, 3) for x in tensors_of("dstack", tensors)], 2)


def column_stack(tensors: Tensors) -> Tensor:
    """The tensors joined along the second axis; a vector is a column   (M, N, ..), (M,), .. -> (M, N + 1 + .., ..)"""
    given = tensors_of("column_stack", tensors)
    columns = [reshaped(x, (x.size, 1)) if x.ndim < 2 else x for x in given]
    return _joined("column_stack", columns, 1)


def _joined(operator: str, tensors: list[Tensor], axis: int) -> Tensor:
    first = tensors[0]
    others = first.shape[:axis] + first.shape[axis + 1 :]
    if any(x.ndim != first.ndim or x.shape[:axis] + x.shape[axis + 1 :] != others for x in tensors):
        shapes = ", ".join(str(x.shape) for x in tensors)
        raise ShapeError(f"{operator}: lengths of other axes than {axis} differ  (shapes {shapes})")
    return cat(tensors, integer("concatenate", "axis", axis))


def _at_least(operator: str, tensors: tuple[Any, ...], rank: int) -> Any:
    found = tuple([at_least(x, rank) for x in listed(operator, tensors)])
    return found[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else found


def atleast_1d(*tensors: Tensor) -> Any:
    """A number as (1,), other tensors as they are; views. Of several tensors, or a list, a tuple is returned."""
    return _at_least("atleast_1d", tensors, 1)


def atleast_2d(*tensors: Tensor) -> Any:
    """A number as (1, 1), a vector as (1, N), other tensors as they are; views, as `atleast_1d` gives them."""
    return _at_least("atleast_2d", tensors, 2)


def atleast_3d(*tensors: Tensor) -> Any:
    """A number as (1, 1, 1), a vector as (1, N, 1), a matrix as (M, N, 1); views, as `atleast_1d` gives them."""
    return _at_least("atleast_3d", tensors, 3)
