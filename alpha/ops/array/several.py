"""Functions of several tensors, one argument each: as views of more axes, in one shape, as grids, products and blocks.

Each takes also one list of tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.tensor import Tensor, as_dtype
from alpha.errors import ShapeError, type_name
from alpha.ops.array.assemble import Assemble, Piece
from alpha.ops.array.axes import expand, transpose
from alpha.ops.array.creation import device_of
from alpha.ops.array.joining import stack, tensors_of
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.stacking import at_least
from alpha.ops.kernel.arguments import unchecked
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.views import View


class BlockDiagonal(Assemble):
    """The inputs along the main diagonal, zeros elsewhere   (M0, N0), (M1, N1), .. -> (M0 + M1 + .., N0 + N1 + ..)"""


def _listed(operator: str, tensors: tuple[Any, ...]) -> list[Tensor]:
    """The arguments, or the list that is the only one, each in its own dtype."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    for i, tensor in enumerate(given):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{operator}: tensors[{i}] is a {type_name(tensor)}, a Tensor is needed")
    return list(given)


def _at_least(operator: str, tensors: tuple[Any, ...], rank: int) -> Any:
    found = tuple([at_least(x, rank) for x in _listed(operator, tensors)])
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


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors repeated to their common shape   (...), (...), .. -> the broadcast shape of all

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    given = _listed("broadcast_tensors", tensors)
    try:
        shape = np.broadcast_shapes(*[x.shape for x in given])
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in given)
        raise ShapeError(f"broadcast_tensors: the shapes do not broadcast  (shapes {shapes})") from None
    return tuple([x if x.shape == shape else unchecked(expand)(x, shape) for x in given])


def meshgrid(*tensors: Tensor, indexing: str | None = None) -> tuple[Tensor, ...]:
    """A grid for each vector: its elements along an axis of their own, repeated along the others

    (D0,), (D1,), .. -> (D0, D1, ..) for each, or (D1, D0, ..) with indexing "xy"

    Args:
        indexing: "ij", of rows and columns, or "xy", in which the first two axes are exchanged; None is "ij".

    Raises:
        ShapeError: a tensor has more than one axis.
        TypeError: the tensors have several dtypes.
    """
    given = _listed("meshgrid", tensors)
    if indexing not in (None, "ij", "xy"):
        raise ValueError(f"meshgrid: indexing={indexing!r} is neither 'ij' nor 'xy'")
    if not given:
        raise ValueError("meshgrid: at least one tensor is needed")
    if any(x.ndim > 1 for x in given):
        raise ShapeError(f"meshgrid: vectors are needed  (shapes {', '.join(str(x.shape) for x in given)})")
    if len({x.dtype for x in given}) > 1:
        raise TypeError(f"meshgrid: dtypes {', '.join(x.dtype.name for x in given)} differ; use .astype")
    shape = tuple([x.size for x in given])
    grids = [
        unchecked(expand)(reshaped(x, tuple([x.size if i == axis else 1 for i in range(len(given))])), shape)
        for axis, x in enumerate(given)
    ]
    exchanged = indexing == "xy" and len(given) > 1
    return tuple([unchecked(transpose)(grid, 0, 1) if exchanged else grid for grid in grids])


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All choices of one element of each vector, as rows   (D0,), (D1,), .. -> (D0 D1 .., number of vectors)

    The element of the last vector changes fastest. Of one vector it is this vector.
    """
    given = _listed("cartesian_prod", tensors)
    if any(x.ndim != 1 for x in given):
        raise ShapeError(f"cartesian_prod: vectors are needed  (shapes {', '.join(str(x.shape) for x in given)})")
    grids = meshgrid(*given)
    return grids[0] if len(given) == 1 else stack([reshaped(grid, (grid.size,)) for grid in grids], 1)


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the tensors along its main diagonal and zeros elsewhere; a vector is a row, a number (1, 1)

    (M0, N0), (M1, N1), .. -> (M0 + M1 + .., N0 + N1 + ..)
    """
    given = tensors_of("block_diag", _listed("block_diag", tensors))
    if any(x.ndim > 2 for x in given):
        raise ShapeError(
            f"block_diag: tensors of at most two axes are needed  (shapes {', '.join(str(x.shape) for x in given)})"
        )
    blocks = [at_least(x, 2) for x in given]
    shape = (sum(x.shape[0] for x in blocks), sum(x.shape[1] for x in blocks))
    whole, pieces, row, column = View.whole(shape), [], 0, 0
    for i, x in enumerate(blocks):
        M, N = x.shape
        box = whole.sliced(0, row, M).sliced(1, column, N)
        pieces.append(Piece(i, View.whole(x.shape), box))
        row, column = row + M, column + N
    return BlockDiagonal.apply(*blocks, shape=shape, pieces=pieces, fill=0)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = np.int64, device: Any = None) -> Tensor:
    """The places of the elements of a matrix on and below a diagonal, row by row   -> (2, count)

    Args:
        row, col: the lengths of the matrix.
        offset: the diagonal: 0 is the main one, 1 the one above it, -1 the one below it.
    """
    return _triangle("tril_indices", (row, col, offset), dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = np.int64, device: Any = None) -> Tensor:
    """The places of the elements of a matrix on and above a diagonal, row by row   -> (2, count)

    Args:
        row, col, offset: as of `tril_indices`.
    """
    return _triangle("triu_indices", (row, col, offset), dtype, device)


def _triangle(operator: str, sizes: tuple[int, int, int], dtype: Any, device: Any) -> Tensor:
    M, N = integer(operator, "row", sizes[0], 0), integer(operator, "col", sizes[1], 0)
    find = np.tril_indices if operator == "tril_indices" else np.triu_indices
    kind = as_dtype(dtype)
    if kind.kind != "i":
        raise TypeError(f"{operator}: dtype={kind.name} is not int64 or int32")
    places = np.stack(find(M, integer(operator, "offset", sizes[2]), N))
    return Tensor(device_of(device).upload(np.ascontiguousarray(places, kind)))
