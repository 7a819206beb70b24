"""The doctor's report, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import child
import numpy as np
import pytest

import alpha
from alpha import config
from alpha.errors import CompileError, DeviceError
from alpha.installation import install
from alpha.runtime import get_device
from alpha.runtime.cuda.compile import no_compiler
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


@pytest.mark.slow
def test_doctor_without_a_gpu() -> None:
    result = run(ALPHA_CUDA_DRIVR="pycuda")
    assert result.returncode == 0, result.stderr
    first, *_ = result.stdout.splitlines()
    assert first == f"Alpha {alpha.__version__} works on the CPU, which is all that this machine has."
    assert "cpu   works" in result.stdout
    assert "cuda  absent: this machine shows no NVIDIA GPU" in result.stdout
    assert "ALPHA_CACHE_DIR" in result.stdout
    assert "warning: ALPHA_CUDA_DRIVR is unknown: did you mean ALPHA_CUDA_DRIVER?" in result.stdout


@pytest.mark.slow
def test_a_gpu_that_was_asked_for_must_be_there() -> None:
    result = run("--device", "cuda")
    assert result.returncode == 1, result.stdout
    assert result.stdout.startswith(f"Alpha {alpha.__version__} does not work on the GPU (see below).")
    assert "cuda  FAILS" in result.stdout
    assert "use device='cpu'" in result.stdout


def test_a_gpu_that_is_there_must_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(device: object) -> str:
        raise DeviceError("its driver is too old")

    monkeypatch.setattr(doctor, "nvidia_gpu", lambda: True)
    monkeypatch.setattr(doctor, "TESTS", {"cpu": lambda device: "fine", "cuda": broken})
    monkeypatch.setattr(doctor, "get_device", lambda name: name)
    assert doctor.main([]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith(f"Alpha {alpha.__version__} works on the CPU, but not on the GPU (see below).\n")
    assert "cuda  FAILS: its driver is too old" in printed


def test_an_emulated_device_that_fails_is_not_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(device: object) -> str:
        raise DeviceError("no C++ compiler")

    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "emulated")
    monkeypatch.setattr(doctor, "nvidia_gpu", lambda: False)
    monkeypatch.setattr(doctor, "TESTS", {"cpu": lambda device: "fine", "cuda": broken})
    monkeypatch.setattr(doctor, "get_device", lambda name: name)
    assert doctor.main([]) == 1
    assert "cuda  FAILS: no C++ compiler" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cpu", "cuda", "wrong", "said"),
    [
        (True, True, 0, "works on the CPU and the GPU."),
        (True, True, 1, "works on the CPU and the GPU; a setting means nothing (see below)."),
        (True, None, 2, "works on the CPU, which is all that this machine has; 2 settings mean nothing (see below)."),
        (False, True, 0, "works on the GPU, but not on the CPU (see below)."),
        (False, False, 0, "does not work on the CPU and the GPU (see below)."),
        (False, None, 0, "does not work on the CPU (see below)."),
    ],
)
def test_the_verdict(cpu: bool, cuda: bool | None, wrong: int, said: str) -> None:
    results = [doctor.Result("cpu", cpu, ""), doctor.Result("cuda", cuda, "")]
    assert doctor.verdict(results, ["x"] * wrong) == f"Alpha {alpha.__version__} {said}"


@pytest.mark.slow
def test_the_cpu_alone() -> None:
    result = run("--device", "cpu")
    assert result.returncode == 0, result.stdout
    assert "cpu   works" in result.stdout
    assert "\ncuda  " not in result.stdout


@pytest.mark.slow
def test_a_device_that_computes_what_it_should_works(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--device", device]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " works: " in line]
    found = {
        "cpu": "a 256 x 256 product agrees with float64",
        "cuda": "a kernel compiles and agrees; steps are captured",
    }
    assert line.startswith(f"{device:5} works: ")
    assert found[device] in line


@pytest.mark.slow
@pytest.mark.parametrize("error", [1.0, float("nan")])
def test_a_device_that_computes_something_else_fails(
    device: str, error: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = type(get_device(device))
    right = kind.download
    monkeypatch.setattr(kind, "download", lambda self, array: right(self, array) + np.float32(error))
    assert doctor.main(["--device", device]) == 1
    assert f"{device:5} FAILS: the self-test is off by " in capsys.readouterr().out


def test_what_is_missing_is_said_with_the_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing(*_: object) -> None:
        raise CompileError("no compiler")

    assert doctor._package("alpha-of-nobody", "cuda") == f"missing: {install('cuda')}"
    monkeypatch.setattr(doctor, "find_nvcc", lambda: None)
    monkeypatch.setattr(doctor, "nvrtc_version", lambda: "12.9")
    assert doctor._compiler() == "NVRTC 12.9"
    monkeypatch.setattr(doctor, "nvrtc_version", nothing)
    assert doctor._compiler() == f"missing: {no_compiler()}"
    monkeypatch.setattr(doctor, "find_nvcc", lambda: "/opt/nvcc")
    monkeypatch.setattr(doctor, "nvcc_version", lambda nvcc: f"of {nvcc}\nBuild 1\n")
    assert doctor._compiler() == "/opt/nvcc, Build 1"
    monkeypatch.setenv("ALPHA_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernels").mkdir()
    for name in ("a", "b"):
        (tmp_path / "kernels" / name).write_bytes(bytes(3 << 20))
    assert doctor._cache() == f"{tmp_path}, 2 files, 6.0 MiB"
    monkeypatch.setenv("ALPHA_CACHE_DIR", __file__)
    assert doctor._cache().startswith(f"{__file__}, 0 files, 0.0 MiB; cannot be read: ")


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_variable_that_means_nothing_fails() -> None:
    result = run("--device", "cpu", ALPHA_TUNE="perhaps")
    assert result.returncode == 1
    assert "variable FAILS: ALPHA_TUNE='perhaps' is neither on (1, true, yes, on) nor off" in result.stdout
    assert "cpu   works" in result.stdout


@pytest.mark.parametrize("columns", [64, 80, 132, 500])
def test_the_table_of_variables_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CACHE_DIR", "/a/folder/whose/name/is/long")
    lines = config.table(columns).splitlines()
    assert max(map(len, lines)) <= columns
    said = " ".join(config.table(columns).split())
    for variable in config.VARIABLES:
        assert f"{variable.name} {variable.get() or '-'} {variable.meaning}" in said
