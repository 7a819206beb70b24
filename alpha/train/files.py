"""Files of a run: whole or absent, whatever happens while they are written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from alpha.errors import CheckpointError

_SUFFIX = ".alpha-part"


def make_folder(path: Path) -> None:
    """Makes `path` and its parents; CheckpointError where it cannot be made or written to.

    What a run that was killed while it wrote left half-written there is removed.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        for stale in path.glob(f".*{_SUFFIX}"):
            stale.unlink(missing_ok=True)
        probe = _temporary(path / "probe")
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be used as output folder: {error.strerror}; choose another one"
        ) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` to `path`: a reader, or a crash at any time, sees the old file or the new.

    Raises CheckpointError with the reason (a full disk, say); the old file is intact then.
    """
    temporary = _temporary(path)  # in the same folder: a rename does not cross file systems
    try:
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        state = "the old file is intact" if path.exists() else "nothing was written"
        raise CheckpointError(f"{path}: {len(data):,} bytes cannot be written: {error.strerror}; {state}") from error


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself durable; only POSIX opens a folder."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
