"""Commands alpha-train and alpha-predict, as their user calls them: from a folder of photos to a prediction."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import alpha
from alpha.data.images.image_files import opened
from alpha.errors import CheckpointError, DataError, ShapeError
from alpha.models import saved
from alpha.train import load_metadata
from alpha.train.commands import predict, train_photos

COLORS = {"blue": (30, 60, 200), "green": (30, 180, 60), "red": (200, 40, 30)}


def photos(folder: Path, names: tuple[str, ...] = tuple(COLORS), count: int = 10, side: int = 40) -> Path:
    """Photos of one colour with noise, in a folder for each colour."""
    generator = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            noise = generator.integers(-25, 26, (side, side + number, 3))
            pixels = np.clip(np.array(COLORS[name]) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg", quality=90)
    return folder


SMALL = ["--image-size", "32", "--device", "cpu", "--batch-size", "8"]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPHA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(saved, "NETWORKS", {**saved.NETWORKS, "tiny": tiny, "torchvision.tiny": tiny})
    return tmp_path


def tiny(num_classes: int, image_size: int = 32) -> alpha.nn.Module:
    """A network whose test takes no time."""
    if image_size > 64:
        raise ValueError(f"tiny: image_size={image_size} is above 64")
    nn = alpha.nn
    layers = [nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8, num_classes))


def train(*arguments: str) -> int:
    return train_photos.main([*arguments])


def test_from_a_folder_to_a_prediction(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "12", "--lr", "0.05", *SMALL) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "24 photos to train on, 6 to test on, 3 classes, 32x32, batch 8"
    assert "test accuracy 100.0% of 6 photos" in lines
    assert lines[-1] == "predict:  alpha-predict runs/colors PHOTO .."
    assert max(map(len, lines)) < 80
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


def test_a_run_goes_on_with_other_epochs_and_rate(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run goes on as one whose rate was so from there on; anything else is a contradiction."""
    photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "2", *SMALL) == 0
    assert train("--resume", "runs/colors", "--epochs", "4", "--lr", "0.01") == 0
    assert "goes on after step 3 of epoch 2, with epochs 2 -> 4, lr 0.001 -> 0.01" in capsys.readouterr().out
    history = [json.loads(line) for line in (room / "runs/colors/history.jsonl").read_text().splitlines()]
    steps = 12
    rates = [0.01 * (1 + np.cos(np.pi * step / steps)) / 2 for step in (8, 11)]  # before the last step of an epoch
    assert [row["learning_rate"] for row in history[2:]] == pytest.approx(rates)
    assert train("--resume", "runs/colors", "--seed", "3") == 2
    assert "--seed 3 (the run has 0); leave them out" in capsys.readouterr().err
    photos(room / "colors2", ("red", "blue"))
    for path in (room / "colors2" / "blue").iterdir():
        (room / "colors" / "blue" / f"new-{path.name}").write_bytes(path.read_bytes())
    with pytest.warns(RuntimeWarning, match="have changed"):
        assert train("--resume", "runs/colors", "--epochs", "5") == 2
    assert "24 photos" not in capsys.readouterr().out


def test_a_run_that_has_all_its_epochs_says_so(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "2", *SMALL) == 0
    assert train("--resume", "runs/colors", "--epochs", "1") == 0
    assert "nothing to train: 2 epochs are done; a larger number of epochs trains more" in capsys.readouterr().out


def test_a_run_is_not_tested_on_photos_that_it_was_trained_on(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There are as many photos as before, one of which has another name, so they are split in another way."""
    folder = photos(room / "colors")
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    (folder / "red" / "0.jpg").rename(folder / "red" / "z.jpg")
    with pytest.warns(RuntimeWarning, match="have changed"):
        assert train("--resume", "runs/colors", "--epochs", "2") == 2
    assert "it could be tested on photos that it was trained on" in capsys.readouterr().err


def test_fine_tuning_takes_all_but_the_last_layer(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "colors")
    photos(room / "two", ("red", "blue"))
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    assert train("two", "--weights", "runs/colors", "--epochs", "1", "--device", "cpu") == 0
    out = capsys.readouterr().out
    assert "weights.safetensors: all layers but the last, 5.bias, 5.weight, which begins anew" in out
    described = saved.described(room / "runs/two/weights.safetensors")
    assert (described.model, described.image_size, tuple(described.classes)) == ("tiny", 32, ("blue", "red"))
    assert train("colors", "--weights", "runs/colors", "--epochs", "1", "--device", "cpu") == 0
    assert "weights.safetensors: all layers\n" in capsys.readouterr().out
    assert float(load_metadata(room / "runs/two/weights.safetensors")["lr"]) == train_photos.FINE_TUNING_LR


def ends_in_a_convolution(num_classes: int) -> alpha.nn.Module:
    nn = alpha.nn
    layers = [nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, num_classes, 2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize("made", [tiny, ends_in_a_convolution])
@pytest.mark.parametrize("written", ["start.pth", "start.pt", "start.safetensors", "own.pth"])
def test_weights_of_another_program(
    room: Path, made: Any, written: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its filters are (OC, IC, FH, FW); the file says neither network nor layout, but that of alpha.save."""
    monkeypatch.setattr(saved, "NETWORKS", {**saved.NETWORKS, "torchvision.made": made})
    photos(room / "colors")
    start = made(num_classes=7).state_dict()
    theirs = {name: np.moveaxis(v, -1, 1) if v.ndim == 4 else v for name, v in start.numpy().items()}
    theirs = {name: np.ascontiguousarray(v) for name, v in theirs.items()}
    if written == "own.pth":
        alpha.save(start, written)
    elif written.endswith(".safetensors"):
        pytest.importorskip("safetensors.numpy").save_file(theirs, written)
    else:
        torch = pytest.importorskip("torch")
        torch.save({name: torch.tensor(v) for name, v in theirs.items()}, written)

    taken = made(num_classes=3)
    last = list(taken.state_dict())[-1].partition(".")[0]
    text = train_photos.take_weights(taken, room / written, "torchvision.made", tuple(COLORS))
    assert f"all layers but the last, {last}.bias, {last}.weight" in text
    for name, value in taken.state_dict().numpy().items():
        if not name.startswith(f"{last}."):
            np.testing.assert_array_equal(value, start.numpy()[name], err_msg=name)
    assert train("colors", "--weights", written, "--epochs", "1", *SMALL) == 2
    assert f"{written}: does not say which network it has; name it with --model" in capsys.readouterr().err
    assert train("colors", "--model", "torchvision.made", "--weights", written, "--epochs", "1", *SMALL) == 0


def test_a_checkpoint_is_no_state_dict(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos(room / "colors")
    alpha.save({"epoch": 3, "model": tiny(3).state_dict()}, "all.pth")
    assert train("colors", "--model", "tiny", "--weights", "all.pth", "--epochs", "1", *SMALL) == 2
    assert "all.pth: holds a dict with 'epoch', 'model', and no weights by name" in capsys.readouterr().err


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
        (["few"], "4 photos are too few to split; give a folder val beside train"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a FOLDER of photos is needed, or --resume DIR"),
        (["a", "--resume", "b"], "--resume goes on in its own folder"),
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


def test_every_network_is_built_by_its_name() -> None:
    """A description is enough to build it, and its class axis is the last one."""
    for name in ("resnet18", "vit_tiny", "torchvision.mobilenet_v2"):
        model = train_photos.built(name, train_photos.arguments_of(name, 3, 64), 64)
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


def test_what_is_no_photo(room: Path) -> None:
    photos(room / "colors", count=5)
    assert train("colors", "--model", "tiny", "--epochs", "1", *SMALL) == 0
    network = alpha.models.load("runs/colors", device="cpu")
    with pytest.raises(DataError, match="a int is no photo"):
        network.predict(5)
    with pytest.raises(ShapeError, match=r"an image \(H, W, 3\) of uint8 is needed"):
        network.predict(np.zeros((4, 4, 3), np.float32))
    assert network.predict([]) == []


@pytest.mark.parametrize(("count", "batch"), [(3, 8), (100, 12), (512, 64), (10**6, 64)])
def test_few_photos_make_small_batches(count: int, batch: int) -> None:
    assert train_photos.fitting_batch(count) == batch
