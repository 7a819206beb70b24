"""fit_product_model.py finds the constants of a made-up GPU again from times that were computed with them."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import alpha
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.problem import seen_by_kernels
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.select.choose import choose
from alpha.ops.conv2d.select.product_table import as_convolution
from alpha.ops.gemm.tiles import Product

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("fit_product_model")


def samples(script: ModuleType, true: time_model.Constants) -> list[object]:
    target = cuda_target(alpha.get_device("cuda"))
    found = []
    for M, N, K in script.drawn(40):
        p = Product(1, M, N, K, False, True)
        ms = time_model.product_cycles(p, target, true) / true.clock_mhz / 1e3
        operator, s = as_convolution(p)  # type: ignore[misc]
        v = choose(operator, s, target)
        other = time_model.cycles(v, seen_by_kernels(s, target), target, true) / true.clock_mhz / 1e3
        found.append(script.Sample(p, ms, v.name, "float32", other))
    return found


@pytest.mark.slow
def test_constants_are_found_again(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = time_model.constants_of("made up")
    rates = {**stored.slowdown, "matmul_ffma_64x64": 3.0, "matmul_ffma_128x64": 2.0}
    true = replace(stored, slowdown=rates, read={**stored.read, "matmul_ffma": 40.0})
    script.write(tmp_path / "products.csv", samples(script, true))
    given = ["--measured", str(tmp_path / "products.csv"), "--constants", str(tmp_path), "--gpu", "made up"]
    assert script.main(given) == 0
    assert "fitted: " in (printed := capsys.readouterr().out)
    assert "100.0% within 15 %" in printed.split("fitted: ")[1]
    fitted = time_model.Constants.load(tmp_path / "made-up.json")
    target = cuda_target(alpha.get_device("cuda"))
    products = [Product(1, *sizes, False, True) for sizes in script.drawn(40)]
    cycles = [[time_model.product_cycles(p, target, c) for p in products] for c in (fitted, true)]
    assert np.mean(np.abs(np.diff(np.log(cycles), axis=0))) < 0.1
    others = {name: rate for name, rate in fitted.slowdown.items() if not name.startswith("matmul_ffma")}
    assert others == {name: rate for name, rate in stored.slowdown.items() if not name.startswith("matmul_ffma")}


def test_files_that_are_no_measurements(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty.csv").write_text(",".join(script.COLUMNS) + "\n")
    for name, message in (
        ("other.csv", "'configuration' is no column of the file"),
        ("empty.csv", "no measurement of a configuration of today"),
        ("none.csv", "No such file or directory"),
    ):
        assert script.main(["--measured", str(tmp_path / name), "--constants", str(tmp_path)]) == 2
        assert message in capsys.readouterr().err
