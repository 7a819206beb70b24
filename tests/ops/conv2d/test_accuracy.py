"""Sums of tensor cores are promoted: `float32` rows on long sums of positive numbers, on a GPU.

Tensor cores truncate as they add, so that a sum of positive numbers shrinks with every product: see "Promotion" in
docs/kernels/fp16_terms.md. The emulator adds exactly, and numbers of either sign hide it. So this needs a GPU and
positive operands.
"""

from __future__ import annotations

import numpy as np
import pytest
from conv2d_cases import OPERATORS, make, relative_error

import alpha
import alpha.nn.functional as F
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import WEIGHT, Configuration, MathMode
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape

# The largest errors of docs/benchmarks.md are 3.4e-7 for Y and dX and 6.9e-7 for dW. `test_the_limit_separates` has a
# model of what promotion does to positive numbers: below half of the limit with it, ten times the limit without it.
LIMIT = 1e-6
ROWS = [v for v in CONFIGURATIONS if v.device == "cuda" and v.precision == "float32" and not v.is_ffma]
LONG = make(64, (8, 8), (512, 512), (3, 3), p=(1, 1))  # K is 4608, for dW 4096 with split-K
FIRST = make(512, (32, 32), (3, 64), (7, 7), p=(3, 3))  # K is 147, for dW 2^19 over the blocks
LAST = make(512, (32, 32), (64, 3), (7, 7), p=(3, 3))


def shape_of(row: Configuration) -> ConvShape:
    if row.base is not None:
        return LAST
    return FIRST if row.name.startswith("direct") else LONG


@pytest.mark.cuda
@pytest.mark.parametrize("row", ROWS, ids=lambda v: v.name)
def test_long_sums_of_positive_numbers(row: Configuration) -> None:
    device, s = alpha.get_device("cuda"), shape_of(row)
    if not row.supports(s, cuda_target(device)):
        pytest.skip(f"{row.name} is for another GPU than {device.properties.name}")
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 1.5, getattr(s, name)).astype(np.float32) for name in OPERATORS[row.operator][1]]
    found = device.download(compute(row, *(device.upload(a) for a in arrays), s)).astype(np.float64)
    exact = OPERATORS[row.operator][0](*(a.astype(np.float64) for a in arrays), s)
    assert relative_error(found, exact) < LIMIT


@pytest.mark.parametrize(("scale", "limit"), [(1.0, LIMIT), (1e-34, LIMIT), (1e-38, 1e-3)])
def test_tiny_numbers(scale: float, limit: float) -> None:
    """The smaller part of a number near 1e-38 is no normal number, and loses bits; the README says so."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((8, 6, 6, 64)) * scale).astype(np.float32), rng.standard_normal((64, 3, 3, 64))
    found = [
        F.conv2d(*(alpha.tensor(v.astype(dtype), device=device) for v in (x, w.astype(np.float32))), padding=1)
        for device, dtype in (("cuda", np.float32), ("cpu", np.float64))
    ]
    assert relative_error(*(y.numpy() / np.float64(scale) for y in found)) < limit


@pytest.mark.cuda
@pytest.mark.parametrize("row", [v for v in CONFIGURATIONS if v.math is MathMode.BF16X3], ids=lambda v: v.name)
def test_truncated_sums_leave_bfloat16_terms_more_exact_than_tf32(row: Configuration) -> None:
    """The sums are not promoted. One scaled fp16 term has an error of 2.9e-4."""
    device = alpha.get_device("cuda")
    if not row.supports(LONG, cuda_target(device)):
        pytest.skip(f"{row.name} is for another GPU than {device.properties.name}")
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 1.5, getattr(LONG, name)).astype(np.float32) for name in OPERATORS[WEIGHT][1]]
    found = device.download(compute(row, *(device.upload(a) for a in arrays), LONG)).astype(np.float64)
    assert relative_error(found, OPERATORS[WEIGHT][0](*(a.astype(np.float64) for a in arrays), LONG)) < 1e-4


def tensor_core_sum(A: np.ndarray, B: np.ndarray, depth: int, promote: int) -> np.ndarray:
    """A (M, K), B (N, K) -> A B^T, cut to 24 bits after each `depth` of K, each `promote` of K summed apart.

    The three products of two fp16 terms, hi and lo of 11 bits each, as in docs/kernels/fp16_terms.md.
    """

    def planes(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hi = X.astype(np.float16).astype(np.float64)
        return hi, (X - hi).astype(np.float16).astype(np.float64)

    (a, a_lo), (b, b_lo) = planes(A), planes(B)
    total, block = np.zeros((len(A), len(B)), np.float32), np.zeros((len(A), len(B)))
    for k in range(0, A.shape[1], depth):
        if k % promote == 0:
            total, block = total + block.astype(np.float32), np.zeros_like(block)
        at = slice(k, k + depth)
        for left, right in ((a_lo, b), (a, b_lo), (a, b)):
            mantissa, exponent = np.frexp(block + left[:, at] @ right[:, at].T)
            block = np.ldexp(np.trunc(mantissa * 2**24), exponent - 24)
    return total + block.astype(np.float32)


@pytest.mark.parametrize(("depth", "promote"), [(16, 64), (8, 32)], ids=["wgmma", "mma.sync"])
def test_the_limit_separates(depth: int, promote: int) -> None:
    rng = np.random.default_rng(0)
    A, B = rng.uniform(0.5, 1.5, (2, 24, 4608)).astype(np.float32)
    exact = A.astype(np.float64) @ B.T.astype(np.float64)
    assert relative_error(tensor_core_sum(A, B, depth, promote), exact) < LIMIT / 2
    assert relative_error(tensor_core_sum(A, B, depth, 4608), exact) > 10 * LIMIT


def test_rows_that_promote_are_tried() -> None:
    assert {v.operator for v in ROWS} == set(OPERATORS)
    assert any(v.operator == WEIGHT and shape_of(v) is FIRST for v in ROWS)
