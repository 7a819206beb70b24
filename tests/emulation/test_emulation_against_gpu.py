"""The emulated driver and a GPU give the same results for the same kernels: the twins are true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from kernel_emulator import Emulator
from kernel_products import OnDevice, tile_product, wgmma_product

from alpha.errors import DeviceError

pytestmark = pytest.mark.cuda
RNG = np.random.default_rng(7)
Case = Callable[[Emulator], Any]


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def bf16(x: Any) -> Any:
    """Bits of bfloat16, truncated."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


X, A, B = normal(384), normal(128, 160), normal(256, 160)
P, Q = bf16(normal(96, 128)), bf16(normal(96, 256))
HALVES = normal(128, 96).astype(np.float16), normal(96, 256).astype(np.float16)


def run(source: str, entry: str, threads: int, out: Any, *args: Any, grid: int = 1, **more: Any) -> Case:
    def case(launch: Emulator) -> Any:
        result = np.zeros_like(out)
        launch(source, entry, grid, threads, *args, result, **more)
        return result

    return case


def floats(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def copies(launch: Emulator) -> Any:
    y = floats(3, 128)
    launch("tiles.cu", "copies", 1, 128, X, y, 100)
    return y


def bf16_by_ldmatrix(launch: Emulator) -> Any:
    c = floats(128, 256)
    a = np.ascontiguousarray(P.T)
    launch("tiles.cu", "product_bf16", (16, 8, 1), 32, a, Q, c, 256, 96)
    return c


def f16_by_ldmatrix(launch: Emulator) -> Any:
    c = floats(128, 256)
    launch("tiles.cu", "product_f16", (16, 8, 1), 32, *HALVES, c, 256, 96)
    return c


CASES: dict[str, Case] = {
    "shuffles": run("semantics.cu", "shuffles", 64, floats(6, 64), X[:64].copy()),
    "votes": run("semantics.cu", "votes", 64, np.zeros(64, np.uint32)),
    "reductions": run("semantics.cu", "barrier_reductions", 100, np.zeros(100, np.int32)),
    "named barriers": run("semantics.cu", "named_barriers", 96, np.zeros(192, np.int32)),
    "arithmetic": run("semantics.cu", "arithmetic", 1, floats(10)),
    "block sum": run("semantics.cu", "block_sum", 128, floats(384), X, grid=3, shared_bytes=4),
    "cp.async": copies,
    "FFMA": lambda launch: tile_product(launch, "ffma", A, B),
    "mma tf32": lambda launch: tile_product(launch, "tf32", A, B),
    "mma bf16, ldmatrix": bf16_by_ldmatrix,
    "mma f16, ldmatrix": f16_by_ldmatrix,
}


def wgmma_tf32(registers: int) -> Case:
    def case(launch: Emulator) -> Any:
        device = OnDevice(launch)
        maps = device.tensor_map(A, (32, 64)), device.tensor_map(B, (32, 128))
        defines = {"N": 128, "A_REGISTERS": registers}
        return wgmma_product(launch, "product_tf32", maps, 128, 160, 192 * 128, **defines)

    return case


def wgmma_bf16(registers: int) -> Case:
    def case(launch: Emulator) -> Any:
        device = OnDevice(launch)
        maps = device.tensor_map(P, (64, 32)), device.tensor_map(Q, (64, 32))
        defines = {"N": 128, "A_REGISTERS": registers}
        return wgmma_product(launch, "product_bf16_transposed", maps, 128, 96, 3 * 4096, **defines)

    return case


def boxes(launch: Emulator) -> Any:
    tensor = X[:360].reshape(3, 6, 20)
    results = []
    for swizzle, x in ((0, -4), (32, 12), (64, 16), (128, -8)):
        out = np.zeros(8 * (swizzle or 64), np.uint8)
        tensor_map = OnDevice(launch).tensor_map(tensor, ((swizzle or 64) // 4, 4, 2), swizzle)
        args = (tensor_map, out, out.size, x, 4, -1)
        launch("hopper.cu", "copy_box", 1, 64, *args, shared_bytes=8192)
        results.append(out)
    return np.concatenate(results)


HOPPER: dict[str, Case] = {
    "TMA boxes": boxes,
    "wgmma tf32": wgmma_tf32(0),
    "wgmma tf32, a in registers": wgmma_tf32(1),
    "wgmma bf16 transposed": wgmma_bf16(0),
    "wgmma bf16, a in registers": wgmma_bf16(1),
}


@pytest.fixture(scope="module")
def gpu() -> Iterator[Emulator]:
    try:
        from alpha.runtime.cuda.driver_pycuda import PycudaDriver

        driver = PycudaDriver()
    except DeviceError as error:
        pytest.skip(str(error))
    yield Emulator(driver)
    driver.close()


@pytest.mark.parametrize("name", CASES)
def test_same_as_the_gpu(name: str, gpu: Emulator, emulator: Emulator) -> None:
    # Tensor cores truncate as they accumulate.
    np.testing.assert_allclose(CASES[name](emulator), CASES[name](gpu), rtol=1e-5, atol=5e-3)


@pytest.mark.parametrize("name", HOPPER)
def test_same_as_a_hopper_gpu(name: str, gpu: Emulator, emulator_for: Callable[..., Emulator]) -> None:
    if gpu.driver.properties.compute_capability != (9, 0):
        pytest.skip("wgmma needs compute capability 9.0")
    if not hasattr(gpu.driver, "encode_tiled_map"):
        pytest.skip("this driver makes no tensor maps")
    emulated = HOPPER[name](emulator_for(ALPHA_ARCH="sm_90a"))
    np.testing.assert_allclose(emulated, HOPPER[name](gpu), rtol=1e-5, atol=5e-3)
