"""Tensor: a contiguous array on a device, its gradient and the step that made it."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from alpha.autograd import engine
from alpha.autograd.function import Function
from alpha.autograd.grad_mode import without_grad
from alpha.autograd.tracing import state as tracing
from alpha.autograd.versions import Always, PartRecord, Version, array_of
from alpha.core.host_values import DTypeLike, check_fits, host_array, is_torch, wider
from alpha.core.host_values import as_dtype as as_dtype
from alpha.core.methods import Methods
from alpha.core.names.missing_names import MissingName
from alpha.core.numerics import is_floating
from alpha.core.origins import Origin, inherit, of_values
from alpha.core.primitive import Array
from alpha.core.tensor_hooks import Hook, HookHandle
from alpha.errors import GradientError, ShapeError, type_name
from alpha.runtime import Device, get_device
from alpha.runtime.recording import phase
from alpha.runtime.sharing import capsules, lending


class Count(int):
    """`x.size`, the number of elements of x as an integer; `x.size()` is the shape and `x.size(dim)` one length of it.

    Attributes:
        shape: that of the tensor.
    """

    shape: Shape

    @overload
    def __call__(self, dim: None = None) -> Shape: ...

    @overload
    def __call__(self, dim: int) -> int: ...

    def __call__(self, dim: int | None = None) -> Shape | int:
        if dim is None:
            return self.shape
        rank, axis = len(self.shape), operator.index(dim)
        if not -rank <= axis < rank:
            raise ShapeError(f"size: {axis} is not an axis of shape {self.shape}")
        return self.shape[axis]


class Tensor(Methods):
    """An n-dimensional array with a gradient. Make one with `alpha.tensor`.

    Attributes:
        array: the contiguous array itself, `numpy.ndarray` on cpu, `DeviceArray` on cuda; a list makes one of float32.

    Examples:
        >>> import alpha
        >>> x = alpha.tensor([1.0, 2.0, 3.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4., 6.], float32, device='cpu')
        >>> x.shape, x.max().item(), x.tolist()
        ((3,), 3.0, [1.0, 2.0, 3.0])
    """

    __slots__ = (
        *("__weakref__", "_grad", "_hooks", "_node", "_requires_grad", "_base_version", "_version", "array"),
        "_part",  # set where a part is read, and nowhere else
    )
    array: Array
    _part: PartRecord | None
    _belongs = False  # whether it is of a class whose tensors are parts of modules
    __array_ufunc__: Any  # what numpy's functions do with tensors: alpha/ops/api/numpy_protocols.py
    __array_function__: Any
    __hash__ = object.__hash__  # by identity, though == compares elements

    def __init__(self, array: Array, requires_grad: bool = False) -> None:
        if type(array) is not np.ndarray and not hasattr(array, "block"):
            if not isinstance(array, list):
                raise TypeError(f"Tensor takes an array of a device, not a {type_name(array)}; use alpha.tensor(..)")
            Tensor.__init__(self, tensor(array, dtype="float32").array, requires_grad)
            of_values(self)
            return
        self.array = array
        self._requires_grad = requires_grad  # what the engine reads and writes: a property would take longer
        if requires_grad is not False:
            _check_requires_grad(requires_grad, array.dtype)
        self._grad: Tensor | None = None
        self._node: Function | None = None
        self._version = Version()
        self._base_version: int | Always | Origin | None = 0  # recorded writes that its node knows of; None: needs none
        self._hooks: dict[HookHandle, Hook] = {}

    if not TYPE_CHECKING:  # which would take every attribute to be there

        def __getattr__(self, name: str) -> Any:
            """`AttributeError`; the text says what Alpha has in the place of a method of PyTorch's."""
            raise MissingName("Tensor", name, self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return self.array.shape  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.array.shape)

    @property
    def size(self) -> Count:
        """The number of elements, as numpy's; called as PyTorch's, `x.size()` is the shape and `x.size(0)` a length."""
        count = Count(self.array.size)
        count.shape = self.array.shape
        return count

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of the elements; bfloat16 is that of ml_dtypes."""
        dtype: np.dtype[Any] = self.array.dtype
        return dtype

    @property
    def device(self) -> Device:
        """The device whose memory holds the elements."""
        if isinstance(self.array, np.ndarray):
            return get_device("cpu")
        device: Device = self.array.device
        return device

    @property
    def is_cuda(self) -> bool:
        """True if the elements are on a GPU."""
        return not isinstance(self.array, np.ndarray)

    @property
    def is_cpu(self) -> bool:
        """True if the elements are in the host's memory."""
        return not self.is_cuda

    # what else PyTorch's programs ask a tensor: there are no such devices and layouts here
    is_xpu = is_mps = is_xla = is_mtia = is_ipu = is_vulkan = is_mkldnn = is_maia = is_meta = False
    is_sparse = is_sparse_csr = is_quantized = is_nested = False

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
        """True if no recorded operator has made the tensor; `backward` keeps gradients of leaves."""
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

    def __repr__(self) -> str:
        body = np.array2string(self.numpy(), separator=", ", threshold=100, precision=4, prefix="tensor(")
        grad = ", requires_grad=True" if self._requires_grad else ""
        return f"tensor({body}, {self.dtype.name}, device={self.device.name!r}{grad})"

    def __format__(self, spec: str) -> str:
        """`f"{loss:.3f}"`, of a tensor without axes; any other one takes no format."""
        if self.shape and spec:
            raise TypeError(f"format: {spec!r} is for a number, the tensor has shape {self.shape}; use .item()")
        return format(self.item(), spec) if not self.shape else str(self)

    # -- out of and between devices -----------------------------------------------------------

    def numpy(self) -> npt.NDArray[Any]:
        """A numpy copy of the values; waits for the device."""
        if tracing.tracer is not None:
            tracing.tracer.read(self)
        self._version.refresh()
        if isinstance(self.array, np.ndarray):
            return self.array.copy()
        return self.device.download(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """The values for numpy: `numpy.asarray(x)` is the memory of a tensor on the cpu that requires no gradient.

        What is then written into one of the two is seen in the other, and Alpha does not notice what numpy writes. Of
        any other tensor it is a copy, as `x.numpy()`.

        Raises:
            ValueError: copy is False, and the values must be copied.
        """
        shared = isinstance(self.array, np.ndarray) and not self._requires_grad and not copy
        wanted = self.dtype if dtype is None else np.dtype(dtype)
        if copy is False and not (shared and wanted == self.dtype):
            raise ValueError(f"__array__: copy=False, but a tensor on {self.device.name} {_why_copied(self, wanted)}")
        values = self._shared_array() if shared else self.numpy()
        return values.astype(wanted, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number of the kind of device, 1 for the cpu and 2 for cuda, and the number of the device, 0.

        The emulated driver has its memory on the host, so its tensors are on the cpu for other libraries.
        """
        return (capsules.CPU, 0) if isinstance(self.array, np.ndarray) else lending.device_of(self.array)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule, by which `torch.from_dlpack(x)`, `numpy.from_dlpack(x)` and others have the same memory.

        The capsule is made by numpy or, on a GPU, by cuda-core; bfloat16, which they do not export, is written into it.
        The memory lives and stays where it is as long as the other array does. Both may write it. Alpha does not count
        what the other library writes, so a gradient that needs the values of before is wrong then, without an error.

        On a GPU the consumer's stream waits for the work that Alpha has queued so far, and for nothing that comes
        later: ask for another capsule, or call `alpha.synchronize()`.

        Args:
            stream: the consumer's, on a GPU: 1 (and None) is the legacy default stream, 2 that of the thread, -1 asks
                for no order, any other number is the address of a stream. On the cpu None.
            max_version: the newest version of DLPack that the consumer knows.
            dl_device: where it wants the array: here, or a copy on the host, (1, 0).
            copy: True: of a copy. False: an error if a copy is needed.

        Raises:
            BufferError: the tensor requires a gradient, a device or stream is none that there is, or copy is False and
                `dl_device` another one.
            CaptureError: the step is captured.
            DeviceError: cuda-core is missing.
        """
        if self._requires_grad:
            raise BufferError(
                "__dlpack__: the tensor requires a gradient, which another library would not record; use .detach()"
            )
        here = self.__dlpack_device__()
        if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != here:
            if tuple(dl_device) != (capsules.CPU, 0) or copy is False:
                raise BufferError(f"__dlpack__: the tensor is on {here}, dl_device={tuple(dl_device)} with copy={copy}")
            return capsules.of_host(self.numpy(), max_version)
        array = self.device.copy(array_of(self)) if copy else self._shared_array()
        if isinstance(array, np.ndarray):
            if stream is not None:
                raise BufferError(f"__dlpack__: the tensor is on the cpu, which has no streams; stream={stream!r}")
            return capsules.of_host(array, max_version)
        return lending.lend(array, stream, max_version)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface, version 3, by which numba, `cupy.asarray(x)` and others have the same memory.

        What holds of `__dlpack__` holds here, with two differences. The host waits for Alpha's work, since consumers
        such as PyTorch have no order for their streams. The memory lives as long as the tensor, which consumers hold.
        The interface has no bfloat16: it is given as 2 bytes without a type. DLPack has it.

        Raises:
            AttributeError: the tensor is on the cpu, or on the emulated driver, whose memory is not that of a GPU.
            BufferError: the tensor requires a gradient.
        """
        if self.__dlpack_device__()[0] != capsules.CUDA:
            raise AttributeError(
                "__cuda_array_interface__: the tensor is not on a GPU; use __dlpack__ or numpy.asarray(x)"
            )
        if self._requires_grad:
            raise BufferError(
                "__cuda_array_interface__: the tensor requires a gradient, which another library would not record; "
                "use .detach()"
            )
        return lending.interface(self._shared_array(), self)

    def _shared_array(self) -> Array:
        """The array with the values of now, for another library, whose writes Alpha does not see."""
        self._version.refresh()
        self._version.shared = True
        return self.array

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

    def __index__(self) -> int:
        if self.size != 1 or is_floating(self.dtype):
            raise TypeError(f"only an integer tensor of one element is an index, not {self.dtype.name} {self.shape}")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(
                f"bool: a tensor of {self.size} elements (shape {self.shape}) is neither true nor false; "
                "compare .numpy().all() or .any(), or test `is None`"
            )
        return bool(self.item())

    def __contains__(self, value: Any) -> bool:
        equal = self == value
        if not isinstance(equal, Tensor):
            raise TypeError(f"in: a {type(value).__name__} cannot be an element of a tensor")
        return bool(equal.numpy().any())

    def detach(self) -> Tensor:
        """The same memory outside the graph; in-place writes are seen by both."""
        result = Tensor(self.array)
        result._version, result._base_version = self._version, self._version.unaware
        return inherit(result, self)

    def detach_(self) -> Tensor:
        """The tensor itself as a leaf that requires no gradient; what was recorded before stays as it is."""
        if self._node is not None and self._node.is_view:
            raise GradientError(f"detach_: a view ({self._node.name}) cannot be detached in place; use .detach()")
        self._node, self._requires_grad, self._base_version, self._hooks = None, False, self.detach()._base_version, {}
        self._part = None
        return self

    # -- gradients ----------------------------------------------------------------------------

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient or None; one that is assigned must have this tensor's shape, dtype and device."""
        return self._grad

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        self._grad = None if grad is None else engine.checked_tensor(grad, self, "grad = ..: the gradient")

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: None = None,
    ) -> None:
        """Add d(self . gradient)/d(leaf) to `.grad` of each leaf.

        Args:
            gradient: of this tensor's shape, dtype and device; by default 1, for a tensor of one element.
            retain_graph: keep what the graph saved, for another backward through it.
            create_graph, inputs: not offered; only False and None.

        Raises:
            GradientError: no gradient is required, `gradient` is missing or of another dtype or device, or the graph
                was freed.
            ShapeError: `gradient` has another shape than the tensor.

        Examples:
            >>> import alpha
            >>> w = alpha.tensor(3.0, requires_grad=True)
            >>> (w * w).backward()
            >>> w.grad.item()
            6.0
        """
        if create_graph or inputs is not None:
            raise ValueError("backward: create_graph and inputs are not offered; only False and None")
        if gradient is None and self.size != 1:
            raise GradientError(
                f"backward: a gradient is needed for a tensor of {self.size} elements (shape {self.shape})"
            )
        without_grad(lambda: self._backward(gradient, bool(retain_graph)))

    def _backward(self, gradient: Tensor | None, retain_graph: bool) -> None:
        with phase("backward"):
            if gradient is None:
                gradient = full(self.shape, 1, self.dtype, self.device)
            seed = engine.checked_tensor(gradient, self, "backward: the gradient").array
            engine.backward([(self, seed)], retain_graph)

    @property
    def requires_grad(self) -> bool:
        """True if operators on the tensor are recorded. It can be set on a leaf; on an integer tensor only to False."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        _check_requires_grad(requires_grad, self.dtype)
        if self._node is not None and not requires_grad:
            raise GradientError(
                f"requires_grad = False: the tensor is a result of {self._node.name}, and its gradient would be lost; "
                "use .detach()"
            )
        self._requires_grad = bool(requires_grad)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad`, and return the tensor."""
        self.requires_grad = requires_grad
        return self

    def __iter__(self) -> Iterator[Tensor]:
        """The parts x[0], x[1], .. along the first axis; `TypeError` for a tensor without axes."""
        if not self.ndim:
            raise TypeError("iteration over a 0-d tensor: it has no axis; .item() is its number")
        return (self[i] for i in range(len(self)))

    def register_hook(self, hook: Hook) -> HookHandle:
        """Call `hook(grad)` when this tensor's gradient is ready; a Tensor that it returns replaces the gradient.

        Hooks run in the order of registration, each on the result of the one before. `remove()` of the handle takes
        the hook off again.
        """
        if not self._requires_grad:
            raise GradientError("register_hook: the tensor does not require a gradient")
        return HookHandle(self._hooks if self._node is None else self._node.hooks, hook)

    def retain_grad(self) -> None:
        """Add the gradient of a result of operators to `.grad`, too, as that of a leaf is."""
        if not self._requires_grad:
            raise GradientError("retain_grad: the tensor does not require a gradient")
        if self._node is not None:
            engine.retain(self, self._node)

    def zero_grad(self) -> None:
        """Drop the gradient: `grad` becomes None."""
        self._grad = None

    def _held(self) -> dict[str, Any]:
        """Slots that a copy of the tensor has, too, by name; the tensor of which it is a part is not among them."""
        self._version.refresh()
        names = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        return {name: getattr(self, name) for name in names if name not in ("__weakref__", "_part")}

    def __getstate__(self) -> tuple[Any, dict[str, Any]]:
        return getattr(self, "__dict__", None), self._held()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A leaf with memory of its own, without hooks; this is what copies a whole module."""
        if self._node is not None:
            raise GradientError("deepcopy: the tensor is a result of operators; .detach() it first")
        result = type(self).__new__(type(self))
        Tensor.__init__(result, self.device.copy(array_of(self)), self._requires_grad)
        memo[id(self)] = result
        result._grad = copy.deepcopy(self._grad, memo)
        return inherit(result, self)


def _why_copied(tensor: Tensor, wanted: np.dtype[Any]) -> str:
    if tensor._requires_grad:
        return "that requires a gradient is copied; use .detach()"
    return f"becomes {wanted.name} by a copy" if tensor.dtype != wanted else "is copied to the host"


def _check_requires_grad(requires_grad: Any, dtype: np.dtype[Any]) -> None:
    if not isinstance(requires_grad, (bool, np.bool_)):
        raise TypeError(f"requires_grad is {requires_grad!r}, True or False is needed")
    if requires_grad and not is_floating(dtype):
        raise TypeError(f"only floating tensors have gradients, not {dtype.name}")


def full(shape: tuple[int, ...], value: Any, dtype: DTypeLike, device: Device) -> Tensor:
    """A tensor of one number, which a kernel writes: no host values are copied, so a captured step may make it."""
    array = device.empty(shape, as_dtype(dtype))
    device.fill(array, value)
    return Tensor(array)


def tensor(
    data: Any, *, dtype: DTypeLike = None, device: str | Device | None = None, requires_grad: bool = False
) -> Tensor:
    """Copy values into a new tensor.

    Args:
        data: a number, (nested) list, numpy array, Tensor or tensor of PyTorch.
        dtype: "float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool" or a numpy dtype.
            Default: that of an array or a tensor, or the next wider one; Python floats become float32, ints int64.
        device: "cpu", "cuda", "auto" or a Device; default: that of a Tensor, else cpu.
        requires_grad: record operators on it.

    Raises:
        ValueError: Python's integers do not fit dtype.

    Examples:
        >>> import alpha
        >>> alpha.tensor([[1.0, 2.0], [3.0, 4.0]])
        tensor([[1., 2.],
                [3., 4.]], float32, device='cpu')
        >>> alpha.tensor([1, 2]).dtype
        dtype('int64')
    """
    if isinstance(data, Tensor):
        where = data.device if device is None else device
        return inherit(tensor(data.numpy(), dtype=dtype, device=where, requires_grad=requires_grad), data)
    values = host_array(data)
    of_python = not isinstance(data, (np.ndarray, np.generic)) and not is_torch(data)
    if dtype is None:
        dtype = np.float32 if of_python and values.dtype == np.float64 else wider(values.dtype)
    wanted = as_dtype(dtype)
    if of_python:
        check_fits("tensor", values, wanted)
    values = values.astype(wanted, copy=False)
    target = get_device("cpu" if device is None else device)
    return of_values(Tensor(target.upload(np.ascontiguousarray(values).reshape(values.shape)), requires_grad))


Shape = tuple[int, ...]
