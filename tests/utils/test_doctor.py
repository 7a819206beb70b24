"""The doctor's report, as a user runs it."""

from __future__ import annotations

import subprocess
import sys

import child
import pytest

from alpha import config
from alpha.utils import doctor

WITHOUT_A_GPU = {"CUDA_VISIBLE_DEVICES": "", "ALPHA_CUDA_DRIVER": "pycuda"}
WRONG = {  # a value of each variable that means nothing, and what is said of it; any text may be a name of a sanitizer
    "ALPHA_DEBUG": ("maybe", "is neither on"),
    "ALPHA_CONV_KERNEL": ("nope", "is unknown: use"),
    "ALPHA_TUNE": ("2", "is neither on"),
    "ALPHA_CUDA_DRIVER": ("opencl", "is unknown: use 'pycuda' or 'emulated'"),
    "ALPHA_ISOLATE": ("x", "is neither on"),
    "ALPHA_CACHE_DIR": (__file__, "is no folder"),
    "ALPHA_COMPILER": ("clang", "is unknown: use 'nvcc' or 'nvrtc'"),
    "ALPHA_ARCH": ("ampere", "is unknown: use a name such as 'sm_80'"),
    "ALPHA_EMULATED_SEED": ("one", "is not a whole number"),
    "ALPHA_EMULATED_BLOCKS": ("backwards", "is unknown: use 'ascending'"),
    "ALPHA_EMULATED_OPTIMIZE": ("fast", "is not a whole number"),
    "ALPHA_EMULATED_DEBUG": ("y", "is neither on"),
    "ALPHA_CPU_THREADS": ("-1", "is negative"),
    "ALPHA_DATA_DIR": (__file__, "is no folder"),
}


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "alpha.utils.doctor", *arguments]
    return child.run(command, env=child.environment(**WITHOUT_A_GPU | variables))


def test_doctor_without_a_gpu() -> None:
    result = run(ALPHA_CUDA_DRIVR="pycuda")
    assert result.returncode == 1, result.stderr
    assert "cpu   works" in result.stdout
    assert "cuda  FAILS" in result.stdout
    assert "use device='cpu'" in result.stdout
    assert "ALPHA_CACHE_DIR" in result.stdout
    assert "warning: ALPHA_CUDA_DRIVR is unknown: did you mean ALPHA_CUDA_DRIVER?" in result.stdout


def test_the_cpu_alone() -> None:
    result = run("--device", "cpu")
    assert result.returncode == 0, result.stdout
    assert "cpu   works" in result.stdout
    assert "\ncuda  " not in result.stdout


def test_help_and_mistakes() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "usage: alpha-doctor" in result.stdout
    assert "numpy" not in result.stdout  # no report
    result = run("--devise", "cpu")
    assert (result.returncode, result.stdout) == (2, "")
    assert "alpha-doctor: " in result.stderr


@pytest.mark.parametrize("name", WRONG)
def test_each_variable_is_checked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in config.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    assert doctor.wrong_variables() == []
    value, message = WRONG[name]
    monkeypatch.setenv(name, value)
    (line,) = doctor.wrong_variables()
    assert line.startswith(f"{name}=")
    assert message in line


def test_no_variable_is_left_out() -> None:
    assert {variable.name for variable in config.VARIABLES} == WRONG.keys() | {"ALPHA_EMULATED_SANITIZE"}


def test_a_variable_that_means_nothing_fails() -> None:
    result = run("--device", "cpu", ALPHA_TUNE="perhaps")
    assert result.returncode == 1
    assert "variable FAILS: ALPHA_TUNE='perhaps' is neither on (1, true, yes, on) nor off" in result.stdout
    assert "cpu   works" in result.stdout
