"""CIFAR-100 in its official binary form.

A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from alpha.config import user_path
from alpha.data.array_datasets import ArrayDataset
from alpha.data.cifar.cifar10 import pixels_of
from alpha.errors import DataError
from alpha.io.reading import note

FOLDER = "cifar-100-binary"
_FILES = {True: ("train.bin", 50_000), False: ("test.bin", 10_000)}  # and their images
_RECORD = 2 + 3 * 32 * 32  # the bytes of both labels, then the pixels by channel, row, column
_MOST_OF_NAMES = 1 << 16  # bytes
_LABELS = {"coarse": (0, 20), "fine": (1, 100)}  # the byte of a record, and the number of classes


class Cifar100(ArrayDataset):
    """The train set (50,000 images) or the test set (10,000) from the files of `cifar-100-binary` in `root`.

    `images` (N, 32, 32, 3) uint8, `labels` (N,) int32, `classes` from `fine_label_names.txt` or
    `coarse_label_names.txt`, which the archive has, too.

    Args:
        labels: "fine", 100 classes, or "coarse", 20 of them.

    Raises:
        DataError: a file is missing or has another size; the message names it.
        ValueError: labels has another value.
    """

    def __init__(self, root: str | Path, train: bool = True, labels: str = "fine") -> None:
        if labels not in _LABELS:
            raise ValueError(f"Cifar100: labels={labels!r} is neither 'fine' nor 'coarse'")
        (name, count), (byte, classes) = _FILES[bool(train)], _LABELS[labels]
        path, names = user_path(root) / name, user_path(root) / f"{labels}_label_names.txt"
        try:
            size = path.stat().st_size  # a file of another size is not read
            data = path.read_bytes() if size == count * _RECORD else b""
            with names.open("rb") as file:
                text = file.read(_MOST_OF_NAMES + 1)
        except OSError as error:
            raise DataError(f"{error.filename}: cannot be read: {error.strerror}; unpack {FOLDER}.tar.gz") from error
        if size != count * _RECORD:
            raise DataError(f"{path}: {size:,} bytes, expected {count * _RECORD:,}{note(path)}")
        found = tuple(text.decode(errors="replace").split())
        if len(found) != classes or len(text) > _MOST_OF_NAMES:
            raise DataError(f"{names}: has {len(found)} names, expected {classes}{note(names)}")
        records = np.frombuffer(data, np.uint8).reshape(count, _RECORD)
        super().__init__(pixels_of(records[:, 2:]), records[:, byte].astype(np.int32), found)
