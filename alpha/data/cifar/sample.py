"""The CIFAR-10 sample that comes with Alpha: 5,000 train and 1,000 test images.

One zip holds both splits: `<split>/labels`, a byte an image, and `<split>/000.webp` and so on,
strips of 250 images one above the other, lossless. `datasets/prepare_cifar10_sample.py` writes it.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

from alpha.config import user_path
from alpha.data.array_datasets import ArrayDataset
from alpha.data.cifar.cifar10 import CLASSES
from alpha.errors import DataError
from alpha.installation import checkout
from alpha.io.reading import note, read_member

FILE = "cifar10-sample.zip"
STRIP = 250  # images; WebP ends at 16,383 rows
_STRIP_BYTES = STRIP * 32 * 32 * 3 + (1 << 16)  # no lossless strip is larger


@dataclass(frozen=True)
class Split:
    """A split's name, its images a class, and the sha256 of its labels and decoded pixels."""

    name: str
    per_class: int
    sha256: str


TRAIN = Split("train", 500, "17dc7d3f855fdc1a2e6a85f91832bf22d81405faaee4b8dc1ff17b844ed1bcf1")
TEST = Split("test", 100, "5956429b1632f22972492168741f3bca82246ddbb1c08b1b44c5a7d786e8fd9b")


# what zipfile and Pillow raise; RuntimeError is a password, NotImplementedError another compression
DAMAGES = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    SyntaxError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    Image.DecompressionBombError,
)


class Cifar10Sample(ArrayDataset):
    """A split of the sample at `path`: `images` (N, 32, 32, 3) uint8, `labels` (N,) int32.

    Raises DataError, naming the file, where it is missing, damaged or not the shipped sample.
    """

    def __init__(self, path: str | Path, train: bool = True) -> None:
        path, split = user_path(path), TRAIN if train else TEST
        if not features.check("webp"):
            raise DataError(f"{path}: this Pillow cannot read WebP; pip install --upgrade pillow")
        try:
            images, labels = _decode(path, split)
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such file; {restore()}") from error
        except DAMAGES as error:
            raise DataError(f"{path}: damaged ({error}); {restore()}{note(path)}") from error
        found = digest(images, labels)
        if found != split.sha256:
            raise DataError(
                f"{path}: sha256 of the {split.name} images is {found}, expected {split.sha256}; {restore()}"
            )
        super().__init__(images, labels.astype(np.int32), CLASSES)


def restore() -> str:
    """Advice on how to get the file that Alpha came with."""
    return "restore it with git checkout" if checkout() else "install Alpha again, which comes with it"


def digest(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> str:
    """sha256 of the labels' bytes and then the pixels'."""
    return hashlib.sha256(labels.tobytes() + images.tobytes()).hexdigest()


def _decode(path: Path, split: Split) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    count = split.per_class * len(CLASSES)
    with zipfile.ZipFile(path) as archive:
        labels = np.frombuffer(read_member(archive, f"{split.name}/labels", count), np.uint8)
        if len(labels) != count:
            raise ValueError(f"{split.name}/labels has {len(labels):,} bytes, expected {count:,}")
        names = [f"{split.name}/{index:03d}.webp" for index in range(-(-count // STRIP))]
        strips = [read_member(archive, name, _STRIP_BYTES) for name in names]
    with ThreadPoolExecutor() as pool:  # Pillow decodes outside the interpreter's lock
        pixels = list(pool.map(_pixels, strips))
    return np.concatenate(pixels).reshape(count, 32, 32, 3), labels


def _pixels(strip: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(strip), formats=["WEBP"]) as image:
        if image.width != 32 or image.height > 32 * STRIP:  # known before anything is decoded
            raise ValueError(f"a strip has {image.width:,} x {image.height:,} pixels, expected 32 x {32 * STRIP:,}")
        return np.asarray(image.convert("RGB"))
