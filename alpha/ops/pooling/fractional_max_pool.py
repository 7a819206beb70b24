"""Maxima over windows at random places, for outputs of any size (Graham 2014); channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from alpha.core.numerics import BFLOAT16
from alpha.core.tensor import Tensor, full
from alpha.errors import ShapeError
from alpha.module.module import Buffer, Module
from alpha.ops.array.creation import arange
from alpha.ops.array.joining import cat
from alpha.ops.array.random_tensors import rand
from alpha.ops.indexing.gather_scatter import gather
from alpha.ops.kernel.arguments import check_arguments, unchecked
from alpha.ops.kernel.options import Lengths, lengths, real
from alpha.ops.pooling.pool_shape import image_sizes
from alpha.ops.reduction.extremes import max as max_along

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d", "fractional_max_pool2d", "fractional_max_pool3d"]

Ratio = float | Sequence[float]


def _starts(samples: Tensor, I: int, O: int, F: int) -> Tensor:
    """Starts of the O windows of an axis   samples (N, 1, C) in [0, 1) -> (N, O, C)"""
    N, _, C = samples.shape
    last = full((N, 1, C), float(I - F), samples.dtype, samples.device)
    if O == 1:
        return last
    step = (I - F) / (O - 1)
    i = arange(O - 1, dtype=samples.dtype, device=samples.device).reshape(1, O - 1, 1)
    return unchecked(cat)([((i + samples) * step).floor() - (samples * step).floor(), last], 1)


def _places(samples: Tensor, sizes: Sequence[tuple[int, int, int]]) -> Tensor:
    """The places, in the flat image, of all taps of all windows.

    samples (N, axes, C), sizes (I, O, F) of each axis -> (N, windows, taps, C) of whole numbers
    """
    N, _, C = samples.shape
    flat: Any = 0.0
    for axis, (I, O, F) in enumerate(sizes):
        starts = _starts(samples[:, axis : axis + 1], I, O, F).reshape(N, O, 1, C)
        taps = starts + arange(F, dtype=samples.dtype, device=samples.device).reshape(1, 1, F, 1)
        if axis == 0:
            flat = taps
            continue
        _, windows, count, _ = flat.shape
        flat = flat.reshape(N, windows, 1, count, 1, C) * I + taps.reshape(N, 1, O, 1, F, C)
        flat = flat.reshape(N, windows * O, count * F, C)
    return flat  # type: ignore[no-any-return]


def _fractional(
    operator: str, rank: int, x: Tensor, kernel_size: Lengths, wanted: tuple[Any, Any], samples: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The maxima and their places; `wanted` are output_size and output_ratio."""
    N, I, C = image_sizes(operator, rank, x)
    F = lengths(operator, "kernel_size", kernel_size, rank, least=1)
    check_wanted(operator, *wanted)
    if wanted[0] is not None:
        O = lengths(operator, "output_size", wanted[0], rank, least=1)
    else:
        ratios = ratios_of(operator, wanted[1], rank)
        O = tuple([int(i * ratio) for i, ratio in zip(I, ratios, strict=True)])
    if min(C, *O) < 1 or any(o + f - 1 > i for o, f, i in zip(O, F, I, strict=True)):
        raise ShapeError(f"{operator}: {O} windows of {F} do not fit x {x.shape}")
    dtype = "float32" if x.dtype == BFLOAT16 else x.dtype
    samples = rand((N, C, rank), device=x.device) if samples is None else samples
    if samples.shape != (N, C, rank):
        raise ShapeError(f"{operator}: _random_samples have shape {samples.shape}, x {x.shape} needs {(N, C, rank)}")
    # PyTorch's first sample of an image is that of the width
    ordered = samples.detach().astype(dtype).transpose(1, 2)
    ordered = ordered.flip(1) if rank == 2 else ordered
    found = _places(ordered, list(zip(I, O, F, strict=True))).astype("int64")
    _, windows, taps, _ = found.shape
    values = unchecked(gather)(x.reshape(N, math.prod(I), C), 1, found.reshape(N, windows * taps, C))
    y, tap = unchecked(max_along)(values.reshape(N, windows, taps, C), 2)
    chosen = unchecked(gather)(found.reshape(N * windows, taps, C), 1, tap.reshape(N * windows, 1, C))
    shape = (*x.shape[: x.ndim - rank - 1], *O, C)
    return y.reshape(*shape), chosen.reshape(*shape)


def check_wanted(operator: str, output_size: Any, output_ratio: Any) -> None:
    """`ValueError` unless one of both is given."""
    if (output_size is None) == (output_ratio is None):
        raise ValueError(
            f"{operator}: output_size={output_size!r} and output_ratio={output_ratio!r}; one of them is needed, the "
            "other is None"
        )


def ratios_of(operator: str, output_ratio: Ratio, rank: int) -> tuple[float, ...]:
    """A share between 0 and 1 for each axis, from one for all or one for each."""
    given = tuple(output_ratio) if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * rank
    ratios = tuple([real(operator, "output_ratio", ratio) for ratio in given])
    if len(ratios) != rank or not all(0 < ratio < 1 for ratio in ratios):
        raise ValueError(
            f"{operator}: output_ratio={output_ratio!r} is not a number between 0 and 1, or {rank} of them"
        )
    return ratios


@check_arguments
def fractional_max_pool2d(
    x: Tensor,
    kernel_size: Lengths,
    output_size: Lengths | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Maximum over windows whose places are drawn for each channel of each image, so that they fill the image.

    x (N, IH, IW, C), or one image without N -> (N, OH, OW, C)

    Args:
        output_size: (OH, OW), or one number for both.
        output_ratio: instead of it OH / IH and OW / IW, between 0 and 1.
        return_indices: return (y, indices), as `max_pool2d` does.
        _random_samples: (N, C, 2) in [0, 1), which decide where the windows are, in place of random numbers.

    Raises:
        ShapeError: so many windows do not fit the image.
        ValueError: not one of output_size and output_ratio, or a ratio is not between 0 and 1.
    """
    wanted = output_size, output_ratio
    found = _fractional("fractional_max_pool2d", 2, x, kernel_size, wanted, _random_samples)
    return found if return_indices else found[0]


@check_arguments
def fractional_max_pool3d(
    x: Tensor,
    kernel_size: Lengths,
    output_size: Lengths | None = None,
    output_ratio: Ratio | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """`fractional_max_pool2d` of volumes   x (N, ID, IH, IW, C), or one volume without N -> (N, OD, OH, OW, C)"""
    wanted = output_size, output_ratio
    found = _fractional("fractional_max_pool3d", 3, x, kernel_size, wanted, _random_samples)
    return found if return_indices else found[0]


class _FractionalMaxPool(Module):
    rank: ClassVar[int]
    pool: ClassVar[Any]

    def __init__(
        self,
        kernel_size: Lengths,
        output_size: Lengths | None = None,
        output_ratio: Ratio | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        layer = type(self).__name__
        check_wanted(layer, output_size, output_ratio)
        self.kernel_size = lengths(layer, "kernel_size", kernel_size, self.rank, least=1)
        self.output_size = (
            None if output_size is None else lengths(layer, "output_size", output_size, self.rank, least=1)
        )
        self.output_ratio = None if output_ratio is None else ratios_of(layer, output_ratio, self.rank)
        self.return_indices = return_indices
        self._random_samples = None if _random_samples is None else Buffer(_random_samples.numpy())

    def forward(self, x: Tensor) -> Any:
        own = self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        return type(self).pool(x, *own)

    def extra_repr(self) -> str:
        to = f"output_size={self.output_size}" if self.output_ratio is None else f"output_ratio={self.output_ratio}"
        indices = ", return_indices=True" if self.return_indices else ""
        given = "" if self._random_samples is None else f", _random_samples={self._random_samples.shape}"
        return f"kernel_size={self.kernel_size}, {to}{indices}{given}"


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maximum over windows at random places   (N, IH, IW, C) -> (N, OH, OW, C)

    Args:
        output_size, output_ratio, return_indices, _random_samples: as of `fractional_max_pool2d`.
    """

    rank, pool = 2, staticmethod(fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maximum over windows at random places   (N, ID, IH, IW, C) -> (N, OD, OH, OW, C); as `FractionalMaxPool2d`"""

    rank, pool = 3, staticmethod(fractional_max_pool3d)
