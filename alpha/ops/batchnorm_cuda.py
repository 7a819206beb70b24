"""Plans of batch normalisation on a GPU: the kernels of cuda/batchnorm, on X (R, C)."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from alpha.numerics import FLOAT32
from alpha.ops.dtypes import CUDA_TYPES
from alpha.ops.plan import Buffer, KernelLaunch, Named, Plan, Value
from alpha.ops.reduce import column_block, column_splits

MERGE, MERGE_MANY = (32, 16), (2, 256)  # blocks that join segments, or thousands: channels, lanes
RUNNING = Named("running_mean", optional=True), Named("running_var", optional=True), Value("momentum")


def _columns(R: int, C: int, vector: int) -> tuple[tuple[int, int], int, int]:
    """(block, tiles of channels, lanes) of the kernels that go through X (R, C)."""
    across, lanes, _ = column_block(1, R, C // vector)
    return (across, lanes), -(-C // (vector * across)), lanes


def _macros(dtype: np.dtype[Any], vector: int) -> dict[str, int | str]:
    return {"TYPE": CUDA_TYPES[dtype], "VECTOR": vector}


def _numbers(C: int, *names: str) -> dict[str, Buffer]:
    """A float32 number per channel for each name."""
    return dict.fromkeys(names, Buffer((C,), FLOAT32))


@functools.lru_cache(maxsize=4096)
def plan_statistics(R: int, C: int, dtype: np.dtype[Any], vector: int, num_sms: int) -> Plan:
    """Mean and variance per channel of X: one kernel for segments of rows, a second one that merges the segments."""
    block, tiles, lanes = _columns(R, C, vector)
    splits, rows = column_splits(num_sms, R, lanes, tiles)
    macros = _macros(dtype, vector)
    launches = (
        KernelLaunch(
            "batchnorm/statistics.cu",
            "statistics",
            (tiles, splits),
            block,
            (Named("part"), Named("X"), R, C, rows),
            macros,
        ),
        KernelLaunch(
            "batchnorm/statistics.cu",
            "merge_statistics",
            -(-C // MERGE[0]),
            MERGE,
            (*map(Named, ("mean", "var", "part")), *RUNNING, R, C, rows, splits),
            macros,
        ),
    )
    workspaces = {"part": Buffer((2, splits, C), FLOAT32)}
    return Plan("channel_statistics", launches, _numbers(C, "mean", "var"), workspaces)


@functools.lru_cache(maxsize=4096)
def plan_merge(C: int, dtype: np.dtype[Any], vector: int, parts: int) -> Plan:
    """Mean and variance per channel of X, merged from the statistics that the convolution has found."""
    launch = KernelLaunch(
        "batchnorm/statistics.cu",
        "merge_counted_statistics",
        -(-C // MERGE_MANY[0]),
        MERGE_MANY,
        (*map(Named, ("mean", "var", "part", "counts")), *RUNNING, C, parts),
        _macros(dtype, vector),
    )
    return Plan("merge_counted_statistics", (launch,), _numbers(C, "mean", "var"))


@functools.lru_cache(maxsize=4096)
def plan_apply(shape: tuple[int, ...], dtype: np.dtype[Any], vector: int) -> Plan:
    """Y = weight (X - mean) / sqrt(var + eps) + bias, in one pass; `shape` is that of X (..., C)."""
    R, C = math.prod(shape[:-1]), shape[-1]
    block, tiles, lanes = _columns(R, C, vector)
    rows = 8 * lanes
    names = ("Y", "X", "mean", "var", "weight", "bias")
    launch = KernelLaunch(
        "batchnorm/apply.cu",
        "apply",
        (-(-R // rows), tiles),
        block,
        (*map(Named, names), Value("eps"), R, C, rows),
        _macros(dtype, vector),
    )
    return Plan("batch_norm_apply", (launch,), {"Y": Buffer(shape, dtype)})


@functools.lru_cache(maxsize=4096)
def plan_gradients(shape: tuple[int, ...], dtype: np.dtype[Any], vector: int, num_sms: int, batch: bool) -> Plan:
    """dw and db as sums over segments of rows, which a second kernel merges; then dX; `shape` is that of X (..., C)."""
    R, C = math.prod(shape[:-1]), shape[-1]
    block, tiles, lanes = _columns(R, C, vector)
    splits, segment = column_splits(num_sms, R, lanes, tiles)
    macros = _macros(dtype, vector)
    sums = KernelLaunch(
        "batchnorm/gradient_sums.cu",
        "gradient_sums",
        (tiles, splits),
        block,
        (*map(Named, ("part", "dY", "X", "mean")), R, C, segment),
        macros,
    )
    merge = KernelLaunch(
        "batchnorm/gradient_sums.cu",
        "merge_sums",
        -(-C // MERGE[0]),
        MERGE,
        (*map(Named, ("dw", "db", "part", "var")), Value("eps"), C, splits),
        macros,
    )
    if vector > 4:  # wider packs of four numbers a column do not fit the registers
        vector = 4
        block, tiles, lanes = _columns(R, C, vector)
    rows = 8 * lanes
    names = ("dX", "dY", "X", "mean", "var", "weight", "dw", "db")
    gradient = KernelLaunch(
        "batchnorm/input_gradient.cu",
        "input_gradient",
        (-(-R // rows), tiles),
        block,
        (*map(Named, names), Value("eps"), R, C, rows, int(batch)),
        _macros(dtype, vector),
    )
    outputs = {**_numbers(C, "dw", "db"), "dX": Buffer(shape, dtype)}
    workspaces = {"part": Buffer((2, splits, C), FLOAT32)}
    return Plan("batch_norm_gradients", (sums, merge, gradient), outputs, workspaces)
