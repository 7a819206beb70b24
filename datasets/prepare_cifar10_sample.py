"""Makes cifar10-sample.zip, the shipped sample, from the full CIFAR-10 in its binary form.

    python datasets/prepare_cifar10_sample.py [FOLDER]

FOLDER holds data_batch_1.bin .. data_batch_5.bin and test_batch.bin (default: the folder beside
this script that --data full downloads to). Of each class the first 500 train and the first 100
test images are taken, in the order of the files, so the same pixels come out every time.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from alpha.data import Cifar10
from alpha.data.array_datasets import ArrayDataset
from alpha.data.cifar.cifar10 import CLASSES, FOLDER
from alpha.data.cifar.sample import FILE, STRIP, TEST, TRAIN, Split, digest
from alpha.errors import DataError

HERE = Path(__file__).resolve().parent


def write_split(archive: zipfile.ZipFile, dataset: ArrayDataset, split: Split) -> None:
    """Adds the first `split.per_class` images of every class; prints their checksum."""
    first = [np.flatnonzero(dataset.labels == label)[: split.per_class] for label in range(len(CLASSES))]
    chosen = np.sort(np.concatenate(first))
    images, labels = dataset.images[chosen], dataset.labels[chosen].astype(np.uint8)
    write_member(archive, f"{split.name}/labels", labels.tobytes())
    for index, start in enumerate(range(0, len(images), STRIP)):
        strip = images[start : start + STRIP].reshape(-1, 32, 3)
        encoded = io.BytesIO()
        Image.fromarray(strip).save(encoded, "WEBP", lossless=True, quality=100, method=6)
        write_member(archive, f"{split.name}/{index:03d}.webp", encoded.getvalue())
    print(f"{split.name:5} {len(images):5,} images  sha256 {digest(images, labels)}")


def write_member(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """A member with a fixed date, so that equal content gives an equal archive."""
    archive.writestr(zipfile.ZipInfo(name), data)


def main(folder: Path) -> None:
    target = HERE / FILE
    part = target.with_suffix(".part")
    try:
        train, test = Cifar10(folder, train=True), Cifar10(folder, train=False)
    except DataError as error:
        sys.exit(f"prepare_cifar10_sample: {error}")
    with zipfile.ZipFile(part, "w") as archive:
        write_split(archive, train, TRAIN)
        write_split(archive, test, TEST)
    part.replace(target)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / FOLDER)
