"""Convolution layers under PyTorch's names, channels last; filters are (out_channels, F.., in_channels / groups)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.module.module import Module, Parameter
from alpha.nn import functional as F
from alpha.nn import init
from alpha.nn.init import reset_uniform
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.convolution.conv_arguments import Padding, check_slope, padding_for
from alpha.ops.kernel.options import Lengths, integer, lengths, only_offered

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

PADDING_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


class _Layer(Module):
    """Base of all convolutions: the checks of their arguments, and the parameters.

    Attributes:
        rank: the number of axes between images and channels.
        fewest: the least number of input channels; a lazy layer has 0 before its first forward.
        weight: see the layer.
        bias: (out_channels,) or None.
    """

    _uncalled = ("_apply", "_conv_forward")
    _filters = ("weight",)
    rank: ClassVar[int]
    fewest: ClassVar[int] = 1
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        channels: tuple[int, int],
        kernel_size: Lengths,
        stride: Lengths,
        dilation: Lengths,
        groups: int,
        padding_mode: str,
        negative_slope: float,
    ) -> None:
        layer = type(self).__name__
        self.in_channels = integer(layer, "in_channels", channels[0], least=self.fewest)
        self.out_channels = integer(layer, "out_channels", channels[1], least=1)
        self.kernel_size = lengths(layer, "kernel_size", kernel_size, self.rank, least=1)
        self.stride = lengths(layer, "stride", stride, self.rank, least=1)
        self.dilation = lengths(layer, "dilation", dilation, self.rank, least=1)
        self.groups = integer(layer, "groups", groups, least=1)
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise ShapeError(f"{layer}: {name}={getattr(self, name)} does not divide into groups={self.groups}")
        self.padding_mode = self._checked_mode(padding_mode)
        check_slope(layer, negative_slope)
        self.negative_slope = negative_slope

    def _checked_mode(self, padding_mode: str) -> str:
        if padding_mode not in PADDING_MODES:
            offered = ", ".join(map(repr, PADDING_MODES))
            raise ValueError(f"{type(self).__name__}: padding_mode={padding_mode!r} is not one of {offered}")
        return padding_mode

    def _draw(self, weight: tuple[int, ...], bias: bool) -> None:
        """Draw the parameters; a fan counts the taps of one output channel of a convolution."""
        self.weight = Parameter(init.kaiming_uniform(weight))
        fan_in = init.fans(weight)[0]
        self.register_parameter("bias", Parameter(init.bias_uniform((self.out_channels,), fan_in)) if bias else None)

    def reset_parameters(self) -> None:
        """Draw the parameters anew, in place."""
        reset_uniform(init.fans(self.weight.shape)[0], self.weight, self.bias)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        parts += self._own_repr()
        if self.dilation != (1,) * self.rank:
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        parts.append(f"bias={self.bias is not None}")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode!r}")
        if self.negative_slope != 1:
            parts.append(f"negative_slope={self.negative_slope}")
        return ", ".join(parts)

    def _own_repr(self) -> list[str]:
        """Texts that the layer shows between its stride and its dilation."""
        return []


class _Conv(_Layer):
    def __init__(
        self,
        in_channels: int,
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
        channels = in_channels, out_channels
        super().__init__(channels, kernel_size, stride, dilation, groups, padding_mode, negative_slope)
        self.padding = self._checked_padding(padding)
        self._made_with = self._sides()
        self._draw((self.out_channels, *self.kernel_size, self.in_channels // self.groups), bias)

    def _checked_padding(self, padding: Padding) -> tuple[int, ...] | str:
        layer = type(self).__name__
        if not isinstance(padding, str):
            return lengths(layer, "padding", padding, self.rank, least=0)
        if padding not in ("same", "valid"):
            raise ValueError(f'{layer}: padding={padding!r} is neither an integer nor "same" nor "valid"')
        if padding == "same" and self.stride != (1,) * self.rank:
            raise ValueError(f'{layer}: padding="same" is offered with stride 1 only, not {self.stride}')
        return padding

    def _padded(self, x: Tensor) -> tuple[Tensor, Padding]:
        """The input with its padding if that is not of zeros, and the padding that is left to the convolution."""
        if self.padding_mode == "zeros":
            return x, self.padding
        mode, sides = PADDING_MODES[self._checked_mode(self.padding_mode)], self._sides()
        if sides != self._made_with:
            raise ValueError(
                f"{type(self).__name__}: the padding is {sides} on the sides of each axis, and was {self._made_with} "
                f"when the layer was made; with padding_mode={self.padding_mode!r} PyTorch goes on with the old one. "
                "Make another layer instead of writing padding, kernel_size or dilation"
            )
        # the last axis comes first: the channels, which get none
        pad = [0, 0, *(n for side in reversed(sides) for n in side)]
        return F.pad(x, pad, mode), 0

    def _sides(self) -> list[tuple[int, int]]:
        """Padding before and behind each axis, in numbers that are added."""
        if self.padding == "same":
            sizes = [lengths("conv", "", n, self.rank) for n in (self.dilation, self.kernel_size)]
            whole = [d * (f - 1) for d, f in zip(*sizes, strict=True)]
            return [(n // 2, n - n // 2) for n in whole]
        padding: Any = 0 if self.padding == "valid" else self.padding
        return [(n, n) for n in lengths(type(self).__name__, "padding", padding, self.rank, least=0)]

    def _own_repr(self) -> list[str]:
        return [f"padding={self.padding!r}"]


class Conv1d(_Conv):
    """1-D convolution   (N, L, in_channels) -> (N, O, out_channels)

    Arguments and attributes are those of `Conv2d`, with one length instead of two.
    """

    rank = 1

    def forward(self, x: Tensor) -> Tensor:
        x, padding = self._padded(x)
        own = self.stride, padding, self.dilation, self.groups
        return F.conv1d(x, self.weight, self.bias, *own, negative_slope=self.negative_slope)


class Conv2d(_Conv):
    """2-D convolution   (N, IH, IW, in_channels) -> (N, OH, OW, out_channels)

    Args:
        kernel_size, stride, dilation: a number, or a pair (height, width).
        padding: a number or a pair, or "same" (stride 1, the output has the size of the input), or "valid" (0).
        groups: the channels are cut into so many groups, each with filters of its own.
        bias: add a number to each output channel.
        padding_mode: what the padding consists of: "zeros", "reflect", "replicate" or "circular", as in `F.pad`.
        negative_slope: the slope of a leaky ReLU that is computed with the convolution: 0 is ReLU, 1 (the default)
            means no leaky ReLU.

    Attributes:
        weight: (out_channels, FH, FW, in_channels / groups), kaiming uniform.
        bias: (out_channels,) or None.

    Examples:
        >>> import alpha
        >>> layer = alpha.nn.Conv2d(3, 16, 3, stride=2, padding=1)
        >>> layer(alpha.ones(8, 32, 32, 3)).shape, layer.weight.shape
        ((8, 16, 16, 16), (16, 3, 3, 3))
    """

    rank = 2

    def forward(
        self, x: Tensor, statistics: ChannelStatistics | None = None, negative_slope: float | None = None
    ) -> Tensor:
        """`statistics`: see `conv_batch_norm`; `negative_slope`: of a rectifier behind it, in place of the layer's."""
        x, padding = self._padded(x)
        own = self.stride, padding, self.dilation, self.groups
        slope = self.negative_slope if negative_slope is None else negative_slope
        return F.conv2d(x, self.weight, self.bias, *own, negative_slope=slope, statistics=statistics)


class Conv3d(_Conv):
    """3-D convolution   (N, ID, IH, IW, in_channels) -> (N, OD, OH, OW, out_channels)

    Arguments and attributes are those of `Conv2d`, with three lengths (depth, height, width) instead of two.
    """

    rank = 3

    def forward(self, x: Tensor) -> Tensor:
        x, padding = self._padded(x)
        own = self.stride, padding, self.dilation, self.groups
        return F.conv3d(x, self.weight, self.bias, *own, negative_slope=self.negative_slope)


class _ConvTranspose(_Layer):
    def __init__(
        self,
        in_channels: int,
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
        layer = type(self).__name__
        channels = in_channels, out_channels
        super().__init__(channels, kernel_size, stride, dilation, groups, padding_mode, negative_slope)
        self.padding = lengths(layer, "padding", padding, self.rank, least=0)
        self.output_padding = lengths(layer, "output_padding", output_padding, self.rank, least=0)
        self._draw((self.in_channels, *self.kernel_size, self.out_channels // self.groups), bias)

    def _checked_mode(self, padding_mode: str) -> str:
        only_offered(type(self).__name__, padding_mode=(padding_mode, "zeros"))
        return padding_mode

    def _output_padding(self, x: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        if self.padding_mode != "zeros":
            self._checked_mode(self.padding_mode)
        if output_size is None:
            return self.output_padding
        sizes = self.kernel_size, self.stride, self.padding, self.dilation
        return padding_for(type(self).__name__, x.shape, output_size, sizes)

    def _own_repr(self) -> list[str]:
        parts = [f"padding={self.padding}"]
        if self.output_padding != (0,) * self.rank:
            parts.append(f"output_padding={self.output_padding}")
        return parts


class ConvTranspose1d(_ConvTranspose):
    """Transposed 1-D convolution   (N, L, in_channels) -> (N, O, out_channels)

    Arguments and attributes are those of `ConvTranspose2d`, with one length instead of two.
    """

    rank = 1

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        own = self.stride, self.padding, self._output_padding(x, output_size), self.groups, self.dilation
        return F.conv_transpose1d(x, self.weight, self.bias, *own, negative_slope=self.negative_slope)


class ConvTranspose2d(_ConvTranspose):
    """Transposed 2-D convolution   (N, IH, IW, in_channels) -> (N, OH, OW, out_channels)

    OH = (IH - 1) sh - 2 ph + dh (FH - 1) + output_padding + 1, OW likewise.

    Args:
        kernel_size, stride, padding, output_padding, dilation: a number, or a pair (height, width).
        padding_mode: only "zeros" is offered, as in PyTorch.
        output_size: of `forward`, in place of output_padding: (OH, OW), or (N, OH, OW, out_channels).
        groups, bias, negative_slope: as for `Conv2d`.

    Attributes:
        weight: (in_channels, FH, FW, out_channels / groups), kaiming uniform.
        bias: (out_channels,) or None.

    Examples:
        >>> import alpha
        >>> layer = alpha.nn.ConvTranspose2d(16, 3, 4, stride=2, padding=1)
        >>> layer(alpha.ones(8, 16, 16, 16)).shape
        (8, 32, 32, 3)
    """

    rank = 2

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        own = self.stride, self.padding, self._output_padding(x, output_size), self.groups, self.dilation
        return F.conv_transpose2d(x, self.weight, self.bias, *own, negative_slope=self.negative_slope)


class ConvTranspose3d(_ConvTranspose):
    """Transposed 3-D convolution   (N, ID, IH, IW, in_channels) -> (N, OD, OH, OW, out_channels)

    Arguments and attributes are those of `ConvTranspose2d`, with three lengths instead of two.
    """

    rank = 3

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        own = self.stride, self.padding, self._output_padding(x, output_size), self.groups, self.dilation
        return F.conv_transpose3d(x, self.weight, self.bias, *own, negative_slope=self.negative_slope)
