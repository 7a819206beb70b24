"""The decorator of every function of `alpha.nn.functional`, which checks its tensor arguments first."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.errors import DeviceError, type_name

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

    A tensor without axes that is on the cpu beside one on cuda is moved there, as in PyTorch. It refuses integers and
    bools, too, unless the annotation is `AnyTensor`.

    Raises:
        TypeError: names the argument, for example a numpy array in place of a Tensor.
        DeviceError: names two arguments and their devices.
    """
    signature = inspect.signature(function).parameters
    parameters = [
        (position, name, *_CHECKS[parameter.annotation])
        for position, (name, parameter) in enumerate(signature.items())
        if parameter.annotation in _CHECKS
    ]
    others = other_names(function.__name__, signature)
    written = function.__name__.endswith("_")

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs and not others.keys().isdisjoint(kwargs):
            return call(*args, **renamed(function.__name__, others, kwargs))
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
                    number, other = (value, first) if isinstance(value.array, np.ndarray) else (first, value)
                    if number.ndim or (number is first and written):
                        raise DeviceError(
                            f"{function.__name__}: {first_name} is on {first.device.name} and {name} on "
                            f"{value.device.name}; move them together with .to(device)"
                        )
                    named: Any = dict(zip(kwargs, _moved(number, other, kwargs.values()), strict=True))
                    return call(*_moved(number, other, args), **named)
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


def _moved(number: Tensor, other: Tensor, arguments: Iterable[Any]) -> list[Any]:
    """The arguments, and in place of `number` the same on the device of `other`."""
    return [argument.to(other.device) if argument is number else argument for argument in arguments]


# names of arguments in PyTorch and numpy, and Alpha's
_OTHER_NAMES = {"input": "x", "axis": "dim", "keepdims": "keepdim"}
_OTHER_NAMES |= {"split_size": "split_size_or_sections"}
_OTHER_NAMES |= {"sections": "indices_or_sections", "indices": "indices_or_sections"}
# of an argument that has several forms in PyTorch, each with a name of its own, by function
_OF_FORMS = {
    "scatter": {"value": "src"},
    "scatter_": {"value": "src"},
    "max": {"other": "dim"},
    "min": {"other": "dim"},
}


def other_names(operator: str, signature: Iterable[str]) -> dict[str, str]:
    """The other names by which the arguments of a function may be given, with its own."""
    known, names = set(signature), {**_OTHER_NAMES, **_OF_FORMS.get(operator, {})}
    return {other: own for other, own in names.items() if own in known and other not in known}


def renamed(operator: str, others: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under the function's own names; `TypeError` if one of them is given by both."""
    for other, own in others.items():
        if other in arguments and own in arguments:
            raise TypeError(f"{operator}: {other}= and {own}= are one argument; give one of them")
    return {others.get(name, name): value for name, value in arguments.items()}


def with_other_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that also takes the other names of the function's arguments, as `axis`; the function if it has none."""
    others = other_names(function.__name__, list(inspect.signature(function).parameters)[1:])
    if not others:
        return function

    @functools.wraps(function)
    def method(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not others.keys().isdisjoint(kwargs):
            kwargs = renamed(function.__name__, others, kwargs)
        return function(*args, **kwargs)

    return method


def method_of(function: Callable[P, R]) -> Callable[P, R]:
    """The function as a method of Tensor, without `check_arguments` where that has nothing to check.

    That is so if the only tensor among the arguments is the one whose method this is, and it may have any dtype.
    """
    inner = unchecked(function)
    given = [p.annotation for p in inspect.signature(inner).parameters.values() if p.annotation in _CHECKS]
    return with_other_names(inner) if inner is function or given == ["AnyTensor"] else function


def function_of_method(name: str) -> Callable[..., Tensor]:
    """The method in place of this name as a function of x and the method's arguments, which returns x."""

    def function(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: x is a {type_name(x)}, a Tensor is needed; use alpha.tensor(x, device=..)")
        result: Tensor = getattr(x, name)(*args, **kwargs)
        return result

    function.__name__ = function.__qualname__ = name
    function.__module__ = sys._getframe(1).f_globals["__name__"]
    function.__doc__ = f"`x.{name}(..)`, which writes x and returns it."
    return function


def unchecked(function: Callable[P, R]) -> Callable[P, R]:
    """The function without `check_arguments`, for a method of Tensor, whose argument is a Tensor."""
    inner: Callable[P, R] = inspect.unwrap(function)
    return inner


def another_name(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """A function under another of PyTorch's names, which messages about its arguments then give.

    The result has `own_name`, the name of the function.
    """
    inner: Callable[P, R] = inspect.unwrap(function)

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return inner(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__ = sys._getframe(1).f_globals["__name__"]  # where it is found, as for pickles
    call.__doc__ = f"Another name of `{function.__name__}`."
    vars(call)["__signature__"] = inspect.signature(inner)
    result = check_arguments(call)
    vars(result)["own_name"] = function.__name__
    return result


class NoImages(Function):
    """Y without elements   X (0, *I, C), weights that may be None -> Y (0, *O, C) of the given shape

    The gradients of the weights are 0.
    """

    def forward(self, X: Array, *weights: Array | None, shape: tuple[int, ...]) -> Array:
        self.forms = [None if A is None else (A.shape, A.dtype) for A in (X, *weights)]
        return device_of(X).empty(shape, X.dtype)

    def backward(self, dY: Array) -> Any:
        zeros = device_of(dY).zeros
        pairs = zip(self.forms, self.needs_input_grad, strict=True)
        return [zeros(*form) if needed and form is not None else None for form, needed in pairs]
