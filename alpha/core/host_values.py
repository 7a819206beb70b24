"""Values of the host as numpy arrays: lists, numbers, and tensors of PyTorch; and the dtypes that they may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.core.numerics import BFLOAT16
from alpha.errors import ShapeError

DTypeLike = Any  # "float32" or a numpy dtype
Axes = int | Sequence[int]
Dims = Axes | None  # axes; None: all of them
DTYPES = ("float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool")


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """The numpy dtype of a name, in the byte order of this machine; `TypeError` lists what Alpha computes with."""
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"{dtype!r} is no dtype; use one of {', '.join(DTYPES)}") from None
    if result.name not in DTYPES:
        raise TypeError(f"dtype {result.name} is not one of {', '.join(DTYPES)}")
    return result if result.isnative else result.newbyteorder("=")


def is_integer(value: Any) -> bool:
    """True for an integer of Python or of numpy; a bool is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


MASKED = "is a masked array, and its mask would be lost; give the values that are meant, by its filled(value)"


def is_masked(value: Any) -> bool:
    """True if the value is one of numpy's masked arrays, which become plain ones without a word."""
    return isinstance(value, np.ma.MaskedArray)


def is_torch(value: Any) -> bool:
    """True if the value is a tensor of PyTorch; PyTorch need not be installed."""
    return type(value).__module__.partition(".")[0] == "torch"


def host_array(data: Any) -> npt.NDArray[Any]:
    """The values as a numpy array, whose dtype is numpy's choice for numbers and lists.

    Raises:
        ShapeError: lists side by side have other lengths.
        TypeError: numpy cannot read the values, or they are masked.
    """
    if is_masked(data):
        raise TypeError(f"tensor: the argument {MASKED}")
    if is_torch(data):
        data = data.detach().cpu()
        if str(data.dtype) == "torch.bfloat16":  # which numpy has not
            return np.asarray(data.float()).astype(BFLOAT16)
    try:
        return np.asarray(data)
    except ValueError as error:
        found = _uneven(data)
        raise ShapeError(f"tensor: {found or error}") from None
    except TypeError as error:
        raise TypeError(f"tensor: numpy cannot read the values of a {type(data).__name__}: {error}") from None


def torch_tensor(values: npt.NDArray[Any]) -> Any:
    """A tensor of PyTorch on the host with these values, in memory of its own.

    Raises:
        ImportError: PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError("tensors of PyTorch need PyTorch: pip install torch") from error
    array = np.array(values, order="C")
    if array.dtype == BFLOAT16:  # which numpy has not
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


WIDER = {"int8": np.int32, "int16": np.int32, "uint16": np.int32, "uint32": np.int64, "float16": np.float32}


def wider(dtype: np.dtype[Any]) -> npt.DTypeLike:
    """The dtype itself; or the next wider one, if Alpha does not compute with it."""
    return WIDER.get(dtype.name, dtype)


def check_fits(operator: str, values: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    """`ValueError` for integers that do not fit an integer dtype."""
    if dtype.kind not in "iu" or values.dtype.kind not in "iu" or not values.size:
        return
    least, most, limits = int(values.min()), int(values.max()), np.iinfo(dtype)
    if least < limits.min or most > limits.max:
        found = str(most if most > limits.max else least)
        raise ValueError(f"{operator}: {found} does not fit {dtype.name}, which holds {limits.min} to {limits.max}")


def _uneven(data: Any) -> str:
    """Text that names the parts of nested lists which are side by side and make no array; empty if there are none."""
    lists = [part for part in data if isinstance(part, (list, tuple))]
    if lists and len(lists) < len(data):
        return "lists and numbers are side by side"
    lengths = sorted({len(part) for part in lists})
    if len(lengths) > 1:
        return f"lists of {lengths[0]} and of {lengths[-1]} elements are side by side; all need one length"
    return next(filter(None, map(_uneven, lists)), "")
