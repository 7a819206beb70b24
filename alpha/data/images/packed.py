"""Images of a folder, decoded once and kept in one file, from which any of them is read at once."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.config import user_path
from alpha.data.array_datasets import ArrayDataset
from alpha.data.images.decoding import Decoder, Size, each
from alpha.data.images.image_files import shown
from alpha.data.images.image_folder import damage, size_of, threads_of
from alpha.data.images.listing import EXTENSIONS, Listing, Samples, endings_of, error_rule, listed, warn_of
from alpha.data.images.packed_file import Contents, Part, Rows, check_replaceable, needed_bytes, part_of, read_contents
from alpha.errors import DataError
from alpha.installation import data_dir
from alpha.runtime.activity import busy
from alpha.runtime.progress import bar as progress_bar

RULE = 2  # how pixels are made of a file; another number makes all packed files anew
CHECKED_AT_ONCE = 1 << 30  # bytes


class PackedImages(ArrayDataset):
    """Images of an `ImageFolder`, which are decoded once, into one file; afterwards they are read from that.

    `images` is a memory-mapped array (N, H, W, 3) uint8, of which nothing is in memory but what the system keeps of the
    file, and `labels` is (N,) int32. It is an `ArrayDataset` in all else: a `Trainer` copies a small one to the device
    once. The file is made when it is not there, by several threads, in the order of the images, and never held in
    memory. It gets its name when it is whole, so a process may be stopped at any time. If several processes want one
    file, one of them makes it and the others wait.

    A file is used again if the folder has the same images of the same sizes in bytes and times of change, in the same
    classes, and if it is whole. Otherwise it is made anew, with a warning that says why. A file of another kind
    is never overwritten.

    Args:
        root: a folder as `ImageFolder` takes it.
        size: (height, width), or one number for both: each image is scaled so that it just covers this size, and its
            middle is taken.
        path: of the file; by default `packed/NAME-HASH.alpha` in the folder of datasets, ALPHA_DATA_DIR.
        extensions, workers, decoder: as of `ImageFolder`. Both decoders give the same pixels, so either takes the file
            that the other one has made.
        on_error: "raise" is an error for a class without an image and for a damaged image; "skip" leaves them out, with
            one warning. The images are checked while they are packed, and not again.
        check: True reads the whole file, and makes it anew if it is damaged. False checks each image when it is first
            read, which is an error if it is damaged. By default files of up to 1 GiB are checked at once.

    Attributes:
        classes: the names of the classes, in order, without those that have no image.
        path: of the file.
        samples: (path, class) of each image, in order; None of a file that `load` has read.
        skipped: (path, reason) of what was left out.
        decoder: the packages, with their versions, that decoded the images.

    Raises:
        DataError: the folder or an image cannot be read, as by `ImageFolder`; the disk has too little room, which is
            known before the work begins; `path` has a file of another kind; or, when it is read, an image in the file
            is damaged.
    """

    def __init__(
        self,
        root: str | Path,
        size: int | tuple[int, int],
        path: str | Path | None = None,
        extensions: str | Sequence[str] = EXTENSIONS,
        workers: int | None = None,
        *,
        on_error: str = "raise",
        decoder: str | None = None,
        check: bool | None = None,
    ) -> None:
        folder, wanted = user_path(root), size_of("PackedImages", size)
        endings = endings_of("PackedImages", extensions)
        listing = listed(folder, endings, error_rule("PackedImages", on_error))
        task = _Task(listing, wanted, Decoder("PackedImages", decoder), threads_of("PackedImages", workers), on_error)
        found = _default_path(folder, wanted, endings) if path is None else user_path(path)
        contents, rows = _made(found, task, check)
        self._take(found, contents, rows)
        reasons = {Path(name).as_posix(): reason for name, reason in contents.about["skipped"]}
        names = enumerate(listing.samples.names()) if reasons else ()
        listing = listing.without({place: reasons[name] for place, name in names if name in reasons})
        self.samples: Samples | None = listing.samples
        self.skipped = listing.skipped  # of the folder as it is now; the file knows which of its images are damaged
        warn_of("PackedImages", folder, self.skipped, 3)

    @classmethod
    def load(cls, path: str | Path, check: bool | None = None) -> PackedImages:
        """The dataset in a packed file, as it is: the folder of its images is not looked at and need not be there.

        Raises:
            DataError: it is no packed file, not whole, or, as far as it was checked, damaged.
        """
        found = user_path(path)
        dataset = cls.__new__(cls)
        dataset._take(found, *_read(found, check))
        warn_of("PackedImages", dataset._root, dataset.skipped, 3)
        return dataset

    def _take(self, path: Path, contents: Contents, rows: Rows) -> None:
        about = contents.about
        super().__init__(rows, contents.labels, tuple(about["classes"]))
        self.path, self.decoder, self.samples = path, about["decoder"], None
        self._root = Path(about["root"])
        self.skipped = [(self._root / name, reason) for name, reason in about["skipped"]]


class _Task:
    """Images that are to be in a packed file, and how it is made."""

    def __init__(self, listing: Listing, size: Size, decode: Decoder, workers: int, on_error: str) -> None:
        self.listing, self.size, self.decode, self.workers, self.on_error = listing, size, decode, workers, on_error
        self.digest = _digest(listing)

    def about(self, listing: Listing) -> dict[str, Any]:
        """Facts that the file tells of itself; `listing` has what could be decoded."""
        root = self.listing.samples.root
        return {
            "rule": RULE,
            "digest": self.digest,
            "root": os.fspath(root.absolute()),
            "size": list(self.size),
            "decoder": self.decode.version,
            "classes": listing.classes,
            "skipped": [(os.fspath(path.relative_to(root)), reason) for path, reason in listing.skipped],
            "damaged": len(self.listing.samples) - len(listing.samples),
        }

    def fault(self, about: dict[str, Any]) -> str:
        """Text that says why a file is not what is wanted; empty if it is."""
        if about.get("rule") != RULE:
            return "was made by another version of Alpha"
        if about.get("size") != list(self.size):
            return f"has images of the size {about.get('size')}, expected {list(self.size)}"
        if about.get("digest") != self.digest:
            return f"the images in {shown(self.listing.samples.root)} have changed"
        if self.on_error == "raise" and about.get("damaged"):
            return f"was made without {about['damaged']} damaged images"
        return ""

    def pack(self, part: Part) -> None:
        """Write the file."""
        samples = self.listing.samples
        part.begin(needed_bytes(len(samples), self.size, self.about(self.listing)))
        damaged: dict[int, str] = {}
        title = f"packing {samples.root.name}"
        with busy(title), progress_bar(title, len(samples), unit="image") as bar:
            for place, pixels in enumerate(each(self._pixels, len(samples), self.workers)):
                bar.update()
                if isinstance(pixels, str):
                    damaged[place] = pixels
                else:
                    part.write(pixels)
        listing = self.listing.without(damaged)
        part.finish(self.size, listing.samples.labels, self.about(listing))

    def _pixels(self, place: int) -> NDArray[np.uint8] | str:
        """The pixels of an image, or why it has none."""
        path = self.listing.samples.path(place)
        try:
            return np.asarray(self.decode(path, self.size))
        except DataError as error:
            if self.on_error == "raise":
                raise
            return damage(error, path)


def _made(path: Path, task: _Task, check: bool | None) -> tuple[Contents, Rows]:
    """A packed file, which is made if it is not there or is not what is wanted."""
    found, packed = _right(path, task, check), False
    while isinstance(found, str):
        if packed:
            raise DataError(f"{shown(path)}: {found}, though it was made just now")
        try:
            with part_of(path) as part:
                if part is None:  # another process has made it, or has given up
                    found = _right(path, task, check)
                    continue
                found = _right(path, task, check)
                if isinstance(found, str):
                    _check_replaceable(path)
                    if path.exists():
                        warnings.warn(f"{shown(path)}: {found}; it is made anew", RuntimeWarning, stacklevel=4)
                    task.pack(part)
                    packed, found = True, _right(path, task, check)
        except OSError as error:
            raise DataError(f"{shown(path)}: cannot be written: {error.strerror or error}") from error
    return found


def _check_replaceable(path: Path) -> None:
    try:
        check_replaceable(path)
    except DataError as error:
        raise DataError(f"{shown(path)}: {error}") from error


def _right(path: Path, task: _Task, check: bool | None) -> tuple[Contents, Rows] | str:
    """A packed file, or why it is not what is wanted."""
    try:
        contents, rows = _read(path, False)
        if fault := task.fault(contents.about):
            return fault
        _check(rows, check)
    except DataError as error:
        return str(error).removeprefix(f"{shown(path)}: ")
    return contents, rows


def _read(path: Path, check: bool | None) -> tuple[Contents, Rows]:
    try:
        contents = read_contents(path)
    except DataError as error:
        raise DataError(f"{shown(path)}: {error}") from error
    rows = Rows.of(path, contents)
    _check(rows, check)
    return contents, rows


def _check(rows: Rows, check: bool | None) -> None:
    if check or (check is None and rows.nbytes <= CHECKED_AT_ONCE):
        rows.check_all()


def _digest(listing: Listing) -> str:
    """SHA-256 of the names, sizes, times of change and classes of all images."""
    digest = hashlib.sha256()
    samples = listing.samples
    for name, label in zip(samples.names(), samples.labels.tolist(), strict=True):
        path = os.path.join(samples.root, name)  # noqa: PTH118
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            raise DataError(f"{shown(path)}: cannot be read: {error.strerror}") from error
        digest.update(os.fsencode(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\0{listing.classes[label]}\n"))
    return digest.hexdigest()


def _default_path(root: Path, size: Size, endings: tuple[str, ...]) -> Path:
    """The file in the folder of datasets, whose name tells the folder of the images and their size."""
    whole = root.resolve()
    key = hashlib.sha256(os.fsencode("\0".join([os.fspath(whole), *map(str, size), *endings]))).hexdigest()[:12]
    folder = data_dir() / "packed"
    if not folder.is_dir():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".gitignore").write_text("*\n")  # it may lie in a checkout
        except OSError as error:
            raise DataError(
                f"{shown(folder)}: cannot be made: {error.strerror}; give path=, or set ALPHA_DATA_DIR"
            ) from error
    return folder / f"{whole.name}-{size[0]}x{size[1]}-{key}.alpha"
