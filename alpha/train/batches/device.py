"""Batches of a data set that lies on the device, and the loss and the hits of a batch, counted there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.versions import array_of
from alpha.core.numerics import FLOAT32, is_floating
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.casts import (
    BLOCK,
    CUDA_TYPES,
    as_dtype,
    as_float32,
    require_same_float,
    storage_type,
    vector_width,
)
from alpha.runtime.recording import StepValue

PIXELS, PLACES = np.dtype(np.uint8), np.dtype(np.int32)
LABELS = tuple(np.dtype(kind) for kind in (np.int32, np.int64, np.uint8))
SCALE, SHIFT = 2.0 / 255.0, -1.0  # of pixels 0..255, which become -1..1
COUNTED = 9  # numbers of a `Counted`
IGNORED = -100  # of cross_entropy: rows without a label


class Counted(NamedTuple):
    """Sums over the batches so far; the first step whose loss was not finite, from 1, or 0; and that loss.

    If a label of that step was outside [0, C), and is not that of a row to ignore, it and C; else 0 and 0. `rated` are
    the rows of outputs whose label is a class, of which `hits` are right: a loss has ignored the others.
    """

    loss: float
    hits: int
    images: int
    steps: int
    bad_step: int
    bad_loss: float
    bad_label: int = 0
    classes: int = 0
    rated: int = 0


@primitive
def take_pixels(X: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    """Y_i = X_(order_(begin + i)) SCALE + SHIFT   X (M, ...) uint8, order (M,) int32 -> Y (count, ...) float32"""


@primitive
def take_entries(X: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    """Y_i = X_(order_(begin + i))   X (M, ...), order (M,) int32 -> Y (count, ...) of the same dtype"""


@primitive
def count_batch(
    sums: Array, loss: Array, logits: Array | None, labels: Array | None, samples: int, first: bool
) -> None:
    """sums += (loss samples, hits, samples, first, ..), and what `Counted` says of a loss that is not finite, in place

    sums (9,) float64, loss () the mean of the batch, logits (R, C), labels (R,) of int32, int64 or uint8, or None for
    a batch without labels. A row of logits whose first maximum is at its label is a hit. `first` says that a new step
    begins.
    """


@take_pixels.impl("cpu")
def _(X: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    rows = order[begin.now() : begin.now() + count]
    return X[rows].astype(FLOAT32) * np.float32(SCALE) + np.float32(SHIFT)


@take_entries.impl("cpu")
def _(X: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    return X[order[begin.now() : begin.now() + count]]


@count_batch.impl("cpu")
def _(sums: Array, loss: Array, logits: Array | None, labels: Array | None, samples: int, first: bool) -> None:
    value = float(loss.reshape(()))
    sums[0] += value * samples
    sums[2] += samples
    sums[3] += first
    wrong: list[Any] = []
    if logits is not None and labels is not None:
        classes = logits.shape[1]
        rated = (labels >= 0) & (labels < classes)
        sums[1] += int(((as_float32(logits).argmax(axis=1) == labels) & rated).sum())
        sums[8] += int(rated.sum())
        wrong = [(label, classes) for label in labels[~rated & (labels != IGNORED)][:1]]
    if not np.isfinite(value) and sums[4] == 0:
        sums[4:8] = sums[3], value, *(wrong[0] if wrong else (0, 0))


@take_pixels.impl("cuda")
def _(X: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    Y = X.device.empty((count, *X.shape[1:]), FLOAT32)
    size = X.size // X.shape[0]
    vector = min(4, vector_width(X, Y, along=size))
    if Y.size:
        X.device.launch(
            "batch/take.cu",
            "take_pixels",
            (-(-size // (vector * BLOCK)), count),
            BLOCK,
            (Y, X, order, *X.device.step_value(begin, np.int64), np.int64(size), SCALE, SHIFT),
            {"VECTOR": vector, "ROW": "int"},
            read=count * (size * X.dtype.itemsize + order.dtype.itemsize),
        )
    return Y


@take_entries.impl("cuda")
def _(X: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    Y = X.device.empty((count, *X.shape[1:]), X.dtype)
    if Y.size:
        X.device.launch(
            "batch/take.cu",
            "take_entries",
            -(-Y.size // BLOCK),
            BLOCK,
            (Y, X, order, *X.device.step_value(begin, np.int64), np.int64(Y.size // count), np.int64(Y.size)),
            {"VECTOR": 1, "ROW": storage_type(X.dtype)},
            read=Y.nbytes + count * order.dtype.itemsize,
        )
    return Y


@count_batch.impl("cuda")
def _(sums: Array, loss: Array, logits: Array | None, labels: Array | None, samples: int, first: bool) -> None:
    R, C, kind, label = 0, 0, FLOAT32, PLACES  # without labels there are no rows
    if logits is not None and labels is not None:
        require_same_float("count_batch", logits)
        (R, C), kind, label = logits.shape, logits.dtype, labels.dtype
    sums.device.launch(
        "batch/count.cu",
        "count_batch",
        1,
        1024,
        (sums, as_dtype(loss, FLOAT32), logits, labels, R, C, np.int64(samples), int(first)),
        {"TYPE": CUDA_TYPES[kind], "LABEL": CUDA_TYPES[label], "LANES": _lanes_of_a_row(C)},
    )


def _lanes_of_a_row(columns: int) -> int:
    """Number of threads of `count_batch` that share a row: a power of two, with eight columns or so for each."""
    return min(32, 1 << (max(columns - 1, 0) // 8).bit_length())


def take_batch(
    inputs: Tensor, targets: Tensor, order: Tensor, begin: StepValue[int], count: int
) -> tuple[Tensor, Tensor]:
    """The rows order[begin : begin + count] of inputs and targets; images of uint8 as pixels in [-1, 1]

    Args:
        inputs: (M, ...); those of uint8 with four axes are images.
        targets: (M, ...).
        order: (K,) of int32, rows that are there.
        begin: the first of the batch; in a captured step it may be another one at each replay.

    Returns:
        (count, ...) and (count, ...), of the dtypes of inputs and targets; pixels are float32.

    Raises:
        ShapeError: the shapes do not fit, or `count` is more than K.
        TypeError: order has another dtype.
    """
    if order.dtype != PLACES:
        raise TypeError(f"take_batch: order has dtype {order.dtype.name}, not int32")
    if inputs.shape[:1] != targets.shape[:1] or order.ndim != 1 or not 0 <= count <= len(order):
        raise ShapeError(
            f"take_batch: inputs {inputs.shape} and targets {targets.shape} of one length are needed, and an order "
            f"{order.shape} of at least as many as are taken  (count {count})"
        )
    arrays = order.array, begin, count
    take = take_pixels if is_image(inputs) else take_entries
    return Tensor(take(array_of(inputs), *arrays)), Tensor(take_entries(array_of(targets), *arrays))


def is_image(x: Any) -> bool:
    """True for a tensor or an array of images, (N, H, W, C) of uint8."""
    return bool(x.ndim == 4 and x.dtype == PIXELS)


def count(sums: Tensor, loss: Tensor, outputs: Any, targets: Any, samples: int, first: bool = True) -> None:
    """Add a batch to `sums` (9,) of float64 in place, on the device; `Counted` names its numbers.

    Args:
        loss: () or of one element, the mean over the samples.
        outputs, targets: logits (N, .., C) and labels (N, ..) of integers, whose hits are counted; anything else has
            no hits.
        samples: in the batch.
        first: whether this is the first part of a step.
    """
    if sums.shape != (COUNTED,) or loss.size != 1:
        raise ShapeError(f"count: sums ({COUNTED},) and a loss () are needed  (sums {sums.shape}, loss {loss.shape})")
    if not are_classes(outputs, targets):
        count_batch(sums.array, loss.array, None, None, samples, first)
    elif outputs.ndim == 2:
        count_batch(sums.array, loss.array, outputs.array, targets.array, samples, first)
    else:
        count_batch(sums.array, loss.array, None, None, samples, first)
        _count_rows(sums, outputs.detach(), targets)


def are_classes(outputs: Any, targets: Any) -> bool:
    """True for logits (N, .., C) of two classes or more and labels (N, ..) of integers."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return False
    return bool(
        targets.dtype in LABELS
        and is_floating(outputs.dtype)
        and outputs.ndim >= 2
        and outputs.shape[:-1] == targets.shape
        and outputs.shape[-1] >= 2
    )


def are_rated(labels: Tensor, classes: int) -> Tensor:
    """Say of each label if it is a class; a loss that is finite has ignored the others   labels (..) -> (..) bool"""
    return (labels >= 0) & (labels < classes)


def _count_rows(sums: Tensor, logits: Tensor, labels: Tensor) -> None:
    """Add the hits and the rows of dense predictions (N, H, W, C), by operators that share them out over the GPU."""
    with no_grad():
        rated = are_rated(labels, logits.shape[-1])
        hits = (logits.argmax(-1) == labels) & rated
        sums[1:2] += hits.sum().double()
        sums[8:9] += rated.sum().double()


def counted(values: Any) -> Counted:
    """The numbers of `sums`, once they are on the host."""
    loss, hits, images, steps, bad_step, bad_loss, bad_label, classes, rated = values
    bad = int(bad_step), float(bad_loss), int(bad_label), int(classes)
    return Counted(float(loss), int(hits), int(images), int(steps), *bad, int(rated))
