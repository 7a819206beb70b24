"""Lazy layers, convolutions too, under PyTorch's names.

The number of input channels is that of the first input, whose last axis it is.
A lazy layer is a module like any other: it may be moved, frozen, copied, pickled and given to an optimizer before its
first forward. That forward draws the parameters, as the plain layer would if it were made at that moment, on the device
and in the dtype of the layer, and makes the layer one of the plain class: `type(m) is nn.Linear`.

    model = nn.Sequential(nn.LazyConv2d(64, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)).to("cuda")
    with alpha.no_grad():
        model(alpha.zeros(1, 32, 32, 3, device="cuda"))

Weights that `load_state_dict` brings initialise the parameters, too.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from alpha.autograd.grad_mode import no_grad
from alpha.core import rng
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError, UninitializedError, type_name
from alpha.module.hooks import Before, Inputs
from alpha.module.module import Buffer, Module, Parameter
from alpha.module.parameter import Uninitialized, UninitializedBuffer, UninitializedParameter, fill
from alpha.nn.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm, check_axes
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
from alpha.nn.init import Resets
from alpha.nn.layers import Linear
from alpha.nn.normalization import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, _InstanceNorm
from alpha.ops.convolution.conv_arguments import Padding
from alpha.ops.kernel.options import Lengths, integer

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


def _infer(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """The hook before the first forward."""
    assert isinstance(module, LazyModuleMixin)
    module.initialize_parameters(*args, **kwargs)
    left = [name for name, value in vars(module).items() if isinstance(value, Uninitialized)]
    if left:
        raise UninitializedError(
            f"{type(module).__name__}: initialize_parameters has left {', '.join(left)} uninitialised; call "
            "materialize(shape) of each"
        )
    module._pre_hooks = tuple([hook for hook in module._pre_hooks if hook is not _infer])
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become  # type: ignore[assignment]
    return args, kwargs


class LazyModuleMixin(Module):
    """The base of lazy layers, also of one's own: parameters that follow from the arguments of the first forward.

    A subclass assigns `UninitializedParameter()` and `UninitializedBuffer()` to attributes, and defines
    `initialize_parameters(self, *args, **kwargs)`, which gets the arguments of the first forward, before it, and
    initialises all of them, for example by `self.weight.materialize(shape)`.

    Attributes:
        cls_to_become: the class that the module has afterwards; None leaves it.
    """

    cls_to_become: ClassVar[type[Module] | None] = None
    _pre_hooks: tuple[Before, ...] = (_infer,)

    def has_uninitialized_params(self) -> bool:
        """True if a parameter or a buffer of the module itself has no shape yet."""
        return any(isinstance(value, Uninitialized) for value in vars(self).values())

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} defines no initialize_parameters(self, ...)")


def waits(value: object) -> bool:
    """True if the value is a lazy module or an uninitialised tensor, whose first forward is still to come."""
    return isinstance(value, Uninitialized) or (isinstance(value, LazyModuleMixin) and _infer in value._pre_hooks)


def initialised(model: Module, arguments: tuple[Any, ...]) -> Module:
    """The model, or a copy of it behind its first forward, if a part of it waits for that; nothing else changes."""
    if not any(map(waits, model.modules())) and not any(waits(value) for _, value in model.named_tensors()):
        return model
    state, copied = rng.default.state(), copy.deepcopy(model).eval()
    try:
        with no_grad():
            copied(*arguments)
    finally:
        rng.default.set_state(state)
    return copied


class _Lazy(LazyModuleMixin):
    """Base of Alpha's lazy layers.

    Attributes:
        kind: the plain layer.
        counted: the name of its number of input channels.
    """

    kind: ClassVar[Any]
    counted: ClassVar[str]

    def initialize_parameters(self, x: Tensor, *args: Any, **kwargs: Any) -> None:
        """Raises `ShapeError` if x has another number of axes than the layer is for; nothing has changed then."""
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(self).__name__}: x is a {type_name(x)}, a Tensor is needed")
        self._check(x)
        channels = self._known() or x.shape[-1]
        empty = {name: value for name, value in vars(self).items() if isinstance(value, Uninitialized)}
        plain = self._plain(channels) if empty else None
        for name, value in empty.items():
            fill(value, getattr(plain, name).numpy())
        setattr(self, self.counted, channels)

    def reset_parameters(self) -> None:
        """Draw the parameters anew; before they have a shape there is nothing to draw, and the first forward does."""
        if not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]

    def _check(self, x: Tensor) -> None:
        """Refuse an input of another number of axes."""
        raise NotImplementedError

    def _known(self) -> int | None:
        """The number of channels, if a parameter or a buffer has been loaded that tells it."""
        raise NotImplementedError

    def _plain(self, channels: int) -> Module:
        """The plain layer of so many channels, with the same arguments."""
        raise NotImplementedError


class LazyLinear(_Lazy, Linear):
    """A `Linear` whose `in_features` is the length of the last axis of its first input.

    (..., in_features) -> (..., out_features)

    Args:
        out_features, bias: as of `Linear`.
    """

    kind = cls_to_become = Linear
    counted = "in_features"

    def __init__(self, out_features: int, bias: bool = True) -> None:
        self.in_features = 0
        self.out_features = integer("LazyLinear", "out_features", out_features, least=1)
        self.weight = UninitializedParameter()
        self.register_parameter("bias", UninitializedParameter() if bias else None)

    def _form_of(self, name: str) -> tuple[int | None, ...]:
        return (self.out_features, None) if name == "weight" else (self.out_features,)

    def _check(self, x: Tensor) -> None:
        if not x.ndim:
            raise ShapeError("LazyLinear: x (..., in_features) is needed  (x ())")

    def _known(self) -> int | None:
        return None if isinstance(self.weight, Uninitialized) else self.weight.shape[1]

    def _plain(self, channels: int) -> Linear:
        return Linear(channels, self.out_features, self.bias is not None)


class _LazyNorm(_Lazy, Resets):
    """A normalisation, whose parameters and running statistics all have a number for each channel."""

    counted = "num_features"
    fewest = 0
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Buffer | None
    running_var: Buffer | None

    def _make(self, weight: bool, bias: bool, tracks: bool) -> None:
        self.register_parameter("weight", UninitializedParameter() if weight else None)
        self.register_parameter("bias", UninitializedParameter() if bias else None)
        self._hold("running_mean", UninitializedBuffer() if tracks else None)
        self._hold("running_var", UninitializedBuffer() if tracks else None)

    def _form_of(self, name: str) -> tuple[int | None, ...]:
        return (None,)

    def _known(self) -> int | None:
        parts = self.weight, self.bias, self.running_mean, self.running_var
        return next((part.shape[0] for part in parts if part is not None and not isinstance(part, Uninitialized)), None)


class _LazyBatchNorm(_LazyNorm, _BatchNorm):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        bias: bool = True,
        bias_correction: bool = False,
    ) -> None:
        own = eps, momentum, affine, track_running_stats
        super().__init__(0, *own, bias=bias, bias_correction=bias_correction)

    def _check(self, x: Tensor) -> None:
        check_axes(self, x, self.forms)

    def _plain(self, channels: int) -> Module:
        own = self.eps, self.momentum, self.weight is not None, self.running_mean is not None
        bias, corrects = self.bias is not None, self.bias_correction
        return self.kind(channels, *own, bias=bias, bias_correction=corrects)  # type: ignore[no-any-return]


class LazyBatchNorm1d(_LazyBatchNorm, BatchNorm1d):
    """A `BatchNorm1d` whose `num_features` is that of its first input   (N, C) or (N, L, C) -> the same

    Arguments are those of `BatchNorm2d` without `num_features`.
    """

    kind = cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyBatchNorm, BatchNorm2d):
    """A `BatchNorm2d` whose `num_features` is that of its first input   (N, H, W, C) -> the same

    Arguments are those of `BatchNorm2d` without `num_features`.
    """

    kind = cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyBatchNorm, BatchNorm3d):
    """A `BatchNorm3d` whose `num_features` is that of its first input   (N, D, H, W, C) -> the same

    Arguments are those of `BatchNorm2d` without `num_features`.
    """

    kind = cls_to_become = BatchNorm3d


class _LazyInstanceNorm(_LazyNorm, _InstanceNorm):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, affine, track_running_stats, bias=bias)

    def _check(self, x: Tensor) -> None:
        check_axes(self, x, self.forms)

    def _plain(self, channels: int) -> Module:
        own = self.eps, self.momentum, self.weight is not None, self.running_mean is not None
        return self.kind(channels, *own, bias=self.bias is not None)  # type: ignore[no-any-return]


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """An `InstanceNorm1d` whose `num_features` is that of its first input   (N, L, C), or (L, C) -> the same

    Arguments are those of `InstanceNorm2d` without `num_features`, but `affine` and `track_running_stats` are True by
    default, as in PyTorch.
    """

    kind = cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """An `InstanceNorm2d` whose `num_features` is that of its first input   (N, H, W, C), or (H, W, C) -> the same

    Arguments are as of `LazyInstanceNorm1d`.
    """

    kind = cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """An `InstanceNorm3d` whose `num_features` is that of its first input.

    (N, D, H, W, C), or (D, H, W, C) -> the same

    Arguments are as of `LazyInstanceNorm1d`.
    """

    kind = cls_to_become = InstanceNorm3d


FORMS = ("(L, C)", "(N, L, C)"), ("(H, W, C)", "(N, H, W, C)"), ("(D, H, W, C)", "(N, D, H, W, C)")


class _LazyConvolution(_Lazy, _Layer):
    counted = "in_channels"
    fewest = 0

    def _draw(self, weight: tuple[int, ...], bias: bool) -> None:
        self.weight = UninitializedParameter()
        self.register_parameter("bias", UninitializedParameter() if bias else None)

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
