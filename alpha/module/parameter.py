"""Parameter and Buffer: the tensors that belong to a module; and where and of which dtype layers make them.

`Uninitialized` is one without a shape: that of a lazy layer before its first forward.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.versions import Version
from alpha.core.host_values import DTypeLike, as_dtype
from alpha.core.origins import unmark
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor, tensor
from alpha.errors import UninitializedError
from alpha.runtime import Device, get_device
from alpha.runtime.registry import names_device

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"]


class Parameter(Tensor):
    """A tensor that a module trains; `values`, whatever `alpha.tensor` takes, are copied.

    Examples:
        >>> import alpha
        >>> from alpha import nn
        >>> layer = nn.Module()
        >>> layer.scale = nn.Parameter(alpha.ones(3))
        >>> list(layer.state_dict())
        ['scale']
    """

    __slots__ = ()
    _belongs = True

    def __init__(self, values: Any, requires_grad: bool = True) -> None:
        made = tensor(values)
        super().__init__(made.array, requires_grad)
        self._base_version = made._base_version  # until a module has it

    def __getstate__(self) -> tuple[Any, dict[str, Any]]:
        attributes, held = super().__getstate__()
        return attributes, {**held, "_grad": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A Parameter with memory of its own and, as in PyTorch, without the gradient."""
        result = super().__deepcopy__(memo)
        assert isinstance(result, Parameter)
        result._grad = None
        return result


class Buffer(Tensor):
    """State of a module that is not trained, as running statistics.

    Args:
        values: as for `Parameter`.
        persistent: False leaves it out of state dicts.
    """

    __slots__ = ("persistent",)
    _belongs = True

    def __init__(self, values: Any, *, persistent: bool = True) -> None:
        super().__init__(tensor(values).array)
        self.persistent = persistent

    @classmethod
    def _of(cls, value: Tensor, persistent: bool = True) -> Buffer:
        """A Buffer that shares everything with a Tensor: memory, version, graph."""
        result = cls.__new__(cls)
        for name, held in value._held().items():
            setattr(result, name, held)
        result.persistent = persistent
        unmark(result)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        result = super().__deepcopy__(memo)
        assert isinstance(result, Buffer)
        result.persistent = self.persistent
        return result


_SLOT: Any = vars(Tensor)["array"]  # where the array of no elements lies that knows the device and the dtype


class Uninitialized(Tensor):
    """A tensor that knows its device and its dtype, and nothing else: what asks for its shape or values is an error."""

    __slots__ = ()
    becomes: type[Tensor]  # the class that it has with values

    @property
    def array(self) -> Array:
        raise UninitializedError(
            f"{type(self).__name__}: it has no shape and no values before the first forward of its layer; call the "
            "model once on a batch, as of zeros, before its parameters are counted, written or computed with"
        )

    @array.setter
    def array(self, array: Array) -> None:
        _SLOT.__set__(self, array)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = _SLOT.__get__(self).dtype
        return dtype

    @property
    def device(self) -> Device:
        array = _SLOT.__get__(self)
        return get_device("cpu") if isinstance(array, np.ndarray) else array.device

    @property
    def is_cuda(self) -> bool:
        return not isinstance(_SLOT.__get__(self), np.ndarray)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype.name}, device={self.device.name!r})"

    def _held(self) -> dict[str, Any]:
        names = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        held = {name: getattr(self, name) for name in names if name not in ("__weakref__", "_part", "array")}
        return {**held, "array": _SLOT.__get__(self)}

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        result = type(self).__new__(type(self))
        Tensor.__init__(result, self.device.empty((0,), self.dtype), self._requires_grad)
        if isinstance(self, Buffer) and isinstance(result, Buffer):
            result.persistent = self.persistent
        memo[id(self)] = result
        return result

    def materialize(self, shape: Sequence[int], device: str | Device | None = None, dtype: DTypeLike = None) -> None:
        """Become a tensor of zeros, in place: who holds this object holds the parameter.

        Args:
            shape: its lengths.
            device, dtype: by default its own.
        """
        move(self, None if device is None else get_device(device), None if dtype is None else as_dtype(dtype))
        fill(self, np.zeros((shape,) if isinstance(shape, int) else tuple(shape), self.dtype))


class UninitializedParameter(Uninitialized, Parameter):
    """A Parameter whose shape follows from the input of its layer's first forward, as in `LazyLinear`.

    Its `device`, `dtype` and `requires_grad` are known, and may be changed. With values its class is `Parameter`; it is
    the same object, so an optimizer may be made before that.

    Raises:
        UninitializedError: its shape, its values or a result of operators are asked for.
    """

    __slots__ = ()
    becomes = Parameter

    def __init__(self, requires_grad: bool = True, device: str | Device | None = None, dtype: DTypeLike = None) -> None:
        Tensor.__init__(self, _nothing(device, dtype), requires_grad)


class UninitializedBuffer(Uninitialized, Buffer):
    """A Buffer whose shape follows from the input of its layer's first forward; see `UninitializedParameter`."""

    __slots__ = ()
    becomes = Buffer

    def __init__(
        self,
        requires_grad: bool = False,
        device: str | Device | None = None,
        dtype: DTypeLike = None,
        persistent: bool = True,
    ) -> None:
        Tensor.__init__(self, _nothing(device, dtype), requires_grad)
        self.persistent = persistent


def _nothing(device: str | Device | None, dtype: DTypeLike) -> Array:
    """An array of no elements on a device."""
    return get_device("cpu" if device is None else device).empty(
        (0,), as_dtype(np.dtype(np.float32) if dtype is None else dtype)
    )


def host_values(value: Tensor) -> npt.NDArray[Any]:
    """The values on the host; those of an uninitialised tensor are an array of no elements."""
    return np.empty(0, value.dtype) if isinstance(value, Uninitialized) else value.numpy()


def move(value: Tensor, device: Device | None = None, dtype: np.dtype[Any] | None = None) -> None:
    """Move a tensor in place to a device, a dtype, or both; None leaves it. What moved has no gradient any more."""
    device, dtype = device or value.device, dtype or value.dtype
    if device is not value.device or dtype != value.dtype:
        value.array = device.upload(host_values(value).astype(dtype, copy=False))
        value._version, value._base_version = Version(), 0  # other tensors keep the memory that it had
        value.grad = None


def fill(value: Tensor, values: npt.NDArray[Any]) -> None:
    """Give a tensor these values, on its device and in its dtype; an uninitialised one is initialised thereby."""
    array = value.device.upload(np.asarray(values, value.dtype, order="C"))
    if isinstance(value, Uninitialized):
        value.__class__ = value.becomes  # type: ignore[assignment]
        value.array = array
    elif isinstance(array, np.ndarray):
        np.copyto(value.array, array)
    else:
        array.device.copy_into(value.array, array)


def shape_text(value: Tensor) -> str:
    """The shape of a tensor, for a message or a repr; "uninitialised" if it has none yet."""
    return "uninitialised" if isinstance(value, Uninitialized) else str(value.shape)


def zero_gradients(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Drop gradients, or fill them with zeros in place, so that whoever holds one sees it, too."""
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None
        elif (grad := parameter.grad) is not None:
            with no_grad():
                grad.detach().zero_()


def state_of(value: Tensor) -> Any:
    """Value of a tensor in a state dict: the tensor detached, or an uninitialised one on the host."""
    return type(value)(dtype=value.dtype) if isinstance(value, Uninitialized) else value.detach()  # type: ignore[call-arg]


Initialiser = Callable[..., None]


def with_place(init: Initialiser, behind_init: Callable[[Any], None] | None = None) -> Initialiser:
    """An `__init__` that takes `device` and `dtype`, too, and moves what it has made as `to(device, dtype)` does.

    Both may be given by name, or by position behind the arguments that `init` takes by position. The layer has the
    numbers that it has without them. `behind_init` is called on the layer before it moves.
    """
    code = init.__code__
    own, fixed = code.co_argcount - 1, not code.co_flags & inspect.CO_VARARGS

    @functools.wraps(init)
    def placed(self: Any, *args: Any, device: Any = None, dtype: Any = None, **kwargs: Any) -> None:
        behind = args[own:] if fixed and len(args) <= own + 2 else ()
        if behind:
            args = args[:own]
            if device is not None or (dtype is not None and len(behind) == 2):
                raise TypeError(f"{type(self).__name__}: device or dtype is given twice, by position and by name")
            device = behind[0]
            dtype = behind[1] if len(behind) == 2 else dtype
        init(self, *args, **kwargs)
        if behind_init is not None:
            behind_init(self)
        absent = {name for name, value in vars(self).items() if value is None}
        if absent:  # a tensor that comes later, as a bias, stands where it would have stood
            vars(self)["_kept_places"] = self._kept_places | absent
        if behind and not (hasattr(self, "reset_parameters") or any(True for _ in self.children())):
            raise TypeError(f"{type(self).__name__}: {own} arguments are taken by position, not {own + len(behind)}")
        if behind and device is not None and not names_device(device):
            raise TypeError(f"{type(self).__name__}: device={device!r} is no device, such as 'cuda'")
        if device is not None or dtype is not None:
            self.to(device, dtype)

    return placed
