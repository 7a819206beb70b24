"""Owner of the pycuda driver, and the moments when it waits, on a pycuda that is made up: no GPU is needed for that."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import child
import numpy as np
import pytest

import alpha.runtime.cuda as package
from alpha.errors import DeviceError
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.driver import Driver
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


OWN, OTHER = 16, 32  # handles of contexts


class Contexts:
    """The contexts of a GPU, of one thread.

    Attributes:
        changes: of pycuda's stacks: 1 is put onto that of a thread, -1 is taken from it.
        current: the handle of the one that the driver's calls work on.
    """

    changes: ClassVar[list[tuple[str, int]]] = []
    depths: ClassVar[dict[int, int]] = {}  # of pycuda's stacks, by thread
    current: ClassVar[int | None] = None

    handle = OWN

    @classmethod
    def note(cls, change: int) -> None:
        cls.changes.append((threading.current_thread().name, change))
        thread = threading.get_ident()
        depth = cls.depths.get(thread, 0)
        # pycuda first takes what is current from the driver's stack, if its own has something
        assert depth == 0 or cls.current is not None, "invalid context"
        cls.depths[thread] = depth + change
        cls.current = OWN if cls.depths[thread] else None

    @classmethod
    def push(cls) -> None:
        cls.note(1)

    @classmethod
    def pop(cls) -> None:
        cls.note(-1)

    @classmethod
    def detach(cls) -> None:
        pass

    @classmethod
    def call(cls, name: str) -> Any:
        """A function of the driver library for which pycuda has none."""

        def find(place: Any) -> int:
            place._obj.value = cls.current
            return 0

        def put(value: ctypes.c_void_p) -> int:
            cls.current = value.value
            return 0

        return {"cuCtxGetCurrent": find, "cuCtxSetCurrent": put}[name]


class InOwnContext:
    """A thing of pycuda whose methods work in the driver's own context alone, as those of a real one do."""

    def __init__(self, **methods: Any) -> None:
        vars(self).update({name: self.demanding(method) for name, method in methods.items()})

    @staticmethod
    def demanding(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if Contexts.current != OWN:
                raise sys.modules["pycuda.driver"].Error("invalid resource handle")
            return method(*args, **kwargs)

        return call


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

    def time_till(self, end: Event) -> float:
        return 0.0


def made_up() -> ModuleType:
    drv: Any = ModuleType("pycuda.driver")
    stream = InOwnContext(synchronize=lambda: None, wait_for_event=lambda event: None, handle=7)
    drv.Error = type("Error", (Exception,), {})
    drv.MemoryError = type("MemoryError", (drv.Error,), {})
    drv.init = lambda: None
    drv.get_driver_version = lambda: 13000
    demanding = InOwnContext.demanding
    drv.mem_get_info = demanding(lambda: (1 << 30, 1 << 30))
    drv.mem_alloc = demanding(Allocation)
    drv.device_attribute = SimpleNamespace(MULTIPROCESSOR_COUNT=0, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=1)
    drv.Context = SimpleNamespace(pop=Contexts.pop, synchronize=demanding(lambda: None))
    drv.Device = lambda number: SimpleNamespace(
        name=lambda: "made up",
        compute_capability=lambda: (8, 0),
        get_attribute=lambda which: (108, 163 << 10)[which],
        total_memory=lambda: 1 << 30,
        retain_primary_context=lambda: Contexts,
    )
    drv.Stream = demanding(lambda flags: stream)
    drv.Event = Event
    drv.pagelocked_empty = lambda nbytes, dtype: np.empty(nbytes, dtype)
    drv.memcpy_htod_async = demanding(
        lambda target, source, _: ctypes.memmove(target, source.ctypes.data, source.nbytes)
    )
    drv.memcpy_dtoh_async = demanding(
        lambda target, source, _: ctypes.memmove(target.ctypes.data, source, target.nbytes)
    )
    drv.memcpy_dtod_async = demanding(lambda target, source, nbytes, _: ctypes.memmove(target, source, nbytes))
    drv.memset_d8_async = demanding(lambda address, byte, nbytes, _: ctypes.memset(address, byte, nbytes))
    drv.function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES=0)
    drv.module_from_buffer = demanding(
        lambda image: InOwnContext(get_function=lambda entry: InOwnContext(_launch_kernel=lambda *given: None))
    )
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
    monkeypatch.setattr(driver, "driver_call", Contexts.call)
    monkeypatch.setattr(Contexts, "current", None)
    monkeypatch.setattr(Contexts, "depths", {})
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
    Contexts.current = OWN  # which is that of the worker until here
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


def work(driver: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """Calls of all methods of the driver that this pycuda has what they need for."""
    address, host = driver.allocate(64), np.arange(16, dtype=np.float32)
    event, buffer, image = driver.record_event(), driver.pinned(64), folder / "kernel.cubin"
    image.write_bytes(b"image")
    module = driver.load(image)
    function = driver.function(module, "entry", 0)
    return {
        "memory_info": driver.memory_info,
        "allocate": lambda: driver.allocate(64),
        "free": lambda: driver.free(driver.allocate(64)),
        "upload": lambda: driver.upload(address, host),
        "download": lambda: driver.download(host, address),
        "pinned": lambda: driver.pinned(64),
        "begin_download": lambda: driver.begin_download(buffer, address),
        "is_done": lambda: driver.is_done(event),
        "begin_upload": lambda: driver.begin_upload(address, buffer, event),
        "wait_for": lambda: driver.wait_for(event),
        "wait_until": lambda: driver.wait_until(event),
        "hand_over": lambda: driver.hand_over(in_own_context, beside=True),
        "join": driver.join,
        "let_wait": lambda: driver.let_wait(7),
        "wait_for_stream": lambda: driver.wait_for_stream(7),
        "wait_for_all": driver.wait_for_all,
        "copy": lambda: driver.copy(address, address + 32, 32),
        "fill": lambda: driver.fill(address, 0, 64),
        "load": lambda: driver.load(image),
        "function": lambda: driver.function(module, "entry", 0),
        "launch": lambda: driver.launch(function, (1, 1, 1), (32, 1, 1), 0, (b"", [])),
        "outside_capture": lambda: driver.outside_capture(lambda: driver.fill(address, 0, 64)),
        "switch": lambda: [driver.switch(True), driver.switch(False)],
        "synchronize": driver.synchronize,
        "record_event": driver.record_event,
        "elapsed_ms": lambda: driver.elapsed_ms(event, event),
    }


def in_own_context(stream: int) -> None:
    assert Contexts.current == OWN


# what they do is in no context, or the calls that they make are those of other methods
IN_NONE = {"raw_memory", "compile", "is_compiled", "encode_tiled_map"}
BY_BINDINGS = {"begin_capture", "end_capture", "abandon_capture", "replay", "free_graph", "begin_times", "end_times"}


@pytest.mark.parametrize("other", [OTHER, None])
def test_the_context_of_another_library_stays_current_and_is_not_used(
    gpu: CudaDevice, tmp_path: Path, other: int | None
) -> None:
    """PyTorch, JAX and CuPy make that of another GPU current when they work there; None: they have taken it away."""
    driver: Any = gpu.driver
    calls = work(driver, tmp_path)
    Contexts.changes.clear()
    for name, call in calls.items():
        Contexts.current = other
        call()
        assert Contexts.current == other, name
    assert sum(change for _, change in Contexts.changes) == 0
    gpu.close()
    assert Contexts.current == other
    assert Allocation.freed


def test_every_method_of_the_driver_makes_its_context_current(gpu: CudaDevice, tmp_path: Path) -> None:
    driver: Any = gpu.driver
    methods = {name for name, value in vars(Driver).items() if callable(value) and not name.startswith("_")}
    assert methods - IN_NONE - BY_BINDINGS - {"close"} == work(driver, tmp_path).keys()
    for name in BY_BINDINGS:
        assert hasattr(getattr(driver, name), "__wrapped__"), name  # it is `guarded`


def test_a_launch_asks_which_context_is_current_once_another_one_was(gpu: CudaDevice, tmp_path: Path) -> None:
    driver: Any = gpu.driver
    launch = work(driver, tmp_path)["launch"]
    Contexts.changes.clear()
    launch()
    Contexts.current = OTHER
    launch()  # fails, and is made again
    launch()
    assert Contexts.current == OTHER
    assert [change for _, change in Contexts.changes] == [1, -1, 1, -1]


@pytest.mark.parametrize("other", [OTHER, None])
def test_a_turn_leaves_the_context_of_another_library_current(gpu: CudaDevice, other: int | None) -> None:
    def work() -> None:
        Contexts.current = None  # as in each new thread
        with gpu.turn():
            assert Contexts.current == OWN
            Contexts.current = other
        found.append(Contexts.current)

    found: list[int | None] = []
    gpu.lend()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(child.HANG_S)
    gpu.take_back()
    assert found == [other]
