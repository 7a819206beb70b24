"""Address ranges and graphs over a made-up cuda-bindings, which counts what is asked of it and can refuse."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import alpha.runtime.cuda
from alpha.errors import DeviceError
from alpha.runtime.arena.arena import PAGE

MODULE = "alpha.runtime.cuda.bindings"
START = 1 << 40


class Result(Enum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2


class MadeUp:
    """The calls of cuda.bindings.driver that Alpha makes; `fails` names one that returns an error."""

    CUresult = Result
    CUmemLocation = CUmemAllocationProp = CUmemAccessDesc = SimpleNamespace
    CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE=1)
    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED=1)
    CUmemAccess_flags = SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)

    def __init__(self) -> None:
        self.fails: dict[str, Result] = {}
        self.handles: set[int] = set()
        self.mapped: dict[int, int] = {}
        self.open: dict[int, int] = {}
        self.calls: list[str] = []

    def __getattr__(self, call: str) -> Any:
        def answer(*args: Any) -> tuple[Any, ...]:
            self.calls.append(call)
            if call in self.fails:
                return self.fails[call], 0
            return Result.CUDA_SUCCESS, *self.effect(call, args)

        return answer

    def effect(self, call: str, args: Any) -> tuple[Any, ...]:
        if call == "cuMemAddressReserve":
            return (START,)
        if call == "cuMemCreate":
            handle = len(self.calls)
            self.handles.add(handle)
            return (handle,)
        if call == "cuMemMap":
            self.mapped[args[0]] = args[1]
        elif call == "cuMemUnmap":
            assert self.mapped.pop(args[0]) == args[1]
        elif call == "cuMemRelease":
            self.handles.remove(args[0])
        elif call == "cuMemSetAccess":
            self.open[args[0]] = args[1]
        elif call in ("cuStreamEndCapture", "cuGraphInstantiate", "cuEventCreate"):
            return (call,)
        return ()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[MadeUp]:
    made_up: Any = MadeUp()
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["cuda.bindings"].driver = made_up  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made_up)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.delattr(alpha.runtime.cuda, "bindings", raising=False)
    yield made_up
    sys.modules.pop(MODULE, None)  # a device that is made later must not find the made-up one,
    vars(alpha.runtime.cuda).pop("bindings", None)  # nor as an attribute of the package


def test_a_range_grows_and_shrinks_at_its_end(cuda: MadeUp) -> None:
    memory = importlib.import_module(MODULE).AddressRange(0, 8 * PAGE)
    addresses = [memory.allocate(n * PAGE) for n in (1, 3, 2)]
    assert addresses == [START, START + PAGE, START + 4 * PAGE]
    assert cuda.mapped == cuda.open == {START: PAGE, START + PAGE: 3 * PAGE, START + 4 * PAGE: 2 * PAGE}
    with pytest.raises(DeviceError, match="is not the last piece"):
        memory.free(addresses[0])
    with pytest.raises(MemoryError, match="is full"):
        memory.allocate(3 * PAGE)
    with pytest.raises(ValueError, match="whole pages"):
        memory.allocate(PAGE + 1)
    memory.free(addresses[2])
    assert memory.allocate(4 * PAGE) == addresses[2]
    memory.close()
    memory.close()
    assert not cuda.mapped
    assert not cuda.handles
    assert cuda.calls.count("cuMemAddressFree") == 1


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_refusal_leaves_the_range_as_it_was(cuda: MadeUp, call: str) -> None:
    memory = importlib.import_module(MODULE).AddressRange(0, 8 * PAGE)
    memory.allocate(PAGE)
    for status, error in (
        (Result.CUDA_ERROR_OUT_OF_MEMORY, MemoryError),
        (Result.CUDA_ERROR_INVALID_VALUE, DeviceError),
    ):
        cuda.fails[call] = status
        with pytest.raises(error, match=f"{call}: {status.name}"):
            memory.allocate(PAGE)
        assert len(cuda.mapped) == len(cuda.handles) == 1
    cuda.fails.clear()
    assert memory.allocate(PAGE) == START + PAGE


@pytest.mark.parametrize("fails", ["", "cuEventRecord", "cuStreamWaitEvent"])
def test_one_stream_waits_for_another_by_an_event(cuda: MadeUp, fails: str) -> None:
    bindings = importlib.import_module(MODULE)
    if fails:
        cuda.fails[fails] = Result.CUDA_ERROR_INVALID_VALUE
        with pytest.raises(DeviceError, match=f"{fails}: CUDA_ERROR_INVALID_VALUE"):
            bindings.order(1, 7)
    else:
        bindings.order(1, 7)
        assert cuda.calls == ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy"]
    assert cuda.calls[-1] == "cuEventDestroy"


def test_a_graph_is_instantiated_launched_and_destroyed(cuda: MadeUp) -> None:
    bindings = importlib.import_module(MODULE)
    bindings.begin_capture(7)
    graph = bindings.end_capture(7)
    done: list[Any] = []
    graph.launch(7, done)
    assert len(done) == 1
    cuda.fails["cuGraphLaunch"] = Result.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DeviceError, match="cuGraphLaunch: CUDA_ERROR_INVALID_VALUE"):
        graph.launch(7, refused := [])
    assert refused == []
    cuda.calls.pop()
    graph.close()
    graph.close()
    assert cuda.calls == [
        *("cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphDestroy"),
        *("cuGraphLaunch", "cuGraphExecDestroy"),
    ]
    bindings.abandon_capture(7)
    assert cuda.calls[-2:] == ["cuStreamEndCapture", "cuGraphDestroy"]
    cuda.fails["cuStreamEndCapture"] = Result.CUDA_ERROR_INVALID_VALUE
    bindings.abandon_capture(7)  # nothing is left to destroy
    with pytest.raises(DeviceError, match="cuStreamEndCapture: CUDA_ERROR_INVALID_VALUE"):
        bindings.end_capture(7)


def test_the_made_up_calls_are_gone_afterwards() -> None:
    """The tests above are over; on a GPU the next device would take its memory from the made-up calls."""
    assert not isinstance(getattr(sys.modules.get(MODULE), "cuda", None), MadeUp)
    assert not isinstance(getattr(getattr(alpha.runtime.cuda, "bindings", None), "cuda", None), MadeUp)
