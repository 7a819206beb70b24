"""A folder of images, one folder per class, decoded when they are asked for."""

from __future__ import annotations

import errno
import os
import stat
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from alpha.config import user_path
from alpha.core import rng
from alpha.data.checks import say_where
from alpha.data.collate import collate
from alpha.data.dataset import Batch, Dataset
from alpha.data.images.image_files import opened, shown
from alpha.errors import DataError

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder(Dataset[tuple[Any, int]]):
    """Images `root/CLASS/.../NAME.EXT` with the numbers of their classes, which are the sorted names of the folders.

    Links are followed, as by torchvision, and each folder is entered once within a class: not again by another link,
    and not by a link to a folder that it lies in. A file counts under each of its names, so a link to a file counts.
    What begins with a dot is left out; so are links to nothing, and pipes, sockets and devices that have the name of an
    image, with a warning.

    Files are read in the formats AVIF, BMP, GIF, JPEG, JPEG 2000, PNG, PPM, TIFF and WebP, whatever their endings are.

    An item is (image (H, W, 3) uint8, class); a batch is decoded by several threads: (B, H, W, 3) uint8 and (B,) int32.

    Args:
        size: (height, width), or one number for both: each image is scaled so that it just covers this size, and its
            middle is taken. Without it, the images of a batch must have one size.
        transform: takes the RGB image of Pillow (after `size`) and returns an image or an array. It runs in several
            threads. Augmentation on the device is in `alpha.transforms`.
        target_transform: takes the number of the class and returns another one.
        extensions: the endings of images, such as ".png"; capitals and small letters are the same.
        workers: threads that decode a batch; by default as many as there are cores, at most 16.

    Attributes:
        classes: the names of the classes, in order.
        class_to_idx: the number of each class.
        samples: (path, class) of each image, in order.

    Raises:
        DataError: there is no such folder, one that cannot be read, a class without an image, or one that is a link to
            nothing or to a folder above; or, when it is read, an image that cannot be decoded. The message names it.
    """

    def __init__(
        self,
        root: str | Path,
        size: int | tuple[int, int] | None = None,
        transform: Callable[[Image.Image], Any] | None = None,
        target_transform: Callable[[int], int] | None = None,
        extensions: str | Sequence[str] = EXTENSIONS,
        workers: int | None = None,
    ) -> None:
        self.root = user_path(root)
        self.size = None if size is None else _size(size)
        self.transform, self.target_transform = transform, target_transform
        if workers is not None and not _is_length(workers):
            raise DataError(f"ImageFolder: workers is {workers!r}, expected a whole number, 1 or more")
        self.workers = workers or min(16, os.cpu_count() or 1)
        endings = _endings(extensions)
        self.classes = _classes(self.root)
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.samples: list[tuple[Path, int]] = []
        left_out: list[str] = []
        for number, name in enumerate(self.classes):
            paths = _images(self.root, name, endings, left_out)
            self.samples += [(path, number) for path in paths]
        if left_out:
            warnings.warn(
                f"ImageFolder: {len(left_out)} entries of {shown(self.root)} are left out: "
                f"{'; '.join(left_out[:5])}{'; ..' if len(left_out) > 5 else ''}",
                RuntimeWarning,
                stacklevel=2,
            )
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """An image and its class. Raises IndexError if there is none, DataError if it cannot be decoded."""
        path, label = self.samples[index]
        with opened(path) as file:
            image = _rgb(file)
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

    def _item(self, index: int, draws: rng.Substream) -> tuple[Any, int]:
        try:
            with rng.within(draws):
                return self[index]
        except Exception as error:
            say_where(error, f"ImageFolder: item {index}, {shown(self.samples[index][0])}")
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


def _endings(extensions: Any) -> tuple[str, ...]:
    given = (extensions,) if isinstance(extensions, str) or not isinstance(extensions, Iterable) else tuple(extensions)
    if not given or not all(isinstance(ending, str) and ending for ending in given):
        raise DataError(f"ImageFolder: extensions is {extensions!r}, expected endings such as '.png'")
    return tuple(ending.lower() for ending in given)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Entries of a folder, sorted by name, without those whose name begins with a dot."""
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{shown(folder)}: cannot be read as a folder of images: {error.strerror}") from error


def _status(path: str | Path) -> os.stat_result | None:
    """The status of what a path leads to, or None if it leads to nothing."""
    try:
        return os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise DataError(f"{shown(path)}: cannot be read: {error.strerror}") from error


def _identity(path: str | Path) -> tuple[int, int]:
    """The same for all paths to one folder."""
    status = _status(path)
    return (0, 0) if status is None else (status.st_dev, status.st_ino)


def _around(folder: Path) -> set[tuple[int, int]]:
    """The folders that a folder lies in, also those that a link to it lies in."""
    return {_identity(parent) for path in (folder.absolute(), folder.resolve()) for parent in path.parents}


def _classes(root: Path) -> list[str]:
    names = []
    for entry in _entries(root):
        status = _status(entry.path)
        if status is None:
            raise DataError(
                f"{shown(entry.path)}: is a link to nothing, so a class may be missing; remove it, or bring back "
                f"{shown(_target(entry.path))}"
            )
        if stat.S_ISDIR(status.st_mode):
            names.append(entry.name)
    if not names:
        raise DataError(f"{shown(root)}: has no folders; expected one per class, with its images")
    return names


def _images(root: Path, name: str, endings: tuple[str, ...], left_out: list[str]) -> list[Path]:
    """The images of a class, sorted by their paths; what else could be meant as one is told in `left_out`."""
    top = root / name
    entered = _around(top)
    if _identity(top) in entered:
        raise DataError(f"{shown(top)}: is a link to a folder that it lies in, which cannot be a class; remove it")
    found: list[Path] = []
    folders, links = [top], deque[Path]()  # links come last, so that an image has the path without links if it has one
    while folders or links:
        folder = folders.pop() if folders else links.popleft()
        identity = _identity(folder)
        if identity in entered:
            continue
        entered.add(identity)
        for entry in _entries(folder):
            is_link, is_image = entry.is_symlink(), entry.name.lower().endswith(endings)
            if not is_link and entry.is_file(follow_symlinks=False):
                if is_image:
                    found.append(folder / entry.name)
                continue
            status = _status(entry.path)
            if status is None:
                left_out.append(f"{shown(entry.path)} leads to nothing")
            elif stat.S_ISDIR(status.st_mode):
                (links if is_link else folders).append(folder / entry.name)
            elif is_image and stat.S_ISREG(status.st_mode):
                found.append(folder / entry.name)
            elif is_image:
                left_out.append(f"{shown(entry.path)} is no file but a pipe, a socket or a device")
    if not found:
        raise DataError(f"{shown(top)}: has no image; endings are {', '.join(endings)}")
    return sorted(found)


def _target(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return "what it leads to"


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
