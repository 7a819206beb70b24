"""Reports of files that are compiled together are those of files compiled alone; mistakes name their file."""

from __future__ import annotations

from pathlib import Path

import batches
import pytest
import resources

from alpha.errors import CompileError
from alpha.runtime.cuda.cache import CommandCompiler

KERNEL = """#include <stdint.h>
LINE
template <int N> __device__ float several(float x) { return N * x + ALPHA_A; }
extern "C" __global__ void scale(float* Y) {
  __shared__ float part[ALPHA_A];
  part[threadIdx.x] = several<2>(Y[threadIdx.x]);
  __syncthreads();
  Y[threadIdx.x] = part[ALPHA_A - 1 - threadIdx.x];
}
"""
UNITS = [("a.cu", ("-DALPHA_A=32",)), ("a.cu", ("-DALPHA_A=64",)), ("b.cu", ("-DALPHA_A=32",))]

pytestmark = [pytest.mark.gate, pytest.mark.skipif(resources.NVCC is None, reason="nvcc is not installed")]


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernel files in a folder of their own, and the names of the files that nvcc is given."""
    monkeypatch.setenv("ALPHA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(batches, "source_root", lambda: tmp_path)
    for name in ("a.cu", "b.cu"):
        (tmp_path / name).write_text(KERNEL.replace("LINE", ""))
    found: list[str] = []
    make = batches.nvcc_compiler

    def noting(nvcc: Path, arch: str) -> CommandCompiler:
        compiler = make(nvcc, arch)
        build = compiler.build
        monkeypatch.setattr(compiler, "build", lambda source, *rest: found.append(source.name) or build(source, *rest))
        return compiler

    monkeypatch.setattr(batches, "nvcc_compiler", noting)
    return found


def logs() -> dict[batches.Unit, str]:
    assert resources.NVCC is not None
    return batches.logs(resources.NVCC, "sm_80", batches.texts(resources.NVCC, "sm_80", UNITS))


def test_a_batch_reports_what_each_file_alone_does(builds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    together = {unit: resources.read_report(log) for unit, log in logs().items()}
    assert builds == ["batch.cu"]
    assert logs().keys() == together.keys()
    assert builds == ["batch.cu"]  # the second time they are kept
    monkeypatch.setattr(batches, "BATCH", 1)
    monkeypatch.setattr(batches, "_place", lambda text: Path("/nowhere"))
    monkeypatch.setattr(batches, "_keep", lambda place, log: None)
    assert {unit: resources.read_report(log) for unit, log in logs().items()} == together
    assert [report.entries["scale"].shared_bytes for report in together.values()] == [128, 256, 128]


def test_a_warning_names_its_file(builds: list[str], tmp_path: Path) -> None:
    (tmp_path / "b.cu").write_text(KERNEL.replace("LINE", "__device__ int unused() { int x; return x; }"))
    warned = [unit for unit, log in logs().items() if resources.read_report(log).warnings]
    assert warned == [UNITS[2]]
    assert sorted(builds) == ["a.cu", "a.cu", "b.cu", "batch.cu"]


def test_what_a_header_does_not_use_is_no_fault(
    builds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants of a header that nobody uses do not split a batch, which would compile its files alone for nothing."""
    (tmp_path / "c.cuh").write_text("constexpr int UNUSED = 1;\n")
    (tmp_path / "b.cu").write_text(KERNEL.replace("LINE", '#include "c.cuh"'))
    logs()
    assert builds == ["batch.cu"]
    builds.clear()
    monkeypatch.setattr(batches, "UNUSED_IN_HEADER", "")
    with pytest.warns(UserWarning, match="UNUSED"):
        logs()
    assert sorted(builds) == ["a.cu", "a.cu", "b.cu", "batch.cu"]


@pytest.mark.parametrize("line", ["int f() { return undeclared; }", "#error no", '#include "missing.cuh"'])
def test_a_mistake_names_its_file(builds: list[str], tmp_path: Path, line: str) -> None:
    (tmp_path / "b.cu").write_text(KERNEL.replace("LINE", line))
    with pytest.raises(CompileError, match=r"(?s)b\.cu.*(undeclared|#error no|missing\.cuh)"):
        logs()
