"""Metrics of a whole data set, counted on the device batch by batch and computed at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.autograd.grad_mode import no_grad
from alpha.core.tensor import Tensor, full, tensor
from alpha.errors import ShapeError, type_name
from alpha.ops.array.creation import arange
from alpha.ops.array.joining import stack
from alpha.ops.indexing.where import where
from alpha.ops.kernel.options import integer
from alpha.runtime import Device
from alpha.train.batches.device import are_classes, are_rated
from alpha.train.objective import one_number

AVERAGES = ("macro", "weighted", "micro", "none")
FLOAT64, INT64 = np.dtype(np.float64), np.dtype(np.int64)


class Metric:
    """The base of metrics: sums over batches, which stay on the device, and a value of them.

    A subclass says in `shape` how many sums it has, and defines `counted(outputs, targets)`, which gives those of one
    batch as a tensor of this shape, and `value(sums)`, which computes the metric of the sums of all batches.
    `counted` is part of a captured step, so it reads no values. A metric belongs to one Trainer, or is used by hand:

        accuracy = TopKAccuracy(5)
        accuracy.update(outputs, targets)  # for each batch
        print(accuracy.compute())

    Attributes:
        sums: None before the first batch; of float64, so counts are whole up to 2^53.
    """

    shape: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.sums: Tensor | None = None

    def counted(self, outputs: Any, targets: Any) -> Tensor:
        """The sums of one batch, of shape `shape`, on its device; a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} needs counted(outputs, targets)")

    def value(self, sums: NDArray[np.float64]) -> Any:
        """The metric of the sums of all batches; a subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} needs value(sums)")

    def place(self, device: Device) -> None:
        """Keep the sums on a device."""
        self.sums = Tensor(device.zeros(self.shape, np.float64))

    def reset(self) -> None:
        """Forget all batches."""
        if self.sums is not None:
            with no_grad():
                self.sums.zero_()

    def update(self, outputs: Any, targets: Any) -> None:
        """Count a batch."""
        with no_grad():
            found = self.counted(outputs, targets)
            if self.sums is None:
                self.place(found.device)
            assert self.sums is not None
            self.sums.add_(found.double().reshape(self.shape))

    def sum_up(self, total: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
        """Count what all processes have counted; `total` gives the sums over them of an array."""
        own = np.zeros(self.shape, np.float64) if self.sums is None else self.sums.numpy()
        sums = total(own.reshape(-1)).reshape(self.shape)
        if self.sums is None:
            self.sums = tensor(sums)
        else:  # in place, since a captured step adds to them
            with no_grad():
                self.sums.copy_(tensor(sums, device=self.sums.device))

    def compute(self) -> Any:
        """Value of the metric over all batches since `reset`. Raises ValueError if there was none."""
        if self.sums is None:
            raise ValueError(f"{type(self).__name__}: no batch was counted")
        return self.value(self.sums.numpy())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'no batch yet' if self.sums is None else self.compute()})"

    def _check(self, outputs: Any, targets: Any) -> None:
        """Raises ShapeError unless the arguments are logits and labels."""
        if not are_classes(outputs, targets):
            shapes = " and ".join(
                f"{x.dtype.name} {x.shape}" if isinstance(x, Tensor) else type_name(x) for x in (outputs, targets)
            )
            raise ShapeError(
                f"{type(self).__name__}: logits (N, .., C) and labels (N, ..) of integers are needed  ({shapes})"
            )


class Mean(Metric):
    """The mean over all samples of a function (outputs, targets) -> mean of a batch, such as `F.l1_loss`."""

    shape = (2,)

    def __init__(self, function: Callable[[Any, Any], Tensor]) -> None:
        super().__init__()
        self.function = function

    def counted(self, outputs: Any, targets: Any) -> Tensor:
        """The function's mean times the samples of the batch, and the samples."""
        mean = one_number(self.function(outputs, targets), getattr(self.function, "__name__", "a metric"))
        samples = len(_first(outputs))
        return stack([mean.double().reshape(()) * samples, full((), samples, FLOAT64, mean.device)])

    def value(self, sums: NDArray[np.float64]) -> float:
        """The mean over all samples; NaN without any."""
        return _share(sums[0], sums[1])


class TopKAccuracy(Metric):
    """The share of labels that are among the k classes with the largest outputs; of equal ones the first count.

    Outputs (N, .., C), labels (N, ..) of integers; rows whose label is not in [0, C), as -100, do not count, nor is a
    NaN right.
    """

    shape = (2,)

    def __init__(self, k: int = 5) -> None:
        super().__init__()
        self.k = integer("TopKAccuracy", "k", k, 1)

    def counted(self, outputs: Any, targets: Any) -> Tensor:
        """Samples that are right, and samples that count."""
        self._check(outputs, targets)
        rated = are_rated(targets, outputs.shape[-1])
        label = where(rated, targets, 0).long().unsqueeze(-1)
        score = outputs.gather(-1, label)
        places = arange(outputs.shape[-1], device=outputs.device)
        before = (outputs > score) | (outputs != outputs) | ((outputs == score) & (places < label))
        hits = rated & (before.sum(-1) < self.k) & (score == score).squeeze(-1)
        return stack([hits.sum(), rated.sum()]).double()

    def value(self, sums: NDArray[np.float64]) -> float:
        """The share of the samples that are right; NaN without any."""
        return _share(sums[0], sums[1])


class ConfusionMatrix(Metric):
    """Counts (C, C): row t and column p has the samples of class t that were taken for class p.

    Outputs (N, .., C), labels (N, ..) of integers; rows whose label is not in [0, C), as -100, do not count.
    `compute()` gives int64.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = integer(type(self).__name__, "num_classes", num_classes, 2)
        self.shape = (self.num_classes**2 + 1,)  # the last one has the rows that do not count

    def counted(self, outputs: Any, targets: Any) -> Tensor:
        """Counts of each pair of a class and what it was taken for, and of the rows that do not count."""
        self._check(outputs, targets)
        C = self.num_classes
        if outputs.shape[-1] != C:
            raise ShapeError(f"{type(self).__name__}: num_classes={C}, but outputs have {outputs.shape[-1]} classes")
        labels = targets.long()
        place = where(are_rated(labels, C), labels * C + outputs.argmax(-1), C * C).reshape(-1)
        zeros = full(self.shape, 0, INT64, place.device)
        return zeros.scatter_add(0, place, full(place.shape, 1, INT64, place.device))

    def value(self, sums: NDArray[np.float64]) -> Any:
        """The counts as int64   (C, C)"""
        return sums[:-1].reshape(self.num_classes, self.num_classes).astype(np.int64)


class _OfClasses(ConfusionMatrix):
    """A number for each class, from the confusion matrix, and a mean of them; for the arguments see `Recall`."""

    def __init__(self, num_classes: int, average: str = "macro") -> None:
        super().__init__(num_classes)
        if average not in AVERAGES:
            raise ValueError(f"{type(self).__name__}: average is {average!r}, expected one of {', '.join(AVERAGES)}")
        self.average = average

    def parts(
        self, hits: NDArray[Any], labels: NDArray[Any], predictions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Numerators and denominators of the classes, from the hits, labels and predictions of each."""
        raise NotImplementedError

    def value(self, sums: NDArray[np.float64]) -> Any:
        matrix = super().value(sums)
        labels, predictions = matrix.sum(axis=1), matrix.sum(axis=0)
        above, below = self.parts(np.diag(matrix), labels, predictions)
        if self.average == "micro":
            return _share(above.sum(), below.sum())
        each = np.divide(above, below, out=np.zeros(len(matrix)), where=below > 0)
        if self.average == "none":
            return each
        weights = labels if self.average == "weighted" else (labels + predictions > 0)
        return _share((each * weights).sum(), weights.sum())


class Precision(_OfClasses):
    """Share of the predictions of a class that are right.

    Args:
        num_classes, average: see `Recall`.
    """

    def parts(
        self, hits: NDArray[Any], labels: NDArray[Any], predictions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return hits, predictions


class Recall(_OfClasses):
    """Share of the samples of a class that were found, which is the accuracy of the class.

    Args:
        num_classes: C of outputs (N, .., C).
        average: "macro", the mean over the classes that occur among labels or predictions; "weighted", by the labels
            of each class; "micro", of all classes together; "none", an array (C,). A class without the samples that
            a number needs has 0, as in scikit-learn.
    """

    def parts(
        self, hits: NDArray[Any], labels: NDArray[Any], predictions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return hits, labels


class F1Score(_OfClasses):
    """The harmonic mean of precision and recall of a class.

    Args:
        num_classes, average: see `Recall`.
    """

    def parts(
        self, hits: NDArray[Any], labels: NDArray[Any], predictions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return 2 * hits, labels + predictions


class MeanIoU(_OfClasses):
    """The intersection of labels and predictions of a class over their union, in pixels; for segmentation.

    Args:
        num_classes, average: see `Recall`.
    """

    def parts(
        self, hits: NDArray[Any], labels: NDArray[Any], predictions: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return hits, labels + predictions - hits


def as_metrics(metrics: Mapping[str, Any], device: Device) -> dict[str, Metric]:
    """Metrics by name with their sums on a device; a function becomes its mean over all samples."""
    found: dict[str, Metric] = {}
    for name, metric in metrics.items():
        if not isinstance(metric, Metric) and not callable(metric):
            raise TypeError(f"Trainer: metrics[{name!r}] is a {type_name(metric)}, expected a Metric or a function")
        found[str(name)] = metric if isinstance(metric, Metric) else Mean(metric)
        found[str(name)].place(device)
    return found


def values_of(metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Values of the metrics, arrays as lists."""
    values = {name: metric.compute() for name, metric in metrics.items()}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}


def _share(part: Any, whole: Any) -> float:
    return float(part) / float(whole) if whole else math.nan


def _first(outputs: Any) -> Tensor:
    while not isinstance(outputs, Tensor):
        outputs = next(iter(outputs.values() if isinstance(outputs, Mapping) else outputs))
    return outputs
