"""Compilation of these kernels, hence of every PTX wrapper, with nvcc: no warning, no spill, no stack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernel_emulator import KERNELS

from alpha.runtime.cuda.compile import find_nvcc, nvcc_compiler
from alpha.runtime.cuda.kernel import define_options

NVCC = find_nvcc()
pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")

ROWS = [
    ("semantics.cu", "sm_75", {}),
    ("tiles.cu", "sm_80", {}),
    ("tiles.cu", "sm_120", {}),
    ("faults.cu", "sm_80", {"CORRECT": 1}),
    ("hopper.cu", "sm_90a", {"N": 64, "A_REGISTERS": 0}),
    ("hopper.cu", "sm_90a", {"N": 96, "A_REGISTERS": 1}),
    *(
        pytest.param("hopper.cu", "sm_90a", {"N": n, "A_REGISTERS": n // 32 % 2}, marks=pytest.mark.gate)
        for n in (128, 160, 192, 224, 256)
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("source", "arch", "defines"), ROWS)
def test_compiles(source: str, arch: str, defines: dict[str, int], tmp_path: Path) -> None:
    assert NVCC is not None
    compiler = nvcc_compiler(NVCC, arch)
    log = compiler.build(KERNELS / source, define_options(defines), tmp_path / "kernel.cubin")
    assert "warning" not in log, log
    if source != "faults.cu":  # one of them overruns its stack
        assert set(re.findall(r"(\d+) bytes (?:spill|stack)", log)) == {"0"}
