"""Packed images: one file that is made once, is checked, and is never taken for whole when it is not."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import shutil
import signal
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest
from PIL import Image

from alpha.data import ArrayDataset, DataLoader, ImageFolder, PackedImages, Subset
from alpha.data.images import packed_file
from alpha.data.images.decoding import Decoder
from alpha.errors import DataError
from alpha.train.batches.host import is_plain

COUNTS = {"birds": 5, "cats": 14}
COUNT, SIZE = 19, 8
IMAGE = SIZE * SIZE * 3


@pytest.fixture
def photos(tmp_path: Path, rng: np.random.Generator) -> Path:
    for name, count in COUNTS.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 256, (12, 16, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{index:02}.jpg")
    return tmp_path / "photos"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "photos.alpha"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are decoded during a test."""
    names: list[str] = []
    call = Decoder.__call__

    def noted(self: Decoder, path: str, size: Any) -> Image.Image:
        names.append(Path(path).name)
        return call(self, path, size)

    monkeypatch.setattr(Decoder, "__call__", noted)
    return names


def entries(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def same(data: PackedImages, photos: Path) -> bool:
    folder = ImageFolder(photos, SIZE)
    images, labels = folder.batch(np.arange(len(folder)))
    return bool((np.asarray(data.images) == images).all() and (data.labels == labels).all())


def test_a_file_is_made_once_and_is_an_array_dataset(photos: Path, path: Path, decoded: list[str]) -> None:
    data = PackedImages(photos, SIZE, path)
    assert len(decoded) == COUNT
    again = PackedImages(photos, SIZE, path)
    assert len(decoded) == COUNT
    assert same(again, photos)
    assert (again.images.shape, again.images.dtype, again.labels.dtype) == ((COUNT, 8, 8, 3), np.uint8, np.int32)
    assert (data.classes, data.skipped, data.path) == (("birds", "cats"), [], path)
    assert isinstance(data.images, np.memmap)
    assert is_plain(data, ArrayDataset)
    assert is_plain(Subset(data, [0]), Subset)
    assert "Pillow " in data.decoder
    assert entries(path.parent) == ["photos", "photos.alpha"]
    shutil.rmtree(photos)
    loaded = PackedImages.load(path)
    np.testing.assert_array_equal(loaded.images, data.images)
    with pytest.raises(DataError, match=r"nowhere\.alpha: is missing"):
        PackedImages.load(path.with_name("nowhere.alpha"))


def test_rectangles_and_the_usual_place(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: list[str]
) -> None:
    monkeypatch.setenv("ALPHA_DATA_DIR", str(tmp_path / "data"))
    data = PackedImages(photos, (6, 10))
    assert data.images.shape == (COUNT, 6, 10, 3)
    assert data.path.parent == tmp_path / "data" / "packed"
    assert data.path.name.startswith("photos-6x10-")
    assert (data.path.parent / ".gitignore").read_text() == "*\n"
    assert PackedImages(photos, 6).path != data.path
    monkeypatch.chdir(tmp_path)
    count = len(decoded)
    assert PackedImages("photos", (6, 10)).path == data.path
    assert len(decoded) == count


def test_images_are_read_in_the_order_of_the_file_and_given_as_asked(photos: Path, path: Path) -> None:
    rows, order = PackedImages(photos, SIZE, path, check=False).images, []
    plain = np.array(PackedImages(photos, SIZE, path).images)
    checks = rows._checks
    seen = packed_file.zlib.crc32

    def noted(data: Any) -> int:
        order.append(next(i for i in range(COUNT) if (plain[i] == data).all()))
        return seen(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_file.zlib, "crc32", noted)
        indices = np.array([7, 2, 18, 2, -1])
        np.testing.assert_array_equal(rows[indices], plain[indices])
        assert order == [2, 7, 18]
        np.testing.assert_array_equal(rows[indices], plain[indices])
        assert order == [2, 7, 18]  # each once
    cases: list[Any] = [3, -1, slice(2, 5), (4, slice(None), 0), (slice(None), 1), ..., None, (), [1, 0], np.arange(0)]
    cases += [plain[:, 0, 0, 0] > 90, np.array([[1, 2], [3, 4]]), (np.array([1, 2]), 0), np.int64(2), np.array(3)]
    for index in cases:
        np.testing.assert_array_equal(rows[index], plain[index])
    assert not checks._left
    assert not rows.flags.writeable
    with pytest.raises(IndexError):
        rows[COUNT]
    with pytest.raises(IndexError):
        rows[np.array([0, COUNT])]


def test_a_loader_and_copies_of_it(photos: Path, path: Path) -> None:
    data = PackedImages(photos, SIZE, path)
    batches = [images for images, _ in DataLoader(data, 4, shuffle=True, seed=3, num_workers=2)]
    order = DataLoader(data, 4, shuffle=True, seed=3).take_epoch()[0]
    np.testing.assert_array_equal(np.concatenate(batches), np.asarray(data.images)[order])
    text = pickle.dumps(data)
    assert len(text) < COUNT * IMAGE
    for other in (pickle.loads(text), copy.deepcopy(data)):
        np.testing.assert_array_equal(other.images, data.images)
        assert (other.labels == data.labels).all()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data.images[3:5])), data.images[3:5])
    (photos / "cats" / "new.jpg").write_bytes((photos / "cats" / "00.jpg").read_bytes())
    with pytest.warns(RuntimeWarning, match="made anew"):
        PackedImages(photos, SIZE, path)
    with pytest.raises(DataError, match=r"photos\.alpha: was made anew since the dataset was"):
        pickle.loads(text)
    assert len(data.batch(np.arange(COUNT))[0]) == COUNT  # the old file, as long as it is open


def change_size(photos: Path) -> None:
    Image.new("RGB", (9, 9)).save(photos / "cats" / "03.jpg")


def change_time(photos: Path) -> None:
    os.utime(photos / "cats" / "03.jpg", ns=(5, 5))


def change_class(photos: Path) -> None:
    (photos / "cats").rename(photos / "dogs")


def remove(photos: Path) -> None:
    (photos / "cats" / "03.jpg").unlink()


@pytest.mark.parametrize("change", [change_size, change_time, change_class, remove])
def test_a_file_of_other_images_is_made_anew(photos: Path, path: Path, change: Any) -> None:
    PackedImages(photos, SIZE, path)
    change(photos)
    with pytest.warns(RuntimeWarning, match=r"photos\.alpha: the images in .*photos have changed; it is made anew"):
        data = PackedImages(photos, SIZE, path)
    assert same(data, photos)
    with pytest.warns(RuntimeWarning, match=r"has images of the size \[8, 8\], expected \[4, 4\]; it is made anew"):
        PackedImages(photos, 4, path)


def flipped(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Any, str]] = {
    "in an image": (lambda path: flipped(path, packed_file.PAGE + 5 * IMAGE + 7), "image 5 is damaged: its CRC-32 is"),
    "in a label": (
        lambda path: flipped(path, packed_file.PAGE + COUNT * IMAGE),
        "is damaged in the list of its images",
    ),
    "in the text": (lambda path: flipped(path, -3), "is damaged in the list of its images"),
    "in the beginning": (lambda path: flipped(path, 20), "is damaged in its first bytes"),
    "cut off": (lambda path: os.truncate(path, 4000), r"has 4,000 bytes, expected \d"),
    "cut off at the beginning": (lambda path: os.truncate(path, 10), "is no whole file of packed images"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"x"), r"has [\d,]+ bytes, expected \d"),
    "empty": (lambda path: path.write_bytes(b""), "is no whole file of packed images"),
    "cut off in the first word": (lambda path: os.truncate(path, 3), "is no whole file of packed images"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_made_anew(photos: Path, path: Path, kind: str) -> None:
    PackedImages(photos, SIZE, path)
    damage, reason = DAMAGES[kind]
    damage(path)
    with pytest.raises(DataError, match=rf"photos\.alpha: {reason}"):
        PackedImages.load(path)
    with pytest.warns(RuntimeWarning, match=rf"photos\.alpha: {reason}.*; it is made anew"):
        data = PackedImages(photos, SIZE, path)
    assert same(data, photos)
    assert same(PackedImages(photos, SIZE, path), photos)


@pytest.mark.parametrize("content", [b"My thesis", b"x", b"PK\3\4" + bytes(9999), bytes(99), b"ALPHAPK2" + bytes(99)])
@pytest.mark.parametrize("ending", ["", ".part"])
def test_a_file_of_somebody_else_is_never_overwritten(photos: Path, path: Path, content: bytes, ending: str) -> None:
    if ending and not any(content):  # which a process that was killed leaves
        return
    other = path.with_name(path.name + ending)
    other.write_bytes(content)
    os.utime(other, ns=(5, 5))
    with pytest.raises(DataError, match=rf"photos\.alpha{ending}: is .* give another path=, or remove it"):
        PackedImages(photos, SIZE, path)
    assert (other.read_bytes(), other.stat().st_mtime_ns) == (content, 5)
    assert entries(path.parent) == sorted(["photos", other.name])
    other.unlink()
    assert same(PackedImages(photos, SIZE, path), photos)


@pytest.mark.parametrize("kind", ["a folder", "a pipe, a socket or a device"])
def test_what_is_no_file_is_refused_before_the_work_begins(photos: Path, path: Path, kind: str) -> None:
    path.mkdir() if kind == "a folder" else os.mkfifo(path)
    for make in (lambda: PackedImages(photos, SIZE, path), lambda: PackedImages.load(path)):
        with pytest.raises(DataError, match=rf"photos\.alpha: is {kind}, not a file; give the path of a file"):
            make()
    assert entries(path.parent) == ["photos", "photos.alpha"]


def made_up(count: int, size: tuple[int, int], rest: bytes, pixels: int) -> bytes:
    """A packed file with right checksums, whatever it holds."""
    begin = packed_file.PAGE + pixels
    start = packed_file._START.pack(packed_file._MAGIC, count, *size, begin, len(rest), 0, zlib.crc32(rest))
    start += packed_file._START_CRC.pack(zlib.crc32(start))
    return start + bytes(begin - len(start)) + rest


ABOUT = b'{"root": "x", "decoder": "y", "classes": ["a"], "skipped": []}'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (made_up(0, (2, 2), ABOUT, 0), "says of itself that it has 0 images of 2 x 2, which it has not"),
        (made_up(1 << 60, (1 << 40, 1), ABOUT, 12), "says of itself that it has .* images of 1,099,511,627,776 x 1"),
        (made_up(1, (2, 2), b"{}", 12), "says of itself that it has 1 images of 2 x 2, which it has not"),
        (made_up(1, (2, 2), bytes(8), 12), "has a text at its end that cannot be read: JSONDecodeError"),
        (made_up(1, (2, 2), bytes(8) + b"[" * 99_999, 12), "has a text at its end that cannot be read: RecursionError"),
        (made_up(1, (2, 2), bytes(8) + b"[]", 12), "has a text at its end that cannot be read: TypeError"),
        (made_up(1, (2, 2), bytes(8) + ABOUT.replace(b'"x"', b"3"), 12), "cannot be read: a name is no text"),
        (made_up(1, (2, 2), bytes(8) + ABOUT.replace(b"[]", b'["abc"]'), 12), "cannot be read: ValueError"),
        (made_up(1, (2, 2), b"\1" + bytes(7) + ABOUT, 12), "image 0 is damaged"),
    ],
    ids=range(9),
)
def test_a_file_that_was_made_up_is_refused(path: Path, content: bytes, reason: str) -> None:
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"photos\.alpha: .*{reason}"):
        PackedImages.load(path)


def test_a_damaged_image_of_a_large_file_is_found_when_it_is_read(photos: Path, path: Path) -> None:
    PackedImages(photos, SIZE, path)
    flipped(path, packed_file.PAGE + 5 * IMAGE + 7)
    data = PackedImages(photos, SIZE, path, check=False)
    data.batch(np.array([4, 6]))
    for read in (lambda: data[5], lambda: data.batch(np.array([6, 5])), lambda: data.images[:], lambda: data[-14]):
        with pytest.raises(DataError, match=r"image 5 is damaged: .* make the dataset with check=True, which makes"):
            read()
    with pytest.warns(RuntimeWarning, match="image 5 is damaged"):
        assert same(PackedImages(photos, SIZE, path, check=True), photos)


def test_damaged_images_are_found_while_they_are_packed(photos: Path, path: Path, decoded: list[str]) -> None:
    whole = (photos / "cats" / "07.jpg").read_bytes()
    (photos / "cats" / "07.jpg").write_bytes(whole[:300])
    (photos / "apes").mkdir()
    for _ in range(2):
        with pytest.raises(DataError, match="apes: has no image"):
            PackedImages(photos, SIZE, path)
    (photos / "apes" / "only.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"only\.jpg: cannot be decoded: it is empty"):
        PackedImages(photos, SIZE, path)
    assert entries(path.parent) == ["photos"]
    decoded.clear()
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"PackedImages: 3 entries of .*only\.jpg cannot.*07\.jpg cannot.*apes"):
            data = PackedImages(photos, SIZE, path, on_error="skip")
    assert len(decoded) == COUNT + 1  # by the first of the two
    assert (len(data), data.classes) == (COUNT - 1, ("birds", "cats"))
    with pytest.warns(RuntimeWarning, match="ImageFolder: 3 entries"):
        folder = ImageFolder(photos, SIZE, on_error="skip")
    assert data.skipped == folder.skipped
    np.testing.assert_array_equal(data.labels, folder.targets)
    np.testing.assert_array_equal(data.images, folder.batch(np.arange(COUNT - 1))[0])
    (photos / "apes" / "only.jpg").unlink()
    (photos / "apes").rmdir()
    with (
        pytest.warns(RuntimeWarning, match="the images in .* have changed"),
        pytest.raises(DataError, match=r"07\.jpg: cannot be decoded"),
    ):
        PackedImages(photos, SIZE, path)
    path.unlink()
    with pytest.warns(RuntimeWarning, match="PackedImages: 1 entries"):
        PackedImages(photos, SIZE, path, on_error="skip")
    with (
        pytest.warns(RuntimeWarning, match="was made without 1 damaged images; it is made anew"),
        pytest.raises(DataError, match=r"07\.jpg: cannot be decoded"),
    ):
        PackedImages(photos, SIZE, path)


def test_a_full_disk_is_known_before_the_work_begins(
    photos: Path, path: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(path.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=5000))
    with pytest.raises(
        DataError, match=r"photos\.alpha: needs \d,\d{3} bytes, and its disk has 5,000 bytes free; give"
    ):
        PackedImages(photos, SIZE, path)
    assert (decoded, entries(path.parent)) == ([], ["photos"])


def test_a_disk_that_is_full_later(photos: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, pixels: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(packed_file.Part, "write", full)
    with pytest.raises(DataError, match=r"photos\.alpha: cannot be written: No space left on device"):
        PackedImages(photos, SIZE, path)
    assert entries(path.parent) == ["photos"]
    with pytest.raises(DataError, match=r"x\.alpha: cannot be written: No such file or directory"):
        PackedImages(photos, SIZE, path.parent / "nowhere" / "x.alpha")


KILLED = """
import sys
from alpha.data import PackedImages
from alpha.data.images.decoding import Decoder

decode, count = Decoder.__call__, 0

def waiting(self, path, size):
    global count
    count += 1
    if count == 18:
        print("packing", flush=True)
        sys.stdin.readline()
    return decode(self, path, size)

Decoder.__call__ = waiting
PackedImages(sys.argv[1], 8, sys.argv[2], workers=1)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_nothing_that_is_taken_for_whole(photos: Path, path: Path) -> None:
    process = child.start([sys.executable, "-c", KILLED, photos, path], stdin=-1, stdout=-1)
    assert process.stdout is not None
    assert process.stdout.readline() == "packing\n"
    process.send_signal(signal.SIGKILL)
    child.finish(process)
    part = path.with_name("photos.alpha.part")
    assert part.exists()
    assert not path.exists()
    with pytest.raises(DataError, match="is no whole file of packed images"):
        PackedImages.load(part)
    assert same(PackedImages(photos, SIZE, path), photos)
    assert not part.exists()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, decoded: list[str]) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Events: the first one is set when an image is decoded, which waits for the second one."""
    begun, go = threading.Event(), threading.Event()
    call = Decoder.__call__

    def held(self: Decoder, path: str, size: Any) -> Image.Image:
        begun.set()
        assert go.wait(child.HANG_S)
        return call(self, path, size)

    monkeypatch.setattr(Decoder, "__call__", held)
    yield begun, go
    go.set()


@pytest.mark.parametrize("first_fails", [False, True])
@pytest.mark.skipif(packed_file.fcntl is None, reason="needs locks of files")
def test_of_two_that_pack_at_once_one_waits(
    photos: Path,
    path: Path,
    decoded: list[str],
    gate: tuple[threading.Event, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
    first_fails: bool,
) -> None:
    found: list[PackedImages | Exception] = []

    def pack() -> None:
        try:
            found.append(PackedImages(photos, SIZE, path))
        except DataError as error:
            found.append(error)

    waits = threading.Event()
    finish = packed_file.Part.finish

    faults = ["a broken disk"] * first_fails

    def failing(self: Any, *arguments: Any) -> None:
        if faults:
            raise OSError(errno.EIO, faults.pop())
        finish(self, *arguments)

    monkeypatch.setattr(packed_file.Part, "finish", failing)
    monkeypatch.setattr(warnings, "warn", lambda text, *_, **__: "waiting for it" in text and waits.set())
    threads = [threading.Thread(target=pack) for _ in range(2)]
    threads[0].start()
    assert gate[0].wait(child.HANG_S)
    threads[1].start()
    assert waits.wait(child.HANG_S)
    gate[1].set()
    for thread in threads:
        thread.join(child.HANG_S)
    errors = [error for error in found if isinstance(error, Exception)]
    assert ["a broken disk" in str(error) for error in errors] == [True] * first_fails
    found = [data for data in found if data not in errors]
    assert len(decoded) == COUNT * (1 + first_fails)
    assert all(isinstance(data, PackedImages) and same(data, photos) for data in found)
    assert len(found) == 2 - first_fails
    assert entries(path.parent) == ["photos", "photos.alpha"]


def test_without_locks_of_files_whoever_comes_last_names_the_file(
    photos: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_file, "fcntl", None)
    path.with_name("photos.alpha.part").write_bytes(b"of another process")
    assert same(PackedImages(photos, SIZE, path), photos)
    assert path.with_name("photos.alpha.part").read_bytes() == b"of another process"
    assert len(entries(path.parent)) == 3
