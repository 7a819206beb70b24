"""Matrix products on CUDA: by the tensor-core kernels of the convolutions if they are faster, otherwise by cuda/matmul.

A product is a 1 x 1 convolution of a 1 x 1 map:

    A B^T   A (M, K), B (N, K)   conv2d_forward          X = A (M, 1, 1, K), W = B (N, 1, 1, K)  -> Y  (M, 1, 1, N)
    A B     A (M, K), B (K, N)   conv2d_backward_input   dY = A (M, 1, 1, K), W = B (K, 1, 1, N) -> dX (M, 1, 1, N)
    A^T B   A (K, M), B (K, N)   conv2d_backward_weight  X = B (K, 1, 1, N), dY = A (K, 1, 1, M) -> dW (M, 1, 1, N)

Neither A^T B^T nor a batch is one of them. A convolution on FFMA is not used: cuda/matmul does the same, and splits a
long K for all of the products (gemm/tiles.py).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import config
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.ops.conv2d.plan import compute, cuda_target
from alpha.ops.conv2d.problem import Configuration, Target, seen_by_kernels
from alpha.ops.conv2d.select import time_model, tune
from alpha.ops.conv2d.select.choose import choose
from alpha.ops.conv2d.select.product_table import as_convolution
from alpha.ops.gemm.tiles import FFMA, Product, aligned, ffma, mma
from alpha.ops.kernel.casts import as_dtype, as_float32, require_same_float
from alpha.ops.kernel.elementwise import add
from alpha.runtime import Device


def multiply(
    p: Product, A: Array, B: Array, precision: str, out: np.dtype[Any] = FLOAT32, bias: Array | None = None
) -> Array:
    """A, B, both float32 or both bfloat16 -> Y (D, M, N); `mma` writes the dtype `out`, other kernels their own

    A bias (N,) float32 is added in the kernel if it can, before Y is rounded.
    """
    require_same_float("matmul", A, B)
    narrow = A.dtype == BFLOAT16
    v = choose_configuration(p, A.device, "bf16") if narrow and aligned(A, B) else None
    if v is not None:
        return run_configuration(p, v, A, B, bias)
    # tf32 keeps all bits of bfloat16, and more bits of float32 than bfloat16 does
    precision = "tf32" if narrow or precision == "bf16" else precision
    tensor_cores = precision == "tf32" and cuda_target(A.device).compute_capability >= (8, 0)
    if tensor_cores and (narrow or p.D > 1):  # a batch, or what no configuration takes in bfloat16
        return _with_bias(mma(p, A, B, out), bias)
    A, B = as_float32(A), as_float32(B)
    v = choose_configuration(p, A.device, precision) if aligned(A, B) else None
    return _with_bias(ffma(p, A, B), bias) if v is None else run_configuration(p, v, A, B, bias)


def _with_bias(Y: Array, bias: Array | None) -> Array:
    return Y if bias is None else add(Y, bias, out=Y)


# -- configurations of the convolution table --------------------------------------------------------


def choose_configuration(p: Product, device: Device, precision: str) -> Configuration | None:
    """The configuration that computes a product, or None if `ffma` does, or if none takes bfloat16 for "bf16".

    ALPHA_CONV_KERNEL forces a configuration, ALPHA_TUNE=1 measures the best one and `ffma`, ALPHA_DEBUG=1 prints each
    choice once.
    """
    return _choose_configuration(
        p, device, precision, config.CONV_KERNEL.get(), config.TUNE.flag(), config.DEBUG.flag(), config.CACHE_DIR.get()
    )


@functools.lru_cache(maxsize=4096)
def _choose_configuration(
    p: Product, device: Device, precision: str, forced: str, tuned: bool, debug: bool, cache: str
) -> Configuration | None:
    found = as_convolution(p)
    if found is None:
        return None
    target = cuda_target(device)
    v = choose(*found, target, precision)
    if precision == "bf16" and v.precision != "bf16":
        return None
    wanted = v.name == forced or faster_than_ffma(p, v, target)
    if tuned and v.name != forced and not v.is_ffma:
        names = (v.name, FFMA) if wanted else (FFMA, v.name)
        wanted = tune.best_of(device, f"{p} {precision}", names, lambda on: _calls(p, v, on)) == v.name
    if debug:
        print(f"alpha: {p} {precision}: {v.name if wanted else FFMA}", file=sys.stderr)
    return v if wanted else None


def faster_than_ffma(p: Product, v: Configuration, target: Target) -> bool:
    """True if the model predicts that a configuration takes less time than `ffma`, as in the choice of a convolution.

    For bfloat16 any configuration counts as faster, for `ffma` would need three casts. One on FFMA does not count, for
    `ffma` does the same.
    """
    if v.is_ffma:
        return False
    if v.precision == "bf16":
        return True
    found = as_convolution(p)
    assert found is not None
    constants, seen = time_model.constants_of(target.name), seen_by_kernels(found[1], target)
    return time_model.cycles(v, seen, target, constants) < time_model.product_cycles(p, target, constants)


def run_configuration(p: Product, v: Configuration, A: Array, B: Array, bias: Array | None = None) -> Array:
    """A, B (1, ..), (1, ..) as stored -> Y (1, M, N) of the dtype that the configuration writes"""
    found = as_convolution(p)
    assert found is not None
    a, b = (x.reshape(x.shape[1], 1, 1, x.shape[2]) for x in (A, B))
    first, second = (b, a) if p.transpose_a else (a, b)
    fits = bias is not None and bias.dtype == FLOAT32 and bias.address % 16 == 0
    fused = bias if fits and v.supports_epilogue else None
    Y = compute(v, first, second, found[1], fused).reshape(1, p.M, p.N)
    return Y if fused is not None else _with_bias(Y, bias)


def _calls(p: Product, v: Configuration, device: Device) -> dict[str, Callable[[], Array]]:
    """Calls for the autotuner, on scratch operands; for a bfloat16 product `ffma` is measured with its casts."""
    a = (1, p.K, p.M) if p.transpose_a else (1, p.M, p.K)
    b = (1, p.N, p.K) if p.transpose_b else (1, p.K, p.N)
    dtype = BFLOAT16 if v.precision == "bf16" else FLOAT32
    A, B = (tune.scratch(device, shape, dtype) for shape in (a, b))
    return {
        v.name: lambda: run_configuration(p, v, A, B),
        FFMA: lambda: as_dtype(ffma(p, as_float32(A), as_float32(B)), A.dtype),
    }
