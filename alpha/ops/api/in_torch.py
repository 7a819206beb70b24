"""Functions that `alpha` offers, as `torch` does, beside the rooms of `alpha.nn.functional`.

These are functions that give no tensor or take none, methods in place as functions, and functions of
`torch.nn.functional` that PyTorch has in `torch` with the same arguments, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpha.core.host_values import DTypeLike
from alpha.core.tensor import Tensor, tensor
from alpha.errors import type_name
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
from alpha.ops.array.shuffle import channel_shuffle, native_channel_shuffle, pixel_shuffle, pixel_unshuffle
from alpha.ops.convolution import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from alpha.ops.matmul.distances import cosine_similarity, pairwise_distance
from alpha.ops.matmul.matmul import bilinear
from alpha.ops.noise.windows import bartlett_window, blackman_window, hamming_window, hann_window, logspace
from alpha.ops.normalization.group import group_norm, layer_norm, rms_norm
from alpha.ops.pooling.adaptive_pool import adaptive_avg_pool1d
from alpha.ops.pooling.avg_pool import avg_pool1d
from alpha.ops.pooling.max_pool import max_pool1d, max_pool2d, max_pool3d

__all__ = [
    "abs_",
    "acos_",
    "acosh_",
    "adaptive_avg_pool1d",
    "addmv_",
    "arccos_",
    "arccosh_",
    "arcsin_",
    "arcsinh_",
    "arctan_",
    "arctanh_",
    "asarray",
    "asin_",
    "asinh_",
    "atan_",
    "atanh_",
    "avg_pool1d",
    "bartlett_window",
    "bilinear",
    "blackman_window",
    "broadcast_shapes",
    "can_cast",
    "ceil_",
    "celu",
    "celu_",
    "channel_shuffle",
    "clamp_",
    "clamp_max_",
    "clamp_min_",
    "clip_",
    "clone",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cos_",
    "cosh_",
    "cosine_similarity",
    "deg2rad_",
    "detach",
    "detach_",
    "erf_",
    "erfc_",
    "exp2_",
    "exp_",
    "expm1_",
    "fill_",
    "fix_",
    "floor_",
    "frac_",
    "gcd_",
    "group_norm",
    "hamming_window",
    "hann_window",
    "hardshrink",
    "index_put_",
    "is_complex",
    "is_nonzero",
    "is_same_size",
    "is_signed",
    "isreal",
    "layer_norm",
    "lcm_",
    "ldexp_",
    "log1p_",
    "log2_",
    "log10_",
    "log_",
    "logit_",
    "logspace",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "nan_to_num_",
    "native_channel_shuffle",
    "neg_",
    "negative_",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "promote_types",
    "rad2deg_",
    "ravel",
    "reciprocal_",
    "relu_",
    "result_type",
    "rms_norm",
    "round_",
    "rrelu",
    "rrelu_",
    "rsqrt_",
    "scalar_tensor",
    "selu",
    "selu_",
    "sigmoid_",
    "sin_",
    "sinc_",
    "sinh_",
    "sqrt_",
    "square_",
    "tan_",
    "tanh_",
    "threshold",
    "threshold_",
    "trunc_",
    "unravel_index",
    "xlogy_",
    "zero_",
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


def _written(name: str) -> Callable[..., Tensor]:
    """The method of this name as a function of x and the method's arguments, which writes x and returns it."""

    def function(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: x is a {type_name(x)}, a Tensor is needed; use alpha.tensor(x, device=..)")
        result: Tensor = getattr(x, name)(*args, **kwargs)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`x.{name}(..)`, which writes x and returns it."
    return function


abs_ = _written("abs_")
acos_ = _written("acos_")
acosh_ = _written("acosh_")
addmv_ = _written("addmv_")
arccos_ = _written("arccos_")
arccosh_ = _written("arccosh_")
arcsin_ = _written("arcsin_")
arcsinh_ = _written("arcsinh_")
arctan_ = _written("arctan_")
arctanh_ = _written("arctanh_")
asin_ = _written("asin_")
asinh_ = _written("asinh_")
atan_ = _written("atan_")
atanh_ = _written("atanh_")
ceil_ = _written("ceil_")
clamp_ = _written("clamp_")
clamp_max_ = _written("clamp_max_")
clamp_min_ = _written("clamp_min_")
clip_ = _written("clip_")
cos_ = _written("cos_")
cosh_ = _written("cosh_")
deg2rad_ = _written("deg2rad_")
detach_ = _written("detach_")
erf_ = _written("erf_")
erfc_ = _written("erfc_")
exp2_ = _written("exp2_")
exp_ = _written("exp_")
expm1_ = _written("expm1_")
fill_ = _written("fill_")
fix_ = _written("fix_")
floor_ = _written("floor_")
frac_ = _written("frac_")
gcd_ = _written("gcd_")
index_put_ = _written("index_put_")
lcm_ = _written("lcm_")
ldexp_ = _written("ldexp_")
log10_ = _written("log10_")
log1p_ = _written("log1p_")
log2_ = _written("log2_")
log_ = _written("log_")
logit_ = _written("logit_")
nan_to_num_ = _written("nan_to_num_")
neg_ = _written("neg_")
negative_ = _written("negative_")
rad2deg_ = _written("rad2deg_")
reciprocal_ = _written("reciprocal_")
round_ = _written("round_")
rsqrt_ = _written("rsqrt_")
sigmoid_ = _written("sigmoid_")
sin_ = _written("sin_")
sinc_ = _written("sinc_")
sinh_ = _written("sinh_")
sqrt_ = _written("sqrt_")
square_ = _written("square_")
tan_ = _written("tan_")
tanh_ = _written("tanh_")
trunc_ = _written("trunc_")
xlogy_ = _written("xlogy_")
zero_ = _written("zero_")
