"""A rank that fails ends all of them, with the first cause and its rank, and the last checkpoint intact."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import ran

from alpha.train import Run

DURING = {
    "raise": "rank {0} ended with ValueError: a bad batch",
    "hang": r"rank {0} hangs: others wait in exchange",
    "spin": r"rank {0} hangs: others wait in exchange",
    "exit": "rank {0} ended after exchange",
}
AT_THE_START = {
    "shape": "parameters and buffers of rank 1 are not those of rank 0",
    "names": "the number of parameters and buffers of rank 0 is",
    "frozen": "parameters and buffers of rank 1 are not those of rank 0",
    "seed": "the seed (alpha.manual_seed) of rank 0 is",
    "batch": "the loader of the training of rank 0 is",
    "order": "the loader of the training of rank 0 is",
    "no data": "1 samples for 2 processes: one of them would see no data",
}


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("fault", [*DURING, "kill"])
def test_a_fault_during_the_training_ends_all_and_loses_nothing(tmp_path: Path, fault: str, rank: int) -> None:
    found = ran(2, "faults.py", fault, rank, tmp_path / "run")
    assert found.status != 0
    assert found.told == [None, None]
    if fault != "kill":  # then MPI ends the other, and says which process was killed
        assert "ends: " + DURING[fault].format(rank) in found.errors
    else:
        assert "9" in found.errors + found.output
    run = Run.resume(tmp_path / "run")
    # a rank 0 that is killed may have been writing epoch 2; one that goes on may have written epoch 3
    assert len(run.history.rows) in (1, 2, 3)
    run.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", AT_THE_START)
def test_what_does_not_fit_is_found_at_the_start(tmp_path: Path, fault: str) -> None:
    found = ran(2, "faults.py", fault, 1, tmp_path / "run")
    assert found.status != 0
    assert found.told == [None, None]
    assert AT_THE_START[fault] in found.errors
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


@pytest.mark.slow
def test_a_full_disk_on_rank_0_ends_all(tmp_path: Path) -> None:
    found = ran(2, "faults.py", "full disk", 0, tmp_path / "run")
    assert found.status != 0
    assert found.told == [None, None]
    assert "No space left" in found.errors
    assert "rank 1 ends: rank 0 ended with CheckpointError" in found.errors
    run = Run.resume(tmp_path / "run")  # as it was saved first
    assert len(run.history.rows) == 1
    run.close()


@pytest.mark.slow
def test_without_a_fault_it_ends_well(tmp_path: Path) -> None:
    found = ran(2, "faults.py", "none", 0, tmp_path / "run")
    assert (found.status, found.told) == (0, ["the end", "the end"]), found.errors


@pytest.mark.slow
def test_an_error_of_nccl_ends_all_and_says_which_call(tmp_path: Path) -> None:
    found = ran(2, "faults.py", "none", 0, tmp_path / "run", emulated=True, STAND_IN_FAILS_AT="20")
    assert found.status != 0
    assert found.told == [None, None]
    assert "DistributedError: NCCL, all_reduce: all_reduce: remote process exited" in found.errors
