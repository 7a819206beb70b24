"""Functions that `alpha` offers, as `torch` does, beside the rooms of `alpha.nn.functional`.

These are functions that give no tensor or take none, and functions of `torch.nn.functional` that PyTorch has in
`torch` with the same arguments, too.
"""

from __future__ import annotations

from typing import Any

from alpha.core.host_values import DTypeLike
from alpha.core.tensor import Tensor, tensor
from alpha.ops.activation.activation_inplace import celu_, relu_, rrelu_, selu_, threshold_
from alpha.ops.activation.parametric import prelu, rrelu
from alpha.ops.activation.piecewise import hardshrink, threshold
from alpha.ops.activation.smooth import celu, selu
from alpha.ops.array.creation import Where, as_tensor
from alpha.ops.array.facts import (
    broadcast_shapes,
    can_cast,
    clone,
    detach,
    is_complex,
    is_nonzero,
    is_same_size,
    is_signed,
    isreal,
    promote_types,
    ravel,
    result_type,
    unravel_index,
)
from alpha.ops.convolution import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from alpha.ops.image.shuffle import channel_shuffle, pixel_shuffle, pixel_unshuffle
from alpha.ops.matmul.distances import cosine_similarity, pairwise_distance
from alpha.ops.matmul.matmul import bilinear
from alpha.ops.noise.windows import bartlett_window, blackman_window, hamming_window, hann_window, logspace
from alpha.ops.normalization.group import group_norm, layer_norm, rms_norm
from alpha.ops.pooling.adaptive_pool import adaptive_avg_pool1d
from alpha.ops.pooling.avg_pool import avg_pool1d
from alpha.ops.pooling.max_pool import max_pool1d, max_pool2d, max_pool3d

__all__ = [
    "adaptive_avg_pool1d",
    "asarray",
    "avg_pool1d",
    "bartlett_window",
    "bilinear",
    "blackman_window",
    "broadcast_shapes",
    "can_cast",
    "celu",
    "celu_",
    "channel_shuffle",
    "clone",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_similarity",
    "detach",
    "group_norm",
    "hamming_window",
    "hann_window",
    "hardshrink",
    "is_complex",
    "is_nonzero",
    "is_same_size",
    "is_signed",
    "isreal",
    "layer_norm",
    "logspace",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "promote_types",
    "ravel",
    "relu_",
    "result_type",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scalar_tensor",
    "selu",
    "selu_",
    "threshold",
    "threshold_",
    "unravel_index",
]


def asarray(
    obj: Any, *, dtype: DTypeLike = None, device: Where = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """A tensor with these values.

    Args:
        obj: whatever `alpha.tensor` takes. A Tensor of that dtype and device shares its memory with the result, which
            is outside of its graph; anything else is copied.
        copy: True always copies; False is an error if a copy is needed.
        requires_grad: True records operators on the result.

    Raises:
        ValueError: copy is False, and the values must be copied.
    """
    found = as_tensor(obj, dtype, device)
    if copy is False and found is not obj:
        raise ValueError("asarray: copy=False, but only a Tensor of that dtype and device needs no copy")
    if found is obj and copy:
        found = found.clone()
    if found is not obj or found.requires_grad or requires_grad:
        found = found.detach()
    if requires_grad:
        found.requires_grad = True
    return found


def scalar_tensor(s: float, *, dtype: DTypeLike = None, device: Where = None, requires_grad: bool = False) -> Tensor:
    """A number as a tensor, by default in float32   -> ()"""
    return tensor(s, dtype="float32" if dtype is None else dtype, device=device, requires_grad=requires_grad)
