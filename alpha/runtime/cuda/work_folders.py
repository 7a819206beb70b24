"""Temporary folders that do not stay if their process is killed: the next process removes them.

A process holds a lock on each of its folders, which the system drops when the process ends, in whatever way. So a
folder of the same kind without a lock belongs to nobody. If the file system has no locks, nothing is removed.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from alpha.errors import CompileError

try:
    import fcntl
except ImportError:  # Windows: nobody can tell whether a folder is in use
    fcntl = None  # type: ignore[assignment]


@contextmanager
def work_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder in `parent`, which is removed afterwards if it is still there."""
    folder, lock = new_work_folder(parent, prefix)
    try:
        yield folder
    finally:
        remove(folder)
        if lock is not None:
            os.close(lock)


def new_work_folder(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """A new folder in `parent`, and the descriptor that holds it for this process, None if there are no locks."""
    sweep(parent, prefix)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            lock = _hold(folder)
        except OSError:
            return folder, None
        if lock is not None:
            return folder, lock  # else another process took it for one that nobody owns, and removes it


@functools.cache
def sweep(parent: Path, prefix: str) -> None:
    """Remove what killed processes of this user have left in a folder, once per process."""
    with suppress(OSError), os.scandir(parent) as entries:
        left = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
        for path in left:
            with suppress(OSError):
                if stat.S_ISDIR(path.lstat().st_mode) and (lock := _hold(path)) is not None:
                    try:
                        remove(path)
                    finally:
                        os.close(lock)


def remove(path: Path) -> None:
    """Remove a folder with what is in it, or a file, or a link, as far as that is possible."""
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            path.chmod(0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _hold(folder: Path) -> int | None:
    """The descriptor of a lock on a folder; None if another process has it, or the folder is gone.

    Raises OSError if it cannot be locked at all.
    """
    if fcntl is None:
        raise OSError("there are no locks")
    try:
        lock = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), folder.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def why_not(folder: Path, error: OSError) -> str:
    """Why a folder cannot be used: a part of its path that is no folder, or else what the system says."""
    for part in (*reversed(folder.parents), folder):
        if os.path.lexists(part) and not os.path.isdir(part):  # noqa: PTH112
            link = os.path.islink(part)  # noqa: PTH114
            return f"{part} is {'a link to nothing' if link and not os.path.exists(part) else 'no folder'}"  # noqa: PTH110
    return str(error)


def temporary() -> Path:
    """The folder of temporary files."""
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise CompileError(f"there is no folder for temporary files ({error}); set TMPDIR to a writable one") from error
