"""Copies of tensors, in other dtypes and on other devices, under PyTorch's names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from alpha.autograd.engine import checked_tensor
from alpha.autograd.grad_mode import enable_grad, is_grad_enabled, no_grad
from alpha.autograd.versions import check_history, check_writable
from alpha.core.host_values import DTypeLike
from alpha.core.names.no_effect import check_memory_format
from alpha.core.origins import inherit
from alpha.core.tensor import Tensor
from alpha.errors import DeviceError
from alpha.ops.array import layout
from alpha.ops.array.axes import squeeze, transpose, unsqueeze
from alpha.ops.array.layout import ToDevice
from alpha.ops.array.layout import view as reshaped
from alpha.ops.array.parts.apart import UNNAMED, apart
from alpha.ops.array.parts.clone import clone
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.runtime import Device, get_device
from alpha.runtime.registry import names_device


def contiguous(x: Tensor, memory_format: Any = None) -> Tensor:
    """x itself, because every tensor is contiguous; a part of another tensor as a tensor of its own.

    What is written to `x[:, 0].contiguous()` or `x.T.contiguous()` does not change x, as in PyTorch. memory_format has
    no effect: channels are always last.
    """
    check_memory_format("contiguous", memory_format)
    unnamed = sys.getrefcount(x) <= UNNAMED
    return apart(x, None, unnamed)


def pin_memory(x: Tensor) -> Tensor:
    """x itself, on the cpu: copies to the GPU go through pinned memory of Alpha's own."""
    if x.device.name != "cpu":
        raise DeviceError(f"pin_memory: the tensor is on {x.device.name}; only memory of the host is pinned")
    return x


def type_of(x: Tensor, dtype: DTypeLike = None, non_blocking: bool = False) -> Tensor:
    """x in the dtype, and itself if that is its own; PyTorch's older name of `x.to(dtype)`.

    Raises:
        TypeError: there is no dtype: names of types, such as "torch.FloatTensor", are PyTorch's alone.
    """
    if dtype is None:
        raise TypeError("type: a dtype is needed; x.dtype is that of x")
    return to(x, dtype=dtype)


def to(
    x: Tensor,
    device: Any = None,
    dtype: DTypeLike = None,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: Any = None,
) -> Tensor:
    """The same values on another device, in another dtype, or both, and itself if nothing changes.

    Gradients flow back. A dtype may come first, and a tensor stands for its device and its dtype:
    `x.to("cuda")`, `x.to("float32")`, `x.to("cuda", "float32")`, `x.to(y)`.

    Args:
        non_blocking: has no effect; a copy to the GPU does not wait for the work that is queued there anyway.
        copy: True: the result has memory of its own, also if nothing changes.
        memory_format: has no effect; every tensor is contiguous, with channels last.
    """
    check_memory_format("to", memory_format)
    if isinstance(device, Tensor):
        if dtype is not None:
            raise TypeError("to: a tensor stands for its device and its dtype, so that no dtype= goes with it")
        device, dtype = device.device, device.dtype
    elif dtype is None and device is not None and not names_device(device):
        device, dtype = None, device
    y = x if dtype is None else x.astype(dtype)
    target = x.device if device is None else get_device(device)
    y = y if target is y.device else ToDevice.apply(y, target=target)
    return clone(y) if copy and y is x else y


def cpu(x: Tensor) -> Tensor:
    """The same values on the cpu."""
    return x.to("cpu")


def cuda(x: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """The same values on the cuda device; device may be its number 0, and non_blocking has no effect."""
    return x.to(cuda_device(device))


def cuda_device(device: Any) -> Device:
    """The cuda device, of which there is one: None, 0, "cuda" and "cuda:0" mean it; `DeviceError` for others."""
    return get_device("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)


def view_as(x: Tensor, other: Tensor) -> Tensor:
    """x in the shape of another tensor, a view."""
    return reshaped(x, other.shape)


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """x in the dtype of another tensor and on its device; x itself if nothing changes."""
    return to(x, other)


def data(x: Tensor) -> Tensor:
    """`x.data`: the same memory outside the graph, as `detach`."""
    return x.detach()


def set_data(x: Tensor, value: Tensor) -> None:
    """`x.data = y`: x has the memory of y, which has the shape, dtype and device of x."""
    x.array = checked_tensor(value, x, "data = ..: the value").array
    if value._version is not x._version:
        x._version, x._base_version = value._version, value._version.recorded
    if not x._belongs:
        inherit(x, value)


def tolist(x: Tensor) -> Any:
    """The values as nested lists, or as a number; waits for the device."""
    return x.numpy().tolist()


def is_tensor(obj: Any) -> bool:
    """True if it is a tensor of Alpha."""
    return isinstance(obj, Tensor)


@check_arguments
def is_floating_point(x: AnyTensor) -> bool:
    """True if the dtype of x is float32, float64 or bfloat16."""
    return x.is_floating_point()


@check_arguments
def numel(x: AnyTensor) -> int:
    """The number of elements of x."""
    return x.numel()


def reversed_axes(x: Tensor) -> Tensor:
    """`x.T`: the axes in reversed order, a copy; a matrix is transposed."""
    return x.permute(*reversed(range(x.ndim)))


def transposed_matrices(x: Tensor) -> Tensor:
    """`x.mT`: the last two axes exchanged, a copy."""
    return transpose(x, -2, -1)


def ravel(x: Tensor) -> Tensor:
    """x as one axis, a view."""
    return layout.reshaped(0, x, (x.size,))


def squeeze_(x: Tensor, dim: Any = None) -> Tensor:
    """x itself without axes of length 1, as `squeeze` says."""
    return _reshaped_in_place("squeeze_", x, lambda: squeeze(x, dim).shape)


def unsqueeze_(x: Tensor, dim: int) -> Tensor:
    """x itself with a new axis of length 1, as `unsqueeze` says."""
    return _reshaped_in_place("unsqueeze_", x, lambda: unsqueeze(x, dim).shape)


def _reshaped_in_place(operator: str, x: Tensor, wanted: Callable[[], tuple[int, ...]]) -> Tensor:
    """x under another shape: its memory and the other tensors that share it stay as they are."""
    recording = is_grad_enabled() and x.requires_grad
    check_writable(operator, x, recording)
    check_history(operator, x)
    with no_grad():
        shape = wanted()
    if recording or x._node is not None:  # its gradient has the new shape, also under no_grad
        with enable_grad():
            y = reshaped(x, shape)
        assert y._node is not None
        y._node.is_view = False  # no tensor has the old shape that x could be written behind
        y._node.take_over(x._node)
        x._node = y._node
    elif x.grad is not None:
        x._grad = x.grad.reshape(shape)
    x.array = x.array.reshape(shape)
    return x
