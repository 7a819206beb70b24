"""Metrics against their definitions in numpy, over batches, on both devices, and within a Trainer's captured steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.data import ArrayDataset, DataLoader
from alpha.errors import ShapeError
from alpha.nn import functional as F
from alpha.optim import SGD
from alpha.train import ConfusionMatrix, F1Score, Mean, MeanIoU, Metric, Precision, Recall, TopKAccuracy, Trainer

C = 5


def batches(rng: np.random.Generator, dense: bool) -> list[tuple[Any, Any]]:
    """Class 3 is never a label, class 4 is neither label nor prediction; some rows are to be ignored, some tie."""
    shape = (3, 2) if dense else ()
    found = []
    for count in (7, 4, 1):
        outputs = rng.integers(0, 4, (count, *shape, C)).astype(np.float32)
        outputs[..., 4] = -1
        labels = rng.integers(0, 3, (count, *shape))
        ignored = rng.random(labels.shape) < 0.2  # by any label that is no class, as a loss may ignore it
        labels[ignored] = rng.choice([-100, -1, 255, C, -(2**31)], ignored.sum())
        found.append((outputs, labels))
    return found


def matrix_of(found: list[tuple[Any, Any]]) -> Any:
    matrix = np.zeros((C, C), np.int64)
    for outputs, labels in found:
        kept = (labels >= 0) & (labels < C)
        np.add.at(matrix, (labels[kept], outputs.argmax(-1)[kept]), 1)
    return matrix


def update(metric: Metric, device: str, found: list[tuple[Any, Any]]) -> Any:
    metric.place(alpha.get_device(device))
    for outputs, labels in found:
        metric.update(alpha.tensor(outputs, device=device), alpha.tensor(labels, device=device))
    return metric.compute()


@pytest.mark.slow
@pytest.mark.parametrize("dense", [False, True])
def test_metrics_of_classes(device: str, rng: np.random.Generator, dense: bool) -> None:
    found = batches(rng, dense)
    matrix = matrix_of(found)
    np.testing.assert_array_equal(update(ConfusionMatrix(C), device, found), matrix)
    hits, labels, guesses = np.diag(matrix), matrix.sum(1), matrix.sum(0)
    for kind, above, below in (
        (Precision, hits, guesses),
        (Recall, hits, labels),
        (F1Score, 2 * hits, labels + guesses),
        (MeanIoU, hits, labels + guesses - hits),
    ):
        each = np.array([a / b if b else 0.0 for a, b in zip(above, below, strict=True)])
        present = labels + guesses > 0
        expected = {
            "macro": each[present].mean(),
            "weighted": (each * labels).sum() / labels.sum(),
            "micro": above.sum() / below.sum(),
        }
        np.testing.assert_allclose(update(kind(C, average="none"), device, found), each)
        for average, value in expected.items():
            assert update(kind(C, average=average), device, found) == pytest.approx(value), (kind, average)


@pytest.mark.parametrize("k", [1, 2, C])
def test_the_first_of_equal_outputs_count(device: str, rng: np.random.Generator, k: int) -> None:
    found = batches(rng, dense=False)
    found[0][0][0] = np.nan
    hits, rated = 0, 0
    for outputs, labels in found:
        for row, label in zip(outputs, labels, strict=True):
            if 0 <= label < C:
                rated += 1
                first = np.argsort(-row, kind="stable")[:k]
                hits += bool(label in first and not np.isnan(row[label]))
    assert update(TopKAccuracy(k), device, found) == hits / rated


def test_a_mean_counts_each_sample_once(device: str, rng: np.random.Generator) -> None:
    found = [(rng.random((count, 2), np.float32), rng.random((count, 2), np.float32)) for count in (5, 2)]
    both = [np.concatenate(part) for part in zip(*found, strict=True)]
    assert update(Mean(F.l1_loss), device, found) == pytest.approx(np.abs(both[0] - both[1]).mean())


def test_reset_and_use_by_hand(rng: np.random.Generator) -> None:
    metric = ConfusionMatrix(C)
    with pytest.raises(ValueError, match="ConfusionMatrix: no batch was counted"):
        metric.compute()
    metric.reset()
    outputs, labels = (alpha.tensor(part) for part in batches(rng, dense=False)[0])
    metric.update(outputs, labels)
    once = metric.compute()
    metric.reset()
    assert metric.compute().sum() == 0
    for _ in range(2):
        metric.update(outputs, labels)
    np.testing.assert_array_equal(metric.compute(), 2 * once)


@pytest.mark.slow
def test_a_trainer_computes_them_in_each_evaluation(device: str, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((21, 4)).astype(np.float32), rng.integers(0, 3, 21)
    alpha.manual_seed(0)
    model = nn.Linear(4, 3).to(device)
    metrics = {"top2": TopKAccuracy(2), "matrix": ConfusionMatrix(3), "l": lambda o, t: o.abs().mean()}
    subject = Trainer(
        model, SGD(model.parameters(), lr=0.1), device, metrics=metrics, capture=True if device != "cpu" else None
    )
    for _ in range(3):  # the third one replays a graph
        result = subject.evaluate(DataLoader(ArrayDataset(x, y), 8))
        outputs = subject.predict(DataLoader(ArrayDataset(x, y), 8))
        assert result.metrics["matrix"] == matrix_of_three(outputs, y).tolist()
        best = np.argsort(-outputs, axis=1, kind="stable")[:, :2]
        assert result.metrics["top2"] == (best == y[:, None]).any(1).mean()
        assert result.metrics["l"] == pytest.approx(np.abs(outputs).mean(), rel=1e-5)
        assert result.accuracy == (outputs.argmax(1) == y).mean()


def matrix_of_three(outputs: Any, labels: Any) -> Any:
    matrix = np.zeros((3, 3), np.int64)
    np.add.at(matrix, (labels, outputs.argmax(1)), 1)
    return matrix


def test_what_does_not_fit_is_refused() -> None:
    outputs, labels = alpha.zeros(4, 3), alpha.zeros(4, 1, dtype="int64")
    for metric in (TopKAccuracy(2), ConfusionMatrix(3), F1Score(3)):
        with pytest.raises(ShapeError, match=f"{type(metric).__name__}: logits .* are needed"):
            metric.update(outputs, labels)
    with pytest.raises(ShapeError, match="num_classes=4, but outputs have 3 classes"):
        ConfusionMatrix(4).update(outputs, labels[:, 0])
    with pytest.raises(ValueError, match="F1Score: average is 'all'"):
        F1Score(3, average="all")
    with pytest.raises(ValueError, match="TopKAccuracy"):
        TopKAccuracy(0)
    model = nn.Linear(3, 2)
    with pytest.raises(TypeError, match=r"metrics\['a'\] is a int, expected a Metric or a function"):
        Trainer(model, SGD(model.parameters(), lr=0.1), "cpu", metrics={"a": 1})  # type: ignore[dict-item]
