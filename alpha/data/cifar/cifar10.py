"""CIFAR-10 in its official binary form: the reader and where the files come from.

A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from alpha.config import user_path
from alpha.data.array_datasets import ArrayDataset
from alpha.data.download import Remote, download
from alpha.errors import DataError
from alpha.io.reading import note

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FOLDER = "cifar-10-batches-bin"
ARCHIVE = Remote(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    size=170_052_171,
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
TRAIN_FILES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
}
TEST_FILES = {"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"}

_RECORDS = 10_000  # a file
_RECORD = 1 + 3 * 32 * 32  # a label byte, then the pixels by channel, row, column
_FILE_SIZE = _RECORDS * _RECORD


class Cifar10(ArrayDataset):
    """The train set (50,000 images) or the test set (10,000) from the .bin files in `root`.

    `images` (N, 32, 32, 3) uint8, `labels` (N,) int32. Raises DataError, naming the file, where
    one is missing or its size or md5 is not the official one's.
    """

    def __init__(self, root: str | Path, train: bool = True) -> None:
        files = TRAIN_FILES if train else TEST_FILES
        parts = [_read(user_path(root) / name, md5) for name, md5 in files.items()]
        images, labels = zip(*parts, strict=True)
        super().__init__(np.concatenate(images), np.concatenate(labels), CLASSES)


def missing_files(root: Path) -> list[str]:
    """Names of the six files that are not in `root`."""
    return [name for name in (*TRAIN_FILES, *TEST_FILES) if not (root / name).is_file()]


def fetch_cifar10(root: Path, remote: Remote = ARCHIVE) -> None:
    """Downloads the official archive and unpacks its six .bin files into `root`.

    A broken download is resumed by the next call. Each file appears whole or not at all. Raises
    DataError with the reason.
    """
    archive = root.parent / remote.url.rpartition("/")[2]
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        download(remote, archive)
        root.mkdir(exist_ok=True)
        _unpack(archive, root)
        archive.unlink()
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{archive}: cannot be fetched and unpacked: {error}") from error


def _unpack(archive: Path, root: Path) -> None:
    # Only the six known names are written, by their base name: nothing in an archive can reach
    # outside `root`.
    wanted = {*TRAIN_FILES, *TEST_FILES}
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            source = tar.extractfile(member) if name in wanted else None
            if source is None:
                continue
            part = root / f"{name}.part"
            part.write_bytes(source.read(_FILE_SIZE))
            part.replace(root / name)
            wanted.remove(name)
            if not wanted:
                break
    if wanted:
        raise DataError(f"{archive}: has no {', '.join(sorted(wanted))}")


def _read(path: Path, md5: str) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    remedy = f"delete it and fetch it again from {ARCHIVE.url}"
    try:
        size = path.stat().st_size  # a file of another size is not read
        data = path.read_bytes() if size == _FILE_SIZE else b""
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; get it from {ARCHIVE.url}") from error
    if size != _FILE_SIZE:
        raise DataError(f"{path}: {size:,} bytes, expected {_FILE_SIZE:,}; {remedy}{note(path)}")
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != md5:
        raise DataError(f"{path}: md5 is {found}, expected {md5}; {remedy}")
    records = np.frombuffer(data, np.uint8).reshape(_RECORDS, _RECORD)
    return pixels_of(records[:, 1:]), records[:, 0].astype(np.int32)


def pixels_of(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images from their channels, rows and columns   (N, 3 * 32 * 32) -> (N, 32, 32, 3)"""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
