"""cifar10_speedrun.py: what its parts do, and that its captured steps go on from run to run."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.data import ArrayDataset, Source, resolve

EXAMPLES = Path(__file__).parents[2] / "examples"
Data = tuple[ArrayDataset, ArrayDataset]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("cifar10_speedrun")


def part(train: int, test: int) -> Data:
    """The first images of the sample."""
    sizes, sets = (train, test), resolve("sample", has_gpu=False).load()
    first, second = [
        ArrayDataset(whole.images[:size], whole.labels[:size], whole.classes)
        for whole, size in zip(sets, sizes, strict=True)
    ]
    return first, second


@pytest.mark.slow
def test_it_learns_and_says_how_well(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images, _ = part(100, 1)
    monkeypatch.setattr(Source, "load", lambda _: (images, images))  # so few that it must know them
    options = ["--device", "cpu", "--data", "sample", "--width", "0.125", "--batch-size", "10", "--epochs", "4"]
    assert script.main([*options, "--runs", "2", "--seed", "3"]) == 0
    runs = re.findall(r"seed (\d): (\d+\.\d\d)% in \d+\.\d{3} s", capsys.readouterr().out)
    assert [seed for seed, _ in runs] == ["3", "4"]
    assert all(float(accuracy) > 22 for _, accuracy in runs), runs
    assert script.main(["--device", "cpu", "--data", "nowhere"]) == 2


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights(script: Any) -> None:
    runs = script.Speedrun(script.Recipe((4, 8, 8), 3, 1, 10, cutout=4), part(40, 10), "cpu", "float32")

    def weights(seed: int) -> list[np.ndarray]:
        runs.run(seed)
        return [p.numpy() for p in runs.net.parameters()]

    first, other, again = weights(0), weights(1), weights(0)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any((a != b).any() for a, b in zip(first, other, strict=True))


def test_the_first_layer_whitens(script: Any) -> None:
    runs = script.Speedrun(script.Recipe((4, 8, 8)), part(300, 1), "cpu", "float32")
    images = runs.normalized(runs.images)
    assert abs(images.numpy().mean()) < 0.1
    assert abs(images.numpy().std() - 1) < 0.1
    rounded = images.astype(alpha.bfloat16).float()
    np.testing.assert_array_equal(rounded.numpy(), images.numpy())
    layer = runs.net.whiten
    runs.net.whiten_patches_of(images)
    y = (layer(images) - layer.bias).numpy().reshape(-1, 24)
    np.testing.assert_allclose(y[:, 12:], -y[:, :12], atol=1e-4)
    covariance = y[:, :12].T @ y[:, :12] / len(y)
    # eigenvalue / (eigenvalue + eps) on the diagonal
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 1e-3
    assert np.diag(covariance).max() < 1
    assert np.diag(covariance).min() > 1 / 3
    runs.net.whiten_patches_of(images, eps=0.0)
    y = (layer(images) - layer.bias).numpy().reshape(-1, 24)[:, :12]
    np.testing.assert_allclose(y.T @ y / len(y), np.eye(12), atol=2e-3)


def test_filters_begin_by_handing_on_their_input(script: Any) -> None:
    net = script.SpeedNet(script.Recipe((8, 16, 16)))
    net.reset()
    for w in net.filters:
        handed = w.numpy()[: w.shape[3], 1, 1]
        np.testing.assert_array_equal(handed, np.eye(*handed.shape))
        assert np.abs(w.numpy()[: w.shape[3]]).sum() == len(handed)
    assert net.head.weight.numpy().std(ddof=1) == pytest.approx(1, rel=1e-5)
    assert [p.requires_grad for p in net.parameters()].count(False) == 7  # the first layer, and weights of six norms


def test_every_other_epoch_is_mirrored(script: Any) -> None:
    recipe = script.Recipe((4, 8, 8), epochs=3, translate=0)
    runs = script.Speedrun(recipe, part(6, 1), "cpu", "float32")
    runs.labels = alpha.arange(6)
    first, second, third = [x[y.argsort()].numpy() for x, y in runs.epochs(runs.labels)]
    np.testing.assert_array_equal(first, second[:, :, ::-1])
    np.testing.assert_array_equal(first, third)
    plain = runs.normalized(runs.images).numpy()
    mirrored = [(a == b[:, ::-1]).all() and (a != b).any() for a, b in zip(first, plain, strict=True)]
    assert all(m or (a == b).all() for m, a, b in zip(mirrored, first, plain, strict=True))


@pytest.mark.slow
def test_captured_steps_give_the_same_bits_and_go_on_from_run_to_run(script: Any) -> None:
    try:
        alpha.get_device("cuda")
    except alpha.AlphaError as error:
        pytest.skip(str(error))
    recipe = script.Recipe((2, 2, 2), epochs=2, batch=1, bias_epochs=1)

    def weights(runs: Any) -> list[np.ndarray]:
        alpha.manual_seed(0)
        runs.net.reset()
        for optimizer in runs.optimizers:
            optimizer.reset()
        runs.train(runs.labels)
        return [p.numpy() for p in runs.net.parameters()]

    runs = script.Speedrun(recipe, part(4, 1), "cuda", "float32")
    first, graphs = weights(runs), runs.captured_step.graphs
    assert len(graphs) == 2, runs.captured_step.describe()  # with and without the gradient of the first layer's bias
    second = weights(runs)
    assert {*map(id, runs.captured_step.graphs)} == {*map(id, graphs)}
    runs.captured_step = runs.step
    for a, b, c in zip(first, second, weights(runs), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
