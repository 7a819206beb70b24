"""Files of a run: whole or absent, whatever happens while they are written."""

from __future__ import annotations

import itertools
import os
import secrets
import stat
from pathlib import Path

from alpha.errors import CheckpointError

_SUFFIX = ".alpha-part"


def make_folder(path: Path) -> None:
    """Makes `path` and its parents; CheckpointError if it cannot be made or written to. Its files stay."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = _temporary(path)
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


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` to `path`: a reader, or a crash at any time, sees the old file or the new.

    A symbolic link stays and its target is written. An existing file keeps its mode; a new one obeys the umask.
    Raises CheckpointError with the reason (a full disk, say); the old file is intact then.
    """
    try:
        target = Path(os.path.realpath(path))
        mode = _mode(target, path)
        temporary = _temporary(target.parent)  # in the same folder: a rename does not cross file systems
        try:
            # 600 first, so that nobody reads the new content of a file that only its owner may read
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
            with os.fdopen(descriptor, "wb") as file:
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
    except OSError as error:
        state = "the old file is intact" if path.exists() else "nothing was written"
        raise CheckpointError(f"{path}: {len(data):,} bytes cannot be written: {error.strerror}; {state}") from error


def _mode(target: Path, path: Path) -> int | None:
    """The mode of an existing file, None if there is none; CheckpointError if it is not a regular file."""
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise CheckpointError(f"{path}: is {kind}, not a regular file; nothing was written")
    return stat.S_IMODE(mode)


def _temporary(folder: Path) -> Path:
    return folder / f".{secrets.token_hex(8)}{_SUFFIX}"


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself durable; only POSIX opens a folder."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
