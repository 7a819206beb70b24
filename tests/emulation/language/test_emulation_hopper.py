"""TMA, mbarrier and wgmma of the emulated driver, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from kernel_emulator import Emulator
from kernel_products import HostArray, OnDevice, wgmma_product, widened

from alpha.errors import DeviceError
from alpha.runtime.cuda.emulated.emulated_tensor_map import encode_tiled_map

SOURCE = "hopper.cu"
RNG = np.random.default_rng(0)

Maker = Callable[..., Emulator]


@pytest.fixture(params=[0, 1, 2])
def seeded(request: pytest.FixtureRequest, emulator_for: Maker) -> Emulator:
    return emulator_for(ALPHA_EMULATED_SEED=request.param, ALPHA_ARCH="sm_90a")


def swizzled(box: HostArray, swizzle: int) -> HostArray:
    """Rows of bytes as TMA stores them: vectors of 16 bytes change places by address bits 7 to 9."""
    flat = np.ascontiguousarray(box).view(np.uint8).reshape(-1)
    pieces = np.arange(flat.size) // 16
    mask = swizzle // 16 - 1 if swizzle else 0
    target = (pieces ^ (pieces >> 3 & mask)) * 16 + np.arange(flat.size) % 16
    out = np.empty_like(flat)
    out[target] = flat
    return out


@pytest.mark.slow
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_box_with_swizzle_and_zeros_outside(seeded: Emulator, swizzle: int) -> None:
    tensor = RNG.standard_normal((5, 6, 20)).astype(np.float32)
    inner = swizzle // 4 or 16
    box = (inner, 4, 2)
    for x, y, z in ((0, 0, 0), (-4, 4, -1), (12, -2, 4), (20, 0, 0)):
        padded = np.zeros((5 + 20, 6 + 20, 20 + 60), np.float32)
        padded[10:15, 10:16, 20:40] = tensor
        expected = padded[10 + z :][:2, 10 + y :][:, :4, 20 + x :][:, :, :inner]
        out = np.empty(expected.nbytes, np.uint8)
        tensor_map = OnDevice(seeded).tensor_map(tensor, box, swizzle)
        seeded(SOURCE, "copy_box", 1, 64, tensor_map, out, out.size, x, y, z, shared_bytes=8192)
        np.testing.assert_array_equal(out, swizzled(expected, swizzle))


@pytest.mark.slow
def test_a_box_begins_at_16_bytes(emulator: Emulator) -> None:
    """The hardware answers with an illegal instruction."""
    tensor = RNG.standard_normal((5, 6, 20)).astype(np.float32)
    tensor_map, out = OnDevice(emulator).tensor_map(tensor, (16, 4, 2), 64), np.zeros(512, np.uint8)
    with pytest.raises(DeviceError, match="tma_load at x = 3: 12 bytes are not a multiple of 16"):
        emulator(SOURCE, "copy_box", 1, 64, tensor_map, out, out.size, 3, 0, 0, shared_bytes=8192)


def tf32(x: HostArray) -> HostArray:
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def bf16(x: HostArray) -> npt.NDArray[np.uint16]:
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def normal(*shape: int) -> HostArray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "registers"), [(64, 1), (96, 0), (128, 1)])
def test_tf32_product(seeded: Emulator, width: int, registers: int) -> None:
    a, b = normal(128, 160), normal(2 * width, 160)
    device = OnDevice(seeded)
    maps = device.tensor_map(a, (32, 64)), device.tensor_map(b, (32, width))
    stage = (64 + width) * 128
    defines = {"N": width, "A_REGISTERS": registers}
    c = wgmma_product(seeded, "product_tf32", maps, 128, 160, stage, **defines)
    np.testing.assert_allclose(c, tf32(a) @ tf32(b).T, atol=1e-4)


@pytest.mark.slow
def test_bf16_product(seeded: Emulator) -> None:
    a, b = bf16(normal(64, 256)), bf16(normal(256, 256))
    device = OnDevice(seeded)
    maps = device.tensor_map(a, (64, 64)), device.tensor_map(b, (64, 128))
    c = wgmma_product(seeded, "product_bf16", maps, 64, 256, (64 + 128) * 128, N=128)
    np.testing.assert_allclose(c, widened(a) @ widened(b).T, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("registers", [0, 1])
def test_bf16_product_of_transposed_operands(seeded: Emulator, registers: int) -> None:
    a, b = bf16(normal(96, 128)), bf16(normal(96, 256))
    device = OnDevice(seeded)
    maps = device.tensor_map(a, (64, 32)), device.tensor_map(b, (64, 32))
    defines = {"N": 128, "A_REGISTERS": registers}
    c = wgmma_product(seeded, "product_bf16_transposed", maps, 128, 96, 3 * 4096, **defines)
    np.testing.assert_allclose(c, widened(a).T @ widened(b), atol=1e-4)


MISTAKES = {"no wait for the tiles": 1, "no wait for an empty stage": 2, "no wait for the products": 4}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=list(MISTAKES))
def test_missing_wait_is_seen(mistake: int, seed: int, emulator_for: Maker) -> None:
    launch = emulator_for(ALPHA_ARCH="sm_90a", ALPHA_EMULATED_SEED=seed)
    a, b = normal(64, 320), normal(128, 320)
    device = OnDevice(launch)
    maps = device.tensor_map(a, (32, 64)), device.tensor_map(b, (32, 64))
    try:
        c = wgmma_product(launch, "product_tf32", maps, 64, 320, 128 * 128, MISTAKE=mistake)
    except DeviceError:
        return  # the barriers no longer match: a deadlock
    assert not np.allclose(c, tf32(a) @ tf32(b).T, atol=1e-3)


def test_a_block_may_not_end_before_its_copies(emulator_for: Maker) -> None:
    """A copy that ends later would write to the shared memory of the block that comes next."""
    launch = emulator_for(ALPHA_ARCH="sm_90a")
    tensor_map = OnDevice(launch).tensor_map(RNG.standard_normal((5, 6, 20)).astype(np.float32), (16, 4, 2), 64)
    out = np.zeros(512, np.uint8)
    arguments = (tensor_map, out, out.size, 0, 0, 0)
    with pytest.raises(DeviceError, match=r"block \(0, 0, 0\) ends while 1 asynchronous copies"):
        launch(SOURCE, "copy_box", 1, 64, *arguments, shared_bytes=8192, defines={"MISTAKE": 1})


@pytest.mark.slow
def test_deadlock_names_the_barrier(seeded: Emulator) -> None:
    a, b = normal(64, 64), normal(128, 64)
    device = OnDevice(seeded)
    maps = device.tensor_map(a, (32, 64)), device.tensor_map(b, (32, 64))
    message = (
        r"product_tf32<<<.*deadlock in block \(\d, 0, 0\); 128 threads \(first \(0, 0, 0\)\) "
        r"wait for the mbarrier at shared address \d+, parity 0, hopper.cu:\d+ "
        r"\(phase 0 lacks 0 of 1 arrivals and 16 bytes\)"
    )
    with pytest.raises(DeviceError, match=message):
        wgmma_product(seeded, "product_tf32", maps, 64, 64, 128 * 128, MISTAKE=3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": 8}, "address 0x8 is not 16-byte aligned"),
        ({"dims": (8,)}, "1 dimensions, not 2 to 5"),
        ({"dims": (64, 8, 2, 2, 2, 2)}, "6 dimensions, not 2 to 5"),
        ({"dims": (2**32 + 1, 8)}, r"dims \(4294967297, 8\) are not 1 to 2\^32"),
        ({"dims": (0, 8)}, r"dims \(0, 8\) are not 1 to 2\^32"),
        ({"strides_bytes": (24,)}, "a stride is not a multiple of 16"),
        ({"box": (64, 4)}, "a box row of 256 bytes is longer than the swizzle"),
        ({"box": (2, 4)}, "a box row of 8 bytes is not a multiple of 16"),
        ({"swizzle": 48}, "swizzle 48 is not 0, 32, 64 or 128"),
    ],
)
def test_tensor_maps_that_the_hardware_refuses(change: dict[str, Any], message: str) -> None:
    good = {"dtype": "f4", "address": 512, "dims": (64, 8), "strides_bytes": (256,), "box": (32, 4)}
    assert len(encode_tiled_map(**good)) == 128
    with pytest.raises(DeviceError, match=message):
        encode_tiled_map(**{**good, **change})
