"""Branches of a captured step: what waits for what, in whatever order a GPU runs the rest."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha.errors import CaptureError, DeviceError
from alpha.runtime.cuda.branches import Branches
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.emulated.emulated_capture import BESIDE, ORDERS, STEP, Capture, Mark
from alpha.runtime.cuda.graphs import CudaRecording, capture

CELL = 512


@dataclass(eq=False)
class Block:
    address: int
    nbytes: int = CELL


@dataclass(eq=False)
class Array:
    block: Block


@dataclass(frozen=True)
class Node:
    """A launch that writes cells from what is in these and in others."""

    number: int
    read: frozenset[int]
    written: frozenset[int]


@dataclass
class Recorder:
    """The part of a driver that branches need."""

    captured: Capture[Node] = field(default_factory=Capture)

    def switch(self, beside: bool) -> None:
        self.captured.stream = BESIDE if beside else STEP

    def record_event(self) -> Mark:
        return self.captured.mark()

    def wait_for(self, mark: Mark) -> None:
        self.captured.wait(mark)


class Step:
    """A step that is recorded, of launches on cells of memory."""

    def __init__(self) -> None:
        self.driver = Recorder()
        self.branches: Any = Branches(self.driver)  # type: ignore[arg-type]
        self.nodes: list[Node] = []

    def launch(self, read: Any, written: Any) -> int:
        """Record a launch; its place."""
        node = Node(len(self.nodes), frozenset(read), frozenset(written))
        self.nodes.append(node)
        arrays = [[Array(Block(CELL * cell)) for cell in cells] for cells in (node.read, node.written)]
        self.branches.note(*arrays)
        self.driver.captured.add(node)
        return node.number

    def exchange(self, cells: Any) -> None:
        """Record that another library changes these cells, for which `self.driver.captured.join` waits."""
        node = Node(len(self.nodes), frozenset(), frozenset(cells))
        self.nodes.append(node)
        self.branches.note([], [Array(Block(CELL * cell)) for cell in cells])
        self.driver.captured.hand_over(node)

    def beside(self, *launches: tuple[Any, Any]) -> list[int]:
        return self.branches.run(lambda: [self.launch(*each) for each in launches])

    def order(self, early: bool) -> list[int]:
        return [place for place, _ in self.driver.captured.ordered(ORDERS[-1 if early else 0])]

    def results(self, nodes: list[Node]) -> dict[int, Any]:
        """The contents of the cells after these launches."""
        cells: dict[int, Any] = {}
        for node in nodes:
            value = hash((node.number, *[cells.get(cell) for cell in sorted(node.read | node.written)]))
            cells.update(dict.fromkeys(node.written, value))
        return cells


def test_work_beside_waits_for_nothing_and_nobody_waits_for_it() -> None:
    step = Step()
    step.launch([], [1])
    step.branches.fork()
    step.launch([1], [2])  # the gradient of X
    step.beside(([1], [3]), ([3], [4]))  # that of W
    step.launch([2], [5])
    step.branches.join()
    step.launch([4, 5], [6])
    assert step.order(early=True) == [0, 2, 3, 1, 4, 5]
    assert step.order(early=False) == [0, 1, 4, 2, 3, 5]
    assert step.driver.captured.has_joined


def test_the_step_waits_for_nothing_that_an_exchange_needs() -> None:
    step = Step()
    step.branches.fork()
    step.launch([1], [2])
    step.beside(([1], [3]))
    step.branches.go_on(lambda: [step.launch([3], [4]), step.exchange([4])])
    step.launch([2], [5])
    step.driver.captured.join()
    step.launch([4], [6])
    assert step.order(early=True) == [1, 2, 3, 0, 4, 5]
    assert step.order(early=False) == [0, 4, 1, 2, 3, 5]


def test_what_goes_on_behind_nothing_is_a_part_of_the_step() -> None:
    step = Step()
    step.branches.go_on(lambda: step.launch([1], [2]))
    step.branches.fork()
    step.branches.go_on(lambda: step.launch([2], [3]))
    step.beside(([1], [4]))
    step.branches.join()
    step.branches.go_on(lambda: step.launch([3], [5]))
    assert {stream for stream, node in step.driver.captured._nodes if node.number != 2} == {STEP}


@pytest.mark.parametrize(("read", "written"), [([4], [9]), ([9], [4]), ([9], [1])])
def test_a_launch_that_needs_its_memory_waits_for_it(read: list[int], written: list[int]) -> None:
    """The launch reads or writes what the work beside writes, or writes what that reads."""
    step = Step()
    step.branches.fork()
    step.launch([7], [2])
    step.beside(([1], [4]))
    step.launch(read, written)
    assert step.order(early=False) == [0, 1, 2]


def test_both_may_read_the_same() -> None:
    step = Step()
    step.branches.fork()
    step.beside(([1], [4]))
    step.launch([1], [5])
    step.branches.join()
    assert step.order(early=False) == [1, 0]


@pytest.mark.parametrize(("read", "written"), [([2], [4]), ([9], [2]), ([9], [7])])
def test_work_beside_waits_for_what_it_needs(read: list[int], written: list[int]) -> None:
    """The launch behind the point of the fork writes what it reads or writes, or reads what it writes."""
    step = Step()
    step.branches.fork()
    step.launch([7], [2])
    step.beside((read, written))
    step.branches.join()
    assert step.order(early=True) == [0, 1]


def test_what_is_in_order_is_forgotten() -> None:
    """A launch waits neither for work that has joined, nor for what came before the point of the fork."""
    step = Step()
    step.branches.fork()
    step.launch([7], [2])
    step.beside(([1], [4]))
    step.launch([4], [5])  # waits
    step.beside(([1], [6]))
    step.launch([4], [3])
    step.branches.fork()
    step.launch([8], [8])
    step.beside(([2, 5], [4]))
    step.branches.join()
    assert step.order(early=False) == [0, 1, 2, 4, 3, 5, 6]
    assert step.order(early=True) == [1, 3, 0, 2, 4, 6, 5]


def test_places_in_memory_count_and_not_blocks() -> None:
    """A block that begins in the middle of one that was given back has its memory."""
    step = Step()
    step.branches.fork()
    step.beside(([1], [4]))
    half = Array(Block(CELL * 4 + CELL // 2))
    assert step.branches._second.meets([half], [])
    assert not step.branches._second.meets([Array(Block(CELL * 5))], [])
    step.branches.note([half], [])
    assert step.driver.captured.has_joined


def test_blocks_live_until_they_are_joined() -> None:
    """Blocks of the first branch live until the second one is recorded, so that it is not given their memory."""
    step = Step()
    first, second = Block(CELL), Block(2 * CELL)
    alive = [weakref.ref(first), weakref.ref(second)]

    def lives() -> list[bool]:
        gc.collect()
        return [reference() is not None for reference in alive]

    step.branches.fork()
    step.branches.note([], [Array(first)])
    del first
    assert lives() == [True, True]
    arrays = [Array(second)]
    step.branches.run(partial(step.branches.note, arrays, []))
    arrays.clear()
    del second
    assert lives() == [False, True]
    step.branches.fork()
    assert lives() == [False, False]


def test_an_error_leads_back_to_the_step() -> None:
    """Work beside that was recorded before the error has its order, and work after it is not beside."""
    step = Step()
    step.branches.fork()

    def fails() -> None:
        step.launch([1], [4])
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        step.branches.run(fails)
    assert not step.branches.running
    step.launch([9], [5])
    step.launch([4], [6])
    assert step.order(early=False) == [1, 0, 2]
    assert step.driver.captured.has_joined


def test_an_event_of_another_capture_is_refused() -> None:
    mark = Capture[Node]().mark()
    with pytest.raises(DeviceError, match="another capture"):
        Capture[Node]().wait(mark)


class Interrupting(Recorder):
    """A recorder that is interrupted once, in a call of it."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def switch(self, beside: bool) -> None:
        super().switch(beside)
        self._count()

    def record_event(self) -> Mark:
        self._count()
        return super().record_event()

    def wait_for(self, mark: Mark) -> None:
        self._count()
        super().wait_for(mark)


@pytest.mark.parametrize("at", range(1, 10))
def test_an_interrupt_loses_no_order(at: int) -> None:
    """An interrupt comes between two calls of the driver, and the step goes on."""
    step = Step()
    step.branches.fork()
    step.launch([0], [1])
    step.launch([2], [3])
    step.driver = step.branches._driver = Interrupting(at)
    step.driver.captured = step.branches._point.capture
    with suppress(KeyboardInterrupt):
        step.beside(([9], [7]), ([1], [4]), ([3], [5]))
    step.driver.left = 0
    step.launch([4, 7], [6])
    step.branches.join()
    assert step.driver.captured.has_joined
    recorded = [node for _, node in step.driver.captured._nodes]  # what was noted and then cut off is not among them
    for preferred in ORDERS:
        found = [node for _, node in step.driver.captured.ordered(preferred)]
        assert step.results(found) == step.results(recorded), preferred


CELLS = st.sets(st.integers(0, 7), max_size=3)
LAUNCHES = st.lists(st.tuples(CELLS, CELLS), max_size=3)
LAYER = st.tuples(LAUNCHES, LAUNCHES, LAUNCHES, CELLS, st.one_of(st.none(), CELLS), LAUNCHES)


@given(st.lists(LAYER, max_size=5), st.sampled_from(ORDERS))
@settings(max_examples=600, deadline=None)
def test_any_step_computes_the_same_in_any_order(layers: list[Any], any_order: tuple[int, ...]) -> None:
    step = Step()
    for before, beside, after, exchanged, packed, between in layers:
        step.branches.fork()
        for each in before:
            step.launch(*each)
        step.beside(*beside)
        for each in after:
            step.launch(*each)
        if packed is None:
            step.exchange(exchanged)
        else:
            step.branches.go_on(lambda cells=exchanged, read=packed: [step.launch(read, cells), step.exchange(cells)])
        for read, written in between:
            step.launch(read - exchanged, written - exchanged)
        step.driver.captured.join()
    step.branches.join()
    assert step.driver.captured.has_joined
    expected = step.results(step.nodes)
    for preferred in (ORDERS[0], any_order, ORDERS[-1]):
        order = [place for place, _ in step.driver.captured.ordered(preferred)]
        assert sorted(order) == list(range(len(step.nodes)))
        assert step.results([step.nodes[place] for place in order]) == expected


@pytest.fixture
def driver() -> EmulatedDriver:
    found = alpha.get_device("cuda").driver  # type: ignore[attr-defined]
    if not isinstance(found, EmulatedDriver):
        pytest.skip("asks the emulated driver")
    return found


def test_what_has_not_joined_is_no_step(driver: EmulatedDriver) -> None:
    array: Any = alpha.zeros(4, device="cuda").array
    driver.begin_capture()
    begin = driver.record_event()
    driver.switch(True)
    with pytest.raises(DeviceError, match="no part of it"):
        driver.fill(array.address, 0, 16)
    driver.wait_for(begin)
    driver.fill(array.address, 0, 16)
    end = driver.record_event()
    with pytest.raises(DeviceError, match="has not joined"):
        driver.end_capture()
    driver.switch(False)
    with pytest.raises(DeviceError, match="has not joined"):
        driver.end_capture()
    driver.wait_for(end)
    assert len(driver.end_capture()) == 1


@pytest.mark.parametrize(("seed", "preferred"), [(0, (0, 1, 2)), (5, (2, 1, 0)), (7, (0, 2, 1))])
def test_the_seed_says_what_runs_first(monkeypatch: pytest.MonkeyPatch, seed: int, preferred: tuple[int, ...]) -> None:
    monkeypatch.setenv("ALPHA_EMULATED_SEED", str(seed))
    driver = EmulatedDriver()
    assert driver.preferred == preferred
    driver.close()


@pytest.mark.parametrize("fails", [True, False])
def test_branches_end_with_the_capture(driver: EmulatedDriver, fails: bool) -> None:
    """Branches hold events of the driver. What the driver refuses when they join is an error of the capture."""
    device: Any = alpha.get_device("cuda")
    notes = CudaRecording(device, capturing=True)

    def step() -> None:
        assert notes.branches is not None
        notes.branches.fork()
        notes.branches.run(lambda: None)
        if fails:
            notes.branches._end = Capture[Any]().mark()  # as if the second stream belonged to another capture

    with pytest.raises(CaptureError, match="another capture") if fails else nullcontext():
        capture(device, notes, step, None)
    assert notes.branches is None


def test_an_exchange_waits_for_the_gradient_that_it_sends(driver: EmulatedDriver) -> None:
    """A large gradient is given to another library as it is, without a copy on the stream of the step before."""
    device: Any = alpha.get_device("cuda")
    notes = CudaRecording(device, capturing=True)

    def step() -> None:
        gradient, other = (alpha.zeros(4, device="cuda").array for _ in range(2))
        assert notes.branches is not None
        notes.branches.fork()
        notes.branches.run(lambda: device.driver.fill(gradient.address, 0, 16) or notes.note([gradient], "fill", 0))
        notes.note([other], "all_reduce", 1)
        assert notes.branches._end is not None
        notes.note([gradient], "all_reduce", 1)
        assert notes.branches._end is None

    capture(device, notes, step, None)


def test_there_is_one_stream_without_a_capture(driver: EmulatedDriver) -> None:
    with pytest.raises(DeviceError, match="no capture"):
        driver.switch(True)
