"""The binary reader, the shipped sample, and what `--data` means."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from helpers import python_calls
from PIL import Image

from alpha import installation
from alpha.data import Cifar10, Cifar10Sample, resolve
from alpha.data.cifar import cifar10, source
from alpha.data.cifar.sample import FILE
from alpha.errors import DataError

SAMPLE = Path(__file__).parents[2] / "datasets" / FILE
RECORDS = 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small set in the official form: byte k of record r of file f is (f + r + k) % 251."""
    monkeypatch.setattr(cifar10, "_RECORDS", RECORDS)
    monkeypatch.setattr(cifar10, "_FILE_SIZE", RECORDS * cifar10._RECORD)
    root = tmp_path / cifar10.FOLDER
    root.mkdir()
    number = 0
    for table in ("TRAIN_FILES", "TEST_FILES"):
        sums = {}
        for name in getattr(cifar10, table):
            index = np.add.outer(np.arange(RECORDS), np.arange(cifar10._RECORD))
            records = ((index + number) % 251).astype(np.uint8)
            records[:, 0] = np.arange(RECORDS) % 10
            (root / name).write_bytes(records.tobytes())
            sums[name] = hashlib.md5(records.tobytes()).hexdigest()
            number += 1
        monkeypatch.setattr(cifar10, table, sums)
    return root


def test_reads_channel_planes_as_nhwc(folder: Path) -> None:
    train, test = Cifar10(folder), Cifar10(folder, train=False)
    assert train.images.shape == (5 * RECORDS, 32, 32, 3)
    assert test.images.shape == (RECORDS, 32, 32, 3)
    assert train.images.dtype == np.uint8
    assert train.images.flags.c_contiguous
    assert train.labels.dtype == np.int32
    assert test.labels.tolist() == [r % 10 for r in range(RECORDS)]
    record, row, column, channel = 7, 3, 30, 2
    byte = 1 + channel * 1024 + row * 32 + column
    assert test.images[record, row, column, channel] == (5 + record + byte) % 251


def test_a_truncated_file_is_named_with_both_sizes(folder: Path) -> None:
    path = folder / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-5])
    size = RECORDS * 3073
    with pytest.raises(DataError, match=rf"data_batch_3.bin: {size - 5:,} bytes, expected {size:,}"):
        Cifar10(folder)


def test_an_altered_file_is_named_with_both_sums(folder: Path) -> None:
    path = folder / "test_batch.bin"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    expected = cifar10.TEST_FILES["test_batch.bin"]
    with pytest.raises(DataError, match=rf"test_batch.bin: md5 is [0-9a-f]{{32}}, expected {expected}"):
        Cifar10(folder, train=False)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "data_batch_5.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_5.bin: cannot be read: No such file"):
        Cifar10(folder)


def test_the_sample_is_balanced_and_quick() -> None:
    assert SAMPLE.stat().st_size < 12e6
    parts: list[Cifar10Sample] = []
    calls = python_calls(lambda: parts.extend(Cifar10Sample(SAMPLE, train) for train in (True, False)))
    assert sum(calls.values()) < 6_000  # one for each image
    train, test = parts
    assert train.images.shape == (5000, 32, 32, 3)
    assert test.images.shape == (1000, 32, 32, 3)
    assert np.bincount(train.labels).tolist() == [500] * 10
    assert np.bincount(test.labels).tolist() == [100] * 10
    mean = train.images.mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(mean, [0.4914, 0.4822, 0.4465], atol=0.005)


def rewritten(path: Path, name: str, content: bytes | None) -> Path:
    """A copy of the sample with one member replaced, or left out."""
    with zipfile.ZipFile(SAMPLE) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            data = content if member == name else old.read(member)
            if data is not None:
                new.writestr(member, data)
    return path


def test_a_damaged_sample_is_named(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with pytest.raises(DataError, match=f"{FILE}: no such file"):
        Cifar10Sample(path)
    path.write_bytes(SAMPLE.read_bytes()[:1_000_000])
    with pytest.raises(DataError, match=f"{FILE}: damaged"):
        Cifar10Sample(path)
    with pytest.raises(DataError, match=f"{FILE}: damaged"):
        Cifar10Sample(rewritten(path, "test/000.webp", b"RIFF"), train=False)
    with pytest.raises(DataError, match=f"{FILE}: damaged"):
        Cifar10Sample(rewritten(path, "test/000.webp", None), train=False)
    with pytest.raises(DataError, match=f"{FILE}: sha256 of the test images is "):
        Cifar10Sample(rewritten(path, "test/labels", bytes(1000)), train=False)


def webp(width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height)).save(stream, "WEBP", lossless=True)
    return stream.getvalue()


def encrypted(path: Path) -> Path:
    """The sample with the flag of a password on every member."""
    data = bytearray(SAMPLE.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := data.find(signature, at + 1)) >= 0:
            data[at + offset] |= 1
    path.write_bytes(data)
    return path


def test_members_that_are_not_what_they_seem_are_data_errors(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with pytest.raises(DataError, match=rf"{FILE}: damaged \(.*(encrypted|password)"):
        Cifar10Sample(encrypted(path), train=False)
    for content, message in (
        (webp(33, 8000), "a strip has 33 x 8,000 pixels, expected 32 x 8,000"),
        (webp(32, 16383), "a strip has 32 x 16,383 pixels"),
        (b"", "cannot identify image file"),
    ):
        with pytest.raises(DataError, match=f"{FILE}: damaged .*{message}"):
            Cifar10Sample(rewritten(path, "test/000.webp", content), train=False)
    with pytest.raises(DataError, match=f"{FILE}: damaged .*test/labels has 999 bytes, expected 1,000"):
        Cifar10Sample(rewritten(path, "test/labels", bytes(999)), train=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test/labels", "test/000.webp"])
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / FILE
    with zipfile.ZipFile(SAMPLE) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(member, bytes(1 << 26) if member == name else old.read(member))
    read = zipfile.ZipFile.open

    def checked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
        assert member.filename != name
        return read(archive, member)

    monkeypatch.setattr(zipfile.ZipFile, "open", checked)
    with pytest.raises(DataError, match=f"{FILE}: damaged .*{name} has 67,108,864 bytes, expected at most"):
        Cifar10Sample(path, train=False)


def test_a_decompression_bomb_is_a_data_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # the strips have more than twice as many
    with pytest.raises(DataError, match=rf"{FILE}: damaged \(Image size .* exceeds limit"):
        Cifar10Sample(SAMPLE, train=False)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99, 0.9999])
def test_a_truncated_sample_is_named(tmp_path: Path, share: float) -> None:
    data = SAMPLE.read_bytes()
    (tmp_path / FILE).write_bytes(data[: int(share * len(data))])
    with pytest.raises(DataError, match=f"{FILE}: damaged"):
        Cifar10Sample(tmp_path / FILE)


def test_a_file_of_another_size_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "test_batch.bin"
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # sparse
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read"))
    with pytest.raises(DataError, match=r"test_batch.bin: 1,099,511,627,776 bytes, expected"):
        Cifar10(folder, train=False)


def unreachable(root: Path) -> None:
    raise DataError(f"no network for {root.name}")


def test_the_default_without_a_gpu_is_the_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALPHA_DATA_DIR", str(tmp_path))
    choice = resolve(None, has_gpu=False, fetch=unreachable)
    assert (choice.name, choice.path) == ("sample", SAMPLE)
    assert "no GPU" in str(choice)
    assert "\n" not in str(choice)


def test_the_default_with_a_gpu_is_the_full_set_where_it_can_be_had(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("ALPHA_DATA_DIR", str(folder.parent))
    choice = resolve(None, has_gpu=True, fetch=unreachable)
    assert (choice.name, choice.path, choice.reason) == ("full", folder, "present")
    assert [len(part) for part in choice.load()] == [5 * RECORDS, RECORDS]

    (folder / "test_batch.bin").unlink()
    choice = resolve(None, has_gpu=True, fetch=unreachable)
    assert choice.name == "sample"
    assert "no network for cifar-10-batches-bin" in str(choice)

    fetched: list[Path] = []
    choice = resolve(None, has_gpu=True, fetch=fetched.append)
    assert (choice.name, choice.reason) == ("full", "downloaded")
    assert fetched == [folder]


def test_full_says_what_to_do_where_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALPHA_DATA_DIR", str(tmp_path))
    with pytest.raises(DataError, match=r"no network .*or --data sample"):
        resolve("full", has_gpu=False, fetch=unreachable)


def test_a_folder(folder: Path, tmp_path: Path) -> None:
    for path in (folder, folder.parent):
        assert resolve(str(path), has_gpu=False, fetch=unreachable).path == folder
    (folder / "data_batch_2.bin").unlink()
    with pytest.raises(DataError, match=r"has no data_batch_2.bin; expected the binary version"):
        resolve(str(folder), has_gpu=True, fetch=unreachable)
    with pytest.raises(DataError, match="no such folder; expected sample, full or a folder"):
        resolve(str(tmp_path / "nowhere"), has_gpu=True, fetch=unreachable)


def test_a_wheel_without_the_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ALPHA_DATA_DIR", raising=False)
    monkeypatch.setenv("ALPHA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(installation, "PACKAGE", tmp_path / "site-packages" / "alpha")
    monkeypatch.setattr(source, "PACKAGE", tmp_path / "site-packages" / "alpha")
    assert installation.data_dir() == tmp_path / "cache" / "datasets"
    with pytest.raises(DataError, match="alpha/_datasets: install Alpha again, which comes with it, or take the whole"):
        resolve("sample", has_gpu=False, fetch=unreachable)


def test_names_and_sums_are_the_data_sets_own() -> None:
    assert " ".join(cifar10.CLASSES) == "airplane automobile bird cat deer dog frog horse ship truck"
    sums = {**cifar10.TRAIN_FILES, **cifar10.TEST_FILES}
    assert list(sums) == [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    assert all(re.fullmatch("[0-9a-f]{32}", md5) for md5 in sums.values())
    assert len(set(sums.values())) == 6
    assert re.fullmatch("[0-9a-f]{64}", cifar10.ARCHIVE.sha256)
