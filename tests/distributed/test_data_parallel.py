"""DataParallel on CPUs and emulated GPUs: equal to one process, bit for bit from run to run, errors with names."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks import run_ranks

import alpha
from alpha import distributed as dist
from alpha import nn
from alpha.distributed import data_parallel
from alpha.distributed.data_parallel import FIRST_BUCKET, buckets_of
from alpha.errors import DistributedError, GradientError
from alpha.runtime.cuda.graphs import CudaRecording, capture


@given(st.lists(st.integers(0, 3 * FIRST_BUCKET)), st.integers(1, 30 * FIRST_BUCKET), st.integers(0, 9 * FIRST_BUCKET))
def test_buckets_hold_each_parameter_once_from_the_last_to_the_first(sizes: list[int], limit: int, last: int) -> None:
    buckets = buckets_of(sizes, limit, last=last)
    assert [number for bucket in buckets for number in bucket] == list(reversed(range(len(sizes))))
    if sizes and sizes[0] <= min(last, limit):
        *buckets, tail = buckets
        assert sum(sizes[: len(tail)]) <= min(last, limit)
        assert len(tail) == len(sizes) or sum(sizes[: len(tail) + 1]) > min(last, limit)
    for place, bucket in enumerate(buckets):
        full = min(limit, FIRST_BUCKET) if place == 0 else limit
        assert sum(sizes[number] for number in bucket[:-1]) < full  # the last one fills it
        if place < len(buckets) - 1:
            assert sum(sizes[number] for number in bucket) >= full


@pytest.mark.slow
@pytest.mark.parametrize(("count", "emulated", "seed"), [(2, False, 0), (3, False, 0), (2, True, 2), (2, True, 4)])
def test_ranks_train_as_one_process_with_the_whole_batch(
    monkeypatch: pytest.MonkeyPatch, count: int, emulated: bool, seed: int
) -> None:
    """Work beside a captured step runs early with the seed 2, and exchanges late; with 4 it is the other way round."""
    monkeypatch.setenv("ALPHA_EMULATED_SEED", str(seed))
    told = run_ranks(count, "data_parallel.py", "gone", emulated=emulated)
    for found in told:
        assert found["norm"] < (1e-5 if emulated else 1e-12)
        assert found["plain"] < (1e-5 if emulated else 1e-12)
        assert found["accumulated"]
        assert found["equal plain"]
        assert found["equal bf16"]
        # the mean of rank + 1 over the ranks, in each of two passes
        sums = [2 * ((count + 1) / 2 + number) + 1 for number in range(4)]
        np.testing.assert_allclose([weight[0] for weight, _ in found["gathered"]], [[n, n] for n in sums])
        assert found["gathered captured"] == found["gathered"]
    weights = [found["runs plain"][1] for found in told]
    assert weights[0] != weights[1]  # since the step that averaged nothing
    plain, rounded = (np.concatenate([np.ravel(w) for w in told[0][f"runs {name}"][1]]) for name in ("plain", "bf16"))
    assert 0 < np.abs(plain - rounded).max() < 0.02 * np.abs(plain).max()

    for found in told:
        assert found["unused"]["used.bias"] == [10.0, 10.0]
        np.testing.assert_allclose(found["unused"]["sometimes.bias"], [5.0 / count] * 2, rtol=1e-6)
        assert found["unused"]["never.bias"] is None
    befores, afters = zip(*[found["buffers"] for found in told], strict=True)
    assert len(set(befores)) == count
    assert set(afters) == {befores[0]}
    # a DataParallel that was dropped averages nothing any more
    assert all(one["gone"] != other["gone"] for one, other in pairwise(told))


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init("cpu")
    yield
    dist.shutdown()


def test_it_needs_a_group() -> None:
    with pytest.raises(DistributedError, match="init"):
        alpha.DataParallel(nn.Linear(2, 2))


def test_alone_it_is_the_model_under_another_name(alone: None) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    parallel: Any = nn.parallel.DistributedDataParallel(model, device_ids=[0])
    x = alpha.tensor([[1.0, 2.0], [3.0, 5.0]])
    parallel(x)[:, 0].sum().backward()
    assert parallel.module is model
    assert list(parallel.state_dict()) == [f"module.{name}" for name in model.state_dict()]
    parallel.eval()
    assert (parallel(x).numpy() == model(x).numpy()).all()
    with parallel.no_sync():
        assert not parallel.require_backward_grad_sync
    assert parallel.require_backward_grad_sync


@pytest.mark.parametrize("options", [{"bucket_cap_mb": 0}, {"bucket_cap_mb": -1}, {"compression": "fp8"}])
def test_bad_arguments(alone: None, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="DataParallel"):
        alpha.DataParallel(nn.Linear(2, 2), **options)


class _Engine:
    """An engine that notes what it is asked for, for a group of which only this process is there."""

    name = "noting"

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.sent: list[Any] = []  # by broadcast
        self.notes: list[str] = []

    def all_reduce(self, arrays: Any, operation: str, beside: bool = False, note: str = "") -> None:
        self.asked.append((len(arrays), operation, beside))
        self.notes.append(note)

    def join(self) -> None:
        self.asked.append("join")

    def broadcast(self, arrays: Any, sources: Any) -> None:
        self.sent.append(list(sources))

    def close(self) -> None: ...


@pytest.fixture
def engine(alone: None, monkeypatch: pytest.MonkeyPatch) -> _Engine:
    group: Any = dist.process_group.current()
    found = _Engine()
    monkeypatch.setattr(group, "engine", found)
    return found


def test_buckets_are_sent_while_the_pass_goes_on(engine: _Engine) -> None:
    class Noting(alpha.Function):
        def forward(self, X: Any) -> Any:
            return X.copy()

        def backward(self, dY: Any) -> Any:
            engine.asked.append("first layer")
            return dY

    first, last = nn.Linear(3, 3), nn.Linear(3, 3)
    model = nn.Sequential(first, last)
    parallel = alpha.DataParallel(model, bucket_cap_mb=1e-6)  # listens as long as it lives
    last(Noting.apply(first(alpha.ones(2, 3)))).sum().backward()
    sent = (1, "mean", True)
    assert engine.asked == [sent, sent, "first layer", sent, sent, "join"]
    assert parallel.module is model


def test_a_captured_pass_waits_for_no_gradient_that_is_sent(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of filters are made beside the pass of a captured step, and what sends them goes on there."""
    device: Any = alpha.get_device("cuda")
    notes = CudaRecording(device, capturing=True)
    sent: list[bool] = []

    class Beside(_Engine):
        def all_reduce(self, arrays: Any, operation: str, beside: bool = False, note: str = "") -> None:
            sent.append(notes.beside)

    group: Any = dist.process_group.current()
    monkeypatch.setattr(group, "engine", Beside())
    monkeypatch.setattr(group, "device", device)
    model = nn.Sequential(*[nn.Conv2d(3, 3, 3, padding=1, bias=False) for _ in range(3)]).to("cuda")
    parallel = alpha.DataParallel(model, bucket_cap_mb=1e-4)
    x = alpha.randn(2, 4, 4, 3, device="cuda")
    parallel(x).sum().backward()
    assert sent == [False] * 3
    sent.clear()
    parallel.zero_grad()  # what is there would be added to, for which the pass waits
    capture(device, notes, lambda: parallel(x).sum().backward(), None)
    assert sent == [True] * 3


def test_an_unused_parameter_is_named_and_nothing_runs_on(engine: _Engine) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    parallel = alpha.DataParallel(model)
    with pytest.raises(GradientError, match=r"2 of 4 parameters .* 1\.weight, 1\.bias"):
        model[0](alpha.ones(2, 3)).sum().backward()
    assert engine.asked == ["join"]
    parallel(alpha.ones(2, 3)).sum().backward()  # the next pass is whole again
    assert engine.asked == ["join", (1, "mean", True), "join"]  # four small ones, side by side


class _Doubling(_Engine):
    """An engine that doubles what it is given."""

    def all_reduce(self, arrays: Any, operation: str, beside: bool = False, note: str = "") -> None:
        super().all_reduce(arrays, operation, beside)
        for array in arrays:
            array *= np.asarray(2, array.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("compression", [None, "bf16"])
@given(
    sizes=st.lists(st.tuples(st.integers(0, 40), st.sampled_from(["float32", "float64", "bfloat16"])), min_size=1),
    packed=st.integers(0, 200),
)
def test_each_gradient_is_reduced_once_large_ones_in_place(
    compression: str | None, sizes: list[tuple[int, str]], packed: int
) -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            self.parts = nn.ParameterList(
                [nn.Parameter(alpha.ones(size, dtype=dtype) * (number + 1)) for number, (size, dtype) in pairs]
            )

        def forward(self) -> Any:
            return sum(((part * part).astype("float64").sum() for part in self.parts), start=alpha.tensor(0.0))

    pairs = list(enumerate(sizes))
    dist.init("cpu")
    try:
        group: Any = dist.process_group.current()
        group.engine = engine = _Doubling()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(data_parallel, "PACKED", packed)
            parallel = alpha.DataParallel(Sum(), compression=compression)
            parallel().backward()
        for number, part in enumerate(parallel.parameters()):
            assert (part.grad.numpy().astype(float) == 4 * (number + 1)).all()
            assert part.grad.dtype == part.dtype
        large = sum(part.grad.array.nbytes >= packed for part in parallel.parameters())
        kinds = len({dtype for _, dtype in sizes})
        (asked, *_), joined = engine.asked
        assert joined == "join"
        assert asked <= kinds if compression else large <= asked <= large + kinds
    finally:
        group.engine = None
        dist.shutdown()


def test_a_pass_that_fails_joins_what_it_has_sent(engine: _Engine) -> None:
    class Failing(alpha.Function):
        def forward(self, X: Any) -> Any:
            return X.copy()

        def backward(self, dY: Any) -> Any:
            raise ArithmeticError("in the middle")

    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    parallel = alpha.DataParallel(model, bucket_cap_mb=1e-6)
    with pytest.raises(ArithmeticError):
        model[1](Failing.apply(model[0](alpha.ones(2, 3)))).sum().backward()
    assert engine.asked[-1] == "join"
    engine.asked.clear()
    parallel.zero_grad()
    parallel(alpha.ones(2, 3)).sum().backward()
    assert engine.asked == [*[(1, "mean", True)] * 4, "join"]


def test_buffers_are_sent_though_nothing_is_trained(engine: _Engine) -> None:
    parallel = alpha.DataParallel(nn.BatchNorm1d(2, affine=False))
    engine.sent.clear()
    parallel.take_buffers()
    assert engine.sent == [[0, 0]]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_averages_nothing_and_says_so(engine: _Engine, copied: Any) -> None:
    model = nn.Linear(3, 3)
    parallel = alpha.DataParallel(model)
    other = copied(parallel)
    with pytest.raises(DistributedError, match=r"a copy, which averages no gradients.*alpha.DataParallel\(copy"):
        other(alpha.ones(2, 3))
    with alpha.no_grad():
        other(alpha.ones(2, 3))
    other.module(alpha.ones(2, 3)).sum().backward()
    assert engine.asked == []
    parallel(alpha.ones(2, 3)).sum().backward()
    assert engine.asked == [(1, "mean", True), "join"]


@pytest.mark.slow
def test_copies_beside_weights_follow_what_ranks_exchange() -> None:
    """Each rank keeps copies in bf16, with a ZeroRedundancyOptimizer of its own share of the weights."""
    told = run_ranks(2, "weights_in_bf16.py", emulated=True)
    for found in told:
        assert all(same for same, _ in found.values()), found
        assert found["False False"][1] == found["False True"][1] == 3
    for captured in ("False", "True"):
        assert sum(found[f"True {captured}"][1] for found in told) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("count", "emulated"), [(2, False), (3, False), (2, True)])
def test_gradients_of_any_passes_are_means_in_the_end(count: int, emulated: bool) -> None:
    """Passes within no_sync may reach any parameters, in captured steps of their own, and with shared-out states."""
    for found in run_ranks(count, "passes.py", emulated=emulated):
        assert all(number == 0 for numbers in found.values() for number in numbers), found


def test_what_no_sync_left_is_reduced_by_a_pass_that_does_not_reach_it(engine: _Engine) -> None:
    model = nn.Linear(3, 3)
    parallel = alpha.DataParallel(model)
    parallel.skip_unused()
    with parallel.no_sync():
        parallel(alpha.ones(2, 3)).sum().backward()
    assert engine.asked == []
    (model.weight.sum() * 2).backward()
    assert engine.asked == [(1, "mean", True), "join"]
    (model.weight.sum() * 2).backward()
    with parallel.no_sync():
        parallel(alpha.ones(2, 3)).sum().backward()
    parallel.zero_grad()
    (model.weight.sum() * 2).backward()
    both, *others = [note.partition(", ")[0] for note in engine.notes]
    assert both == " (gradients of bias and 1 more"
    assert others == [" (gradients of weight"] * 2
