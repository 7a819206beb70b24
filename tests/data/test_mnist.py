"""MNIST's IDX files and CIFAR-100's records: the reader's axes and labels, and files that are others."""

from __future__ import annotations

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from alpha.data import Cifar100, Mnist
from alpha.data.cifar import cifar100
from alpha.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)
LABELS = np.array([3, 0, 9, 9, 1], np.uint8)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(root: Path, packed: bool = False, part: str = "train") -> None:
    for name, array in ((f"{part}-images-idx3-ubyte", PIXELS), (f"{part}-labels-idx1-ubyte", LABELS)):
        if packed:
            (root / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (root / name).write_bytes(idx(array))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("train", [True, False])
def test_images_and_labels(tmp_path: Path, packed: bool, train: bool) -> None:
    write(tmp_path, packed, "train" if train else "t10k")
    dataset = Mnist(tmp_path, train=train)
    np.testing.assert_array_equal(dataset.images, PIXELS[..., None])
    np.testing.assert_array_equal(dataset.labels, LABELS)
    assert (dataset.images.dtype, dataset.labels.dtype) == (np.uint8, np.int32)
    assert dataset.classes == tuple("0123456789")
    dataset.images[0] = 1  # it is no read-only view of the file


def test_classes_of_another_set(tmp_path: Path) -> None:
    write(tmp_path)
    assert Mnist(tmp_path, classes=tuple("abcdefghij")).classes[1] == "b"
    with pytest.raises(DataError, match="labels run from 0 to 9, expected 0 to 4"):
        Mnist(tmp_path, classes=tuple("abcde"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], r"has 59 bytes of data, its lengths \(5, 4, 3\) need 60"),
        (lambda data: data + b"0", "has 61 bytes of data"),
        (  # products of more than 64 bits; the second one wraps to 0
            lambda data: data[:4] + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 60) + data[16:],
            r"has 60 bytes of data, its lengths \(4294967295, 4294967295, 60\) need 1,106,804,643,907,177,021,500",
        ),
        (
            lambda data: data[:4] + struct.pack(">3I", 2**31, 2**31, 4),
            r"has 0 bytes of data, its lengths \(2147483648, 2147483648, 4\) need 18,446,744,073,709,551,616",
        ),
        (
            lambda data: data[:4] + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 0),
            r"its lengths \(4294967295, 4294967295, 0\) cannot be those of an array",
        ),
        (lambda data: data[:7], "is no IDX file of bytes with 3 axes"),
        (lambda data: b"\x00\x00\x0d" + data[3:], "is no IDX file of bytes with 3 axes"),  # of floats
        (lambda data: idx(LABELS), "is no IDX file of bytes with 3 axes"),
    ],
)
def test_another_file_is_named(tmp_path: Path, damage, message: str) -> None:  # type: ignore[no-untyped-def]
    write(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=re.escape(str(path)) + ": " + message):
        Mnist(tmp_path)


def test_a_missing_and_a_damaged_gz_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte: there is no such file, nor .*\.gz"):
        Mnist(tmp_path)
    write(tmp_path, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"idx3-ubyte\.gz: cannot be read"):
        Mnist(tmp_path)


# -- CIFAR-100 --------------------------------------------------------------------------------------


@pytest.fixture
def hundred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three and two records: byte k of record r is (7 r + k) % 251; the labels are r and 10 r."""
    monkeypatch.setattr(cifar100, "_FILES", {True: ("train.bin", 3), False: ("test.bin", 2)})
    for name, count in cifar100._FILES.values():
        records = (np.add.outer(7 * np.arange(count), np.arange(cifar100._RECORD)) % 251).astype(np.uint8)
        records[:, 0], records[:, 1] = np.arange(count), 10 * np.arange(count)
        (tmp_path / name).write_bytes(records.tobytes())
    for kind, count in (("coarse", 20), ("fine", 100)):
        (tmp_path / f"{kind}_label_names.txt").write_text("".join(f"{kind}{i}\n" for i in range(count)))
    return tmp_path


def test_both_kinds_of_labels(hundred: Path) -> None:
    fine, coarse = Cifar100(hundred), Cifar100(hundred, train=False, labels="coarse")
    assert fine.images.shape == (3, 32, 32, 3)
    assert coarse.images.shape == (2, 32, 32, 3)
    assert fine.images[2, 3, 30, 1] == (14 + 2 + 1024 + 3 * 32 + 30) % 251
    assert (fine.labels.tolist(), coarse.labels.tolist()) == ([0, 10, 20], [0, 1])
    assert (fine.classes[99], coarse.classes[19]) == ("fine99", "coarse19")


def test_what_is_no_cifar_100(hundred: Path) -> None:
    with pytest.raises(ValueError, match="labels='both' is neither 'fine' nor 'coarse'"):
        Cifar100(hundred, labels="both")
    (hundred / "fine_label_names.txt").write_text("one two")
    with pytest.raises(DataError, match=r"fine_label_names\.txt: has 2 names, expected 100"):
        Cifar100(hundred)
    (hundred / "train.bin").write_bytes(b"short")
    with pytest.raises(DataError, match=r"train\.bin: 5 bytes, expected 9,222"):
        Cifar100(hundred)
    (hundred / "train.bin").unlink()
    with pytest.raises(DataError, match=r"train\.bin: cannot be read: No such file.*unpack cifar-100-binary"):
        Cifar100(hundred)
