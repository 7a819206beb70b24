"""Shapes, operands and devices that tests of convolutions share."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import conv2d_reference as reference
import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import alpha
from alpha.errors import ShapeError
from alpha.ops.conv2d import cpu
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape, conv_shape
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver

OPERATORS = {
    FORWARD: (reference.forward, ("X", "W")),
    INPUT: (reference.backward_input, ("Y", "W")),
    WEIGHT: (reference.backward_weight, ("X", "Y")),
}
CUDA_ROWS = [v for v in CONFIGURATIONS if v.device == "cuda"]


def make(
    N: int,
    I: tuple[int, int],
    C: tuple[int, int],
    F: tuple[int, int],
    s: tuple[int, int] = (1, 1),
    p: tuple[int, int] = (0, 0),
) -> ConvShape:
    return conv_shape("test", (N, *I, C[0]), (C[1], *F, C[0]), s, p)


SIMPLE = make(64, (4, 4), (4, 64), (3, 3), p=(1, 1))
# few tiles, and so much of K that they are cut
LONG = make(24, (3, 3), (384, 384), (3, 3), (2, 2), (1, 1))
# last layers of few output channels, for the rows that are for them alone
FEW_OUTPUTS = (
    make(5, (6, 9), (24, 3), (3, 3), p=(1, 0)),
    make(3, (5, 8), (40, 4), (1, 1)),
    make(2, (7, 4), (72, 3), (2, 4), p=(0, 2)),
)
# more tiles than SMs
MANY = make(264, (12, 12), (8, 8), (3, 3), p=(1, 1))


@st.composite
def shapes(draw: st.DrawFn, images: int = 4, channels: st.SearchStrategy[int] | None = None) -> ConvShape:
    """Strides 1-4 and unequal, even and asymmetric filters, padding >= filter, IH < FH, sizes that nothing divides."""
    several = st.integers(1, 6) if channels is None else channels
    number = st.integers
    try:
        return make(
            draw(number(1, images)),
            (draw(number(1, 8)), draw(number(1, 8))),
            (draw(several), draw(several)),
            (draw(number(1, 5)), draw(number(1, 5))),
            (draw(number(1, 4)), draw(number(1, 4))),
            (draw(number(0, 5)), draw(number(0, 5))),
        )
    except ShapeError:
        assume(False)
        raise


def operands(operator: str, s: ConvShape, dtype: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first, second = (rng.standard_normal(getattr(s, n)).astype(dtype) for n in OPERATORS[operator][1])
    return first, second


def relative_error(value: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(value - exact) / max(np.linalg.norm(exact), 1e-30))


CPU_FORMS = [
    (FORWARD, cpu.conv_v2_patches),
    (FORWARD, cpu.conv_v2_pixels),
    (INPUT, cpu.ks_deconv_patches),
    (INPUT, cpu.ks_deconv_pixels),
    (WEIGHT, cpu.sk_dilated_patches),
    (WEIGHT, cpu.sk_dilated_taps),
]


def cuda_shapes() -> list[ConvShape]:
    """Small shapes at the edges of the tiles."""
    maps = [
        ((4, 4), (3, 3), (1, 1), (1, 1)),
        ((5, 3), (2, 4), (2, 1), (1, 3)),
        ((6, 6), (3, 3), (2, 2), (1, 1)),
        ((2, 2), (3, 3), (1, 1), (1, 1)),
        ((3, 7), (1, 1), (3, 2), (0, 0)),
        ((2, 3), (5, 4), (1, 2), (4, 2)),
        ((5, 5), (2, 2), (4, 3), (3, 2)),
    ]
    sizes = [
        (3, 3, 20),
        (2, 8, 5),
        (50, 16, 20),
        (130, 40, 16),
        (64, 128, 128),
        (7, 1, 70),
        (70, 72, 264),
        (4, 3, 24),  # a first layer with whole 16 bytes of bfloat16
        (600, 1, 4),  # more images than blocks at a time
    ]
    result = []
    for (I, F_, s, p), (N, IC, OC) in itertools.product(maps, sizes):
        if N > 60 and I not in ((2, 2), (5, 3)):
            continue  # a few large ones are enough on the emulated driver
        result.append(make(N, I, (IC, OC), F_, s, p))
    return [*result, LONG]


def arrays_of(row: Configuration) -> np.dtype:
    """Dtype in which the operands of a row are stored."""
    return np.dtype(ml_dtypes.bfloat16 if row.precision == "bf16" else np.float32)


@functools.cache
def reordered(arch: str, seed: int = 1, num_sms: int | None = None) -> CudaDevice:
    """The GPU, or an emulated one whose blocks, warps and lanes run in another order, so that a rerun can differ."""
    device = alpha.get_device("cuda")
    if device.driver.name != "emulated":
        return device
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALPHA_ARCH", arch)
        patch.setenv("ALPHA_EMULATED_SEED", str(seed))
        return _with_sms(num_sms)


@functools.cache
def hopper(num_sms: int | None = None) -> CudaDevice:
    """The GPU if it is a Hopper one, else the emulated driver as one, if wanted with so many SMs."""
    device = alpha.get_device("cuda")
    if device.properties.compute_capability == (9, 0):
        return device
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALPHA_ARCH", "sm_90a")
        return _with_sms(num_sms)


def _with_sms(num_sms: int | None) -> CudaDevice:
    """An emulated GPU, if wanted with so many SMs."""
    driver = EmulatedDriver()
    if num_sms is not None:
        driver.properties = dataclasses.replace(driver.properties, num_sms=num_sms)
    return CudaDevice(driver)
