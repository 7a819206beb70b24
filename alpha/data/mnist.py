"""MNIST and the sets of its form (Fashion-MNIST, KMNIST): images of 28 x 28 in four IDX files.

Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from alpha.config import user_path
from alpha.data.array_datasets import ArrayDataset
from alpha.errors import DataError
from alpha.io.reading import most_bytes, note

_FILES = {True: "train", False: "t10k"}


class Mnist(ArrayDataset):
    """The train set or the test set from `train-images-idx3-ubyte` and the other IDX files in `root`, or their `.gz`.

    `images` (N, H, W, 1) uint8, `labels` (N,) int32, `classes` the ten digits. Fashion-MNIST and others have files of
    the same names.

    Args:
        classes: the names of the classes, in order.

    Raises:
        DataError: a file is missing, damaged or no IDX file of bytes; the message names it.
    """

    def __init__(self, root: str | Path, train: bool = True, classes: tuple[str, ...] = tuple("0123456789")) -> None:
        part = _FILES[bool(train)]
        images = read_idx(user_path(root) / f"{part}-images-idx3-ubyte", axes=3)
        labels = read_idx(user_path(root) / f"{part}-labels-idx1-ubyte", axes=1)
        super().__init__(images[..., None], labels.astype(np.int32), classes)


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """The array of an IDX file of bytes with so many axes, or of the file with `.gz` behind its name.

    The file is two zeros, the type (8 for bytes), the number of axes, their lengths as big-endian 32-bit numbers, and
    the elements.

    Raises:
        DataError: there is no such file, or it is another one.
    """
    packed = path.with_name(path.name + ".gz")
    try:
        if path.is_file():
            size = path.stat().st_size
            with path.open("rb") as file:
                return _read(file, path, axes, size, size)
        if packed.is_file():
            path, size = packed, packed.stat().st_size
            with gzip.open(packed) as unpacked:
                return _read(unpacked, packed, axes, None, most_bytes(size))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}{note(path)}") from error
    raise DataError(f"{path}: there is no such file, nor {packed.name}")


def _read(file: IO[bytes] | gzip.GzipFile, path: Path, axes: int, size: int | None, most: int) -> NDArray[np.uint8]:
    """The array of an open file of `size` bytes, None for one that is unpacked as it is read, to `most` bytes."""
    head = file.read(4 + 4 * axes)
    if len(head) < 4 + 4 * axes or head[:4] != bytes((0, 0, 8, axes)):
        raise DataError(f"{path}: is no IDX file of bytes with {axes} axes{'' if size is None else note(path)}")
    lengths = tuple(np.frombuffer(head, ">u4", axes, 4).tolist())
    count = math.prod(lengths)
    if size is None and count > most:
        raise DataError(
            f"{path}: its lengths {lengths} need {count:,} bytes, of a packed file of this size {most:,} at most are "
            "read; unpack it"
        )
    have = None if size is None else size - len(head)
    if have is None or have == count:  # else nothing is read
        data = file.read(count)
        have = len(data) + len(file.read(1))
    if have != count:
        raise DataError(f"{path}: has {have:,} bytes of data, its lengths {lengths} need {count:,}")
    try:
        return np.frombuffer(data, np.uint8).reshape(lengths).copy()
    except ValueError as error:  # without elements, and too long for numpy
        raise DataError(f"{path}: its lengths {lengths} cannot be those of an array: {error}") from error
