"""The disk cache of compiled kernels: atomic, verified, and shared by parallel processes.

    path = compile_cached(compiler, source, options, root)

returns the artefact (a cubin, a shared library, ...) of one source file. A `Compiler` says how to
build, in three things: `suffix` of the artefact, `identity` (a text that differs whenever compiler,
version, target or fixed flags do), and `build(source, options, output) -> log`, which writes
`output` and returns the compiler's text, or raises `CompileError`. For a compiler that is one
command, `CommandCompiler(name, identity, suffix, command)` is enough: `command(source, options,
output)` returns the argument list. The emulated driver's is

    def command(source: Path, options: Sequence[str], output: Path) -> list[str]:
        return ["g++", *flags, *options, "-x", "c++", str(source), "-o", str(output)]

    CommandCompiler("g++", identity, ".so", command)

An artefact lives in `<cache>/kernels/<name>.<key>/` as `kernel.<hash of its content><suffix>`,
beside `log.txt`. The key covers the identity, the options, and the text of the source and of every
file it includes with "...". Because the file's name is the hash of its content, a torn or altered
artefact is seen at once and compiled again; because a directory appears by one rename, parallel
builders of one key end with one good artefact. A lock lets one of them build it while the others wait.
What stands in the place of a directory and is none, or has no good artefact, is replaced. If the cache cannot be
used, a temporary folder takes its place, after one warning.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import secrets
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from alpha import config
from alpha.errors import CompileError, ConfigError
from alpha.runtime import fork
from alpha.runtime.activity import busy


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a compiler and collect what it prints. If the caller is interrupted meanwhile, the compiler is stopped.

    Raises:
        OSError: it could not be started.
        CompileError: the `Group` of this thread was stopped.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,  # nvcc starts other processes, which do not end with it
    ) as process:
        group: Group | None = getattr(_local, "group", None)
        try:
            if group is not None:
                group.add(process)
            out, err = process.communicate()
        except BaseException:
            _kill(process)
            raise
        finally:
            if group is not None:
                group.remove(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


_local = threading.local()


class Group:
    """The compilers of several threads, which can be stopped together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def join(self) -> None:
        """Let the compilers that this thread runs belong to this group."""
        _local.group = self

    def add(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            if self._stopped:
                raise CompileError("the compilers were stopped")
            self._running.add(process)

    def remove(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.discard(process)

    def stop(self) -> None:
        """Kill what runs, and refuse what comes."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None and hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has just ended
            return
    process.kill()


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
    """Reason why a folder cannot be used: a part of its path that is no folder, or else the system's message."""
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


Command = Callable[[Path, Sequence[str], Path], list[str]]


class Compiler(ABC):
    """Compiler that makes one artefact of one source file."""

    suffix: str
    identity: str

    @abstractmethod
    def build(self, source: Path, options: Sequence[str], output: Path) -> str:
        """Write `output` and return the compiler's text. `CompileError` with command, options and text."""


class CommandCompiler(Compiler):
    """A compiler that is run as one command."""

    def __init__(self, name: str, identity: str, suffix: str, command: Command) -> None:
        self.name = name
        self.identity = identity
        self.suffix = suffix
        self._command = command

    def build(self, source: Path, options: Sequence[str], output: Path) -> str:
        command = self._command(source, options, output)
        try:
            result = run(command, {**os.environ, "TMPDIR": str(output.parent)})
        except OSError as error:
            raise CompileError(f"{self.name} could not be started: {error}") from error
        log = result.stdout + result.stderr
        if result.returncode or not output.is_file():
            raise failure(source, options, shlex.join(command), log, result.returncode)
        return log


def failure(source: Path, options: Sequence[str], command: str, log: str, code: int | str) -> CompileError:
    """The error of a source that does not compile."""
    return CompileError(
        f"{source} does not compile (exit {code})\n  options: {' '.join(options) or '(none)'}\n"
        f"  command: {command}\n{log.rstrip()}"
    )


def source_root() -> Path:
    """The kernel sources: in the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[2]
    installed = package / "_cuda"
    return installed if installed.is_dir() else package.parent / "cuda"


def compile_cached(compiler: Compiler, source: Path, options: Sequence[str], root: Path | None = None) -> Path:
    """The artefact of `source`, from the cache or built now; `root`: include folder."""
    name = _name(compiler, source, options, root or source_root())
    artefact = _known(name, compiler.suffix)
    if artefact is not None:
        return artefact
    with busy("compiles a kernel"), one_builder(folder_of("kernels") / f".lock-{name}"):
        return _known(name, compiler.suffix) or _build(compiler, source, options, name)


def is_cached(compiler: Compiler, source: Path, options: Sequence[str], root: Path | None = None) -> bool:
    """True if `compile_cached` would find the artefact."""
    return _known(_name(compiler, source, options, root or source_root()), compiler.suffix) is not None


def read_log(artefact: Path) -> str:
    """Text that the compiler printed for this artefact (nvcc: registers, shared memory, spills)."""
    return (artefact.parent / "log.txt").read_text()


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def _name(compiler: Compiler, source: Path, options: Sequence[str], root: Path) -> str:
    """The folder of an artefact."""
    return f"{source.parent.name}.{source.stem}.{cache_key(compiler, source, options, root)}"


def cache_key(compiler: Compiler, source: Path, options: Sequence[str], root: Path) -> str:
    """A hash of all that an artefact is made from."""
    digest = hashlib.sha256()
    for text in (compiler.identity, *sorted(options)):
        digest.update(text.encode() + b"\0")
    for name, content in _sources(source, root):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:32]


def _sources(source: Path, root: Path) -> list[tuple[str, bytes]]:
    """(name as included, content) of the source and all it includes, in order of appearance.

    A name that is not found is listed with no content: it may stand under an #if, and the key must
    change when the file appears.
    """
    found: list[tuple[str, bytes]] = []
    seen: set[str] = set()
    pending = [(source.name, os.path.normpath(source))]
    while pending:
        name, path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        content, includes = _read(path)
        found.append((name, content))
        for included in reversed(includes):
            beside = os.path.normpath(os.path.join(os.path.dirname(path), included))  # noqa: PTH118, PTH120
            in_root = os.path.normpath(os.path.join(root, included))  # noqa: PTH118
            pending.append((included, beside if os.path.isfile(beside) else in_root))  # noqa: PTH113
    return found


SETTLED_NS = 2_000_000_000  # an older file cannot have changed since it was read without another time of change
_texts: dict[str, tuple[tuple[int, int], bytes, list[str]]] = {}  # time of change and size, content, includes


def _read(path: str) -> tuple[bytes, list[str]]:
    """The content of a file and the names that it includes; nothing if there is no such file.

    Headers are common to many kernels, so what was read is kept until the file changes.
    """
    try:
        status = os.stat(path)  # noqa: PTH116
        stamp = status.st_mtime_ns, status.st_size
        held = _texts.get(path)
        if held is None or held[0] != stamp:
            content = Path(path).read_bytes()
            held = stamp, content, _INCLUDE.findall(content.decode(errors="replace"))
            if time.time_ns() - stamp[0] > SETTLED_NS:
                _texts[path] = held
    except OSError:
        return b"", []
    return held[1:]


def _known(name: str, suffix: str) -> Path | None:
    """The artefact of this name, from the cache or from the folder in its place."""
    folders = [folder_of("kernels"), *([_fallback / "kernels"] if _fallback is not None else [])]
    return next((found for folder in folders if (found := _find(folder / name, suffix)) is not None), None)


def _find(folder: Path, suffix: str) -> Path | None:
    """The artefact whose content is what its name says."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:  # there is none; `_publish` meets what is wrong with the folder, and repairs or reports it
        return None
    for name in names:
        with suppress(OSError):
            if name.startswith("kernel.") and name == _artefact_name((folder / name).read_bytes(), suffix):
                return folder / name
    return None


def _artefact_name(content: bytes, suffix: str) -> str:
    return f"kernel.{hashlib.sha256(content).hexdigest()[:32]}{suffix}"


@contextmanager
def one_builder(lock: Path) -> Iterator[None]:
    """Other processes that want the same artefact wait; if a file cannot be locked here, each process builds its own.

    The system releases the lock of a process that is killed.
    """
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            lock.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(lock.open("w"))
            stack.callback(lock.unlink, missing_ok=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(compiler: Compiler, source: Path, options: Sequence[str], name: str) -> Path:
    with work_folder(temporary(), "alpha-compile-") as work:
        output = work / f"kernel{compiler.suffix}"
        log = compiler.build(source, options, output)
        content = output.read_bytes()
    folder = folder_of("kernels")
    try:
        return _publish(folder, name, content, log, compiler.suffix)
    except OSError as error:  # read-only, full, not a directory
        return _publish(_fall_back(folder, error) / "kernels", name, content, log, compiler.suffix)


def _publish(cache: Path, name: str, content: bytes, log: str, suffix: str) -> Path:
    """Make the artefact appear at once; of several publishers the first one's stays."""
    cache.mkdir(parents=True, exist_ok=True)
    final = cache / name
    artefact = _artefact_name(content, suffix)
    with work_folder(cache, ".build-") as work:
        (work / artefact).write_bytes(content)
        (work / "log.txt").write_text(log)
        try:
            work.rename(final)
        except OSError:
            good = _find(final, suffix)
            if good is not None:  # another builder was first
                return good
            if not os.path.lexists(final):
                raise
            damaged = cache / f".build-damaged-{secrets.token_hex(8)}"
            final.rename(damaged)
            remove(damaged)
            work.rename(final)
    return final / artefact


_fallback: Path | None = None
_falling = fork.held_across(threading.Lock())


def folder_of(kind: str) -> Path:
    """A folder of the cache; if there is no home folder, a temporary one, after one warning."""
    try:
        return config.cache_dir() / kind
    except ConfigError as error:
        return _fall_back(None, error) / kind


def _fall_back(cache: Path | None, error: OSError | ConfigError) -> Path:
    """A temporary folder of this process, after one warning; it serves for what `cache` cannot keep."""
    global _fallback
    with _falling:
        if _fallback is not None:
            return _fallback
        _fallback, lock = new_work_folder(temporary(), "alpha-kernels-")
        atexit.register(_drop, _fallback, os.getpid(), lock)
        where = "" if cache is None else f" in {cache}"
        why = error if cache is None or isinstance(error, ConfigError) else why_not(cache, error)
    warnings.warn(
        f"kernels cannot be kept{where} ({why}) and are compiled anew in every process: "
        f"set {config.CACHE_DIR.name} to a writable folder",
        RuntimeWarning,
        stacklevel=2,
    )
    return _fallback


def _drop(folder: Path, process: int, lock: int | None) -> None:
    """Remove the folder of a process that ends; a fork of it ends, too, and must not."""
    if os.getpid() == process:
        remove(folder)
