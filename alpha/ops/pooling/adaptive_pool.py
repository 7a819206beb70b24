"""Adaptive pooling: windows that cut an image into a wanted number of parts."""

from __future__ import annotations

from typing import Any

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.options import FORMS, lengths
from alpha.ops.pooling.avg_pool import avg_pool
from alpha.ops.pooling.max_pool import max_pool
from alpha.ops.pooling.pool_shape import Axis, Pooling, decomposed, image_sizes

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
]

OutputSize = int | tuple[int | None, ...] | None


def sizes_of(operator: str, output_size: Any, rank: int) -> tuple[int | None, ...]:
    """The wanted lengths of `rank` axes, or None for those of the input, from one for all or one for each."""
    many = isinstance(output_size, (tuple, list))
    given = tuple(output_size) if many else (output_size,) * rank
    numbers = lengths(
        operator,
        "output_size",
        tuple([1 if o is None else o for o in given]) if many else 1 if output_size is None else output_size,
        rank,
    )
    return tuple([None if o is None else n for o, n in zip(given, numbers, strict=True)])


def sizes_as_given(operator: str, name: str, value: Any, rank: int) -> OutputSize:
    """The checked output_size as PyTorch's layers keep it: one length for all axes, or a tuple of one for each."""
    found = sizes_of(operator, value, rank)
    return found if isinstance(value, (tuple, list)) else found[0]


def _pooling(operator: str, rank: int, x: Tensor, output_size: Any) -> Pooling:
    """Pooling of an adaptive operator; `ShapeError` if x has not the axes, or if the output would be empty."""
    _, I, C = image_sizes(operator, rank, x)
    O = tuple([i if o is None else o for o, i in zip(sizes_of(operator, output_size, rank), I, strict=True)])
    if min(*O, *I, C) < 1:
        raise ShapeError(
            f"{operator}: x {FORMS[rank]} and a positive output_size are needed  (x {x.shape}, output_size {O})"
        )
    return decomposed(x, [Axis(i, o) for i, o in zip(I, O, strict=True)], adaptive=True)


@check_arguments
def adaptive_avg_pool1d(x: Tensor, output_size: OutputSize) -> Tensor:
    """Mean over windows that cut the sequence into output_size parts; as `adaptive_avg_pool2d`.

    x (N, L, C), or one sequence without N -> (N, O, C)
    """
    return avg_pool(x, _pooling("adaptive_avg_pool1d", 1, x, output_size))


@check_arguments
def adaptive_avg_pool2d(x: Tensor, output_size: OutputSize) -> Tensor:
    """Mean over windows that cut the image into output_size parts.

    x (N, IH, IW, C), or one image without N -> (N, OH, OW, C)

    Args:
        output_size: (OH, OW), or one number for both; None means the size of x along that axis.

    Raises:
        ShapeError: x has other axes, or the output would be empty.
        TypeError: x is not a Tensor of floating numbers, or output_size is not made of integers.
    """
    return avg_pool(x, _pooling("adaptive_avg_pool2d", 2, x, output_size))


@check_arguments
def adaptive_avg_pool3d(x: Tensor, output_size: OutputSize) -> Tensor:
    """Mean over windows that cut the volume into output_size parts; as `adaptive_avg_pool2d`.

    x (N, ID, IH, IW, C), or one volume without N -> (N, OD, OH, OW, C)
    """
    return avg_pool(x, _pooling("adaptive_avg_pool3d", 3, x, output_size))


@check_arguments
def adaptive_max_pool1d(x: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """Maximum over windows that cut the sequence into output_size parts; as `adaptive_max_pool2d`.

    x (N, L, C), or one sequence without N -> (N, O, C)
    """
    return max_pool(x, _pooling("adaptive_max_pool1d", 1, x, output_size), return_indices)


@check_arguments
def adaptive_max_pool2d(x: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """Maximum over windows that cut the image into output_size parts.

    x (N, IH, IW, C), or one image without N -> (N, OH, OW, C)

    Args:
        output_size: (OH, OW), or one number for both; None means the size of x along that axis.
        return_indices: return (y, indices), as `max_pool2d` does.

    Raises:
        ShapeError: x has other axes, or the output would be empty.
        TypeError: x is not a Tensor of floating numbers, or output_size is not made of integers.
    """
    return max_pool(x, _pooling("adaptive_max_pool2d", 2, x, output_size), return_indices)


@check_arguments
def adaptive_max_pool3d(x: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """Maximum over windows that cut the volume into output_size parts; as `adaptive_max_pool2d`.

    x (N, ID, IH, IW, C), or one volume without N -> (N, OD, OH, OW, C)
    """
    return max_pool(x, _pooling("adaptive_max_pool3d", 3, x, output_size), return_indices)
