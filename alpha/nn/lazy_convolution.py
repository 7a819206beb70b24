"""Lazy convolutions, under PyTorch's names; see `lazy.py`."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.module.uninitialized import Uninitialized, UninitializedParameter
from alpha.nn.batchnorm import check_axes
from alpha.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _Conv,
    _ConvTranspose,
    _Layer,
)
from alpha.nn.lazy import _Lazy
from alpha.ops.convolution.arguments import Padding
from alpha.ops.kernel.options import Lengths

__all__ = [
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]

FORMS = ("(L, C)", "(N, L, C)"), ("(H, W, C)", "(N, H, W, C)"), ("(D, H, W, C)", "(N, D, H, W, C)")


class _LazyConvolution(_Lazy, _Layer):
    counted = "in_channels"
    fewest = 0

    def _draw(self, weight: tuple[int, ...], bias: bool) -> None:
        self.weight = UninitializedParameter()
        self.bias = UninitializedParameter() if bias else None

    def _check(self, x: Tensor) -> None:
        check_axes(self, x, FORMS[self.rank - 1])


class _LazyConv(_LazyConvolution, _Conv):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Lengths,
        stride: Lengths = 1,
        padding: Padding = 0,
        dilation: Lengths = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        negative_slope: float = 1.0,
    ) -> None:
        own = kernel_size, stride, padding, dilation, groups, bias, padding_mode
        super().__init__(0, out_channels, *own, negative_slope=negative_slope)

    def _form_of(self, name: str) -> tuple[int | None, ...]:
        return (self.out_channels, *self.kernel_size, None) if name == "weight" else (self.out_channels,)

    def _known(self) -> int | None:
        return None if isinstance(self.weight, Uninitialized) else self.weight.shape[-1] * self.groups

    def _plain(self, channels: int) -> Module:
        own = self.kernel_size, self.stride, self.padding, self.dilation, self.groups
        rest = self.bias is not None, self.padding_mode
        return self.kind(  # type: ignore[no-any-return]
            channels, self.out_channels, *own, *rest, negative_slope=self.negative_slope
        )


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` whose `in_channels` is that of its first input   (N, L, in_channels) -> (N, O, out_channels)

    Arguments are those of `Conv1d` without `in_channels`.
    """

    kind = cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` whose `in_channels` is that of its first input.

    (N, IH, IW, in_channels) -> (N, OH, OW, out_channels)

    Arguments are those of `Conv2d` without `in_channels`.
    """

    kind = cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` whose `in_channels` is that of its first input.

    (N, ID, IH, IW, in_channels) -> (N, OD, OH, OW, out_channels)

    Arguments are those of `Conv3d` without `in_channels`.
    """

    kind = cls_to_become = Conv3d


class _LazyConvTranspose(_LazyConvolution, _ConvTranspose):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Lengths,
        stride: Lengths = 1,
        padding: Lengths = 0,
        output_padding: Lengths = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Lengths = 1,
        padding_mode: str = "zeros",
        *,
        negative_slope: float = 1.0,
    ) -> None:
        own = kernel_size, stride, padding, output_padding, groups, bias, dilation, padding_mode
        super().__init__(0, out_channels, *own, negative_slope=negative_slope)

    def _form_of(self, name: str) -> tuple[int | None, ...]:
        shape = None, *self.kernel_size, self.out_channels // self.groups
        return shape if name == "weight" else (self.out_channels,)

    def _known(self) -> int | None:
        return None if isinstance(self.weight, Uninitialized) else self.weight.shape[0]

    def _plain(self, channels: int) -> Module:
        own = self.kernel_size, self.stride, self.padding, self.output_padding, self.groups
        rest = self.bias is not None, self.dilation, self.padding_mode
        return self.kind(  # type: ignore[no-any-return]
            channels, self.out_channels, *own, *rest, negative_slope=self.negative_slope
        )


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A `ConvTranspose1d` whose `in_channels` is that of its first input.

    (N, L, in_channels) -> (N, O, out_channels)

    Arguments are those of `ConvTranspose1d` without `in_channels`.
    """

    kind = cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A `ConvTranspose2d` whose `in_channels` is that of its first input.

    (N, IH, IW, in_channels) -> (N, OH, OW, out_channels)

    Arguments are those of `ConvTranspose2d` without `in_channels`.
    """

    kind = cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A `ConvTranspose3d` whose `in_channels` is that of its first input.

    (N, ID, IH, IW, in_channels) -> (N, OD, OH, OW, out_channels)

    Arguments are those of `ConvTranspose3d` without `in_channels`.
    """

    kind = cls_to_become = ConvTranspose3d
