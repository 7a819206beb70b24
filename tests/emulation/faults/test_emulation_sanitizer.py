"""Kernels built with AddressSanitizer and UBSan: the report names the file and line of the mistake.

The sanitizer ends the process, so each kernel runs in a process of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import child
import primitive_calls
import pytest
import sampling
from kernel_emulator import source_line

SOURCE = "faults.cu"
TESTS = Path(__file__).parents[2]
FLOATS = "np.ones(60, np.float32)"
MANY = "np.ones(512, np.float32)"


def address_sanitizer() -> Path | None:
    """The library to load before Python, where the compiler has one."""
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        return None
    command = [compiler, "-print-file-name=libasan.so"]
    path = Path(child.run(command).stdout.strip())
    return path if path.is_absolute() else None


LIBRARY = address_sanitizer()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the compiler has no AddressSanitizer")


def sanitized(*arguments: str, preload: bool = True) -> subprocess.CompletedProcess[str]:
    """Python with sanitized kernels; `preload` False: without the sanitizer's library."""
    variables = {
        "ALPHA_CUDA_DRIVER": "emulated",
        "ALPHA_EMULATED_SANITIZE": "address,undefined",
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    if preload:
        variables["LD_PRELOAD"] = str(LIBRARY)
    return child.run(
        [sys.executable, *arguments], env=child.environment(TESTS / "support", TESTS / "emulation", **variables)
    )


def run(script: str, preload: bool = True) -> subprocess.CompletedProcess[str]:
    script = f"import numpy as np\nfrom kernel_emulator import Emulator\n{script}"
    return sanitized("-c", script, preload=preload)


def launch(kernel: str, threads: int, *args: str, shared_bytes: int = 0, correct: int = 0) -> str:
    call = f'{SOURCE!r}, "{kernel}", 1, {threads}, {", ".join(args)}, shared_bytes={shared_bytes}'
    return f'Emulator()({call}, defines={{"CORRECT": {correct}}})'


MISTAKES = {
    "read": (launch("read_beside", 60, FLOATS, FLOATS, "np.int64(1)"), "READ of size 4", "read"),
    "far read": (launch("read_beside", 60, FLOATS, FLOATS, "np.int64(9999)"), "SEGV", "read"),
    "write": (launch("write_beside", 60, FLOATS, FLOATS, "np.int64(1)"), "WRITE of size 4", "write"),
    "static shared": (launch("static_overrun", 64, FLOATS), "index 64 out of bounds", "static"),
    "dynamic shared": (launch("shared_overrun", 64, MANY, shared_bytes=256), "WRITE of size 4", "dynamic"),
    "misaligned": (launch("misaligned_read", 1, FLOATS, FLOATS), "misaligned address", "misaligned"),
}


@pytest.mark.sanitize
@pytest.mark.parametrize(("script", "report", "mistake"), MISTAKES.values(), ids=MISTAKES)
def test_report_names_the_line(script: str, report: str, mistake: str) -> None:
    result = run(script)
    assert result.returncode != 0
    assert report in result.stderr
    line = source_line(SOURCE, f"// line: {mistake}")
    assert re.search(rf"{SOURCE}:{line}\b", result.stderr), result.stderr


@pytest.mark.sanitize
def test_correct_kernels_are_silent() -> None:
    calls = [
        launch("read_beside", 60, FLOATS, FLOATS, "np.int64(1)", correct=1),
        launch("missing_second_barrier", 128, MANY, MANY, correct=1),
        launch("static_overrun", 60, FLOATS, correct=1),
        launch("early_copy", 128, MANY, MANY, correct=1),
    ]
    result = run("\n".join(calls))
    assert (result.returncode, result.stderr) == (0, "")


ROWS = """
import sys
import conv2d_geometry, index_mutations
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver

wide = ("conv_v2_sm80_tf32x3_128x64", "ks_deconv_sm80_tf32x3_128x64", "sk_dilated_sm80_tf32x3_128x128")
rows = [*index_mutations.rows(), *(row for row in CONFIGURATIONS if row.name in wide)]
device = CudaDevice(EmulatedDriver())
for row in rows[int(sys.argv[1]) :: int(sys.argv[2])]:
    # a kernel for Hopper is compiled for each shape
    for s in conv2d_geometry.of(row)[: 1 if conv2d_geometry.is_hopper(row) else None]:
        wrong = index_mutations._run_row(row, s, device)
        assert wrong is None, wrong
"""


@pytest.mark.sanitize
def test_convolutions_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions have bias, activation and statistics; each way to take operands has small and larger tiles."""
    monkeypatch.setenv("ALPHA_ARCH", "sm_90a")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(str(TESTS / name) for name in ("support", "support/conv2d", "gate"))
    )
    count = os.cpu_count() or 1
    with ThreadPoolExecutor(count) as pool:
        results = list(pool.map(lambda part: sanitized("-c", ROWS, str(part), str(count)), range(count)))
    for result in results:
        assert (result.returncode, result.stderr) == (0, ""), result.stdout[-4000:] + result.stderr[-4000:]


@pytest.mark.sanitize
def test_primitives_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_ARCH", "sm_90a")
    options = ("-q", "-p", "no:cacheprovider", "--numprocesses", "auto", "--dist", "worksteal", "-k", "cuda_equals_cpu")
    options += ("-m", sampling.WHOLE)
    result = sanitized("-m", "pytest", *options, str(TESTS / "ops" / "all" / "test_primitives.py"))
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed is not None
    assert int(passed[1]) >= len(primitive_calls.CASES)  # all of them, not a sample


@pytest.mark.slow
def test_without_the_library_the_error_says_how() -> None:
    result = run("Emulator()", preload=False)
    assert "DeviceError: ALPHA_EMULATED_SANITIZE=address needs" in result.stderr
    assert "LD_PRELOAD=" in result.stderr
