"""The emulated driver is fast enough to test with: convolutions at 2 GFLOP/s per core, a kernel compiled within 2 s.

`pytest -m "" -rP tests/emulation/test_emulation_speed.py` prints the speed of this machine. Both are timed by the
processor's clock, which stands still while other work runs. A convolution runs again only if it was too slow: the
machine may have been busy. The tests allow a slow machine a quarter of the speed and four times the time.
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
    s = DEEP if row.supports(DEEP, cuda_target(device)) else STEM
    shapes = {FORWARD: (s.X, s.W), INPUT: (s.Y, s.W)}.get(row.operator, (s.X, s.Y))
    dtype = BFLOAT16 if row.precision == "bf16" else FLOAT32
    first, second = (device.upload(np.ones(shape, dtype)) for shape in shapes)
    operations = 2e-9 * s.useful * s.N * s.OH * s.OW * s.OC * s.FH * s.FW * s.IC
    speed = 0.0
    for _ in range(RUNS):
        start = time.process_time()
        compute(row, first, second, s)
        speed = max(speed, operations / (time.process_time() - start))
        if speed > GFLOPS / MARGIN:
            break
    print(f"{row.name}: {speed:.1f} GFLOP/s")
    assert speed > GFLOPS / MARGIN


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
