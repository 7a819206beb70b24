"""Tensors of the memory of other libraries: `from_dlpack`. The way out is `Tensor.__dlpack__`."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.host_values import DTYPES
from alpha.core.numerics import BFLOAT16
from alpha.core.origins import of_values
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.errors import DeviceError, type_name
from alpha.ops.kernel.views import View, read_view
from alpha.runtime import Device, get_device
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.sharing import capsules, lending
from alpha.runtime.sharing.lending import ALIGNMENT


def from_dlpack(x: Any, /, *, device: str | Device | None = None, copy: bool | None = None) -> Tensor:
    """A tensor with the memory of an array of PyTorch, numpy, CuPy, JAX or any library with DLPack   (...) -> the same

    The memory is shared if it is contiguous in C order, aligned to 16 bytes on a GPU, no managed memory, and may be
    written; else it is copied. So a tensor of PyTorch with `channels_last` is shared under the axes of Alpha:
    `alpha.from_dlpack(images.permute(0, 2, 3, 1))`. The other array lives as long as the tensor does, and what is
    written to one of them is seen in the other. Alpha does not count what the other library writes, so a gradient that
    needs the values of before is wrong then, without an error.

    On a GPU, what Alpha does from here on waits for the work that the other library has queued so far, on its current
    stream, and for nothing that comes later. What Alpha does, the other library waits for if it asks for the tensor in
    its turn (`torch.from_dlpack(tensor)`), or after `alpha.synchronize()`.

    Args:
        x: has `__dlpack__` and `__dlpack_device__`.
        device: where the tensor shall be; by default where x is. Another device gets a copy.
        copy: None copies where that is needed, True always, False never.

    Raises:
        TypeError: x has no `__dlpack__`, or a dtype with which Alpha does not compute.
        BufferError: copy is False, and a copy is needed; or x requires a gradient.
        DeviceError: x is on a device that Alpha has not, or cuda-core is missing.
        CaptureError: x is on a GPU, and the step is captured: give it to the step as a tensor.
    """
    if isinstance(x, type) or not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        raise TypeError(f"from_dlpack: a {type_name(x)} has no __dlpack__; alpha.tensor(x) copies values")
    target = None if device is None else get_device(device)
    if isinstance(x, Tensor):
        if x.requires_grad:
            raise BufferError("from_dlpack: the tensor requires a gradient; use .detach()")
        result, why = x.detach(), ""
    else:
        result, why = _taken(x, copy)
    if target is not None and target is not result.device:
        if copy is False:
            raise BufferError(
                f"from_dlpack: copy=False, but the array is on {result.device.name}, not on {target.name}"
            )
        return result.to(target)
    return result.clone() if copy and not why else result


def _taken(x: Any, copy: bool | None) -> tuple[Tensor, str]:
    """A tensor with the memory of x or, if that cannot be, a copy; why it is one, in words, else an empty text."""
    kind, number = (int(value) for value in x.__dlpack_device__())
    if kind in capsules.HOST:
        array, view, is_writable = _on_host(x)
    elif kind in (capsules.CUDA, capsules.MANAGED) and number == 0:
        array, view, is_writable = _on_gpu(x)
    else:
        raise DeviceError(
            f"from_dlpack: the array is on device {number} of kind {kind}; Alpha has the cpu (1) and one GPU (2), "
            "number 0, which CUDA_VISIBLE_DEVICES chooses"
        )
    if array.dtype.name not in DTYPES:
        raise TypeError(
            f"from_dlpack: dtype {array.dtype.name} is not one of {', '.join(DTYPES)}; alpha.tensor(x) copies narrow "
            "numbers into wider ones"
        )
    why = "" if is_writable else "may not be written, or its DLPack is older than version 1 and cannot say so"
    if kind == capsules.MANAGED:  # other libraries would be told that it lies on the GPU alone
        why = why or "is managed memory"
    if isinstance(array, np.ndarray):
        why = why or ("" if array.flags.aligned else "is not aligned")
    else:
        why = why or (f"has an address that is no multiple of {ALIGNMENT}" if array.address % ALIGNMENT else "")
    if not view.is_contiguous:
        why = f"is not contiguous: its shape is {view.shape}, its strides are {view.strides}"
    if why and copy is False:
        raise BufferError(f"from_dlpack: copy=False, but the array {why}")
    if why:
        return of_values(Tensor(_copied(array, view))), why
    result = of_values(Tensor(array.reshape(view.shape)))
    result._version.shared = True
    return result, why


def _copied(array: Array, view: View) -> Array:
    return get_device("cpu").copy(array) if isinstance(array, np.ndarray) else read_view(array, view)


def _on_host(x: Any) -> tuple[Array, View, bool]:
    """The memory of an array on the host, its box, and whether it may be written.

    numpy's own arrays need no capsule, for which numpy before 2.1 has no flag that they may be written.
    """
    is_plain = isinstance(x, np.ndarray) and x.dtype.name in DTYPES and x.dtype.isnative
    if is_plain and not any(stride % x.itemsize for stride in x.strides):
        array = np.asarray(x)
    else:
        array = capsules.of_producer(x, BFLOAT16)
    strides = tuple([stride // array.itemsize for stride in array.strides])
    return array, View(array.shape, strides), array.flags.writeable


def _on_gpu(x: Any) -> tuple[Array, View, bool]:
    """The memory of an array on the GPU as one axis, its box, and whether it may be written."""
    device = get_device("cuda")
    assert isinstance(device, CudaDevice)
    array, shape, strides, is_read_only = lending.borrow(device, x)
    return array, View(shape, strides), not is_read_only
