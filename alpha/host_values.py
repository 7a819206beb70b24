"""Values of the host as numpy arrays: lists, numbers, and tensors of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from alpha.errors import ShapeError
from alpha.numerics import BFLOAT16


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of PyTorch; PyTorch need not be installed."""
    return type(value).__module__.partition(".")[0] == "torch"


def host_array(data: Any) -> npt.NDArray[Any]:
    """The values as a numpy array, whose dtype is numpy's choice for numbers and lists.

    Raises:
        ShapeError: lists side by side have other lengths.
        TypeError: numpy cannot read the values.
    """
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


def _uneven(data: Any) -> str:
    """What is side by side in nested lists and makes no array; empty if nothing is."""
    lists = [part for part in data if isinstance(part, (list, tuple))]
    if lists and len(lists) < len(data):
        return "lists and numbers are side by side"
    lengths = sorted({len(part) for part in lists})
    if len(lengths) > 1:
        return f"lists of {lengths[0]} and of {lengths[-1]} elements are side by side; all need one length"
    return next(filter(None, map(_uneven, lists)), "")
