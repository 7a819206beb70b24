"""fit_conv_model.py finds the constants of a made-up GPU again from times that were computed with them."""

from __future__ import annotations

import csv
import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import alpha
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.problem import Target, seen_by_kernels
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.choose import applicable
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.conv2d.shape import ConvShape, conv_shape

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("fit_conv_model")


def layers() -> list[ConvShape]:
    sizes = [(N, H, C, F) for N, H in ((16, 8), (64, 16), (128, 32)) for C in (24, 64, 192) for F in (1, 3)]
    return [conv_shape("test", (N, H, H, C), (2 * C, F, F, C), (1, 1), (F // 2, F // 2)) for N, H, C, F in sizes]


def write(script: ModuleType, path: Path, true: time_model.Constants) -> None:
    target = cuda_target(alpha.get_device("cuda"))
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(importlib.import_module("bench.report").CANDIDATE_COLUMNS)
        for s in layers():
            for name, operator in script.OPERATORS.items():
                for v in applicable(operator.key, s, target):
                    ms = time_model.cycles(v, seen_by_kernels(s, target), target, true) / true.clock_mhz / 1e3
                    shape = [getattr(s, field) for field in script.FIELDS]
                    table.writerow([name, "float32", *shape, v.name, ms, 0, 0])


@pytest.mark.slow
def test_constants_are_found_again(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = alpha.get_device("cuda")
    names = {"slowdown": {"implicit_gemm_ffma": 2.5, "sk_dilated_ffma": 0.8}}
    true = replace(time_model.Constants(), launch=6000.0, memory=1500.0, **names)  # type: ignore[arg-type]
    write(script, tmp_path / "candidates.csv", true)
    assert script.main([str(tmp_path / "candidates.csv"), "--output", str(tmp_path / "fitted")]) == 0
    printed = capsys.readouterr().out
    assert "fitted:" in printed
    assert "held out:" in printed
    assert "100.0% within 5 %" in printed
    path = tmp_path / "fitted" / time_model.file_name(device.properties.name)  # type: ignore[attr-defined]
    found = time_model.Constants.load(path)
    target = cuda_target(device)
    samples = script.Samples.of(script.read([tmp_path / "candidates.csv"], target, true.clock_mhz), target)
    assert abs(samples.errors(found)).mean() < 0.03 < abs(samples.errors(time_model.Constants())).mean()
    assert json.loads(path.read_text())["slowdown"]["implicit_gemm_ffma"] == pytest.approx(2.5, rel=0.2)


@pytest.mark.slow
def test_a_float32_measurement_counts_for_tf32_if_that_was_measured(script: ModuleType, tmp_path: Path) -> None:
    """Both may be chosen for tf32. The constants are written under the name that is given."""
    path, target = tmp_path / "candidates.csv", cuda_target(alpha.get_device("cuda"))
    write(script, path, time_model.Constants())
    before = script.read([path], target, 1755.0)
    assert {x.precision for x in before} == {"float32"}
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1].replace("float32", "tf32")]) + "\n")
    after = script.read([path], target, 1755.0)
    first = before[0].configuration.operator, before[0].shape
    alike = [x for x in before if (x.configuration.operator, x.shape) == first]
    assert [x.precision for x in after[len(before) :]] == ["tf32"] * (1 + len(alike))
    assert script.main([str(path), "--gpu", "A GPU", "--output", str(tmp_path)]) == 0
    assert (tmp_path / time_model.file_name("A GPU")).is_file()


@pytest.mark.slow
def test_rates_only_keeps_all_other_constants(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Constants of the GPU, and of kernels that were not measured, stay as they are."""
    candidates, fitted = tmp_path / "candidates.csv", tmp_path / time_model.file_name("A GPU")
    names = {"slowdown": {"implicit_gemm_ffma": 2.5}}
    write(script, candidates, replace(time_model.Constants(), launch=6000.0, **names))  # type: ignore[arg-type]
    command = [str(candidates), "--gpu", "A GPU", "--output", str(tmp_path), "--rates-only"]
    assert script.main(command) == 2
    assert "--rates-only needs" in capsys.readouterr().err
    stored = {"launch": 5000.0, "not_hidden": 0.2, "slowdown": {"not measured": 3.0}}
    fitted.write_text(json.dumps(stored))
    assert script.main(command) == 0
    found = json.loads(fitted.read_text())
    for name in script.OF_THE_GPU:
        assert found[name] == stored.get(name, getattr(time_model.Constants(), name))
    assert found["slowdown"]["not measured"] == 3.0
    assert found["slowdown"]["implicit_gemm_ffma"] == pytest.approx(2.5, rel=0.2)


def test_kernels_of_other_names_keep_their_constants(script: ModuleType, tmp_path: Path) -> None:
    candidates, fitted = tmp_path / "candidates.csv", tmp_path / time_model.file_name("A GPU")
    names = {"slowdown": {"implicit_gemm_ffma": 2.5, "sk_dilated_ffma": 0.8}}
    write(script, candidates, replace(time_model.Constants(), **names))  # type: ignore[arg-type]
    fitted.write_text(json.dumps({"slowdown": {"sk_dilated_ffma": 3.0}}))
    command = [str(candidates), "--gpu", "A GPU", "--output", str(tmp_path), "--rates-only"]
    assert script.main([*command, "--kernels", "gemm_ffma,sm90"]) == 0
    found = json.loads(fitted.read_text())["slowdown"]
    assert found["sk_dilated_ffma"] == 3.0
    assert found["implicit_gemm_ffma"] == pytest.approx(2.5, rel=0.2)


@pytest.mark.slow
def test_constants_keep_within_what_a_gpu_can_do(script: ModuleType, tmp_path: Path) -> None:
    """The read rate of a kernel that never waits for the L2 cache would otherwise grow with each fit."""
    candidates, fitted = tmp_path / "candidates.csv", tmp_path / time_model.file_name("A GPU")
    write(script, candidates, time_model.Constants())
    fitted.write_text(json.dumps({"read": {"implicit_gemm_ffma": 1e9}, "slowdown": {"implicit_gemm_ffma": 1e-6}}))
    assert script.main([str(candidates), "--gpu", "A GPU", "--output", str(tmp_path), "--rates-only"]) == 0
    found = json.loads(fitted.read_text())
    for kind, (least, most) in script.BOUNDS.items():
        assert all(least <= rate <= most for rate in found[kind].values())


def test_steps_and_ends_are_found_again(script: ModuleType, tmp_path: Path) -> None:
    """Steps and ends are 0 in constants that were stored before there were any, and no factor leads away from 0."""
    shape, target = (
        conv_shape("test", (16, 8, 8, 64), (64, 3, 3, 64), (1, 1), (1, 1)),
        Target("cuda", (9, 0), 132, 227 << 10),
    )
    rows = [v for v in CONFIGURATIONS if v.name.startswith("conv_v2_sm90_bf16_") and v.tile["BM"] in (64, 128)]
    sizes = [(C, F) for C in (64, 128, 256, 512) for F in (1, 3, 5)]
    shapes = [replace(shape, IC=C, OC=C, FH=F, FW=F, ph=F // 2, pw=F // 2) for C, F in sizes]
    true = replace(
        time_model.Constants(), step={"conv_v2_sm90_bf16": 300.0}, end={v.name: 200.0 * i for i, v in enumerate(rows)}
    )
    samples = [script.Sample(v, s, time_model.cycles(v, s, target, true), "bf16") for v in rows for s in shapes]
    fitted = script.fit(script.Samples.of(samples, target), time_model.Constants())
    assert fitted.step["conv_v2_sm90_bf16"] == pytest.approx(300, rel=0.1)
    assert (script.Samples.of(samples, target).losses(fitted) <= 1.02).all()
    assert fitted.end[rows[-1].name] > 1.5 * fitted.end[rows[1].name]


def test_a_missing_file_is_named_without_a_gpu(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_: str) -> None:
        raise alpha.DeviceError("no GPU")

    monkeypatch.setattr(alpha, "get_device", none)
    assert script.main([str(tmp_path / "none.csv")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_what_cannot_be_read_is_an_error(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert script.main([str(tmp_path / "none.csv"), str(tmp_path / "other.csv"), str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"fit_conv_model: no such file: {tmp_path / 'none.csv'}, {tmp_path}\n"
    assert script.main([str(tmp_path / "other.csv")]) == 2
    assert capsys.readouterr().err == "fit_conv_model: 'operator' is no column of the file, or no operator\n"
    (tmp_path / "empty.csv").write_text("a,b\n")
    assert script.main([str(tmp_path / "empty.csv"), "--output", str(tmp_path / "x")]) == 2
    assert "no measurement of a configuration of today" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_measurements_of_another_gpu_are_refused(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fit would drop the constants of what this device cannot run."""
    if cuda_target(alpha.get_device("cuda")).compute_capability == (9, 0):
        pytest.skip("this GPU runs every configuration")
    path = tmp_path / "candidates.csv"
    write(script, path, time_model.Constants())
    s = conv_shape("test", (16, 8, 8, 64), (64, 3, 3, 64), (1, 1), (1, 1))
    with path.open("a", newline="") as file:
        shape = [getattr(s, field) for field in script.FIELDS]
        csv.writer(file).writerow(["forward", "bf16", *shape, "conv_v2_sm90_bf16_128x64", 1.0, 0, 0])
    assert script.main([str(path), "--output", str(tmp_path)]) == 2
    assert "conv_v2_sm90_bf16_128x64 was measured for X (16, 8, 8, 64)" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.json"))
