"""Weights, history and curves on disk: whole or absent, whatever goes wrong."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import pickle
import stat
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import child
import ml_dtypes
import numpy as np
import pytest

import alpha
from alpha.errors import CheckpointError
from alpha.io.files import _new_part, new_folder
from alpha.train import History, Row, load_metadata, load_weights, make_folder, save_curves, save_weights

STATE = {"conv.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4), "bn.steps": np.array(7, dtype=np.int64)}


def row(epoch: int) -> Row:
    return Row(epoch, 1.5, 2.0 / epoch, 0.1 * epoch, 0.09 * epoch, 3333.3333333, 120.25, "tf32", 2.5 / epoch, 0.01)


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


def test_metadata_that_are_lists_and_dicts_are_json(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    wanted = {"names": ["a", 'b"'], "sizes": {"x": [1, None, True]}}
    save_weights(path, STATE, {**wanted, "pair": (1, 2), "text": "{'a'"})
    found = load_metadata(path)
    assert {name: json.loads(found[name]) for name in wanted} == wanted
    assert (found["pair"], found["text"]) == ("[1, 2]", "{'a'")
    with pytest.raises(CheckpointError, match=r"metadata cannot be saved \(.*tuple.*\); nothing was written"):
        save_weights(path, STATE, {"sizes": {(1, 2): 3}})
    assert load_metadata(path) == found


def test_numbers_of_arrays_and_paths_within_metadata_are_saved(tmp_path: Path) -> None:
    losses = [np.float32(1.5), np.int64(2), np.ones(2), alpha.tensor([0.5, 0.25]), Path("a")]
    save_weights(tmp_path / "w.safetensors", STATE, {"losses": losses})
    assert load_metadata(tmp_path / "w.safetensors") == {"losses": '[1.5, 2, [1.0, 1.0], [0.5, 0.25], "a"]'}


def test_a_loop_of_ones_own_writes_weights_that_say_which_network_they_are_of(tmp_path: Path) -> None:
    model = alpha.models.torchvision.mobilenet_v2(num_classes=3)
    about = alpha.models.Description("torchvision.mobilenet_v2", {"num_classes": 3}, ["ä", "b'", "c"], 32, (0, 1))
    save_weights(tmp_path / "w.safetensors", model.state_dict(), {"network": about.as_option(), "epoch": 3})
    loaded = alpha.models.load(tmp_path / "w.safetensors", device="cpu")
    assert loaded.classes == ("ä", "b'", "c")
    assert loaded.description.as_option() == about.as_option()


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


def test_a_path_that_no_file_can_have(tmp_path: Path) -> None:
    for write in (
        lambda: alpha.save({"x": 1}, "a\0b"),
        lambda: alpha.save({"x": 1}, tmp_path / "a\0b" / "c"),
        lambda: save_weights("a\0b", STATE),
        lambda: make_folder(Path("a\0b")),
        lambda: new_folder(Path("a\0b")),
        lambda: alpha.load("a\0b"),
    ):
        with pytest.raises(CheckpointError, match=r"a.*b.*: .*(null|zero|no such)"):
            write()


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


WRITER = """
import os, sys
import numpy as np
from alpha.train import save_weights
def fsync(_):
    print("here", flush=True)
    sys.stdin.read()
os.fsync = fsync
save_weights(sys.argv[1], {"x": np.ones(3)})
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX locks")
def test_the_part_of_a_killed_writer_is_removed_by_the_next_save_and_no_other(tmp_path: Path) -> None:
    def writer(name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(tmp_path / name)]
        started = child.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert started.stdout is not None
        assert started.stdout.readline() == "here\n"
        return started

    killed, other, busy = (writer(name) for name in ("w", "v", "w"))
    for process in (killed, other):
        process.kill()
        process.communicate()
    assert len(names(tmp_path)) == 3
    save_weights(tmp_path / "w", STATE)
    parts = [name for name in names(tmp_path) if name.endswith(".alpha-part")]
    assert len(parts) == 2  # that of another file, and that of a writer at work
    busy.communicate("")
    assert busy.returncode == 0
    assert set(load_weights(tmp_path / "w")) == {"x"}
    save_weights(tmp_path / "v", STATE)
    assert names(tmp_path) == ["v", "w"]


@pytest.mark.parametrize("keep", [4, 50, 150])
def test_a_truncated_weights_file_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, STATE)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"w.safetensors: not a whole safetensors file"):
        load_weights(path)


def test_other_bad_weights_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        load_weights(tmp_path / "none")
    with pytest.raises(CheckpointError, match="is a folder, not a regular file"):
        load_weights(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read: File name too long"):
        load_weights(tmp_path / ("a" * 300))
    (tmp_path / "text").write_text("epoch,seconds\n" * 100)
    with pytest.raises(CheckpointError, match="text: is a text, which begins with 'epoch,seconds"):
        load_weights(tmp_path / "text")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_the_mode_of_a_file_stays_and_a_new_one_obeys_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    before = os.umask(0o027)
    try:
        save_weights(path, STATE)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        for mode in (0o600, 0o644, 0o666):
            path.chmod(mode)
            save_weights(path, STATE)
            assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX links")
def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for target in (folder / "there.safetensors", folder / "not-yet.safetensors"):
        link = tmp_path / target.name
        link.symlink_to(target)
        if target.name.startswith("there"):
            save_weights(target, STATE, {"epoch": 1})
        save_weights(link, STATE, {"epoch": 2})
        assert link.is_symlink()
        assert not target.is_symlink()
        assert load_metadata(target) == {"epoch": "2"}
    assert names(folder) == ["not-yet.safetensors", "there.safetensors"]


def identity(path: Path) -> tuple[int, ...]:
    """Facts that tell that nothing has replaced or written what is at a path; to read a link changes other facts."""
    found = path.lstat()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX devices")
def test_what_is_no_regular_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/full")
    for name in ("pipe", "folder", "link"):
        kind = identity(tmp_path / name)
        with pytest.raises(CheckpointError, match=f"{name}: is a .*, not a regular file; nothing was written"):
            save_weights(tmp_path / name, STATE)
        assert identity(tmp_path / name) == kind
    with pytest.raises(CheckpointError, match="/dev/full: is a device"):
        save_weights("/dev/full", STATE)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
    for name in ("pipe", "folder"):  # reading a pipe would wait for its writer
        with pytest.raises(CheckpointError, match=f"{name}: is a .*, not a regular file; [nw]"):
            load_weights(tmp_path / name)


@pytest.mark.skipif(sys.platform == "win32", reason="only POSIX opens a folder")
def test_the_file_and_then_its_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, bool]] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), (tmp_path / "w").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    save_weights(tmp_path / "w", STATE)
    assert synced == [(False, False), (True, True)]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "the state dict is empty"),
        ({"x": [1.0]}, "'x' is a list, not an array"),
        ({"x": np.array(["a"])}, "'x' is str32, a dtype that Alpha does not load"),
        ({"x": np.zeros(2, np.complex64)}, "'x' is complex64, a dtype"),
        ({"x": np.zeros(2, ml_dtypes.float8_e4m3fn)}, "'x' is float8_e4m3fn, a dtype"),
        ({3: np.zeros(2)}, "the weights cannot be saved"),
    ],
)
def test_weights_that_could_not_be_loaded_are_not_saved(tmp_path: Path, state: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=f"w: .*{message}"):
        save_weights(tmp_path / "w", state)
    assert names(tmp_path) == []


def test_bfloat16_and_float16_weights_come_back(tmp_path: Path) -> None:
    for dtype in (ml_dtypes.bfloat16, np.float16):
        save_weights(tmp_path / "w", {"x": np.arange(5).astype(dtype)})
        assert load_weights(tmp_path / "w")["x"].dtype == dtype


def safetensors(dtype: str, size: int, length: int) -> bytes:
    """A file of one tensor of two elements."""
    header = json.dumps({"x": {"dtype": dtype, "shape": [2], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(length)


def numpy_file(save: Any) -> bytes:
    file = io.BytesIO()
    save(file, np.arange(3))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (safetensors("F4", 1, 1), "'x' has the dtype 'F4', which Alpha does not read; it reads F64, "),
        (safetensors("F32", 8, 7), "not a whole safetensors file"),
        (struct.pack("<Q", 1 << 60) + b"{}", "not a whole safetensors file"),
        (struct.pack("<Q", 90 << 20) + b"{}", "not a whole safetensors file"),
        (b"PK", "is a text, which begins with 'PK'"),
        (b"", "is empty"),
        (b"PK\x03\x04" + bytes(99), "is a zip archive, as of torch.save, that is not whole"),
        (pickle.dumps([1]), "is a pickle, .* load it in the program that wrote it"),
        (numpy_file(np.save), "is an array of numpy; numpy.load"),
        (numpy_file(np.savez), "is an archive of numpy's arrays; numpy.load"),
    ],
)
def test_files_of_other_kinds(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(CheckpointError, match=f"w: {message}"):
        load_weights(tmp_path / "w")


@pytest.mark.torch
@pytest.mark.parametrize("zipped", [True, False])
def test_a_pt_file_says_how_to_convert_it(tmp_path: Path, zipped: bool) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "w.pt"
    torch.save({"x": torch.zeros(3)}, path, _use_new_zipfile_serialization=zipped)
    message = "torch.save, .* alpha.load reads it" if zipped else "PyTorch before 1.6, .* torch.save it again"
    with pytest.raises(CheckpointError, match=f"w.pt: is a file of {message}"):
        load_weights(path)


@pytest.mark.parametrize("seed", range(20))
def test_a_file_cut_or_altered_anywhere_is_an_alpha_error(tmp_path: Path, seed: int) -> None:
    save_weights(tmp_path / "w", STATE, {"epoch": 1})
    data = bytearray((tmp_path / "w").read_bytes())
    draw = np.random.default_rng(seed)
    header = 8 + int.from_bytes(data[:8], "little")
    for _ in range(20):
        copy = bytearray(data)
        copy[draw.integers(header)] ^= 1 << draw.integers(8)
        (tmp_path / "w").write_bytes(copy[: draw.integers(len(copy) + 1)])
        with contextlib.suppress(CheckpointError):
            load_weights(tmp_path / "w")


def test_an_output_folder_that_cannot_be(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / ".0123abcd.alpha-part").touch()  # perhaps of a run that is going on
    make_folder(tmp_path / "a" / "b")
    assert names(tmp_path / "a" / "b") == [".0123abcd.alpha-part"]
    os.close(_new_part(tmp_path / "a" / "b" / "probe", 0o600)[1])  # as a process that was killed leaves it
    make_folder(tmp_path / "a" / "b")
    assert names(tmp_path / "a" / "b") == [".0123abcd.alpha-part"]
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
        "test_loss": "1.25",
        "learning_rate": "0.01",
    }


def test_the_line_of_an_epoch_fits_a_terminal_of_80_columns() -> None:
    shown = Row(10, 3599.94, 12.34567, 1.0, 1.0, 1e6, 1e6, "float32", 12.34567, 0.1)
    line = f"epoch 10/10  {shown}"
    assert len(line) < 80
    assert "loss 12.3457, test 12.3457" in line
    assert "accuracy 100.0%, test 100.0%" in line


def test_rows_of_older_runs_have_no_test_loss(tmp_path: Path) -> None:
    older = [replace(row(epoch), test_loss=None, learning_rate=None) for epoch in (1, 2)]
    assert "loss 1.0000  accuracy" in str(older[1])
    History(tmp_path / "history.csv").append(older[0])
    assert (tmp_path / "history.csv").read_text().endswith("tf32,,\n")
    pytest.importorskip("matplotlib")
    assert save_curves(tmp_path / "curves.png", [*older, row(3)], "begun before") == "curves.png"


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
    with Image.open(path, formats=["PNG"]) as image:
        assert image.size == (1200, 504)
    assert matplotlib.rcParams._get_backend_or_none() == backend
    assert "matplotlib.pyplot" not in sys.modules


def test_nothing_to_draw_and_nothing_to_draw_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    assert "no epoch" in save_curves(tmp_path / "c.png", [], "empty")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install" in save_curves(tmp_path / "c.png", [row(1)], "no matplotlib")
    assert names(tmp_path) == []
