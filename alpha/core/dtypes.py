"""The dtypes that Alpha computes with, under PyTorch's names; each is numpy's dtype, and equal to its own name.

`finfo` and `iinfo` have their limits, as Python's numbers.
"""

from __future__ import annotations

import builtins
from typing import Any

import ml_dtypes
import numpy as np

from alpha.core.host_values import as_dtype
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating

float = float32 = FLOAT32
double = float64 = np.dtype(np.float64)
bfloat16 = BFLOAT16
int = int32 = np.dtype(np.int32)
long = int64 = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
bool = np.dtype(np.bool_)


class _Info:
    """The limits of a dtype, an attribute each."""

    bits: builtins.int
    dtype: str

    def __eq__(self, other: object) -> builtins.bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> builtins.int:
        return hash((type(self), self.dtype))

    def __repr__(self) -> str:
        texts = [
            f"{name}={value:g}" if isinstance(value, builtins.float) else f"{name}={value}"
            for name, value in vars(self).items()
            if name != "bits"
        ]
        return f"{type(self).__name__}({', '.join(texts)})"


class finfo(_Info):
    """The limits of a floating dtype.

    Attributes:
        resolution: 10 to the power of minus the number of decimal digits that it keeps.
        min, max: the least and the largest finite number.
        eps: the distance from 1 to the next number.
        smallest_normal, tiny: the smallest number above 0 that has all digits.
        bits, dtype: how many bits it has, and its name.
    """

    def __init__(self, type: Any = FLOAT32) -> None:
        dtype = as_dtype(type)
        if not is_floating(dtype):
            raise TypeError(f"finfo: {dtype.name} is not a floating dtype; iinfo has the limits of integers")
        limits: Any = ml_dtypes.finfo  # of numpy's floating dtypes, too; it has no types
        found = limits(dtype)
        self.resolution = builtins.float(f"1e-{found.precision}")
        self.min, self.max = builtins.float(found.min), builtins.float(found.max)
        self.eps = builtins.float(found.eps)
        self.smallest_normal = self.tiny = builtins.float(found.smallest_normal)
        self.bits, self.dtype = dtype.itemsize * 8, dtype.name


class iinfo(_Info):
    """The limits of an integer dtype: `min`, `max`, `bits`, and its name as `dtype`."""

    def __init__(self, type: Any) -> None:
        dtype = as_dtype(type)
        if dtype.kind not in "iu":
            raise TypeError(f"iinfo: {dtype.name} is not an integer dtype; finfo has the limits of floating ones")
        found = np.iinfo(dtype)
        self.min, self.max = builtins.int(found.min), builtins.int(found.max)
        self.bits, self.dtype = dtype.itemsize * 8, dtype.name
