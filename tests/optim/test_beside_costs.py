"""Costs of values beside weights: the launches that they save, the memory that they take, and until when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from beside.checks import nothing_beside, values_of
from beside.written_weights import Program, computing, passes

import alpha
from alpha import Tensor, nn, optim
from alpha.autograd.derived import to_write
from alpha.models import resnet18
from alpha.nn import functional as F
from alpha.ops.kernel.casts import COPY
from alpha.runtime import recording
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.registry import standing_in
from alpha.step import DryRun


def cuda() -> CudaDevice:
    return cast(CudaDevice, alpha.get_device("cuda"))


# -- launches ----------------------------------------------------------------------------------------------------------


def training(batch: int = 512) -> tuple[nn.Module, Callable[[], Tensor]]:
    """ResNet18 on images of 32x32, and its step with Adam."""
    model = resnet18(num_classes=10, image_size=32)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    x, y = alpha.empty(batch, 32, 32, 3), alpha.zeros(batch, dtype="int32")

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def sources(run: DryRun) -> Counter[str]:
    return Counter(step.launch.source for step in run.launches)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "source", "first", "warm"),
    [
        ("bf16", "elementwise/cast.cu", 23, 1),
        ("float32", "reduce/absmax.cu", 19, 0),
        ("tf32", "reduce/absmax.cu", 19, 0),  # as convolutions multiply copies in fp16
    ],
)
def test_a_warm_step_has_no_pass_for_a_weight(precision: str, source: str, first: int, warm: int) -> None:
    """The cast of the images is left in bf16. A dry run of two steps shows the second one."""
    model, step = training()
    with alpha.precision(precision):
        one = alpha.dry_run(step, gpu="sm_90a")
        two = alpha.dry_run(lambda: (step(), step()), gpu="sm_90a")
    launches, again = sources(one), sources(two) - sources(one)
    assert (launches[source], again[source]) == (first, warm)
    assert len(one.launches) - (len(two.launches) - len(one.launches)) == first - warm
    assert launches["optimizer/adam.cu"] == again["optimizer/adam.cu"] == 1
    if precision == "bf16":
        assert first - warm == sum(p.ndim > 1 for p in model.parameters())


def test_a_dry_run_begins_with_what_the_step_has_now() -> None:
    with computing("bf16"):
        program = Program(False)
        cold = alpha.dry_run(program.step, program.x, program.y)
        program.train(1)
        warm = alpha.dry_run(program.step, program.x, program.y)
        with alpha.no_grad():
            program.weights[0].mul_(0.5)
        written = alpha.dry_run(program.step, program.x, program.y)
    assert [sources(run)["elementwise/cast.cu"] for run in (cold, warm, written)] == [4, 1, 2]


class Counting(EmulatedDriver):
    """Counts the launches that it is asked for outside of a capture."""

    launched = 0

    def launch(self, *args: Any) -> None:
        notes = recording.active()
        self.launched += notes is None or not notes.capturing
        EmulatedDriver.launch(self, *args)  # without `super`, whose closure a capture would look for


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "float32"])
def test_nothing_is_launched_beside_a_replay(precision: str) -> None:
    """A replay leaves right values for the next one; those of weights written since are computed anew, once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALPHA_ARCH", "sm_90a")
        driver = Counting()
    counts = []
    with computing(precision), standing_in(CudaDevice(driver)):
        program = Program(True)
        program.train(5)
        assert len(program.step.graphs) == 1  # type: ignore[attr-defined]
        for writes in (False, False, True, False):
            if writes:
                program.weights[0].data.mul_(0.5)
            driver.launched = 0
            program.train(1)
            counts.append(driver.launched)
    assert counts == [0, 0, 1, 0]


def test_a_weight_of_which_nobody_asks_anything_has_nothing() -> None:
    with computing("tf32"):
        program = Program(False)
        program.train(3)
    assert not any(map(values_of, program.net.parameters()))


def test_what_nobody_asks_for_any_more_is_not_written() -> None:
    with computing("bf16"):
        program = Program(False)
        program.train(2)
        (copy,) = to_write([program.weights[0].array], COPY)
        assert copy is None  # not yet asked for since the update
        passes(program.parts, program.x, program.y)
        assert to_write([program.weights[0].array], COPY) != [None]
    with alpha.precision("tf32"):
        program.train(2)
    copy = values_of(program.weights[0])[COPY.name]
    assert to_write([program.weights[0].array], COPY) == [None]
    assert copy.right_for < program.weights[0]._version.value


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_copies_take_two_bytes_for_a_weight(captured: bool) -> None:
    """No other memory, and none in the memory mode "least"."""
    model, step = training(8)
    nbytes = 2 * sum(p.size for p in model.parameters() if p.ndim > 1)
    plans: dict[str, Any] = {}
    with alpha.precision("bf16"):
        call = alpha.capture(step) if captured else step
        plans["fast"] = alpha.memory_plan(call, gpu="sm_90a")
        with alpha.memory_mode("least"):
            plans["least"] = alpha.memory_plan(call, gpu="sm_90a")
        with nothing_beside():
            plans["nothing"] = alpha.memory_plan(call, gpu="sm_90a")
    assert plans["fast"].of_kind("bfloat16 copies") == pytest.approx(nbytes, rel=1e-3)
    assert plans["least"].of_kind("bfloat16 copies") == 0
    assert plans["fast"].live - plans["nothing"].live < 1.01 * nbytes
    assert plans["least"].live <= plans["nothing"].live * 1.001


def test_a_copy_dies_with_its_weight() -> None:
    """No optimizer and no step of before holds it."""
    device = cuda()
    with computing("bf16"):
        program = Program(False)
        program.train(2)
    weight = program.weights[0]
    copy = values_of(weight)[COPY.name].array
    assert copy is not None
    nbytes, live = copy.nbytes, device.memory_stats().live
    del copy
    weight.data = weight.data.clone()  # as large as the memory of before
    assert live - device.memory_stats().live >= nbytes
