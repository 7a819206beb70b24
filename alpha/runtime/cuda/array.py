"""A contiguous array in device memory, and its views."""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from alpha.errors import ShapeError
from alpha.runtime.arena import Block
from alpha.runtime.device import Shape

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice


@functools.lru_cache(maxsize=4096)  # a training step asks for the same shapes again and again
def _reshaped(shape: Shape, wanted: Shape) -> Shape:
    """The wanted sizes as plain integers, with the one that is -1 computed from `shape`; else `ShapeError`."""
    target, size = tuple(map(int, wanted)), prod(shape)
    if target.count(-1) == 1:
        rest = prod(length for length in target if length != -1)
        if rest and size % rest == 0:
            target = tuple(size // rest if length == -1 else length for length in target)
    if min(target, default=0) < 0 or prod(target) != size:
        raise ShapeError(f"{size} elements of shape {shape} do not fit {target}")
    return target


class DeviceArray:
    """A typed, C-ordered window on an arena block, which returns when its last window dies."""

    __slots__ = ("__weakref__", "block", "device", "dtype", "nbytes", "ndim", "offset", "shape", "size")

    __array_ufunc__ = None  # numpy leaves arithmetic with a device array to us

    def __init__(self, device: CudaDevice, block: Block, offset: int, shape: Shape, dtype: np.dtype[Any]) -> None:
        self.device = device
        self.block = block
        self.offset = offset
        self.shape = shape
        self.dtype = dtype
        self.ndim = len(shape)
        self.size = prod(shape)
        self.nbytes = self.size * dtype.itemsize

    @property
    def address(self) -> int:
        """Where the first element lies now; a block may be moved between two steps (see graphs.py)."""
        return self.block.address + self.offset

    def reshape(self, *shape: int | Shape) -> DeviceArray:
        """The same elements under another shape; one size may be -1. Else `ShapeError`."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return DeviceArray(self.device, self.block, self.offset, _reshaped(self.shape, sizes), self.dtype)

    def slice_rows(self, start: int, stop: int) -> DeviceArray:
        """Elements [start, stop) of the leading axis, without a copy."""
        if not self.ndim or not 0 <= start <= stop <= self.shape[0]:
            raise ShapeError(f"rows [{start}, {stop}) are not within shape {self.shape}")
        stride = self.nbytes // self.shape[0] if self.shape[0] else 0
        shape = (stop - start, *self.shape[1:])
        return DeviceArray(self.device, self.block, self.offset + start * stride, shape, self.dtype)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a DeviceArray is not in host memory: device.download(array) copies it")

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a DeviceArray of shape () has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, address={self.address:#x})"
