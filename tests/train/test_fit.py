"""Trainer.fit: its rows, its callbacks, a mean of the weights, and a run that is stopped anywhere and goes on."""

from __future__ import annotations

import csv
import json
import math
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, transforms
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import CheckpointError
from alpha.nn import functional as F
from alpha.optim import SGD, StepLR
from alpha.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from alpha.train import (
    Callback,
    EarlyStopping,
    Interrupted,
    JsonLines,
    KeepWeights,
    LearningRates,
    Row,
    Run,
    TensorBoard,
    Trainer,
    find_learning_rate,
    load_metadata,
    load_weights,
    lr_finder,
    save_curves,
)


def images(count: int = 24, seed: int = 0) -> ArrayDataset:
    generator = np.random.default_rng(seed)
    labels = (np.arange(count) % 2).astype(np.int32)
    light = (labels * 100).astype(np.uint8)[:, None, None, None]
    return ArrayDataset(generator.integers(0, 156, (count, 6, 6, 3), np.uint8) + light, labels, ("dark", "light"))


def build(device: str = "cpu", **options: Any) -> Trainer:
    alpha.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    model.to(device)
    return Trainer(model, SGD(model.parameters(), lr=0.05, momentum=0.9), device, **options)


def loaders() -> tuple[DataLoader, DataLoader]:
    return DataLoader(images(), 8, shuffle=True, seed=3), DataLoader(images(10, seed=1), 8)


def weights(subject: Trainer) -> dict[str, Any]:
    return dict(subject.model.state_dict().numpy())


class Log(Callback):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_start(self, fit: Any) -> None:
        self.seen.append("start")

    def on_steps(self, fit: Any, step: int, loss: float) -> None:
        self.seen.append(f"step {step}")

    def on_epoch(self, fit: Any) -> None:
        self.seen.append(f"epoch {len(fit.rows)}")

    def on_end(self, fit: Any) -> None:
        self.seen.append("end")


@pytest.mark.slow
def test_epochs_are_counted_in_all(device: str) -> None:
    subject, twin = build(device), build(device)
    lines: list[str] = []
    log = Log()
    rows = subject.fit(*loaders(), epochs=2, show=lines.append, callbacks=[log])
    expected = [(twin.train_epoch(loaders()[0]), twin.evaluate(loaders()[1])) for _ in range(2)]
    for row, (trained, tested) in zip(rows, expected, strict=True):
        assert (row.train_loss, row.test_loss, row.test_accuracy) == (trained.loss, tested.loss, tested.accuracy)
    assert [line[:12].strip() for line in lines] == ["epoch  1/2", "epoch  2/2"]
    assert log.seen == ["start", "step 3", "epoch 1", "step 3", "epoch 2", "end"]
    assert subject.fit(*loaders(), epochs=2, show=lines.append) == []
    assert lines[2:] == ["nothing to train: 2 epochs are done; a larger number of epochs trains more"]
    assert len(subject.fit(loaders()[0], epochs=3, show=None)) == 1
    assert subject.epoch == 3


def test_callbacks_see_every_ten_steps() -> None:
    log = Log()
    build().fit(DataLoader(images(), 1), epochs=1, callbacks=[log], show=None)
    assert log.seen == ["start", "step 10", "step 20", "step 24", "epoch 1", "end"]


def test_without_a_test_set_there_are_no_numbers_of_it(tmp_path: Path) -> None:
    run = Run.start({}, tmp_path / "run")
    rows = build(loss=lambda x, y: F.cross_entropy(x, y)).fit(loaders()[0], epochs=2, run=run, show=None)
    assert (rows[0].test_loss, rows[0].test_accuracy) == (None, None)
    assert "test" not in str(rows[0])
    assert save_curves(tmp_path / "curves.png", rows, "title") == "curves.png"


def scripted(metric: str, values: list[float]) -> list[Row]:
    return [Row(i + 1, 1.0, 1.0, 0.5, 0.5, 1.0, 1.0, "float32", 1.0, 0.1, {metric: v}) for i, v in enumerate(values)]


class State:
    """Rows that a callback sees, without a training."""

    def __init__(self, run: Any = None, trainer: Any = None) -> None:
        self.rows: list[Row] = []
        self.stopping: str | None = None
        self.run, self.trainer = run, trainer


@pytest.mark.parametrize(
    ("options", "values", "last"),
    [
        ({"patience": 2}, [3, 2, 2.5, 2.2, 1], 4),
        ({"patience": 2}, [3, 2, 1, 0.5, 0.4], None),
        ({"patience": 1, "min_delta": 0.5}, [3, 2.8, 1], 2),
        ({"patience": 2, "mode": "max"}, [1, 2, 2, 2, 3], 4),
        ({"patience": 2}, [math.nan, math.nan, math.nan, 1], 2),
    ],
)
def test_early_stopping(options: dict[str, Any], values: list[float], last: int | None) -> None:
    """The same if its state is saved and loaded between any two epochs."""
    for save in (False, True):
        subject, state, ended = EarlyStopping(metric="my_loss", **options), State(), None
        for row in scripted("my_loss", values):
            if save:
                kept = json.loads(json.dumps(subject.state_dict()))
                subject = EarlyStopping(metric="my_loss", **options)
                subject.load_state_dict(kept)
            state.rows.append(row)
            subject.on_epoch(state)  # type: ignore[arg-type]
            if state.stopping is not None:
                ended = row.epoch
                assert "my_loss has not become better than" in state.stopping
                break
        assert ended == last


@pytest.mark.slow
def test_a_run_that_stopped_early_stays_so_when_it_goes_on(tmp_path: Path) -> None:
    """A kill may come after the last epoch was saved; with more patience the run goes on."""
    flat = {"metric": "train_loss", "min_delta": 100.0}  # no epoch but the first is better
    run = Run.start({}, tmp_path / "run")
    assert len(build().fit(*loaders(), epochs=9, run=run, callbacks=[EarlyStopping(2, **flat)], show=None)) == 3
    run.close()
    lines: list[str] = []
    for patience, epochs in ((2, 3), (4, 5), (4, 5)):
        run, subject = Run.resume(tmp_path / "run"), build()
        run.restore(subject)
        callbacks = [EarlyStopping(patience, **flat)]
        assert len(subject.fit(*loaders(), epochs=9, run=run, callbacks=callbacks, show=lines.append)) == epochs
        run.close()
    begins = [line.partition("/")[0].partition(":")[0] for line in lines]
    assert begins == ["stopped after epoch 3", "epoch  4", "epoch  5", *2 * ["stopped after epoch 5"]]
    run, subject = Run.resume(tmp_path / "run"), build()
    run.restore(subject)
    new = EarlyStopping(2, **flat)  # which knows nothing of the epochs before
    new.name = "new"
    assert len(subject.fit(*loaders(), epochs=9, run=run, callbacks=[new], show=None)) == 8


def test_a_training_that_a_callback_stops(tmp_path: Path) -> None:
    class Enough(Callback):
        def on_epoch(self, fit: Any) -> None:
            fit.stopping = "it is enough"

    lines: list[str] = []
    rows = build().fit(*loaders(), epochs=5, callbacks=[Enough()], show=lines.append)
    assert len(rows) == 1
    assert lines[-1] == "stopped after epoch 1: it is enough"


def test_a_number_that_is_not_recorded_is_named() -> None:
    with pytest.raises(KeyError, match="EarlyStopping: 'test_iou' is not recorded; there are epoch, seconds"):
        build().fit(*loaders(), epochs=1, callbacks=[EarlyStopping(metric="test_iou", mode="max")], show=None)
    with pytest.raises(ValueError, match="EarlyStopping: mode is None, expected 'min' or 'max' for"):
        EarlyStopping(metric="test_iou")
    with pytest.raises(CheckpointError, match="two callbacks have one name"):
        build().fit(*loaders(), epochs=1, callbacks=[EarlyStopping(), EarlyStopping()], show=None)
    with pytest.raises(CheckpointError, match="KeepWeights: there is no folder"):
        build().fit(*loaders(), epochs=1, callbacks=[KeepWeights()], show=None)


@pytest.mark.slow
def test_the_best_and_the_last_weights_are_kept(tmp_path: Path) -> None:
    class Note(Callback):
        """Gives each epoch its number of a script, and keeps its weights."""

        def __init__(self, script: list[float]) -> None:
            self.script, self.weights = script, []

        def on_epoch(self, fit: Any) -> None:
            fit.rows[-1] = scripted("test_score", self.script)[len(fit.rows) - 1]
            self.weights.append(weights(fit.trainer))

    note = Note([1.0, 5.0, 3.0, 4.0, 2.0])
    run = Run.start({"model": "mine"}, tmp_path / "run")
    build().fit(
        *loaders(), epochs=5, run=run, show=None,
        callbacks=[note, KeepWeights(best=2, last=1, metric="test_score", mode="max")],
    )  # fmt: skip
    kept = sorted(path.name for path in (run.folder / "kept").iterdir())
    assert kept == ["epoch-002.safetensors", "epoch-004.safetensors", "epoch-005.safetensors"]
    found = load_weights(run.folder / "kept" / kept[0])
    for name, value in note.weights[1].items():
        np.testing.assert_array_equal(np.asarray(found[name]), value)
    assert load_metadata(run.folder / "kept" / kept[0])["model"] == "mine"


def test_json_lines_and_csv_have_all_numbers(tmp_path: Path) -> None:
    run = Run.start({}, tmp_path / "run")
    subject = build(metrics={"size": lambda x, y: x.abs().mean()})
    rows = subject.fit(*loaders(), epochs=2, run=run, callbacks=[JsonLines(tmp_path / "log.jsonl")], show=None)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["test_size"] for line in lines] == [row.metrics["test_size"] for row in rows]
    with (run.folder / "history.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(line["test_size"]) for line in table] == pytest.approx(
        [row.metrics["test_size"] for row in rows], 1e-5
    )


def test_tensorboard_reads_the_numbers(tmp_path: Path) -> None:
    """Steps are counted on in a run that goes on; the folder of another run is refused."""
    pytest.importorskip("tensorboardX")
    run = Run.start({}, tmp_path / "run")
    rows = build().fit(*loaders(), epochs=1, run=run, callbacks=[TensorBoard(tmp_path / "log")], show=None)
    run.close()
    run, subject = Run.resume(tmp_path / "run"), build()
    run.restore(subject)
    rows = subject.fit(*loaders(), epochs=2, run=run, callbacks=[TensorBoard(tmp_path / "log")], show=None)
    found = [event for file in sorted((tmp_path / "log").iterdir()) for event in events(file)]
    losses = [(step, value) for name, step, value in found if name == "test_loss"]
    assert losses == [(3, pytest.approx(rows[0].test_loss)), (6, pytest.approx(rows[1].test_loss))]
    with pytest.raises(CheckpointError, match=r"log has events.* of another run; take another folder"):
        build().fit(*loaders(), epochs=1, callbacks=[TensorBoard(tmp_path / "log")], show=None)


def events(file: Path) -> Iterator[tuple[str, int, float]]:
    """The scalars of an event file: records of a length (8 bytes), a checksum (4), the data and a checksum (4)."""
    from tensorboardX.proto import event_pb2

    data, at = file.read_bytes(), 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        event = event_pb2.Event()
        event.ParseFromString(data[at + 12 : at + 12 + length])
        at += 16 + length
        for value in event.summary.value:
            yield value.tag, event.step, value.simple_value


@pytest.mark.slow
def test_the_mean_of_the_weights_is_that_of_averaged_model(device: str, tmp_path: Path) -> None:
    """Evaluated, saved as the weights of the run, and resumed."""
    subject, twin = build(device, ema=0.9), build(device)
    mean = AveragedModel(twin.model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    step = twin.optimizer.step

    def stepped() -> None:
        step()
        mean.update_parameters(twin.model)

    twin.optimizer.step = stepped  # type: ignore[assignment, method-assign]
    twin.capture = False
    run = Run.start({}, tmp_path / "run")
    rows = subject.fit(*loaders(), epochs=2, run=run, show=None)
    for _ in range(2):
        twin.train_epoch(loaders()[0])
    expected = mean.module.state_dict().numpy()
    saved = load_weights(run.folder / "weights.safetensors")
    assert subject.averaged is not None
    for name, value in subject.averaged.module.state_dict().numpy().items():
        np.testing.assert_array_equal(value, np.asarray(expected[name]), err_msg=name)
        np.testing.assert_array_equal(np.asarray(saved[name]), value)
    twin.model.load_state_dict(mean.module.state_dict())
    assert rows[-1].test_loss == twin.evaluate(loaders()[1]).loss
    run.close()
    with pytest.raises(CheckpointError, match="the trainer has no ema="):
        Run.resume(run.folder).restore(build(device))


def options(kind: str) -> dict[str, Any]:
    return {"plain": {}, "all": {"ema": 0.8, "accumulate": 2, "clip_norm": 1.0}}[kind]


def augmentation(kind: str) -> Any:
    mix = [transforms.RandomHorizontalFlip(), transforms.RandomCrop(6, padding=1), transforms.MixUp(num_classes=2)]
    return transforms.Compose(mix) if kind == "all" else None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "all"])
def test_a_run_that_is_stopped_after_any_step_ends_with_the_same_bits(device: str, kind: str, tmp_path: Path) -> None:
    def whole() -> tuple[Trainer, list[Row]]:
        subject = build(device, **options(kind))
        subject.augment = augmentation(kind)
        return subject, subject.fit(*loaders(), epochs=3, show=None, callbacks=[EarlyStopping(patience=9)])

    expected, rows = whole()
    for stop in (1, 3, 5, 6, 8):
        folder = tmp_path / f"run-{stop}"
        subject, run = build(device, **options(kind)), Run.start({}, folder, folder)
        subject.augment = augmentation(kind)
        with pytest.MonkeyPatch.context() as patch:
            interrupt_after(patch, subject, stop)
            with pytest.raises(Interrupted):
                subject.fit(*loaders(), epochs=3, run=run, show=None, callbacks=[EarlyStopping(patience=9)])
        run.close()
        run = Run.resume(folder)
        subject = build(device, **options(kind))
        subject.augment = augmentation(kind)
        run.restore(subject)
        found = subject.fit(*loaders(), epochs=3, run=run, show=None, callbacks=[EarlyStopping(patience=9)])
        for name, value in weights(expected).items():
            np.testing.assert_array_equal(weights(subject)[name], value, err_msg=f"{stop} {name}")
        assert [(row.train_loss, row.test_loss, row.test_accuracy) for row in found] == [
            (row.train_loss, row.test_loss, row.test_accuracy) for row in rows
        ]


def interrupt_after(patch: pytest.MonkeyPatch, subject: Trainer, steps: int) -> None:
    """Raise Interrupted after a number of steps of training, where a signal would be noticed."""
    import alpha.train.trainer as module

    count = 0
    usual = module.interrupt_between_steps

    @contextmanager
    def counting(*numbers: Any) -> Iterator[Any]:
        with usual(*numbers) as check:

            def counted() -> None:
                nonlocal count
                count += subject.model.training
                if subject.model.training and count == steps:
                    raise Interrupted(2)
                check()

            yield counted

    patch.setattr(module, "interrupt_between_steps", counting)


@pytest.mark.slow
def test_targets_are_mixed_and_labels_counted(device: str) -> None:
    """The loss is of the mixed targets, the accuracy of the labels; an evaluation mixes nothing."""
    subject = build(device)
    subject.augment = transforms.MixUp(num_classes=2)
    result = subject.train_epoch(DataLoader(images(), 8))
    assert result.accuracy is not None
    assert subject.evaluate(loaders()[1]).loss == build_at(device, subject).evaluate(loaders()[1]).loss
    subject.augment = lambda x, y: x
    with pytest.raises(TypeError, match="augment takes inputs and targets, so it must return both, not a Tensor"):
        subject.train_epoch(DataLoader(images(), 8))


def build_at(device: str, other: Trainer) -> Trainer:
    subject = build(device)
    subject.model.load_state_dict(other.model.state_dict())
    return subject


def test_an_augmentation_that_would_leave_masks_where_they_are_is_refused() -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)
    loader = DataLoader(ArrayDataset(images, images[..., 0] // 128), 3)
    model = nn.Conv2d(3, 2, 1)

    def step(model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch[0]), batch[1])

    for options in ({}, {"step": step}):
        subject = Trainer(model, SGD(model.parameters(), lr=0.1), "cpu", **options)
        subject.augment = nn.Sequential(transforms.Normalize(0, 2), transforms.RandomHorizontalFlip())
        with pytest.raises(ValueError, match=r"RandomHorizontalFlip: it would move the pixels of the images"):
            subject.train_epoch(loader)
        subject.evaluate(loader)
        subject.augment = transforms.Normalize(0, 2)
        subject.train_epoch(loader)


@pytest.mark.slow
def test_augmentation_keeps_its_size_in_an_evaluation(device: str) -> None:
    """Pixels of 8 x 8 are cut to 6 x 6 in both; at random places in training, in the middle in an evaluation."""
    generator = np.random.default_rng(0)
    data = ArrayDataset(generator.integers(0, 256, (10, 8, 8, 3), np.uint8), np.arange(10) % 2)
    middle = ArrayDataset(np.ascontiguousarray(data.images[:, 1:7, 1:7]), data.labels)
    subject = build(device)
    expected = subject.evaluate(DataLoader(middle, 4))
    subject.augment = transforms.RandomCrop(6)
    assert subject.evaluate(DataLoader(data, 4)).loss == expected.loss
    subject.train_epoch(DataLoader(data, 4))


def test_a_schedule_per_epoch() -> None:
    subject = build()
    subject.schedule = StepLR(subject.optimizer, 1, gamma=0.5)
    subject.schedule_per = "epoch"
    rows = subject.fit(*loaders(), epochs=3, show=None)
    assert [row.learning_rate for row in rows] == [0.05, 0.025, 0.0125]


@pytest.mark.slow
def test_the_search_for_a_rate_leaves_no_trace(device: str, tmp_path: Path) -> None:
    subject, twin = build(device, ema=0.9), build(device, ema=0.9)
    train, test = DataLoader(images(), 8, shuffle=True, seed=3), loaders()[1]
    found = find_learning_rate(subject, train, 1e-5, 1e3, 40)
    assert len(found.rates) == len(found.losses) <= 40
    assert found.rates[0] == pytest.approx(1e-5)
    assert found.suggestion is not None
    assert 1e-5 < found.suggestion < 10
    found.save(tmp_path / "rates.png")
    assert (tmp_path / "rates.png").stat().st_size > 1000
    rows = [trainer.fit(train, test, epochs=2, show=None) for trainer in (subject, twin)]
    assert [row.train_loss for row in rows[0]] == [row.train_loss for row in rows[1]]
    for name, value in weights(twin).items():
        np.testing.assert_array_equal(weights(subject)[name], value)
    for bad in ((0, 1, 5), (1, 1, 5), (2, 1, 5)):
        with pytest.raises(ValueError, match="0 < lowest < highest is needed"):
            find_learning_rate(subject, train, *bad)


def search(losses: np.ndarray, lowest: float = 1e-6) -> LearningRates:
    """The curve of a search whose batches had these losses (N,) at rates from the lowest to 1."""
    smoothed = lr_finder.SMOOTHING ** np.arange(1, len(losses) + 1)
    mean, curve = 0.0, []
    for loss, left in zip(losses, smoothed, strict=True):
        mean = lr_finder.SMOOTHING * mean + (1 - lr_finder.SMOOTHING) * loss
        curve.append(mean / (1 - left))
    return LearningRates(tuple(np.geomspace(lowest, 1.0, len(losses)).tolist()), tuple(curve))


@pytest.mark.parametrize("steps", [30, 100, 400])
def test_noise_suggests_no_rate_and_a_fall_suggests_its_middle(steps: int) -> None:
    """A loss that does not fall has a lowest point, too; one that falls has its steepest step anywhere."""
    generator = np.random.default_rng(0)
    noise = [search(generator.normal(2.0, 0.3, steps)).suggestion for _ in range(200)]
    assert sum(rate is not None for rate in noise) <= 4, "of 200 searches"
    place = np.linspace(-6, 0, steps)  # of rates, as powers of ten
    for middle in (-4.0, -3.0):
        fall = 2.0 - 1.5 / (1 + np.exp(-4 * (place - middle))) + 3 * np.exp(8 * (place + 0.5))
        for scale in (0.0, 0.02, 0.2):
            found = [search(fall + generator.normal(0, scale, steps)).suggestion for _ in range(20)]
            assert all(rate is not None and 10**middle / 3 < rate < 10**middle * 40 for rate in found), (scale, found)


@pytest.mark.parametrize("losses", [[1.0] * 20, list(range(20)), [3.0, 2.0], [2.0, 1.0, 3.0], [1.0, 2.0, 0.5, 4.0]])
def test_what_never_falls_suggests_no_rate(losses: list[float]) -> None:
    found = LearningRates(tuple(np.geomspace(1e-5, 1, len(losses)).tolist()), tuple(losses))
    assert found.suggestion is None
    assert "the loss hardly fell" in repr(found)


def test_what_a_trainer_and_a_run_are(tmp_path: Path) -> None:
    subject = build()
    assert repr(subject) == "Trainer(Sequential on cpu in float32, cross_entropy, SGD, after step 0 of epoch 0)"
    run = Run.start({}, tmp_path / "run")
    subject.fit(*loaders(), epochs=1, run=run, show=None)
    train, _ = loaders()
    assert repr(train) == "DataLoader(ArrayDataset of 24 items, 3 batches of 8, shuffled, seed 3)"
    assert repr(run).endswith(f"1 epochs, best test accuracy {run.history.rows[0].test_accuracy:.1%})")


class Failing(Callback):
    """Fails at an epoch, as a logger whose server is gone, until it is mended."""

    def __init__(self, epoch: int, error: BaseException | None = None) -> None:
        self.epoch, self.error = epoch, error or ConnectionError("the server is gone")

    def on_epoch(self, fit: Any) -> None:
        if len(fit.rows) == self.epoch:
            raise self.error


class FailingData(ArrayDataset):
    """Images of which one cannot be read at a given pass over them."""

    def __init__(self, passes: int) -> None:
        super().__init__(images(10, seed=1).images, images(10, seed=1).labels, ("dark", "light"))
        self.passes = passes

    def batch(self, indices: Any) -> Any:
        if 0 in indices:
            self.passes -= 1
        if self.passes == 0:
            raise OSError("the disk is gone")
        return super().batch(indices)


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("kind", ["callback", "interrupt", "metric", "data set", "watched"])
def test_an_error_behind_an_epoch_loses_nothing(tmp_path: Path, kind: str, epoch: int) -> None:
    """The epoch that was trained is saved; the run goes on with its evaluation, and ends with the same weights."""
    train, test = loaders()
    whole, epochs = build(), 4
    rows = whole.fit(train, test, epochs=epochs, show=None)

    def metric(outputs: Any, targets: Any) -> Any:
        if subject.finished_epochs == epoch:
            raise ZeroDivisionError("a mistake")
        return outputs.mean()

    run, train = Run.start({}, tmp_path / "run"), loaders()[0]
    subject = build(metrics={"own": metric}) if kind == "metric" else build()
    tested = DataLoader(FailingData(epoch), 8) if kind == "data set" else test
    callbacks: list[Callback] = [Failing(epoch)] if kind == "callback" else []
    if kind == "interrupt":
        callbacks = [Failing(epoch, Interrupted(2))]
    if kind == "watched":
        callbacks = [EarlyStopping(metric="test_f1", mode="max")]
        epoch = 1
    with pytest.raises((ConnectionError, Interrupted, ZeroDivisionError, OSError, KeyError)):
        subject.fit(train, tested, epochs=epochs, run=run, callbacks=callbacks, show=None)
    run.close()

    run, train, subject = Run.resume(tmp_path / "run"), loaders()[0], build()
    run.restore(subject)
    assert (len(run.history.rows), subject.epoch, run.trained is not None) == (epoch - 1, epoch, True)
    again = subject.fit(train, test, epochs=epochs, run=run, show=None)
    run.close()
    assert [(row.epoch, row.train_loss, row.test_loss) for row in again] == [
        (row.epoch, row.train_loss, row.test_loss) for row in rows
    ]
    for name, value in weights(whole).items():
        np.testing.assert_array_equal(weights(subject)[name], value)


def test_an_error_of_saving_does_not_hide_the_first(tmp_path: Path) -> None:
    train, test = loaders()
    run = Run.start({}, tmp_path / "run")
    run.options["x"] = object()  # which no file takes
    with pytest.raises(ConnectionError, match="the server is gone"):
        build().fit(train, test, epochs=2, run=run, callbacks=[Failing(1)], show=None)
    run.close()


def test_a_resumed_run_must_be_restored(tmp_path: Path) -> None:
    train, test = loaders()
    run = Run.start({}, tmp_path / "run")
    build().fit(train, test, epochs=2, run=run, show=None)
    run.close()
    run, other = Run.resume(tmp_path / "run"), build()
    held = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    for use in (lambda: other.fit(train, test, epochs=3, run=run, show=None), lambda: run.save(other)):
        with pytest.raises(CheckpointError, match=r"call run.restore\(trainer\) before"):
            use()
    assert other.epoch == 0
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == held
    run.restore(other)
    assert len(other.fit(train, test, epochs=3, run=run, show=None)) == 3
    run.close()


def test_early_stopping_in_a_second_training() -> None:
    """Epochs of the training that goes on are counted, and it begins anew with another trainer."""
    train, test = loaders()
    stop = EarlyStopping(patience=2, metric="test_loss", min_delta=1e9)  # the first number stays the best one
    subject = build()
    assert len(subject.fit(train, test, epochs=9, callbacks=[stop], show=None)) == 3
    assert len(subject.fit(train, test, epochs=9, callbacks=[stop], show=None)) == 1  # the fourth epoch
    assert len(build().fit(train, test, epochs=9, callbacks=[stop], show=None)) == 3
    stop.load_state_dict({"best": -1.0, "best_epoch": 30})  # of a run that goes on, and then of another training
    subject = build()
    subject.epoch = 30
    assert len(subject.fit(train, test, epochs=39, callbacks=[stop], show=None)) == 2
    assert len(build().fit(train, test, epochs=9, callbacks=[stop], show=None)) == 3
    assert pickle.loads(pickle.dumps(stop)).patience == 2
