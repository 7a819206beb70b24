"""Training steps that an exception cuts off: what is left is right, and the program goes on.

The long form: ALPHA_TEST_CUTS=all, and `python tests/runtime/interrupts.py`.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import child
import pytest
from cut_off import Cutter, instructions
from interrupts import Training, check, meters, reference

import alpha
from alpha.runtime import recording
from alpha.runtime.cuda.cuda_device import CudaDevice

FOLDERS = "runtime", "step", "optim", "ops/kernel/tables"
MOST = 40  # instructions of a replay that are tried
SCRIPTS = Path(__file__).parent


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    device: Any = alpha.get_device("cuda")
    if device.driver.why_no_capture:
        pytest.skip(device.driver.why_no_capture)
    return device


def check_device(device: CudaDevice, place: str) -> None:
    """Nothing is left of a step that was cut off."""
    check(device.arena, place)
    check(device.scratch, place)
    assert recording.active() is None, place
    assert device._pool is device.arena, place
    assert getattr(device.driver, "_captured", None) is None, place
    assert device.scratch._trace is None, place


@pytest.mark.slow
def test_a_replay_that_is_cut_off_is_done_as_a_whole_or_not_at_all(cuda: CudaDevice) -> None:
    states, _ = reference(False, 2 * MOST + 16)
    training = Training(True)
    while not training.is_whole:
        training.run(training.count)
    places = instructions(lambda: training.run(training.count), MOST, *FOLDERS)
    graphs = training.step.graphs
    done: set[bool] = set()
    for at in places:
        if training.count + 3 > len(states):  # in the long form: once more from the beginning
            training = Training(True)
            while not training.is_whole:
                training.run(training.count)
            graphs = training.step.graphs
        held = training.run(training.count)  # a result of the step before, which a replay moves
        value, before = held.item(), training.count
        place = Cutter(at, *FOLDERS).run(partial(training.run, before))
        check_device(cuda, place)
        done.add(training.count > before)
        assert held.item() == value, place
        assert training.state() == states[training.count], place
    assert training.step.graphs == graphs
    assert done == {True, False}


def test_a_backward_pass_that_is_cut_off_leaves_the_mode() -> None:
    x = alpha.ones(3, requires_grad=True)

    def program() -> None:
        (x * 2).sum().backward()
        alpha.grad((x * x).sum(), x)
        alpha.autograd.backward((x * 2).sum())

    folders = ("autograd", "core/tensor.py", "runtime/recording.py")
    for at in instructions(program, 100, *folders):
        place = Cutter(at, *folders).run(program)
        assert alpha.is_grad_enabled(), place
        program()


@pytest.mark.slow
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_a_step_that_is_cut_off_loses_no_memory(cuda: CudaDevice, captured: bool) -> None:
    """The first five steps run, of which the captured one makes a graph."""

    def steps(training: Training) -> None:
        for number in range(training.count, 5):
            training.run(number)

    states, _ = reference(captured, 6)
    reference(captured, 6)
    before = meters(cuda)[:2]  # other processes may use the device, too
    for at in instructions(lambda: steps(Training(captured)), 6, *FOLDERS):
        training = Training(captured)
        restore = training.save()
        place = Cutter(at, *FOLDERS).run(partial(steps, training))
        check_device(cuda, place)
        restore()
        for number in range(5):
            training.run(number)
        assert training.state() == states[5], place
        del training, restore
    assert meters(cuda)[:2] <= before


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["interrupts.py", "--count", "4"], ["heap.py", "--tiny", "--batch", "4", "--replays", "8"]]
)
def test_the_scripts_run(cuda: CudaDevice, command: list[str]) -> None:
    environment = child.environment(MALLOC_CHECK_="3", PYTHONMALLOC="debug")
    done = child.run([sys.executable, SCRIPTS / command[0], *command[1:]], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
