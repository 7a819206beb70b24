"""Tensor maps for TMA: pycuda has no call for them, so the driver library is asked directly."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.errors import DeviceError

MAP_BYTES = 128
_TYPES = {"uint8": 0, "uint16": 1, "int32": 3, "float16": 6, "float32": 7, "float64": 8}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_L2_128B, _ZEROS, _NO_INTERLEAVE = 2, 0, 0


@functools.cache
def _encode() -> Callable[..., int]:
    try:
        library = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
        function: Any = ctypes.CDLL(library).cuTensorMapEncodeTiled
    except (OSError, AttributeError) as error:
        raise DeviceError(f"no cuTensorMapEncodeTiled ({error}): the driver is too old") from None
    function.restype = ctypes.c_int
    call: Callable[..., int] = function
    return call


def encode_tiled_map(
    dtype: npt.DTypeLike,
    address: int,
    dims: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle: int = 128,
) -> bytes:
    """The 128 bytes that tell TMA how to load a box of a tensor; outside of it are zeros.

    Args:
        dtype: of an element.
        address: of the tensor, 16-byte aligned.
        dims, box: elements, innermost first, 2 to 5 of them.
        strides_bytes: of every dimension but the innermost, multiples of 16.
        swizzle: 0, 32, 64 or 128 bytes.

    Raises:
        DeviceError: the driver refuses the map.
    """
    rank = len(dims)
    raw = ctypes.create_string_buffer(MAP_BYTES + 64)
    target = (ctypes.addressof(raw) + 63) & ~63
    status = _encode()(
        ctypes.c_void_p(target),
        ctypes.c_int(_TYPES[np.dtype(dtype).name]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*dims),
        (ctypes.c_uint64 * (rank - 1))(*strides_bytes),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        ctypes.c_int(_NO_INTERLEAVE),
        ctypes.c_int(_SWIZZLES[swizzle]),
        ctypes.c_int(_L2_128B),
        ctypes.c_int(_ZEROS),
    )
    if status:
        raise DeviceError(
            f"cuTensorMapEncodeTiled: error {status} for {np.dtype(dtype).name} dims {tuple(dims)}, "
            f"strides {tuple(strides_bytes)} bytes, box {tuple(box)}, swizzle {swizzle}"
        )
    return ctypes.string_at(target, MAP_BYTES)
