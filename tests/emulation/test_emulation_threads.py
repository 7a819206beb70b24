"""The emulated device belongs to the main thread, as the GPU does, or to the thread that has a turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import child
import numpy as np
import pytest

import alpha
from alpha.errors import DeviceError
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.registry import standing_in


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    device = CudaDevice(EmulatedDriver())
    yield device
    device.close()


def in_thread(call: Callable[[], Any]) -> list[Exception]:
    """Errors that a call raises in a thread of the name 'loader'."""
    raised: list[Exception] = []

    def work() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="loader")
    thread.start()
    thread.join(child.HANG_S)
    assert not thread.is_alive()
    return raised


CALLS: dict[str, Callable[[CudaDevice, Any], Any]] = {
    "allocate": lambda on, x: on.empty((7,), np.float32),
    "upload": lambda on, x: on.driver.upload(x.address, np.ones(100, np.float32)),
    "download": lambda on, x: on.driver.download(np.ones(100, np.float32), x.address),
    "copy": lambda on, x: on.driver.copy(x.address, x.address, 4),
    "fill": lambda on, x: on.driver.fill(x.address, 0, 4),
    "free": lambda on, x: on.driver.free(x.address),
    "launch": lambda on, x: on.fill(x, 1.5),
    "synchronize": lambda on, x: on.synchronize(),
    "record_event": lambda on, x: on.record_event(),
    "memory_info": lambda on, x: on.driver.memory_info(),
    "memory_stats": lambda on, x: on.memory_stats(),
    "set_memory_limit": lambda on, x: on.set_memory_limit(None),
    "close": lambda on, x: on.close(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_from_another_thread_is_refused(device: CudaDevice, call: str) -> None:
    x = device.upload(np.arange(100, dtype=np.float32))
    device.fill(device.empty((3,), np.float32), 1.5)  # compiles
    before = device.memory_stats()
    (error,) = in_thread(lambda: CALLS[call](device, x))
    assert isinstance(error, DeviceError)
    assert f"{call}: called from thread 'loader', but the cuda device belongs to the main thread" in str(error)
    assert device.memory_stats() == before
    np.testing.assert_array_equal(device.download(x), np.arange(100))


def test_arrays_are_neither_written_nor_read_in_another_thread(device: CudaDevice) -> None:
    x = device.upload(np.arange(100, dtype=np.float32))
    for call in (lambda: device.write(x, np.ones(100, np.float32)), lambda: device.download(x)):
        (error,) = in_thread(call)
        assert "called from thread 'loader'" in str(error)
    np.testing.assert_array_equal(device.download(x), np.arange(100))


def test_a_device_is_made_in_the_main_thread() -> None:
    (error,) = in_thread(lambda: CudaDevice(EmulatedDriver()))
    assert isinstance(error, DeviceError)
    assert str(error) == "make the cuda device in the main thread: alpha.get_device('cuda')"


def test_many_threads_that_compute_are_refused_at_once(device: CudaDevice) -> None:
    """Threads are refused while the main thread goes on; nothing is written anywhere."""
    x = alpha.tensor(np.arange(2000, dtype=np.float32), device=device)
    expected = (x + x).numpy()
    raised: list[Exception] = []
    ready = threading.Barrier(5)

    def work() -> None:
        ready.wait(child.HANG_S)
        for _ in range(20):
            try:
                x + x
            except DeviceError as error:
                raised.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    ready.wait(child.HANG_S)
    for _ in range(20):
        np.testing.assert_array_equal((x + x).numpy(), expected)
    for thread in threads:
        thread.join(child.HANG_S)
    assert len(raised) == 80
    assert all("belongs to the main thread" in str(error) for error in raised)


def test_arrays_may_die_on_any_thread(device: CudaDevice) -> None:
    """The memory of the arrays goes back when the main thread next asks for some."""
    kept = device.upload(np.arange(10, dtype=np.float32))
    before = device.memory_stats().live
    held = [device.empty((n,), np.float32) for n in range(1, 200)]

    def drop() -> None:
        while held:
            try:
                held.pop()
            except IndexError:
                return

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    mine = []
    while held:  # meanwhile the main thread takes and frees
        mine.append(device.empty((50,), np.float32))
        mine = mine[-3:]
    for thread in threads:
        thread.join(child.HANG_S)
    mine.clear()
    stats = device.memory_stats()
    assert (stats.live, stats.reserved) == (before, before)
    np.testing.assert_array_equal(device.download(kept), np.arange(10))


def test_a_closed_device_says_so() -> None:
    device = CudaDevice(EmulatedDriver())
    x = device.zeros((3,), np.float32)
    device.close()
    with pytest.raises(DeviceError, match="download: the cuda device is closed"):
        device.download(x)


def test_threads_take_turns_with_a_device_that_is_lent(device: CudaDevice) -> None:
    """Each thread goes on with what another one has computed, and is never in the middle of its work."""
    total = [alpha.zeros(50, device=device)]
    expected = np.full(50, sum(range(24)), np.float32)
    inside: list[str] = []

    def add(number: int) -> None:
        with device.turn():
            inside.append("in")
            with device.turn():  # as a function that is called within a turn
                total[0] = total[0] + alpha.full((50,), float(number), device=device)
            inside.append("out")

    with standing_in(device):
        for _ in range(2):  # it may be lent again
            total[0] = alpha.zeros(50, device=device)
            with alpha.cuda.lend(device), ThreadPoolExecutor(6) as pool:
                list(pool.map(add, range(24)))
                assert "the cuda device is lent, and thread 'MainThread' has no turn" in refusal(device)
                with alpha.cuda.turn(device):
                    np.testing.assert_array_equal(total[0].numpy(), expected)
            np.testing.assert_array_equal(total[0].numpy(), expected)
    assert inside == ["in", "out"] * 48


def test_loans_are_counted(device: CudaDevice) -> None:
    """Each of two that need the device may end first, and on any thread."""
    device.lend()
    assert in_thread(device.lend) == []
    device.take_back()
    assert "is lent" in refusal(device)
    assert in_thread(device.take_back) == []
    device.upload(np.ones(3, np.float32))
    for call in (device.lend, lambda: device.turn().__enter__()):
        (error,) = in_thread(call)
        assert "called from thread 'loader', but the cuda device belongs to the main thread" in str(error)
    with device.turn():
        device.lend()
        device.upload(np.ones(3, np.float32))  # the turn goes on
        device.take_back()
        device.upload(np.ones(3, np.float32))
    device.lend()
    device.close()
    for call in (device.lend, lambda: device.turn().__enter__()):
        with pytest.raises(DeviceError, match="the cuda device is closed"):
            call()


def test_a_loan_ends_after_the_turn_that_goes_on(device: CudaDevice) -> None:
    has_turn, go_on = threading.Event(), threading.Event()
    found: list[Any] = []

    def work() -> None:
        with device.turn():
            has_turn.set()
            assert go_on.wait(child.HANG_S)
            found.append(device.download(device.upload(np.arange(3))).tolist())

    device.lend()
    thread = threading.Thread(target=work)
    thread.start()
    assert has_turn.wait(child.HANG_S)
    assert "is lent" in refusal(device)
    threading.Timer(0.05, go_on.set).start()
    device.take_back()
    assert found == [[0, 1, 2]]
    thread.join(child.HANG_S)
    device.synchronize()


def refusal(device: CudaDevice) -> str:
    with pytest.raises(DeviceError) as error:
        device.upload(np.ones(3, np.float32))
    return str(error.value)
