"""Trainer: what it counts, when it stops, and that it learns."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn, transforms
from alpha.core.tensor import Tensor
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import CaptureError, CaptureWarning, DataError, DeviceError, TrainingError
from alpha.nn import functional as F
from alpha.optim import SGD, CosineAnnealingLR
from alpha.runtime import Device, get_device
from alpha.train import Row, Trainer
from alpha.train.batches.device import count
from alpha.train.batches.tally import Tally
from alpha.train.commands.photo_options import new_options
from alpha.train.commands.photo_options import parse as parse_photos
from alpha.train.commands.train_photos import trainer_of


def two_classes(count: int) -> ArrayDataset:
    """Dark images of class 0 and light ones of class 1, in turn."""
    generator = np.random.default_rng(0)
    labels = (np.arange(count) % 2).astype(np.int32)
    light = (labels * 128).astype(np.uint8)[:, None, None, None]
    images = generator.integers(0, 128, (count, 4, 4, 3), np.uint8) + light
    return ArrayDataset(images, labels, ("dark", "light"))


def trainer(device: str | Device = "cpu", lr: float = 0.1) -> Trainer:
    alpha.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    model.to(device)
    return Trainer(model, SGD(model.parameters(), lr=lr), get_device(device))


@pytest.fixture(autouse=True)
def _usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_it_learns(device: str) -> None:
    subject = trainer(device)
    loader = DataLoader(two_classes(50), 8, shuffle=True)
    first = subject.train_epoch(loader)
    second = subject.train_epoch(loader)
    assert (first.images, second.images) == (50, 50)
    assert second.loss < first.loss
    assert subject.evaluate(loader).accuracy == 1.0
    assert (subject.epoch, subject.step) == (2, 7)
    assert second.seconds > 0
    assert second.images_per_second == pytest.approx(50 / second.seconds)


def test_a_limit_of_steps() -> None:
    subject = trainer()
    assert subject.train_epoch(DataLoader(two_classes(50), 8), steps=3).images == 24
    assert subject.step == 3
    assert subject.train_epoch(DataLoader(two_classes(50), 8), steps=100).images == 50


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_a_limit_that_is_no_number_of_steps(steps: Any) -> None:
    subject = trainer()
    with pytest.raises(ValueError, match=f"Trainer: steps is {steps}, expected a whole number, 1 or more"):
        subject.train_epoch(DataLoader(two_classes(50), 8), steps=steps)
    assert (subject.epoch, subject.step) == (0, 0)


@pytest.mark.parametrize("batch_size", [1, 7, 32, 100])
def test_evaluation_counts_every_image_once(batch_size: int) -> None:
    data = two_classes(33)
    subject = trainer()
    result = subject.evaluate(DataLoader(data, batch_size))
    with alpha.no_grad():
        logits = subject.model(F.normalize_pixels(alpha.tensor(data.images))).numpy()
    logits = logits.astype(np.float64)
    largest = logits.max(axis=1)
    total = np.log(np.exp(logits - largest[:, None]).sum(axis=1)) + largest
    losses = total - logits[np.arange(33), data.labels]
    assert result.images == 33
    assert result.accuracy == np.mean(logits.argmax(axis=1) == data.labels)
    assert result.loss == pytest.approx(losses.mean(), rel=1e-5)


@pytest.mark.slow
def test_augmentation_changes_what_is_trained_on_and_nothing_else(device: str) -> None:
    """Images that are all turned into their opposite teach the opposite; evaluation sees them as they are."""
    loader = DataLoader(two_classes(48), 8)
    subject = trainer(device)
    for _ in range(3):
        subject.train_epoch(loader)
    assert subject.evaluate(loader).accuracy == 1.0
    subject.augment = lambda pixels: -pixels  # between two epochs
    for _ in range(6):
        subject.train_epoch(loader)
    assert subject.evaluate(loader).accuracy == 0.0
    subject.augment = None
    for _ in range(6):
        subject.train_epoch(loader)
    assert subject.evaluate(loader).accuracy == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("resident", [True, False])
def test_augmentation_in_captured_steps_gives_the_bits_of_plain_ones(resident: bool) -> None:
    """Each step, captured or not, draws its own numbers."""

    def weights(capture: bool) -> np.ndarray:
        alpha.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).to("cuda")
        subject = Trainer(model, SGD(model.parameters(), lr=0.1), "cuda", capture=capture, resident=resident)
        subject.augment = transforms.Compose([transforms.RandomCrop(4, padding=2), transforms.RandomErasing()])
        for _ in range(2):
            subject.train_epoch(DataLoader(two_classes(40), 8))
        return np.asarray(model.state_dict().numpy()["1.weight"])

    np.testing.assert_array_equal(weights(True), weights(False))


@pytest.mark.slow
@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_labels_of_any_dtype_teach_the_same(device: str, dtype: Any, resident: bool) -> None:
    data = two_classes(40)
    losses = []
    for labels in (data.labels, data.labels.astype(dtype)):
        subject = trainer(device)
        subject.resident = resident
        loader = DataLoader(ArrayDataset(data.images, labels, data.classes), 8, shuffle=True)
        losses.append([(subject.train_epoch(loader).loss, subject.evaluate(loader).accuracy) for _ in range(2)])
    assert losses[0] == losses[1]


def test_mode_graph_precision_and_rate_hold_inside_every_step(device: str) -> None:
    """Seen from the loss function and from a hook of the backward pass, not after the epoch."""
    seen: list[tuple[str, bool, bool, str, float]] = []
    subject = trainer(device)
    subject.schedule = CosineAnnealingLR(subject.optimizer, 6)
    subject.precision = "tf32"
    subject.capture = False  # the loss function looks at the host at every step

    def note(name: str, rate: float) -> None:
        seen.append((name, subject.model.training, alpha.is_grad_enabled(), alpha.get_precision(), rate))

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        rate = subject.optimizer.param_groups[0]["lr"]
        note("forward", rate)
        if logits.requires_grad:
            logits.register_hook(
                lambda grad: seen.append(("backward", *seen[-1][1:2], True, alpha.get_precision(), rate))
            )
        return F.cross_entropy(logits, labels)

    subject.loss = loss
    loader = DataLoader(two_classes(24), 8)
    for epoch in range(2):
        subject.train_epoch(loader)
        rates = [0.1 * (1 + math.cos(math.pi * (3 * epoch + i) / 6)) / 2 for i in range(3)]
        expected = [(name, True, True, "tf32", rate) for rate in rates for name in ("forward", "backward")]
        assert [(*row[:4], pytest.approx(row[4])) for row in seen] == expected
        seen.clear()
        subject.evaluate(loader)  # leaves the model in eval mode, so that the next epoch has to set it again
        assert [row[:4] for row in seen] == [("forward", False, False, "tf32")] * 3
        assert not subject.model.training
        seen.clear()
    assert alpha.get_precision() == "float32"
    assert alpha.is_grad_enabled()


@pytest.mark.slow
def test_an_epoch_is_the_loop_that_one_would_write(device: str) -> None:
    subject, twin = trainer(device), trainer(device)
    loader = DataLoader(two_classes(50), 4, shuffle=True, seed=3)
    result = subject.train_epoch(loader)
    twin.model.train()
    losses = []
    for images, labels in DataLoader(two_classes(50), 4, shuffle=True, seed=3):
        logits = twin.model(F.normalize_pixels(alpha.tensor(images, device=device)))
        loss = F.cross_entropy(logits, alpha.tensor(labels, device=device))
        twin.optimizer.zero_grad()
        loss.backward()
        twin.optimizer.step()
        losses.append(loss.item() * len(labels))
    assert result.images == 50
    assert result.loss == sum(losses) / 50  # 13 steps: the last three are read, too
    for name, values in twin.model.state_dict().numpy().items():
        np.testing.assert_array_equal(subject.model.state_dict().numpy()[name], values)


def test_a_loss_that_is_not_finite_names_its_step() -> None:
    subject = trainer()
    usual = subject.loss

    def breaks(logits: Tensor, labels: Tensor) -> Tensor:
        loss = usual(logits, labels)
        return loss * float("nan") if subject.step == 3 else loss

    subject.loss = breaks
    with pytest.raises(TrainingError, match="epoch 1: the loss is nan at step 4; a lower learning rate usually helps"):
        subject.train_epoch(DataLoader(two_classes(50), 2))


@pytest.mark.slow
@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("label", [2, -1, 300])
def test_labels_out_of_range_on_a_gpu_are_named(resident: bool, label: int) -> None:
    data = two_classes(24)
    wrong = ArrayDataset(data.images, data.labels.copy())
    wrong.labels[13] = label
    subject = trainer("cuda")
    subject.resident = resident
    message = f"the loss is nan at step 4; its label {label} is out of range for 2 classes, 0 to 1"
    with pytest.raises(TrainingError, match=f"epoch 1: {message}"):
        subject.train_epoch(DataLoader(wrong, 4))
    again = trainer("cuda")
    with pytest.raises(TrainingError, match=f"evaluation: {message}"):
        again.evaluate(DataLoader(wrong, 4))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_on_the_cpu_the_weights_before_a_bad_loss_stay(bad: float) -> None:
    subject, twin = trainer(), trainer()
    twin.train_epoch(DataLoader(two_classes(50), 2), steps=3)
    usual = subject.loss
    subject.loss = lambda logits, labels: usual(logits, labels) * (bad if subject.step == 3 else 1.0)
    with pytest.raises(TrainingError, match=f"epoch 1: the loss is {bad} at step 4"):
        subject.train_epoch(DataLoader(two_classes(50), 2))
    assert subject.step == 3
    for name, values in twin.model.state_dict().numpy().items():
        np.testing.assert_array_equal(subject.model.state_dict().numpy()[name], values)


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 12, 24])
def test_on_a_gpu_a_bad_loss_names_its_step(at: int) -> None:
    subject = trainer("cuda")
    subject.capture = False  # the loss depends on the number of the step
    usual = subject.loss
    subject.loss = lambda logits, labels: usual(logits, labels) * (float("nan") if subject.step == at else 1.0)
    with pytest.raises(TrainingError, match=f"epoch 1: the loss is nan at step {at + 1};"):
        subject.train_epoch(DataLoader(two_classes(50), 2))


@pytest.mark.slow
@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("capture", [True, False])
def test_captured_or_not_resident_or_streamed_gives_the_same_bits(capture: bool, resident: bool) -> None:
    """Epochs with a shorter last batch, evaluation between them, dropout and a schedule."""

    def run(capture: bool, resident: bool) -> tuple[dict[str, Any], list[tuple[float, float, int]]]:
        alpha.manual_seed(4)
        model = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.Dropout(0.2), nn.Linear(16, 2)).to("cuda")
        optimizer = alpha.optim.Adam(model.parameters(), lr=0.01)
        schedule = CosineAnnealingLR(optimizer, 40)
        subject = Trainer(model, optimizer, "cuda", schedule=schedule, capture=capture, resident=resident)
        data, test = two_classes(50), two_classes(21)
        results = []
        for _ in range(4):  # another loader each time is the same step
            results += [subject.train_epoch(DataLoader(data, 8, shuffle=True, seed=1))]
            results += [subject.evaluate(DataLoader(test, 8))]
        assert len(subject.machine.steps) == 2
        steps: list[Any] = [step for _, step in subject.machine.steps.values()]
        assert [len(step.graphs) for step in steps] == [2, 2] if capture else not hasattr(steps[0], "graphs")
        found = dict(model.state_dict().numpy())
        for index, slots in optimizer.state_dict()["state"].items():
            found |= {f"{index} {name}": np.asarray(value) for name, value in slots.items()}
        return found, [(result.loss, result.accuracy, result.images) for result in results]

    plain, expected = run(False, False)
    found, results = run(capture, resident)
    assert results == expected
    for name, values in plain.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_the_next_order_is_drawn_while_the_device_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, events = trainer("cuda"), []
    draw, read = DataLoader._order, Tally.read
    monkeypatch.setattr(DataLoader, "_order", lambda self, epoch: (events.append(epoch), draw(self, epoch))[1])
    monkeypatch.setattr(Tally, "read", lambda self: (events.append("read"), read(self))[1])
    loader = DataLoader(two_classes(16), 8, shuffle=True)
    for _ in range(2):
        subject.train_epoch(loader)
    assert events == [0, 1, "read", 2, "read"]


def test_a_captured_epoch_names_the_step_of_a_bad_loss() -> None:
    """A label for which the network has no output makes the loss of its batch NaN."""
    data = two_classes(50)
    data.labels[30] = 2
    subject = trainer("cuda")
    subject.capture = True
    with pytest.raises(TrainingError, match="epoch 1: the loss is nan at step 16;"):
        subject.train_epoch(DataLoader(data, 2))


def test_without_a_capture_the_trainer_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = get_device("cuda")
    monkeypatch.setattr(device.driver, "why_no_capture", "cuda-bindings is missing", raising=False)
    subject, loader = trainer("cuda"), DataLoader(two_classes(16), 8)
    with pytest.warns(CaptureWarning, match="train_step is not captured .* cuda-bindings is missing") as warned:
        [subject.train_epoch(loader) for _ in range(2)]
    assert len(warned) == 1
    strict = trainer("cuda")
    strict.capture = True
    with pytest.raises(CaptureError, match="cuda-bindings is missing"):
        strict.train_epoch(loader)


def test_a_tally_that_begins_anew_forgets_what_was_asked_for(device: str) -> None:
    subject = Tally(get_device(device))
    logits, labels = alpha.zeros(2, 3, device=device), alpha.zeros(2, dtype="int32", device=device)
    count(subject.sums, alpha.full((), math.nan, device=device), logits, labels, 2)
    subject.poll()
    subject.begin("next")
    subject.poll()
    assert subject.images == 0


def test_a_tally_that_goes_on_counts_all_steps_of_its_epoch() -> None:
    subject = Tally(get_device("cpu"))
    subject.begin("epoch 1", {"steps": 5, "images": 10, "seconds": 1.0, "loss_sum": 1.0, "hits": 2})
    with pytest.raises(TrainingError, match="epoch 1: the loss is nan at step 6"):
        subject.add(alpha.full((), math.nan), alpha.zeros(2, 3), alpha.zeros(2, dtype="int32"), 2, True)


def test_a_device_by_name_and_a_model_that_is_elsewhere() -> None:
    model = nn.Linear(48, 2)
    assert Trainer(model, SGD(model.parameters()), "cpu").device is get_device("cpu")
    subject = Trainer(model, SGD(model.parameters()), "cuda")
    with pytest.raises(DeviceError, match=r"the model is on cpu, the trainer on cuda; move it by model.to\('cuda'\)"):
        subject.train_epoch(DataLoader(two_classes(8), 8))


def test_ctrl_c_ends_after_a_whole_step() -> None:
    subject = trainer()
    usual = subject.loss

    def interrupted(logits: Tensor, labels: Tensor) -> Tensor:
        if subject.step == 2:
            signal.raise_signal(signal.SIGINT)
        return usual(logits, labels)

    subject.loss = interrupted
    with pytest.raises(KeyboardInterrupt):
        subject.train_epoch(DataLoader(two_classes(50), 2))
    assert (subject.epoch, subject.step) == (1, 3)


def test_gradients_from_before_do_not_enter_the_first_step(device: str) -> None:
    loader, weights = DataLoader(two_classes(32), 16), []
    for before in (False, True):
        made = trainer(device)
        if before:
            for parameter in made.model.parameters():
                parameter.grad = alpha.ones_like(parameter)
        made.train_epoch(loader)
        weights.append([parameter.numpy() for parameter in made.model.parameters()])
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("ema", [None, 0.5])
def test_an_evaluation_leaves_the_model_in_eval_mode(ema: float | None) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    loader = DataLoader(two_classes(32), 16)
    made = Trainer(model, SGD(model.parameters(), 0.1), "cpu", ema=ema)
    made.train_epoch(loader)
    assert model.training
    made.evaluate(loader)
    assert not model.training


def test_a_loader_without_batches() -> None:
    with pytest.raises(DataError, match="epoch 1: no batches of 64 in 10 samples"):
        trainer().train_epoch(DataLoader(two_classes(10), 64, drop_last=True))


def test_two_runs_with_one_seed_agree_bit_for_bit() -> None:
    runs = []
    for _ in range(2):
        subject = trainer()
        subject.train_epoch(DataLoader(two_classes(50), 8, shuffle=True, seed=1))
        runs.append(subject.model.state_dict().numpy())
    for name, values in runs[0].items():
        np.testing.assert_array_equal(values, runs[1][name])


@pytest.mark.slow
def test_precision_holds_inside_and_what_was_computed_is_reported(device: str) -> None:
    seen: list[str] = []

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        seen.append(alpha.get_precision())
        return F.cross_entropy(logits, labels)

    subject = trainer(device)
    loader = DataLoader(two_classes(16), 8)
    for asked, used in ((None, "float32"), ("tf32", "tf32"), ("bf16", "bf16")):
        run = Trainer(subject.model, subject.optimizer, subject.device, loss, precision=asked, capture=False)
        results = run.train_epoch(loader), run.evaluate(loader)
        recorded = "float32" if device == "cpu" else used  # what was computed, not what was asked
        assert {result.precision for result in results} == {recorded}
        assert Row.of(1, *results).precision == recorded
        assert [result.learning_rate for result in results] == [run.optimizer.param_groups[0]["lr"], None]
        assert set(seen) == {used}
        assert alpha.get_precision() == "float32"
        seen.clear()
    with alpha.precision("tf32"):
        assert trainer().precision == "tf32"


def test_an_unknown_precision_is_named_at_once() -> None:
    with pytest.raises(ValueError, match="precision 'fp8' is not one of float32, tf32, bf16"):
        Trainer(None, None, None, precision="fp8")  # type: ignore[arg-type]


def test_memory_mode_holds_in_training() -> None:
    """The trainer's holds in each step, whatever is in force then; without one, that in force when it was made."""
    seen: list[str] = []

    class Watched(nn.Linear):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            seen.append(alpha.get_memory_mode())
            return super().forward(x)

    data = ArrayDataset(np.ones((4, 3), np.float32), np.zeros(4, np.int32))
    modes = ("least", "fast", "least"), (None, "balanced", "balanced"), ("fast", "least", "fast")
    for given, outside, wanted in modes:
        model = Watched(3, 2)
        with alpha.memory_mode(outside):
            trainer = Trainer(model, alpha.optim.SGD(model.parameters(), lr=0.1), "cpu", memory_mode=given)
        seen.clear()
        trainer.fit(DataLoader(data, 2), epochs=1, show=None)
        assert set(seen) == {wanted}
        assert alpha.get_memory_mode() == "fast"
    with pytest.raises(ValueError, match="memory mode 'small' is not one of"):
        Trainer(model, alpha.optim.SGD(model.parameters(), lr=0.1), "cpu", memory_mode="small")


def test_the_memory_mode_of_alpha_train_reaches_its_trainer() -> None:
    options = new_options(parse_photos(["photos", "--device", "cpu", "--memory-mode", "balanced"]))
    data = ArrayDataset(np.zeros((4, 2, 2, 3), np.uint8), np.zeros(4, np.int32), ("a", "b"))
    photos: Any = SimpleNamespace(train_set=data, classes=("a", "b"))
    trainer, _ = trainer_of(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), {**options, "batch_size": 2}, photos)
    assert trainer.memory_mode == "balanced"
    assert new_options(parse_photos(["photos"]))["memory_mode"] == "fast"
