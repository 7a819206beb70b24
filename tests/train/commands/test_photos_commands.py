"""Commands alpha-train and alpha-predict, as their user calls them: from a folder of photos to a prediction."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest
from photo_room import COLORS, SMALL, photos, train
from PIL import Image

import alpha
from alpha.data.images.image_files import opened
from alpha.errors import CheckpointError, DataError, ShapeError
from alpha.models import saved
from alpha.train import Run
from alpha.train.commands import predict, report, train_photos
from alpha.train.commands.chosen_network import arguments_of, built


@pytest.mark.slow
def test_from_a_folder_to_a_prediction(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "12", "--lr", "0.05", *SMALL) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "24 photos to train on, 6 to test on, 3 classes, 32x32, batch 8"
    assert "test accuracy 100.0% of 6 photos" in lines
    assert lines[-1] == "predict:  alpha-predict runs/colors PHOTO .."
    assert max(len(line) for line in lines if not line.startswith("decoded copies")) < 80
    run = room / "runs" / "colors"
    assert {path.name for path in (run / "report").iterdir()} == {
        *("classes.csv", "predictions.csv", "confusion.png", "mistakes.png")
    }
    with (run / "report" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(Path(row["file"]).parent.name == row["class"] == row["prediction"] for row in rows)
    with (run / "report" / "classes.csv").open() as file:
        assert [(row["class"], row["photos"], row["accuracy"]) for row in csv.DictReader(file)] == [
            (name, "2", "1.0000") for name in COLORS
        ]
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert len(history) == 12

    assert predict.main(["runs/colors", "colors/red/0.jpg", "colors/blue", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1].split()[0] for line in lines] == ["red", *["blue"] * 10]
    assert predict.main(["runs/colors", "colors/green/3.jpg", "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["class"] == max(found["probabilities"], key=found["probabilities"].get) == "green"

    network = alpha.models.load("runs/colors", device="cpu")
    assert (network.classes, network.training) == (tuple(COLORS), False)
    with opened(folder / "green" / "3.jpg") as file:
        photo = file.convert("RGB")
    by_path, by_image, by_array = network.predict([folder / "green" / "3.jpg", photo, np.asarray(photo)])
    assert by_path.name == "green"
    assert by_path.probability == pytest.approx(found["probabilities"]["green"], abs=1e-5)
    assert by_image == by_array
    kept = next((run / "kept").iterdir())
    assert alpha.models.load(kept, device="cpu").predict(photo)[0].name == "green"


@pytest.mark.slow
def test_a_prediction_is_that_of_the_report(room: Path) -> None:
    """The network sees a test photo as `evaluate` saw it; the weights are those that were evaluated, here a mean."""
    photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "2", "--ema", "0.5", "--augment", "strong", *SMALL) == 0
    with (room / "runs" / "colors" / "report" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    network = alpha.models.load("runs/colors", device="cpu")
    for row, found in zip(rows, network.predict([row["file"] for row in rows]), strict=True):
        assert row["prediction"] == found.name
        assert float(row["probability"]) == pytest.approx(found.probability, abs=1e-4)


def test_a_batch_of_one_says_which_option_helps(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "colors")
    options = ["--model", "torchvision.mobilenet_v2", "--epochs", "1", "--device", "cpu", "--image-size", "32"]
    assert train("colors", *options, "--batch-size", "1") == 2
    assert "try --batch-size with a larger number" in capsys.readouterr().err


@pytest.mark.slow
def test_a_photo_that_cannot_be_read_stops_no_other(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    (folder / "red" / "0.jpg").write_text("text")
    (folder / "red" / "1.heic").write_text("photo")
    capsys.readouterr()
    assert predict.main(["runs/colors", "colors", "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 29
    assert [line.split(":")[1].strip() for line in said.err.splitlines()] == ["colors/red/0.jpg", "colors/red/1.heic"]


@pytest.mark.slow
@pytest.mark.parametrize("buffered", [True, False])
def test_a_short_output_that_nobody_reads(buffered: bool) -> None:
    program = "import sys; from alpha.train.commands import train_photos; sys.exit(train_photos.main(sys.argv[1:]))"
    variables = child.environment()
    variables.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, *([] if buffered else ["-u"]), "-c", program, "--list-models"]
    read, write = os.pipe()
    os.close(read)
    process = child.start(command, env=variables, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (child.finish(process)[1], process.returncode) == ("", 141)


def test_long_names_differ_in_the_pictures() -> None:
    names = [f"a_very_long_class_name_of_bird_species_{number:02}" for number in range(30)]
    assert len({report._short(name) for name in names}) == 30
    assert max(map(len, map(report._short, names))) == 18
    assert report._short("short") == "short"


@pytest.mark.slow
def test_output_that_nobody_reads_ends_a_command_quietly(room: Path) -> None:
    photos(room / "colors")
    program = "import sys; from alpha.train.commands import train_photos; sys.exit(train_photos.main(sys.argv[1:]))"
    options = ["colors", "--model", "vit_tiny", "--epochs", "2", *SMALL]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with child.start([sys.executable, "-c", program, *options], cwd=room, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(child.HANG_S) == 141


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: cannot be read as a folder of images"),
        (
            ["colors", "--model", "tiny", "--image-size", "100"],
            "tiny cannot be trained on images of 100x100: tiny: image",
        ),
        (
            ["colors", "--model", "vgg16", "--image-size", "100"],
            "vgg16 cannot be trained on images of 100x100: vgg16: im",
        ),
        (["colors/red"], "has no folders; expected one per class"),
        (["one"], "has 1 class; two folders of photos or more are needed"),
        (["few"], "4 photos are too few to split by --test-share 0.2, which leaves 4 to train on and 0 to test on"),
        (["few", "--test-share", "0.0001"], "leaves 4 to train on and 0 to test on; make it larger, add photos, or"),
        (["colors", "--weights", "colors/red/0.jpg"], "0.jpg"),
    ],
)
def test_a_mistake_is_answered_in_a_line(
    room: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    photos(room / "colors")
    photos(room / "one", ("red",))
    photos(room / "few", ("red", "blue"), count=2)
    assert train(*arguments, *([] if "--image-size" in arguments else ["--image-size", "32"])) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (room / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("full_from", [1, 2])
def test_a_full_disk_says_how_the_run_goes_on(
    room: Path, full_from: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos(room / "colors")
    save = Run.save

    def full(self: Run, trainer: Any, wait: bool = True) -> None:
        if trainer.epoch >= full_from:
            self.wait()
            monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        save(self, trainer, wait)

    monkeypatch.setattr(Run, "save", full)
    assert train("colors", "--model", "tiny", "--epochs", "3", *SMALL) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert ("go on from the last saved epoch with --resume runs/colors" in error) == (full_from > 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a FOLDER of photos is needed, or --resume DIR"),
        (["--resume", "b", "--output", "c"], "--resume goes on in its own folder: leave out --output"),
        (["--resume", "b", "--weights", "c", "--overwrite"], "leave out --overwrite, --weights"),
        (["a", "--overwrite"], "--overwrite needs --output"),
        (["a", "--model", "resnet50"], "there is no network 'resnet50'; is it torchvision.resnet50?"),
        (["a", "--ema", "1.5"], "1.5 is not between 0 and 1"),
    ],
)
def test_a_wrong_option(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        train(*arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_every_network_is_built_by_its_name() -> None:
    """A description is enough to build it, and its class axis is the last one."""
    for name in ("resnet18", "vit_tiny", "torchvision.mobilenet_v2"):
        model = built(name, arguments_of(name, 3, 64), 64)
        assert model.training
    with pytest.raises(ValueError, match="there is no network"):
        saved.build("os.system", {})
    with pytest.raises(ValueError, match="does not take these arguments"):
        saved.build("resnet18", {"depth": 3})


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (None, "does not say which network it has; build the model yourself"),
        ("[1]", "cannot be read"),
        ('{"model": 5}', "cannot be read"),
        ('{"model": "resnet18", "unknown": 1}', "cannot be read"),
        ('{"model": "resnet18", "precision": "float7"}', "cannot be read"),
        ('{"model": "os.system", "arguments": {}}', "there is no network 'os.system'"),
        ('{"model": "resnet18", "arguments": {"num_classes": 3}}', "mismatch"),
    ],
)
def test_a_file_that_is_not_of_a_network(tmp_path: Path, network: str | None, message: str) -> None:
    path = tmp_path / "weights.safetensors"
    metadata = {} if network is None else {"network": network}
    alpha.train.save_weights(path, {"a": np.zeros(3, np.float32)}, metadata)
    with pytest.raises(CheckpointError, match=message):
        alpha.models.load(path, device="cpu")
    with pytest.raises(CheckpointError, match="no such file"):
        alpha.models.load(tmp_path / "nothing", device="cpu")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has other pipes")
def test_a_pipe_is_never_opened(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody writes to it, so opening it would wait for ever; an open one has no beginning to go back to."""
    folder = photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    os.mkfifo(folder / "red" / "pipe.jpg")
    (folder / "red" / "link.jpg").symlink_to("pipe.jpg")
    capsys.readouterr()
    assert predict.main(["runs/colors", "colors", "colors/red/pipe.jpg", "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 30
    assert said.err.count("pipe.jpg: is no file but a pipe, a socket or a device: save the photo first") == 2
    assert said.err.count("link.jpg: is no file but a pipe") == 1
    reader, writer = os.pipe()  # as a shell makes for <(..)
    os.write(writer, (folder / "red" / "0.jpg").read_bytes())
    os.close(writer)
    assert predict.main(["runs/colors", f"/dev/fd/{reader}", "--device", "cpu"]) == 2
    assert f"/dev/fd/{reader}: is no file but a pipe" in capsys.readouterr().err
    os.close(reader)
    network = alpha.models.load("runs/colors", device="cpu")
    for path, reason in (("colors/red/pipe.jpg", "is no file but a pipe"), ("colors", "is a folder: give the photos")):
        with pytest.raises(DataError, match=f"{path}: {reason}"):
            network.predict(path)


@pytest.mark.slow
def test_what_is_no_photo(room: Path) -> None:
    photos(room / "colors", count=5)
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    network = alpha.models.load("runs/colors", device="cpu")
    with pytest.raises(DataError, match="a int is no photo"):
        network.predict(5)
    with pytest.raises(ShapeError, match=r"an image \(H, W, 3\) of uint8 is needed"):
        network.predict(np.zeros((4, 4, 3), np.float32))
    for shape in ((0, 5, 3), (5, 0, 3), (0, 0, 3)):
        with pytest.raises(ShapeError, match=rf"of uint8 is needed  \(uint8 \({shape[0]}, {shape[1]}, 3\)\)"):
            network.predict([np.zeros((2, 2, 3), np.uint8), np.zeros(shape, np.uint8)])
    with pytest.raises(DataError, match=r"predict: the photo has no pixels  \(width and height \(0, 3\)\)"):
        network.predict(Image.new("RGB", (0, 3)))
    for size in (0, -1, 1.5, True, None):
        with pytest.raises((TypeError, ValueError), match="predict: batch_size="):
            network.predict([], size)
    assert network.predict([]) == []


@pytest.mark.parametrize(("count", "batch"), [(3, 8), (100, 12), (512, 64), (10**6, 64)])
def test_few_photos_make_small_batches(count: int, batch: int) -> None:
    assert train_photos.fitting_batch(count) == batch


def test_a_description_that_does_not_fit() -> None:
    network = alpha.nn.Linear(4, 3)
    for classes in (("a", "b"), ("a", "b", "c", "d")):
        classifier = alpha.models.Classifier(network, alpha.models.Description("own", classes=classes))
        with pytest.raises(ShapeError, match=f"the network has 3 outputs, the description {len(classes)} classes"):
            classifier.named(alpha.ones(2, 4) @ network.weight.T)
    with pytest.warns(UserWarning, match="3 classes, of which two have the name 'b'"):
        alpha.models.Description("own", classes=("b", "a", "b"))
    with pytest.raises(ValueError, match="2 classes, but num_classes=10 in arguments"):
        alpha.models.Description("resnet18", {"num_classes": 10}, ("a", "b"))
