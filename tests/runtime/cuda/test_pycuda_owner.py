"""Owner of the pycuda driver, and the moments when it waits, on a pycuda that is made up: no GPU is needed for that."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import child
import numpy as np
import pytest

import alpha.runtime.cuda as package
from alpha.errors import DeviceError
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.host_copies import SMALL_SLOTS

MODULES = ("driver_pycuda", "pycuda_api")  # which import pycuda, or what another one has of it


class Allocation:
    """Host memory in the place of a GPU's."""

    freed: ClassVar[list[int]] = []

    def __init__(self, nbytes: int) -> None:
        self._memory = (ctypes.c_char * (nbytes + 512))()

    def __int__(self) -> int:
        return -(-ctypes.addressof(self._memory) // 512) * 512

    def free(self) -> None:
        self.freed.append(int(self))


class Contexts:
    """Changes of the stacks of contexts: 1 is put onto that of a thread, -1 is taken from it."""

    changes: ClassVar[list[tuple[str, int]]] = []

    @classmethod
    def note(cls, change: int) -> None:
        cls.changes.append((threading.current_thread().name, change))


class Event:
    """Counts the waits for all events."""

    waits: ClassVar[int] = 0
    done: ClassVar[bool] = True

    def record(self, stream: Any) -> None:
        pass

    def synchronize(self) -> None:
        type(self).waits += 1

    def query(self) -> bool:
        return self.done


def made_up() -> ModuleType:
    drv: Any = ModuleType("pycuda.driver")
    nothing = SimpleNamespace(push=lambda: Contexts.note(1), detach=lambda: None, synchronize=lambda: None)
    drv.Error = type("Error", (Exception,), {})
    drv.MemoryError = type("MemoryError", (drv.Error,), {})
    drv.init = lambda: None
    drv.get_driver_version = lambda: 13000
    drv.mem_get_info = lambda: (1 << 30, 1 << 30)
    drv.mem_alloc = Allocation
    drv.device_attribute = SimpleNamespace(MULTIPROCESSOR_COUNT=0, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=1)
    drv.Context = SimpleNamespace(pop=lambda: Contexts.note(-1), synchronize=lambda: None)
    drv.Device = lambda number: SimpleNamespace(
        name=lambda: "made up",
        compute_capability=lambda: (8, 0),
        get_attribute=lambda which: (108, 163 << 10)[which],
        total_memory=lambda: 1 << 30,
        retain_primary_context=lambda: nothing,
    )
    drv.Stream = lambda flags: nothing
    drv.Event = Event
    drv.pagelocked_empty = lambda nbytes, dtype: np.empty(nbytes, dtype)
    drv.memcpy_htod_async = lambda target, source, stream: ctypes.memmove(target, source.ctypes.data, source.nbytes)
    drv.memcpy_dtoh_async = lambda target, source, stream: ctypes.memmove(target.ctypes.data, source, target.nbytes)
    return drv


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    parent: Any = ModuleType("pycuda")
    parent.driver = made_up()
    monkeypatch.setitem(sys.modules, "pycuda", parent)
    monkeypatch.setitem(sys.modules, "pycuda.driver", parent.driver)
    for module in MODULES:
        monkeypatch.delitem(sys.modules, f"{package.__name__}.{module}", raising=False)
        monkeypatch.delattr(package, module, raising=False)
    monkeypatch.delenv("ALPHA_ISOLATE", raising=False)
    driver = importlib.import_module(f"{package.__name__}.driver_pycuda")
    monkeypatch.setattr(driver, "bindings", None)  # it would reserve addresses of a real GPU
    device = CudaDevice(driver.PycudaDriver())
    yield device
    device.close()
    for module in MODULES:
        monkeypatch.delitem(sys.modules, f"{package.__name__}.{module}", raising=False)
        vars(package).pop(module, None)


def refusal(call: Any) -> str:
    """The message of the `DeviceError` that a call raises in a thread of the name 'loader'."""
    messages: list[str] = []

    def work() -> None:
        try:
            call()
        except DeviceError as error:
            messages.append(str(error))

    thread = threading.Thread(target=work, name="loader")
    thread.start()
    thread.join(child.HANG_S)
    (message,) = messages
    return message


def test_other_threads_are_refused(gpu: CudaDevice) -> None:
    x = gpu.upload(np.arange(5, dtype=np.float32))
    calls = {
        "upload": lambda: gpu.upload(np.ones(3, np.float32)),
        "download": lambda: gpu.download(x),
        "synchronize": gpu.synchronize,
        "memory_stats": gpu.memory_stats,
        "close": gpu.close,
    }
    for name, call in calls.items():
        expected = f"{name}: called from thread 'loader', but the cuda device belongs to the main thread"
        assert refusal(call).startswith(expected)
    assert gpu.download(x).tolist() == [0, 1, 2, 3, 4]
    driver = type(gpu.driver)
    assert refusal(driver) == "make the cuda device in the main thread: alpha.get_device('cuda')"


def test_a_thread_that_has_a_turn_has_the_context_on_its_stack(gpu: CudaDevice) -> None:
    """Pycuda aborts a process one of whose threads ends with a context there."""

    def work() -> None:
        for _ in range(2):
            with gpu.turn(), gpu.turn():
                x.append(gpu.upload(np.arange(5, dtype=np.float32)))

    x: list[Any] = []
    Contexts.changes.clear()
    gpu.lend()
    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join(child.HANG_S)
    with gpu.turn():
        assert gpu.download(x[1]).tolist() == [0, 1, 2, 3, 4]
    assert Contexts.changes == [("worker", 1), ("worker", -1)] * 2
    gpu.take_back()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's own, of forks beside threads
def test_a_forked_child_is_refused(gpu: CudaDevice) -> None:
    x = gpu.upload(np.arange(5, dtype=np.float32))
    Allocation.freed.clear()
    child = os.fork()
    if child == 0:
        try:
            gpu.download(x)
        except DeviceError as error:
            refused = "download: the cuda device was made before a fork" in str(error) and "'spawn'" in str(error)
        gpu.close()  # as at the end of a program
        os._exit(0 if refused and not Allocation.freed else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert gpu.download(x).tolist() == [0, 1, 2, 3, 4]
    gpu.close()
    assert Allocation.freed
    with pytest.raises(DeviceError, match="synchronize: the cuda device is closed"):
        gpu.synchronize()


def test_many_steps_are_queued_before_the_host_waits(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step uploads a few values; a host that shares its core must be able to pause meanwhile."""
    monkeypatch.setattr(Event, "waits", 0)
    for _ in range(SMALL_SLOTS):
        gpu.upload(np.arange(5, dtype=np.float32))
    assert Event.waits == 0
    gpu.upload(np.arange(5, dtype=np.float32))
    assert Event.waits == 1


def test_memory_lives_until_the_copy_that_uses_it_has_ended(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU would read or write what the program uses for something else by then, though nobody else holds it."""
    monkeypatch.setattr(Event, "done", False)
    array = gpu.upload(np.arange(5, dtype=np.float32))
    buffers = [gpu.driver.pinned(20) for _ in range(3)]
    gpu.driver.begin_download(buffers[0], array.address)
    gpu.driver.begin_upload(array.address, buffers[1], None, array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu.driver, "record_event", interrupt)
        with pytest.raises(KeyboardInterrupt):
            gpu.driver.begin_download(buffers[2], array.address)
    held = [weakref.ref(value) for value in (array.block, *buffers)]
    del array, buffers
    gpu.upload(np.zeros(5, np.float32))
    assert all(reference() is not None for reference in held)
    monkeypatch.setattr(Event, "done", True)
    last = gpu.driver.pinned(4)
    gpu.driver.begin_download(last, gpu.upload(np.zeros(1, np.float32)).address)
    assert all(reference() is None for reference in held)


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt
