"""The dtypes that Alpha computes with, under PyTorch's names; each is numpy's dtype, and equal to its own name."""

from __future__ import annotations

import numpy as np

from alpha.numerics import BFLOAT16, FLOAT32

float = float32 = FLOAT32
double = float64 = np.dtype(np.float64)
bfloat16 = BFLOAT16
int = int32 = np.dtype(np.int32)
long = int64 = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
bool = np.dtype(np.bool_)
