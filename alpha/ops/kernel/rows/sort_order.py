"""Order in which the elements of rows are sorted, on both devices the same one."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alpha.core.primitive import Array, primitive
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, DType, as_float32
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

INT64 = np.dtype(np.int64)
WORD = np.dtype(np.uint64)
CHUNK, CHUNK_THREADS = 2048, 512  # of cuda/sort/bitonic.cu
LARGEST_ROW = 2**32 - 1  # a place in a row has 32 bits


@primitive
def sort_order(X: Array, descending: bool) -> Array:
    """Y[a] = the places of the elements of row a in their sorted order   X (A, R) -> Y (A, R) of int64

    Equal elements keep their order. NaN is the largest number.
    """


@sort_order.impl("cpu")
def _(X: Array, descending: bool) -> Array:
    X = as_float32(X)
    A, R = X.shape
    Y = cpu_empty((A, R), INT64)

    def chunk(start: int, stop: int) -> None:
        rows = X[start:stop]
        if descending:  # of the row from its end, so that equal elements keep their order
            Y[start:stop] = R - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1]
        else:
            Y[start:stop] = np.argsort(rows, axis=1, kind="stable")

    workers.parallel_for(A, max(1, workers.CHUNK_BYTES // max(1, R * Y.itemsize)), chunk)
    return Y


@sort_order.impl("cuda")
def _(X: Array, descending: bool) -> Array:
    if X.size == 0:
        return X.device.empty(X.shape, INT64)
    if X.shape[1] > LARGEST_ROW:
        raise ValueError(f"sort: rows of {X.shape[1]} elements; at most {LARGEST_ROW}")
    return _plan(*X.shape, X.dtype, descending).launch(X.device, {"X": X})["order"]


@functools.lru_cache(maxsize=1024)
def _plan(A: int, R: int, dtype: DType, descending: bool) -> Plan:
    P = 1 << (R - 1).bit_length()
    total = A * P
    words, order = ArrayArg("words"), ArrayArg("order")
    launches: list[KernelLaunch] = []

    def add(entry: str, count: int, *arguments: Any) -> None:
        macros = {"TYPE": CUDA_TYPES[dtype]}
        launches.append(KernelLaunch("sort/pack.cu", entry, -(-count // BLOCK), BLOCK, arguments, macros))

    low = ArrayArg("by low bits")
    passes = [(0, None, low), (32, low, order)] if dtype.itemsize == 8 else [(0, None, order)]
    for shift, before, after in passes:
        add("pack", total, words, ArrayArg("X"), before, *map(np.int64, (R, P, total)), shift, int(descending))
        launches += _sort_launches(total, P)
        add("unpack", A * R, after, words, before, *map(np.int64, (R, P, A * R)))
    workspaces = {"words": Buffer((A, P), WORD)}
    if len(passes) > 1:
        workspaces[low.name] = Buffer((A, R), INT64)
    return Plan("sort", tuple(launches), {"order": Buffer((A, R), INT64)}, workspaces)


def _sort_launches(total: int, P: int) -> list[KernelLaunch]:
    """Launches that sort rows of P words, `total` words in all."""

    def chunks(first: int, last: int) -> KernelLaunch:
        sizes = map(np.int64, (total, P, first, last))
        return KernelLaunch(
            "sort/bitonic.cu", "sort_chunks", -(-total // CHUNK), CHUNK_THREADS, (ArrayArg("words"), *sizes)
        )

    def exchange(length: int, distance: int) -> KernelLaunch:
        sizes = map(np.int64, (total // 2, P, length, distance))
        return KernelLaunch(
            "sort/bitonic.cu", "exchange", -(-(total // 2) // BLOCK), BLOCK, (ArrayArg("words"), *sizes)
        )

    launches = [chunks(2, min(P, CHUNK))] if P > 1 else []
    length = 2 * CHUNK
    while length <= P:
        distance = length // 2
        while distance >= CHUNK:
            launches.append(exchange(length, distance))
            distance //= 2
        launches.append(chunks(length, length))
        length *= 2
    return launches
