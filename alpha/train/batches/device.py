"""Batches of a data set that lies on the device, and the loss and the hits of a batch, counted there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.versions import array_of
from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.errors import ShapeError
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, as_dtype, as_float32, require_same_float, vector_width
from alpha.runtime.recording import StepValue

PIXELS, PLACES = np.dtype(np.uint8), np.dtype(np.int32)
LABELS = tuple(np.dtype(kind) for kind in (np.int32, np.int64, np.uint8))
SCALE, SHIFT = 2.0 / 255.0, -1.0  # of pixels 0..255, which become -1..1
COUNTED = 8  # numbers of a `Counted`
IGNORED = -100  # of cross_entropy: rows without a label


class Counted(NamedTuple):
    """Sums over the batches so far; the first one whose loss was not finite, from 1, or 0; and that loss.

    If a label of that batch was outside [0, C), and is not that of a row to ignore, it and C; else 0 and 0.
    """

    loss: float
    hits: int
    images: int
    steps: int
    bad_step: int
    bad_loss: float
    bad_label: int = 0
    classes: int = 0


@primitive
def take_pixels(X: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    """Y_i = X_(order_(begin + i)) SCALE + SHIFT   X (M, ...) uint8, order (M,) int32 -> Y (count, ...) float32"""


@primitive
def take_labels(labels: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    """Y_i = labels_(order_(begin + i))   labels (M,) of integers, order (M,) int32 -> Y (count,) of the same dtype"""


@primitive
def count_batch(sums: Array, loss: Array, logits: Array, labels: Array) -> None:
    """sums += (loss N, hits, N, 1), and what `Counted` says of the first step whose loss is not finite, in place

    sums (8,) float64, loss () the mean of the batch, logits (N, C), labels (N,) of int32, int64 or uint8. A row of
    logits whose first maximum is at its label is a hit.
    """


@take_pixels.impl("cpu")
def _(X: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    rows = order[begin.now() : begin.now() + count]
    return X[rows].astype(FLOAT32) * np.float32(SCALE) + np.float32(SHIFT)


@take_labels.impl("cpu")
def _(labels: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    rows = order[begin.now() : begin.now() + count]
    return labels[rows]


@count_batch.impl("cpu")
def _(sums: Array, loss: Array, logits: Array, labels: Array) -> None:
    value, N = float(loss.reshape(())), len(labels)
    sums[0] += value * N
    sums[1] += int((as_float32(logits).argmax(axis=1) == labels).sum())
    sums[2] += N
    sums[3] += 1
    if not np.isfinite(value) and sums[4] == 0:
        wrong = labels[((labels < 0) | (labels >= logits.shape[1])) & (labels != IGNORED)]
        sums[4:] = sums[3], value, *((wrong[0], logits.shape[1]) if len(wrong) else (0, 0))


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
            {"VECTOR": vector, "LABEL": "int"},
        )
    return Y


@take_labels.impl("cuda")
def _(labels: Array, order: Array, begin: StepValue[int], count: int) -> Array:
    Y = labels.device.empty((count,), labels.dtype)
    if count:
        labels.device.launch(
            "batch/take.cu",
            "take_labels",
            -(-count // BLOCK),
            BLOCK,
            (Y, labels, order, *labels.device.step_value(begin, np.int64), count),
            {"VECTOR": 1, "LABEL": CUDA_TYPES[labels.dtype]},
        )
    return Y


@count_batch.impl("cuda")
def _(sums: Array, loss: Array, logits: Array, labels: Array) -> None:
    require_same_float("count_batch", logits)
    sums.device.launch(
        "batch/count.cu",
        "count_batch",
        1,
        1024,
        (sums, as_dtype(loss, FLOAT32), logits, labels, *logits.shape),
        {"TYPE": CUDA_TYPES[logits.dtype], "LABEL": CUDA_TYPES[labels.dtype]},
    )


def take_batch(
    images: Tensor, labels: Tensor, order: Tensor, begin: StepValue[int], count: int
) -> tuple[Tensor, Tensor]:
    """The pixels in [-1, 1] and the labels of the images order[begin : begin + count]

    Args:
        images: (M, H, W, C) of uint8.
        labels: (M,) of int32, int64 or uint8.
        order: (M,) of int32, a permutation.
        begin: the first of the batch; in a captured step it may be another one at each replay.

    Returns:
        (count, H, W, C) of float32 and (count,) of the dtype of labels.

    Raises:
        ShapeError: the shapes do not fit, or `count` is more than there are.
        TypeError: one of them has another dtype.
    """
    for name, x, known in (("images", images, (PIXELS,)), ("labels", labels, LABELS), ("order", order, (PLACES,))):
        if x.dtype not in known:
            raise TypeError(f"take_batch: {name} have dtype {x.dtype.name}, not {' or '.join(t.name for t in known)}")
    if not images.shape[:1] == labels.shape == order.shape or not 0 <= count <= len(order):
        raise ShapeError(
            f"take_batch: images {images.shape}, labels {labels.shape} and order {order.shape} of one length are "
            f"needed, and no more than that  (count {count})"
        )
    arrays = order.array, begin, count
    return Tensor(take_pixels(array_of(images), *arrays)), Tensor(take_labels(array_of(labels), *arrays))


def count(sums: Tensor, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
    """Add a batch to `sums` (8,) of float64 in place, on the device; `Counted` names its numbers."""
    if sums.shape != (COUNTED,) or logits.ndim != 2 or labels.shape != logits.shape[:1] or loss.size != 1:
        raise ShapeError(
            f"count: sums ({COUNTED},), loss (), logits (N, C) and labels (N,) are needed  "
            f"(sums {sums.shape}, loss {loss.shape}, logits {logits.shape}, labels {labels.shape})"
        )
    count_batch(sums.array, loss.array, logits.array, labels.array)


def counted(values: Any) -> Counted:
    """The numbers of `sums`, once they are on the host."""
    loss, hits, images, steps, bad_step, bad_loss, bad_label, classes = values
    bad = int(bad_step), float(bad_loss), int(bad_label), int(classes)
    return Counted(float(loss), int(hits), int(images), int(steps), *bad)
