"""Facts that the emulated driver's compiler reads from a kernel file."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpha.errors import CompileError
from alpha.runtime.cuda.cache import source_root
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.emulated.emulated_compiler import (
    EmulatedCompiler,
    arch_number,
    compiler_version,
    entries,
    find_compiler,
    run_compiler,
)

SOURCE = """
extern "C" __global__ void plain(const float* x, int n) { }
extern "C" __global__ void __launch_bounds__(Tile<64, 32>::THREADS, 2)
    tiled(float* __restrict__ y) {}
extern "C" __global__ void
__launch_bounds__((4 * 32)) bounded(int n) {
}
extern "C" __global__ void declared_only(int n);
__global__ void mangled(int n) {}
template <int N> __device__ int helper(int n) { return n; }
"""


def test_entries_and_their_launch_bounds() -> None:
    assert entries(SOURCE) == [("plain", "1024"), ("tiled", "Tile<64, 32>::THREADS"), ("bounded", "(4 * 32)")]


@pytest.mark.parametrize(("arch", "number"), [("sm_75", 750), ("sm_90a", 900), ("sm_120", 1200)])
def test_architecture_macro(arch: str, number: int) -> None:
    assert arch_number(arch) == number


def test_error_names_the_line(tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text('#include "common/cuda.h"\nextern "C" __global__ void f() { nonsense; }\n')
    with pytest.raises(CompileError, match=r"(?s)broken.cu does not compile.*broken.cu:2:.*nonsense"):
        EmulatedDriver().compile(source, [])


def test_the_compiler_runs_without_the_library_of_a_sanitizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    script = tmp_path / "compiler"
    script.write_text("#!/bin/sh\necho preloads ${LD_PRELOAD-nothing}\n")
    script.chmod(0o755)
    assert run_compiler([str(script)], tmp_path / "x.cu", ()) == "preloads nothing\n"


@pytest.mark.slow
def test_headers_are_compiled_once_and_left_aside_if_they_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPHA_CACHE_DIR", str(tmp_path / "cache"))
    compiler = EmulatedCompiler("sm_80")
    if "clang" in compiler_version(find_compiler()):
        pytest.skip("clang takes the text of the headers")
    for name, option, mark in (("a", "-Wall", "!"), ("b", "-Wall", "!"), ("c", "-fexceptions", "x")):
        log = compiler.build(source_root() / "runtime" / "fill.cu", [option, "-H"], tmp_path / f"{name}.so")
        assert (tmp_path / f"{name}.so").is_file()
        (line,) = (line for line in log.splitlines() if line.endswith(".gch"))
        assert line.startswith(mark)
    assert len(list((tmp_path / "cache").rglob("*.gch"))) == 1


def test_a_sanitizer_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_EMULATED_SANITIZE", "undefined")
    flags = EmulatedCompiler("sm_80").identity
    assert "-fsanitize=undefined" in flags
    assert "-fno-sanitize-recover=undefined" in flags
    assert "-fno-omit-frame-pointer" in flags
