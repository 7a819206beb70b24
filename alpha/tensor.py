"""Tensor: a contiguous array on a device, its gradient and the step that made it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from alpha import autograd
from alpha.autograd import Edge, Function, Hook, Version
from alpha.errors import GradientError, ShapeError
from alpha.numerics import is_floating
from alpha.primitive import Array
from alpha.runtime import Device, get_device

DTypeLike = Any  # "float32" or a numpy dtype

_DTYPES = ("float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool")


def as_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """The numpy dtype of a name; `TypeError` lists what Alpha computes with."""
    result = np.dtype(dtype)
    if result.name not in _DTYPES:
        raise TypeError(f"dtype {result.name} is not one of {', '.join(_DTYPES)}")
    return result


class Tensor:
    """An n-dimensional array with a gradient. Make one with `alpha.tensor`.

    Attributes:
        array: the contiguous array itself, `numpy.ndarray` on cpu, `DeviceArray` on cuda.
        requires_grad: whether operators on it are recorded.
        grad: the accumulated gradient (a Tensor of the same shape) or None.
    """

    __slots__ = ("__weakref__", "_hooks", "_moments", "_node", "_version", "array", "grad", "requires_grad")
    __array_ufunc__ = None  # numpy scalars on the left hand over to our reflected operators

    def __init__(self, array: Array, requires_grad: bool = False) -> None:
        if requires_grad and not is_floating(array.dtype):
            raise TypeError(f"only floating tensors have gradients, not {array.dtype.name}")
        self.array = array
        self.requires_grad = requires_grad
        self.grad: Tensor | None = None
        self._node: Function | None = None
        self._version = Version()
        self._hooks: list[Hook] = []
        self._moments: Any = None  # of its channels, and the version that they are of

    # -- what it is ---------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return len(self.array.shape)

    @property
    def size(self) -> int:
        return int(self.array.size)

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
    def is_leaf(self) -> bool:
        return self._node is None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        body = np.array2string(self.numpy(), separator=", ", threshold=100, precision=4)
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({body}, {self.dtype.name}, device={self.device.name!r}{grad})"

    # -- out of and between devices -----------------------------------------------------------

    def numpy(self) -> npt.NDArray[Any]:
        """A numpy copy of the values; waits for the device."""
        if isinstance(self.array, np.ndarray):
            return self.array.copy()
        return self.device.download(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def item(self) -> float | int:
        """The value of a tensor of one element; waits for the device."""
        if self.size != 1:
            raise ShapeError(f"item: the tensor has {self.size} elements  (shape {self.shape})")
        value: float | int = self.numpy().reshape(()).item()
        return value

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def to(self, device: str | Device) -> Tensor:
        """The same values on another device (itself if it is there); gradients flow back."""
        target = get_device(device)
        if target is self.device:
            return self
        from alpha.ops.layout import ToDevice

        return ToDevice.apply(self, target=target)

    def astype(self, dtype: DTypeLike) -> Tensor:
        """The same values in another dtype; gradients flow back between floating dtypes."""
        from alpha.ops.layout import Cast

        target = as_dtype(dtype)
        return self if target == self.dtype else Cast.apply(self, dtype=target)

    def detach(self) -> Tensor:
        """The same memory outside the graph; in-place writes are seen by both."""
        result = Tensor(self.array)
        result._version = self._version
        return result

    # -- gradients ----------------------------------------------------------------------------

    def backward(self, grad: Tensor | None = None, retain_graph: bool = False) -> None:
        """Add d(self . grad)/d(leaf) to `.grad` of each leaf; `grad` defaults to 1 for one element.

        Raises:
            GradientError: no gradient is required, `grad` is missing, or the graph was freed.
            ShapeError: `grad` has another shape than the tensor.
        """
        if grad is None:
            if self.size != 1:
                raise GradientError(
                    f"backward: grad is needed for a tensor of {self.size} elements (shape {self.shape})"
                )
            seed = self.device.upload(np.ones(self.shape, self.dtype))
        else:
            if grad.shape != self.shape:
                raise ShapeError(f"backward: grad has shape {grad.shape}, the tensor {self.shape}")
            if grad.device is not self.device or grad.dtype != self.dtype:
                raise GradientError(
                    f"backward: grad is {grad.dtype.name} on {grad.device.name}, "
                    f"the tensor {self.dtype.name} on {self.device.name}"
                )
            seed = grad.array
        with autograd.no_grad():
            autograd.backward(self, seed, retain_graph)

    def register_hook(self, hook: Hook) -> None:
        """Call `hook(grad)` when this tensor's gradient is ready; a returned tensor replaces it."""
        if not self.requires_grad:
            raise GradientError("register_hook: the tensor does not require a gradient")
        (self._hooks if self._node is None else self._node.hooks).append(hook)

    def zero_grad(self) -> None:
        self.grad = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A leaf with memory of its own, without hooks; this is what copies a whole module."""
        if self._node is not None:
            raise GradientError("deepcopy: the tensor is a result of operators; .detach() it first")
        result = type(self).__new__(type(self))
        Tensor.__init__(result, self.device.copy(self.array), self.requires_grad)
        memo[id(self)] = result
        result.grad = copy.deepcopy(self.grad, memo)
        return result

    def _edge(self) -> Edge:
        return self._node if self._node is not None else self

    # -- arithmetic: installed by alpha.ops.arithmetic ------------------------------------------

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __pow__(self, exponent: float) -> Tensor: ...
        def __matmul__(self, other: Tensor) -> Tensor: ...
        def add_(self, other: Any) -> Tensor: ...
        def mul_(self, other: Any) -> Tensor: ...
        def exp(self) -> Tensor: ...
        def log(self) -> Tensor: ...
        def sqrt(self) -> Tensor: ...

    # -- shape --------------------------------------------------------------------------------

    def reshape(self, *shape: int | tuple[int, ...]) -> Tensor:
        """A view of the same memory, C order; one length may be -1."""
        from alpha.ops.layout import reshape

        return reshape(self, _lengths(shape))

    def flatten(self, start: int = 1) -> Tensor:
        """(D0, .., Dk) -> (D0, .., D(start-1), product of the rest), a view."""
        from alpha.ops.layout import flatten

        return flatten(self, start)

    def __getitem__(self, index: int | slice) -> Tensor:
        """Rows of the leading axis, contiguous: `x[3]` or `x[8:16]`, a view."""
        from alpha.ops.layout import rows

        return rows(self, index)


def _lengths(shape: tuple[Any, ...]) -> tuple[int, ...]:
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    return tuple(int(length) for length in shape)


def tensor(
    array: Any, requires_grad: bool = False, device: str | Device | None = None, dtype: DTypeLike = None
) -> Tensor:
    """Copy values into a new tensor.

    Args:
        array: a number, (nested) list, numpy array or Tensor.
        requires_grad: record operators on it.
        device: "cpu", "cuda", "auto" or a Device; default: where `array` is, else cpu.
        dtype: "float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool" or a numpy dtype.
            Default: that of a numpy array or Tensor; Python floats become float32, Python ints int64.
    """
    if isinstance(array, Tensor):
        device = array.device if device is None else device
        array = array.numpy()
    values = np.asarray(array)
    if dtype is not None:
        values = values.astype(as_dtype(dtype))
    elif not isinstance(array, (np.ndarray, np.generic)) and values.dtype == np.float64:
        values = values.astype(np.float32)
    as_dtype(values.dtype)
    target = get_device("cpu" if device is None else device)
    return Tensor(target.upload(np.ascontiguousarray(values).reshape(values.shape)), requires_grad)
