"""The emulated driver is fast enough to test with: a convolution computes 2 GFLOP/s, a kernel compiles within 2 s.

`pytest -m "" -rP tests/emulation/test_emulation_speed.py` prints the speed of this machine. Both are timed by the
processor's clock, which stands still while other work runs, but not while other work shares a core's units and caches.
Therefore one kernel, `implicit_gemm_ffma`, is timed by itself, with a quarter of the speed allowed to a slow machine.
Every other kernel is compared with that one in turn on the same machine. Each runs again only if it was too slow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import sample_names

from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.errors import AlphaError
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, INPUT, Configuration
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import conv_shape
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver

GFLOPS, COMPILE_SECONDS, MARGIN = 2.0, 2.0, 4
RUNS = 3  # at most
REFERENCE = "implicit_gemm_ffma"
LEAST_SHARE = 0.1  # of the reference's speed; tiles of 32x32 reach 0.2: they wait most often for each product
IN_MAKE_TEST = ("conv_v2_sm90_bf16_128x64",)
DEEP = conv_shape("test", (128, 4, 4, 128), (128, 3, 3, 128), (1, 1), (1, 1))
# a batch that fills the blocks' chunks: a smaller one times the start of 264 blocks
STEM = conv_shape("test", (64, 32, 32, 3), (64, 3, 3, 3), (1, 1), (1, 1))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    monkeypatch.setenv("ALPHA_ARCH", "sm_90a")
    monkeypatch.delenv("ALPHA_EMULATED_OPTIMIZE", raising=False)  # tests choose a lower one
    try:
        on = CudaDevice(EmulatedDriver())
    except AlphaError as error:
        pytest.skip(str(error))
    yield on
    on.close()


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=() if row.name in IN_MAKE_TEST else pytest.mark.gate)
        for row in CONFIGURATIONS
        if row.device == "cuda" and row.name in sample_names(CONFIGURATIONS)
        if row.base is None  # the others launch the kernel of another row
    ],
)
def test_convolutions(device: CudaDevice, row: Configuration) -> None:
    reference = next(each for each in CONFIGURATIONS if each.name == REFERENCE)
    speed = base = 0.0
    for _ in range(RUNS):
        base = max(base, gflops(device, reference))
        speed = max(speed, gflops(device, row))
        if base > GFLOPS / MARGIN and speed > LEAST_SHARE * base:
            break
    print(f"{row.name}: {speed:.1f} GFLOP/s, {speed / base:.2f} of {REFERENCE}")
    assert base > GFLOPS / MARGIN
    assert speed > LEAST_SHARE * base


def gflops(device: CudaDevice, row: Configuration) -> float:
    """Return the speed of one convolution, in 10^9 operations of its arithmetic a second.

    A product of operands in two terms counts as the three products that are computed for it.
    """
    s = DEEP if row.supports(DEEP, cuda_target(device)) else STEM
    shapes = {FORWARD: (s.X, s.W), INPUT: (s.Y, s.W)}.get(row.operator, (s.X, s.Y))
    dtype = BFLOAT16 if row.precision == "bf16" else FLOAT32
    first, second = (device.upload(np.ones(shape, dtype)) for shape in shapes)
    products = 3 if row.math.terms == 2 else 1
    operations = 2e-9 * products * s.useful * s.N * s.OH * s.OW * s.OC * s.FH * s.FW * s.IC
    start = time.process_time()
    compute(row, first, second, s)
    return operations / (time.process_time() - start)


COMPILED = {
    "ks_deconv_sm80_tf32x3_64x64": "ks_deconv/sm80.cu",
    "conv_v2_sm80_tf32x3_64x64": "conv_v2/sm80.cu",
    "sk_dilated_sm80_tf32x3_64x64": "sk_dilated/sm80.cu",
    "implicit_gemm_ffma": "implicit_gemm/ffma.cu",
}


@pytest.mark.gate
@pytest.mark.parametrize("name", COMPILED)
def test_compilation(device: CudaDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    row = next(row for row in CONFIGURATIONS if row.name == name)
    options = [f"-DALPHA_{key}={value}" for key, value in row.macros.items()]
    monkeypatch.setenv("ALPHA_CACHE_DIR", str(tmp_path))
    device.driver.compile(source_root() / "runtime" / "fill.cu", [])  # the headers, once for all kernels
    times = []
    for _ in range(2):
        start = sum(os.times()[:4])  # of the processor: this process and the compiler
        device.driver.compile(source_root() / "conv2d" / COMPILED[name], options)
        times.append(sum(os.times()[:4]) - start)
    print(f"{name}: {times[0]:.2f} s, {1e3 * times[1]:.1f} ms from the cache")
    assert times[0] < COMPILE_SECONDS * MARGIN
    assert times[1] < 0.1 * times[0]
