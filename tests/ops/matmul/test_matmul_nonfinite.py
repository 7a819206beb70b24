"""Infinities, NaN and extreme magnitudes in the operands of matrix products."""

from __future__ import annotations

import numpy as np
import pytest
from test_matmul import error, gpu, operands_of

from alpha.ops.gemm.tiles import Product
from alpha.ops.matmul import cuda as matmul_cuda
from alpha.ops.matmul.matmul import matmul_batch

LIMITS = {"float32": 1e-6, "tf32": 1e-3}
NOT_FINITE = (np.nan, np.inf, -np.inf)
MAGNITUDES = ((1e-35, 1.0), (1e30, 1e-5), (1e36, 1e-35), (1e-35, 1e36), (1e-40, 1e4))  # the last are denormal


@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize("transposes", [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_matrix_products(
    arch: str, precision: str, transposes: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of Y of a NaN of A, columns of one of B; extreme magnitudes."""
    monkeypatch.setattr(matmul_cuda, "faster_than_ffma", lambda p, v, target: not v.is_ffma)
    matmul_cuda._choose_configuration.cache_clear()
    device = gpu(arch)
    p = Product(1, 136, 72, 200, *transposes)

    def product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return device.download(matmul_batch(device.upload(A), device.upload(B), *transposes, precision))[0]

    A, B, exact = operands_of(p)
    for which, axis in ((0, 0), (1, 1)):
        for value in NOT_FINITE:
            arrays = [A * np.float32(1e-6), B.copy()]
            k, other = 77, 5
            arrays[which][(0, k, other) if transposes[which] == (which == 0) else (0, other, k)] = value
            Y = product(*arrays)
            reached = ~np.isfinite(Y)
            assert (reached == (np.arange(Y.shape[axis]) == other)[(slice(None), None) if axis == 0 else None]).all()
            assert error(Y[~reached], exact[0][~reached] * 1e-6) < LIMITS[precision]
    for m in MAGNITUDES[:-1]:
        arrays = [(X * np.float64(x)).astype(np.float32) for X, x in zip((A, B), m, strict=True)]
        # of numbers near 1e-35 the smaller tf32 term is denormal and loses bits on a GPU (docs/kernels/fp16_terms.md)
        limit = LIMITS[precision] * (2 if min(m) == 1e-35 else 1)
        assert error(product(*arrays), exact[0] * m[0] * m[1]) < limit
    matmul_cuda._choose_configuration.cache_clear()
