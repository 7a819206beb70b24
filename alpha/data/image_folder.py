"""A folder of images, one folder per class, decoded when they are asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from alpha import rng
from alpha.data.checks import say_where
from alpha.data.collate import collate
from alpha.data.dataset import Batch, Dataset
from alpha.errors import DataError

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder(Dataset[tuple[Any, int]]):
    """Images `root/CLASS/.../NAME.EXT` with the numbers of their classes, which are the sorted names of the folders.

    An item is (image (H, W, 3) uint8, class); a batch is decoded by several threads: (B, H, W, 3) uint8 and (B,) int32.

    Args:
        size: (height, width), or one number for both: each image is scaled so that it just covers this size, and its
            middle is taken. Without it, the images of a batch must have one size.
        transform: takes the RGB image of Pillow (after `size`) and returns an image or an array. It runs in several
            threads. Augmentation on the device is in `alpha.transforms`.
        target_transform: takes the number of the class and returns another one.
        extensions: the endings of images, in small letters.
        workers: threads that decode a batch; by default as many as there are cores, at most 16.

    Attributes:
        classes: the names of the classes, in order.
        class_to_idx: the number of each class.
        samples: (path, class) of each image, in order.

    Raises:
        DataError: there is no such folder, or a class without an image; or, when it is read, an image that cannot be
            decoded. The message names the file.
    """

    def __init__(
        self,
        root: str | Path,
        size: int | tuple[int, int] | None = None,
        transform: Callable[[Image.Image], Any] | None = None,
        target_transform: Callable[[int], int] | None = None,
        extensions: Sequence[str] = EXTENSIONS,
        workers: int | None = None,
    ) -> None:
        self.root = Path(root)
        self.size = None if size is None else _size(size)
        self.transform, self.target_transform = transform, target_transform
        if workers is not None and not _is_length(workers):
            raise DataError(f"ImageFolder: workers is {workers!r}, expected a whole number, 1 or more")
        self.workers = workers or min(16, os.cpu_count() or 1)
        self.classes = _classes(self.root)
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples = [sample for name in self.classes for sample in self._of_class(name, tuple(extensions))]
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def _of_class(self, name: str, extensions: tuple[str, ...]) -> list[tuple[Path, int]]:
        """The images below a folder, sorted by their paths."""
        paths = [
            Path(folder, file)
            for folder, _, files in os.walk(self.root / name, followlinks=True)
            for file in files
            if file.lower().endswith(extensions)
        ]
        if not paths:
            raise DataError(f"{self.root / name}: has no image; endings are {', '.join(extensions)}")
        return [(path, self.class_to_idx[name]) for path in sorted(paths)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """An image and its class. Raises IndexError if there is none, DataError if it cannot be decoded."""
        path, label = self.samples[index]
        try:
            with Image.open(path) as file:
                image = _rgb(file)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{path}: cannot be decoded: {error}") from error
        if self.size is not None:
            image = _covering(image, self.size)
        values = image if self.transform is None else self.transform(image)
        label = label if self.target_transform is None else self.target_transform(label)
        return (np.asarray(values) if isinstance(values, Image.Image) else values), label

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        """The images of `indices` (B,), stacked, and their classes (B,) int32.

        Raises:
            DataError: an image cannot be decoded, or the images have several sizes.
        """
        places = [int(index) for index in indices]
        draws = rng.split(len(places))  # a transform may draw, and threads come in any order
        images, labels = collate(list(self._threads().map(self._item, places, draws)), places)
        return images, labels.astype(np.int32)

    def _item(self, index: int, draws: rng.Place) -> tuple[Any, int]:
        try:
            with rng.within(draws):
                return self[index]
        except Exception as error:
            say_where(error, f"ImageFolder: item {index}, {self.samples[index][0]}")
            raise

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="image-folder")
            return self._pool

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_pool")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _pool=None)


def _is_length(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


def _size(size: Any) -> tuple[int, int]:
    both = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(both) != 2 or not all(map(_is_length, both)):
        raise DataError(f"ImageFolder: size is {size!r}, expected a whole number, 1 or more, or a pair (height, width)")
    return int(both[0]), int(both[1])


def _classes(root: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{root}: cannot be read as a folder of images: {error.strerror}") from error
    if not names:
        raise DataError(f"{root}: has no folders; expected one per class, with its images")
    return names


def _rgb(file: Image.Image) -> Image.Image:
    """The image in RGB; of gray ones of 16 bits the upper 8, as Pillow keeps them of coloured ones."""
    if file.mode == "F" or file.mode.startswith("I"):  # which Pillow would cut off at 255
        values = np.asarray(file)
        if file.mode.startswith("I;16") or file.format in ("PNG", "PPM"):
            return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
        if not (values.min() >= 0 and values.max() <= 255):
            raise ValueError(
                f"its pixels have 32 bits, from {values.min()} to {values.max()}; only 0 to 255 can be shown in 8 bits"
            )
    return file.convert("RGB")


def _covering(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The middle of an image that was scaled so that it just covers the size (height, width)."""
    (height, width), (w, h) = size, image.size
    if (w, h) == (width, height):
        return image
    scale = max(width / w, height / h)
    left, top = max(0.0, (w - width / scale) / 2), max(0.0, (h - height / scale) / 2)  # of the part that is shown
    box = (left, top, w - left, h - top)
    return image.resize((width, height), Image.Resampling.BILINEAR, box=box, reducing_gap=3.0)
