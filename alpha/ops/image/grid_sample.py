"""Images read at places that a network or a transformation computes: spatial transformers (Jaderberg et al. 2015)."""

from __future__ import annotations

import math
from typing import Any

from alpha.autograd.function import Function
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.creation import arange
from alpha.ops.image.sampling import MODES, PADDING_MODES, Sampling, sample, sample_slopes, sample_taps
from alpha.ops.kernel.arguments import NoImages, check_arguments
from alpha.ops.kernel.casts import as_dtype
from alpha.ops.kernel.options import integer
from alpha.ops.kernel.rows.row_indices import add_zeros

__all__ = ["affine_grid", "grid_sample"]


_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
assert set(_MODES.values()) == set(MODES)


class GridSample(Function):
    """Y[n, o] = X[n] at the place G[n, o]   X (N, *I, C), G (N, *O, rank) -> Y (N, *O, C)"""

    def forward(self, X: Array, G: Array, *, how: Sampling) -> Array:
        self.how = how
        self.save(X, G)
        return sample(X, G, how)

    def backward(self, dY: Array) -> Any:
        """A pixel gets its share of each sample that reads it, in the order of the taps and of the samples."""
        X, G = self.saved
        dX = dG = None
        if self.needs_input_grad[0]:
            *images, C = X.shape
            F, R = sample_taps(dY, G, tuple(X.shape[1:-1]), self.how)
            sums = add_zeros((1, math.prod(images), C), F, R.reshape((1, *R.shape)))
            dX = as_dtype(sums.reshape(tuple(X.shape)), X.dtype)
        if self.needs_input_grad[1]:
            dG = sample_slopes(dY, X, G, self.how)
        return dX, dG


@check_arguments
def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Images read at the places of a grid   x (N, H, W, C), grid (N, OH, OW, 2) -> (N, OH, OW, C)

    Or volumes: x (N, D, H, W, C), grid (N, OD, OH, OW, 3) -> (N, OD, OH, OW, C). A row of the grid is (x, y) or
    (x, y, z): x counts along the width, and -1 to 1 is the image. A place that is not finite reads 0. Gradients that
    meet at a pixel are added in a fixed order; they take the memory of the result times the pixels per sample (4 for
    "bilinear" images).

    Args:
        grid: of the dtype of x; a bfloat16 grid is computed with in float32.
        mode: "bilinear" (also for volumes), "nearest", whose grid has the gradient 0, or "bicubic" (only images).
        padding_mode: what is outside of an image: "zeros", "border" (the nearest pixel) or "reflection".
        align_corners: True: -1 and 1 are the centres of the first and the last pixel; otherwise their outer edges.

    Raises:
        ShapeError: x and grid have not these shapes, or x has no pixels.
        TypeError: the dtypes of x and grid differ.
        ValueError: an argument has a value that is not offered.
    """
    rank = x.ndim - 2
    if rank not in (2, 3) or grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        raise ShapeError(
            "grid_sample: x (N, H, W, C) and grid (N, OH, OW, 2) are needed, or x (N, D, H, W, C) and grid "
            f"(N, OD, OH, OW, 3)  (x {x.shape}, grid {grid.shape})"
        )
    if min(x.shape[1:-1]) < 1:
        raise ShapeError(f"grid_sample: the images have no pixels  (x {x.shape})")
    for name, value, known in (("mode", mode, [*_MODES]), ("padding_mode", padding_mode, PADDING_MODES)):
        if value not in known:
            raise ValueError(f"grid_sample: {name}={value!r} is not one of {', '.join(known)}")
    if mode == "bicubic" and rank == 3:
        raise ValueError(f"grid_sample: mode='bicubic' is offered for images (N, H, W, C) only  (x {x.shape})")
    wanted = FLOAT32 if x.dtype == BFLOAT16 else x.dtype
    if grid.dtype not in (wanted, BFLOAT16):
        raise TypeError(f"grid_sample: x has dtype {x.dtype.name} and grid {grid.dtype.name}; use .astype")
    places = grid if grid.dtype == wanted else grid.astype(wanted)
    shape = (*grid.shape[:-1], x.shape[-1])
    if 0 in shape:
        return NoImages.apply(x, places, shape=shape)
    return GridSample.apply(x, places, how=Sampling(_MODES[mode], padding_mode, bool(align_corners)))


def _centres(theta: Tensor, length: int, align_corners: bool) -> Tensor:
    """The coordinates of the pixels of an axis   -> (length,) within -1 and 1"""
    steps = arange(length, dtype=theta.dtype, device=theta.device)
    if align_corners:
        return steps * (2 / (length - 1)) - 1 if length > 1 else steps
    return (steps * 2 + (1 - length)) * (1 / length)


@check_arguments
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The grid of `grid_sample` that an affine map makes   theta (N, 2, 3) -> (N, H, W, 2)

    Or of volumes: theta (N, 3, 4) -> (N, D, H, W, 3). The place of an output at (x, y) is theta (x, y, 1). It is
    computed in theta's dtype, or in float32 if that is bfloat16, whatever the precision of products is.

    Args:
        size: the shape of the images to be made, (N, H, W, C) or (N, D, H, W, C), channels last.
        align_corners: as of `grid_sample`.

    Raises:
        ShapeError: theta and size do not fit each other.
        TypeError: size has other elements than integers.
    """
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"affine_grid: size={size!r} is not a shape (N, H, W, C)")
    lengths = tuple([integer("affine_grid", "size", n) for n in size])
    N, *O = lengths[:-1] or (0,)
    rank = len(O)
    if rank not in (2, 3) or theta.shape != (N, rank, rank + 1):
        raise ShapeError(
            "affine_grid: theta (N, 2, 3) and size (N, H, W, C) are needed, or theta (N, 3, 4) and size (N, D, H, W, C)"
            f"  (theta {theta.shape}, size {lengths})"
        )
    if min(O) < 1:
        raise ShapeError(f"affine_grid: size={lengths} has a length below 1")
    wide = theta.astype(FLOAT32) if theta.dtype == BFLOAT16 else theta
    columns = wide.transpose(1, 2).reshape(N, rank + 1, *(1,) * rank, rank)  # column k moves with coordinate k
    grid = columns[:, rank]
    for k, length in enumerate(reversed(O)):  # x, along the last axis, comes first
        axis = rank - 1 - k
        shape = (1,) * (axis + 1) + (length,) + (1,) * (rank - axis)
        grid = grid + columns[:, k] * _centres(wide, length, bool(align_corners)).reshape(shape)
    return grid
