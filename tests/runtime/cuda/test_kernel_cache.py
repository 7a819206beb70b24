"""The disk cache of kernels, over a compiler that only copies, and over nvcc where there is one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

import child
import pytest

from alpha.errors import CompileError
from alpha.runtime.cuda import cache
from alpha.runtime.cuda.cache import CommandCompiler, Compiler, compile_cached, read_log, work_folder
from alpha.runtime.cuda.compile import NvrtcCompiler, find_nvcc, nvcc_compiler, target

KERNEL = 'extern "C" __global__ void k(float* Y) { Y[threadIdx.x] = ALPHA_A; }\n'

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")


class Copier(Compiler):
    """Compiler whose artefact is the source, the options and the number of the build."""

    suffix = ".bin"

    def __init__(self, identity: str = "copier 1") -> None:
        self.identity = identity
        self.builds = 0

    def build(self, source: Path, options: Sequence[str], output: Path) -> str:
        self.builds += 1
        output.write_bytes(source.read_bytes() + " ".join(options).encode())
        return f"built {source.name}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a source tree with two headers."""
    monkeypatch.setenv("ALPHA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_fallback", None)
    (tmp_path / "cuda" / "conv").mkdir(parents=True)
    (tmp_path / "cuda" / "common").mkdir()
    (tmp_path / "cuda/conv/a.cu").write_text('#include "common/x.cuh"\nkernel\n')
    (tmp_path / "cuda/common/x.cuh").write_text('# include "y.cuh"\n#include <stdint.h>\n')
    (tmp_path / "cuda/common/y.cuh").write_text("why\n")
    return tmp_path


def build(folder: Path, compiler: Compiler, *options: str) -> Path:
    return compile_cached(compiler, folder / "cuda/conv/a.cu", options, folder / "cuda")


def test_second_call_is_a_hit(folder: Path) -> None:
    compiler = Copier()
    path = build(folder, compiler, "-DB=1", "-DA=2")
    assert build(folder, compiler, "-DA=2", "-DB=1") == path
    assert compiler.builds == 1
    assert path.parent.parent == folder / "cache" / "kernels"
    assert path.parent.name.startswith("conv.a.")
    assert read_log(path) == "built a.cu"
    assert [p.name for p in (folder / "cache/kernels").iterdir()] == [path.parent.name]


@pytest.mark.parametrize("file", ["conv/a.cu", "common/x.cuh", "common/y.cuh"])
def test_a_change_in_any_included_file_is_a_miss(folder: Path, file: str) -> None:
    compiler = Copier()
    build(folder, compiler)
    with (folder / "cuda" / file).open("a") as stream:
        stream.write("// changed\n")
    build(folder, compiler)
    assert compiler.builds == 2


def test_a_change_that_the_time_of_change_does_not_show_is_a_miss(folder: Path) -> None:
    """Two writes at nearly the same time have one, so a new file is read again."""
    compiler, file = Copier(), folder / "cuda/common/y.cuh"
    stamp = file.stat().st_mtime_ns
    build(folder, compiler)
    file.write_text("WHY\n")
    os.utime(file, ns=(stamp, stamp))
    build(folder, compiler)
    assert compiler.builds == 2


def test_options_identity_and_new_headers_are_misses(folder: Path) -> None:
    compiler = Copier()
    build(folder, compiler)
    build(folder, compiler, "-DA=1")
    assert compiler.builds == 2
    other = Copier("copier 2")
    build(folder, other)
    assert other.builds == 1
    (folder / "cuda/common/y.cuh").write_text('why\n#include "later.cuh"\n')
    build(folder, compiler)
    (folder / "cuda/common/later.cuh").write_text("now\n")
    build(folder, compiler)
    assert compiler.builds == 4


@pytest.mark.parametrize("damage", ["truncate", "alter", "delete", "empty"])
def test_a_damaged_artefact_is_compiled_again(folder: Path, damage: str) -> None:
    compiler = Copier()
    path = build(folder, compiler)
    good = path.read_bytes()
    if damage == "delete":
        path.unlink()
    else:
        path.write_bytes({"truncate": good[:-3], "alter": good[:-1] + b"?", "empty": b""}[damage])
    again = build(folder, compiler)
    assert again.read_bytes() == good
    assert compiler.builds == 2
    assert build(folder, compiler) == again
    assert compiler.builds == 2


def test_a_damaged_artefact_beside_another_build(folder: Path) -> None:
    path = build(folder, Copier())
    path.rename(path.with_name("kernel.0123.bin"))
    again = build(folder, Copier())
    assert sorted(p.name for p in again.parent.iterdir()) == [again.name, "log.txt"]


def test_threads_that_race_end_with_one_artefact(folder: Path) -> None:
    start, found = threading.Barrier(8), []

    def race() -> None:
        start.wait()
        found.append(build(folder, Copier()))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert found[0].is_file()
    assert len(list((folder / "cache/kernels").iterdir())) == 1


RACER = """
import sys
from pathlib import Path
from alpha.runtime.cuda.cache import CommandCompiler, compile_cached
folder, start = Path(sys.argv[1]), sys.argv[2]
copy = (
    "import sys, shutil, time; open(sys.argv[3], 'a').write('b'); time.sleep(float(sys.argv[4]));"
    "shutil.copy(*sys.argv[1:3])"
)
compiler = CommandCompiler(
    "copy", "copy", ".bin",
    lambda s, o, out: [sys.executable, "-c", copy, str(s), str(out), str(folder / "builds"), sys.argv[3]]
)
if start == "together":
    print("ready", flush=True)
    sys.stdin.readline()
print(compile_cached(compiler, folder / "cuda/conv/a.cu", [], folder / "cuda").read_text())
"""


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, pytest.param(True, marks=pytest.mark.gate)])
def test_processes_that_race_end_with_one_artefact(folder: Path, damaged: bool) -> None:
    def racers(count: int) -> list[str]:
        command = [sys.executable, "-c", RACER, str(folder), "together", "0.05"]
        processes = [child.start(command, stdin=PIPE, stdout=PIPE) for _ in range(count)]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [child.finish(process)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * count
        return outputs

    if damaged:
        racers(1)
        (artefact,) = (folder / "cache/kernels").glob("*/kernel.*.bin")
        artefact.write_text("damaged")
    source = (folder / "cuda/conv/a.cu").read_text()
    assert racers(6) == [source + "\n"] * 6
    (entry,) = (folder / "cache/kernels").iterdir()
    assert len(list(entry.glob("kernel.*.bin"))) == 1
    assert len((folder / "builds").read_text()) == (2 if damaged else 1)  # the others waited


@pytest.mark.slow
def test_a_killed_builder_holds_up_nobody(folder: Path) -> None:
    killed = child.start([sys.executable, "-c", RACER, str(folder), "at once", "6000"], start_new_session=True)
    while not (folder / "builds").is_file():
        assert killed.poll() is None
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    path = build(folder, Copier("copy"))
    assert path.read_bytes() == (folder / "cuda/conv/a.cu").read_bytes()
    assert [entry.name for entry in (folder / "cache/kernels").iterdir()] == [path.parent.name]


def test_a_cache_that_cannot_be_written_warns_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = folder / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("ALPHA_CACHE_DIR", str(blocked))
    compiler = Copier()
    with pytest.warns(RuntimeWarning, match=r"set ALPHA_CACHE_DIR to a writable folder"):
        path = build(folder, compiler)
    assert path.is_file()
    assert build(folder, compiler) == path
    assert build(folder, compiler, "-DA=1").is_file()
    assert compiler.builds == 2


IN_PLACE: dict[str, Callable[[Path], object]] = {  # of the folder of an artefact
    "a file": lambda path: path.write_text("no folder"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to a file": lambda path: path.symlink_to(__file__),
    "an empty folder": Path.mkdir,
    "a folder that nobody may read": lambda path: path.mkdir(0),
    "a folder in place of the artefact": lambda path: (path / "kernel.0123.bin").mkdir(parents=True),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("what", IN_PLACE)
def test_what_stands_in_place_of_an_artefact_is_replaced(folder: Path, what: str) -> None:
    entry = build(folder, Copier()).parent
    shutil.rmtree(entry)
    IN_PLACE[what](entry)
    compiler = Copier()
    path = build(folder, compiler)
    assert path.parent == entry
    assert build(folder, compiler) == path
    assert compiler.builds == 1
    assert [entry.name for entry in (folder / "cache/kernels").iterdir()] == [path.parent.name]


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file": (lambda path: path.write_text(""), "{path} is no folder"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "{path} is a link to nothing"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "{path} is a link to nothing"),
    "kernels is a file": (lambda path: (path.mkdir(), (path / "kernels").write_text("")), "kernels is no folder"),
    "below a file": (lambda path: path.parent.write_text(""), "{path.parent} is no folder"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_a_cache_that_cannot_be_used_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    make, why = UNUSABLE[what]
    path = folder / "other" / "cache" if what == "below a file" else folder / "other"
    make(path)
    monkeypatch.setenv("ALPHA_CACHE_DIR", str(path))
    compiler = Copier()
    with pytest.warns(RuntimeWarning, match=re.escape(why.format(path=path))) as caught:
        first = build(folder, compiler)
    assert "set ALPHA_CACHE_DIR to a writable folder" in str(caught[0].message)
    second = build(folder, compiler, "-DA=1")  # without another warning
    assert (build(folder, compiler), build(folder, compiler, "-DA=1")) == (first, second)
    assert compiler.builds == 2


def test_without_a_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    monkeypatch.delenv("ALPHA_CACHE_DIR")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.warns(RuntimeWarning, match=r"\(there is no home folder for .*HOME is not set.*set ALPHA_CACHE_DIR"):
        path = build(folder, Copier())
    compiler = Copier()
    assert build(folder, compiler) == path
    assert compiler.builds == 0
    monkeypatch.setenv("ALPHA_CACHE_DIR", "~/x")
    monkeypatch.setattr(cache, "_fallback", None)
    with pytest.warns(RuntimeWarning, match=r"ALPHA_CACHE_DIR='~/x': there is no home folder; give the whole path"):
        build(folder, Copier())
    assert not Path("~").exists()


def test_a_cache_that_cannot_be_written_still_gives_what_it_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = build(folder, Copier())
    real = tempfile.mkdtemp

    def refuse(suffix: str | None = None, prefix: str | None = None, dir: Path | None = None) -> str:
        if dir == folder / "cache" / "kernels":
            raise PermissionError(13, "Permission denied", str(dir))
        return real(suffix, prefix, dir)

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    compiler = Copier()
    with pytest.warns(RuntimeWarning, match=r"Permission denied: '.*cache/kernels'"):
        other = build(folder, compiler, "-DA=1")
    assert build(folder, compiler) == kept
    assert build(folder, compiler, "-DA=1") == other
    assert compiler.builds == 1


@pytest.mark.slow
def test_a_killed_compiler_leaves_nothing_behind_the_next_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    process = child.start([sys.executable, "-c", RACER, str(folder), "at once", "6000"], start_new_session=True)
    while not (folder / "builds").is_file():
        assert process.poll() is None
        time.sleep(0.02)
    (left,) = temporary.iterdir()
    cache.sweep.cache_clear()
    build(folder, Copier())  # the other one lives, so its folder stays
    assert list(temporary.iterdir()) == [left]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    cache.sweep.cache_clear()
    build(folder, Copier("another"))
    assert not list(temporary.iterdir())


def test_a_folder_that_another_process_takes_for_a_left_one_is_not_used(tmp_path: Path, monkeypatch: Any) -> None:
    real, taken = cache._hold, []

    def hold(folder: Path) -> int | None:
        if not taken:
            taken.append(folder)
            cache.remove(folder)
        return real(folder)

    monkeypatch.setattr(cache, "_hold", hold)
    with work_folder(tmp_path, "x-") as folder:
        assert folder.is_dir()
        assert [folder] == list(tmp_path.glob("x-*")) != taken
    assert not list(tmp_path.glob("x-*"))


def test_a_forked_child_leaves_the_folder_in_place_of_the_cache(tmp_path: Path) -> None:
    cache._drop(tmp_path, os.getpid() + 1, None)
    assert tmp_path.is_dir()
    cache._drop(tmp_path, os.getpid(), None)
    assert not tmp_path.exists()


def test_a_full_disk_leaves_nothing_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if "cache" in path.parts:
            real(path, data[:2])
            raise OSError(28, "No space left on device")
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert build(folder, Copier()).is_file()
    assert list((folder / "cache/kernels").iterdir()) == []


def test_a_failing_command_shows_command_options_and_text(folder: Path) -> None:
    script = "import sys; print('line 3: no'); sys.exit(2)"
    compiler = CommandCompiler("c", "c", ".o", lambda s, o, out: [sys.executable, "-c", script, *o])
    with pytest.raises(CompileError) as info:
        build(folder, compiler, "-DALPHA_A=1")
    message = str(info.value)
    for part in ("a.cu does not compile (exit 2)", "options: -DALPHA_A=1", "line 3: no", "sys.exit"):
        assert part in message
    assert list((folder / "cache/kernels").iterdir()) == []


def test_a_missing_command(folder: Path) -> None:
    compiler = CommandCompiler("ccx", "c", ".o", lambda s, o, out: ["/no/such/ccx"])
    with pytest.raises(CompileError, match="ccx could not be started"):
        build(folder, compiler)


def test_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALPHA_ARCH", raising=False)
    assert [target(c) for c in ((7, 5), (9, 0), (12, 0))] == ["sm_75", "sm_90a", "sm_120"]
    monkeypatch.setenv("ALPHA_ARCH", "sm_80")
    assert target((9, 0)) == "sm_80"


@pytest.mark.slow
@needs_nvcc
def test_nvcc(folder: Path) -> None:
    nvcc = find_nvcc()
    assert nvcc is not None
    compiler = nvcc_compiler(nvcc, "sm_90a")
    (folder / "cuda/conv/a.cu").write_text(KERNEL)
    path = build(folder, compiler, "-DALPHA_A=2.0f")
    assert path.read_bytes().startswith(b"\x7fELF")
    assert "registers" in read_log(path)
    assert compiler.identity != nvcc_compiler(nvcc, "sm_80").identity
    with pytest.raises(CompileError, match=r'a\.cu\(1\): error: identifier "ALPHA_A" is undefined'):
        build(folder, compiler)


def test_nvrtc(folder: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    try:
        compiler = NvrtcCompiler("sm_90a")
    except CompileError as error:
        pytest.skip(str(error))
    (folder / "cuda/conv/a.cu").write_text("#include <stdint.h>\n" + KERNEL)
    path = build(folder, compiler, "-DALPHA_A=2.0f")
    assert path.read_bytes().startswith(b"\x7fELF")
    assert "registers" in read_log(path)
    with pytest.raises(CompileError, match="ALPHA_A"):
        build(folder, compiler)


def test_who_builds_holds_up_the_others(folder: Path) -> None:
    """The others wait, so that each artefact is built once."""
    lock, entered = folder / "lock", threading.Event()

    def second() -> None:
        with cache.one_builder(lock):
            entered.set()

    thread = threading.Thread(target=second)
    with cache.one_builder(lock):
        thread.start()
        assert not entered.wait(0.2)
    assert entered.wait(child.HANG_S)
    thread.join()


def test_a_rename_that_fails_gives_its_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, target: Path) -> Path:
        if path.name.startswith(".build-") and "cache" in path.parts:
            raise PermissionError(13, "not here")
        return real(path, target)

    real = Path.rename
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.warns(RuntimeWarning, match="not here"):
        assert build(folder, Copier()).is_file()


def test_a_key_is_32_digits(folder: Path) -> None:
    assert re.fullmatch(r"conv\.a\.[0-9a-f]{32}", build(folder, Copier()).parent.name)
