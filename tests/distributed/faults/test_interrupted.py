"""A program that does not catch Ctrl-C or SIGTERM: all ranks end behind the same step, when rank 0 has saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import ran

from alpha.train import Run


def saved(folder: Path) -> tuple[int, int]:
    """Epoch and step of a run that can be resumed."""
    run = Run.resume(folder)
    state = run._state
    run.close()
    assert state is not None
    return state["epoch"], state["step"]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("name", "when"), [("SIGINT", "steps"), ("SIGTERM", "steps"), ("SIGINT", "last")])
def test_all_end_in_one_line_when_rank_0_has_saved(tmp_path: Path, rank: int, name: str, when: str) -> None:
    found = ran(2, "interrupted.py", rank, name, when, tmp_path / "run")
    assert found.status == {"SIGINT": 130, "SIGTERM": 143}[name], found.errors
    assert "Traceback" not in found.errors
    assert [line for line in found.errors.splitlines() if "SIG" in line] == [
        f"all ranks have stopped: Interrupted: {name}"
    ]
    epoch, step = saved(tmp_path / "run")
    assert (epoch, step) > (2, 0) if when == "steps" else epoch == 3


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_outside_of_fit_ends_all_without_a_traceback(tmp_path: Path, rank: int) -> None:
    found = ran(2, "interrupted.py", rank, "SIGINT", "outside", tmp_path / "run")
    assert found.status != 0
    assert "Traceback" not in found.errors
    assert f"rank {rank} ends with KeyboardInterrupt" in found.errors
    assert f"rank {1 - rank} ends: rank {rank} ended with KeyboardInterrupt" in found.errors
    assert saved(tmp_path / "run")[0] == 3
