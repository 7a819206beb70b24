"""Arrays of a GPU for other libraries, and those of other libraries as arrays of a GPU, without a copy.

The capsules are cuda-core's: a `Buffer` over the address and a `StridedMemoryView` of it, with shape and dtype, make
them, and a `StridedMemoryView` reads them. The memory of the emulated driver lies on the host, and is shared as what it
is: through numpy, as memory of the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.errors import DeviceError
from alpha.installation import install
from alpha.runtime import recording
from alpha.runtime.arena.arena import Block
from alpha.runtime.cuda.array import DeviceArray, form_of
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.sharing import capsules
from alpha.runtime.sharing.leases import UNORDERED

ALIGNMENT = 16  # bytes of the widest load of a kernel


class Lent:
    """The user of an array that was lent by DLPack: it lives as long as the other library's array."""

    __slots__ = ("__array_interface__", "__weakref__", "_block")

    def __init__(self, array: DeviceArray) -> None:
        self._block = array.block
        data = array.address, False
        self.__array_interface__ = {"data": data, "shape": (array.nbytes,), "typestr": "|u1", "version": 3}


class ForeignBlock(Block):
    """Memory of another library; a `Lease` holds its owner."""

    __slots__ = ()

    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes
        self.arena = None  # type: ignore[assignment]


def views() -> Any:
    """`cuda.core.Buffer` and `cuda.core.utils.StridedMemoryView`; `DeviceError` if cuda-core is missing."""
    try:
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView
    except (ImportError, RuntimeError) as error:
        raise DeviceError(
            f"arrays of a GPU are shared through cuda-core, which is missing ({error}): {install('cuda')}"
        ) from None
    return Buffer, StridedMemoryView


def device_of(array: DeviceArray) -> tuple[int, int]:
    """`__dlpack_device__` of an array: the GPU, or the host for one of the emulated driver, whose memory lies there."""
    return (capsules.CPU if array.device.driver.name == "emulated" else capsules.CUDA), 0


def prepare(operator: str, array: DeviceArray) -> None:
    """Make an array ready for another library, which keeps its address and may write it.

    It leaves the memory of captured steps, which the next replay uses again, and its magnitude is forgotten.

    Raises:
        DeviceError: nothing is computed, in a dry run.
    """
    device = array.device
    recording.refuse(f"{operator}: an array is given to another library")
    if device.driver.name == "dry":
        raise DeviceError(f"{operator}: a dry run computes nothing, so there is no memory to share")
    device.driver.owner.check(operator)
    device.memory.leases.settle()
    device.memory.keep_in_place(array.block)
    array.magnitude = None


def check_stream(stream: Any) -> None:
    """`BufferError` for what is no stream: `__dlpack__` forbids 0, which could be either default stream."""
    if stream is None or (isinstance(stream, int) and (stream > 0 or stream == UNORDERED) and stream is not True):
        return
    raise BufferError(
        f"__dlpack__: stream={stream!r} is no stream of CUDA: 1 is the legacy default stream, 2 that of the thread, -1 "
        "asks for no order, any other number is the address of a stream"
    )


def lend(array: DeviceArray, stream: int | None, max_version: tuple[int, int] | None) -> Any:
    """A capsule of an array, whose memory lives as long as the consumer holds it.

    An array without elements may have the address at which its block ends, of which CUDA knows no device. So the
    consumer gets another one of the same shape.

    Args:
        stream: the consumer's, as `__dlpack__` is given it: it waits for the work that was queued so far.

    Raises:
        BufferError: the stream is no stream.
    """
    check_stream(stream)
    prepare("__dlpack__", array)
    device = array.device
    array = array if array.size else device.empty(array.shape, array.dtype)
    lent = Lent(array)
    stream = 1 if stream is None else stream
    is_bfloat16, capsule = array.dtype.kind == "V", None
    if device_of(array)[0] == capsules.CPU:
        values = np.asarray(lent).view(array.dtype).reshape(array.shape)
        capsule = capsules.of_host(values, max_version)
    else:
        buffer, view = views()
        made = view.from_buffer(
            buffer.from_handle(array.address, array.nbytes, owner=lent),
            array.shape,
            dtype=np.dtype(np.uint16) if is_bfloat16 else array.dtype,
        )
        capsule = made.__dlpack__(max_version=max_version)
        capsule = capsules.as_bfloat16(capsule) if is_bfloat16 else capsule
    if stream != UNORDERED:
        device.driver.let_wait(stream)
    device.memory.leases.lend(lent, array.block, stream)
    return capsule


def interface(array: DeviceArray, user: Any) -> dict[str, Any]:
    """`__cuda_array_interface__` of an array, of version 3; its memory lives at least as long as `user`.

    The host waits for Alpha's work, because some consumers, as PyTorch, do not read "stream". Theirs is not known, so
    when `user` has died the host waits for the GPU before the memory is used again.
    """
    prepare("__cuda_array_interface__", array)
    array.device.driver.synchronize()
    array.device.memory.leases.lend(user, array.block, None)
    return {
        "shape": array.shape,
        "typestr": "<V2" if array.dtype.kind == "V" else array.dtype.str,
        "data": (array.address if array.size else 0, False),
        "strides": None,
        "version": 3,
        "stream": None,  # nothing is left to wait for
    }


def borrow(device: CudaDevice, array: Any) -> tuple[DeviceArray, tuple[int, ...], tuple[int, ...], bool]:
    """The memory of an array of another library on this GPU, whose work comes before what Alpha queues from here on.

    Memory that Alpha has lent comes back as what it was. So an array that goes to and fro a million times does not hold
    a million arrays, each by the next.

    Returns:
        Its elements from the first to the last address as one axis, its shape, its strides in elements, and whether
        its owner lets nobody write it.

    Raises:
        BufferError: its dtype, or the order of its axes, is none that can be read.
    """
    recording.refuse("from_dlpack: an array of another library is taken")
    if device.driver.name != "pycuda":
        raise DeviceError(f"from_dlpack: the array lies on a GPU, and the {device.driver.name} driver has none")
    device.memory.leases.settle()
    producer, found = capsules.Producer(array), list[Any]()
    _, view = views()
    device.driver.hand_over(lambda stream: found.append(view.from_dlpack(producer, stream)), False)
    return _window(device, found.pop(), producer.is_bfloat16)


def _window(
    device: CudaDevice, view: Any, is_bfloat16: bool
) -> tuple[DeviceArray, tuple[int, ...], tuple[int, ...], bool]:
    import ml_dtypes

    dtype = np.dtype(ml_dtypes.bfloat16) if is_bfloat16 else view.dtype
    shape, strides = tuple(view.shape), view.strides
    if strides is None:
        strides = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
    if any(stride < 0 for stride in strides):
        raise BufferError(f"from_dlpack: strides {tuple(strides)} run backwards")
    if 0 in shape:  # it may have no address, and there is nothing to share
        return device.empty((0,), dtype), shape, tuple(strides), bool(view.readonly)
    form = form_of((1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)),), dtype)
    address, leases = int(view.ptr), device.memory.leases
    block = leases.lent(address, form.nbytes)
    if block is None:
        block = ForeignBlock(address, form.nbytes)
        leases.borrow(block, view)
    return DeviceArray(device, block, address - block.address, form), shape, tuple(strides), bool(view.readonly)
