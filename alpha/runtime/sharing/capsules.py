"""DLPack capsules: numpy and cuda-core make and read them; bfloat16, which neither of them exports, is added here.

A capsule holds a `DLTensor` that says where an array lies and of which form it is. numpy has no bfloat16, and cuda-core
(`StridedMemoryView.__dlpack__`) reads it but does not write it. So both are given 16-bit integers in its place, and one
byte of the capsule, the code of the dtype, is exchanged: before a consumer reads the capsule, or before they do.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from alpha.runtime.device import HostArray

CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13  # DLDeviceType
HOST = (CPU, PINNED)  # memory of the host
UNSIGNED, BFLOAT = 1, 4  # DLDataTypeCode
OF_NUMPY = (0, UNSIGNED, 2, BFLOAT, 5, 6)  # integers, unsigned ones, floats, bfloat16, complex numbers, bool


class DLTensor(ctypes.Structure):
    """`DLTensor` of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


# where it begins, by the name of the capsule: behind version, context, deleter and flags, or at once
_BEGINS = {b"dltensor_versioned": 32, b"dltensor": 0}
# prototypes of our own: those of `ctypes.pythonapi` are shared with every other package of the program
_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def tensor_of(capsule: Any) -> DLTensor:
    """The `DLTensor` of a capsule that nobody has read yet; `BufferError` for any other object."""
    if type(capsule).__name__ != "PyCapsule" or (name := _name(capsule)) not in _BEGINS:
        raise BufferError(f"from_dlpack: __dlpack__ gave no fresh capsule of DLPack but {capsule!r}")
    return DLTensor.from_address(_pointer(capsule, name) + _BEGINS[name])


class Producer:
    """An array of another library, of whose capsules numpy and cuda-core read every dtype and the right address.

    Attributes:
        is_bfloat16: whether the capsule that was read last was of bfloat16; it is read as 16-bit integers.
    """

    is_bfloat16 = False

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._array.__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(self, **arguments: Any) -> Any:
        capsule = self._array.__dlpack__(
            **arguments
        )  # `TypeError`: older libraries take fewer; the consumer asks again
        tensor = tensor_of(capsule)
        if tensor.code not in OF_NUMPY or tensor.bits % 8 or tensor.lanes != 1:
            raise TypeError(
                f"from_dlpack: elements of {tensor.lanes} x {tensor.bits} bits with DLPack's code {tensor.code} are of "
                "no dtype of numpy, as those of 8-bit floats; convert the array before"
            )
        self.is_bfloat16 = (tensor.code, tensor.bits, tensor.lanes) == (BFLOAT, 16, 1)
        if self.is_bfloat16:
            tensor.code = UNSIGNED
        if tensor.data:  # cuda-core does not add the offset
            tensor.data, tensor.byte_offset = tensor.data + tensor.byte_offset, 0
        return capsule


def as_bfloat16(capsule: Any) -> Any:
    """The capsule of 16-bit integers, whose elements are bfloat16 from here on."""
    tensor_of(capsule).code = BFLOAT
    return capsule


def of_producer(array: Any, bfloat16: np.dtype[Any]) -> HostArray:
    """The memory of an array of another library on the host as numpy's own `from_dlpack` gives it, without a copy."""
    producer = Producer(array)
    found: HostArray = np.from_dlpack(producer)
    return found.view(bfloat16) if producer.is_bfloat16 else found


def of_host(array: HostArray, max_version: tuple[int, int] | None) -> Any:
    """A capsule of a numpy array, which numpy makes; of a dtype of 16 bits that numpy does not know, as bfloat16."""
    is_bfloat16 = array.dtype.kind == "V"
    given = array.view(np.uint16) if is_bfloat16 else array
    try:
        capsule = given.__dlpack__(max_version=max_version)  # type: ignore[call-arg, unused-ignore]
    except TypeError:  # numpy before 2.1 has one version
        capsule = given.__dlpack__()
    return as_bfloat16(capsule) if is_bfloat16 else capsule
