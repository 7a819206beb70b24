"""Memory of a GPU that Alpha shares with PyTorch and CuPy: addresses, orders of work, and how long memory lives.

Each race puts a long kernel on one side and reads on the other. Where an order is missing, the reader sees what was
there before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import DeviceError
from alpha.runtime.cuda.cuda_device import CudaDevice

pytestmark = pytest.mark.cuda
torch: Any = pytest.importorskip("torch")

VALUES = np.arange(12).reshape(4, 3)
SPIN = 300_000_000  # cycles of a GPU, about 0.2 s
N = 1 << 20


@pytest.fixture(autouse=True)
def gpu() -> Iterator[CudaDevice]:
    """The GPU, with PyTorch beside; nothing is shared when a test ends."""
    if not torch.cuda.is_available():
        pytest.skip("needs a PyTorch with CUDA")
    pytest.importorskip("cuda.core")
    device = alpha.get_device("cuda")
    assert isinstance(device, CudaDevice)
    warm_up()
    yield device
    gc.collect()
    device.memory.leases.settle(wait=True)
    assert device.memory.leases.count == 0


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
    found = torch.cuda.Stream() if "own" in request.param else torch.cuda.default_stream()
    with torch.cuda.stream(found):
        yield found
    found.synchronize()


def full(value: float) -> alpha.Tensor:
    return alpha.full((N,), value, device="cuda")


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


def test_jax_has_the_same_memory_both_ways() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("needs a JAX with CUDA")
    x = alpha.tensor(VALUES, dtype="float32", device="cuda")
    theirs = jax.dlpack.from_dlpack(x)
    assert theirs.unsafe_buffer_pointer() == x.array.address
    np.testing.assert_array_equal(np.asarray(theirs), VALUES)
    own = jax.numpy.arange(6.0)
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
    assert np.from_dlpack(x, device="cpu").shape == (2, 4, 5, 3)
    assert alpha.from_dlpack(torch.empty(0, 3, device="cuda")).shape == (0, 3)
    assert tuple(torch.from_dlpack(alpha.zeros(0, 3, device="cuda")).shape) == (0, 3)
    assert torch.from_dlpack(alpha.tensor(2.5, device="cuda")).item() == 2.5


def test_a_second_gpu_is_refused() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with pytest.raises(DeviceError, match="the array is on device 1 of kind 2"):
        alpha.from_dlpack(torch.ones(2, device="cuda:1"))


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


def test_many_times_to_and_fro(stream: Any) -> None:
    x = full(0.0)
    for _ in range(200):
        x.add_(1.0)
        theirs = torch.from_dlpack(x)
        theirs += 1
        x = alpha.from_dlpack(theirs)
    values = x.numpy()
    assert (values.min(), values.max()) == (400, 400)


def test_lent_memory_is_not_used_again_before_pytorch_is_done(stream: Any, gpu: CudaDevice) -> None:
    theirs = torch.from_dlpack(full(3.0))
    address = theirs.data_ptr()
    torch.cuda._sleep(SPIN)
    read = theirs.clone()
    del theirs
    gc.collect()
    gpu.memory.leases.settle()
    others = [full(-1.0) for _ in range(8)]
    assert address in [other.array.address for other in others]  # the memory has come back, and Alpha has waited
    assert bool((read == 3).all())


def test_memory_of_the_cuda_array_interface_is_not_used_again_before_pytorch_is_done(
    stream: Any, gpu: CudaDevice
) -> None:
    theirs = torch.as_tensor(full(3.0), device="cuda")
    torch.cuda._sleep(SPIN)
    read = theirs.clone()
    del theirs
    gc.collect()
    gpu.memory.leases.settle()
    _ = [full(-1.0) for _ in range(8)]
    assert bool((read == 3).all())


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
