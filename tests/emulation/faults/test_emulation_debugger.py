"""A kernel under gdb, as docs/debugging_kernels.md describes it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import child
import pytest
from kernel_emulator import source_line

FOLDER = Path(__file__).parents[1]  # of kernel_emulator.py
SCRIPT = """
import numpy as np
from kernel_emulator import Emulator
x = np.ones(60, np.float32)
Emulator()("faults.cu", "read_beside", 1, 60, x, x, np.int64(9999), defines={"CORRECT": 1})
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_breakpoint_in_one_thread() -> None:
    commands = [
        "set breakpoint pending on",
        "break read_beside if alpha_emulation::current->linear == 7",
        "run",
        "backtrace 1",
        "next",
        "next",
        "print threadIdx",
        "print i + 100",
    ]
    words = [word for command in commands for word in ("-ex", command)]
    result = child.run(
        ["gdb", "-nx", "-batch", *words, "--args", sys.executable, "-c", SCRIPT],
        env=child.environment(FOLDER, ALPHA_EMULATED_DEBUG="1"),
    )
    line = source_line("faults.cu", "// line: read")
    assert f"\n{line}\t" in result.stdout, result.stdout + result.stderr
    assert "= {x = 7, y = 0, z = 0}" in result.stdout
    assert "= 107" in result.stdout
