"""Two real GPUs and NCCL: what the other tests show on CPUs and emulated GPUs."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from ranks import ran, run_ranks

from alpha.run import number_of_gpus

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def two_gpus() -> None:
    if (number_of_gpus(os.environ) or 0) < 2 or importlib.util.find_spec("nccl") is None:
        pytest.skip("needs two GPUs and nccl4py")


def test_exchanges_and_steps() -> None:
    told = run_ranks(2, "collectives.py", launcher="gpus")
    assert all(found["numbers"] == [0.5, 1.5] for found in told)
    assert [found["float32 (3,) sum"] for found in told] == [told[0]["float32 (3,) sum"]] * 2
    for found in run_ranks(2, "data_parallel.py", launcher="gpus"):
        assert found["norm"] < 1e-4
        assert found["plain"] < 1e-4
        assert found["accumulated"]
        assert found["equal plain"]  # captured and not, and from run to run
        assert found["equal bf16"]


def test_shared_out_states() -> None:
    for found in run_ranks(2, "zero.py", launcher="gpus"):
        assert found["beside"]["SGD"]["weights"] < 1e-4
        assert found["mixed"]
        assert all(found["equal"])  # captured and not


def test_a_trainer_on_two_gpus_is_one_with_the_whole_batch(tmp_path: Path) -> None:
    whole = ran(1, "trainer.py", tmp_path / "alone", 12, 3, launcher="alone", RANKS_DEVICE="cuda").told[0]
    first, second = (run_ranks(2, "trainer.py", tmp_path / f"{n}", 12, 3, launcher="gpus") for n in range(2))
    assert first[0]["weights"] == first[1]["weights"] == second[0]["weights"]
    np.testing.assert_allclose(first[0]["losses"], whole["losses"], rtol=1e-3)


@pytest.mark.parametrize("fault", ["raise", "kill", "hang"])
def test_faults(tmp_path: Path, fault: str) -> None:
    found = ran(2, "faults.py", fault, 1, tmp_path / "run", launcher="gpus")
    assert found.status != 0
    assert found.told == [None, None]
    assert "rank 1" in found.errors
