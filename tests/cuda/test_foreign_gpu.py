"""Memory of a GPU that Alpha shares with PyTorch, CuPy and JAX: addresses, orders of work, and how long memory lives.

Each race puts a long kernel on one side and reads on the other. Where an order is missing, the reader sees what was
there before. No test depends on how long a kernel takes: a short one hides a missing order, and fails nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import DeviceError
from alpha.runtime.cuda.cuda_device import CudaDevice

pytestmark = pytest.mark.cuda
try:
    import torch as found_torch
except ImportError:
    found_torch = None  # type: ignore[assignment]
torch: Any = found_torch

VALUES = np.arange(12).reshape(4, 3)
SPIN = 300_000_000  # cycles of a GPU, about 0.2 s
N = 1 << 20


@pytest.fixture(autouse=True)
def gpu(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    """The GPU, with free memory in one piece; nothing is shared when a test ends."""
    pytest.importorskip("cuda.core")
    device = alpha.get_device("cuda")
    assert isinstance(device, CudaDevice)
    gc.collect()
    device.trim()  # which also forgets the addresses of the steps of earlier tests
    before = device.memory.leases.count
    yield device
    if "jax" in request.node.name:  # XLA drops its buffers in threads of its own
        return
    gc.collect()
    device.trim()
    device.memory.leases.settle(wait=True)
    assert device.memory.leases.count <= before


def warm_up() -> None:
    """Load every kernel of the races: a first launch may wait for the whole GPU, which hides a missing order."""
    slow()
    (full(1.0).add_(1.0) + 0.0).numpy()
    theirs = torch.full((N,), 1.0, device="cuda").clone()
    theirs += 1
    assert bool((theirs == 2).all())
    torch.cuda._sleep(1)
    torch.cuda.synchronize()


@pytest.fixture(params=["legacy default stream", "stream of its own"])
def stream(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The current stream of PyTorch."""
    if torch is None or not torch.cuda.is_available():
        pytest.skip("needs a PyTorch with CUDA")
    warm_up()
    found = torch.cuda.Stream() if "own" in request.param else torch.cuda.default_stream()
    with torch.cuda.stream(found):
        yield found
    found.synchronize()


def full(value: float) -> alpha.Tensor:
    return alpha.full((N,), value, device="cuda")


def address_of(x: alpha.Tensor) -> int:
    return int(x.array.ctypes.data if isinstance(x.array, np.ndarray) else x.array.address)


def write_over(address: int) -> list[alpha.Tensor]:
    """Arrays of Alpha, of which the last one lies at the address, and is written; the test fails if none comes there.

    All free blocks of this size are given out before other free memory is cut.
    """
    others: list[alpha.Tensor] = []
    for _ in range(64):
        others.append(full(-1.0))
        if others[-1].array.address == address:
            return others
    raise AssertionError("the memory has not come back")


def slow() -> None:
    """Queue work on Alpha's stream that takes a while."""
    a = alpha.ones(4096, 4096, device="cuda")
    for _ in range(12):
        a = (a @ a) * 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool"])
def test_pytorch_has_the_same_memory_both_ways(dtype: str, stream: Any) -> None:
    x = alpha.tensor(VALUES, dtype=dtype, device="cuda")
    assert x.__dlpack_device__() == (2, 0)
    theirs = torch.from_dlpack(x)
    assert theirs.data_ptr() == x.array.address
    assert (str(theirs.dtype), tuple(theirs.shape)) == (f"torch.{dtype}", (4, 3))
    back = alpha.from_dlpack(theirs, copy=False)
    assert (back.array.address, back.dtype, back.device.name) == (x.array.address, x.dtype, "cuda")
    theirs[0, 0] = 1
    assert alpha.from_dlpack(theirs)[0, 0].item() == 1
    own = torch.ones(4, 3, dtype=theirs.dtype, device="cuda")
    assert alpha.from_dlpack(own).array.address == own.data_ptr()
    assert alpha.from_dlpack(own).float().tolist() == [[1.0] * 3] * 4


def test_the_cuda_array_interface(stream: Any) -> None:
    x = alpha.tensor(VALUES, dtype="float32", device="cuda")
    found = x.__cuda_array_interface__
    assert (found["data"], found["version"]) == ((x.array.address, False), 3)
    theirs = torch.as_tensor(x, device="cuda")
    assert theirs.data_ptr() == x.array.address
    np.testing.assert_array_equal(theirs.cpu().numpy(), VALUES)
    with pytest.raises(BufferError, match="requires a gradient"):
        x.requires_grad_().__cuda_array_interface__  # noqa: B018


def test_cupy_has_the_same_memory_both_ways() -> None:
    cupy = pytest.importorskip("cupy")
    x = alpha.tensor(VALUES, dtype="float32", device="cuda")
    for theirs in (cupy.from_dlpack(x), cupy.asarray(x)):
        assert theirs.data.ptr == x.array.address
        np.testing.assert_array_equal(cupy.asnumpy(theirs), VALUES)
    own = cupy.arange(6, dtype=cupy.float32)
    back = alpha.from_dlpack(own)
    assert back.array.address == own.data.ptr
    assert back.tolist() == list(range(6))


def test_managed_memory_of_cupy_is_copied() -> None:
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.using_allocator(cupy.cuda.malloc_managed):
        own = cupy.arange(6, dtype=cupy.float32)
    if own.__dlpack_device__()[0] != 13:
        pytest.skip("this CuPy does not say that memory is managed")
    x = alpha.from_dlpack(own)
    assert (x.device.name, x.tolist()) == ("cuda", list(range(6)))
    assert x.array.address != own.data.ptr
    with pytest.raises(BufferError, match="is managed memory"):
        alpha.from_dlpack(own, copy=False)


def test_jax_has_the_same_memory_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of the GPU's memory
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.dlpack")
    if jax.default_backend() != "gpu":
        pytest.skip("needs a JAX with CUDA")
    x = alpha.tensor(VALUES, dtype="float32", device="cuda")
    theirs = jax.dlpack.from_dlpack(x)
    assert theirs.unsafe_buffer_pointer() == x.array.address
    np.testing.assert_array_equal(np.asarray(theirs), VALUES)
    own = jax.numpy.arange(6, dtype=jax.numpy.float32)
    assert alpha.from_dlpack(own).tolist() == list(range(6))


def test_copies(stream: Any) -> None:
    images = torch.rand(2, 3, 4, 5, device="cuda")
    x = alpha.from_dlpack(images.permute(0, 2, 3, 1))
    np.testing.assert_array_equal(x.numpy(), images.permute(0, 2, 3, 1).cpu().numpy())
    last = images.to(memory_format=torch.channels_last)
    assert alpha.from_dlpack(last.permute(0, 2, 3, 1), copy=False).array.address == last.data_ptr()
    part = torch.arange(9.0, device="cuda")[1:]
    assert alpha.from_dlpack(part).tolist() == list(range(1, 9))
    for given, why in ((images.permute(0, 2, 3, 1), "is not contiguous"), (part, "no multiple of 16")):
        with pytest.raises(BufferError, match=f"copy=False, but the array .*{why}"):
            alpha.from_dlpack(given, copy=False)
    assert alpha.from_dlpack(part, device="cpu").tolist() == list(range(1, 9))
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert np.from_dlpack(x, device="cpu").shape == (2, 4, 5, 3)
    wide = torch.arange(2.0, device="cuda").reshape(2, 1).expand(2, 3)
    assert alpha.from_dlpack(wide).tolist() == [[0.0] * 3, [1.0] * 3]
    pinned = torch.arange(3.0).pin_memory()
    ours = alpha.from_dlpack(pinned)
    assert (ours.device.name, address_of(ours), ours.tolist()) == ("cpu", pinned.data_ptr(), [0, 1, 2])
    assert torch.from_dlpack(alpha.tensor(2.5, device="cuda")).item() == 2.5


def test_arrays_without_elements(stream: Any) -> None:
    """PyTorch's have no address, and a part of Alpha's may begin where its memory ends."""
    whole = alpha.zeros(4, 3, device="cuda")
    for x in (alpha.zeros(0, 3, device="cuda"), whole[4:], alpha.from_dlpack(torch.empty(0, 3, device="cuda"))):
        for theirs in (torch.from_dlpack(x), torch.as_tensor(x, device="cuda")):
            assert (tuple(theirs.shape), theirs.device.type) == ((0, 3), "cuda")


def test_a_second_gpu_is_refused() -> None:
    if torch is None or torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs and PyTorch")
    with pytest.raises(DeviceError, match="the array is on device 1 of kind 2"):
        alpha.from_dlpack(torch.ones(2, device="cuda:1"))


def test_a_gpu_that_another_library_has_made_current(stream: Any) -> None:
    """PyTorch works on a second GPU, and leaves it the current one; JAX does so when it begins."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    step = alpha.capture(lambda x: (x * 2.0).sum())
    torch.cuda.set_device(1)
    try:
        x = full(1.0)
        for _ in range(5):
            assert float(step(x)) == 2.0 * N
        alpha.synchronize()
        assert torch.cuda.current_device() == 1
        assert torch.from_dlpack(x).device.index == 0
    finally:
        torch.cuda.set_device(0)


# -- orders of work ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["from_dlpack", "as_tensor"])
def test_pytorch_waits_for_alphas_work(stream: Any, way: str) -> None:
    x = full(1.0)
    alpha.synchronize()
    slow()
    x.add_(1.0)
    theirs = torch.from_dlpack(x) if way == "from_dlpack" else torch.as_tensor(x, device="cuda")
    assert bool((theirs == 2).all())


def test_alpha_waits_for_pytorchs_work(stream: Any) -> None:
    theirs = torch.ones(N, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(SPIN)
    theirs += 1
    ours = alpha.from_dlpack(theirs)
    assert (ours + 0.0).numpy().min() == 2


def test_many_times_to_and_fro(stream: Any, gpu: CudaDevice) -> None:
    x, before = full(0.0), gpu.memory.leases.count
    for _ in range(200):
        x.add_(1.0)
        theirs = torch.from_dlpack(x)
        theirs += 1
        x = alpha.from_dlpack(theirs)
    values = x.numpy()
    assert (values.min(), values.max()) == (400, 400)
    del theirs
    gpu.memory.leases.settle(wait=True)
    assert gpu.memory.leases.count <= before  # x does not hold all the arrays on the way


def test_lent_memory_is_not_used_again_before_pytorch_is_done(stream: Any, gpu: CudaDevice) -> None:
    theirs = torch.from_dlpack(full(3.0))
    address = theirs.data_ptr()
    torch.cuda._sleep(SPIN)
    read = theirs.clone()
    del theirs
    gc.collect()
    gpu.memory.leases.settle()
    others = write_over(address)  # the memory has come back, and Alpha has waited
    assert bool((read == 3).all())
    assert others


def test_memory_of_the_cuda_array_interface_is_not_used_again_before_pytorch_is_done(
    stream: Any, gpu: CudaDevice
) -> None:
    theirs = torch.as_tensor(full(3.0), device="cuda")
    address = theirs.data_ptr()
    torch.cuda._sleep(SPIN)
    read = theirs.clone()
    del theirs
    gc.collect()
    gpu.memory.leases.settle()
    others = write_over(address)
    assert bool((read == 3).all())
    assert others


def test_lent_memory_that_another_thread_drops_comes_back(stream: Any, gpu: CudaDevice) -> None:
    held = [torch.from_dlpack(full(3.0))]
    address = held[0].data_ptr()
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    gc.collect()
    gpu.memory.leases.settle()
    assert write_over(address)


def test_borrowed_memory_is_not_used_again_before_alpha_is_done(stream: Any, gpu: CudaDevice) -> None:
    ours = alpha.from_dlpack(torch.full((N,), 3.0, device="cuda"))
    slow()
    read = ours + 0.0
    del ours
    gc.collect()
    gpu.memory.leases.settle()
    others = [torch.full((N,), -1.0, device="cuda") for _ in range(8)]
    values = read.numpy()
    assert (values.min(), values.max()) == (3, 3)
    assert all(bool((other == -1).all()) for other in others)


# -- captured steps ---------------------------------------------------------------------------------


def test_a_captured_step_on_weights_of_pytorch(stream: Any) -> None:
    theirs = torch.zeros(64, 64, device="cuda")
    weight = alpha.from_dlpack(theirs)

    @alpha.capture(strict=True)
    def step(x: alpha.Tensor) -> alpha.Tensor:
        weight.add_(x)
        return weight * 2.0

    for number in range(1, 9):
        x = torch.ones(64, 64, device="cuda")
        y = step(alpha.from_dlpack(x))
        shown = torch.from_dlpack(y)
        address = shown.data_ptr()
        assert bool((shown == 2 * number).all())
        assert y.array.address == address
        assert bool((torch.from_dlpack(weight) == number).all())
    assert step.graphs
    torch.cuda.synchronize()
    assert bool((theirs == 8).all())


def test_a_gradient_of_alpha_trains_weights_of_pytorch(stream: Any) -> None:
    theirs = torch.full((8,), 3.0, device="cuda")
    weight = alpha.from_dlpack(theirs).requires_grad_()
    (weight * weight).sum().backward()
    assert weight.grad is not None
    theirs -= 0.5 * torch.from_dlpack(weight.grad)
    np.testing.assert_array_equal(alpha.from_dlpack(theirs).numpy(), np.zeros(8))
