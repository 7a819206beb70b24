"""Files of a run: whole or absent, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

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
        _remove_stale(path / "probe")
        probe, descriptor = _new_part(path / "probe", 0o600)
        os.close(descriptor)
        probe.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
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
    except (OSError, ValueError) as error:
        raise CheckpointError(_unusable(default, error)) from error
    return folder


def _unusable(path: Path, error: OSError | ValueError) -> str:
    return f"{_named(path)}: cannot be used as output folder: {_reason(error)}; choose another one"


def _named(path: Path) -> str:
    return str(path).replace("\0", "\\0")


def _reason(error: OSError | ValueError) -> str:
    """Reason that a file cannot be used: what the system says, or that the path is none, as with a zero in it."""
    return getattr(error, "strerror", None) or str(error)


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
    except CheckpointError:
        raise
    except (OSError, ValueError) as error:
        state = (
            "nothing was written" if isinstance(error, ValueError) or not path.exists() else "the old file is intact"
        )
        size = sum(len(part) for part in parts)
        raise CheckpointError(f"{_named(path)}: {size:,} bytes cannot be written: {_reason(error)}; {state}") from error


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
