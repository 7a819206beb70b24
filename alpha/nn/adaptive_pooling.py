"""Layers that pool an image into a wanted number of parts, under PyTorch's names; the channels are the last axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.nn import functional as F
from alpha.ops.pooling.adaptive_pool import OutputSize, sizes_as_given

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
]


class _AdaptiveAvgPool(Module):
    rank: ClassVar[int]
    pool: ClassVar[Callable[..., Tensor]]

    def __init__(self, output_size: OutputSize) -> None:
        self.output_size = sizes_as_given(type(self).__name__, output_size, self.rank)

    def forward(self, x: Tensor) -> Tensor:
        return type(self).pool(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Mean over windows that cut the sequence into output_size parts   (N, L, C) -> (N, O, C)"""

    rank, pool = 1, staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Mean over windows that cut the image into output_size parts   (N, IH, IW, C) -> (N, OH, OW, C)

    Args:
        output_size: (OH, OW), or one number for both; None means the size of the input along that axis.
    """

    rank, pool = 2, staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Mean over windows that cut the volume into output_size parts   (N, ID, IH, IW, C) -> (N, OD, OH, OW, C)"""

    rank, pool = 3, staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxPool(Module):
    rank: ClassVar[int]
    pool: ClassVar[Callable[..., Any]]

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        self.output_size = sizes_as_given(type(self).__name__, output_size, self.rank)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        return type(self).pool(x, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}" + (", return_indices=True" if self.return_indices else "")


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maximum over windows that cut the sequence into output_size parts   (N, L, C) -> (N, O, C)"""

    rank, pool = 1, staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maximum over windows that cut the image into output_size parts   (N, IH, IW, C) -> (N, OH, OW, C)

    Args:
        output_size: (OH, OW), or one number for both; None means the size of the input along that axis.
        return_indices: return (y, indices), as `MaxPool2d` does.
    """

    rank, pool = 2, staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maximum over windows that cut the volume into output_size parts   (N, ID, IH, IW, C) -> (N, OD, OH, OW, C)"""

    rank, pool = 3, staticmethod(F.adaptive_max_pool3d)
