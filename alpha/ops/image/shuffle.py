"""Channels moved into pixels, pixels into channels, and channels among each other; channels last."""

from __future__ import annotations

from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.array.axes import permute
from alpha.ops.kernel.arguments import AnyTensor, check_arguments, unchecked
from alpha.ops.kernel.function_layer import FunctionLayer, function_layer
from alpha.ops.kernel.options import integer, positive_integer

__all__ = ["ChannelShuffle", "PixelShuffle", "PixelUnshuffle", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


@check_arguments
def pixel_shuffle(x: AnyTensor, upscale_factor: int) -> Tensor:
    """r x r channels become a block of r x r pixels (Shi et al. 2016)   x (.., H, W, C r r) -> (.., H r, W r, C)

    As in PyTorch channel c r r + i r + j becomes pixel (i, j) of channel c.

    Raises:
        ShapeError: x has less than three axes, or its channels are no multiple of r r.
        ValueError: upscale_factor is below 1.
    """
    r = integer("pixel_shuffle", "upscale_factor", upscale_factor, least=1)
    if x.ndim < 3 or x.shape[-1] % (r * r):
        raise ShapeError(f"pixel_shuffle: x (.., H, W, C) is needed, C a multiple of {r} x {r}  (x {x.shape})")
    *lead, H, W, C = x.shape
    count = len(lead)
    blocks = x.reshape(*lead, H, W, C // (r * r), r, r)
    order = (*range(count), count, count + 3, count + 1, count + 4, count + 2)
    return unchecked(permute)(blocks, order).reshape(*lead, H * r, W * r, C // (r * r))


@check_arguments
def pixel_unshuffle(x: AnyTensor, downscale_factor: int) -> Tensor:
    """A block of r x r pixels becomes r x r channels, which undoes `pixel_shuffle`

    x (.., H r, W r, C) -> (.., H, W, C r r)

    Raises:
        ShapeError: x has less than three axes, or its height or width is no multiple of r.
        ValueError: downscale_factor is below 1.
    """
    r = integer("pixel_unshuffle", "downscale_factor", downscale_factor, least=1)
    if x.ndim < 3 or x.shape[-3] % r or x.shape[-2] % r:
        raise ShapeError(f"pixel_unshuffle: x (.., H, W, C) is needed, H and W multiples of {r}  (x {x.shape})")
    *lead, H, W, C = x.shape
    count = len(lead)
    blocks = x.reshape(*lead, H // r, r, W // r, r, C)
    order = (*range(count), count, count + 2, count + 4, count + 1, count + 3)
    return unchecked(permute)(blocks, order).reshape(*lead, H // r, W // r, C * r * r)


@check_arguments
def channel_shuffle(x: AnyTensor, groups: int) -> Tensor:
    """The channels of all groups in turns: the first of each group, then the second of each   x (N, .., C) -> the same

    Raises:
        ShapeError: x has less than three axes, or its channels are no multiple of groups.
        ValueError: groups is below 1.
    """
    g = integer("channel_shuffle", "groups", groups, least=1)
    if x.ndim < 3 or x.shape[-1] % g:
        raise ShapeError(f"channel_shuffle: x (N, .., C) is needed, C a multiple of groups={g}  (x {x.shape})")
    *lead, C = x.shape
    count = len(lead)
    return unchecked(permute)(x.reshape(*lead, g, C // g), (*range(count), count + 1, count)).reshape(*x.shape)


@function_layer(pixel_shuffle, upscale_factor=positive_integer)
class PixelShuffle(FunctionLayer):
    """Blocks of r x r pixels, each made of r x r channels   (.., H, W, C r r) -> (.., H r, W r, C)"""

    upscale_factor: int


@function_layer(pixel_unshuffle, downscale_factor=positive_integer)
class PixelUnshuffle(FunctionLayer):
    """A block of r x r pixels becomes r x r channels   (.., H r, W r, C) -> (.., H, W, C r r)"""

    downscale_factor: int


@function_layer(channel_shuffle, groups=positive_integer)
class ChannelShuffle(FunctionLayer):
    """The channels of all groups in turns   (N, .., C) -> the same"""

    groups: int
