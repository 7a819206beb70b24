"""The decorator of every function of `alpha.nn.functional`, which checks its tensor arguments first."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from alpha.errors import DeviceError, type_name
from alpha.numerics import BFLOAT16, FLOAT32
from alpha.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

AnyTensor = Tensor  # an argument that may have any dtype, or whose dtype the function checks itself

# (None is taken, the dtype must be a floating one) by annotation
_CHECKS = {
    "Tensor": (False, True),
    "Tensor | None": (True, True),
    "AnyTensor": (False, False),
    "AnyTensor | None": (True, False),
}
_FLOATING = frozenset({FLOAT32, np.dtype(np.float64), BFLOAT16})


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses arguments annotated as Tensor that are none, or that are on several devices.

    It refuses integers and bools, too, unless the annotation is `AnyTensor`.

    Raises:
        TypeError: names the argument, for example a numpy array in place of a Tensor.
        DeviceError: names two arguments and their devices.
    """
    parameters = [
        (position, name, *_CHECKS[parameter.annotation])
        for position, (name, parameter) in enumerate(inspect.signature(function).parameters.items())
        if parameter.annotation in _CHECKS
    ]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        first: Any = None
        for position, name, optional, real in parameters:
            if position < len(args):
                value = args[position]
            elif name in kwargs:
                value = kwargs[name]
            else:
                continue  # missing: the function itself says so
            if isinstance(value, Tensor):
                if first is None:
                    first, first_name = value, name
                elif type(value.array) is not type(first.array):
                    raise DeviceError(
                        f"{function.__name__}: {first_name} is on {first.device.name} and {name} on "
                        f"{value.device.name}; move them together with .to(device)"
                    )
                dtype = value.array.dtype
                if real and dtype is not FLOAT32 and dtype not in _FLOATING:
                    raise TypeError(f"{function.__name__}: {name} has dtype {value.dtype.name}; use .astype('float32')")
            elif not (optional and value is None):
                raise TypeError(
                    f"{function.__name__}: {name} is a {type_name(value)}, a Tensor is needed; "
                    f"use alpha.tensor({name}, device=..)"
                )
        return function(*args, **kwargs)

    return call


def unchecked(function: Callable[P, R]) -> Callable[P, R]:
    """The function without `check_arguments`, for a method of Tensor, whose argument is a Tensor."""
    inner: Callable[P, R] = inspect.unwrap(function)
    return inner
