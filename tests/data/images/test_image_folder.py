"""Folders of images: classes by name, sizes, transforms, damaged files, and batches that several threads decode."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alpha.data import DataLoader, ImageFolder
from alpha.data.images.listing import EXTENSIONS
from alpha.errors import DataError


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Two classes, of three images and one, in PNG; a folder within a class, and files that are no images."""
    for name in ("cats/b.png", "cats/deep/a.PNG", "cats/a.png", "birds/one.png"):
        save(tmp_path / name, rng.integers(0, 256, (12, 16, 3), np.uint8))
    (tmp_path / "cats" / "notes.txt").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    return tmp_path


def test_classes_are_the_sorted_folders(folder: Path) -> None:
    dataset = ImageFolder(folder)
    assert dataset.classes == ["birds", "cats"]
    assert dataset.class_to_idx == {"birds": 0, "cats": 1}
    names = ["birds/one.png", "cats/a.png", "cats/b.png", "cats/deep/a.PNG"]
    assert [(str(path.relative_to(folder)), label) for path, label in dataset.samples] == [
        (name, int(name.startswith("cats"))) for name in names
    ]
    assert len(dataset) == 4


def test_items_and_batches(folder: Path) -> None:
    dataset = ImageFolder(folder, workers=3)
    images, labels = dataset.batch(np.array([2, 0, 2]))
    assert (images.dtype, images.shape, labels.dtype) == (np.uint8, (3, 12, 16, 3), np.int32)
    assert labels.tolist() == [1, 0, 1]
    for image, index in zip(images, (2, 0, 2), strict=True):
        item, _ = dataset[index]
        np.testing.assert_array_equal(image, item)
        np.testing.assert_array_equal(image, np.asarray(Image.open(dataset.samples[index][0], formats=["PNG"])))


def test_a_loader_shuffles_it(folder: Path) -> None:
    loader = DataLoader(ImageFolder(folder), batch_size=3, shuffle=True)
    batches = list(loader)
    assert [len(labels) for _, labels in batches] == [3, 1]
    assert sorted(np.concatenate([labels for _, labels in batches])) == [0, 1, 1, 1]


@pytest.mark.parametrize(("size", "shape"), [(8, (8, 8)), ((6, 8), (6, 8)), ((30, 10), (30, 10)), ((12, 16), (12, 16))])
def test_images_of_one_size(tmp_path: Path, size: Any, shape: tuple[int, int]) -> None:
    """The middle of a scaled image: of a ramp, the mean stays that of the middle, and the ratio is kept."""
    rows, columns = np.meshgrid(np.arange(12) * 20, np.arange(16) * 15, indexing="ij")
    save(tmp_path / "a" / "ramp.png", np.stack([rows, columns, 0 * rows], -1).astype(np.uint8))
    image, _ = ImageFolder(tmp_path, size=size)[0]
    assert image.shape == (*shape, 3)
    assert np.abs(image.mean(axis=(0, 1))[:2] - [110, 112.5]).max() < 1.5
    scale = max(shape[0] / 12, shape[1] / 16)
    if scale > 1 or shape == (12, 16):
        steps = np.diff(image.astype(float), axis=1).mean(axis=(0, 1))[1], np.diff(image.astype(float), axis=0).mean()
        assert steps[0] == pytest.approx(15 / scale, rel=0.2)


def test_gray_and_transparent_images_become_rgb(tmp_path: Path) -> None:
    save(tmp_path / "a" / "gray.png", np.full((4, 4), 7, np.uint8))
    save(tmp_path / "a" / "rgba.png", np.full((4, 4, 4), 9, np.uint8))
    images, _ = ImageFolder(tmp_path).batch(np.arange(2))
    assert images.shape == (2, 4, 4, 3)
    assert (images[0] == 7).all()


@pytest.mark.parametrize("ending", ["png", "tiff", "ppm"])
def test_gray_images_of_16_bits_become_those_of_8(tmp_path: Path, rng: np.random.Generator, ending: str) -> None:
    gray = rng.integers(0, 256, (5, 4), np.uint8)
    save(tmp_path / "a" / f"deep.{ending}", gray.astype(np.uint16) * 257)
    image, _ = ImageFolder(tmp_path)[0]
    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, np.stack([gray] * 3, -1))


def test_images_of_32_bits_are_not_cut_off(tmp_path: Path) -> None:
    for name, most in (("a", 255), ("b", 256), ("c", np.nan)):
        values = np.linspace(0, most, 12).reshape(3, 4).astype(np.float32 if most != 256 else np.int32)
        save(tmp_path / "a" / f"{name}.tiff", values)
    data = ImageFolder(tmp_path)
    assert data[0][0].max() == 255
    with pytest.raises(DataError, match=r"b\.tiff: cannot be decoded: its pixels have 32 bits, from 0 to 256; only"):
        data[1]
    with pytest.raises(DataError, match=r"c\.tiff: cannot be decoded: its pixels have 32 bits, from nan to nan"):
        data[2]


def test_transforms_of_an_image_and_of_its_class(folder: Path) -> None:
    def left(image: Image.Image) -> Image.Image:
        return image.crop((0, 0, 5, 6))

    dataset = ImageFolder(folder, size=10, transform=left, target_transform=lambda label: 10 - label)
    images, labels = dataset.batch(np.arange(4))
    assert images.shape == (4, 6, 5, 3)
    assert labels.tolist() == [10, 9, 9, 9]
    arrays = ImageFolder(folder, transform=lambda image: np.asarray(image, np.float32) / 255)
    assert arrays.batch(np.arange(2))[0].dtype == np.float32


def test_other_endings(folder: Path) -> None:
    (folder / "birds" / "one.png").rename(folder / "birds" / "one.dat")
    with pytest.raises(DataError, match=r"birds: has no image; endings are \.jpg"):
        ImageFolder(folder)
    (folder / "cats" / "a.png").rename(folder / "cats" / "a.dat")
    assert len(ImageFolder(folder, extensions=(".dat",))) == 2


def test_images_of_several_sizes_need_a_size(folder: Path) -> None:
    save(folder / "cats" / "c.png", np.zeros((5, 5, 3), np.uint8))
    with pytest.raises(DataError, match=r"item 3, element 0 has shape \(5, 5, 3\), item 0 \(12, 16, 3\)"):
        ImageFolder(folder).batch(np.array([0, 3]))
    assert ImageFolder(folder, size=8).batch(np.arange(5))[0].shape == (5, 8, 8, 3)


@pytest.mark.parametrize("damage", ["empty", "truncated", "text"])
def test_a_damaged_image_is_named(folder: Path, damage: str) -> None:
    path = folder / "cats" / "b.png"
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "truncated": data[: len(data) // 2], "text": b"no image at all"}[damage])
    with pytest.raises(DataError, match=re.escape(f"{path}: cannot be decoded")):
        ImageFolder(folder).batch(np.arange(4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size is 0, expected a whole number"),
        ({"size": (3, 4, 5)}, r"size is \(3, 4, 5\)"),
        ({"size": 2.5}, "size is 2.5"),
        ({"workers": 0}, "workers is 0, expected a whole number, 1 or more"),
        ({"workers": True}, "workers is True"),
    ],
)
def test_arguments_that_mean_nothing(folder: Path, arguments: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"ImageFolder: {message}"):
        ImageFolder(folder, **arguments)


def test_no_folder_and_no_classes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: cannot be read as a folder of images"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no folders; expected one per class"):
        ImageFolder(tmp_path)


def test_two_folders_are_one_dataset(folder: Path) -> None:
    both = ImageFolder(folder, size=8) + ImageFolder(folder, size=8)
    assert len(both) == 8
    images, labels = next(iter(DataLoader(both, batch_size=8, num_workers=2)))
    assert images.shape == (8, 8, 8, 3)
    assert labels.tolist() == [0, 1, 1, 1] * 2


def test_it_is_sent_to_another_process(folder: Path) -> None:
    dataset = ImageFolder(folder, size=8)
    dataset.batch(np.arange(2))
    again = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(again.batch(np.arange(4))[0], dataset.batch(np.arange(4))[0])


def names(dataset: ImageFolder) -> list[str]:
    return [str(path.relative_to(dataset.root)) for path, _ in dataset.samples]


LINKS: dict[str, tuple[dict[str, str], list[str]]] = {  # links of class a, and what it has beside a/x.png and a/p/y.png
    "to the class": ({"a/p/up": ".."}, []),
    "to itself": ({"a/here": "."}, []),
    "to the root": ({"a/up": "..", "a/p/upper": "../.."}, []),
    "above the root": ({"a/far": "../../.."}, []),
    "two up": ({"a/one": "..", "a/two": "..", "a/p/three": "..", "a/p/four": ".."}, []),
    "that cross": ({"a/p/l": "../q", "a/q/l": "../p"}, ["a/q/z.png"]),
    "that cross classes": ({"a/p/l": "../../b", "b/l": "../a"}, ["a/p/l/w.png"]),
    "twice to one folder": ({"a/l1": "../other", "a/l2": "../other"}, ["a/l1/v.png"]),
    "to a folder that is there": ({"a/l": "p", "a/again": "p"}, []),
    "through a link": ({"a/l1": "l2", "a/l2": "l3", "a/l3": "p"}, []),
    "to a file": ({"a/f.png": "x.png", "a/g.png": "p/y.png"}, ["a/f.png", "a/g.png"]),
    "each to each": ({f"a/{i}/{j}": f"../{j}" for i in range(9) for j in range(9)}, [f"a/{i}/x.png" for i in range(9)]),
}


@pytest.mark.parametrize("case", LINKS)
def test_each_folder_is_entered_once(tmp_path: Path, case: str) -> None:
    links, more = LINKS[case]
    root = tmp_path / "deep" / "root"
    pixels = np.zeros((2, 2, 3), np.uint8)
    files = ["a/x.png", "a/p/y.png", "b/w.png", "other/v.png"]
    files += [name for name in more if len({*Path(name).parents}) == 3 and Path(name).parts[1] not in ("l1", "p")]
    for name in files:
        if name not in links:
            save(root / name, pixels)
    for name, target in links.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(target)
    found = names(ImageFolder(root))
    assert [name for name in found if name.startswith("a/")] == sorted(["a/x.png", "a/p/y.png", *more])
    through = ImageFolder(_linked(tmp_path, root))  # the same by another path to the root
    assert names(through) == found


def _linked(folder: Path, root: Path) -> Path:
    link = folder / "link"
    link.symlink_to(root)
    return link


def test_what_looks_like_an_image_and_is_none_is_left_out_with_one_warning(folder: Path) -> None:
    cats = folder / "cats"
    (cats / "gone.png").symlink_to("nowhere.png")
    (cats / "part2").symlink_to("/nowhere/at/all")
    (cats / "loop").symlink_to("loop")
    (cats / ".hidden.png").write_bytes(b"")
    (cats / "deep" / ".ipynb_checkpoints").mkdir()
    save(cats / "deep" / ".ipynb_checkpoints" / "a.png", np.zeros((2, 2, 3), np.uint8))
    os.mkfifo(cats / "pipe.png")
    os.mkfifo(cats / "pipe.txt")
    with pytest.warns(RuntimeWarning, match=r"ImageFolder: 4 entries of .* are left out: .*gone.png leads to nothing"):
        data = ImageFolder(folder)
    assert names(data) == ["birds/one.png", "cats/a.png", "cats/b.png", "cats/deep/a.PNG"]


def test_a_class_that_is_a_link_to_nothing_or_upwards(folder: Path) -> None:
    link = folder / "dogs"
    link.symlink_to("/nowhere/dogs")
    with pytest.raises(DataError, match=r"dogs: is a link to nothing, so a class may be missing; .*/nowhere/dogs"):
        ImageFolder(folder)
    for target in (".", "..", "../.."):
        link.unlink()
        link.symlink_to(target)
        with pytest.raises(DataError, match="dogs: is a link to a folder that it lies in"):
            ImageFolder(folder)
    link.unlink()
    link.symlink_to("cats")  # two classes of the same images
    assert len(ImageFolder(folder)) == 7


def test_a_folder_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"cats/deep: cannot be read as a folder of images: Permission denied"):
        ImageFolder(folder)


def test_names_that_are_no_utf8(folder: Path) -> None:
    strange = os.fsdecode(b"caf\xe9")
    save(folder / strange / "\u00fc.png", np.zeros((2, 2, 3), np.uint8))
    (folder / strange / os.fsdecode(b"\xff.png")).write_bytes(b"")
    data = ImageFolder(folder)
    assert data.classes == ["birds", strange, "cats"] or data.classes == ["birds", "cats", strange]
    index = next(i for i, (path, _) in enumerate(data.samples) if path.name != "\u00fc.png" and strange in str(path))
    with pytest.raises(DataError, match=r"caf\\xe9/\\xff\.png: cannot be decoded: it is empty") as error:
        data[index]
    print(error.value)  # no UnicodeEncodeError


def test_endings(folder: Path) -> None:
    save(folder / "cats" / "c.JPEG", np.zeros((2, 2, 3), np.uint8))
    for extensions in (".png", [".PNG"], (".Png",)):
        assert len(ImageFolder(folder, extensions=extensions)) == 4
    assert len(ImageFolder(folder)) == 5
    for wrong in ([], "", [""], [1], None):
        with pytest.raises(DataError, match=r"ImageFolder: extensions is "):
            ImageFolder(folder, extensions=wrong)  # type: ignore[arg-type]


def test_damaged_images_and_empty_classes_are_skipped_if_that_is_asked_for(folder: Path) -> None:
    """All of it is listed, with one warning, and the classes that are left are numbered anew."""
    (folder / "cats" / "a.png").write_bytes(b"")
    whole = (folder / "cats" / "b.png").read_bytes()
    (folder / "cats" / "b.png").write_bytes(whole[: len(whole) // 2])
    for name in ("apes", "birds2", "dogs"):
        (folder / name).mkdir()
    (folder / "birds2" / "page.jpg").write_text("<html>")
    (folder / "dogs" / "link.png").symlink_to("nowhere")
    save(folder / "elks" / "e.png", np.zeros((2, 2, 3), np.uint8))
    with pytest.raises(DataError, match=r"apes: has no image; endings are \.jpg"):
        ImageFolder(folder)
    with pytest.warns(RuntimeWarning, match=r"ImageFolder: 7 entries of .* are left out: .*; \.\.$") as warned:
        data = ImageFolder(folder, size=8, on_error="skip")
    assert len(warned) == 1
    assert data.classes == ["birds", "cats", "elks"]
    assert data.class_to_idx == {"birds": 0, "cats": 1, "elks": 2}
    assert names(data) == ["birds/one.png", "cats/deep/a.PNG", "elks/e.png"]
    assert data.batch(np.arange(3))[1].tolist() == data.targets.tolist() == [0, 1, 2]
    assert [(str(path.relative_to(folder)), reason) for path, reason in data.skipped] == [
        ("apes", f"has no image; endings are {', '.join(EXTENSIONS)}"),
        ("dogs/link.png", "leads to nothing"),
        ("dogs", f"has no image; endings are {', '.join(EXTENSIONS)}"),
        ("birds2/page.jpg", data.skipped[3][1]),
        ("cats/a.png", data.skipped[4][1]),
        ("cats/b.png", data.skipped[5][1]),
        ("birds2", "has no image that can be decoded"),
    ]
    assert [text[:33] for _, text in data.skipped[3:5]] == [
        "cannot be decoded: it is an HTML ",
        "cannot be decoded: it is empty; e",
    ]
    assert data.skipped[5][1].startswith("cannot be decoded: ")
    again = pickle.loads(pickle.dumps(data))
    assert (again.samples == data.samples, again.skipped == data.skipped) == (True, True)


def test_nothing_is_skipped_of_a_whole_folder(folder: Path) -> None:
    data = ImageFolder(folder, on_error="skip")
    assert (names(data), data.skipped) == (names(ImageFolder(folder)), [])
    with pytest.raises(DataError, match="ImageFolder: on_error is 'ignore', expected 'raise' or 'skip'"):
        ImageFolder(folder, on_error="ignore")


def test_a_folder_of_which_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match=r"has no image; .*a has no image; endings"):
        ImageFolder(tmp_path, on_error="skip")
    (tmp_path / "a" / "x.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"has no image that can be decoded; .*x\.png cannot be decoded: it is empty"):
        ImageFolder(tmp_path, on_error="skip")


def test_what_the_machine_refuses_is_not_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files, a network that is down or too little memory say nothing about an image."""
    for error in (PermissionError(13, "Permission denied"), OSError(24, "Too many open files"), MemoryError()):

        def refuse(*arguments: Any, error: BaseException = error, **options: Any) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(Image, "open", refuse)
            with pytest.raises(DataError, match=r"one\.png: cannot be decoded: "):
                ImageFolder(folder, on_error="skip")


def test_samples_are_a_sequence(folder: Path) -> None:
    samples = ImageFolder(folder).samples
    assert samples[-1] == samples[3] == (folder / "cats" / "deep" / "a.PNG", 1)
    assert samples[1:3] == list(samples)[1:3]
    assert samples == list(samples)
    assert samples != list(samples)[1:]
    assert (folder / "cats" / "b.png", 1) in samples
    for wrong in (4, -5):
        with pytest.raises(IndexError):
            samples[wrong]
    data = ImageFolder(folder)
    np.testing.assert_array_equal(data[-1][0], data[3][0])
