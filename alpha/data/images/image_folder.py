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

from alpha.config import user_path
from alpha.core import rng
from alpha.core.host_values import is_integer
from alpha.data.checks import say_where, whole_number
from alpha.data.collate import collate
from alpha.data.dataset import Batch, Dataset, get_worker_info
from alpha.data.images.decoding import Decoder, Size, each
from alpha.data.images.image_files import shown
from alpha.data.images.listing import EXTENSIONS, endings_of, error_rule, listed, warn_of
from alpha.errors import DataError
from alpha.runtime.progress import bar as progress_bar

MOST_THREADS = 3  # more of them wait for Python's lock and are slower than one; worker processes are not


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
            middle is taken. A JPEG is decoded at 1/2, 1/4 or 1/8 of its scale if that is not smaller than `size`.
            Without a size, the images of a batch must have one size.
        transform: takes the RGB image of Pillow (after `size`) and returns an image or an array. It runs in several
            threads. Augmentation on the device is in `alpha.transforms`.
        target_transform: takes the number of the class and returns another one.
        extensions: the endings of images, such as ".png"; capitals and small letters are the same.
        workers: threads that decode a batch; by default as many as there are cores, at most 3, and in a worker process
            of a loader the process alone.
        on_error: "raise" is an error for a class without an image, and for a damaged image when it is read. "skip"
            leaves them out, with one warning: it decodes all images once when the dataset is made. Classes that have no
            image left are not counted.
        decoder: of JPEGs: "simplejpeg" (the extra `images`) or "Pillow", which give the same pixels; by default
            simplejpeg if it is installed.

    Attributes:
        classes: the names of the classes, in order.
        class_to_idx: the number of each class.
        samples: (path, class) of each image, in order; the pairs are made when they are asked for.
        targets: the class of each image (N,) int32.
        skipped: (path, reason) of what was left out.

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
        *,
        on_error: str = "raise",
        decoder: str | None = None,
    ) -> None:
        self.root = user_path(root)
        self.size = None if size is None else size_of("ImageFolder", size)
        self.transform, self.target_transform = transform, target_transform
        self.workers = threads_of("ImageFolder", workers)
        self._own_workers = workers is not None
        self._decode = Decoder("ImageFolder", decoder)
        listing = listed(self.root, endings_of("ImageFolder", extensions), error_rule("ImageFolder", on_error))
        self.samples = listing.samples
        if on_error == "skip":
            listing = listing.without(self._damaged())
        self.classes, self.samples, self.skipped = listing
        warn_of("ImageFolder", self.root, self.skipped, 3)
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def targets(self) -> NDArray[np.int32]:
        """The label of each image   (N,) int32"""
        return self.samples.labels

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """An image and its class. Raises IndexError if there is none, DataError if it cannot be decoded."""
        place = range(len(self.samples))[index]
        image, label = self._decode(self.samples.path(place), self.size), int(self.samples.labels[place])
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
        in_this_thread = self.workers == 1 or (get_worker_info() is not None and not self._own_workers)
        each_item = map if in_this_thread else self._threads().map
        images, labels = collate(list(each_item(self._item, places, draws)), places)
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

    def _damaged(self) -> dict[int, str]:
        """Reasons why images cannot be decoded, by their places."""

        def reason(place: int) -> str:
            try:
                self._decode(self.samples.path(place), self.size)
            except DataError as error:
                return damage(error, self.samples.path(place))
            return ""

        count, found = len(self.samples), {}
        with progress_bar(f"checking {self.root.name}", count, unit="image") as bar:
            for place, text in enumerate(each(reason, count, self.workers)):
                bar.update()
                if text:
                    found[place] = text
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_pool")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _pool=None)


def damage(error: DataError, path: str) -> str:
    """Reason, without the path, why a file cannot be decoded.

    Raises:
        DataError: the error itself, if it tells of the machine and not of the file: a file that may not be read, a
            network that is down, or memory that is short. What is then left out would differ from run to run.
    """
    cause = error.__cause__
    if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno is not None):
        raise error
    return str(error).removeprefix(f"{shown(path)}: ")


def threads_of(owner: str, workers: int | None) -> int:
    """The number of threads that decode: as it is given, else as many as there are cores, at most MOST_THREADS."""
    return min(MOST_THREADS, os.cpu_count() or 1) if workers is None else whole_number(owner, "workers", workers, 1)


def size_of(owner: str, size: Any) -> Size:
    """The (height, width) that is given as a pair, or as one number for both."""
    both = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(both) != 2 or not all(is_integer(length) and length >= 1 for length in both):
        raise DataError(f"{owner}: size is {size!r}, expected a whole number, 1 or more, or a pair (height, width)")
    return int(both[0]), int(both[1])
