"""Weights, history and curves on disk: whole or absent, whatever goes wrong."""

from __future__ import annotations

import csv
import errno
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from alpha.errors import CheckpointError
from alpha.train import History, Row, load_metadata, load_weights, make_folder, save_curves, save_weights

STATE = {"conv.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "bn.steps": np.array(7, dtype=np.int64)}


def row(epoch: int) -> Row:
    return Row(epoch, 1.5, 2.0 / epoch, 0.1 * epoch, 0.09 * epoch, 3333.3333333, 120.25, "tf32")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_weights_and_metadata_come_back(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, STATE, {"model": "resnet18", "epoch": 3})
    loaded = load_weights(path)
    assert loaded.keys() == STATE.keys()
    for name, array in STATE.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].shape == array.shape
        np.testing.assert_array_equal(loaded[name], array)
    assert load_metadata(path) == {"model": "resnet18", "epoch": "3"}
    assert names(tmp_path) == ["w.safetensors"]


def test_a_transposed_view_is_saved_by_its_values(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    view = STATE["conv.weight"].transpose(2, 0, 1)
    save_weights(path, {"view": view})
    np.testing.assert_array_equal(load_weights(path)["view"], view)


def fail_with(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, STATE, {"epoch": 1})
    with monkeypatch.context() as patch:
        fail_with(errno.ENOSPC, patch)
        with pytest.raises(CheckpointError, match=r"w.safetensors: .* No space left on device; the old"):
            save_weights(path, STATE, {"epoch": 2})
        with pytest.raises(CheckpointError, match="nothing was written"):
            save_weights(tmp_path / "new", STATE)
    assert load_metadata(path) == {"epoch": "1"}
    assert names(tmp_path) == ["w.safetensors"]


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits are POSIX")
def test_a_write_cut_short_leaves_the_old_file(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "w.safetensors"
    save_weights(path, STATE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(CheckpointError, match="File too large; the old file is intact"):
            save_weights(path, {"big": np.zeros(10_000, np.float32)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_weights(path).keys() == STATE.keys()
    assert names(tmp_path) == ["w.safetensors"]


def test_an_interrupt_while_writing_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(KeyboardInterrupt):
        save_weights(tmp_path / "w.safetensors", STATE)
    assert names(tmp_path) == []


@pytest.mark.parametrize("keep", [0, 4, 50, 150])
def test_a_truncated_weights_file_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, STATE)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"w.safetensors: not a whole safetensors file"):
        load_weights(path)


def test_other_bad_weights_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such weights file"):
        load_weights(tmp_path / "none")
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        load_weights(tmp_path)
    (tmp_path / "text").write_text("epoch,seconds\n" * 100)
    with pytest.raises(CheckpointError, match="text: not a whole safetensors file"):
        load_weights(tmp_path / "text")


def test_an_output_folder_that_cannot_be(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / ".weights.safetensors.0123abcd.alpha-part").touch()
    make_folder(tmp_path / "a" / "b")
    assert names(tmp_path / "a" / "b") == []
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CheckpointError, match="cannot be used as output folder"):
            make_folder(path)


def test_history_is_whole_after_every_row(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text("an earlier run")
    history = History(path)
    assert path.read_text() == "an earlier run"
    for epoch in (1, 2):
        history.append(row(epoch))
        with path.open(newline="") as file:
            table = list(csv.DictReader(file))
        assert [line["epoch"] for line in table] == [str(e) for e in range(1, epoch + 1)]
    assert table[1] == {
        "epoch": "2",
        "seconds": "1.5",
        "train_loss": "1",
        "train_accuracy": "0.2",
        "test_accuracy": "0.18",
        "images_per_second": "3333.33",
        "live_mb": "120.25",
        "precision": "tf32",
    }


def test_a_history_without_rows_has_its_header(tmp_path: Path) -> None:
    history = History(tmp_path / "history.csv")
    history.save()
    assert history.path.read_text().startswith("epoch,seconds,train_loss,")


@pytest.mark.parametrize("epochs", [1, 2, 40])
def test_curves_are_a_png_and_touch_no_global_state(tmp_path: Path, epochs: int) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    from PIL import Image

    backend = matplotlib.rcParams._get_backend_or_none()
    path = tmp_path / "curves.png"
    rows = [row(epoch) for epoch in range(1, epochs + 1)]
    assert save_curves(path, rows, "a title") == "curves.png"
    with Image.open(path) as image:
        assert image.size == (1200, 504)
    assert matplotlib.rcParams._get_backend_or_none() == backend
    assert "matplotlib.pyplot" not in sys.modules


def test_nothing_to_draw_and_nothing_to_draw_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    assert "no epoch" in save_curves(tmp_path / "c.png", [], "empty")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install" in save_curves(tmp_path / "c.png", [row(1)], "no matplotlib")
    assert names(tmp_path) == []
