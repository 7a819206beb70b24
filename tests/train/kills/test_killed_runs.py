"""Runs that are killed at random moments and go on end with the bits of one that was never stopped.

The long form: `python tests/train/kills/killed_runs.py`, which also kills from outside, and at each moment of writing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from killed_runs import kill, kill_at_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes and shared memory as Linux has it")


@pytest.mark.gate
def test_runs_that_are_killed_anywhere(device: str, tmp_path: Path) -> None:
    assert kill(tmp_path, 12, device, seed=0).faults == []


@pytest.mark.gate
def test_a_run_that_is_killed_while_it_writes(tmp_path: Path) -> None:
    assert kill_at_files(tmp_path, "cpu", every=40).faults == []
