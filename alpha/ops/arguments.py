"""The check of tensor arguments that every function of `alpha.nn.functional` makes first."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from alpha.errors import DeviceError
from alpha.numerics import BFLOAT16, FLOAT32
from alpha.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONAL = {"Tensor": False, "Tensor | None": True}  # by annotation
_INTEGERS = {"labels", "target"}  # arguments whose dtype the function checks itself
_FLOATING = frozenset({FLOAT32, np.dtype(np.float64), BFLOAT16})


def check_arguments(function: Callable[P, R], floating: bool = True) -> Callable[P, R]:
    """The function, which refuses arguments annotated as Tensor that are none, or that are on several devices.

    Args:
        floating: refuse integers and bools, too, with which the function does not compute.

    Raises:
        TypeError: names the argument, for example a numpy array in place of a Tensor.
        DeviceError: names two arguments and their devices.
    """
    parameters = [
        (position, name, _OPTIONAL[parameter.annotation], floating and name not in _INTEGERS)
        for position, (name, parameter) in enumerate(inspect.signature(function).parameters.items())
        if parameter.annotation in _OPTIONAL
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
                if real and value.array.dtype not in _FLOATING:
                    raise TypeError(f"{function.__name__}: {name} has dtype {value.dtype.name}; use .astype('float32')")
            elif not (optional and value is None):
                raise TypeError(
                    f"{function.__name__}: {name} is a {type(value).__name__}, a Tensor is needed; "
                    f"use alpha.tensor({name}, device=..)"
                )
        return function(*args, **kwargs)

    return call
