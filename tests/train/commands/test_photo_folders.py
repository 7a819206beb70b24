"""Folders of photos that alpha-train takes: names, damaged photos, and what is no photo."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from photo_room import COLORS, SMALL, photos, train
from PIL import Image, features

from alpha.data.images.image_files import opened
from alpha.data.images.listing import EXTENSIONS, OF_SYSTEMS, UNREAD
from alpha.train.commands import predict
from alpha.train.commands.photos import set_folders


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
        (("train", "red/"), "has train with folders in it, and beside it red, which would not be used"),
        (("train", "test/"), "test has no folders of classes in it, as train has"),
        (("train/", "val/"), "train, val hold no folders; a folder for each class is needed in each of them"),
        (("train/", "val"), "has no folder to train on beside val"),
    ],
)
def test_names_of_folders_to_train_and_test_on(
    room: Path, names: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is neither is never a class, and never left out in silence."""
    for number, name in enumerate(names):
        folder = photos(room / "set" / name.strip("/"), count=3 if number else 10)
        if name.endswith("/"):  # without folders of classes
            (folder / "red" / "0.jpg").rename(folder / "0.jpg")
            for color in COLORS:
                shutil.rmtree(folder / color)
    train("set", "--model", "tiny", "--epochs", "1", *SMALL)
    said = capsys.readouterr()
    assert message in said.out + said.err
    assert "2 classes" not in said.out


@pytest.mark.slow
def test_photos_beside_the_classes_of_a_set_are_named(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One photo that lies in a wrong place makes no class of train."""
    for name in ("train", "val"):
        folder = photos(room / "set" / name)
        (folder / "red" / "0.jpg").rename(folder / "stray.jpg")
    assert train("set", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    out = capsys.readouterr().out
    assert "29 photos to train on, 29 to test on, 3 classes" in out
    assert out.count("stray.jpg: is in no folder of a class") == 2


@pytest.mark.parametrize("places", [["set"], ["set", "set/train"], ["set", "set/train", "set/val"]])
def test_photos_in_no_folder_of_a_class_are_named_in_each_layout(room: Path, places: list[str]) -> None:
    for place in places[1:] or places:
        photos(room / place, count=1)
    for place in places:
        for name in ("stray.jpg", "STRAY.HEIC", "notes.txt"):
            (room / place / name).write_bytes(b"x")
    found = [(path.relative_to(room).as_posix(), reason) for path, reason in set_folders(room / "set").skipped]
    wanted = [f"{place}/{name}" for place in places for name in ("STRAY.HEIC", "stray.jpg")]
    assert found == [(name, "is in no folder of a class") for name in wanted]


def test_a_run_names_a_photo_beside_its_classes(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos(room / "colors") / "stray.jpg").write_bytes(b"x")
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    assert "stray.jpg: is in no folder of a class" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_to_a_lost_folder_is_an_error(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "set" / "train")
    (room / "set" / "val").symlink_to(room / "lost")
    assert train("set", "--model", "tiny", "--epochs", "1", *SMALL) == 2
    assert "val: is a link to nothing" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_does_not_lie_among_its_photos(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos(room / "colors"))
    assert train(".", "--model", "tiny", "--epochs", "1", *SMALL) == 2
    assert "runs: lies in the folder of photos; name another one with --output" in capsys.readouterr().err
    assert train(".", "--model", "tiny", "--epochs", "1", "--output", str(room / "run"), *SMALL) == 0


@pytest.mark.slow
def test_thumbnails_of_systems_are_no_photos(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(room / "colors")
    for name in (*OF_SYSTEMS, ".thumbnails"):
        photos(folder / "red" / name)
        photos(folder / name)
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    assert "24 photos to train on, 6 to test on, 3 classes" in capsys.readouterr().out
    assert predict.main(["runs/colors", "colors", "--device", "cpu"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 30


@pytest.mark.slow
def test_what_is_left_out_is_that_of_the_folder_as_it_is_now(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The packed file of an earlier run does not know of files that have come or gone since."""
    folder = photos(room / "colors")
    skipping = ["colors", "--model", "tiny", "--epochs", "1", "--on-error", "skip", *SMALL]
    assert train(*skipping) == 0
    capsys.readouterr()
    (folder / "red" / "new.heic").write_text("photo")
    (folder / "red" / "link.HEIC").symlink_to(folder / "red" / "new.heic")
    assert train(*skipping) == 0
    assert capsys.readouterr().out.count("left out: ") == 2
    (folder / "red" / "new.heic").unlink()
    (folder / "red" / "link.HEIC").unlink()
    assert train(*skipping) == 0
    assert "left out: " not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("ending", [ending for ending in EXTENSIONS if features.check("avif") or ending != ".avif"])
def test_every_ending_that_is_taken_is_read(room: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = {".jpe": "JPEG", ".jfif": "JPEG", ".pgm": "PPM"}.get(ending, Image.registered_extensions().get(ending))
    folder = photos(room / "colors")
    for number in range(2):
        path = folder / "red" / f"{number}.jpg"
        with opened(path) as file:
            image = file.convert("RGB")
        path.unlink()
        (image.convert("L") if ending == ".pgm" else image).save(path.with_suffix(ending.upper()), kind)
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    assert "24 photos to train on, 6 to test on, 3 classes" in capsys.readouterr().out


@pytest.mark.slow
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


@pytest.mark.slow
def test_folders_train_and_val(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "set" / "train")
    photos(room / "set" / "val", count=3)
    assert train("set", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    assert "30 photos to train on, 9 to test on, 3 classes" in capsys.readouterr().out
    (room / "set" / "val" / "red").rename(room / "set" / "val" / "rot")
    with pytest.warns(RuntimeWarning, match="the images in .* have changed"):
        assert train("set", "--model", "tiny", "--epochs", "1", *SMALL) == 2
    assert "have other classes: red, rot in only one of them" in capsys.readouterr().err


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no such names")
def test_names_that_a_terminal_or_a_shell_reads_in_its_own_way(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(room / "my photos")
    for color, name in zip(COLORS, ("re\x1b[31md", "bl\nue", "x\x9by"), strict=True):
        (folder / color).rename(folder / name)
    assert train("my photos", "--model", "tiny", "--epochs", "1", "--output", "my run; ls", *SMALL) == 0
    said = capsys.readouterr().out
    assert "predict:  alpha-predict 'my run; ls' PHOTO" in said
    photo = Path(os.fsdecode(b"my photos/\xff.jpg"))
    (folder / "x\x9by" / "0.jpg").rename(photo)
    assert predict.main(["my run; ls", "my photos", "--top", "3", "--device", "cpu"]) == 0
    said += capsys.readouterr().out
    assert not set("\x1b\x9b") & set(said)
    assert all(name in said for name in ("re\\x1b[31md", "bl\\x0aue", "x\\x9by"))
    assert predict.main(["my run; ls", str(photo), "--json", "--device", "cpu"]) == 0
    line = capsys.readouterr().out
    assert line.isascii()
    assert Path(json.loads(line)["photo"]).exists()
