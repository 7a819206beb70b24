"""Primitives: the functions on arrays that a gradient rule is made of, one implementation a device.

A primitive is declared once as a documented signature, and implemented beside it:

    @primitive
    def relu_forward(X: Array) -> Array:
        '''Y = max(X, 0)   X (...) -> Y (...)'''

    @relu_forward.impl("cpu")
    def _(X: Array) -> Array: ...

The device of the first array argument (or the first element of a list, or a `Device` itself) picks the
implementation. That parameter names agree is checked at import; a missing one raises `DeviceError`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from alpha.errors import DeviceError
from alpha.runtime import Device, get_device
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.recording import state

F = TypeVar("F", bound=Callable[..., Any])
Array = Any  # np.ndarray on cpu, DeviceArray on cuda: contiguous, C order

DEVICES = ("cpu", "cuda")
REGISTRY: dict[str, Primitive] = {}


class Primitive:
    """One contract, one implementation per device.

    Attributes:
        expression: the C++ expression that an elementwise primitive computes, else empty.
        mask: whether its first operand is an array of bools.
    """

    expression = ""
    mask = False

    def __init__(self, contract: Callable[..., Any]) -> None:
        self.name = contract.__name__
        self.parameters = tuple(inspect.signature(contract).parameters)
        self.implementations: dict[str, Callable[..., Any]] = {}
        functools.update_wrapper(self, contract)

    def impl(self, device: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register the implementation for `device`; its parameter names must be the contract's."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            names = tuple(inspect.signature(function).parameters)
            if names != self.parameters:
                raise TypeError(
                    f"{self.name}: the {device} implementation takes {names}, the contract says {self.parameters}"
                )
            self.implementations[device] = function
            return function

        return register

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        device = _HOMES.get(type(args[0])) or _home(args[0])
        try:
            function = self.implementations[device]
        except KeyError:
            function = self._timed(device)
        return function(*args, **kwargs)

    def _timed(self, device: str) -> Callable[..., Any]:
        """The implementation for the cpu, timed if the profile is this thread's; there is none for another device."""
        plain = self.implementations.get("cpu") if device == TIMED else None
        if plain is None:
            raise DeviceError(f"{self.name} has no {'cpu' if device == TIMED else device} implementation")
        profile = state.profile
        return plain if profile is None else functools.partial(profile.timed, self.name, plain)


TIMED = "cpu, timed"  # where numpy's arrays live while a profile runs: so nothing is asked for each call without one
_HOMES: dict[type, str] = {np.ndarray: "cpu", DeviceArray: "cuda"}  # where the arrays of a type live


def time_primitives(timed: bool) -> None:
    """Let `profile.timed` call the implementations for the cpu from now on, in threads that have a profile, or not."""
    _HOMES[np.ndarray] = TIMED if timed else "cpu"


def _home(argument: Any) -> str:
    """The name of the device, or TIMED for numpy's arrays, also in lists, while a profile runs."""
    if isinstance(argument, np.ndarray):
        return _HOMES[np.ndarray]
    return _home(argument[0]) if isinstance(argument, (list, tuple)) else device_name(argument)


def device_name(argument: Any) -> str:
    """ "cpu" or "cuda": where an array (or a list of arrays, or a `Device`) lives."""
    if isinstance(argument, np.ndarray):
        return "cpu"
    if isinstance(argument, (list, tuple)):
        return device_name(argument[0])
    if isinstance(argument, Device):
        return argument.name
    name: str = argument.device.name
    return name


def device_of(array: Array) -> Device:
    """The device whose memory holds an array."""
    device: Device = get_device("cpu") if isinstance(array, np.ndarray) else array.device
    return device


def on_every_device(function: F) -> F:
    """Declare a primitive by the one function that computes it on every device; it is called without a dispatch."""
    declared = primitive(function)
    for device in DEVICES:
        declared.impl(device)(function)
    return function


def primitive(contract: Callable[..., Any]) -> Primitive:
    """Declare a primitive from its documented signature."""
    if contract.__name__ in REGISTRY:
        raise TypeError(f"primitive {contract.__name__} is declared twice")
    result = Primitive(contract)
    REGISTRY[result.name] = result
    return result


Form = tuple[bool, tuple[int, ...], np.dtype[Any]]  # whether it is on the cpu, shape and dtype of an array


def contiguous(Y: Any) -> Any:
    """A numpy result of a `forward` as a contiguous array, which a scalar and a strided view are not."""
    if type(Y) is np.ndarray:
        return Y if Y.flags.c_contiguous else np.ascontiguousarray(Y)
    return np.array(Y, order="C")


def span(X: Array, start: int, shape: tuple[int, ...]) -> Array:
    """Neighbouring elements of an array from number `start` on, under a shape of their own; a view."""
    flat, stop = X.reshape(X.size), start + math.prod(shape)
    found = flat[start:stop] if isinstance(flat, np.ndarray) else flat.slice_rows(start, stop)
    return found.reshape(shape)


def form_of(array: Array) -> Form:
    """Form that a gradient of the array must have: on the host or not, shape, dtype."""
    return isinstance(array, np.ndarray), array.shape, array.dtype


def shares_memory(array: Array, others: Iterable[Array | None]) -> bool:
    """True if the array has memory in common with one of the others; None has none."""
    if isinstance(array, np.ndarray):
        return any(isinstance(other, np.ndarray) and np.may_share_memory(array, other) for other in others)
    block, start = array.block, array.offset  # several arrays may lie in one block
    for other in others:
        if other is None or getattr(other, "block", None) is not block:
            continue
        if -other.nbytes < other.offset - start < array.nbytes:
            return True
    return False
