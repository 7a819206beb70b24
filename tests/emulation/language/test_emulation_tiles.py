"""cp.async, mma.sync and ldmatrix of the emulated driver, against numpy."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from kernel_emulator import Emulator
from kernel_products import tile_product, widened

from alpha import config

SOURCE = "tiles.cu"
M, N, K = 128, 64, 96
RNG = np.random.default_rng(0)

Floats = npt.NDArray[np.float32]


def factors(m: int = M, n: int = N, k: int = K) -> tuple[Floats, Floats]:
    shapes = ((m, k), (n, k))
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in shapes)
    return a, b


def tf32(x: Floats) -> Floats:
    """The nearest float with 10 bits of mantissa, ties away from zero."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def bf16(x: Floats) -> npt.NDArray[np.uint16]:
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


@pytest.fixture(params=[0, 1, 2])
def seeded(request: pytest.FixtureRequest, emulator_for: Callable[..., Emulator]) -> Emulator:
    return emulator_for(ALPHA_EMULATED_SEED=request.param)


def test_ffma_product(seeded: Emulator) -> None:
    a, b = factors()
    np.testing.assert_allclose(tile_product(seeded, "ffma", a, b), a @ b.T, atol=1e-4)


def test_tf32_product(seeded: Emulator) -> None:
    a, b = factors()
    np.testing.assert_allclose(tile_product(seeded, "tf32", a, b), tf32(a) @ tf32(b).T, atol=1e-4)


def test_bf16_product_through_ldmatrix(seeded: Emulator) -> None:
    a, b = (bf16(x) for x in factors(32, 48, 64))
    c = np.empty((32, 48), np.float32)
    seeded(SOURCE, "product_bf16", (3, 2, 1), 32, a, np.ascontiguousarray(b.T), c, 48, 64)
    np.testing.assert_allclose(c, widened(a) @ widened(b).T, atol=1e-4)


def test_f16_product_through_ldmatrix(seeded: Emulator) -> None:
    a, b = (x.astype(np.float16) for x in factors(32, 48, 64))
    a[0, :4] = 6e-8, 3e-5, 6e4, -0.0  # subnormal, subnormal, near the largest
    c = np.empty((32, 48), np.float32)
    seeded(SOURCE, "product_f16", (3, 2, 1), 32, a, np.ascontiguousarray(b.T), c, 48, 64)
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    np.testing.assert_allclose(c, exact, atol=1e-4, rtol=1e-6)


def test_copies_with_zero_fill(seeded: Emulator) -> None:
    x, y = np.arange(1, 385, dtype=np.float32), np.empty((3, 128), np.float32)
    seeded(SOURCE, "copies", 1, 128, x, y, 100)
    i = np.arange(128)
    np.testing.assert_array_equal(y[0], np.where(i < 100, x[:128], 0))
    np.testing.assert_array_equal(y[1], np.where((i < 40) | (i % 2 == 0), x[128:256], 0))
    np.testing.assert_array_equal(y[2], np.where((i < 80) & (i % 4 < 3), x[256:], 0))


@pytest.mark.skipif(bool(config.EMULATED_SANITIZE.get()), reason="sanitized kernels are slow")
@pytest.mark.parametrize("kind", ["ffma", "tf32"])
def test_speed_floor(kind: str, emulator: Emulator) -> None:
    """Far below what it reaches on an idle core, so that only a real slow-down fails."""
    a, b = factors(256, 256, 512)
    tile_product(emulator, kind, a, b)
    times = []
    for _ in range(3):
        start = time.process_time()
        tile_product(emulator, kind, a, b)
        times.append(time.process_time() - start)
    rate = 2e-9 * 256 * 256 * 512 / min(times)  # the others shared their core
    print(f"{kind}: {rate:.2f} GFLOP/s")
    assert rate > 0.5
