"""Several tensors, one argument each or one list: in one shape, as grids, as choices, and as blocks of a matrix."""

from __future__ import annotations

import numpy as np

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import expand, transpose
from alpha.ops.array.joining import listed, stack, tensors_of
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.assemble import Assemble, Piece
from alpha.ops.array.stacks import at_least
from alpha.ops.kernel.arguments import unchecked
from alpha.ops.kernel.views import View


class BlockDiagonal(Assemble):
    """The inputs along the main diagonal, zeros elsewhere   (M0, N0), (M1, N1), .. -> (M0 + M1 + .., N0 + N1 + ..)"""


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors repeated to their common shape   (...), (...), .. -> the broadcast shape of all

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    given = listed("broadcast_tensors", tensors)
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
    given = listed("meshgrid", tensors)
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
    given = listed("cartesian_prod", tensors)
    if any(x.ndim != 1 for x in given):
        raise ShapeError(f"cartesian_prod: vectors are needed  (shapes {', '.join(str(x.shape) for x in given)})")
    grids = meshgrid(*given)
    return grids[0] if len(given) == 1 else stack([reshaped(grid, (grid.size,)) for grid in grids], 1)


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the tensors along its main diagonal and zeros elsewhere; a vector is a row, a number (1, 1)

    (M0, N0), (M1, N1), .. -> (M0 + M1 + .., N0 + N1 + ..)
    """
    given = tensors_of("block_diag", listed("block_diag", tensors))
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
