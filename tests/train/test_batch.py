"""Batches taken from a data set on the device, and what is counted of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha.errors import ShapeError
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.host_copies import Conveyor
from alpha.runtime.recording import StepValue
from alpha.train.batches.device import COUNTED, Counted, count, counted, take_batch


def put(values: Any, device: str) -> alpha.Tensor:
    return alpha.tensor(values, device=device)


def test_a_batch_is_what_normalize_pixels_makes_of_these_images(device: str, rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (9, 5, 3, 3), np.uint8)
    labels, order = rng.integers(0, 4, 9).astype(np.int32), rng.permutation(9).astype(np.int32)
    held = put(images, device), put(labels, device), put(order, device)
    for begin, length in ((0, 4), (4, 5), (2, 0)):
        pixels, found = take_batch(*held, StepValue.fixed(begin), length)
        rows = order[begin : begin + length]
        assert (pixels.shape, pixels.dtype, found.dtype) == ((length, 5, 3, 3), np.float32, np.int32)
        np.testing.assert_array_equal(pixels.numpy(), F.normalize_pixels(put(images[rows], device)).numpy())
        np.testing.assert_array_equal(found.numpy(), labels[rows])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_labels_of_each_dtype(device: str, dtype: Any) -> None:
    """numpy's own integers are int64, and MNIST's labels are bytes."""
    images = put(np.zeros((6, 2, 2, 1), np.uint8), device)
    labels, order = put(np.arange(6, dtype=dtype)[::-1].copy(), device), put(np.arange(6, dtype=np.int32), device)
    _, found = take_batch(images, labels, order, StepValue.fixed(1), 4)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.numpy(), [4, 3, 2, 1])


def test_another_dtype_is_refused(device: str) -> None:
    images, labels = put(np.zeros((4, 2, 2, 1), np.uint8), device), put(np.zeros(4, np.int32), device)
    with pytest.raises(TypeError, match="take_batch: order has dtype int64, not int32"):
        take_batch(images, labels, labels.long(), StepValue.fixed(0), 2)


def test_what_does_not_fit_is_refused(device: str) -> None:
    images, labels = put(np.zeros((4, 2, 2, 1), np.uint8), device), put(np.zeros(4, np.int32), device)
    with pytest.raises(ShapeError, match="take_batch: inputs"):
        take_batch(images, put(np.zeros(3, np.int32), device), labels, StepValue.fixed(0), 2)
    with pytest.raises(ShapeError, match=r"an order \(3,\) of at least as many as are taken  \(count 4\)"):
        take_batch(images, labels, put(np.zeros(3, np.int32), device), StepValue.fixed(0), 4)
    with pytest.raises(ShapeError, match=r"\(count 5\)"):
        take_batch(images, labels, labels, StepValue.fixed(0), 5)
    with pytest.raises(ShapeError, match="count: sums"):
        count(put(np.zeros(3), device), put(1.0, device), put(np.zeros((4, 2), np.float32), device), labels, 4)


def test_a_loss_of_another_dtype_or_of_one_element(device: str) -> None:
    sums, logits = put(np.zeros(COUNTED), device), put(np.array([[0, 1.0]], np.float32), device)
    for loss in (put([2.0], device), put(2.0, device).astype("bfloat16")):
        count(sums, loss, logits, put(np.ones(1, np.int32), device), 1)
    assert counted(sums.numpy()) == (4.0, 2, 2, 2, 0, 0.0, 0, 0, 2)


@pytest.mark.parametrize("classes", [2, 16, 33, 100, 1000])
def test_sums_over_batches(device: str, rng: np.random.Generator, classes: int) -> None:
    """Hits are those of numpy's argmax, ties and NaN as there; the first loss that is not finite is kept.

    Rows whose label is no class do not count; here the loss has ignored them in the steps before that one.
    """
    sums = put(np.zeros(COUNTED), device)
    expected, rated = np.zeros(4), 0
    losses = (0.5, 2.25, float("inf"), 1.0, float("nan"))
    for number, loss in enumerate(losses):
        logits = rng.integers(-2, 3, (37, classes)).astype(np.float32)
        logits[3, 1], logits[4] = np.nan, -np.inf
        labels = rng.integers(0, classes, 37).astype(np.int32)
        labels[:20] = logits[:20].argmax(axis=1)
        if number < 2:
            labels[5:20:4] = rng.choice([-100, -1, classes, 255 + classes, 2**31 - 1, -(2**31)], 4)
        rated += int(((labels >= 0) & (labels < classes)).sum())
        count(sums, put(np.float32(loss), device), put(logits, device), put(labels, device), 37)
        expected += loss * 37, (logits.argmax(axis=1) == labels).sum(), 37, 1
        found = counted(sums.numpy())
        assert found[1:4] == tuple(expected[1:4].astype(int))
        assert found.rated == rated
        assert found.loss == expected[0] or np.isnan(found.loss)
        assert found[4:8] == ((3, float("inf"), 0, 0) if number >= 2 else (0, 0.0, 0, 0))
    assert isinstance(found, Counted)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_the_first_label_out_of_range_of_the_first_bad_loss(device: str, dtype: Any) -> None:
    sums, logits = put(np.zeros(COUNTED), device), put(np.zeros((5, 3), np.float32), device)
    ignored = -100 if dtype != np.uint8 else 2
    steps = [
        (1.0, [0, 1, 9, 2, 0], (0, 0.0, 0, 0)),  # a loss that takes such labels
        (float("inf"), [0, 1, ignored, 2, 0], (2, float("inf"), 0, 0)),
        (float("inf"), [0, 1, 7, 2, 8], (2, float("inf"), 0, 0)),
    ]
    for loss, labels, bad in steps:
        count(sums, put(np.float32(loss), device), logits, put(np.array(labels, dtype), device), 5)
        assert counted(sums.numpy())[4:8] == bad
    for wrong in (3, 255) if dtype == np.uint8 else (3, -1, -101, 2**31 - 1):
        sums = put(np.zeros(COUNTED), device)
        labels = put(np.array([0, ignored, wrong, 77, 0], dtype), device)
        count(sums, put(np.float32(np.inf), device), logits, labels, 5)
        assert counted(sums.numpy())[4:8] == (1, float("inf"), wrong, 3)


def test_a_conveyor_brings_each_batch_whole(rng: np.random.Generator) -> None:
    device = alpha.get_device("cuda")
    assert isinstance(device, CudaDevice)
    conveyor = Conveyor(device, ((4, 3), (4,)), (np.float32, np.int32))
    for length in (4, 4, 2, 4, 0, 3):
        images, labels = rng.random((length, 3), np.float32), rng.integers(0, 9, length).astype(np.int32)
        given = images.copy()
        found = conveyor.put(given, labels)
        given[...] = 0  # it may be overwritten at once
        conveyor.wait()
        np.testing.assert_array_equal(device.download(found[0]), images)
        np.testing.assert_array_equal(device.download(found[1]), labels)
        conveyor.taken()
    with pytest.raises(ShapeError, match="put: float32"):
        conveyor.put(np.zeros((5, 3), np.float32), np.zeros(5, np.int32))


def test_a_conveyor_waits_for_what_must_come_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy for the steps that read its array before; a step, a new copy and the end for the copies."""
    device: Any = alpha.get_device("cuda")
    log: list[tuple[str, int]] = []
    events = itertools.count()

    def begin_upload(address: int, source: Any, after: int, target: Any) -> int:
        log.append(("copy", after))
        return next(events)

    monkeypatch.setattr(device.driver, "record_event", lambda: next(events))
    monkeypatch.setattr(device.driver, "begin_upload", begin_upload)
    monkeypatch.setattr(device.driver, "wait_for", lambda event: log.append(("step", event)))
    monkeypatch.setattr(device.driver, "wait_until", lambda event: log.append(("host", event)))
    conveyor = Conveyor(device, ((4,),), (np.float32,))  # event 0
    for _ in range(3):
        conveyor.put(np.zeros(4, np.float32))  # 1, 3 and 5
        conveyor.wait()
        conveyor.taken()  # 2, 4 and 6
    conveyor.close()
    first, second, third = [("copy", 0), ("step", 1)], [("copy", 0), ("step", 3)], [("copy", 2), ("step", 5)]
    assert log == [*first, *second, ("host", 1), *third, ("host", 5), ("host", 3)]


def test_values_come_back_without_a_wait(device: str) -> None:
    target = alpha.get_device(device)
    array = target.upload(np.arange(3.0))
    back = target.readback(array)
    assert back.latest() is None
    back.request()
    target.synchronize()
    found = back.latest()
    assert found is not None
    target.fill(array, 7.0)
    np.testing.assert_array_equal(found, [0, 1, 2])
    back.request()
    back.forget()
    target.synchronize()
    assert back.latest() is None
    back.request()
    target.synchronize()
    np.testing.assert_array_equal(back.latest(), [7, 7, 7])


def test_a_batch_without_labels_counts_its_loss_alone(device: str) -> None:
    sums = put(np.arange(9.0), device)
    count(sums, put(np.float32(2.5), device), put(np.zeros((7, 2), np.float32), device), None, 7, first=False)
    assert sums.tolist() == [17.5, 1, 9, 3, 4, 5, 6, 7, 8]
