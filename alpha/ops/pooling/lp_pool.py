"""Power averages over windows of NWC, NHWC and NDHWC arrays."""

from __future__ import annotations

import math

from alpha.core.tensor import Tensor
from alpha.ops.indexing.where import masked_fill
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.options import Lengths, lengths, real
from alpha.ops.pooling.avg_pool import avg_pool
from alpha.ops.pooling.pool_shape import Windows, pooling

__all__ = ["lp_pool1d", "lp_pool2d", "lp_pool3d"]


def _lp_pool(operator: str, rank: int, x: Tensor, norm_type: float, windows: Windows) -> Tensor:
    p = real(operator, "norm_type", norm_type)
    if p == 0:
        raise ValueError(f"{operator}: norm_type=0 has no root; a number that is not 0 is needed")
    pools = pooling(operator, rank, x, windows)
    mean = avg_pool(x**p, pools)
    size = math.prod(lengths(operator, "kernel_size", windows.kernel_size, rank))
    empty = mean.detach() == 0  # the root of 0 has no slope; as in PyTorch its gradient is 0
    root = (unchecked(masked_fill)(mean, empty, 1.0) * float(size)) ** (1 / p)
    return unchecked(masked_fill)(root, empty, 0.0 if p > 0 else math.inf)


@check_arguments
def lp_pool1d(
    x: Tensor, norm_type: float, kernel_size: Lengths, stride: Lengths | None = None, ceil_mode: bool = False
) -> Tensor:
    """Power average over windows of one axis; arguments and errors as for `lp_pool2d`.

    x (N, L, C), or one sequence without N -> (N, O, C)
    """
    return _lp_pool("lp_pool1d", 1, x, norm_type, Windows(kernel_size, stride, 0, 1, ceil_mode))


@check_arguments
def lp_pool2d(
    x: Tensor, norm_type: float, kernel_size: Lengths, stride: Lengths | None = None, ceil_mode: bool = False
) -> Tensor:
    """Power average over windows: (sum of x^p over the window)^(1/p), p = norm_type.

    As in PyTorch x is not made positive, so an odd p wants an x that is not negative. A window that reaches over the
    border (ceil_mode) counts as if it was full of its mean.

    x (N, IH, IW, C), or one image without N -> (N, OH, OW, C) with OH = (IH - FH) // sh + 1

    Args:
        norm_type: the power p, which is not 0.
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.

    Raises:
        ShapeError: an empty output.
        TypeError: x is not a Tensor of floating numbers, or a size is not an integer.
        ValueError: norm_type is 0 or not finite.
    """
    return _lp_pool("lp_pool2d", 2, x, norm_type, Windows(kernel_size, stride, 0, 1, ceil_mode))


@check_arguments
def lp_pool3d(
    x: Tensor, norm_type: float, kernel_size: Lengths, stride: Lengths | None = None, ceil_mode: bool = False
) -> Tensor:
    """Power average over windows of three axes; arguments and errors as for `lp_pool2d`.

    x (N, ID, IH, IW, C), or one volume without N -> (N, OD, OH, OW, C)
    """
    return _lp_pool("lp_pool3d", 3, x, norm_type, Windows(kernel_size, stride, 0, 1, ceil_mode))
