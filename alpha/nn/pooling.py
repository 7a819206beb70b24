"""Pooling layers under PyTorch's names, adaptive ones too; the channels are the last axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.nn import functional as F
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.options import Lengths, lengths, lengths_as_given, real
from alpha.ops.pooling.adaptive_pool import OutputSize, sizes_as_given
from alpha.ops.pooling.pool_shape import LAYERS, Windows

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _Pool(Module):
    """Base of the pools of fixed windows.

    Attributes:
        rank: the number of axes between images and channels.
        pool: the function that the layer calls.
        keep: the check of lengths; it returns them as PyTorch's layer keeps them.
    """

    rank: ClassVar[int]
    pool: ClassVar[Callable[..., Any]]
    keep: ClassVar[Callable[..., Lengths]] = staticmethod(lengths_as_given)
    stride: Lengths | None

    def __init__(self, kernel_size: Lengths, stride: Lengths | None, padding: Lengths, ceil_mode: bool) -> None:
        layer, keep = type(self).__name__, type(self).keep
        self.kernel_size = keep(layer, "kernel_size", kernel_size, self.rank, least=1)
        self.stride = self.kernel_size if stride is None else keep(layer, "stride", stride, self.rank, least=1)
        self.padding = keep(layer, "padding", padding, self.rank, least=0)
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        ceil_mode = ", ceil_mode=True" if self.ceil_mode else ""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}{ceil_mode}"


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: Lengths,
        stride: Lengths | None = None,
        padding: Lengths = 0,
        dilation: Lengths = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.dilation = lengths_as_given(type(self).__name__, "dilation", dilation, self.rank, least=1)
        self.return_indices = return_indices

    @property
    def windows(self) -> Windows:
        """The windows, as the functions take them."""
        return Windows(self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def forward(self, x: Tensor) -> Any:
        return type(self).pool(x, *self.windows, return_indices=self.return_indices)

    def extra_repr(self) -> str:
        dilation = "" if self.dilation in (1, (1,) * self.rank) else f", dilation={self.dilation}"
        return super().extra_repr() + dilation + (", return_indices=True" if self.return_indices else "")


class MaxPool1d(_MaxPool):
    """Maximum over windows   (N, L, C) -> (N, O, C); arguments as of `MaxPool2d`, with one length instead of two"""

    rank, pool = 1, staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """Maximum over windows   (N, IH, IW, C) -> (N, OH, OW, C); stride None is kernel_size

    Args:
        dilation: the distance between the pixels of a window.
        return_indices: return (y, indices), the places of the maxima in the image of their channel, for `MaxUnpool2d`.
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.

    Examples:
        >>> import alpha
        >>> alpha.nn.MaxPool2d(2)(alpha.ones(8, 32, 32, 3)).shape
        (8, 16, 16, 3)
    """

    rank, pool = 2, staticmethod(F.max_pool2d)


LAYERS[MaxPool2d] = MaxPool2d.forward


class MaxPool3d(_MaxPool):
    """Maximum over windows   (N, ID, IH, IW, C) -> (N, OD, OH, OW, C); as `MaxPool2d`, with three lengths"""

    rank, pool = 3, staticmethod(F.max_pool3d)


class AvgPool1d(_Pool):
    """Mean over windows   (N, L, C) -> (N, O, C); stride None is kernel_size

    Args:
        ceil_mode: round O up, so that the last window may reach over the border.
        count_include_pad: divide by the window with its padding, else by the taps inside.
    """

    rank, pool = 1, staticmethod(F.avg_pool1d)
    keep: ClassVar[Callable[..., Lengths]] = staticmethod(lengths)

    def __init__(
        self,
        kernel_size: Lengths,
        stride: Lengths | None = None,
        padding: Lengths = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.count_include_pad else ", count_include_pad=False")


class AvgPool2d(AvgPool1d):
    """Mean over windows   (N, IH, IW, C) -> (N, OH, OW, C); stride None is kernel_size

    Args:
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.
        count_include_pad: divide by the window with its padding, else by the taps inside.
        divisor_override: divide by this number, which is not 0, instead.
    """

    rank, pool = 2, staticmethod(F.avg_pool2d)
    keep = staticmethod(lengths_as_given)

    def __init__(
        self,
        kernel_size: Lengths,
        stride: Lengths | None = None,
        padding: Lengths = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Tensor:
        sizes = self.kernel_size, self.stride, self.padding
        result: Tensor = type(self).pool(x, *sizes, self.ceil_mode, self.count_include_pad, self.divisor_override)
        return result

    def extra_repr(self) -> str:
        divisor = "" if self.divisor_override is None else f", divisor_override={self.divisor_override}"
        return super().extra_repr() + divisor


class AvgPool3d(AvgPool2d):
    """Mean over windows   (N, ID, IH, IW, C) -> (N, OD, OH, OW, C); as `AvgPool2d`, with three lengths"""

    rank, pool = 3, staticmethod(F.avg_pool3d)


class _LPPool(_Pool):
    def __init__(
        self, norm_type: float, kernel_size: Lengths, stride: Lengths | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(kernel_size, stride, 0, ceil_mode)
        if stride is None:
            self.stride = None  # that of the windows of each call
        self.norm_type = real(type(self).__name__, "norm_type", norm_type)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = type(self).pool(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
        return result

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, {super().extra_repr()}"


class LPPool1d(_LPPool):
    """Power average over windows   (N, L, C) -> (N, O, C); arguments as of `LPPool2d`, with one length"""

    rank, pool = 1, staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """Power average over windows   (N, IH, IW, C) -> (N, OH, OW, C): (sum of x^p)^(1/p); stride None is kernel_size

    Args:
        norm_type: the power p.
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.
    """

    rank, pool = 2, staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """Power average over windows   (N, ID, IH, IW, C) -> (N, OD, OH, OW, C); as `LPPool2d`, with three lengths"""

    rank, pool = 3, staticmethod(F.lp_pool3d)


class _MaxUnpool(_Pool):
    keep = staticmethod(lengths)

    def __init__(self, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0) -> None:
        super().__init__(kernel_size, stride, padding, False)

    def forward(self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """`indices`: those of the pool; `output_size`: as of `alpha.nn.functional.max_unpool2d`."""
        result: Tensor = type(self).pool(x, indices, self.kernel_size, self.stride, self.padding, output_size)
        return result


class MaxUnpool1d(_MaxUnpool):
    """Numbers back at the places of the maxima   (N, O, C) -> (N, L, C); arguments are those of the `MaxPool1d`"""

    rank, pool = 1, staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """Numbers back at the places of the maxima   (N, OH, OW, C) -> (N, IH, IW, C)

    Args:
        kernel_size, stride, padding: those of the `MaxPool2d`.
    """

    rank, pool = 2, staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """Numbers back at the places of the maxima   (N, OD, OH, OW, C) -> (N, ID, IH, IW, C); as `MaxUnpool2d`"""

    rank, pool = 3, staticmethod(F.max_unpool3d)


@function_layer(F.adaptive_avg_pool1d, output_size=partial(sizes_as_given, rank=1))
class AdaptiveAvgPool1d(FunctionLayer):
    """Mean over windows that cut the sequence into output_size parts   (N, L, C) -> (N, O, C)"""

    output_size: OutputSize


@function_layer(F.adaptive_avg_pool2d, output_size=partial(sizes_as_given, rank=2))
class AdaptiveAvgPool2d(FunctionLayer):
    """Mean over windows that cut the image into output_size parts   (N, IH, IW, C) -> (N, OH, OW, C)

    Args:
        output_size: (OH, OW), or one number for both; None means the size of the input along that axis.

    Examples:
        >>> import alpha
        >>> alpha.nn.AdaptiveAvgPool2d(1)(alpha.ones(8, 7, 7, 16)).shape
        (8, 1, 1, 16)
    """

    output_size: OutputSize


@function_layer(F.adaptive_avg_pool3d, output_size=partial(sizes_as_given, rank=3))
class AdaptiveAvgPool3d(FunctionLayer):
    """Mean over windows that cut the volume into output_size parts   (N, ID, IH, IW, C) -> (N, OD, OH, OW, C)"""

    output_size: OutputSize


class _AdaptiveMaxPool(Module):
    rank: ClassVar[int]
    pool: ClassVar[Callable[..., Any]]

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        self.output_size = sizes_as_given(type(self).__name__, "output_size", output_size, self.rank)
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
