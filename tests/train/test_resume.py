"""A run that was stopped and resumed ends with the bits of one that was not; what does not fit is refused."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import child
import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.core.tensor import Tensor
from alpha.data import ArrayDataset, DataLoader, RandomSampler
from alpha.errors import CheckpointError, TrainingError
from alpha.nn import functional as F
from alpha.optim import SGD, Adam, CosineAnnealingLR
from alpha.train import Interrupted, Row, Run, Trainer, load_metadata, load_weights, save_weights
from alpha.train.files.state_file import changed, environment, load_state, save_state

EPOCHS, STEPS, BATCH = 3, 4, 5  # the last batch of an epoch has 3 images

# the losses below read a generator, so that a captured step would not be interrupted
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{what}:alpha.errors.CaptureWarning")
    for what in ("object of the type generator", "calls _signal.raise_signal")
]


@pytest.fixture(autouse=True)
def _usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def data(count: int = STEPS * BATCH - 2) -> ArrayDataset:
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (count, 4, 4, 3), np.uint8)
    return ArrayDataset(images, draw.integers(0, 2, count).astype(np.int32), ("a", "b"))


def loader(seed: int = 7, batch_size: int = BATCH) -> DataLoader:
    return DataLoader(data(), batch_size, shuffle=True, seed=seed)


def trainer(device: str = "cpu", kind: Any = Adam, **options: Any) -> Trainer:
    """Batch norm has buffers, dropout draws random numbers, the schedule steps."""
    alpha.manual_seed(3)
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 2)).to(device)
    optimizer = kind(model.parameters(), 0.05)
    return Trainer(model, optimizer, device, schedule=CosineAnnealingLR(optimizer, EPOCHS * STEPS), **options)


def train(run: Run, subject: Trainer) -> list[Row]:
    """Train to the end, or to an interrupt, as the example does it."""
    try:
        while len(run.history.rows) < EPOCHS:
            run.trained = run.trained or subject.train_epoch(loader())
            tested = subject.evaluate(DataLoader(data(), 6))
            run.history.rows.append(Row.of(subject.epoch, run.trained, tested))
            run.trained = None
            run.save(subject)
    except Interrupted:
        run.save(subject)
    return run.history.rows


def same_rows(a: list[Row], b: list[Row]) -> bool:
    return [replace(row, seconds=0, images_per_second=0, live_mb=0) for row in a] == [
        replace(row, seconds=0, images_per_second=0, live_mb=0) for row in b
    ]


def interrupt_at(subject: Trainer, call: int) -> None:
    """Ctrl-C while the loss is computed for the `call`-th time; an epoch and its evaluation compute 7 losses."""
    calls = (number for number in range(1, 1000))  # a generator cannot be copied, so no dry run counts here

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        if next(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return F.cross_entropy(logits, labels)

    subject.loss = loss


def same_states(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert {str(key) for key in a} == {str(key) for key in b}
        for key, value in a.items():
            if key != "seconds":
                same_states(value, b[key] if key in b else b[str(key)])
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, (list, tuple)):
        for one, other in zip(a, b, strict=True):
            same_states(one, other)
    else:
        assert a == b


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 2, 4, 5, 7, 8, 10, 15, 21])
def test_interrupted_and_resumed_is_uninterrupted(device: str, tmp_path: Path, call: int) -> None:
    """Stopped in the first, a middle and the last step of an epoch, and in the evaluation after it."""
    whole = trainer(device)
    run = Run.start({}, tmp_path / "whole")
    expected = train(run, whole)
    run.close()

    subject = trainer(device)
    interrupt_at(subject, call)
    run = Run.start({"lr": 0.05}, tmp_path / "half")
    assert run.folder == tmp_path / "half"
    train(run, subject)
    run.close()

    alpha.manual_seed(99)
    resumed = trainer(device)
    alpha.manual_seed(98)
    again = Run.resume(tmp_path / "half")
    assert again.options == {"lr": 0.05}
    again.restore(resumed)
    assert same_rows(train(again, resumed), expected)
    again.close()
    same_states(resumed.state_dict(), whole.state_dict())
    weights = load_weights(tmp_path / "half" / "weights.safetensors")
    for name, values in load_weights(tmp_path / "whole" / "weights.safetensors").items():
        np.testing.assert_array_equal(weights[name], values)
    assert len((tmp_path / "half" / "history.csv").read_text().splitlines()) == 1 + EPOCHS


CHANGED: dict[str, tuple[str, Any, str]] = {  # what is replaced, by what, and what is said of it on the cpu
    "BLAS": (
        "threadpoolctl.threadpool_info",
        lambda: [{"user_api": "blas", "internal_api": "other", "version": "1", "architecture": "Z"}],
        "BLAS is other 1 (Z), was ",
    ),
    "numpy": ("numpy.__version__", "1.2.3", "numpy is 1.2.3, was "),
    "processor": ("numpy.show_config", lambda mode: {"SIMD Extensions": {"found": ["ABC"]}}, "with ABC, was "),
    "Alpha": ("alpha.config.VERSION", "0.0", "Alpha is 0.0, was "),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_run_that_goes_on_elsewhere_says_so(device: str, tmp_path: Path, what: str, monkeypatch: Any) -> None:
    run = Run.start({}, tmp_path / "run")
    run.save(trainer(device))
    run.close()
    again = Run.resume(tmp_path / "run")
    again.restore(trainer(device))  # without a warning
    again.close()
    name, value, message = CHANGED[what]
    monkeypatch.setattr(name, value)
    again = Run.resume(tmp_path / "run")
    if device == "cuda" and what in ("BLAS", "processor"):  # which compute nothing there
        again.restore(trainer(device))
    else:
        with pytest.warns(RuntimeWarning, match=re.escape(message)):
            again.restore(trainer(device))
    again.close()


def test_another_gpu_or_driver_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment(alpha.get_device("cuda"))
    assert {"GPU", "driver"} <= set(found)
    assert changed({**found, "GPU": "X"}, found) == f"GPU is X, was {found['GPU']}"
    assert changed(environment(alpha.get_device("cpu")), found).startswith("device is cpu, was cuda, GPU is none")


class Augmented(ArrayDataset):
    """Each item is turned around by chance, by Alpha's random numbers."""

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        image, label = super().__getitem__(index)
        return image[::-1] if alpha.rand(()).item() < 0.5 else image, label


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, None])
@pytest.mark.parametrize("call", [2, 5, 8])
def test_random_items_are_resumed_exactly(
    device: str, tmp_path: Path, call: int, seed: int | None, monkeypatch: Any
) -> None:
    """The loader may have other threads or no seed, and evaluations draw, too."""
    kept = data()
    monkeypatch.setitem(globals(), "loader", lambda: DataLoader(data(), BATCH, shuffle=True, seed=seed))
    monkeypatch.setitem(globals(), "data", lambda: Augmented(kept.images, kept.labels, kept.classes))
    whole = trainer(device)
    run = Run.start({}, tmp_path / "whole")
    expected = train(run, whole)
    run.close()
    subject = trainer(device)
    interrupt_at(subject, call)
    run = Run.start({}, tmp_path / "half")
    train(run, subject)
    run.close()
    monkeypatch.setitem(globals(), "loader", lambda: DataLoader(data(), BATCH, True, seed=seed, num_workers=3))
    alpha.manual_seed(99)
    resumed = trainer(device)
    again = Run.resume(tmp_path / "half")
    again.restore(resumed)
    assert same_rows(train(again, resumed), expected)
    again.close()
    same_states(resumed.state_dict(), whole.state_dict())


@pytest.mark.slow
def test_an_evaluation_draws_by_the_epoch_of_the_trainer(device: str) -> None:
    """A resumed run does not know how often a loader was read, so that count decides nothing."""
    kept = data()
    tested = DataLoader(Augmented(kept.images, kept.labels, kept.classes), 6)
    subject, losses = trainer(device), []
    for _ in range(2):
        subject.train_epoch(loader())
        losses.append({subject.evaluate(tested).loss for _ in range(2)})
    assert [len(each) for each in losses] == [1, 1]
    tested.set_epoch(4, 1)
    subject.evaluate(tested)
    assert tested.next_epoch == (4, 1)  # the program's own use of the loader goes on
    resumed = trainer(device)
    resumed.load_state_dict(subject.state_dict())
    for epoch in (0, 4):
        other = DataLoader(tested.dataset, 6)
        other.set_epoch(epoch)
        assert {resumed.evaluate(other).loss} == losses[1]
    resumed.epoch = 1  # with the same weights
    assert {resumed.evaluate(tested).loss} != losses[1]


def test_evaluations_do_not_change_what_a_loader_without_a_seed_draws() -> None:
    found = []
    for evaluations in (0, 1):
        subject = trainer()
        for _ in range(2):
            subject.train_epoch(DataLoader(data(), BATCH, shuffle=True))
            for _ in range(evaluations):
                subject.evaluate(DataLoader(data(), BATCH, shuffle=True))
        found.append(subject.state_dict())
    same_states(*found)
    resumed = trainer()
    resumed.load_state_dict(found[0])
    with pytest.raises(CheckpointError, match=r"began with: seed is 7, was None$"):
        resumed.train_epoch(loader())


def test_killed_after_an_epoch_it_goes_on_from_there(tmp_path: Path) -> None:
    whole = trainer()
    for _ in range(2):
        whole.train_epoch(loader())
    subject = trainer()
    subject.train_epoch(loader())
    state = copy.deepcopy(subject.state_dict())
    subject.train_epoch(loader(), steps=2)  # lost
    resumed = trainer()
    resumed.load_state_dict(state)
    resumed.train_epoch(loader())
    same_states(resumed.state_dict(), whole.state_dict())


def test_an_interrupted_epoch_is_continued_in_the_same_process() -> None:
    whole, subject = trainer(), trainer()
    expected = whole.train_epoch(loader())
    subject = trainer()
    interrupt_at(subject, 2)
    with pytest.raises(Interrupted):
        subject.train_epoch(loader())
    assert (subject.epoch, subject.step) == (1, 2)
    with pytest.raises(CheckpointError, match="the loader that it began with: seed is 8, was 7"):
        subject.train_epoch(loader(seed=8))
    result = subject.train_epoch(loader())
    assert (result.loss, result.accuracy, result.images) == (expected.loss, expected.accuracy, expected.images)
    assert (subject.epoch, subject.step) == (1, 4)
    subject.train_epoch(loader(seed=8))  # another epoch is free again


def test_another_loader_is_refused_after_loading() -> None:
    subject = trainer()
    subject.train_epoch(loader())
    resumed = trainer()
    resumed.load_state_dict(subject.state_dict())
    with pytest.raises(CheckpointError, match="batch_size is 6, was 5"):
        resumed.train_epoch(loader(batch_size=6))
    sampled = DataLoader(data(), BATCH, sampler=RandomSampler(data(), num_samples=5, seed=7), seed=7)
    with pytest.raises(CheckpointError, match=r"with: shuffle is False, was True, sampler is RandomSampler, was none$"):
        resumed.train_epoch(sampled)
    subject.train_epoch(sampled)
    resumed.load_state_dict(subject.state_dict())
    with pytest.raises(CheckpointError, match=r"with: shuffle is True, was False, sampler is none, was RandomSampler$"):
        resumed.train_epoch(loader())
    ordered, plain = DataLoader(data(), BATCH, sampler=range(18)), DataLoader(data(), BATCH)
    subject.train_epoch(plain)
    resumed.load_state_dict(subject.state_dict())
    with pytest.raises(CheckpointError, match=r"began with: sampler is range, was none$"):
        resumed.train_epoch(ordered)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("rng"), "Trainer: the state has no rng"),
        (lambda s: s.update(precision="bf16"), "the state is of precision bf16, here float32"),
        (lambda s: s.update(schedule=None), "the state has no schedule, the trainer has a schedule"),
        (lambda s: s["schedule"].update(T_max=0), "T_max=0"),
        (lambda s: s["optimizer"].update(optimizer="SGD"), "the state is that of SGD"),
        (lambda s: s["model"].pop("3.bias"), "missing     3.bias"),
        (lambda s: s.update(rng={"seed": -1}), "Trainer: set_rng_state"),
        (lambda s: s.update(epoch="x"), "place in the epoch cannot be read"),
        (lambda s: s.update(tally={"steps": 3}), "place in the epoch cannot be read"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change: Any, message: str) -> None:
    other = trainer()
    other.train_epoch(loader())
    state = other.state_dict()
    change(state)
    subject = trainer()
    subject.train_epoch(loader(seed=1), steps=1)
    before = copy.deepcopy(subject.state_dict())
    with pytest.raises(CheckpointError, match=message):
        subject.load_state_dict(state)
    same_states(subject.state_dict(), before)
    subject.train_epoch(loader(seed=2))


def test_every_floating_dtype_is_looked_at_for_numbers_that_are_not_finite(tmp_path: Path) -> None:
    for dtype in (np.float32, np.float64, alpha.bfloat16):
        run, subject = Run.start({}, tmp_path / "run"), trainer()
        model = dict(subject.model.state_dict().numpy())
        model["3.weight"] = model["3.weight"].astype(dtype)
        model["3.weight"][1, 2] = np.inf
        state = {**subject.state_dict(), "model": model}
        with (
            mock.patch.object(type(subject), "state_dict", lambda _, state=state: state),
            pytest.raises(TrainingError, match=r"not saved: 3.weight is not finite"),
        ):
            run.save(subject)
        run.close()


def test_weights_that_are_not_finite_never_replace_the_saved_ones(tmp_path: Path) -> None:
    run, subject = Run.start({}, tmp_path / "run"), trainer()
    subject.train_epoch(loader())
    run.save(subject)
    saved = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    weight = subject.model.state_dict().numpy()
    weight["3.weight"][1, 2] = np.nan
    subject.model.load_state_dict(weight)
    with pytest.raises(TrainingError, match=r"not saved: 3.weight is not finite after step 4 of epoch 1"):
        run.save(subject)
    assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == saved


def test_an_unread_loss_that_is_not_finite_is_not_saved(device: str, tmp_path: Path) -> None:
    """Interrupted before a GPU's losses are read."""
    run, subject = Run.start({}, tmp_path / "run"), trainer(device)
    run.save(subject)
    before = (run.folder / "checkpoint.safetensors").read_bytes()

    factors = (float("nan") for _ in range(9))  # a generator cannot be copied, so no dry run is interrupted

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        factor = next(factors)
        signal.raise_signal(signal.SIGINT)
        return F.cross_entropy(logits, labels) * factor

    subject.loss = loss
    with pytest.raises(TrainingError, match="epoch 1: the loss is nan at step 1"):
        train(run, subject)
    assert (run.folder / "checkpoint.safetensors").read_bytes() == before


def test_the_checkpoint_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed while it saves its last epoch does it once more, and so has the weights of it."""
    run, subject = Run.start({}, tmp_path / "net"), trainer()

    def fail(*_: object) -> None:
        raise CheckpointError("no room")

    for epoch in (1, 2):
        result = subject.train_epoch(loader())
        run.history.rows.append(Row.of(epoch, result, None))
        if epoch == 2:
            monkeypatch.setattr("alpha.train.files.run.save_state", fail)
            with pytest.raises(CheckpointError, match="no room"):
                run.save(subject)
        else:
            run.save(subject)
    run.close()
    assert load_metadata(run.folder / "weights.safetensors")["epoch"] == "2"
    assert len((run.folder / "history.csv").read_text().splitlines()) == 3
    assert len(Run.resume(run.folder).history.rows) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="other calls there")
def test_options_are_whole_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options are written in place, and only if they are others than before."""
    run, subject = Run.start({"a": 1, "text": "x" * 50}, tmp_path / "net"), trainer()
    path, found = run.folder / "run.json", []
    write, cut = os.write, os.ftruncate

    def wrote(descriptor: int, data: bytes) -> int:
        found.append(json.loads(path.read_text()))
        return write(descriptor, data)

    def shortened(descriptor: int, size: int) -> None:
        found.append(json.loads(path.read_text()))
        cut(descriptor, size)

    monkeypatch.setattr(os, "write", wrote)
    monkeypatch.setattr(os, "ftruncate", shortened)
    before = dict(run.options)
    run.save(subject)
    assert found == []
    run.options = {"a": 2}
    run.save(subject)
    assert found == [before, {"a": 2}]
    assert path.read_text() == '{\n  "a": 2\n}\n'
    run.close()


# -- folders ----------------------------------------------------------------------------------


def test_runs_get_folders_of_their_own(tmp_path: Path) -> None:
    runs = [Run.start({"n": n}, tmp_path / "runs" / "net") for n in range(3)]
    assert [run.folder.name for run in runs] == ["net", "net-2", "net-3"]
    assert len({(run.folder / "run.json").read_text() for run in runs}) == 3


START = """
import sys
from alpha.train import Run
run = Run.start({}, sys.argv[1], *([sys.argv[2]] if len(sys.argv) > 2 else []))
print(run.folder, flush=True)
input()
"""


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    return child.start(
        [sys.executable, "-c", START, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True])
def test_of_runs_started_at_once_each_has_a_folder_or_an_error(tmp_path: Path, given: bool) -> None:
    arguments = [tmp_path / "net", *([tmp_path / "net"] if given else [])]
    processes = [start(*arguments) for _ in range(3)]
    results = [child.finish(process, "\n") for process in processes]
    folders = [out.strip() for out, _ in results if out]
    assert len(set(folders)) == len(folders) == (1 if given else 3)
    assert sum("holds a run" in errors for _, errors in results) == (2 if given else 0)


def test_a_folder_with_a_run_is_neither_taken_nor_touched(tmp_path: Path) -> None:
    run, subject = Run.start({"a": 1}, tmp_path / "net"), trainer()
    subject.train_epoch(loader())
    run.save(subject)
    run.close()
    before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    with pytest.raises(CheckpointError, match=r"net: holds a run \(run.json, checkpoint.*resume.*overwrite"):
        Run.start({}, tmp_path / "x", run.folder)
    other = Run.start({"b": 2}, tmp_path / "x", run.folder, overwrite=True)
    assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == before  # until it saves
    other.save(subject)
    other.close()
    assert Run.resume(run.folder).options == {"b": 2}


@pytest.mark.parametrize("name", ["weights.safetensors", "history.csv", "checkpoint.safetensors"])
def test_a_folder_with_files_of_an_older_run_is_not_taken(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("old")
    with pytest.raises(CheckpointError, match=f"holds a run \\({name}\\)"):
        Run.start({}, tmp_path / "x", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX locks")
def test_a_run_that_goes_on_is_neither_overwritten_nor_resumed(tmp_path: Path) -> None:
    run, subject = Run.start({}, tmp_path / "net"), trainer()
    run.save(subject)
    for attempt in (lambda: Run.start({}, tmp_path / "x", run.folder, overwrite=True), lambda: Run.resume(run.folder)):
        with pytest.raises(CheckpointError, match="net: the run there is still going on"):
            attempt()
    run.close()
    Run.resume(run.folder).close()


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere: has no checkpoint.safetensors: there is no run"):
        Run.resume(tmp_path / "nowhere")
    run = Run.start({}, tmp_path / "net")
    with pytest.raises(CheckpointError, match="stopped before it saved anything"):
        Run.resume(run.folder)
    with pytest.raises(CheckpointError, match="is a new run; there is nothing to restore"):
        run.restore(trainer())
    path = run.folder / "checkpoint.safetensors"
    run.close()
    save_weights(path, trainer().model.state_dict().numpy())
    with pytest.raises(CheckpointError, match="holds weights, but not the state of a run"):
        Run.resume(run.folder)
    save_state(path, {"options": {}, "history": [{"epoch": 1}], "trained": None, "x": np.ones(1)})
    with pytest.raises(CheckpointError, match="is not the state of a run"):
        Run.resume(run.folder)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        Run.resume(run.folder)


def test_a_checkpoint_of_another_model_or_optimizer_is_refused(tmp_path: Path) -> None:
    run, subject = Run.start({}, tmp_path / "net"), trainer()
    subject.train_epoch(loader())
    run.save(subject)
    run.close()
    with pytest.raises(CheckpointError, match="SGD: the state is that of Adam"):
        Run.resume(run.folder).restore(trainer(kind=SGD))


def test_the_weights_say_where_they_are_from(tmp_path: Path) -> None:
    run, subject = Run.start({"model": "tiny", "lr": 0.05}, tmp_path / "net"), trainer(precision="bf16")
    subject.train_epoch(loader(), steps=3)
    run.save(subject)
    facts = load_metadata(run.folder / "weights.safetensors")
    assert {"model": "tiny", "lr": "0.05", "epoch": "1", "step": "3", "precision": "float32"}.items() <= facts.items()


def test_a_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    state = {
        "numbers": [1, 0.1, 1e-320, -0.0, None, True, "\udcff \u4e2d"],
        "arrays": {"0": np.array(7, np.int64), "a/b": np.array([np.nan, -0.0], np.float32)},
        "a": {"b": np.zeros((0, 3), np.uint8)},
    }
    save_state(tmp_path / "s", state)
    same_states(load_state(tmp_path / "s"), state)
    assert '{"$array": "0/arrays/0"}' in load_metadata(tmp_path / "s")["alpha.state"]  # older files stay readable
    with pytest.raises(CheckpointError, match=r"s: the state cannot be saved: .*not JSON serializable"):
        save_state(tmp_path / "s", {"x": object()})
    same_states(load_state(tmp_path / "s"), state)
