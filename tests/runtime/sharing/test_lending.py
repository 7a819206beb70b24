"""Arrays of a GPU that another library has, too: addresses, streams, how long memory lives, what cuda-core is asked.

The memory of the emulated driver lies on the host, so numpy stands for the other library. What only a GPU can show is
in tests/cuda/test_foreign_gpu.py.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import alpha
from alpha.errors import AlphaError, DeviceError
from alpha.runtime import get_device
from alpha.runtime.cuda.array import DeviceArray, form_of
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.planning.driver_dry import DryDevice
from alpha.runtime.sharing import capsules, lending

VALUES = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def emulated() -> Iterator[CudaDevice]:
    """The emulated device, on which nothing is shared."""
    try:
        device = get_device("cuda")
    except AlphaError as error:
        pytest.skip(str(error))
    assert isinstance(device, CudaDevice)
    if device.driver.name != "emulated":
        pytest.skip("reads the memory of the emulated driver")
    gc.collect()
    device.memory.leases.settle(wait=True)
    before = device.memory.leases.count
    yield device
    gc.collect()
    device.memory.leases.settle(wait=True)
    assert device.memory.leases.count == before


class Lent:
    """A consumer's side of `lend`, with what the driver was told."""

    def __init__(self, array: DeviceArray, stream: Any) -> None:
        self._capsule = lending.lend(array, stream, (1, 0))

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Of:
    """An array of numpy whose capsule any stream may ask for."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **_: Any) -> Any:
        return capsules.of_host(self._array, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Calls:
    """The calls of a driver that put orders of work behind each other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
        self.made: list[tuple[Any, ...]] = []
        for name in ("let_wait", "wait_for_stream", "wait_for_all", "synchronize"):
            monkeypatch.setattr(driver, name, lambda *stream, name=name: self.made.append((name, *stream)))


@pytest.mark.parametrize("stream", [0, -2, True, "1", 1.0])
def test_what_is_no_stream_is_refused(emulated: CudaDevice, stream: Any) -> None:
    with pytest.raises(BufferError, match=r"__dlpack__: stream=.* is no stream of CUDA"):
        lending.lend(emulated.upload(VALUES), stream, None)


@pytest.mark.parametrize(
    ("stream", "before", "after"),
    [
        (None, [("let_wait", 1)], [("wait_for_stream", 1)]),
        (1, [("let_wait", 1)], [("wait_for_stream", 1)]),
        (2, [("let_wait", 2)], [("wait_for_stream", 2)]),
        (7000, [("let_wait", 7000)], [("wait_for_all",)]),  # it may be destroyed by the time
        (-1, [], [("wait_for_all",)]),
    ],
)
def test_a_consumers_stream_waits_for_alpha_and_later_alpha_for_it(
    emulated: CudaDevice, monkeypatch: pytest.MonkeyPatch, stream: Any, before: list[Any], after: list[Any]
) -> None:
    calls = Calls(monkeypatch, emulated.driver)
    array = emulated.upload(VALUES)
    theirs = np.from_dlpack(Lent(array, stream))
    assert calls.made == before
    assert theirs.ctypes.data == array.address
    del array
    emulated.memory.leases.settle()
    assert calls.made == before
    del theirs
    emulated.memory.leases.settle()
    assert calls.made == before + after


def test_lent_memory_lives_until_its_user_has_died_and_alpha_waits_for_it(emulated: CudaDevice) -> None:
    live = emulated.memory_stats().allocations
    theirs = np.from_dlpack(Lent(emulated.upload(VALUES), 1))
    emulated.trim()
    np.testing.assert_array_equal(theirs, VALUES)
    assert emulated.memory_stats().allocations == live + 1
    part = theirs[1:]
    del theirs
    assert emulated.memory_stats().allocations == live + 1
    thread = threading.Thread(target=lambda held: held.clear(), args=([part],))
    del part
    thread.start()
    thread.join()
    assert emulated.memory.arena.stats().allocations == live + 1  # nobody knows that the user's work is done
    assert emulated.memory_stats().allocations == live


def test_a_new_user_may_have_the_id_of_one_that_has_died(emulated: CudaDevice) -> None:
    leases, array = emulated.memory.leases, emulated.upload(VALUES)
    count, user = leases.count, Lent.__new__(Lent)
    leases.lend(user, array.block, 1)
    before = id(user)
    del user
    others = [Lent.__new__(Lent)]
    while id(others[-1]) != before and len(others) < 1000:
        others.append(Lent.__new__(Lent))
    if id(others[-1]) != before:
        pytest.skip("no new object has the id of the one that has died")
    leases.lend(others[-1], array.block, 1)
    leases.settle()
    assert leases.count == count + 1
    others.clear()
    leases.settle()
    assert leases.count == count


def test_a_capsule_that_nobody_reads_holds_nothing(emulated: CudaDevice) -> None:
    live = emulated.memory_stats().allocations
    lending.lend(emulated.upload(VALUES), None, None)
    assert emulated.memory_stats().allocations == live


def test_lent_memory_comes_back_where_memory_is_short(emulated: CudaDevice) -> None:
    emulated.trim()
    stats = emulated.memory_stats()
    emulated.set_memory_limit(stats.reserved + 3 * 2**20)
    try:
        for _ in range(4):
            assert np.from_dlpack(Lent(emulated.zeros((2**19,), np.float32), 1))[-1] == 0
        emulated.zeros((2**19,), np.float32)
    finally:
        emulated.set_memory_limit(None)


def test_a_magnitude_is_forgotten(emulated: CudaDevice) -> None:
    array = emulated.upload(VALUES)
    array.magnitude = emulated.zeros((1,), np.uint32)
    lending.lend(array, 1, None)
    assert array.magnitude is None


def test_the_cuda_array_interface(emulated: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers hold the tensor, so the memory lives as long as that, and then until all streams are done."""
    calls = Calls(monkeypatch, emulated.driver)
    array, user = emulated.upload(VALUES), Lent.__new__(Lent)
    expected = {"shape": (4, 3), "typestr": "<f4", "data": (array.address, False), "strides": None, "version": 3}
    for _ in range(2):
        assert lending.interface(array, user) == {**expected, "stream": None}
    assert calls.made == [("synchronize",)] * 2  # PyTorch does not read "stream", so the host has waited
    calls.made.clear()
    bits = emulated.upload(VALUES.astype(ml_dtypes.bfloat16))
    assert lending.interface(bits, user)["typestr"] == "<V2"
    count = emulated.memory.leases.count
    del user
    emulated.memory.leases.settle()
    assert emulated.memory.leases.count == count - 2
    assert calls.made == [("synchronize",), *[("wait_for_all",)] * 2]


def test_cuda_core_is_given_the_address_the_form_and_the_owner(
    emulated: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in makes the capsule, which cuda-core does where there is a GPU."""
    asked: list[Any] = []

    class Buffer:
        @staticmethod
        def from_handle(address: int, nbytes: int, owner: Any) -> Any:
            asked.append((address, nbytes))
            return owner

    class View:
        @staticmethod
        def from_buffer(owner: Any, shape: Any, dtype: Any) -> Any:
            asked.append((shape, dtype))
            values = np.asarray(owner).view(dtype).reshape(shape)
            return SimpleNamespace(__dlpack__=lambda max_version: capsules.of_host(values, max_version))

    monkeypatch.setattr(lending, "views", lambda: (Buffer, View))
    monkeypatch.setattr(lending, "device_of", lambda _: (2, 0))
    array = emulated.upload(VALUES.astype(ml_dtypes.bfloat16))
    capsule = lending.lend(array, 1, (1, 0))
    assert asked == [(array.address, 24), ((4, 3), np.uint16)]
    found = capsules.tensor_of(capsule)
    assert (found.data, found.code, found.bits) == (array.address, capsules.BFLOAT, 16)
    asked.clear()
    end = array.slice_rows(4, 4)  # no element of it lies at its address, which may be that of nothing
    lending.lend(end, 1, (1, 0))
    (address, nbytes), form = asked
    assert (nbytes, form) == (0, ((0, 3), np.uint16))
    assert address not in (0, end.address)


def test_borrowed_memory_lives_until_alphas_work_is_done(emulated: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of the host stands for one of a GPU; nothing reads it on the device."""
    pytest.importorskip("cuda.core")
    monkeypatch.setattr(emulated.driver, "name", "pycuda")
    released: list[bool] = []

    class Theirs:
        def __init__(self) -> None:
            self.array = VALUES.astype(ml_dtypes.bfloat16).T
            self.asked: dict[str, Any] = {}

        def __dlpack__(self, **arguments: Any) -> Any:
            self.asked = arguments
            return capsules.of_host(self.array, arguments.get("max_version"))

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __del__(self) -> None:
            released.append(True)

    theirs = Theirs()
    window, shape, strides, is_read_only = lending.borrow(emulated, theirs)
    assert (window.address, window.shape, window.dtype) == (theirs.array.ctypes.data, (12,), ml_dtypes.bfloat16)
    assert (shape, strides, is_read_only) == ((3, 4), (1, 3), False)
    assert "stream" in theirs.asked
    part = window.slice_rows(2, 4)
    ended: list[Any] = []
    monkeypatch.setattr(emulated.driver, "is_done", lambda event: bool(ended))
    del theirs, window
    emulated.memory.leases.settle()
    assert not released
    del part
    emulated.memory.leases.settle()
    assert not released  # what Alpha has queued may still read it
    ended.append(True)
    emulated.memory.leases.settle()
    assert released


def test_borrowed_memory_without_elements_is_alphas_own(emulated: CudaDevice) -> None:
    """PyTorch gives such an array no address, and nobody could be told then on which device it lies."""
    count = emulated.memory.leases.count
    view = SimpleNamespace(ptr=0, shape=(0, 3), strides=None, dtype=np.dtype(np.float32), readonly=False)
    window, shape, _, is_read_only = lending._window(emulated, view, False)
    assert (window.shape, shape, is_read_only) == ((0,), (0, 3), False)
    assert window.address != 0
    assert emulated.memory.leases.count == count


def test_borrowed_memory_lives_as_long_as_a_captured_step(emulated: CudaDevice) -> None:
    """Memory of the host stands for that of another library on the GPU, and is as good for the emulated driver."""
    values = np.zeros(64, np.float32)
    owner = Lent.__new__(Lent)
    block = lending.ForeignBlock(values.ctypes.data, values.nbytes)
    emulated.memory.leases.borrow(block, owner)
    released = weakref.ref(owner)
    weight = alpha.Tensor(DeviceArray(emulated, block, 0, form_of((64,), np.dtype(np.float32))))
    del owner, block
    step = alpha.capture(weight.add_, strict=True)
    for _ in range(5):
        step(alpha.ones(64, device="cuda"))
    assert step.graphs
    np.testing.assert_array_equal(values, np.full(64, 5))
    gc.collect()
    emulated.memory.leases.settle(wait=True)
    assert released() is not None
    del step, weight
    gc.collect()
    emulated.trim()
    assert released() is None


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="this numpy exports nothing it has taken")
def test_what_was_lent_comes_back_as_the_same_block(emulated: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.core")
    array = emulated.upload(VALUES)
    count = emulated.memory.leases.count
    theirs = np.from_dlpack(Lent(array, 1))
    user, owner = Lent.__new__(Lent), Lent.__new__(Lent)
    emulated.memory.leases.borrow(user, owner)  # which is no block
    monkeypatch.setattr(emulated.driver, "name", "pycuda")
    window, _, _, _ = lending.borrow(emulated, Of(theirs[1:]))
    assert window.block is array.block
    assert window.address == array.address + 12
    del theirs, user
    emulated.memory.leases.settle()
    assert emulated.memory.leases.count == count  # nothing of the other library is held
    del array
    np.testing.assert_array_equal(emulated.download(window), VALUES[1:].ravel())


def test_arrays_of_a_gpu_need_one(emulated: CudaDevice) -> None:
    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    with pytest.raises(DeviceError, match="the array lies on a GPU, and the emulated driver has none"):
        lending.borrow(emulated, Elsewhere())


def test_a_dry_run_has_nothing_to_share() -> None:
    with pytest.raises(DeviceError, match="a dry run computes nothing, so there is no memory to share"):
        lending.lend(DryDevice.of("sm_90a").zeros((2,), np.float32), None, None)


def test_other_threads_are_refused(emulated: CudaDevice) -> None:
    array, errors = emulated.upload(VALUES), list[Exception]()

    def lend() -> None:
        try:
            lending.lend(array, 1, None)
        except DeviceError as error:
            errors.append(error)

    thread = threading.Thread(target=lend)
    thread.start()
    thread.join()
    assert "called from thread" in str(errors[0])
