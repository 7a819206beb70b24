"""get_device, the cpu device, and the cuda device over a fake driver."""

from __future__ import annotations

import multiprocessing
import sys

import child
import numpy as np
import pytest
from fake_driver import FakeDriver

import alpha
from alpha.errors import DeviceError, OutOfMemoryError, ShapeError
from alpha.installation import install
from alpha.runtime import get_device, registry
from alpha.runtime.cpu import CpuDevice
from alpha.runtime.cuda.array import DeviceArray, form_of
from alpha.runtime.cuda.cuda_device import CudaDevice


@pytest.fixture
def cuda():
    device = CudaDevice(FakeDriver())
    yield device
    device.close()


def test_names() -> None:
    cpu = get_device("cpu")
    assert get_device("cpu") is cpu
    assert get_device(cpu) is cpu
    with pytest.raises(DeviceError, match="no device 'tpu': use 'cpu', 'cuda' or 'auto'"):
        get_device("tpu")
    assert get_device("cpu:0") is cpu
    assert alpha.device("cpu") is alpha.device(get_device("cpu")) is alpha.device("cpu:0") is alpha.device("cpu", 0)
    with pytest.raises(DeviceError, match="no device 'cuda:1': use 'cuda', the only one"):
        alpha.device("cuda", 1)
    with pytest.raises(DeviceError, match="no device 'cuda:1': use 'cuda', the only one"):
        get_device("cuda:1")
    with pytest.raises(DeviceError, match="no device 'cpu:': use 'cpu', 'cuda' or 'auto'"):
        get_device("cpu:")


def test_missing_pycuda_is_one_line_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_devices", {})
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "pycuda")
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    for module in ("driver_pycuda", "pycuda_api"):
        monkeypatch.delitem(sys.modules, f"alpha.runtime.cuda.{module}", raising=False)
    with pytest.raises(DeviceError) as info:
        get_device("cuda")
    message = str(info.value)
    assert install("cuda") in message
    assert "device='cpu'" in message
    assert "\n" not in message
    assert get_device("auto") is get_device("cpu")


def test_the_emulated_driver_says_that_it_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_devices", {})
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "emulated")
    monkeypatch.setattr(sys, "platform", "darwin")
    wanted = "the emulated cuda driver needs Linux, not darwin: unset ALPHA_CUDA_DRIVER, or use device='cpu'"
    with pytest.raises(DeviceError, match=wanted):
        get_device("cuda")


@pytest.mark.slow
def test_the_runtime_needs_no_fork_and_no_private_mappings() -> None:
    """The modules load and the cpu device computes as on Windows."""
    code = (
        "import mmap, os\n"
        "for name in ('register_at_fork', 'fork', 'sched_getaffinity', 'sysconf'): delattr(os, name)\n"
        "for name in ('MAP_PRIVATE', 'MAP_ANONYMOUS', 'MADV_HUGEPAGE'): delattr(mmap, name)\n"
        "import numpy as np, alpha\n"
        "x = alpha.tensor(np.ones((300, 300), np.float32))\n"
        "assert (x @ x).numpy()[0, 0] == 300\n"
        "try: alpha.get_device('cpu').empty(1 << 62, np.uint8)\n"
        "except MemoryError: print('done')\n"
    )
    result = child.run([sys.executable, "-c", code])
    assert result.stdout == "done\n", result.stderr


def test_auto_is_the_cpu_when_the_driver_is_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_devices", {})
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "emulated")
    assert get_device("auto").name == "cpu"


@pytest.mark.slow
def test_import_loads_no_cuda_package() -> None:
    code = (
        "import sys, alpha.runtime, alpha.runtime.cuda.cuda_device\n"
        "assert not [m for m in sys.modules if m.startswith(('pycuda', 'cuda.'))]"
    )
    child.run([sys.executable, "-c", code], check=True)


def test_cpu_owns_its_arrays() -> None:
    cpu = get_device("cpu")
    source = np.arange(6, dtype=np.float32).reshape(2, 3).T
    array = cpu.upload(source)
    assert array.flags.c_contiguous
    source[:] = -1
    assert array.tolist() == [[0, 3], [1, 4], [2, 5]]
    other = cpu.copy(array)
    cpu.fill(other, 7)
    assert cpu.download(array)[0, 1] == 3
    assert cpu.zeros((2, 2), "int32").sum() == 0
    assert cpu.empty(3, np.uint8).shape == (3,)
    before = cpu.memory_stats()
    large = cpu.zeros((1024, 1024), np.float32)
    assert large.sum() == 0
    stats = cpu.memory_stats()
    assert stats.live == before.live + large.nbytes <= stats.peak
    assert stats.reserved >= stats.live
    assert "MiB" in cpu.memory_summary()


def test_cpu_memory_is_used_again_and_limited() -> None:
    cpu = CpuDevice()
    first = cpu.empty(1 << 20, np.uint8)
    address, view = first.ctypes.data, first[5:]
    del first
    assert cpu.empty(1 << 20, np.uint8).ctypes.data != address, "the view keeps the memory"
    del view
    assert cpu.empty(1 << 20, np.uint8).ctypes.data == address
    cpu.set_memory_limit(cpu.memory_stats().reserved)
    with pytest.raises(OutOfMemoryError, match=r"asked 1024\.0 MiB"):
        cpu.empty(1 << 30, np.uint8)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">i8", ">u2", "<f4", ">f2", "bool", "bfloat16"])
def test_arrays_are_in_the_byte_order_of_the_machine(cuda: CudaDevice, dtype: str) -> None:
    """A file's big-endian numbers are float32 like any others, large or small, from a strided array or not."""
    for on in (get_device("cpu"), cuda):
        for size in (6, 40_000):
            values = (np.arange(size) % 50).astype(dtype).reshape(2, -1).T
            array = on.upload(values)
            assert array.dtype == values.dtype.newbyteorder("=")
            assert array.dtype.isnative
            found = on.download(array)
            np.testing.assert_array_equal(found.astype(np.float64), values.astype(np.float64))


def test_written_arrays_too(cuda: CudaDevice) -> None:
    array = cuda.zeros((3,), np.float32)
    cuda.write(array, np.array([1, 2, 3], ">f4"))
    assert cuda.download(array).tolist() == [1, 2, 3]


def test_big_endian_tensors_compute(device: str) -> None:
    x = alpha.tensor(np.array([1, 2, 3], ">f4"), device=device)
    assert (x + alpha.tensor(np.ones(3, np.float32), device=device)).numpy().tolist() == [2, 3, 4]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4), (0, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
def test_round_trip(cuda: CudaDevice, shape: tuple[int, ...], dtype: type) -> None:
    source = (np.random.default_rng(0).random(shape) * 100).astype(dtype)
    array = cuda.upload(source)
    assert (array.shape, array.dtype, array.nbytes) == (shape, source.dtype, source.nbytes)
    np.testing.assert_array_equal(cuda.download(cuda.copy(array)), source)
    assert not cuda.download(cuda.zeros(shape, dtype)).any()


def test_strided_sources_become_contiguous(cuda: CudaDevice) -> None:
    source = np.arange(24.0).reshape(4, 6)[::2, ::-1]
    np.testing.assert_array_equal(cuda.download(cuda.upload(source)), source)


def test_views_share_and_hold_the_block(cuda: CudaDevice) -> None:
    array = cuda.upload(np.arange(24, dtype=np.float32))
    view = array.reshape(4, -1).slice_rows(1, 3)
    assert view.shape == (2, 6)
    assert view.address == array.address + 24
    del array
    np.testing.assert_array_equal(cuda.download(view), np.arange(6, 18).reshape(2, 6))
    assert cuda.memory_stats().allocations == 1
    assert view.reshape((12,)).reshape(3, 2, 2).shape == (3, 2, 2)
    del view
    assert cuda.memory_stats().live == 0
    assert cuda.empty((0, 4), np.float32).slice_rows(0, 0).shape == (0, 4)


@pytest.mark.parametrize("shape", [(5, 5), (-1, 7), (-1, -1), (2, -3, -4), (-1, 0)])
def test_reshape_refuses(cuda: CudaDevice, shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="24 elements"):
        cuda.empty((4, 6), np.float32).reshape(shape)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 5)])
def test_rows_refuse(cuda: CudaDevice, start: int, stop: int) -> None:
    with pytest.raises(ShapeError, match="not within"):
        cuda.empty((4, 6), np.float32).slice_rows(start, stop)


def test_a_device_array_is_not_silently_copied(cuda: CudaDevice) -> None:
    array = cuda.zeros(3, np.float32)
    with pytest.raises(TypeError, match="download"):
        np.asarray(array)
    with pytest.raises(TypeError):
        np.ones(3, np.float32) + array  # type: ignore[operator]
    assert len(array) == 3
    assert "shape=(3,)" in repr(array)


def test_write_in_place(cuda: CudaDevice) -> None:
    array = cuda.zeros((2, 2), np.float32)
    cuda.write(array, np.ones((2, 2), np.float32))
    assert cuda.download(array).sum() == 4
    with pytest.raises(DeviceError, match="does not fit"):
        cuda.write(array, np.ones((2, 2), np.float64))


def test_a_copy_into_an_array_of_as_many_bytes(cuda: CudaDevice) -> None:
    target, source = cuda.zeros((3,), np.float32), np.arange(3, dtype=np.float32)
    cuda.copy_into(target, cuda.upload(source))
    np.testing.assert_array_equal(cuda.download(target), source)
    for other in (np.zeros(2, np.float32), np.zeros(4, np.float32), np.zeros(0, np.float32), np.zeros(3)):
        with pytest.raises(DeviceError, match=rf"copy_into: {other.nbytes} bytes do not fit 12"):
            cuda.copy_into(target, cuda.upload(other))
    np.testing.assert_array_equal(cuda.download(target), source)
    for values in (np.ones(4, np.float32), np.ones((3, 1), np.float32), np.ones(3)):
        with pytest.raises(DeviceError, match=r"write: .* does not fit float32 \(3,\)"):
            cuda.write(target, values)
    np.testing.assert_array_equal(cuda.download(target), source)


def test_fill_uses_bytes_where_it_can_and_a_kernel_where_not(cuda: CudaDevice) -> None:
    array = cuda.empty(1000, np.float32)
    cuda.fill(array, 0.0)
    assert not cuda.download(array).any()
    assert not cuda.driver.launches
    cuda.fill(array, 1.5)
    ((entry, grid, block, _, arguments),) = cuda.driver.launches
    assert (entry, grid, block) == ("fill_32", (4, 1, 1), (256, 1, 1))
    assert arguments[0][8:12] == np.float32(1.5).tobytes()
    cuda.fill(cuda.empty(0, np.float32), 1.5)
    assert len(cuda.driver.launches) == 1


def test_a_tensor_map_is_that_of_a_layout_a_place_and_a_form(cuda: CudaDevice) -> None:
    block, made = cuda.empty((64,), np.float32).block, []
    forms = [form_of((8,), np.dtype(dtype)) for dtype in (np.float32, np.int32)]
    wanted = [(layout, offset, form) for layout in ("a", "b") for offset in (0, 128) for form in forms]
    for _ in range(2):
        for layout, offset, form in wanted:
            array = DeviceArray(cuda, block, offset, form)
            cuda.tensor_maps.of(array, layout, lambda now=(layout, offset, form): made.append(now) or ())
    assert made == wanted


def test_memory_limit_and_summary(cuda: CudaDevice) -> None:
    cuda.set_memory_limit(100 * 2**20)
    held = cuda.empty(2**20, np.float32)
    assert isinstance(held, DeviceArray)
    assert cuda.memory_stats().live == 4 * 2**20
    assert cuda.memory_summary() == ("cuda: in use 4.0 MiB, peak 4.0 MiB, reserved 64.0 MiB, limit 100.0 MiB")


def test_closing_twice_and_late_arrays() -> None:
    device = CudaDevice(FakeDriver())
    array = device.zeros(10, np.float32)
    device.close()
    device.close()
    assert device.driver.segments == {}
    del array


LIMITS = {
    "nan": (float("nan"), ValueError, "nbytes=nan is no whole number of bytes; None is for no limit"),
    "infinity": (float("inf"), ValueError, "nbytes=inf is no whole number of bytes"),
    "half a byte": (0.5, ValueError, r"nbytes=0\.5 is no whole number of bytes"),
    "negative": (-1, ValueError, "nbytes=-1 is negative"),
    "a text": ("1GB", TypeError, "nbytes='1GB' is a str; give a number of bytes"),
    "a bool": (True, TypeError, "nbytes=True is a bool; give a number of bytes"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_memory_limit_that_means_nothing_changes_nothing(device: str, name: str) -> None:
    value, kind, message = LIMITS[name]
    before = alpha.memory_stats(device).limit
    with pytest.raises(kind, match=f"set_memory_limit: {message}"):
        alpha.set_memory_limit(value, device)
    assert alpha.memory_stats(device).limit == before


def test_a_memory_limit_may_be_a_float_or_numpys(device: str) -> None:
    try:
        for value in (4e12, np.int64(4 * 10**12), np.float64(4e12)):
            alpha.set_memory_limit(value, device)  # type: ignore[arg-type]
            assert alpha.memory_stats(device).limit == 4 * 10**12
    finally:
        alpha.set_memory_limit(None, device)
    assert alpha.memory_stats(device).limit is None


@pytest.mark.parametrize(("driver", "chosen"), [("emulated", "cuda"), ("pycuda", "auto")])
def test_without_a_device_memory_is_that_of_the_one_that_is_asked_for(
    driver: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulated device's memory counts if the program asks for it; else the GPU's, and without a GPU the cpu's."""
    asked: list[str] = []
    subject = CudaDevice(FakeDriver())

    def get(name: str) -> CudaDevice:
        asked.append(name)
        return subject

    monkeypatch.setenv("ALPHA_CUDA_DRIVER", driver)
    monkeypatch.setattr("alpha.core.device_memory.get_device", get)
    alpha.set_memory_limit(2**27)
    assert alpha.memory_stats().limit == subject.memory_stats().limit == 2**27
    for function in (alpha.reset_peak_memory_stats, alpha.empty_cache, alpha.synchronize):
        function()
    assert asked == [chosen] * 5
    alpha.set_memory_limit(None, "cpu")
    assert asked[-1] == "cpu"
    subject.close()


@pytest.mark.parametrize("name", ["cuda", "auto"])
def test_a_program_that_is_imported_by_its_own_worker_opens_no_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawned process imports the program; without a guard it would train anew, beside all others."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(DeviceError, match=r'must stand below `if __name__ == "__main__":`'):
        get_device(name)
    assert get_device("cpu").name == "cpu"
