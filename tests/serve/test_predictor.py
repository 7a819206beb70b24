"""Predictors that many threads ask at once, on both devices."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import DeviceError, ServingError, ShapeError
from alpha.models.saved import Description
from alpha.serve import Batcher, Predictor


class Gate:
    """A function of batches that waits until it is opened; it notes the sizes of the batches."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.batches: list[tuple[int, ...]] = []

    def __call__(self, rows: Any) -> Any:
        self.entered.set()
        assert self.opened.wait(child.HANG_S)
        self.batches.append(rows.shape)
        if (rows < 0).any():
            raise ValueError(f"{int((rows < 0).sum())} negative numbers")
        return rows * 2


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def batcher(gate: Gate) -> Iterator[Batcher]:
    made = Batcher(gate, max_batch=6, max_wait_ms=0, max_queue=5)
    yield made
    gate.opened.set()
    made.close()


def held(batcher: Batcher, gate: Gate) -> Future[Any]:
    """A request that is being computed until the gate is opened."""
    first = batcher.submit(np.zeros((1, 2)))
    assert gate.entered.wait(child.HANG_S)
    return first


def small() -> nn.Sequential:
    alpha.manual_seed(4)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(64, 5)
    )
    model(alpha.randn(8, 6, 6, 3))  # in training: the running statistics move
    return model


def requests(count: int, shape: tuple[int, ...] = (6, 6, 3)) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1 + number % 3, *shape)).astype(np.float32) for number in range(count)]


def test_two_hundred_requests_at_once(device: str) -> None:
    """None is lost, each gets its own answer, and those that arrive together are computed together."""
    model, given = small(), requests(200)
    with Predictor(model, device=device, max_batch=8) as predictor:
        ready = threading.Barrier(200)

        def ask(images: Any) -> Any:
            ready.wait(child.HANG_S)
            return predictor.predict(images)

        with ThreadPoolExecutor(200) as pool:
            found = list(pool.map(ask, given))
        done = predictor.statistics()
        assert predictor.folded == 1
    with alpha.no_grad():
        expected = model.eval()(alpha.tensor(np.concatenate(given))).numpy()
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-4, atol=1e-5)
    assert [len(rows) for rows in found] == [len(images) for images in given]
    assert (done.requests, done.images, done.failed, done.cancelled, done.waiting) == (200, 399, 0, 0, 0)
    assert done.batches < 120
    assert done.p50_ms is not None
    assert 0 < done.p50_ms <= done.p90_ms <= done.p99_ms  # type: ignore[operator]


def test_answers_are_those_of_the_network_bit_for_bit(device: str) -> None:
    """Nothing is folded here, and the batch has one of the sizes."""
    model = small()
    images = np.concatenate(requests(4, (6, 6, 3)))[:4]
    with Predictor(model, device=device, max_batch=4, fold=False) as predictor:
        found = predictor.predict(images)
        graphs = [predictor.predict(images) for _ in range(5)]
        model.train()[5].weight.data.fill_(0)  # type: ignore[operator, union-attr]
        assert (predictor.predict(images) == found).all()
        assert predictor.folded == 0
        if device == "cuda":
            assert len(predictor._step.graphs) == 1
    model = small().to(device).eval()
    with alpha.no_grad():
        expected = model(alpha.tensor(images, device=device)).numpy()
    for values in (found, *graphs):
        np.testing.assert_array_equal(values, expected)


def test_the_gpu_is_lent_as_long_as_a_predictor_is_open() -> None:
    model = small().to("cuda")
    x = requests(1)[0]
    with Predictor(model, device="cuda", max_batch=2) as first, ThreadPoolExecutor(1) as pool:
        second: Any = pool.submit(lambda: Predictor(model, device="cuda", max_batch=2)).result()
        assert (first.predict(x) == second.predict(x)).all()
        with pytest.raises(DeviceError, match=r"the cuda device is lent, and thread 'MainThread' has no turn"):
            alpha.tensor(x, device="cuda")
        with alpha.cuda.turn():
            own = model.eval()(alpha.tensor(x, device="cuda"))
            with pytest.raises(DeviceError, match=r"predict: called within `alpha\.cuda\.turn"):
                first.predict(x)
            later = first.submit(x)
            values = own.numpy()
        np.testing.assert_allclose(later.result(child.HANG_S), values, rtol=1e-4, atol=1e-5)
        second.close()
        assert (first.predict(x) == later.result()).all()
    del own
    gc.collect()
    np.testing.assert_array_equal(alpha.tensor(x, device="cuda").numpy(), x)


def test_requests_larger_than_a_batch_are_computed_in_parts(gate: Gate) -> None:
    gate.opened.set()
    with Batcher(gate, max_batch=5, max_wait_ms=0) as batcher:
        assert batcher.sizes == (1, 2, 4, 5)
        rows = np.arange(26.0).reshape(13, 2)
        assert batcher.predict(rows).tolist() == (2 * rows).tolist()
    assert gate.batches == [(5, 2), (5, 2), (4, 2)]  # the last one has 3 rows, and one of zeros
    with Batcher(lambda rows: {"a": rows, "b": (rows + 1,)}, max_batch=2) as batcher:
        found = batcher.predict(rows)
    assert found["a"].tolist() == rows.tolist()
    assert found["b"][0].tolist() == (rows + 1).tolist()


def test_shapes_and_dtypes_are_not_mixed(batcher: Batcher, gate: Gate) -> None:
    first = held(batcher, gate)
    given = [np.ones((2, 2)), np.ones((2, 3)), np.ones((1, 2)), np.ones((1, 2), np.float32)]
    answers = [batcher.submit(rows) for rows in given]
    gate.opened.set()
    for rows, answer in zip(given, answers, strict=True):
        assert answer.result(child.HANG_S).dtype == rows.dtype
        assert answer.result().tolist() == (2 * rows).tolist()
    assert first.result().tolist() == [[0, 0]]
    assert gate.batches == [(1, 2), (4, 2), (2, 3), (1, 2)]


def test_an_error_reaches_its_own_caller_alone(batcher: Batcher, gate: Gate) -> None:
    held(batcher, gate)
    answers = [batcher.submit(np.full((1, 2), value)) for value in (1.0, -1.0, 3.0)]
    gate.opened.set()
    assert answers[0].result(child.HANG_S).tolist() == [[2, 2]]
    assert answers[2].result(child.HANG_S).tolist() == [[6, 6]]
    with pytest.raises(ValueError, match="2 negative numbers"):
        answers[1].result(child.HANG_S)
    assert batcher.predict(np.ones((1, 2))).tolist() == [[2, 2]]
    assert (batcher.statistics().failed, batcher.statistics().requests) == (1, 4)


def test_errors_of_a_network(device: str) -> None:
    with Predictor(small(), device=device, max_batch=2) as predictor:
        with pytest.raises(ShapeError, match=r"Conv2d|conv2d"):
            predictor.predict(np.zeros((1, 6, 6, 4), np.float32))
        assert predictor.predict(np.zeros((1, 6, 6, 3), np.float32)).shape == (1, 5)
        for images in (np.zeros((0, 6, 6, 3)), 3.0):
            with pytest.raises(ShapeError, match=r"Predictor: images \(n, \.\.\.\) are needed, with n of 1 or more"):
                predictor.predict(images)
    with (
        Batcher(lambda rows: rows[:1], max_batch=4) as batcher,
        pytest.raises(ShapeError, match=r"the result for 2 images has the shape \(1, 3\); it must have a row for each"),
    ):
        batcher.predict(np.zeros((2, 3)))


def test_a_full_queue_is_an_error(batcher: Batcher, gate: Gate) -> None:
    held(batcher, gate)
    answers = [batcher.submit(np.ones((1, 2))) for _ in range(5)]
    for _ in range(2):
        with pytest.raises(ServingError, match="Batcher: 5 requests are waiting, max_queue=5"):
            batcher.submit(np.ones((1, 2)))
    assert answers[1].cancel()
    answers.append(batcher.submit(np.ones((1, 2))))  # in its place
    with pytest.raises(TimeoutError):
        answers[0].result(0.01)
    gate.opened.set()
    assert [a.result(child.HANG_S).tolist() for a in answers if not a.cancelled()] == [[[2, 2]]] * 5
    done = batcher.statistics()
    assert (done.requests, done.cancelled, done.refused) == (6, 1, 2)
    assert str(done).startswith("6 requests, 6 images in 2 batches, 1 cancelled, 2 refused; latency p50 ")


def test_a_cancelled_request_loses_nothing(batcher: Batcher, gate: Gate) -> None:
    first = held(batcher, gate)
    given = [np.full((1, 2), float(number)) for number in range(4)]
    answers = [batcher.submit(rows) for rows in given]
    assert answers[0].cancel()
    assert answers[2].cancel()
    assert not first.cancel()  # it is being computed
    with pytest.raises(TimeoutError):
        batcher.predict(np.ones((1, 2)), timeout=0.01)
    gate.opened.set()
    for number in (1, 3):
        assert answers[number].result(child.HANG_S).tolist() == [[2 * number] * 2]
    assert gate.batches == [(1, 2), (2, 2)]
    assert batcher.statistics().cancelled == 3
    with pytest.raises(CancelledError):
        answers[0].result()


def test_arrays_may_be_written_after_submit(batcher: Batcher, gate: Gate) -> None:
    held(batcher, gate)
    rows = np.ones((1, 2))
    answer = batcher.submit(rows)
    rows[:] = 7
    gate.opened.set()
    assert answer.result(child.HANG_S).tolist() == [[2, 2]]


def test_the_event_loop_goes_on(gate: Gate) -> None:
    async def main() -> list[Any]:
        first = asyncio.create_task(batcher.predict_async(np.ones((1, 2))))
        while not gate.entered.is_set():
            await asyncio.sleep(0)
        later = [asyncio.create_task(batcher.predict_async(np.full((1, 2), float(n)))) for n in range(3)]
        await asyncio.sleep(0)
        later[1].cancel()
        gate.opened.set()
        return await asyncio.gather(first, *later, return_exceptions=True)

    with Batcher(gate, max_wait_ms=0) as batcher:
        first, a, b, c = asyncio.run(main())
    assert (first.tolist(), a.tolist(), c.tolist()) == ([[2, 2]], [[0, 0]], [[4, 4]])
    assert isinstance(b, asyncio.CancelledError)


@pytest.mark.parametrize("finish", [True, False])
def test_close(batcher: Batcher, gate: Gate, finish: bool) -> None:
    """A batch that is computed comes to its end, and the queue does if that is wanted."""
    answers = [held(batcher, gate), *(batcher.submit(np.ones((1, 2))) for _ in range(3))]
    closing = threading.Thread(target=batcher.close, args=(finish,))
    closing.start()
    while not batcher._closed:
        pass
    with pytest.raises(ServingError, match="Batcher: it is closed"):
        batcher.submit(np.ones((1, 2)))
    gate.opened.set()
    closing.join(child.HANG_S)
    batcher.close()
    assert not batcher._thread.is_alive()
    assert answers[0].result().tolist() == [[0, 0]]
    assert [answer.cancelled() for answer in answers[1:]] == [not finish] * 3
    assert "closed" in repr(batcher)


def test_callbacks_may_not_wait_for_their_own_thread(batcher: Batcher, gate: Gate) -> None:
    found: Future[str] = Future()

    def call(_: Any) -> None:
        try:
            batcher.predict(np.ones((1, 2)))
        except ServingError as error:
            found.set_result(str(error))

    held(batcher, gate).add_done_callback(call)
    gate.opened.set()
    assert found.result(child.HANG_S).startswith("predict: called by the thread that would compute it")


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no model": (lambda: Predictor(lambda x: x), "Predictor: a module, or the path of a run, is needed, not function"),  # type: ignore[arg-type]
    "no batch": (lambda: Predictor(small(), max_batch=0), "max_batch"),
    "no queue": (lambda: Predictor(small(), max_queue=0), "max_queue"),
    "a negative wait": (lambda: Predictor(small(), max_wait_ms=-1.0), "max_wait_ms=-1.0 is no time of 0 ms or more"),
    "no precision": (lambda: Predictor(small(), precision="half"), "precision 'half' is not one of"),
    "no run": (lambda: Predictor("/nowhere"), "/nowhere"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=message):
        call()
    alpha.tensor([1.0], device="cuda")  # nothing is lent


def test_a_run_is_taken_by_its_folder(tmp_path: Path) -> None:
    model = alpha.models.torchvision.mobilenet_v2(num_classes=3)
    description = Description("torchvision.mobilenet_v2", {"num_classes": 3}, ["a", "b", "c"], 32)
    about = {"network": json.dumps(description.as_option())}
    alpha.train.save_weights(tmp_path / "weights.safetensors", model.state_dict(), about)
    with Predictor(tmp_path, device="cpu", max_batch=2) as predictor:
        predictor.warm_up((32, 32, 3))
        assert predictor.statistics().requests == 0
        assert predictor.predict(np.zeros((1, 32, 32, 3), np.uint8)).shape == (1, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's own, of forks beside threads
def test_a_forked_child_is_refused(batcher: Batcher) -> None:
    process = os.fork()
    if process == 0:
        try:
            batcher.predict(np.ones((1, 2)))
        except ServingError as error:
            refused = "made before a fork" in str(error)
        batcher.close()
        os._exit(0 if refused else 1)
    assert os.waitpid(process, 0)[1] == 0


ENDS = """
import numpy, sys, alpha
from alpha import nn
from alpha.serve import Predictor
predictor = Predictor(nn.Linear(3, 2), device=sys.argv[1], max_batch=2)
print(predictor.predict(numpy.ones((1, 3), numpy.float32)).shape, flush=True)
later = predictor.submit(numpy.ones((1, 3), numpy.float32))
"""


@pytest.mark.slow
def test_a_program_ends_without_close(device: str) -> None:
    result = child.run([sys.executable, "-W", "error", "-c", ENDS, device])
    assert (result.returncode, result.stdout, result.stderr) == (0, "(1, 2)\n", "")
