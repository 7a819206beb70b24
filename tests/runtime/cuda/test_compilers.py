"""Many kernels compiled at once: which ones, how many at a time, what an error or an interrupt stops."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import child
import pytest

from alpha.errors import CompileError
from alpha.runtime import workers
from alpha.runtime.cuda import cache
from alpha.runtime.cuda.cache import CommandCompiler, compile_cached, is_cached
from alpha.runtime.cuda.compile import Unit, compile_units

SOURCE = "runtime/fill.cu"


def long(folder: Path) -> str:
    """Seconds that no test waits for, another number for each test, so that its processes can be found."""
    return f"600.{zlib.crc32(str(folder).encode())}"


class Compilers:
    """A driver whose compiler sleeps for as many seconds as its first option says; "fail" fails at once."""

    def __init__(self, folder: Path, kept: Sequence[Unit] = ()) -> None:
        self.folder, self.kept = folder, set(kept)
        self.compiled: list[Unit] = []
        self.most = self.running = 0
        self.together: threading.Barrier | None = None  # so many compilers wait for each other
        self._lock = threading.Lock()

    def is_compiled(self, source: Path, options: Sequence[str]) -> bool:
        return (f"{source.parent.name}/{source.name}", tuple(options)) in self.kept

    def compile(self, source: Path, options: Sequence[str]) -> Path:
        with self._lock:
            self.compiled.append((f"{source.parent.name}/{source.name}", tuple(options)))
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            if self.together is not None:
                self.together.wait(child.HANG_S)
            if options[0] == "fail":
                raise CompileError("fill.cu does not compile")
            # a compiler that starts another process, as nvcc does
            other = f"import subprocess; subprocess.run(['sleep', '{options[0]}'])"
            cache.run([sys.executable, "-S", "-c", f"{other}; open({str(self.marker(options))!r}, 'w')"])
        finally:
            with self._lock:
                self.running -= 1
        return source

    def marker(self, options: Sequence[str]) -> Path:
        """File that a compiler writes if it was not stopped."""
        return self.folder / f"done {' '.join(options)}"


def units(*seconds: str) -> list[Unit]:
    return [(SOURCE, (text, f"-DALPHA_N={number}")) for number, text in enumerate(seconds)]


def compile_all(driver: Any, wanted: Sequence[Unit], **options: Any) -> int:
    return compile_units(driver, wanted, **options)


def test_each_missing_unit_is_compiled_once(tmp_path: Path) -> None:
    wanted = units("0", "0", "0", "0")
    driver = Compilers(tmp_path, kept=wanted[1:2])
    assert compile_all(driver, [*wanted, *wanted]) == 3
    assert sorted(driver.compiled) == [wanted[0], *wanted[2:]]
    assert compile_all(Compilers(tmp_path, kept=wanted), wanted) == 0
    assert compile_all(driver, []) == 0


@pytest.mark.parametrize("cores", [1, 3])
def test_as_many_at_a_time_as_there_are_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(workers, "cores", lambda: cores)
    driver = Compilers(tmp_path)
    driver.together = threading.Barrier(cores)
    assert compile_all(driver, units(*["0"] * 2 * cores)) == 2 * cores
    assert driver.most == cores


def sleepers(folder: Path) -> list[str]:
    """The processes that sleep for `long(folder)` seconds."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{long(folder)}\0".encode():
                found.append(path.parent.name)
        except OSError:  # it has ended
            continue
    return found


def assert_stopped(driver: Compilers) -> None:
    """No compiler has come to its end."""
    while sleepers(driver.folder):
        time.sleep(0.05)
    assert not list(driver.folder.glob(f"done {long(driver.folder)}*"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_error_stops_the_other_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    driver = Compilers(tmp_path)
    with pytest.raises(CompileError, match=r"fill.cu does not compile"):
        compile_all(driver, units(long(tmp_path), "fail", *[long(tmp_path)] * 2))
    assert_stopped(driver)
    assert len(driver.compiled) <= 3


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_an_interrupt_check_raises_stops_the_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)

    def check() -> None:
        if len(driver.compiled) == 2:
            raise KeyboardInterrupt

    driver = Compilers(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        compile_all(driver, units(*[long(tmp_path)] * 3), check=check)
    assert_stopped(driver)
    assert len(driver.compiled) == 2


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import test_compilers as t
print("ready", flush=True)
folder = Path(sys.argv[2])
t.compile_all(t.Compilers(folder), t.units(*[t.long(folder)] * 3))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_stops_the_compilers(tmp_path: Path) -> None:
    driver = Compilers(tmp_path)
    program = child.start(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(tmp_path)],
        env=child.environment(Path(child.__file__).parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a test runner in the background may ignore Ctrl-C, and its children with it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    while not sleepers(tmp_path):
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    _, text = child.finish(program)
    assert "KeyboardInterrupt" in text
    assert_stopped(driver)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stderr", [Terminal, io.StringIO])
def test_a_bar_shows_on_a_terminal_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: type[io.StringIO]
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr())
    wanted = units("0", "0", "0")
    compile_all(Compilers(tmp_path, kept=wanted[:1]), wanted)
    text = sys.stderr.getvalue()  # type: ignore[attr-defined]
    if stderr is io.StringIO:
        assert text == ""
    else:
        assert "compiling kernels:   0%" in text
        assert "0/2" in text
        assert text.endswith("\r")  # it is taken away at the end
    monkeypatch.setattr(sys, "stderr", stderr())
    compile_all(Compilers(tmp_path, kept=wanted), wanted)
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_the_cache_is_asked_without_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "a.cu"
    source.write_text("kernel\n")
    copy = CommandCompiler("cp", "1", ".bin", lambda source, options, output: ["cp", str(source), str(output)])
    assert not is_cached(copy, source, ["-DA=1"], tmp_path)
    compile_cached(copy, source, ["-DA=1"], tmp_path)
    assert is_cached(copy, source, ["-DA=1"], tmp_path)
    assert not is_cached(copy, source, ["-DA=2"], tmp_path)
    source.write_text("another kernel\n")
    assert not is_cached(copy, source, ["-DA=1"], tmp_path)


def test_a_compiler_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("kernel\n")
    missing = CommandCompiler("no-such-compiler", "1", ".bin", lambda *_: ["/no/such/compiler"])
    with pytest.raises(CompileError, match="no-such-compiler could not be started"):
        compile_cached(missing, tmp_path / "a.cu", (), tmp_path)
