"""Memory shared with PyTorch and numpy: the same addresses both ways, and clear words where that cannot be."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import AlphaError, CaptureError, CaptureWarning, DeviceError
from alpha.ops.conv2d.magnitudes import magnitude_of
from alpha.ops.kernel.views import View
from alpha.runtime import recording
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.sharing import capsules

VALUES = np.arange(12).reshape(4, 3)
NEW_NUMPY = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
writable = pytest.mark.skipif(not NEW_NUMPY, reason="what this numpy takes by DLPack may not be written")
DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]


def address_of(x: alpha.Tensor) -> int:
    return int(x.array.ctypes.data if isinstance(x.array, np.ndarray) else x.array.address)


@pytest.fixture
def shared(device: str) -> str:
    """The name of a device whose memory lies on the host."""
    if alpha.zeros(1, device=device).__dlpack_device__() != (1, 0):
        pytest.skip("numpy reads the memory of the host alone")
    return device


@pytest.fixture
def cuda() -> CudaDevice:
    """The emulated device."""
    try:
        device = alpha.get_device("cuda")
    except AlphaError as error:
        pytest.skip(str(error))
    assert isinstance(device, CudaDevice)
    if device.driver.name != "emulated":
        pytest.skip("numpy reads the memory of the host alone")
    return device


@writable
@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_has_the_same_memory(shared: str, dtype: str) -> None:
    x = alpha.tensor(VALUES, dtype=dtype, device=shared)
    theirs = np.from_dlpack(x)
    assert theirs.ctypes.data == address_of(x)
    assert (theirs.dtype.name, theirs.shape) == (dtype, (4, 3))
    theirs[0, 0] = 1
    assert x[0, 0].item() == 1
    x.zero_()
    assert not theirs.any()


@writable
@pytest.mark.torch
@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_pytorch_has_the_same_memory_both_ways(shared: str, dtype: str) -> None:
    import torch

    x = alpha.tensor(VALUES, dtype=dtype, device=shared)
    for theirs in (torch.from_dlpack(x), torch.as_tensor(x), torch.asarray(x)):
        assert theirs.data_ptr() == address_of(x)
        assert (str(theirs.dtype), tuple(theirs.shape)) == (f"torch.{dtype}", (4, 3))
    back = alpha.from_dlpack(theirs, copy=False)
    assert address_of(back) == theirs.data_ptr()
    assert (back.dtype, back.device.name) == (x.dtype, "cpu")
    theirs[0, 0] = 1
    assert back[0, 0].item() == x[0, 0].item() == 1


def test_a_tensor_of_numpys_memory() -> None:
    values = VALUES.astype(np.float32)
    x = alpha.from_dlpack(values)
    assert address_of(x) == values.ctypes.data
    x.mul_(2.0)
    np.testing.assert_array_equal(values, VALUES * 2)
    w = alpha.from_dlpack(values).requires_grad_()
    (w * w).sum().backward()
    assert w.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), 4 * VALUES)


@writable
@pytest.mark.torch
def test_channels_last_of_pytorch_is_shared_under_alphas_axes() -> None:
    import torch

    images = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    x = alpha.from_dlpack(images.permute(0, 2, 3, 1), copy=False)
    assert (x.shape, address_of(x)) == ((2, 4, 5, 3), images.data_ptr())


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (VALUES.astype(np.float32).T, r"is not contiguous: its shape is \(3, 4\), its strides are \(1, 3\)"),
        (VALUES.astype(np.float32)[:, ::2], "is not contiguous"),
        (np.frombuffer(VALUES.astype(np.float32).tobytes(), np.float32), "may not be written"),
    ],
)
def test_what_cannot_be_shared_is_copied(array: Any, why: str) -> None:
    x = alpha.from_dlpack(array)
    assert not np.shares_memory(x.array, array)
    np.testing.assert_array_equal(x.numpy(), array)
    assert x.add_(1.0).array.flags.c_contiguous
    with pytest.raises(BufferError, match=f"from_dlpack: copy=False, but the array {why}"):
        alpha.from_dlpack(array, copy=False)


def test_copies_that_are_asked_for(device: str) -> None:
    values = VALUES.astype(np.float32)
    copied = alpha.from_dlpack(values, copy=True, device="cpu")
    assert not np.shares_memory(copied.array, values)
    there = alpha.from_dlpack(values, device=device)
    assert there.device.name == device
    np.testing.assert_array_equal(there.numpy(), values)
    if device != "cpu":
        with pytest.raises(BufferError, match="copy=False, but the array is on cpu, not on cuda"):
            alpha.from_dlpack(values, device=device, copy=False)


def test_a_tensor_of_alpha_shares_its_memory(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    assert address_of(alpha.from_dlpack(x)) == address_of(alpha.from_dlpack(x, copy=False)) == address_of(x)
    assert address_of(alpha.from_dlpack(x, copy=True)) != address_of(x)
    assert alpha.from_dlpack(x, device="cpu").device.name == "cpu"


def test_what_is_refused() -> None:
    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 8, 0

        def __dlpack__(self) -> None: ...

    class Second(Elsewhere):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 1

    for given, error, message in (
        ([1.0], TypeError, r"from_dlpack: a list has no __dlpack__; alpha.tensor\(x\) copies values"),
        (np.ndarray, TypeError, "has no __dlpack__"),
        (np.ones(2, ">f4"), BufferError, "native byte order"),
        (np.zeros(2, "u1, f4")["f1"], BufferError, "multiple of itemsize"),
        (np.zeros(2, np.float16), TypeError, r"from_dlpack: dtype float16 is not one of float32, .* alpha.tensor\(x\)"),
        (Elsewhere(), DeviceError, "the array is on device 0 of kind 8; Alpha has the cpu"),
        (Second(), DeviceError, "the array is on device 1 of kind 2; .* CUDA_VISIBLE_DEVICES"),
        (alpha.zeros(2, requires_grad=True), BufferError, r"requires a gradient; use .detach\(\)"),
    ):
        with pytest.raises(error, match=message):
            alpha.from_dlpack(given)


def test_a_gradient_is_not_lost_unnoticed(device: str) -> None:
    x = alpha.zeros(2, 3, device=device, requires_grad=True)
    with pytest.raises(BufferError, match=r"__dlpack__: the tensor requires a gradient.*use .detach\(\)"):
        np.from_dlpack(x)
    assert np.asarray(x).shape == (2, 3)
    y = x * 2.0
    with pytest.raises(BufferError, match="requires a gradient"):
        y.__dlpack__()
    y.detach().__dlpack__()


def test_arguments_of_dlpack(shared: str) -> None:
    x = alpha.tensor(VALUES, dtype="float32", device=shared)
    assert np.from_dlpack(x, **({"copy": True} if NEW_NUMPY else {})).shape == (4, 3)
    capsules = [x.__dlpack__(copy=True), x.__dlpack__(dl_device=(1, 0)), x.__dlpack__(max_version=(1, 0))]
    assert {type(capsule).__name__ for capsule in capsules} == {"PyCapsule"}
    with pytest.raises(BufferError, match=r"the tensor is on \(1, 0\), dl_device=\(2, 0\) with copy=None"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream"):
        x.__dlpack__(stream=0)


def test_arrays_without_elements(shared: str) -> None:
    whole = alpha.zeros(4, 3, device=shared)
    for x in (alpha.zeros(0, 3, device=shared), whole[4:], whole[:, :0]):
        assert np.from_dlpack(x).shape == np.asarray(x).shape == x.shape
    assert alpha.from_dlpack(np.zeros((3, 0), np.float32).T, copy=False).shape == (0, 3)


@pytest.mark.torch
def test_8_bit_floats_are_refused() -> None:
    import torch

    with pytest.raises(TypeError, match=r"elements of 1 x 8 bits with DLPack's code 10 .*convert the array before"):
        alpha.from_dlpack(torch.ones(2).to(torch.float8_e4m3fn))


def test_managed_memory_belongs_to_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of the GPU may still write it, for which numpy would not wait; a copy of it lies on the GPU alone."""
    import alpha.ops.array.foreign as foreign

    class Managed:
        def __dlpack_device__(self) -> tuple[int, int]:
            return capsules.MANAGED, 0

        def __dlpack__(self) -> None: ...

    values = VALUES.astype(np.float32)
    monkeypatch.setattr(foreign, "_on_gpu", lambda _: (values, View((4, 3), (3, 1)), True))
    x = alpha.from_dlpack(Managed())
    assert not np.shares_memory(x.array, values)
    with pytest.raises(BufferError, match="copy=False, but the array is managed memory"):
        alpha.from_dlpack(Managed(), copy=False)


def test_an_array_of_a_tensor(device: str) -> None:
    x = alpha.tensor(VALUES, dtype="float32", device=device)
    array = np.asarray(x)
    np.testing.assert_array_equal(array, VALUES)
    if device == "cpu":
        assert array.ctypes.data == address_of(x)
        assert np.array(x).ctypes.data != address_of(x)
        assert not hasattr(x, "__cuda_array_interface__")
    assert np.asarray(x, np.int64).dtype == np.int64
    grad = x.clone().requires_grad_()
    assert np.asarray(grad).ctypes.data != address_of(grad)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        for tensor, dtype in ((grad, None), (x, np.int64)):
            with pytest.raises(ValueError, match="__array__: copy=False, but a tensor on"):
                np.asarray(tensor, dtype, copy=False)


def test_memory_lives_as_long_as_one_side_has_it(shared: str) -> None:
    theirs = np.from_dlpack(alpha.full((300, 300), 7.0, device=shared))
    gc.collect()
    others = [alpha.zeros(300, 300, device=shared) for _ in range(4)]
    assert (theirs == 7).all()
    values = np.full((300, 300), 5.0, np.float32)
    ours = alpha.from_dlpack(values)
    del values
    gc.collect()
    assert all(not other.any() for other in others)
    assert (ours.array == 5).all()


def test_a_part_is_read_anew_before_it_is_given(shared: str) -> None:
    x = alpha.zeros(3, 4, device=shared)
    column = x[:, 1]
    x[:, 1] = alpha.tensor([1.0, 2.0, 3.0], device=shared)
    np.testing.assert_array_equal(np.from_dlpack(column), [1, 2, 3])


def test_the_magnitude_of_shared_memory_is_not_taken(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    if device != "cpu":
        x.array.magnitude = alpha.zeros(1, dtype="int32", device=device).array
        assert magnitude_of(x) is not None
    y = x.detach()
    y.reshape(2, 1).detach().__dlpack__()
    assert magnitude_of(x) is None
    (x * x).sum()


def test_no_magnitude_from_before_a_captured_step_is_taken_in_it(cuda: CudaDevice) -> None:
    x, known = alpha.ones(4, device="cuda"), alpha.zeros(1, dtype="int32", device="cuda").array
    x.array.magnitude = known

    def made() -> alpha.Tensor:
        y = alpha.ones(4, device="cuda")
        y.array.magnitude = known
        return y

    notes = recording.Recording(capturing=False)
    found = cuda.within(cuda.scratch, notes, lambda: (magnitude_of(x), magnitude_of(made())))
    assert found == (None, known)
    assert magnitude_of(x) is known


# -- captured steps ---------------------------------------------------------------------------------


def test_results_of_captured_steps_stay_where_they_were_given(cuda: CudaDevice) -> None:
    @alpha.capture(strict=True)
    def step(x: alpha.Tensor) -> alpha.Tensor:
        return x * 2.0

    for number in range(8):
        y = step(alpha.full((64,), float(number), device="cuda"))
        theirs = np.from_dlpack(y)
        address = theirs.ctypes.data
        step(alpha.full((64,), -1.0, device="cuda"))
        assert address_of(y) == address
        np.testing.assert_array_equal(theirs, np.full(64, 2.0 * number))
    assert step.graphs


@writable
def test_a_captured_step_writes_memory_that_is_shared(cuda: CudaDevice) -> None:
    weight = alpha.zeros(4, device="cuda")
    theirs = np.from_dlpack(weight)

    @alpha.capture(strict=True)
    def step(x: alpha.Tensor) -> None:
        weight.add_(x)

    for _ in range(6):
        step(alpha.ones(4, device="cuda"))
    assert step.graphs
    np.testing.assert_array_equal(theirs, [6, 6, 6, 6])
    theirs[:] = 0
    step(alpha.ones(4, device="cuda"))
    np.testing.assert_array_equal(weight.numpy(), [1, 1, 1, 1])


def test_a_captured_step_notices_what_numpy_writes(cuda: CudaDevice) -> None:
    """Small tensors on the cpu are compared, and of large ones nobody knows, so the step runs as usual."""
    small, large = alpha.ones(2), alpha.ones(200, 200)

    @alpha.capture
    def step(x: alpha.Tensor) -> alpha.Tensor:
        return x * (small.sum().item() + large.sum().item())

    def run() -> float:
        for _ in range(4):
            found = step(alpha.ones(1, device="cuda")).item()
        return found

    assert run() == 40002
    assert step.graphs
    np.asarray(small)[:] = 2
    assert run() == 40004
    shared = np.asarray(large)
    with pytest.warns(CaptureWarning, match="large, a tensor on cpu of 160,000 bytes that numpy has, too"):
        assert run() == 40004
    shared[:] = 2
    assert run() == 80004


def test_a_captured_step_notices_what_numpy_writes_to_memory_of_its_own(cuda: CudaDevice) -> None:
    values = np.ones((200, 200), np.float32)
    large = alpha.from_dlpack(values)

    @alpha.capture
    def step(x: alpha.Tensor) -> alpha.Tensor:
        return x * large.sum().item()

    with pytest.warns(CaptureWarning, match="large, a tensor on cpu of 160,000 bytes that numpy has, too"):
        found = [step(alpha.ones(1, device="cuda")).item() for _ in range(4)]
    values[:] = 2
    assert [*found, step(alpha.ones(1, device="cuda")).item()] == [40000] * 4 + [80000]


def test_nothing_is_shared_within_a_captured_step(cuda: CudaDevice) -> None:
    def step(x: alpha.Tensor) -> alpha.Tensor:
        y = x * 2.0
        np.from_dlpack(y)
        return y

    with pytest.raises(CaptureError, match=r"__dlpack__: an array is given to another library, at .*test_foreign"):
        alpha.capture(strict=True)(step)(alpha.ones(4, device="cuda"))
    captured = alpha.capture(step)
    with pytest.warns(CaptureWarning, match="an array is given to another library"):
        results = [captured(alpha.ones(4, device="cuda")).tolist() for _ in range(4)]
    assert results == [[2, 2, 2, 2]] * 4
