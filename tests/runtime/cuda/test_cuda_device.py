"""The runtime on a real GPU, through pycuda."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import child
import numpy as np
import pytest

from alpha.errors import CompileError, DeviceError, OutOfMemoryError
from alpha.runtime import get_device
from alpha.runtime.cuda import kernel
from alpha.runtime.cuda.cuda_device import CudaDevice

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def gpu() -> CudaDevice:
    if os.environ.get("ALPHA_CUDA_DRIVER", "pycuda") != "pycuda":
        pytest.skip("the driver is not pycuda")
    try:
        device = get_device("cuda")
    except DeviceError as error:
        pytest.skip(str(error))
    assert isinstance(device, CudaDevice)
    return device


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands in for cuda/."""
    monkeypatch.setattr(kernel, "source_root", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize("size", [0, 1, 3, 1000, 2**20 + 7, 10 * 2**20 + 1])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_round_trip(gpu: CudaDevice, size: int, dtype: type) -> None:
    source = (np.random.default_rng(0).random(size) * 255).astype(dtype)
    array = gpu.upload(source)
    expected = source.copy()
    source[:] = 0  # the upload may still run
    copy = gpu.copy(array)
    np.testing.assert_array_equal(gpu.download(array), expected)
    np.testing.assert_array_equal(gpu.download(copy), expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("value", [0, 1, 3.25])
def test_fill(gpu: CudaDevice, dtype: type, value: float) -> None:
    array = gpu.empty((1001, 33), dtype)
    gpu.fill(array, value)
    expected = np.full((1001, 33), value).astype(dtype)
    np.testing.assert_array_equal(gpu.download(array), expected)
    assert not gpu.download(gpu.zeros((5, 7), dtype)).any()


def test_launch_with_every_kind_of_argument(gpu: CudaDevice, sources: Path) -> None:
    (sources / "args.cu").write_text(
        """
        struct Shape { int n; long long big; short w; };
        extern "C" __global__ void args(double* Y, unsigned char a, Shape shape, float b,
                                        const float* none, long long c, short d, double e) {
          Y[0] = a; Y[1] = shape.n; Y[2] = shape.big; Y[3] = shape.w; Y[4] = b;
          Y[5] = none == nullptr; Y[6] = c; Y[7] = d; Y[8] = e; Y[9] = ALPHA_K;
        }
        """
    )
    shape = np.zeros((), np.dtype([("n", "i4"), ("big", "i8"), ("w", "i2")], align=True))[()]
    shape["n"], shape["big"], shape["w"] = -5, 2**40, 6
    Y = gpu.empty(10, np.float64)
    args = (Y, np.uint8(200), shape, 2.5, None, np.int64(-(2**35)), np.int16(-9), np.float64(0.1))
    gpu.launch("args.cu", "args", 1, 1, args, {"K": 77})
    assert gpu.download(Y).tolist() == [200, -5, 2**40, 6, 2.5, 1, -(2**35), -9, 0.1, 77]


def test_shared_memory_above_48_kib(gpu: CudaDevice, sources: Path) -> None:
    (sources / "big.cu").write_text(
        """
        extern "C" __global__ void big(float* Y, int n) {
          extern __shared__ float tile[];
          for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = i;
          __syncthreads();
          for (int i = threadIdx.x; i < n; i += blockDim.x) Y[i] = tile[n - 1 - i];
        }
        """
    )
    most = gpu.properties.shared_bytes_per_block // 4
    for count in (most, most // 2, most):  # a smaller launch between does not lower the limit
        Y = gpu.empty(count, np.float32)
        gpu.launch("big.cu", "big", 1, 256, (Y, count), shared_bytes=4 * count)
        np.testing.assert_array_equal(gpu.download(Y), np.arange(count)[::-1])
    with pytest.raises(DeviceError):
        gpu.launch("big.cu", "big", 1, 256, (Y, most), shared_bytes=4 * most + 4096)


def test_compile_error(gpu: CudaDevice, sources: Path) -> None:
    (sources / "bad.cu").write_text("this is not CUDA\n")
    with pytest.raises(CompileError, match=r"bad\.cu"):
        gpu.launch("bad.cu", "bad", 1, 1, ())


def test_launch_error_names_the_launch(gpu: CudaDevice) -> None:
    with pytest.raises(DeviceError, match=r"fill\.cu:fill_32, grid \(1, 70000\), block 32,"):
        gpu.launch("runtime/fill.cu", "fill_32", (1, 70000), 32, (None, np.uint32(0), np.int64(0)))
    gpu.synchronize()


def test_events(gpu: CudaDevice) -> None:
    array = gpu.empty(2**24, np.float32)
    start = gpu.record_event()
    for _ in range(10):
        gpu.fill(array, 1.5)
    assert 0.0 < gpu.elapsed_ms(start, gpu.record_event()) < 1000.0


def test_uploads_stay_in_order_with_kernels(gpu: CudaDevice) -> None:
    array = gpu.empty(2**20, np.float32)
    host = np.empty(2**20, np.float32)
    for i in range(20):
        host[:] = i
        gpu.write(array, host)
        copy = gpu.copy(array)
        host[:] = -1
    np.testing.assert_array_equal(gpu.download(copy), np.full(2**20, 19, np.float32))


def test_memory(gpu: CudaDevice) -> None:
    before = gpu.memory_stats()
    array = gpu.empty(2**25, np.float32)
    assert gpu.memory_stats().live == before.live + 2**27
    del array
    assert gpu.memory_stats().live == before.live
    with pytest.raises(OutOfMemoryError, match="free on the device"):
        gpu.empty(2**44, np.uint8)
    gpu.arena.trim()
    assert gpu.memory_stats().reserved <= before.reserved


def test_another_thread_is_refused_by_name(gpu: CudaDevice) -> None:
    errors: list[DeviceError] = []

    def work() -> None:
        try:
            gpu.synchronize()
        except DeviceError as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="loader")
    thread.start()
    thread.join()
    assert "thread 'loader'" in str(errors[0])


@pytest.mark.parametrize("ending", ["pass", "raise ValueError('planned')", "sys.exit(3)"])
def test_clean_exit(gpu: CudaDevice, ending: str) -> None:
    code = (
        "import sys, numpy as np\n"
        "from alpha.runtime import get_device\n"
        "gpu = get_device('cuda')\n"
        "kept = gpu.upload(np.ones(10, np.float32))\n"
        "gpu.fill(kept, 1.5)\n" + ending
    )
    result = child.run([sys.executable, "-c", code])
    assert result.returncode == (0 if ending == "pass" else 1 if "raise" in ending else 3)
    assert "context stack" not in result.stderr
    assert ("planned" in result.stderr) == ("planned" in ending)


def test_a_kernel_fault_is_reported_and_the_process_ends_cleanly(gpu: CudaDevice) -> None:
    code = (
        "import numpy as np\n"
        "from alpha.runtime import get_device\n"
        "gpu = get_device('cuda')\n"
        "args = (None, np.uint32(1), np.int64(10))\n"
        "gpu.launch('runtime/fill.cu', 'fill_32', 1, 32, args)\n"
        "gpu.synchronize()\n"
    )
    result = child.run([sys.executable, "-c", code])
    assert result.returncode == 1
    assert "DeviceError: synchronize:" in result.stderr
    assert "fill_32" in result.stderr


def test_the_context_is_shared_with_pytorch(gpu: CudaDevice) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    tensor = torch.arange(1000, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    array = gpu.empty(1000, np.float32)
    gpu.driver.copy(array.address, tensor.data_ptr(), array.nbytes)
    np.testing.assert_array_equal(gpu.download(array), np.arange(1000))


@pytest.mark.parametrize("captured", [False, True])
def test_a_process_ends_well_after_the_profiler_of_pytorch(gpu: CudaDevice, captured: bool) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    code = (
        "import alpha\n"
        "weight = alpha.nn.Linear(64, 64).to('cuda')\n"
        "x = alpha.ones(64, 64, device='cuda')\n"
        "def step(x):\n"
        "    return weight(x).sum()\n"
        f"step = alpha.capture(step) if {captured} else step\n"
        "step(x).item()\n"
        "from torch import profiler\n"  # after Alpha has made the context
        "for _ in range(20):\n"
        "    with profiler.profile():\n"
        "        step(x).item()\n"
        "print('end')\n"
    )
    for checked in ({}, {"MALLOC_CHECK_": "3", "LD_PRELOAD": "libc_malloc_debug.so.0"}):
        result = child.run([sys.executable, "-c", code], env=child.environment(**checked))
        assert (result.returncode, result.stdout) == (0, "end\n"), result.stderr[-2000:]


def test_nvrtc_makes_the_same_kernel(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setenv("ALPHA_COMPILER", "nvrtc")
    array = gpu.empty(100, np.float32)
    args = (array, np.uint32(np.float32(2.5).view(np.uint32)), np.int64(100))
    try:
        gpu.launch("runtime/fill.cu", "fill_32", 1, 32, args, {"UNUSED": 1})
    except CompileError as error:
        pytest.skip(str(error))
    assert (gpu.download(array) == 2.5).all()
