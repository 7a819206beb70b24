"""The file of packed images: how it is written, once and safely, how it is read, and how damage is found.

The file has, in this order: 64 bytes which say where its parts are, zeros up to PAGE, the pixels of all images, their
classes (N,) int32, the CRC-32 of each image (N,) uint32, and a text in JSON about the rest. The first 64 bytes
are written last, so a file that is not whole is never taken for one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import mmap
import os
import shutil
import stat
import struct
import warnings
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alpha.data.images.image_files import shown
from alpha.errors import DataError
from alpha.io.reading import note

try:
    import fcntl
except ImportError:  # a system without it, as Windows
    fcntl = None  # type: ignore[assignment]

PAGE = 4096
_MAGIC = b"ALPHAPK1"
_START = struct.Struct("<8s5QQI")  # magic; images, height, width, begin and size of the rest; reserved; CRC of the rest
_START_CRC = struct.Struct("<I")
_CANNOT_LOCK = (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL)


class Contents(NamedTuple):
    """Contents of a packed file, apart from the pixels.

    Attributes:
        shape: of the images, (N, H, W, 3).
        labels: the classes (N,) int32.
        checksums: the CRC-32 of each image (N,) uint32.
        about: the rest.
        crc: CRC-32 of all of these.
    """

    shape: tuple[int, int, int, int]
    labels: NDArray[np.int32]
    checksums: NDArray[np.uint32]
    about: dict[str, Any]
    crc: int


def needed_bytes(count: int, size: tuple[int, int], about: dict[str, Any]) -> int:
    """Bytes of a file with this many images at most, if no image is skipped."""
    return PAGE + count * (size[0] * size[1] * 3 + 8) + len(_text(about))


def _text(about: dict[str, Any]) -> bytes:
    return json.dumps(about).encode()


def read_contents(path: Path) -> Contents:
    """The contents of a packed file.

    Raises:
        DataError: it is missing, not a packed file, or not whole; the message does not name it.
    """
    try:
        _check_regular(path)
        with path.open("rb") as file:
            start = file.read(_START.size + _START_CRC.size)
            if len(start) < _START.size + _START_CRC.size or not start.startswith(_MAGIC):
                raise DataError(f"is no whole file of packed images{note(path)}")
            if _START_CRC.unpack(start[_START.size :])[0] != zlib.crc32(start[: _START.size]):
                raise DataError("is damaged in its first bytes")
            _, count, height, width, begin, length, _, crc = _START.unpack(start[: _START.size])
            size = os.fstat(file.fileno()).st_size
            if size != begin + length:
                raise DataError(f"has {size:,} bytes, expected {begin + length:,}")
            if not count * height * width or begin != PAGE + count * height * width * 3 or length < 8 * count:
                raise DataError(
                    f"says of itself that it has {count:,} images of {height:,} x {width:,}, which it has not"
                )
            file.seek(begin)
            rest = file.read(length)
    except FileNotFoundError as error:
        raise DataError("is missing") from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}") from error
    if zlib.crc32(rest) != crc:
        raise DataError("is damaged in the list of its images")
    labels = np.frombuffer(rest, np.int32, count)
    checksums = np.frombuffer(rest, np.uint32, count, 4 * count)
    return Contents((count, height, width, 3), labels, checksums, _about(rest[8 * count :]), crc)


def check_replaceable(path: Path) -> None:
    """Raises DataError, which does not name the file, unless it is missing, empty or a packed file, whole or damaged.

    Only such a file may be made anew: any other one belongs to somebody.
    """
    try:
        _check_regular(path)
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError:
        return
    if not _MAGIC.startswith(start):
        raise DataError(
            f"is no file of packed images, so it is not overwritten; give another path=, or remove it{note(path)}"
        )


def _check_regular(path: Path) -> None:
    """Raises DataError for what is no file; opening a pipe would wait for its writer."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise DataError(f"is {kind}, not a file; give the path of a file")


def _about(text: bytes) -> dict[str, Any]:
    try:
        about = json.loads(text)
        right = all(isinstance(name, str) for name in (about["root"], about["decoder"], *about["classes"]))
        right = right and all(isinstance(part, str) for name, reason in about["skipped"] for part in (name, reason))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"has a text at its end that cannot be read: {type(error).__name__}") from error
    if not right:
        raise DataError("has a text at its end that cannot be read: a name is no text")
    found: dict[str, Any] = about
    return found


class Rows(np.memmap):
    """Images (N, H, W, 3) uint8 of a packed file, in no memory; each is checked when it is first read, by its CRC-32.

    Images that are asked for by an array of indices are read in the order in which they lie in the file. In a pickle
    there is the path of the file, not its contents.
    """

    _checks: _Checks | None

    @classmethod
    def of(cls, path: Path, contents: Contents) -> Rows:
        """The images of a packed file."""
        rows: Any = cls.__new__(cls, path, np.uint8, "r", PAGE, contents.shape)
        rows._checks = _Checks(path, np.asarray(rows), contents)
        return rows  # type: ignore[no-any-return]

    def __array_finalize__(self, obj: Any) -> None:
        super().__array_finalize__(obj)
        self._checks = None  # of a part, which was checked when it was taken

    def __getitem__(self, index: Any) -> Any:
        if self._checks is None:
            return super().__getitem__(index)
        places = self._checks.places(index)
        if not isinstance(index, (list, np.ndarray)) or np.ndim(index) != 1:
            self._checks.check(places)
            return super().__getitem__(index)
        order = np.argsort(places, kind="stable")
        self._ahead(places[order])
        self._checks.check(places)
        found, pixels = np.empty((len(places), *self.shape[1:]), np.uint8), self._checks.pixels
        for place in order:
            found[place] = pixels[places[place]]
        return found

    def check_all(self) -> None:
        """Read every image. Raises DataError if one is damaged."""
        if self._checks is not None:
            self._checks.check(self._checks.places(...))

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._checks is None:
            return np.asarray(self).__reduce_ex__(protocol)
        return _again, (self._checks.path, self._checks.crc)

    def _ahead(self, places: NDArray[np.int64]) -> None:
        """Tell the system which images are read next, so that it reads several of them from the disk at once."""
        if hasattr(mmap, "MADV_WILLNEED"):
            mapped: mmap.mmap = self._mmap  # type: ignore[attr-defined]
            size = math.prod(self.shape[1:])
            begins = PAGE % mmap.ALLOCATIONGRANULARITY + places * size  # from where numpy maps the file on
            before = begins % mmap.PAGESIZE
            for begin, more in zip((begins - before).tolist(), before.tolist(), strict=True):
                mapped.madvise(mmap.MADV_WILLNEED, begin, size + more)


def _again(path: Path, crc: int) -> Rows:
    try:
        contents = read_contents(path)
    except DataError as error:
        raise DataError(f"{shown(path)}: {error}") from error
    if contents.crc != crc:
        raise DataError(f"{shown(path)}: was made anew since the dataset was")
    return Rows.of(path, contents)


class _Checks:
    """Checks of the images that were not read before."""

    def __init__(self, path: Path, pixels: NDArray[np.uint8], contents: Contents) -> None:
        self.path, self.pixels, self.crc = path, pixels, contents.crc
        self._checksums = contents.checksums
        self._done = np.zeros(len(pixels), bool)
        self._places = np.arange(len(pixels))
        self._left = True

    def places(self, index: Any) -> NDArray[np.int64]:
        """The images that an index of the array reaches."""
        first = index[0] if isinstance(index, tuple) and index else index
        mask = isinstance(first, (bool, np.ndarray)) and np.asarray(first).dtype == bool and np.ndim(first) != 1
        whole = mask or first is None or first is Ellipsis or isinstance(first, tuple)
        return self._places if whole else np.asarray(self._places[first])

    def check(self, places: NDArray[np.int64]) -> None:
        """Raises DataError if one of the images is damaged."""
        if not self._left:
            return
        for place in np.unique(places[~self._done[places]]).tolist():
            found, expected = zlib.crc32(self.pixels[place]), int(self._checksums[place])
            if found != expected:
                raise DataError(
                    f"{shown(self.path)}: image {place} is damaged: its CRC-32 is {found:08x}, expected {expected:08x};"
                    " make the dataset with check=True, which makes the file anew"
                )
            self._done[place] = True
        self._left = not self._done.all()


class Part:
    """A packed file that is being written, under its temporary name.

    Attributes:
        file: positioned behind the pixels that were written.
    """

    def __init__(self, path: Path, name: Path, file: BinaryIO) -> None:
        self.path, self._name, self.file = path, name, file
        self._checksums = array("I")

    def begin(self, needed: int) -> None:
        """Empty the file, and make sure that there is room for it.

        Raises:
            DataError: the disk has not so many bytes free.
        """
        self.file.truncate(0)
        free = shutil.disk_usage(self.path.parent).free
        if free < needed:
            raise DataError(
                f"{shown(self.path)}: needs {needed:,} bytes, and its disk has {free:,} bytes free; give another path=,"
                " set ALPHA_DATA_DIR to a folder on another disk, or make room"
            )
        self.file.seek(PAGE)

    def write(self, pixels: NDArray[np.uint8]) -> None:
        """Append an image (H, W, 3)."""
        self.file.write(pixels.data)
        self._checksums.append(zlib.crc32(pixels.data))

    def finish(self, size: tuple[int, int], labels: NDArray[np.int32], about: dict[str, Any]) -> None:
        """Write what is known at the end, and give the file its name."""
        begin = self.file.tell()
        rest = labels.astype("<i4").tobytes() + np.asarray(self._checksums, "<u4").tobytes() + _text(about)
        self.file.write(rest)
        self.file.flush()
        os.fsync(self.file.fileno())  # before the first bytes say that it is there
        start = _START.pack(_MAGIC, len(labels), *size, begin, len(rest), 0, zlib.crc32(rest))
        self.file.seek(0)
        self.file.write(start + _START_CRC.pack(zlib.crc32(start)))
        self.file.flush()
        os.fsync(self.file.fileno())
        if fcntl is None:  # as on Windows, where an open file keeps its name
            self.file.close()
        self._name.replace(self.path)

    def drop(self) -> None:
        """Remove the file, unless it was finished."""
        if _is_at(self.file, self._name):
            with contextlib.suppress(OSError):
                self._name.unlink()


@contextmanager
def part_of(path: Path) -> Iterator[Part | None]:
    """The file under its temporary name, which no other process writes meanwhile; it is removed if it was not finished.

    None if another process has finished or given up while this one waited for it. A process that is killed leaves a
    file under the temporary name, which the next one takes.
    """
    name = path.with_name(f"{path.name}.part")
    file = _opened(name)
    if not _locked(file, path):
        file.close()
        name = path.with_name(f"{path.name}.{os.getpid()}.part")  # whoever comes last gives the file its name
        file = _opened(name)
    with file:
        if not _is_at(file, name):
            yield None
            return
        start = file.read(len(_MAGIC))
        if any(start) and not _MAGIC.startswith(start):  # a packed file that is not whole has zeros there
            raise DataError(
                f"{shown(name)}: is the name under which the file is written first, and has a file of another kind; "
                "give another path=, or remove it"
            )
        part = Part(path, name, file)
        try:
            yield part
        finally:
            part.drop()


def _opened(name: Path) -> BinaryIO:
    return os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666), "r+b")


def _is_at(file: BinaryIO, name: Path) -> bool:
    """True if a file that is open still has this name."""
    try:
        return not file.closed and os.path.samestat(os.fstat(file.fileno()), name.stat())
    except FileNotFoundError:
        return False


def _locked(file: BinaryIO, path: Path) -> bool:
    """Wait until no other process writes the file; False if the system cannot tell. The end of a process unlocks it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        warnings.warn(f"{shown(path)}: is being made by another process; waiting for it", RuntimeWarning, stacklevel=6)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in _CANNOT_LOCK:
            return False
        raise
    return True
