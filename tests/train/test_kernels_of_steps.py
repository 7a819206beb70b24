"""A trainer compiles the kernels of its steps at once, before the first one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from builds import Builds

import alpha
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import CaptureWarning, CompileError
from alpha.nn import functional as F
from alpha.optim import SGD
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step import compile_steps
from alpha.step.capturing.attempt import MOST_DOUBTS
from alpha.train import Interrupted, Trainer
from alpha.train.batches.feed import sizes

Calls = list[list[tuple[str, tuple[str, ...]]]]


def data(count: int) -> ArrayDataset:
    labels = (np.arange(count) % 2).astype(np.int32)
    return ArrayDataset(np.zeros((count, 4, 4, 3), np.uint8), labels, ("a", "b"))


def trainer(device: Any, **options: Any) -> Trainer:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 2)).to(device)
    return Trainer(model, SGD(model.parameters(), lr=0.1), device, **options)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The units that are asked for in each call; nothing is compiled."""
    calls: Calls = []

    def compile_units(driver: Any, units: list[Any], check: Callable[[], object]) -> int:
        calls.append(list(units))
        check()
        return 0

    monkeypatch.setattr(compile_steps, "compile_units", compile_units)
    return calls


@pytest.fixture(autouse=True)
def _usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("resident", [True, False])
def test_no_step_compiles_a_kernel(fresh: CudaDevice, builds: Builds, resident: bool) -> None:
    """Kernels of training, of evaluation and of a shorter last batch are compiled at once before the first step."""
    subject = trainer(fresh, resident=resident)
    seen: list[int] = []
    usual = subject._train_step

    def noted(batch: Any) -> Any:
        step = usual(batch)

        def train_step(*arguments: Any) -> None:
            seen.append(len(builds))
            step(*arguments)

        return train_step

    subject.capture = False
    subject._train_step = noted  # type: ignore[method-assign]
    loader = DataLoader(data(10), 4)
    subject.train_epoch(loader)
    compiled = len(builds)
    assert compiled > 10
    assert seen == [compiled] * 3
    subject.evaluate(loader)
    subject.train_epoch(loader)
    assert len(builds) == compiled
    assert {name.split("_")[0] for name in builds.threads} == {"alpha-compile"}


@pytest.mark.slow
def test_what_is_asked_for_and_when(asked: Calls) -> None:
    """Kernels are asked for once per step, size of a batch and precision; a training step includes its evaluation."""
    subject = trainer("cuda", resident=True)
    train, test = DataLoader(data(10), 4), DataLoader(data(6), 3)
    results = [subject.train_epoch(train), subject.evaluate(test), subject.train_epoch(train), subject.evaluate(test)]
    assert [bool(units) for units in asked] == [True, True, False, False]
    assert "optimizer/sgd.cu" in {source for source, _ in asked[0]}
    assert "optimizer/sgd.cu" not in {source for source, _ in asked[1]}
    assert set(asked[1]) <= set(asked[0])
    assert [result.images for result in results] == [10, 6, 10, 6]
    subject.precision = "tf32"
    subject.evaluate(test)
    assert asked[4]


@pytest.mark.slow
def test_the_same_bits_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run draws no random number and writes no weight."""
    results = []
    for wanted in (True, False):
        alpha.manual_seed(5)
        subject = trainer("cuda")
        if not wanted:
            monkeypatch.setattr(subject, "_compile", lambda *_: None)
        results.append([subject.train_epoch(DataLoader(data(10), 4)).loss for _ in range(2)])
        results.append([value.tobytes() for value in subject.model.state_dict().numpy().values()])
        results.append(alpha.get_rng_state())
    assert results[:3] == results[3:]


def test_on_the_cpu_nothing_is_run_twice(asked: Calls) -> None:
    subject, calls = trainer("cpu"), []

    def loss(logits: Any, labels: Any) -> Any:
        calls.append(1)
        return F.cross_entropy(logits, labels)

    subject.loss = loss
    subject.train_epoch(DataLoader(data(8), 4))
    assert (len(calls), asked) == (2, [])


def test_a_step_that_reads_a_value_runs_as_before(
    asked: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ALPHA_DEBUG", "1")
    subject = trainer("cuda")
    losses: list[float] = []

    def loss(logits: Any, labels: Any) -> Any:
        value = F.cross_entropy(logits, labels)
        losses.append(value.item())
        return value

    subject.loss = loss
    with pytest.warns(CaptureWarning):
        subject.train_epoch(DataLoader(data(4 * MOST_DOUBTS), 4))
    assert len(losses) == MOST_DOUBTS
    assert asked == [[]]
    assert "alpha: train_step cannot be dry-run: DeviceError: values are read on the host" in capsys.readouterr().err


def test_an_interrupt_stops_the_compilers_and_leaves_the_epoch_to_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_units(driver: Any, units: Any, check: Callable[[], object]) -> int:
        signal.raise_signal(signal.SIGINT)
        check()
        raise AssertionError("the check has said nothing")

    subject, loader = trainer("cuda"), DataLoader(data(8), 4)
    with monkeypatch.context() as patch:
        patch.setattr(compile_steps, "compile_units", compile_units)
        with pytest.raises(Interrupted):
            subject.train_epoch(loader)
    assert (subject.epoch, subject.step) == (1, 0)
    assert subject.train_epoch(loader).images == 8
    assert (subject.epoch, subject.step) == (1, 2)


def test_an_error_of_the_compiler_ends_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_units(*_: Any) -> int:
        raise CompileError("it does not compile")

    monkeypatch.setattr(compile_steps, "compile_units", compile_units)
    with pytest.raises(CompileError):
        trainer("cuda").train_epoch(DataLoader(data(8), 4))


@pytest.mark.parametrize(
    ("images", "drop_last", "count", "expected"),
    [(10, False, 3, {4, 2}), (10, False, 2, {4}), (10, True, 9, {4}), (8, False, 9, {4}), (3, False, 1, {3})],
)
def test_sizes_of_batches(images: int, drop_last: bool, count: int, expected: set[int]) -> None:
    assert sizes(DataLoader(data(images), 4, drop_last=drop_last), count) == expected


class Terminal:
    """A terminal as standard error."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True


def test_a_bar_shows_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    device = alpha.get_device("cuda")
    monkeypatch.setattr(device.driver, "is_compiled", lambda *_: False)  # type: ignore[attr-defined]
    trainer("cuda").train_epoch(DataLoader(data(8), 4))
    text: str = sys.stderr.text  # type: ignore[attr-defined]
    assert "compiling kernels:   0%" in text
    assert text.index("compiling kernels") < text.index("epoch 1")
