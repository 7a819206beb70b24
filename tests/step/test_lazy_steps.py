"""Lazy layers in captured steps, in dry runs and in a Trainer: the first step runs as usual, the others as ever."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import CaptureError, CaptureWarning, CheckpointError
from alpha.train import Trainer

pytestmark = pytest.mark.usefixtures("cuda")

X = np.random.default_rng(0).standard_normal((3, 5, 4, 4)).astype(np.float32)


def lazy() -> nn.Sequential:
    return nn.Sequential(
        nn.LazyConv2d(8, 3, padding=1), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.LazyLinear(5)
    )


def program(capturing: bool, precision: str = "float32", loaded: bool = False) -> tuple[Any, list[np.ndarray]]:
    """Steps of training a lazy network from its first forward on, and what they leave."""
    alpha.manual_seed(3)
    model = lazy().to("cuda")
    if loaded:
        twin = lazy()
        twin(alpha.tensor(X))
        model.load_state_dict(twin.state_dict())
    optimizer = alpha.optim.Adam(model.parameters(), lr=0.01)
    x, y = alpha.tensor(X, device="cuda"), alpha.tensor([0, 3, 4], device="cuda")

    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run = alpha.capture(strict=True)(step) if capturing else step
    with alpha.precision(precision):
        losses = [run(x, y).detach().numpy() for _ in range(7)]
    return run, [*losses, *model.state_dict().numpy().values()]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("loaded", [False, True])
def test_a_captured_step_begins_with_the_first_forward(precision: str, loaded: bool) -> None:
    _, expected = program(False, precision, loaded)
    step, found = program(True, precision, loaded)
    assert len(step.graphs) == 1
    assert not step.why_not
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_lazy_layer_that_the_step_never_calls() -> None:
    parts = nn.Module()
    parts.used, parts.unused = nn.LazyLinear(2).to("cuda"), nn.LazyLinear(2).to("cuda")
    x = alpha.ones(2, 3, device="cuda")

    def forward(x: alpha.Tensor) -> alpha.Tensor:
        return parts.used(x) if len(parts.__dict__) else parts.unused(x)

    with pytest.raises(CaptureError, match=r"forward cannot be captured: parts\.unused waits for its first forward"):
        alpha.capture(strict=True)(forward)(x)
    with pytest.warns(CaptureWarning, match="waits for its first forward, which the step does not do"):
        assert alpha.capture(forward)(x).shape == (2, 2)


def test_a_dry_run_lists_the_step_of_the_plain_layers() -> None:
    model, twin = lazy(), lazy()
    twin(alpha.tensor(X))
    alpha.manual_seed(8)
    run = alpha.dry_run(model, X.shape, gpu="sm_90a")
    following = alpha.core.rng.uniform((2,))
    assert all(isinstance(p, nn.UninitializedParameter) for p in model.parameters())
    assert type(model[0]) is nn.LazyConv2d
    assert run.describe() == alpha.dry_run(twin, X.shape, gpu="sm_90a").describe()
    assert {"0", "1", "5"} <= {launch.layer for launch in run.launches}
    alpha.manual_seed(8)
    np.testing.assert_array_equal(alpha.core.rng.uniform((2,)), following)


@pytest.mark.parametrize("strict", [False, True])
def test_a_dry_run_of_a_captured_step_does_not_warn(strict: bool) -> None:
    """A step that must be captured raises no error, either."""
    model = lazy()

    @alpha.capture(strict=strict)
    def step(x: alpha.Tensor) -> alpha.Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launches = alpha.dry_run(step, alpha.tensor(X), gpu="sm_90a").launches
    model(alpha.tensor(X))
    assert launches == alpha.dry_run(step, alpha.tensor(X), gpu="sm_90a").launches


@pytest.mark.slow
@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_trainer_of_a_lazy_model(where: str) -> None:
    generator = np.random.default_rng(1)
    labels = (np.arange(24) % 2).astype(np.int32)
    images = generator.integers(0, 128, (24, 4, 4, 3), np.uint8) + (labels * 128).astype(np.uint8)[:, None, None, None]
    loader = DataLoader(ArrayDataset(images, labels, ("dark", "light")), 4)
    alpha.manual_seed(2)
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(2)).to(where)
    subject = Trainer(model, alpha.optim.Adam(model.parameters(), lr=0.02), where, precision="tf32", capture=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = subject.train_epoch(loader), subject.train_epoch(loader)
    assert type(model[1]) is nn.Linear
    assert second.loss < first.loss
    state = subject.state_dict()
    again = nn.Sequential(nn.Flatten(), nn.LazyLinear(2)).to(where)
    resumed = Trainer(again, alpha.optim.Adam(again.parameters(), lr=0.02), where, precision="tf32", capture=True)
    resumed.load_state_dict(state)
    assert resumed.train_epoch(loader).loss == subject.train_epoch(loader).loss
    other = nn.Sequential(nn.Flatten(), nn.LazyLinear(2)).to(where)
    third = Trainer(other, alpha.optim.SGD(other.parameters(), lr=0.02), where, precision="tf32")
    with pytest.raises(CheckpointError, match="SGD: the state is that of Adam"):
        third.load_state_dict(state)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
