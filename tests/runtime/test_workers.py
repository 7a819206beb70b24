"""Workers of the cpu operators: what is computed depends neither on their number nor on who else computes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import child
import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.core.primitive import REGISTRY
from alpha.nn import functional as F
from alpha.ops.pooling.pool_shape import PoolShape
from alpha.optim import Adam
from alpha.runtime import blas, workers

COUNTS = (1, 2, 3, 7)
Bits = dict[str, bytes]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.fixture
def with_workers(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], Bits]], Bits]:
    def run(count: int, compute: Callable[[], Bits]) -> Bits:
        monkeypatch.setenv("ALPHA_CPU_THREADS", str(count))
        return compute()

    return run


@pytest.fixture
def blas_threads() -> Iterator[None]:
    """BLAS takes three threads, even on a machine of one core, so that a product with no limit is cut."""
    libraries = blas._loaded()
    before = [library.get() for library in libraries]
    for library in libraries:
        library.set(3)
    yield
    for library, threads in zip(libraries, before, strict=True):
        library.set(threads)


# -- bits -------------------------------------------------------------------------------------------


def training_step() -> Bits:
    """Convolutions of every algorithm of the cpu, batch norm, pools, linear layers: gradients and new weights."""
    alpha.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(3, 24, 7, stride=2, padding=3),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 64, 3, padding=1),
        nn.GELU(),
        nn.Conv2d(64, 64, 3, stride=2, padding=1),
        nn.BatchNorm2d(64),
        nn.Conv2d(64, 96, 1, bias=False),
        nn.LeakyReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(96, 64, 3, padding=1),
        nn.ConvTranspose2d(64, 64, 3, stride=2, padding=1),
        nn.Flatten(),
        nn.Linear(64 * 9, 300),
        nn.Tanh(),
        nn.Linear(300, 10),
    )
    optimizer = Adam(network.parameters(), lr=1e-2)
    images = alpha.tensor(normal(48, 32, 32, 3), requires_grad=True)
    labels = alpha.tensor(np.arange(48, dtype=np.int32) % 10)
    loss = F.cross_entropy(network(images), labels)
    loss.backward()
    optimizer.step()
    assert images.grad is not None
    found = {"loss": loss.numpy().tobytes(), "gradient of the images": images.grad.numpy().tobytes()}
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        found[f"gradient of {name}"] = parameter.grad.numpy().tobytes()
    return found | {name: np.asarray(value).tobytes() for name, value in network.state_dict().numpy().items()}


def products() -> Bits:
    """Products of sizes that BLAS cuts: by rows, by columns, by a long K, in a batch; operands stored either way."""
    found = {}
    for D, M, N, K in ((1, 700, 130, 200), (1, 60, 900, 170), (1, 48, 40, 9000), (3, 200, 210, 220), (1, 33, 1, 5000)):
        for a, b in ((False, False), (False, True), (True, False), (True, True)):
            A, B = normal(D, *((K, M) if a else (M, K))), normal(D, *((N, K) if b else (K, N)))
            found[f"{(D, M, N, K)} {a} {b}"] = REGISTRY["matmul_batch"](A, B, a, b).tobytes()
    x, w = (alpha.tensor(normal(*s), requires_grad=True) for s in ((600, 300), (200, 300)))
    y = F.linear(x, w, alpha.tensor(normal(200)))
    (y * y).mean().backward()
    assert x.grad is not None
    assert w.grad is not None
    return found | {"linear": y.numpy().tobytes(), "dX": x.grad.numpy().tobytes(), "dW": w.grad.numpy().tobytes()}


def sums() -> Bits:
    """Reductions of many rows and of odd shapes, and averages of windows, of one channel too."""
    found = {}
    for shape in ((1, 90_000, 5), (1, 3000, 64), (7, 400, 33), (2, 90_000, 1), (1, 1, 7)):
        found[f"sum {shape}"] = REGISTRY["sum_axis1"](normal(*shape)).tobytes()
    for R, C in ((70_000, 3), (3000, 64)):
        X, dY, v = normal(R, C), normal(R, C), np.abs(normal(C)) + 1
        found[f"statistics {R}"] = b"".join(a.tobytes() for a in REGISTRY["channel_statistics"](X, None, None, 0.1))
        gradients = REGISTRY["batch_norm_gradients"](dY, X, v, v, v, 1e-5, True)
        found[f"batch norm {R}"] = b"".join(a.tobytes() for a in gradients[:3])
    for N, C in ((13, 1), (50, 3), (1, 1), (9, 2)):
        s = PoolShape(N, 12, 9, C, 1, 1, 1, 1, 0, 0, 3, 1, adaptive=True)
        found[f"averages {N} {C}"] = REGISTRY["avg_pool2d_forward"](normal(N, 12, 9, C), s).tobytes()
        found[f"their gradient {N} {C}"] = REGISTRY["avg_pool2d_backward"](normal(N, 3, 1, C), s).tobytes()
    return found


@pytest.mark.usefixtures("blas_threads")
@pytest.mark.parametrize("compute", [training_step, products, sums])
def test_bits_do_not_depend_on_the_number_of_workers(
    with_workers: Callable[[int, Callable[[], Bits]], Bits], compute: Callable[[], Bits]
) -> None:
    first, *others = (with_workers(count, compute) for count in COUNTS)
    for count, other in zip(COUNTS[1:], others, strict=True):
        differing = [name for name in first if first[name] != other[name]]
        assert not differing, f"{count} workers and {COUNTS[0]} differ in {', '.join(differing)}"


@pytest.mark.usefixtures("blas_threads")
def test_bits_do_not_depend_on_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four Python threads compute at once, as one does alone; BLAS has its threads back afterwards."""
    monkeypatch.setenv("ALPHA_CPU_THREADS", "2")
    alone = products()
    libraries = blas._loaded()
    before = [library.get() for library in libraries]
    found: list[Bits] = []
    threads = [threading.Thread(target=lambda: found.append(products())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(child.HANG_S)
    assert len(found) == 4
    assert all(bits == alone for bits in found)
    assert [library.get() for library in libraries] == before


# -- sums in order ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7])
def test_parts_are_added_one_by_one_in_their_order(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setenv("ALPHA_CPU_THREADS", str(count))
    order: list[int] = []
    begun: list[int] = []

    def part(i: int) -> int:
        begun.append(i)
        assert i < len(order) + 2 * count + 1
        time.sleep(0.003 * (i % 5 == 0))  # some come late
        return i * i

    def add(i: int, value: int) -> None:
        assert value == i * i
        order.append(i)

    workers.sum_in_order(40, part, add)
    assert order == list(range(40))
    assert sorted(begun) == order


@pytest.mark.parametrize("where", ["part", "add"])
@pytest.mark.parametrize("count", [1, 4])
def test_an_error_in_a_sum_is_raised_and_nobody_waits(monkeypatch: pytest.MonkeyPatch, count: int, where: str) -> None:
    monkeypatch.setenv("ALPHA_CPU_THREADS", str(count))

    def fail(here: str, i: int) -> int:
        if here == where and i == 3:
            raise ValueError("planned")
        return i

    with pytest.raises(ValueError, match="planned"):
        workers.sum_in_order(100, lambda i: fail("part", i), lambda i, _: fail("add", i))


# -- how many ---------------------------------------------------------------------------------------


def test_cores_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is as on macOS and Windows."""
    monkeypatch.delenv("ALPHA_CPU_THREADS", raising=False)
    assert workers.count() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", {0: [1, 2, 3]}.get)  # of this process
    assert workers.count() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "process_cpu_count", lambda: 5, raising=False)
    assert workers.count() == 5
    monkeypatch.delattr(os, "process_cpu_count")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert workers.count() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert workers.count() == 1


def test_as_many_workers_as_there_are_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last chunk is short, and it has a worker of its own."""
    monkeypatch.setenv("ALPHA_CPU_THREADS", "8")
    together = threading.Barrier(4, timeout=child.HANG_S)
    chunks: list[tuple[int, int]] = []

    def body(start: int, stop: int) -> None:
        together.wait()
        chunks.append((start, stop))

    workers.parallel_for(10, 3, body)
    assert sorted(chunks) == [(0, 3), (3, 6), (6, 9), (9, 10)]


@pytest.mark.parametrize("where", ["submit", "chunk"])
def test_no_chunk_runs_after_an_interrupt(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A chunk would write into memory that has died."""
    monkeypatch.setenv("ALPHA_CPU_THREADS", "3")
    pool, begun, running = workers._pools.get(2), threading.Event(), []

    def submit(work: Callable[[], None]) -> None:
        ThreadPoolExecutor.submit(pool, work)
        begun.wait(child.HANG_S)
        raise KeyboardInterrupt

    def body(start: int, stop: int) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.wait(child.HANG_S)
            raise KeyboardInterrupt
        running.append(start)
        begun.set()
        time.sleep(0.05)
        running.pop()

    if where == "submit":
        monkeypatch.setattr(pool, "submit", submit)
    with pytest.raises(KeyboardInterrupt):
        workers.parallel_for(1000, 1, body)
    assert not running


@pytest.mark.parametrize("by_caller", [True, False])
def test_an_interrupt_between_two_chunks_of_a_sum_ends_it(monkeypatch: pytest.MonkeyPatch, by_caller: bool) -> None:
    """The part that was cut off never comes, whichever thread had it; those that wait for it do not wait for ever."""
    monkeypatch.setenv("ALPHA_CPU_THREADS", "3")
    used, raised = workers.parallel_for, threading.Event()

    def cut(length: int, grain: int, body: Callable[[int, int], object], **rest: Any) -> None:
        def first(start: int, stop: int) -> None:
            if (threading.current_thread() is threading.main_thread()) == by_caller:
                raised.set()
                raise KeyboardInterrupt
            raised.wait(child.HANG_S)
            body(start, stop)

        used(length, grain, first, **rest)

    monkeypatch.setattr(workers, "parallel_for", cut)
    with pytest.raises(KeyboardInterrupt):
        workers.sum_in_order(100, lambda i: i, lambda i, part: None)
