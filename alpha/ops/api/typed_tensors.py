"""`alpha.FloatTensor` and the like: PyTorch's older names of `alpha.tensor(values, dtype=..)` and `alpha.empty`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.core.dtypes import bool as bool_
from alpha.core.dtypes import float32, float64, int32, int64, uint8
from alpha.core.tensor import Tensor, tensor
from alpha.errors import type_name
from alpha.ops.array.creation import empty

__all__ = ["BoolTensor", "ByteTensor", "DoubleTensor", "FloatTensor", "IntTensor", "LongTensor"]


def _typed(name: str, dtype: np.dtype[Any]) -> Callable[..., Tensor]:
    def make(*values: Any) -> Tensor:
        if not values or all(isinstance(value, (int, np.integer)) for value in values):
            return empty(*(values or (0,)), dtype=dtype)
        if len(values) > 1 or not isinstance(values[0], (list, range, np.ndarray, Tensor)):
            given = ", ".join(type_name(value) for value in values)
            raise TypeError(
                f"{name}: a list, an array or a Tensor is needed, or the lengths of the axes, not {given}; of a shape "
                f"take alpha.empty(shape, dtype='{dtype.name}')"
            )
        (given_values,) = values
        return tensor(given_values, dtype=dtype) if not isinstance(given_values, Tensor) else given_values.to(dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"""A tensor of {dtype.name} on the cpu with these values, of a list, an array or a Tensor.

    {name}(2, 3) has two axes and undefined values, as `alpha.empty`. A tuple is refused: as a shape and as values it
    would mean different things.
    """
    return make


BoolTensor = _typed("BoolTensor", bool_)
ByteTensor = _typed("ByteTensor", uint8)
DoubleTensor = _typed("DoubleTensor", float64)
FloatTensor = _typed("FloatTensor", float32)
IntTensor = _typed("IntTensor", int32)
LongTensor = _typed("LongTensor", int64)
