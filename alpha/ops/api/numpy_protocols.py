"""Functions of numpy on tensors: `numpy.sqrt(x)`, `array * x`, `numpy.concatenate([x, y])`.

A sign between an array or a number of numpy and a tensor is the tensor's own operator, on either side and with a
gradient. Any other ufunc of tensors on the cpu computes in numpy and gives a tensor, as with PyTorch's; all other
functions of numpy are given the values as arrays, and give what numpy gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alpha.autograd.versions import array_of, check_writable
from alpha.core.host_values import DTYPES
from alpha.core.tensor import Tensor

# the methods of a tensor on the left, and on the right of something that is none
_SIGNS: dict[Any, tuple[str, str]] = {
    **{
        ufunc: (f"__{name}__", f"__r{name}__")
        for ufunc, name in {
            np.add: "add",
            np.subtract: "sub",
            np.multiply: "mul",
            np.true_divide: "truediv",
            np.floor_divide: "floordiv",
            np.remainder: "mod",
            np.power: "pow",
            np.matmul: "matmul",
            np.bitwise_and: "and",
            np.bitwise_or: "or",
            np.bitwise_xor: "xor",
            np.left_shift: "lshift",
            np.right_shift: "rshift",
        }.items()
    },
    np.equal: ("__eq__", "__eq__"),
    np.not_equal: ("__ne__", "__ne__"),
    np.less: ("__lt__", "__gt__"),
    np.less_equal: ("__le__", "__ge__"),
    np.greater: ("__gt__", "__lt__"),
    np.greater_equal: ("__ge__", "__le__"),
}


def array_ufunc(x: Tensor, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
    """`x.__array_ufunc__`, which numpy calls for each of its elementwise functions that is given x.

    Returns:
        What the tensor's operator gives, of a sign; else tensors of numpy's results, on the cpu. A result of a dtype
        that Alpha does not compute with stays numpy's.

    Raises:
        TypeError: one of the tensors is on cuda or requires a gradient.
    """
    if method == "__call__" and ufunc in _SIGNS and not named:
        first, second = inputs
        left, right = _SIGNS[ufunc]
        if isinstance(first, Tensor):
            return getattr(Tensor, left)(first, second)
        return getattr(Tensor, right)(second, first)
    out = named.pop("out", ())
    written = [value for value in (inputs[:1] if method == "at" else out) if isinstance(value, Tensor)]
    name = f"numpy.{ufunc.__name__}"
    for value in (*inputs, *out, *named.values()):
        if isinstance(value, Tensor):
            _check_computable(name, ufunc.__name__, value)
    for target in written:
        check_writable(name, target, False)
    named = {key: _array(value) for key, value in named.items()}
    if out:
        named["out"] = tuple(map(_array, out))
    try:
        found = getattr(ufunc, method)(*map(_array, inputs), **named)
    finally:  # an error, as that of a division by zero, may come after the write
        for target in written:
            target._version.bump(name)
    if found is None or found is NotImplemented:
        return found
    results = found if isinstance(found, tuple) else (found,)
    given = out or (None,) * len(results)
    made = tuple([_result(value) if place is None else place for value, place in zip(results, given, strict=True)])
    return made if isinstance(found, tuple) else made[0]


def _array(value: Any) -> Any:
    return array_of(value) if isinstance(value, Tensor) else value


def _check_computable(name: str, own: str, x: Tensor) -> None:
    if x._requires_grad:
        with_gradient = f"alpha.{own}(x) records one, " if hasattr(Tensor, own) else ""
        raise TypeError(
            f"{name}: the tensor requires a gradient, which numpy loses; {with_gradient}x.detach() has none"
        )
    if x.is_cuda:
        there = f"alpha.{own}(x) computes there, " if hasattr(Tensor, own) else ""
        raise TypeError(f"{name}: the tensor is on {x.device.name}; {there}x.numpy() copies it to the host")


def _result(value: Any) -> Any:
    array = np.asarray(value)
    return Tensor(np.ascontiguousarray(array).reshape(array.shape)) if array.dtype.name in DTYPES else value


def array_function(x: Tensor, function: Any, types: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """`x.__array_function__`, which numpy calls for its other functions: they are given arrays, and give arrays.

    The arrays may not be written: some are copies, and of the others the write would not be counted.

    Raises:
        TypeError: the function writes to a tensor, as `numpy.copyto(x, 0)` or one with `out=x`.
    """
    try:
        return function(*_as_arrays(args), **_as_arrays(dict(named)))
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise TypeError(
            f"numpy.{function.__name__}: it writes to a tensor; give numpy.asarray(x), which is the memory of a tensor "
            "on the cpu that requires no gradient, or use an operator of Alpha"
        ) from error


def _as_arrays(value: Any) -> Any:
    """The value, and in place of each tensor in it an array; lists, tuples, deques and dicts are looked through."""
    if isinstance(value, Tensor):
        is_copied = value._requires_grad or value.is_cuda
        array: Any = (value.numpy() if is_copied else array_of(value)).view()
        array.flags.writeable = False
        return array
    if isinstance(value, (list, tuple, deque)):
        return (tuple if isinstance(value, tuple) else list)(map(_as_arrays, value))
    if isinstance(value, dict):
        return {key: _as_arrays(item) for key, item in value.items()}
    return value


PROTOCOLS = {"__array_ufunc__": array_ufunc, "__array_function__": array_function}
