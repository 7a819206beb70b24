"""Plans of the kernels of cuda/matmul: batches of matrix products of any size, by FFMA or on tensor cores."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.ops.kernel.casts import CUDA_TYPES
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan
from alpha.ops.kernel.sums import plan_reduce_splits
from alpha.runtime.work import Work

LARGE, SMALL, DEPTH = (128, 64), (64, 64), 16  # of FFMA: a block's tile of Y, and its step along K
THREADS = 256
FFMA = "matmul"  # its name among the kernel configurations
MMA_TILES = (128, 96), (64, 64), (32, 32)  # the most rows and columns of a tile on tensor cores
MMA_ROWS, MMA_COLUMNS = 16, 8  # of a fragment
MMA_SHARED = 48 << 10  # bytes; the static shared memory that every GPU has


class Product(NamedTuple):
    """Y (D, M, N) = A B over K, with A and B as they are stored or transposed."""

    D: int
    M: int
    N: int
    K: int
    transpose_a: bool
    transpose_b: bool

    def __str__(self) -> str:
        a, b = ("^T" if transposed else "" for transposed in (self.transpose_a, self.transpose_b))
        return f"matmul A{a} B{b} D {self.D} M {self.M} N {self.N} K {self.K}"


def ffma(p: Product, A: Array, B: Array) -> Array:
    """A (D, M, K) or (D, K, M), B (D, K, N) or (D, N, K), float32 -> Y (D, M, N)"""
    plan = _plan_ffma(p, B.shape[0] == 1, _vector(A, B), A.device.properties.num_sms)
    return plan.launch(A.device, {"A": A, "B": B})["Y"]


def mma(p: Product, A: Array, B: Array, out: np.dtype[Any]) -> Array:
    """The same by tf32, from sm_80 on; A and B may be bfloat16, and Y is `out`, or float32 if K is split"""
    plan = plan_mma(p, B.shape[0] == 1, _vector(A, B), (A.dtype, out), A.device.properties.num_sms)
    return plan.launch(A.device, {"A": A, "B": B})["Y"]


def aligned(A: Array, B: Array) -> bool:
    """True if both addresses allow loads of 16 bytes."""
    return all(X.address % 16 == 0 for X in (A, B))


def _vector(A: Array, B: Array) -> int:
    """Elements of a load."""
    return 4 if A.shape[2] % 4 == 0 and B.shape[2] % 4 == 0 and aligned(A, B) else 1


@functools.lru_cache(maxsize=4096)
def _plan_ffma(p: Product, one_b: bool, vector: int, processors: int) -> Plan:
    """The product by cuda/matmul/ffma.cu; `one_b`: one B serves every A; `vector`: elements of a load."""
    tile = ffma_tile(p, vector, processors)
    macros = {"BM": tile[0], "BN": tile[1], "BK": DEPTH}
    return _plan(p, _Kernel("ffma.cu", "matmul", THREADS, macros, None), one_b, vector, processors)


def ffma_tile(p: Product, vector: int, processors: int) -> tuple[int, int]:
    """The large tile if it fills the device; with loads of single elements it would need too many registers."""
    return LARGE if vector == 4 and _blocks(p, LARGE) >= processors else SMALL


@functools.lru_cache(maxsize=4096)
def plan_mma(
    p: Product, one_b: bool, vector: int, dtypes: tuple[np.dtype[Any], np.dtype[Any]], processors: int
) -> Plan:
    """The product by cuda/matmul/sm80.cu; `vector`: elements of a load, 1 or 4; `dtypes`: of A and B, of Y."""
    tile = mma_tile(p, vector, processors)
    macros = {
        **{"BM": tile.BM, "BN": tile.BN, "BK": tile.BK, "WARPS_N": tile.warps_n},
        "MATH": "BF16" if dtypes[0] == BFLOAT16 else "TF32",
        "TYPE": CUDA_TYPES[dtypes[0]],
    }
    threads = 32 * tile.BM // MMA_ROWS * tile.warps_n
    return _plan(p, _Kernel("sm80.cu", "matmul_sm80", threads, macros, dtypes[1]), one_b, vector, processors)


class MmaTile(NamedTuple):
    """Rows and columns of a block's tile of Y, its step along K, and its warps side by side."""

    BM: int
    BN: int
    BK: int
    warps_n: int


def mma_tile(p: Product, vector: int, processors: int) -> MmaTile:
    """The largest tile of which the product has enough to fill the device."""
    tiles = [_mma_tile(p, *most) for most in MMA_TILES]
    BM, BN, warps_n = next((tile for tile in tiles if _blocks(p, tile[:2]) >= processors), tiles[-1])
    deep = vector == 4 and _mma_bytes(p, BM, BN, 32) <= MMA_SHARED  # loads of single elements: fewer
    return MmaTile(BM, BN, 32 if deep else 16, warps_n)


def _mma_tile(p: Product, most_rows: int, most_columns: int) -> tuple[int, int, int]:
    """Rows and columns of a tile, and warps side by side: equal tiles of four warps or more that exceed Y by little."""
    BM = _even_part(p.M, most_rows, MMA_ROWS)
    warps_n = 4 if BM == MMA_ROWS else 2 if BM < 4 * MMA_ROWS else 1
    return BM, _even_part(p.N, most_columns, max(2, warps_n) * MMA_COLUMNS), warps_n


def _even_part(length: int, most: int, step: int) -> int:
    """The length of the fewest equal parts that are not longer than `most`, a multiple of `step`."""
    part = -(-length // -(-length // most))
    return -(-part // step) * step


def _mma_bytes(p: Product, BM: int, BN: int, BK: int) -> int:
    """The shared memory of a block."""
    a = BK * (BM + 8) if p.transpose_a else BM * (BK + 4)
    b = BN * (BK + 4) if p.transpose_b else BK * (BN + 8)
    return 2 * 4 * (a + b)


class _Kernel(NamedTuple):
    """A kernel of cuda/matmul.

    Attributes:
        writes: the dtype of Y if K is not split; None for a kernel that always writes floats.
    """

    file: str
    entry: str
    threads: int
    macros: dict[str, Any]
    writes: np.dtype[Any] | None


def _plan(p: Product, kernel: _Kernel, one_b: bool, vector: int, processors: int) -> Plan:
    """The launch of a kernel; a long K of few tiles is split so that the blocks fill the device."""
    D, M, N, K = p[:4]
    blocks, step = _blocks(p, (kernel.macros["BM"], kernel.macros["BN"])), kernel.macros["BK"]
    splits, depth = splits_of(K, step, blocks, processors)
    dtype = kernel.writes if kernel.writes is not None and splits == 1 else FLOAT32
    macros = {**kernel.macros, "TRANSPOSE_A": int(p.transpose_a), "TRANSPOSE_B": int(p.transpose_b), "VECTOR": vector}
    if kernel.writes is not None:
        macros["OUTPUT"] = CUDA_TYPES[dtype]
    result = Buffer((D, M, N), dtype)
    sums = Plan("none", (), {}) if splits == 1 else plan_reduce_splits("part", "Y", splits, result, processors)
    workspaces = {} if splits == 1 else {"part": Buffer((splits, D, M, N), FLOAT32), **sums.workspaces}
    launch = KernelLaunch(
        f"matmul/{kernel.file}",
        kernel.entry,
        blocks * splits,
        kernel.threads,
        (ArrayArg("Y" if splits == 1 else "part"), ArrayArg("A"), ArrayArg("B"), M, N, K, D, depth, int(one_b)),
        macros,
        does=Work(2.0 * D * M * N * K, math=macros.get("MATH", "FP32")),
    )
    return Plan(kernel.entry, (launch, *sums.launches), {"Y": result}, workspaces, operator="matmul")


def splits_of(K: int, step: int, blocks: int, processors: int) -> tuple[int, int]:
    """The number of splits of K, so that `blocks` tiles fill the device, and the depth of each: whole steps."""
    steps = -(-K // step)
    splits = max(1, min(2 * processors // blocks, steps * step // (8 * DEPTH)))
    depth = -(-steps // splits) * step
    return -(-K // depth), depth


def _blocks(p: Product, tile: tuple[int, int]) -> int:
    return p.D * -(-p.M // tile[0]) * -(-p.N // tile[1])
