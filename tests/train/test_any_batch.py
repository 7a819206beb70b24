"""Trainer on batches of any form: a captured epoch gives the bits of the loop that one would write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.core.tensor import Tensor
from alpha.data import ArrayDataset, DataLoader, StackDataset, TensorDataset
from alpha.errors import DataError, TrainingError
from alpha.models import unet
from alpha.nn import functional as F
from alpha.nn.utils import clip_grad_norm_
from alpha.optim import SGD, Adam
from alpha.train import Trainer

ROWS, BATCH = 42, 8  # the last batch is shorter


def table() -> ArrayDataset:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((ROWS, 5)).astype(np.float32)
    return ArrayDataset(x, (x[:, :2] * 3 + 1).astype(np.float32))


def photos() -> ArrayDataset:
    generator = np.random.default_rng(1)
    return ArrayDataset(
        generator.integers(0, 256, (ROWS, 4, 4, 3), np.uint8), generator.integers(0, 3, (ROWS, 4, 4)).astype(np.int64)
    )


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        self.first, self.second = nn.Linear(5, 4), nn.Linear(2, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        both = F.relu(self.first(x)) + self.second(y)
        return both[:, :2], both.sum(1)


class Named(nn.Module):
    def __init__(self) -> None:
        self.layer = nn.Linear(5, 2)

    def forward(self, *, features: Tensor) -> Tensor:
        return self.layer(features)


def two_inputs() -> Any:
    x = table()
    inputs = StackDataset(TensorDataset(x.images), TensorDataset(x.labels))
    pairs = StackDataset(TensorDataset(x.labels), TensorDataset(x.images.sum(1)))
    return [((inputs[i][0][0], inputs[i][1][0]), (pairs[i][0][0], np.float32(pairs[i][1][0]))) for i in range(ROWS)]


def two_losses(outputs: Any, targets: Any) -> Tensor:
    return F.mse_loss(outputs[0], targets[0]) + F.l1_loss(outputs[1], targets[1])


def by_name() -> Any:
    x = table()
    return [{"features": x.images[i], "target": x.labels[i], "weight": np.float32(i % 3)} for i in range(ROWS)]


def weighted_step(model: Any, batch: Any) -> dict[str, Tensor]:
    error = (model(features=batch["features"]) - batch["target"]).abs().mean(1)
    return {"loss": (error * batch["weight"]).mean(), "error": error.mean()}


def named_inputs() -> Any:
    x = table()
    return [({"features": x.images[i]}, x.labels[i]) for i in range(ROWS)]


class Gan(nn.Module):
    """A generator and a discriminator, each of which has an optimizer of its own."""

    def __init__(self) -> None:
        self.generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))
        self.discriminator = nn.Sequential(nn.Linear(5, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


def gan_step(optimizers: list[Adam]) -> Callable[[Any, Any], dict[str, Tensor]]:
    def step(model: Any, batch: Any) -> dict[str, Tensor]:
        real, _ = batch
        noise = alpha.randn(len(real), 3, device=real.device)
        ones, zeros = alpha.ones(len(real), 1, device=real.device), alpha.zeros(len(real), 1, device=real.device)
        fake = model.generator(noise)
        loss_d = F.binary_cross_entropy_with_logits(model.discriminator(real), ones)
        loss_d = loss_d + F.binary_cross_entropy_with_logits(model.discriminator(fake.detach()), zeros)
        optimizers[1].zero_grad()
        loss_d.backward()
        optimizers[1].step()
        loss_g = F.binary_cross_entropy_with_logits(model.discriminator(fake), ones)
        optimizers[0].zero_grad()
        loss_g.backward()
        optimizers[0].step()
        return {"loss": loss_g.detach(), "discriminator": loss_d.detach()}

    return step


def on(device: str, batch: Any) -> Any:
    if isinstance(batch, tuple):
        return tuple([on(device, part) for part in batch])
    if isinstance(batch, dict):
        return {name: on(device, part) for name, part in batch.items()}
    x = alpha.tensor(batch, device=device)
    return F.normalize_pixels(x) if x.dtype == np.uint8 else x


def called(model: Any, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


CASES: dict[str, tuple[Callable[[], Any], Callable[[], nn.Module], Any, Any]] = {
    "table": (table, lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)), F.mse_loss, None),
    "segmentation": (
        photos,
        lambda: nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)),
        F.cross_entropy,
        None,
    ),
    "inputs and targets": (two_inputs, TwoInputs, two_losses, None),
    "inputs by name": (named_inputs, Named, F.mse_loss, None),
    "a step": (by_name, Named, None, weighted_step),
}


def build(case: str, device: str) -> tuple[Any, nn.Module, SGD]:
    data, make, _, _ = CASES[case]
    alpha.manual_seed(3)
    model = make().to(device)
    return data(), model, SGD(model.parameters(), lr=0.05, momentum=0.9)


def weights(model: nn.Module) -> list[np.ndarray]:
    return [np.asarray(value) for value in model.state_dict().numpy().values()]


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_an_epoch_is_the_loop_that_one_would_write(device: str, case: str, accumulate: int) -> None:
    """Weights, losses and the numbers of a step: with a resident set, a streamed one, and parts of batches."""
    _, _, loss_of, step = CASES[case]
    data, model, optimizer = build(case, device)
    options: dict[str, Any] = {"step": step} if step else {"loss": loss_of}
    subject = Trainer(
        model, optimizer, device, capture=device != "cpu", accumulate=accumulate, clip_norm=0.5, **options
    )
    results = [subject.train_epoch(DataLoader(data, BATCH, shuffle=True, seed=5)) for _ in range(2)]

    data, twin, optimizer = build(case, device)
    twin.train()
    for epoch in range(2):
        loader = DataLoader(data, BATCH, shuffle=True, seed=5)
        loader.set_epoch(epoch)
        total, named = 0.0, 0.0
        for number, batch in enumerate(loader):
            count = min(BATCH, ROWS - number * BATCH)
            size = -(-count // accumulate)
            for begin in range(0, count, size):
                part = on(device, cut(batch, begin, begin + size))
                length = min(size, count - begin)
                if step:
                    numbers = step(twin, part)
                    loss, named = numbers["loss"], named + float(numbers["error"].double().item()) * length
                else:
                    loss = loss_of(called(twin, part[0]), part[1])
                total += loss.item() * length
                (loss if length == count else loss * (length / count)).backward()
            clip_grad_norm_(twin.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
        assert results[epoch].loss == pytest.approx(total / ROWS, rel=1e-12)
        if step:
            assert results[epoch].metrics == {"error": pytest.approx(named / ROWS, rel=1e-12)}
    for found, expected in zip(weights(model), weights(twin), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (results[0].accuracy is None) == (case != "segmentation")


def cut(batch: Any, begin: int, end: int) -> Any:
    if isinstance(batch, tuple):
        return tuple([cut(part, begin, end) for part in batch])
    if isinstance(batch, dict):
        return {name: cut(part, begin, end) for name, part in batch.items()}
    return batch[begin:end]


@pytest.mark.slow
@pytest.mark.parametrize("capture", [False, True])
def test_a_gan_updates_itself(device: str, capture: bool) -> None:
    """Two optimizers, two losses and random numbers within the step: the bits of a plain loop."""

    def build() -> tuple[Gan, list[Adam]]:
        alpha.manual_seed(1)
        model = Gan()
        model.to(device)
        return model, [Adam(part.parameters(), lr=0.01) for part in (model.generator, model.discriminator)]

    model, optimizers = build()
    subject = Trainer(model, optimizers, device, step=gan_step(optimizers), capture=capture and device != "cpu")
    results = [subject.train_epoch(DataLoader(table(), BATCH)) for _ in range(2)]
    twin, own = build()
    step = gan_step(own)
    for _ in range(2):
        for batch in DataLoader(table(), BATCH):
            step(twin, on(device, batch))
    for found, expected in zip(weights(model), weights(twin), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert set(results[1].metrics) == {"discriminator"}
    assert results[1].accuracy is None
    state = subject.state_dict()
    assert len(state["optimizer"]) == 2
    subject.load_state_dict(state)


def test_pixel_accuracy_leaves_out_pixels_to_ignore(device: str) -> None:
    data, model, optimizer = build("segmentation", device)
    data.labels[:, :2] = -100
    result = Trainer(model, optimizer, device).evaluate(DataLoader(data, BATCH))
    with alpha.no_grad():
        outputs = model(on(device, data.images)).numpy()
    rated = data.labels != -100
    assert result.accuracy == (outputs.argmax(-1) == data.labels)[rated].mean()


def test_predictions_are_in_the_order_of_the_data(device: str) -> None:
    data, model, optimizer = build("table", device)
    subject = Trainer(model, optimizer, device, loss=F.mse_loss)
    found = subject.predict(DataLoader(data, BATCH))
    with alpha.no_grad():
        expected = model(alpha.tensor(data.images, device=device)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    several, model, optimizer = build("inputs and targets", device)
    both = Trainer(model, optimizer, device, loss=two_losses).predict(DataLoader(several, BATCH))
    assert [part.shape for part in both] == [(ROWS, 2), (ROWS,)]


@pytest.mark.slow
def test_batches_of_changing_shapes_are_streamed(device: str) -> None:
    """Sequences that a collate_fn makes as long as the longest one of their batch."""

    class Words(nn.Module):
        def __init__(self) -> None:
            self.embedding, self.out = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.embedding(x).mean(1))

    def padded(items: list[Any]) -> Any:
        longest = max(len(words) for words, _ in items)
        rows = np.array([words + [0] * (longest - len(words)) for words, _ in items])
        return rows, np.array([label for _, label in items])

    data = [([1 + (i * k) % 8 for k in range(1 + i % 4)], i % 2) for i in range(20)]
    alpha.manual_seed(0)
    model = Words().to(device)
    subject = Trainer(model, SGD(model.parameters(), lr=0.1), device)
    result = subject.train_epoch(DataLoader(data, 2, collate_fn=padded, shuffle=True, seed=1))
    assert (result.images, result.accuracy is not None) == (20, True)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": lambda x, y: x}, ValueError, r"loss has shape \(8, 2\), expected one number"),
        ({"loss": lambda x, y: 1.0}, TypeError, r"loss is a float, expected a Tensor \(\)"),
        ({"step": lambda model, batch: {"a": 1}}, ValueError, 'step returned a, but no "loss"'),
        ({"step": lambda model, batch: None}, TypeError, "step is a NoneType, expected a Tensor"),
        ({"loss": lambda x, y: F.mse_loss(x, y).detach()}, TrainingError, "first step changed no parameter"),
        ({"step": lambda model, batch: alpha.zeros(())}, TrainingError, "first step changed no parameter"),
    ],
)
def test_a_loss_or_step_that_cannot_train_is_an_error(options: dict[str, Any], error: Any, message: str) -> None:
    data, model, optimizer = build("table", "cpu")
    with pytest.raises(error, match=message):
        Trainer(model, optimizer, "cpu", **options).train_epoch(DataLoader(data, BATCH))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 0}, "accumulate is 0, expected a whole number, 1 or more"),
        ({"clip_norm": 0}, "clip_norm=0 is not above 0"),
        ({"ema": 1.5}, r"ema=1.5 is not in \[0, 1\)"),
        ({"schedule_per": "week"}, "schedule_per is 'week', expected 'step' or 'epoch'"),
        ({"step": weighted_step, "loss": F.mse_loss}, "loss and step are both given"),
        ({"step": weighted_step, "metrics": {"a": F.l1_loss}}, "metrics need the outputs of loss="),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    model = nn.Linear(5, 2)
    with pytest.raises(ValueError, match=message):
        Trainer(model, SGD(model.parameters(), lr=0.1), "cpu", **options)


def test_what_no_tensor_can_hold_is_named() -> None:
    data = [({"x": np.zeros(5, np.float32), "file": "a.jpg"}, 0) for _ in range(4)]
    model = Named()
    subject = Trainer(model, SGD(model.parameters(), lr=0.1), "cpu")
    with pytest.raises(DataError, match=r"a batch of the loader holds a list, \['a.jpg', .* no array of numbers"):
        subject.train_epoch(DataLoader(data, 2))


def test_parts_need_arrays_of_one_length() -> None:
    def summed(items: list[Any]) -> Any:
        return np.stack([x for x, _ in items]), np.zeros(3, np.float32)

    data, model, optimizer = build("table", "cpu")
    subject = Trainer(model, optimizer, "cpu", loss=lambda x, y: x.mean() + y.mean(), accumulate=2)
    with pytest.raises(DataError, match=r"accumulate .* \(8 and \(3,\)\)"):
        subject.train_epoch(DataLoader(data, BATCH, collate_fn=summed))


@pytest.mark.slow
def test_a_u_net_is_captured() -> None:
    """The bits of steps that are not captured; two whole batches are enough for a graph."""
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (8, 16, 16, 3), np.uint8)
    data = ArrayDataset(images, (images[..., 0] > 128).astype(np.int64))
    found = []
    for capture in (True, False):
        alpha.manual_seed(0)
        model = unet(num_classes=2, width=1).to("cuda")
        subject = Trainer(model, SGD(model.parameters(), lr=0.1), "cuda", capture=capture)
        for _ in range(2):
            subject.train_epoch(DataLoader(data, 4))
        found.append(weights(model))
    for captured, plain in zip(*found, strict=True):
        np.testing.assert_array_equal(captured, plain)
