"""Tensor maps of the emulated driver: cuTensorMapEncodeTiled's rules, the emulator's bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from alpha.errors import DeviceError

MAP_BYTES = 128


_MARK = 0x70616D2D6168706C  # kTensorMapMark of cuda/common/emulation/tensor_map.h


_LAYOUT = struct.Struct("<QQ5Q4Q5I4B16x")


_MAX_RANK = 5


def encode_tiled_map(
    dtype: npt.DTypeLike,
    address: int,
    dims: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle: int = 128,
) -> bytes:
    """The tensor map of a box copy; put it 64-byte aligned into device memory.

    dims and box: elements, innermost first, 2 to 5 of them; strides_bytes: of every dimension but
    the innermost; swizzle: 0, 32, 64 or 128 bytes. `DeviceError` where the hardware refuses it.
    """
    size, rank = np.dtype(dtype).itemsize, len(dims)
    inner = box[0] * size
    problems = {
        f"{rank} dimensions, not 2 to {_MAX_RANK}": not 2 <= rank <= _MAX_RANK,
        "box and dims differ in length": len(box) != rank,
        "strides_bytes is not one shorter than dims": len(strides_bytes) != rank - 1,
        f"address {address:#x} is not 16-byte aligned": address % 16 != 0,
        f"dims {tuple(dims)} are not 1 to 2^32": not all(1 <= d <= 2**32 for d in dims),
        "a stride is not a multiple of 16 bytes below 2^40": any(s % 16 or not 0 <= s < 2**40 for s in strides_bytes),
        f"box {tuple(box)} is not 1 to 256 each": not all(1 <= b <= 256 for b in box),
        f"a box row of {inner} bytes is not a multiple of 16": inner % 16 != 0,
        f"swizzle {swizzle} is not 0, 32, 64 or 128": swizzle not in (0, 32, 64, 128),
        f"a box row of {inner} bytes is longer than the swizzle": swizzle > 0 and inner > swizzle,
    }
    for problem, present in problems.items():
        if present:
            raise DeviceError(f"encode_tiled_map: {problem}")
    padding = [1] * (_MAX_RANK - rank)
    strides = [*strides_bytes, *[math.prod(dims) * size] * (_MAX_RANK - rank)]
    return _LAYOUT.pack(_MARK, address, *dims, *padding, *strides, *box, *padding, rank, size, swizzle, 0)
