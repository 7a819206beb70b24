"""A contiguous array in device memory, and its views."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from alpha.errors import DeviceError, ShapeError
from alpha.runtime.arena.arena import GRAIN, Block
from alpha.runtime.device import Shape, as_shape

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice


@dataclass(frozen=True, eq=False)
class ArrayForm:
    """Shape and dtype of an array, and what follows from them; `form_of` makes it once for all arrays that share it."""

    shape: Shape
    dtype: np.dtype[Any]
    ndim: int
    size: int
    nbytes: int


@functools.lru_cache(maxsize=4096)  # a training step asks for the same shapes again and again
def form_of(shape: Shape, dtype: np.dtype[Any]) -> ArrayForm:
    """The form of arrays of that shape and dtype.

    Raises:
        ShapeError: a size is negative.
        DeviceError: elements would be Python objects.
    """
    sizes = as_shape(shape)
    if dtype.hasobject:
        raise DeviceError(f"{dtype} arrays hold Python objects, which stay on the host")
    size, known = prod(sizes), np.dtype(dtype.type)
    if known == dtype:
        dtype = known  # the object of numpy, which an unpickled array has not, so that `is` compares dtypes
    return ArrayForm(sizes, dtype, len(sizes), size, size * dtype.itemsize)


@functools.lru_cache(maxsize=4096)
def _reshaped(form: ArrayForm, wanted: Shape) -> ArrayForm:
    """The form with the wanted sizes, of which one that is -1 is computed; else `ShapeError`."""
    target, size = tuple(map(int, wanted)), form.size
    if target.count(-1) == 1:
        rest = prod(length for length in target if length != -1)
        if rest and size % rest == 0:
            target = tuple(size // rest if length == -1 else length for length in target)
    if min(target, default=0) < 0 or prod(target) != size:
        raise ShapeError(f"{size} elements of shape {form.shape} do not fit {target}")
    return form_of(target, form.dtype)


@functools.lru_cache(maxsize=4096)
def _rows(form: ArrayForm, start: int, stop: int) -> tuple[int, ArrayForm]:
    """Offset of elements [start, stop) of the leading axis, in bytes, and their form; else `ShapeError`."""
    shape = form.shape
    if not shape or not 0 <= start <= stop <= shape[0]:
        raise ShapeError(f"rows [{start}, {stop}) are not within shape {shape}")
    stride = form.nbytes // shape[0] if shape[0] else 0
    return int(start) * stride, form_of((stop - start, *shape[1:]), form.dtype)


@functools.lru_cache(maxsize=4096)
def side_by_side(forms: tuple[ArrayForm, ...]) -> tuple[tuple[int, ...], int]:
    """Offset of each of these arrays in one block, in bytes, and the bytes of the block."""
    ends = (0, *accumulate(-(-form.nbytes // GRAIN) * GRAIN for form in forms))
    return ends[:-1], ends[-1]


class DeviceArray:
    """A typed, C-ordered window on an arena block, which returns when its last window dies.

    Attributes:
        magnitude: the bits of the largest finite magnitude (1,) uint32, or of a limit of it, if the kernel that made
            the array found them; else None. alpha/ops/conv2d/magnitudes.py says when it may be used.
        limit: whether it is a magnitude that is a limit.
        half: of a limit, the fp16 copy of the array whose magnitude it is; else None.
        derived: what lies beside the array of a weight and follows from it, by kind; see alpha/autograd/derived.py.
    """

    __slots__ = (
        "__weakref__",
        "block",
        "derived",
        "device",
        "dtype",
        "form",
        "half",
        "limit",
        "magnitude",
        "nbytes",
        "ndim",
        "offset",
        "shape",
        "size",
    )

    __array_ufunc__ = None  # numpy leaves arithmetic with a device array to us

    def __init__(self, device: CudaDevice, block: Block, offset: int, form: ArrayForm) -> None:
        self.device = device
        self.block = block
        self.offset = offset
        self.form = form
        self.shape = form.shape
        self.dtype = form.dtype
        self.ndim = form.ndim
        self.size = form.size
        self.nbytes = form.nbytes
        self.magnitude: DeviceArray | None = None
        self.limit = False
        self.half: DeviceArray | None = None
        self.derived: dict[str, Any] | None = None

    @property
    def address(self) -> int:
        """Address of the first element now; a block may be moved between two steps (see graphs.py)."""
        return self.block.address + self.offset

    def reshape(self, *shape: int | Shape) -> DeviceArray:
        """The same elements under another shape; one size may be -1. Else `ShapeError`."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return DeviceArray(self.device, self.block, self.offset, _reshaped(self.form, sizes))

    def slice_rows(self, start: int, stop: int) -> DeviceArray:
        """Elements [start, stop) of the leading axis, without a copy."""
        offset, form = _rows(self.form, start, stop)
        return DeviceArray(self.device, self.block, self.offset + offset, form)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a DeviceArray is not in host memory: device.download(array) copies it")

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceArray:
        """A copy on the same device."""
        return self.device.copy(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its content, and uploaded to the device of the same name."""
        return _uploaded, (self.device, self.device.download(self))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a DeviceArray of shape () has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, address={self.address:#x})"


def _uploaded(device: CudaDevice, values: Any) -> DeviceArray:
    return device.upload(values)
