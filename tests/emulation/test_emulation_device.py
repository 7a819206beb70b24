"""The cuda device over the emulated driver: each array has its own guards."""

from __future__ import annotations

import gc
import mmap
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kernel_emulator import KERNELS

from alpha.errors import DeviceError
from alpha.runtime.cuda.compile import ARCHITECTURES
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.emulated.emulated_memory import MAX_THREADS, FiberStacks, stacks_of_thread
from alpha.runtime.cuda.kernel import Kernel


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    device = CudaDevice(EmulatedDriver())
    yield device
    device.close()


def kernel(device: CudaDevice, entry: str) -> Kernel:
    driver = device.driver
    module = driver.load(driver.compile(KERNELS / "faults.cu", []))
    return Kernel(driver, driver.function(module, entry, 0), "faults.cu", entry, {}, 0)


def test_arrays_are_allocated_in_their_exact_size(device: CudaDevice) -> None:
    arrays = [device.empty((n,), np.float32) for n in (1, 100, 1000)]
    assert all(array.address % 512 == 0 for array in arrays)
    stats = device.memory_stats()
    assert (stats.live, stats.reserved, stats.allocations) == (4404, 4404, 3)
    free = device.driver.memory_info()[0]
    del arrays
    assert device.memory_stats().reserved == 0
    assert device.driver.memory_info()[0] == free + 4404


def test_limit_counts_exact_sizes(device: CudaDevice) -> None:
    device.set_memory_limit(1000)
    array = device.empty((250,), np.float32)
    with pytest.raises(MemoryError, match="out of memory"):
        device.empty((1,), np.float32)
    assert array.nbytes == 1000


def test_write_past_an_array_is_reported_with_its_kernel(device: CudaDevice) -> None:
    x, y = device.zeros((50,), np.float32), device.zeros((50,), np.float32)
    with pytest.raises(DeviceError, match=r"faults.cu:write_beside, grid .* write out of bounds"):
        kernel(device, "write_beside").launch(1, 50, (x, y, np.int64(1)))


def test_views_share_the_guards_of_their_block(device: CudaDevice) -> None:
    x = device.upload(np.arange(60, dtype=np.float32).reshape(6, 10))
    y = device.zeros((20,), np.float32)
    kernel(device, "read_beside").launch(1, 20, (x.slice_rows(2, 4), y, np.int64(20)))
    np.testing.assert_array_equal(device.download(y), np.arange(40, 60))


def test_new_arrays_are_nan(device: CudaDevice) -> None:
    for _ in range(2):
        x = device.empty((100,), np.float32)
        assert np.isnan(device.download(x)).all()
        device.fill(x, 2.5)
        np.testing.assert_array_equal(device.download(x), np.full(100, 2.5, np.float32))
        del x


def test_sizes_are_those_of_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared memory per block as CUDA's programming guide has it, table 'technical specifications'."""
    kibibytes = {"75": 64, "80": 163, "86": 99, "89": 99, "90": 227, "90a": 227, "100": 227, "120": 99}
    assert {arch: shared for arch, (_, shared) in ARCHITECTURES.items()} == {
        f"sm_{number}": size << 10 for number, size in kibibytes.items()
    }
    for arch, (num_sms, shared) in ARCHITECTURES.items():
        monkeypatch.setenv("ALPHA_ARCH", arch)
        driver = EmulatedDriver()
        found = driver.properties
        assert (found.num_sms, found.shared_bytes_per_block) == (num_sms, shared)
        assert driver.memory_info() == (8 << 30, 8 << 30)
        driver.close()


def test_a_copy_beyond_an_array_is_named(device: CudaDevice) -> None:
    x, y = device.zeros((50,), np.float32), device.zeros((10,), np.float32)
    for target, source in ((x, y), (y, x)):
        with pytest.raises(DeviceError, match=r"\bcopy: 200 bytes"):
            device.driver.copy(target.address, source.address, 200)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_every_stack_has_a_page_below_it_that_nobody_may_touch() -> None:
    each = 5 * mmap.PAGESIZE
    stacks = FiberStacks(each)
    assert stacks.address is not None
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, mode = line.split()[:2]
        begin, end = (int(number, 16) for number in where.split("-"))
        ranges.append((begin, end, mode))

    def mode_at(address: int) -> str:
        return next(mode for begin, end, mode in ranges if begin <= address < end)

    for i in (0, 1, 500, MAX_THREADS - 1):
        assert mode_at(stacks.address + i * each) == "---p"
        assert mode_at(stacks.address + i * each + mmap.PAGESIZE) == "rw-p"
    stacks.close()


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_devices_share_the_stacks_of_a_thread() -> None:
    """Linux gives a process 65,530 mappings of memory; tests keep dozens of devices."""

    def use(devices: list[CudaDevice]) -> None:
        device = CudaDevice(EmulatedDriver())
        device.download(device.zeros((5,), np.float32))
        device.fill(device.empty((5,), np.float32), 1.0)
        devices.append(device)

    devices: list[CudaDevice] = []
    use(devices)
    before = mappings()
    for _ in range(5):
        use(devices)
    assert mappings() - before < 5 * 30
    before = mappings()
    thread = threading.Thread(target=stacks_of_thread, args=(5 * mmap.PAGESIZE,))
    thread.start()
    thread.join()
    gc.collect()
    assert mappings() - before < 100, "the stacks of a thread that has ended are kept"
    for device in devices:
        device.close()
