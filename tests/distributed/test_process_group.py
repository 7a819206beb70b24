"""Exchanges between ranks, on CPUs and on emulated GPUs, and a group of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ranks import mpiexec, ran, run_ranks

import alpha
from alpha import distributed as dist
from alpha.errors import DistributedError, ShapeError
from alpha.runtime.ranks import set_ranks

REDUCTIONS: dict[str, Any] = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "emulated"), [(2, False), (3, False), (2, True)])
def test_exchanges_give_what_numpy_gives_of_all_ranks(count: int, emulated: bool) -> None:
    told = run_ranks(count, "collectives.py", emulated=emulated)
    for name in told[0]:
        *case, what = name.rsplit(" ", 1)
        if what in REDUCTIONS and case != ["bool"]:
            own = [found[f"{case[0]} broadcast {rank}"] for rank, found in enumerate(told)]
            wanted = REDUCTIONS[what](np.array(own), axis=0)
            for found in told:  # the mean of whole numbers by three is rounded
                np.testing.assert_allclose(found[name], wanted, rtol=1e-2 if what == "mean" else 0)
                assert found[name] == told[0][name]
        elif what == "all_gather":
            own = [np.atleast_1d(found[f"{case[0]} broadcast {rank}"]) for rank, found in enumerate(told)]
            assert all(found[name] == np.concatenate(own).tolist() for found in told)
        elif what == "reduce_scatter":
            rows = [np.arange(6 * count).reshape(2 * count, 3) % 5 + rank for rank in range(count)]
            assert [row for found in told for row in found[name]] == np.sum(rows, axis=0).tolist()
        elif "broadcast" in name:
            assert all(found[name] == told[0][name] for found in told)
    assert all(found["numbers"] == [rank + 0.5 for rank in range(count)] for found in told)
    assert all(found["bool max"] == [True, False, True] for found in told)
    assert all(found["gradient of all_reduce"] == [2, 2] for found in told), "as without it"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    dist.init("cpu")
    yield
    dist.shutdown()


def test_a_process_alone_is_a_group_of_one(alone: None) -> None:
    assert (dist.rank(), dist.world_size(), dist.local_rank(), dist.is_initialized()) == (0, 1, 0, True)
    x = alpha.tensor([1.0, 2.0])
    for result in (dist.all_reduce(x), dist.broadcast(x), dist.all_gather(x), dist.reduce_scatter(x, "mean")):
        assert result.numpy().tolist() == [1.0, 2.0]
    assert dist.all_gather(alpha.tensor(3.0)).shape == (1,)
    dist.barrier()
    assert dist.gather_numbers(4.0) == [4.0]
    with pytest.raises(DistributedError, match="already"):
        dist.init("cpu")
    dist.shutdown()
    dist.shutdown()
    assert not dist.is_initialized()
    dist.init("cpu")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: dist.all_reduce(alpha.ones(2), "product"), ValueError, "op='product'"),
        (lambda: dist.all_reduce(alpha.tensor([1, 2]), "mean"), ValueError, "whole numbers"),
        (lambda: dist.broadcast(alpha.ones(2), 1), ValueError, "src=1, but there are ranks 0 to 0"),
        (lambda: dist.broadcast(alpha.ones(2), -1), ValueError, "src=-1"),
        (lambda: dist.broadcast(alpha.ones(2), np.int64(2)), ValueError, "src=2"),
        (lambda: dist.broadcast(alpha.ones(2), "0"), TypeError, "src"),  # type: ignore[arg-type]
        (lambda: dist.broadcast(alpha.ones(2), 0.5), (TypeError, ValueError), "src"),  # type: ignore[arg-type]
        (lambda: dist.all_reduce([1.0]), TypeError, "a list is given"),  # type: ignore[arg-type]
        (lambda: dist.reduce_scatter(alpha.tensor(1.0)), ShapeError, r"shape \(\)"),
    ],
)
def test_bad_arguments_are_errors_before_anything_is_sent(alone: None, call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("timeout", [0, -1, -0.5, 1e12, float("nan"), float("inf"), "25", None, True])
def test_a_timeout_is_a_finite_number_above_0(timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="init: timeout="):
        dist.init("cpu", timeout)
    assert not dist.is_initialized()


@pytest.mark.slow
def test_torchrun_on_a_cpu_is_an_error_that_names_mpirun() -> None:
    mpiexec()  # or skip
    variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    found = ran(1, "collectives.py", launcher="alone", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", **variables)
    assert found.status == 1
    assert "MPI sees rank 0 of 1 processes, the launcher rank 0 of 2" in found.errors
    assert "`mpirun -n 2` or `python -m alpha.run --cpus 2`" in found.errors


def test_what_operators_draw_differs_between_ranks_and_initial_weights_do_not() -> None:
    def drawn() -> tuple[Any, Any, Any]:
        alpha.manual_seed(3)
        weight = alpha.nn.Linear(3, 2).weight.numpy()
        return weight, alpha.nn.functional.dropout(alpha.ones(100)).numpy(), alpha.get_rng_state()

    first = drawn()
    try:
        set_ranks(1, 2)
        second = drawn()
    finally:
        set_ranks(0, 1)
    assert (first[0] == second[0]).all()
    assert (first[1] != second[1]).any()
    assert first[2] == second[2]  # so a checkpoint of rank 0 fits all
    assert all(np.array_equal(one, other) for one, other in zip(first[:2], drawn()[:2], strict=True))
