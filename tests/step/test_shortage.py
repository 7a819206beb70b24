"""An error for want of memory tells what the step holds and what helps, and changes nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from test_memory_plan import Convolutions, Program, Silent, measured

import alpha
from alpha import OutOfMemoryError
from alpha.data import ArrayDataset, DataLoader
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.registry import standing_in
from alpha.step.memory import shortage
from alpha.train import Trainer

LIMIT = 12 * 2**20


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    made = CudaDevice(Silent())
    gc.collect()
    with standing_in(made):
        yield made
    made.close()


def text_of(program: Program, device: CudaDevice, limit: int = LIMIT) -> str:
    """The text of the error of a step under a limit."""
    device.set_memory_limit(limit)
    with pytest.raises(OutOfMemoryError) as info:
        measured(device, program, 5)
    text = str(info.value)
    assert text == str(info.value)
    device.set_memory_limit(None)
    return text


@pytest.mark.slow
def test_a_captured_step(device: CudaDevice) -> None:
    program = Program("convolutions", True, 512)
    text = text_of(program, device)
    first, _, table = text.partition("\n\n")
    assert first.startswith("out of memory: asked")
    for part in ("kept for backward", "captured in a CUDA graph", "more than there are", "What would help, by plans"):
        assert part in table
    half = next(line for line in table.splitlines() if "a batch of 256" in line)
    assert "saves" in half
    assert "fits" in half
    assert "elsewhere" not in table
    assert any('precision "bf16"' in line and "launches" in line for line in table.splitlines())
    for _ in range(6):  # as if there had been no error
        program.step(program.x, program.y)
    assert program.step.graphs


def test_a_step_that_runs_as_usual(device: CudaDevice) -> None:
    """Nobody knows what the step was; what lives is told by kind, with the operators that keep it."""
    text = text_of(Program("convolutions", False, 512), device, 6 * 2**20)
    for part in (
        "in use now, MB of 10^6 bytes",
        "kept for backward by BatchNorm",
        "parameters",
        "alpha.memory_plan(step",
    ):
        assert part in text


def test_training(device: CudaDevice) -> None:
    """A Trainer knows more: parts of a batch, and a data set on the host."""
    net = Convolutions().to("cuda")
    trainer = Trainer(net, alpha.optim.Adam(net.parameters()), "cuda", capture=False)
    loader = DataLoader(ArrayDataset(np.zeros((5120, 8, 8, 3), np.uint8), np.zeros(5120, np.int64)), 512)
    device.set_memory_limit(LIMIT)
    with pytest.raises(OutOfMemoryError) as info:
        trainer.train_epoch(loader)
    text = str(info.value)
    for part in ("Trainer(.., accumulate=2)", "Trainer(.., resident=False)", "each step copies 0.1 MB from the host"):
        assert part in text, text
    device.set_memory_limit(None)


def test_an_error_in_the_explanation_hides_nothing(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of the test")

    monkeypatch.setattr(shortage, "StepMemory", fail)
    text = text_of(Program("convolutions", True, 512), device)
    assert text.startswith("out of memory: asked")
    assert text.endswith("alpha.memory_plan cannot tell more: ZeroDivisionError: of the test")


def test_more_is_told_only_if_it_is_read(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that goes on with a smaller batch does not wait."""
    asked: list[object] = []
    monkeypatch.setattr(shortage, "StepMemory", lambda *args: asked.append(args))
    program = Program("convolutions", True, 512)
    device.set_memory_limit(LIMIT)
    with pytest.raises(OutOfMemoryError):
        measured(device, program, 5)
    assert not asked


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_what_a_failed_step_has_made_is_free_at_once(device: CudaDevice, captured: bool) -> None:
    """Nothing waits for the garbage collector, so a smaller batch fits; wherever in the step memory was short."""
    program, failed = Program("convolutions", captured, 512), 0
    gc.collect()
    gc.disable()
    try:
        for limit in range(2 * 2**20, 16 * 2**20, 3 * 2**19):
            device.set_memory_limit(limit)
            try:
                program.step(program.x, program.y)
            except OutOfMemoryError:
                failed += 1
            device.set_memory_limit(None)
            live = device.memory_stats().live
            gc.collect()
            assert device.memory_stats().live == live
    finally:
        gc.enable()
        device.set_memory_limit(None)
    assert failed > 3
