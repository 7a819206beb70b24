"""bench_conv.py as its users run it, in short."""

from __future__ import annotations

import csv
import importlib
import re
import subprocess
import sys
from pathlib import Path

import child
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*arguments: str, without: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Output that a user sees who has not installed the packages that `without` hides."""
    paths = [] if without is None else [without]
    return child.run(
        [sys.executable, "-W", "error", "bench_conv.py", *arguments], cwd=EXAMPLES, env=child.environment(*paths)
    )


def hide(folder: Path, *packages: str) -> Path:
    """A folder on Python's path in which these packages are, but cannot be imported.

    The import of PyTorch takes longer than a short benchmark, so only tests that need it have it.
    """
    for name in packages:
        (folder / f"{name}.py").write_text("raise ImportError('not installed')\n")
    return folder


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_alone(device: str, tmp_path: Path) -> None:
    result = run(
        "--device",
        device,
        "--alone",
        "--cases",
        "4,8,16,6,3,2",
        "3,16,8,48,3,1",
        "--precision",
        "float32",
        "--budget-ms",
        "1",
        "--output",
        str(tmp_path),
        "--statistics",
        without=hide(tmp_path, "torch"),
    )
    assert result.returncode == 0, result.stderr
    assert len(re.findall(r"error \d\S+  (?:then|with) statistics", result.stdout)) == 4
    rows = table(tmp_path)
    assert [row["operator"] for row in rows] == 2 * ["forward", "dX", "dW"]
    for row in rows:
        assert float(row["ms"]) > 0
        assert float(row["error"]) < 1e-6
        assert row["configuration"]
        assert not row["peer"]
        assert not row["ratio"]
    assert "2 of 2 cases" in result.stdout
    page = (tmp_path / "results.md").read_text()
    assert "--cases 4,8,16,6,3,2 3,16,8,48,3,1" in page
    assert "| 48x3x3x16 -> 8, 3x3 / 1 | given |" in page


def test_first_steps_are_kernels_of_a_gpu(tmp_path: Path) -> None:
    result = run("--device", "cpu", "--first-steps", "--cases", "4,8,16,6,3,2", "--output", str(tmp_path / "new"))
    assert (result.returncode, result.stdout) == (2, "")
    assert "--first-steps times kernels of a GPU, and the device is cpu" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
@pytest.mark.torch
def test_against_pytorch(tmp_path: Path) -> None:
    result = run(
        "--device",
        "cpu",
        "--cases",
        "6,8,8,12,3,2",
        "6,8,8,12,3,1",
        "--operators",
        "dX",
        "--precision",
        "float32",
        "--configurations",
        "--budget-ms",
        "1",
        "--output",
        str(tmp_path),
    )
    assert result.returncode == 0, result.stderr
    rows = table(tmp_path)
    assert [row["operator"] for row in rows] == ["dX", "dX"]
    for row in rows:
        assert row["peer"] in ("NCHW", "channels_last")
        assert float(row["peer_error"]) < 1e-6
        ratio = float(row["peer_ms"]) / float(row["ms"])
        assert float(row["ratio"]) == pytest.approx(ratio, rel=1e-4)
    ratios = [float(row["ratio"]) for row in rows]
    mean = (ratios[0] * ratios[1]) ** 0.5
    expected = f"| dX | float32 | 2 | {mean:.2f}x | {ratios[0]:.2f}x | {min(ratios):.2f}x (12x6x6x8"
    assert expected in (tmp_path / "results.md").read_text()
    assert expected in result.stdout
    assert "ks_deconv_pixels" in result.stdout
    assert re.search(r"\d\.\d\dx the chosen one's time", result.stdout)
    if importlib.util.find_spec("matplotlib"):
        chart = tmp_path / "layers-dX-3x3.png"
        assert chart.read_bytes().startswith(b"\x89PNG")
        assert chart.name in result.stdout


@pytest.mark.slow
def test_without_pytorch_and_matplotlib(tmp_path: Path) -> None:
    result = run(
        "--device",
        "cpu",
        "--cases",
        "4,8,8,4,3,1",
        "--precision",
        "float32",
        "--budget-ms",
        "1",
        "--output",
        str(tmp_path / "out"),
        without=hide(tmp_path, "torch", "matplotlib"),
    )
    assert result.returncode == 0, result.stderr
    assert "no charts: pip install matplotlib" in result.stdout
    assert all(float(row["error"]) < 1e-6 for row in table(tmp_path / "out"))


@pytest.mark.slow
def test_mistakes_are_answered_in_one_line() -> None:
    for arguments, answer in (
        (["--cases", "4,8,8"], "'4,8,8' is not paper, networks, all, zoo, drawn, depthwise, grouped or a convolution"),
        (["--cases", "1,8,8,4,3,0"], "stride (0, 0) must be >= 1"),
        (["--part", "3/2"], "'3/2' is not K/N with 1 <= K <= N"),
        (["--precision", "float16"], "'float16' is not one of float32"),
        (["--operators", "dX,dY"], "'dY' is not one of forward, dX, dW"),
    ):
        result = run(*arguments)
        assert result.returncode == 2
        assert answer in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_unchecked_times_have_no_error(tmp_path: Path) -> None:
    arguments = ["--device", "cpu", "--cases", "4,8,8,4,3,1", "--alone", "--precision", "float32", "--unchecked"]
    result = run(*arguments, "--budget-ms", "1", "--output", str(tmp_path), without=hide(tmp_path, "torch"))
    assert result.returncode == 0, result.stderr
    assert [(row["error"], float(row["ms"]) > 0) for row in table(tmp_path)] == 3 * [("", True)]


@pytest.mark.parametrize(("text", "indices"), [("1/1", [0, 1, 2, 3]), ("1/3", [0, 3]), ("2/3", [1]), ("3/3", [2])])
def test_parts_share_the_cases(monkeypatch: pytest.MonkeyPatch, text: str, indices: list[int]) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    bench_conv = importlib.import_module("bench_conv")
    cases = ["--cases", *(f"4,8,{8 * n},2,3,1" for n in (1, 2, 3, 4))]
    found = bench_conv.parse([*cases, "--part", text]).cases
    assert [case.shape.OC // 8 - 1 for case in found] == indices
