"""Folders of photos that alpha-train takes: names, damaged photos, and what is no photo."""

from __future__ import annotations

from pathlib import Path

import pytest
from photo_room import SMALL, photos, train

from alpha.data.images.listing import UNREAD
from alpha.train.commands import predict


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("train", "val"), "30 photos to train on, 9 to test on"),
        (("Train", "VAL"), "30 photos to train on, 9 to test on"),
        (("training", "validation"), "30 photos to train on, 9 to test on"),
        (("train", "testing"), "30 photos to train on, 9 to test on"),
        (("train", "test", "val"), "test: is not used, as there is val"),
        (("train", "__MACOSX", ".cache"), "24 photos to train on, 6 to test on"),
        (("train", "vall"), "has train with folders in it, and beside it vall, which would not be used"),
        (("val", "test"), "has no folder to train on beside test, val"),
        (("train", "training"), "has 2 folders to train on"),
    ],
)
def test_names_of_folders_to_train_and_test_on(
    room: Path, names: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is neither is never a class, and never left out in silence."""
    for number, name in enumerate(names):
        photos(room / "set" / name, count=3 if number else 10)
    train("set", "--model", "tiny", "--epochs", "1", *SMALL)
    said = capsys.readouterr()
    assert message in said.out + said.err
    assert "2 classes" not in said.out


def test_a_class_may_be_named_train(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that holds photos is a class, whatever its name: trains and tests are things, too."""
    folder = photos(room / "vehicles")
    (folder / "red").rename(folder / "train")
    (folder / "blue").rename(folder / "test")
    assert train("vehicles", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    assert "24 photos to train on, 6 to test on, 3 classes" in capsys.readouterr().out


@pytest.mark.parametrize("ending", UNREAD)
def test_photos_of_a_kind_that_is_not_read_are_not_ignored(
    room: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = photos(room / "colors")
    for number in (2, 3):
        (folder / "red" / f"{number}.jpg").rename(folder / "red" / f"{number}{ending.upper()}")
    (folder / "red" / "notes.txt").write_text("no photo")
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 2
    error = capsys.readouterr().err
    assert f"2{ending.upper()}: is a photo of a kind that cannot be read; save it as JPEG or PNG (1 more" in error
    if ending == ".heic":
        assert train("colors", "--model", "tiny", "--epochs", "1", "--on-error", "skip", *SMALL) == 0
        assert capsys.readouterr().out.count("is a photo of a kind that cannot be read") == 2


def test_folders_train_and_val(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "set" / "train")
    photos(room / "set" / "val", count=3)
    assert train("set", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    assert "30 photos to train on, 9 to test on, 3 classes" in capsys.readouterr().out
    (room / "set" / "val" / "red").rename(room / "set" / "val" / "rot")
    with pytest.warns(RuntimeWarning, match="the images in .* have changed"):
        assert train("set", "--model", "tiny", "--epochs", "1", *SMALL) == 2
    assert "have other classes: red, rot in only one of them" in capsys.readouterr().err


def test_damaged_photos_and_empty_classes(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(room / "colors")
    (folder / "red" / "bad.jpg").write_bytes((folder / "red" / "0.jpg").read_bytes()[:300])
    (folder / "none").mkdir()
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 2
    error = capsys.readouterr().err
    assert "none: has no image" in error
    assert error.endswith("; --on-error skip leaves it out\n")
    assert train("colors", "--model", "tiny", "--epochs", "1", "--on-error", "skip", *SMALL) == 0
    out = capsys.readouterr().out
    assert "left out: " in out
    assert "bad.jpg: cannot be decoded" in out
    assert "24 photos to train on, 6 to test on, 3 classes" in out
    assert predict.main(["runs/colors", str(folder / "red" / "bad.jpg"), "--device", "cpu"]) == 2
    assert "bad.jpg: cannot be decoded" in capsys.readouterr().err
    assert predict.main(["runs/colors", "nothing.jpg", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == "alpha-predict: nothing.jpg: there is no such photo or folder\n"
