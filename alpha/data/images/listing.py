"""Lists of the image files below a folder, one folder per class, which are small also for millions of files."""

from __future__ import annotations

import errno
import os
import stat
import warnings
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from alpha.data.images.image_files import shown
from alpha.errors import DataError

OF_TORCHVISION = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
EXTENSIONS = (*OF_TORCHVISION, ".jpe", ".jfif", ".gif", ".jp2", ".avif")
# photos of other kinds, which would be missed if they were ignored as a text file is
UNREAD = (".heic", ".heif", ".jxl", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2", ".pef")
NOT_READ = "is a photo of a kind that cannot be read; save it as JPEG or PNG"
NO_FILE = "no file but a pipe, a socket or a device"
OF_SYSTEMS = ("__MACOSX", "__pycache__", "@eaDir", "lost+found")  # folders that systems make
Skipped = list[tuple[Path, str]]  # what was left out, and why


class Samples(Sequence[tuple[Path, int]]):
    """Paths of images and the numbers of their classes: (path, class) by index, made when it is asked for.

    The names are kept as bytes, one behind another, so a file takes 12 bytes besides those of its name.

    Attributes:
        root: the folder in which all paths begin.
        labels: the classes (N,) int32.
    """

    def __init__(self, root: Path, names: Iterable[str], labels: NDArray[np.int32]) -> None:
        self.root, self.labels = root, labels
        text, ends = bytearray(), array("q", [0])
        for name in names:
            text += os.fsencode(name)
            ends.append(len(text))
        self._text, self._ends = bytes(text), np.frombuffer(ends, np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    @overload
    def __getitem__(self, index: int) -> tuple[Path, int]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Path, int]]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        place = range(len(self))[index]  # IndexError if there is none
        return self.root / self.name(place), int(self.labels[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def name(self, place: int) -> str:
        """The path of a file from the root on, with "/" between its parts; `place` is 0 or more."""
        return os.fsdecode(self._text[self._ends[place] : self._ends[place + 1]])

    def names(self) -> Iterator[str]:
        """The names of all files, in order."""
        return map(self.name, range(len(self)))

    def path(self, place: int) -> str:
        """The path of a file as text."""
        return os.path.join(self.root, self.name(place))  # noqa: PTH118

    def chosen(self, places: NDArray[np.int64], labels: NDArray[np.int32]) -> Samples:
        """The files at these places (M,), with these classes (M,)."""
        return Samples(self.root, map(self.name, places.tolist()), labels)


class Listing(NamedTuple):
    """Files of a folder: the names of the classes, the images, and what was left out."""

    classes: list[str]
    samples: Samples
    skipped: Skipped

    def without(self, damaged: dict[int, str]) -> Listing:
        """The listing without the images at these places, for these reasons, and without classes that then have none.

        Raises:
            DataError: no image is left.
        """
        if not damaged:
            return self
        reasons = [(self.samples.root / self.samples.name(place), reason) for place, reason in damaged.items()]
        keep = np.setdiff1d(np.arange(len(self.samples)), np.fromiter(damaged, np.int64))
        used, labels = np.unique(self.samples.labels[keep], return_inverse=True)
        empty = sorted(set(range(len(self.classes))) - set(used.tolist()))
        reasons += [(self.samples.root / self.classes[number], "has no image that can be decoded") for number in empty]
        if not len(keep):
            raise DataError(f"{shown(self.samples.root)}: has no image that can be decoded; {_few(reasons)}")
        samples = self.samples.chosen(keep, labels.reshape(-1).astype(np.int32))
        return Listing([self.classes[number] for number in used], samples, self.skipped + reasons)


def warn_of(owner: str, root: Path, skipped: Skipped, stacklevel: int) -> None:
    """Warn, in the name of a class, of what was left out of a folder, if anything was."""
    if skipped:
        warnings.warn(
            f"{owner}: {len(skipped)} entries of {shown(root)} are left out: {_few(skipped)}",
            RuntimeWarning,
            stacklevel=stacklevel,
        )


def _few(skipped: Skipped) -> str:
    return "; ".join(f"{shown(path)} {reason}" for path, reason in skipped[:5]) + "; .." * (len(skipped) > 5)


def listed(root: Path, endings: tuple[str, ...], on_error: str) -> Listing:
    """The images of a folder; `on_error` is "raise" or "skip", which leaves out classes without an image.

    Raises:
        DataError: there is no such folder, one cannot be read, or a class has no image, or is a link to nothing or to a
            folder above; or there is a photo of a kind that cannot be read, unless the endings were chosen.
    """
    skipped: Skipped = []
    classes: list[str] = []
    counts: list[int] = []

    def names() -> Iterator[str]:
        for name in _classes(root):
            before = len(skipped)
            found = _images(root, name, endings, skipped)
            unread = [f"{shown(path)}: {reason}" for path, reason in skipped[before:] if reason == NOT_READ]
            if unread and on_error == "raise":
                more = f" ({len(unread) - 1} more in this class)" if len(unread) > 1 else ""
                raise DataError(f"{unread[0]}{more}")
            if found:
                classes.append(name)
                counts.append(len(found))
                yield from found
                continue
            reason = f"has no image; endings are {', '.join(endings)}"
            if on_error == "raise":
                raise DataError(f"{shown(root / name)}: {reason}")
            skipped.append((root / name, reason))

    samples = Samples(root, names(), np.zeros(0, np.int32))
    if not classes:
        raise DataError(f"{shown(root)}: has no image; {_few(skipped)}")
    samples.labels = np.repeat(np.arange(len(classes), dtype=np.int32), counts)
    return Listing(classes, samples, skipped)


def error_rule(owner: str, on_error: Any) -> str:
    """The argument `on_error`, which is "raise" or "skip"."""
    if on_error not in ("raise", "skip"):
        raise DataError(f"{owner}: on_error is {on_error!r}, expected 'raise' or 'skip'")
    return str(on_error)


def endings_of(owner: str, extensions: Any) -> tuple[str, ...]:
    """The endings of images in small letters."""
    given = (extensions,) if isinstance(extensions, str) or not isinstance(extensions, Iterable) else tuple(extensions)
    if not given or not all(isinstance(ending, str) and ending for ending in given):
        raise DataError(f"{owner}: extensions is {extensions!r}, expected endings such as '.png'")
    return tuple(ending.lower() for ending in given)


def entries_of(folder: Path | str) -> list[os.DirEntry[str]]:
    """Entries of a folder, sorted by name, without those that systems make and those whose name begins with a dot."""
    try:
        with os.scandir(folder) as entries:
            kept = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in OF_SYSTEMS]
            return sorted(kept, key=lambda entry: entry.name)
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


def is_folder(entry: os.DirEntry[str]) -> bool:
    """True for a folder and for a link to one. Raises DataError for a link to nothing, which may be a lost folder."""
    status = _status(entry.path)
    if status is None:
        raise DataError(
            f"{shown(entry.path)}: is a link to nothing, so a class may be missing; remove it, or bring back "
            f"{shown(_target(entry.path))}"
        )
    return stat.S_ISDIR(status.st_mode)


def _classes(root: Path) -> list[str]:
    names = []
    for entry in entries_of(root):
        if is_folder(entry):
            names.append(entry.name)
    if not names:
        raise DataError(f"{shown(root)}: has no folders; expected one per class, with its images")
    return names


def _images(root: Path, name: str, endings: tuple[str, ...], skipped: Skipped) -> list[str]:
    """The images of a class as paths from the root on, in order; what else could be meant as one is `skipped`."""
    top = root / name
    entered = _around(top)
    if _identity(top) in entered:
        raise DataError(f"{shown(top)}: is a link to a folder that it lies in, which cannot be a class; remove it")
    found: list[str] = []
    folders, links = [name], deque[str]()  # links come last, so that an image has the path without links if it has one
    while folders or links:
        folder = folders.pop() if folders else links.popleft()
        identity = _identity(root / folder)
        if identity in entered:
            continue
        entered.add(identity)
        for entry in entries_of(root / folder):
            is_link, is_image = entry.is_symlink(), entry.name.lower().endswith(endings)
            unread = endings == EXTENSIONS and entry.name.lower().endswith(UNREAD)
            if not is_link and not unread and entry.is_file(follow_symlinks=False):
                if is_image:
                    found.append(f"{folder}/{entry.name}")
                continue
            status = _status(entry.path)
            if status is None:
                skipped.append((Path(entry.path), "leads to nothing"))
            elif stat.S_ISDIR(status.st_mode):
                (links if is_link else folders).append(f"{folder}/{entry.name}")
            elif unread:
                skipped.append((Path(entry.path), NOT_READ))
            elif is_image and stat.S_ISREG(status.st_mode):
                found.append(f"{folder}/{entry.name}")
            elif is_image:
                skipped.append((Path(entry.path), f"is {NO_FILE}"))
    return sorted(found, key=lambda path: path.split("/"))


def _target(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return "what it leads to"
