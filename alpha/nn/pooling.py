"""Pooling layers under PyTorch's names; images are NHWC."""

from __future__ import annotations

from alpha.module import Module
from alpha.nn import functional as F
from alpha.ops.options import Pair, only_offered, pair
from alpha.tensor import Tensor

__all__ = ["AdaptiveAvgPool2d", "AvgPool2d", "MaxPool2d"]


class _Pool2d(Module):
    """What both pools of fixed windows share."""

    def __init__(self, kernel_size: Pair, stride: Pair | None, padding: Pair, ceil_mode: bool) -> None:
        layer = type(self).__name__
        self.kernel_size = pair(layer, "kernel_size", kernel_size, least=1)
        self.stride = self.kernel_size if stride is None else pair(layer, "stride", stride, least=1)
        self.padding = pair(layer, "padding", padding, least=0)
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        ceil_mode = ", ceil_mode=True" if self.ceil_mode else ""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}{ceil_mode}"


class MaxPool2d(_Pool2d):
    """Maximum over windows   (N, IH, IW, C) -> (N, OH, OW, C); stride None is kernel_size

    Args:
        dilation, return_indices: only 1 and False are offered.
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.
    """

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        only_offered("MaxPool2d", dilation=(dilation, 1), return_indices=(return_indices, False))
        super().__init__(kernel_size, stride, padding, ceil_mode)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding, ceil_mode=self.ceil_mode)


class AvgPool2d(_Pool2d):
    """Mean over windows   (N, IH, IW, C) -> (N, OH, OW, C); stride None is kernel_size

    Args:
        ceil_mode: round OH and OW up, so that the last windows may reach over the border.
        count_include_pad: divide by the window with its padding, else by the taps inside.
        divisor_override: divide by this number, which is not 0, instead.
    """

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
            divisor_override=self.divisor_override,
        )

    def extra_repr(self) -> str:
        count = "" if self.count_include_pad else ", count_include_pad=False"
        divisor = "" if self.divisor_override is None else f", divisor_override={self.divisor_override}"
        return super().extra_repr() + count + divisor


class AdaptiveAvgPool2d(Module):
    """Mean over windows that cut the map into output_size   (N, IH, IW, C) -> (N, OH, OW, C)

    Args:
        output_size: (OH, OW), or one number for both; None means the size of the input along that axis.
    """

    def __init__(self, output_size: int | tuple[int | None, int | None] | None) -> None:
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
