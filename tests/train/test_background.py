"""Files that are written while a program goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import child
import numpy as np
import pytest
from test_resume import loader, trainer

from alpha.errors import CheckpointError
from alpha.train import Row, Run, load_weights
from alpha.train.background import Background


def jobs() -> tuple[list[int], threading.Event, Callable[[int], Callable[[], None]]]:
    """The numbers of the jobs that were done, what lets them go on, and the maker of a job."""
    done: list[int] = []
    go = threading.Event()

    def job(number: int) -> Callable[[], None]:
        def do() -> None:
            assert go.wait(child.HANG_S)
            if number < 0:
                raise ValueError(f"job {number}")
            done.append(number)

        return do

    return done, go, job


def until_taken(background: Background) -> None:
    while background._next is not None:
        threading.Event().wait(0.001)


def test_the_newest_job_is_done_and_the_others_that_wait_are_left_out() -> None:
    done, go, job = jobs()
    background = Background()
    background.start(job(0))
    until_taken(background)
    for number in (1, 2, 3):
        background.start(job(number))
    assert done == []
    go.set()
    background.wait()
    assert done == [0, 3]
    background.start(job(4))
    background.wait()
    assert done == [0, 3, 4]


def test_an_error_is_raised_once_by_the_next_call() -> None:
    done, go, job = jobs()
    go.set()
    background = Background()
    for call in (background.wait, lambda: background.start(job(1))):
        background.start(job(-1))
        while background._works:
            threading.Event().wait(0.001)
        with pytest.raises(ValueError, match="job -1"):
            call()
    background.wait()
    assert done == []


def test_a_run_is_written_while_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, go, job = jobs()
    run, subject = Run.start({"name": "one"}, tmp_path / "run"), trainer()
    subject.train_epoch(loader())
    saved = subject.model.state_dict().numpy()
    row = Row(1, 1.0, 1.0, 0.5, 0.5, 1.0, 1.0, "float32")
    run.history.rows.append(row)
    run._writer.start(job(0))  # something that takes its time
    until_taken(run._writer)
    run.save(subject, wait=False)
    run.options["name"] = "two"
    run.history.rows.append(row)
    subject.train_epoch(loader())
    assert not (run.folder / "checkpoint.safetensors").exists()
    go.set()
    run.close()
    weights = load_weights(run.folder / "weights.safetensors")
    assert weights.keys() == saved.keys()
    assert all(np.array_equal(weights[name], saved[name]) for name in saved)
    assert Run.resume(run.folder).options == {"name": "one"}
    assert len((run.folder / "history.csv").read_text().splitlines()) == 2  # the names and a row


def test_a_run_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    run, subject = Run.start({}, tmp_path / "run"), trainer()
    subject.train_epoch(loader())
    (run.folder / "weights.safetensors").mkdir()
    run.save(subject, wait=False)
    with pytest.raises(CheckpointError, match=r"weights.safetensors: is a folder"):
        run.wait()
    run.save(subject, wait=False)
    with pytest.raises(CheckpointError, match=r"weights.safetensors: is a folder"):
        run.close()
    (run.folder / "weights.safetensors").rmdir()
    Run.start({}, tmp_path / "x", run.folder, overwrite=True)  # the folder is free
