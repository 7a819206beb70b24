"""Adaptive pooling: windows that cut a map into a wanted number of parts."""

from __future__ import annotations

from typing import Any

from alpha.errors import ShapeError
from alpha.ops.arguments import check_arguments
from alpha.ops.options import pair
from alpha.ops.pool2d import AvgPool2d
from alpha.ops.pool_shape import PoolShape
from alpha.tensor import Tensor

__all__ = ["adaptive_avg_pool2d"]


@check_arguments
def adaptive_avg_pool2d(x: Tensor, output_size: int | tuple[int | None, int | None] | None) -> Tensor:
    """Mean over windows that cut the map into output_size   x (N, IH, IW, C) -> (N, OH, OW, C)

    Args:
        output_size: (OH, OW), or one number for both; None means the size of x along that axis.

    Raises:
        ShapeError: x has not four axes, or the output would be empty.
        TypeError: x is not a Tensor of floating numbers, or output_size is not made of integers.
    """
    name = "adaptive_avg_pool2d"
    wanted: Any = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    if x.ndim == 4 and len(wanted) == 2:
        wanted = tuple(n if o is None else o for o, n in zip(wanted, x.shape[1:3], strict=True))
    OH, OW = pair(name, "output_size", wanted)
    if x.ndim != 4 or min(OH, OW, *x.shape) < 1:
        raise ShapeError(
            f"{name}: x (N, H, W, C) and a positive output_size are needed  (x {x.shape}, output_size ({OH}, {OW}))"
        )
    N, IH, IW, C = x.shape
    s = PoolShape(N, IH, IW, C, 1, 1, 1, 1, 0, 0, OH, OW, adaptive=True)
    return AvgPool2d.apply(x, shape=s)
