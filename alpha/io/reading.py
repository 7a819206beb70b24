"""What all readers of files share: what a file is by its first bytes, and how much memory it may ask for.

A file may be anything: of another program, cut off, or made by someone who means harm. So a reader compares the sizes
that a file declares with those it has before it reads or allocates, and what is packed, or used many times, may
become at most `most_bytes` of memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import socket
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from alpha.errors import CheckpointError

try:
    import fcntl
except ImportError:  # not POSIX: nobody can tell a part that is being written from a stale one
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".alpha-part"


def make_folder(path: Path) -> None:
    """Makes `path` and its parents; CheckpointError if it cannot be made or written to. Its files stay."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".{secrets.token_hex(8)}{_SUFFIX}"
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise CheckpointError(_unusable(path, error)) from error


def new_folder(default: Path) -> Path:
    """Makes and returns the first of default, default-2, default-3 .. that does not exist.

    Of two programs that ask at the same time each gets a folder of its own. CheckpointError if none can be made.
    """
    try:
        default.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            folder = default if number == 1 else default.with_name(f"{default.name}-{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            break
    except OSError as error:
        raise CheckpointError(_unusable(default, error)) from error
    return folder


def _unusable(path: Path, error: OSError) -> str:
    return f"{path}: cannot be used as output folder: {error.strerror}; choose another one"


def check_readable(path: Path, name: str) -> None:
    """CheckpointError, in which the file is called `name`, unless it is a regular file that may be read."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            path.open("rb").close()
    except FileNotFoundError as error:
        raise CheckpointError(f"{name}: no such file") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
        advice = "name a file in it" if stat.S_ISDIR(mode) else "write what it gives to a file first"
        raise CheckpointError(f"{name}: is {_kind(mode)}, not a regular file; {advice}")


def write_atomically(path: Path, *parts: bytes | memoryview) -> None:
    """Writes the parts, one after the other, to `path`: a reader, or a crash at any time, sees the old file or the new.

    A symbolic link stays and its target is written. An existing file keeps its mode; a new one obeys the umask.
    What earlier writers of this file left when they were killed is removed, if the file system knows locks.
    Raises CheckpointError with the reason (a full disk, say); the old file is intact then.
    """
    try:
        target = Path(os.path.realpath(path))
        mode = _mode(target, path)
        _remove_stale(target)
        # 600 first, so that nobody reads the new content of a file that only its owner may read
        temporary, descriptor = _new_part(target, 0o666 if mode is None else 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), mode)
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
                if fcntl is not None:  # while it is locked, so that nobody takes it for a stale one
                    temporary.replace(target)
            if fcntl is None:  # Windows renames no file that is open
                temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
    except OSError as error:
        state = "the old file is intact" if path.exists() else "nothing was written"
        size = sum(len(part) for part in parts)
        raise CheckpointError(f"{path}: {size:,} bytes cannot be written: {error.strerror}; {state}") from error


# -- parts: files that are not whole yet ------------------------------------------------------------------------------
#
# A part has a name that only writers of one file on one machine give, and its writer holds a lock on it. The system
# drops the lock when the writer is killed, so a part without a lock is a stale one.


def _prefix(target: Path) -> str:
    writers = os.fsencode(f"{socket.gethostname()}/{target.name}")
    return f".{hashlib.sha256(writers).hexdigest()[:16]}-"


def _new_part(target: Path, mode: int) -> tuple[Path, int]:
    """A new file beside the target, as a rename does not cross file systems, and its descriptor, with a lock."""
    while True:
        temporary = target.parent / f"{_prefix(target)}{secrets.token_hex(8)}{_SUFFIX}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        if _locked(descriptor, wait=True) is None or os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)  # another writer took it for a stale one between the two calls


def _remove_stale(target: Path) -> None:
    """Removes the parts of this file whose writers are gone."""
    with contextlib.suppress(OSError):  # it is a courtesy, so nothing of it stops a save
        for part in _parts(target):
            with contextlib.suppress(OSError):
                descriptor = os.open(part, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
                try:
                    if _locked(descriptor, wait=False):
                        part.unlink()
                finally:
                    os.close(descriptor)


def _parts(target: Path) -> Iterator[Path]:
    prefix = _prefix(target)
    with os.scandir(target.parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX) and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _locked(descriptor: int, wait: bool) -> bool | None:
    """Locks an open file, and returns whether it has the lock now; None if there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _mode(target: Path, path: Path) -> int | None:
    """The mode of an existing file, None if there is none; CheckpointError if it is not a regular file."""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise CheckpointError(f"{path}: is {_kind(mode)}, not a regular file; nothing was written")
    return stat.S_IMODE(mode)


def _kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself durable; only POSIX opens a folder."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


EXPANSION = 16  # bytes that a reader makes of a byte of a file ..
ALLOWANCE = 64 << 20  # .. besides these, so that a small file may be packed as well as it can be
START = 512  # bytes that tell what a file is; the first block of a tar archive


def most_bytes(size: int) -> int:
    """The most bytes that a reader makes of a file of `size` bytes."""
    return EXPANSION * size + ALLOWANCE


class Kind(NamedTuple):
    """What a file is, and what to do with it."""

    what: str
    advice: str


UNPACK = "unpack it, and give the file that is in it"
COPY = "restore a copy, or write it again"
IN_ITS_PROGRAM = "load it in the program that wrote it, and write it by alpha.save"
PICTURE = "alpha.data.ImageFolder reads folders of images"
PICKLE = Kind("a pickle, which runs code when it is read, so Alpha reads none", IN_ITS_PROGRAM)
LFS = Kind("a Git LFS pointer", "it stands for a file that was not fetched; fetch it with git lfs pull")
HTML = Kind(
    "an HTML page",
    "a server sends one in the place of a file that it does not have or does not give; open it in a browser, "
    "and download the file again",
)
XML = Kind(
    "an XML text", "a server may send one in the place of a file that it does not give; read it, and download it again"
)
ZIP = Kind("a zip archive", UNPACK)
OLD_PYTORCH = Kind(
    "a file of PyTorch before 1.6, or of torch.save(.., _use_new_zipfile_serialization=False)",
    "load it in PyTorch, and torch.save it again, for alpha.load",
)
KINDS = {  # from the place and the bytes there; the first that fits
    (8, b'{"'): Kind("a safetensors file", "alpha.load reads it"),
    (0, b"version https://git-lfs.github.com/"): LFS,
    (0, b"version https://hawser.github.com/"): LFS,
    (0, b"/annex/objects/"): Kind("a git-annex pointer", "fetch the file with git annex get"),
    (0, b"\x93NUMPY"): Kind("an array of numpy", "numpy.load reads it"),
    (0, b"PK\x03\x04"): ZIP,
    (0, b"PK\x05\x06"): Kind("a zip archive without files", COPY),
    (0, b"\x1f\x8b"): Kind("a gzip file", UNPACK),
    (0, b"BZh"): Kind("a bzip2 file", UNPACK),
    (0, b"\xfd7zXZ\x00"): Kind("an xz file", UNPACK),
    (0, b"\x28\xb5\x2f\xfd"): Kind("a zstd file", UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c"): Kind("a 7z archive", UNPACK),
    (0, b"Rar!\x1a\x07"): Kind("a rar archive", UNPACK),
    (0, b"\x89HDF\r\n\x1a\n"): Kind("an HDF5 file, as of Keras", IN_ITS_PROGRAM),
    (0, b"GGUF"): Kind("a GGUF file, as of llama.cpp", IN_ITS_PROGRAM),
    (4, b"TFL3"): Kind("a TFLite file", IN_ITS_PROGRAM),
    (0, b"\x89PNG\r\n\x1a\n"): Kind("a PNG image", PICTURE),
    (0, b"\xff\xd8\xff"): Kind("a JPEG image", PICTURE),
    (0, b"GIF8"): Kind("a GIF image", PICTURE),
    (8, b"WEBP"): Kind("a WebP image", PICTURE),
    (0, b"%PDF-"): Kind("a PDF document", COPY),
    (0, b"%!PS"): Kind("a PostScript document", COPY),
    (0, b"\x7fELF"): Kind("a program", COPY),
    (2, b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."): OLD_PYTORCH,  # the number with which its files begin
    **{(0, b"\x80" + bytes([protocol])): PICKLE for protocol in (2, 3, 4, 5)},
    **{(0, start): PICKLE for start in (b"(dp", b"(lp", b"ccopy_reg\n", b"cnumpy", b"ctorch")},
    (0, b"\0\0\x08\x01"): Kind("an IDX file of bytes with one axis", "alpha.data.Mnist reads the labels in it"),
    (0, b"\0\0\x08\x03"): Kind("an IDX file of bytes with three axes", "alpha.data.Mnist reads the images in it"),
}


def kind_of(start: bytes) -> Kind | None:
    """What the file is that begins with these bytes (`START` of them, or all it has); None if that is not known."""
    if not start:
        return Kind("empty", COPY)
    for (place, magic), kind in KINDS.items():
        if start.startswith(magic, place):
            return kind
    if _is_tar(start):
        return Kind("a tar archive", UNPACK)
    if not any(start):
        return Kind("a file that begins with zeros only", f"its writer or its download broke off; {COPY}")
    return _text(start)


def _is_tar(start: bytes) -> bool:
    """Whether it is the first block of a tar archive, which holds the sum of its bytes (its own count as spaces)."""
    try:
        declared = int(start[148:156].strip(b"\0 "), 8)
    except ValueError:
        return False
    return len(start) >= START and declared == sum(start[:148]) + 8 * ord(" ") + sum(start[156:START])


def _text(start: bytes) -> Kind | None:
    try:
        text = start.decode("utf-8-sig", "strict" if len(start) < START else "ignore")
    except UnicodeDecodeError:
        return None
    words = text.strip().lower()
    if words.startswith(("<!doctype html", "<html", "<head", "<body", "<!--")):
        return HTML
    if words.startswith("<?xml"):
        return HTML if "<html" in words or "html public" in words else XML
    printable = sum(c.isprintable() or c in "\t\r\n\f" for c in text)
    if printable < len(text) or 4 * len(text.encode()) < 3 * len(start):
        return None
    if words.startswith(("{", "[")):
        return Kind("a JSON text", "of a model in several files it is the index; give each of the files that it names")
    return Kind(f"a text, which begins with {text.strip()[:20]!r}", COPY)


def other_kind(path: Path, expected: str = "") -> Kind | None:
    """What a file is; None if that is what was expected, or unknown."""
    with path.open("rb") as file:
        kind = kind_of(file.read(START))
    kind = _archive(path) if kind is ZIP else kind
    return kind if kind and kind.what != expected else None


def note(path: Path) -> str:
    """What a file is and what to do with it, a sentence to put behind a message; empty if that is unknown."""
    try:
        kind = other_kind(path)
    except OSError:
        return ""
    return f". It is {kind.what}: {kind.advice}" if kind else ""


def _archive(path: Path) -> Kind:
    """What a zip archive is, by the names in it."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return Kind("a zip archive, as of torch.save, that is not whole", COPY)
    if any(name.split("/")[-1] == "data.pkl" for name in names):
        advice = "alpha.load reads it; give the state dict in it to model.load_state_dict"
        return Kind("a file of torch.save, a zip archive", advice)
    return (
        Kind("an archive of numpy's arrays", "numpy.load reads it") if any(n.endswith(".npy") for n in names) else ZIP
    )


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """The content of a file in an archive.

    Raises:
        ValueError: it has more than `most` bytes, or is packed by a method that may unpack more than it declares;
            nothing was unpacked then.
        KeyError: there is no such file. What zipfile raises of a damaged one goes through.
    """
    member = archive.getinfo(name)
    if member.file_size > most:
        raise ValueError(f"{name} has {member.file_size:,} bytes, expected at most {most:,}")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is packed by method {member.compress_type}; pack it by deflate, or not at all")
    with archive.open(member) as file:
        data = file.read(member.file_size)  # without a number zipfile unpacks all, however much that is
    if len(data) != member.file_size:
        raise ValueError(f"{name} has {len(data):,} bytes, of which the archive declares {member.file_size:,}")
    return data
