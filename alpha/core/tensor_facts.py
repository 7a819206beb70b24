"""What a tensor is: its shape, dtype, device and sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.core.count import Count
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array
from alpha.runtime import Device, get_device

if TYPE_CHECKING:
    from alpha.autograd.function import Function


class Facts:
    """The base of Tensor whose properties and methods change nothing."""

    __slots__ = ()

    array: Array
    _node: Function | None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return len(self.array.shape)

    @property
    def size(self) -> Count:
        """The number of elements, as numpy's; called as PyTorch's, `x.size()` is the shape and `x.size(0)` a length."""
        count = Count(self.array.size)
        count.shape = self.array.shape
        return count

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.array.dtype
        return dtype

    @property
    def device(self) -> Device:
        if isinstance(self.array, np.ndarray):
            return get_device("cpu")
        device: Device = self.array.device
        return device

    @property
    def is_cuda(self) -> bool:
        return not isinstance(self.array, np.ndarray)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.array.nbytes)

    @property
    def is_leaf(self) -> bool:
        return self._node is None

    @property
    def grad_fn(self) -> Function | None:
        """The recorded operator whose result this is; None for a leaf."""
        return self._node

    def numel(self) -> int:
        """The number of elements."""
        return int(self.array.size)

    def nelement(self) -> int:
        """The number of elements."""
        return int(self.array.size)

    def dim(self) -> int:
        """The number of axes."""
        return len(self.array.shape)

    def ndimension(self) -> int:
        """The number of axes."""
        return len(self.array.shape)

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.itemsize

    def is_floating_point(self) -> bool:
        """True if the dtype is float32, float64 or bfloat16."""
        return is_floating(self.array.dtype)

    def is_contiguous(self) -> bool:
        """True, because every tensor is contiguous."""
        return True

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]
