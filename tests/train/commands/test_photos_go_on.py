"""Runs of alpha-train that go on, with other options or in another place."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from photo_room import SMALL, photos, train

from alpha.train import Trainer


@pytest.mark.slow
def test_a_run_goes_on_with_other_epochs_and_rate(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run goes on as one whose rate was so from there on; anything else is a contradiction."""
    photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "2", *SMALL) == 0
    assert train("--resume", "runs/colors", "--epochs", "4", "--lr", "0.01") == 0
    assert "goes on after step 3 of epoch 2, with epochs 2 -> 4, lr 0.001 -> 0.01" in capsys.readouterr().out
    history = [json.loads(line) for line in (room / "runs/colors/history.jsonl").read_text().splitlines()]
    rates = [0.01 * (1 + np.cos(np.pi * step / 6)) / 2 for step in (2, 5)]  # before the last step of an epoch
    assert [row["learning_rate"] for row in history[2:]] == pytest.approx(rates)
    assert train("--resume", "runs/colors", "--epochs", "6") == 0
    assert "epochs 4 -> 6\nthe learning rate is 0.005 now and falls to 0 at the end" in capsys.readouterr().out
    history = [json.loads(line) for line in (room / "runs/colors/history.jsonl").read_text().splitlines()]
    rates = [0.01 * (1 + np.cos(np.pi * step / 12)) / 2 for step in (8, 11)]  # on the cosine of before, made longer
    assert [row["learning_rate"] for row in history[4:]] == pytest.approx(rates)
    assert train("--resume", "runs/colors", "--seed", "3") == 2
    assert "--seed 3 (the run has 0); leave them out" in capsys.readouterr().err
    photos(room / "colors2", ("red", "blue"))
    for path in (room / "colors2" / "blue").iterdir():
        (room / "colors" / "blue" / f"new-{path.name}").write_bytes(path.read_bytes())
    with pytest.warns(RuntimeWarning, match="have changed"):
        assert train("--resume", "runs/colors", "--epochs", "5") == 2
    assert "24 photos" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_that_has_all_its_epochs_says_so(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "2", *SMALL) == 0
    assert train("--resume", "runs/colors", "--epochs", "1") == 0
    assert "nothing to train: 2 epochs are done; a larger number of epochs trains more" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_is_not_tested_on_photos_that_it_was_trained_on(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There are as many photos as before, one of which has another name, so they are split in another way."""
    folder = photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    (folder / "red" / "0.jpg").rename(folder / "red" / "z.jpg")
    with pytest.warns(RuntimeWarning, match="have changed"):
        assert train("--resume", "runs/colors", "--epochs", "2") == 2
    assert "it could be tested on photos that it was trained on" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_fails_before_it_saves_leaves_no_folder(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos(room / "colors")
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    small = ["colors", "--model", "tiny", "--epochs", "1", "--output", "run", "--device", "cpu", "--image-size", "32"]
    assert train(*small, "--tensorboard") == 2
    assert train(*small, "--lr", "1e30") == 2
    assert not (room / "run").exists()
    (room / "run").mkdir()  # of the user, who keeps it
    assert train(*small, "--lr", "1e30") == 2
    assert list((room / "run").iterdir()) == []
    assert train(*small) == 0
    assert train(*small) == 2
    assert "holds a run" in capsys.readouterr().err
    assert train(*small, "--overwrite", "--lr", "1e30") == 2  # what was saved before is left alone
    assert (room / "run" / "weights.safetensors").exists()
    assert json.loads((room / "run" / "run.json").read_text())["lr"] == 0.001


@pytest.mark.slow
def test_a_run_that_is_stopped_at_once_leaves_no_folder(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second Ctrl-C ends a run within its first epoch; a resumed run keeps what it had."""
    photos(room / "colors")
    small = ["--model", "tiny", "--device", "cpu", "--image-size", "32", "--epochs", "1"]
    assert train("colors", *small) == 0

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_epoch", stop)
        capsys.readouterr()
        assert train("colors", *small) == 130
        assert "stopped at once; nothing was saved" in capsys.readouterr().err
        assert not (room / "runs" / "colors-2").exists()
        assert train("--resume", "runs/colors", "--epochs", "2") == 130
        assert "go on from the last saved epoch with --resume runs/colors" in capsys.readouterr().err
    assert train("--resume", "runs/colors", "--epochs", "2") == 0


@pytest.mark.slow
def test_a_run_that_replaces_another_one_keeps_none_of_its_weights(room: Path) -> None:
    photos(room / "colors")
    small = ["colors", "--model", "tiny", "--device", "cpu", "--image-size", "32", "--output", "run"]
    assert train(*small, "--epochs", "3", "--keep-best", "3") == 0
    assert len(list((room / "run" / "kept").iterdir())) == 3
    assert train(*small, "--epochs", "1", "--keep-best", "2", "--overwrite") == 0
    assert [path.name for path in (room / "run" / "kept").iterdir()] == ["epoch-001.safetensors"]


@pytest.mark.slow
def test_photos_that_were_moved(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    folder.rename(room / "elsewhere")
    assert train("--resume", "runs/colors", "--epochs", "2") == 2
    assert "is not there any more; if it was moved: alpha-train FOLDER --resume DIR" in capsys.readouterr().err
    assert train("elsewhere", "--resume", "runs/colors", "--epochs", "2") == 0
    assert train("--resume", "runs/colors", "--epochs", "3") == 0  # the run knows the new place
    photos(room / "others", count=9)
    assert train("others", "--resume", "runs/colors", "--epochs", "4") == 2
    assert "the photos are others than when the run" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_was_stopped_early_goes_on(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without a change stays stopped and says how it goes on."""
    photos(room / "colors")
    options = ["--model", "tiny", "--epochs", "9", "--early-stopping", "1", "--lr", "0.3", "--schedule", "constant"]
    assert train("colors", *options, *SMALL) == 0
    out = capsys.readouterr().out
    assert "to train on: alpha-train --resume runs/colors --early-stopping 0" in out

    def rows() -> int:
        return len((room / "runs/colors/history.jsonl").read_text().splitlines())

    done = rows()
    assert done < 9
    assert train("--resume", "runs/colors") == 0
    assert rows() == done
    assert train("--resume", "runs/colors", "--early-stopping", "0") == 0
    assert "with early stopping 1 -> none" in capsys.readouterr().out
    assert rows() == 9
