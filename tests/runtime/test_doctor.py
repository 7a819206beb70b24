"""The doctor's report, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys


def test_doctor_without_a_gpu() -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "ALPHA_CUDA_DRIVER": "pycuda", "ALPHA_CUDA_DRIVR": "pycuda"}
    result = subprocess.run(
        [sys.executable, "-m", "alpha.doctor"], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert "cpu   works" in result.stdout
    assert "cuda  FAILS" in result.stdout
    assert "use device='cpu'" in result.stdout
    assert "ALPHA_CACHE_DIR" in result.stdout
    assert "warning: ALPHA_CUDA_DRIVR is unknown: did you mean ALPHA_CUDA_DRIVER?" in result.stdout
