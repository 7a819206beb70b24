"""bench_scaling.py measures steps of several processes, here on CPUs."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import child
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("scaling.measured")


def test_efficiency_and_what_is_not_hidden(measured: Any, tmp_path: Path) -> None:
    weak = measured.Row("resnet18/32", "bf16", "Alpha", "weak", 4, 512, 2.0, 2.1, 2.5, 0.8, "00")
    strong = measured.Row("resnet18/32", "bf16", "DDP", "strong", 4, 128, 2.0, 0.6, 0.8, 0.8, "00")
    assert weak.efficiency == 0.8
    assert strong.efficiency == 0.625
    assert weak.images_per_second == pytest.approx(819_200)
    assert weak.exposed == pytest.approx(0.5)
    assert measured.table([weak]).splitlines()[-1] == (
        "| resnet18/32 | bf16 | Alpha | weak | 4 | 512 | 2.000 | 2.100 | 2.500 | 819,200 | 0.800 | 0.800, 50% |"
    )
    assert measured.save(tmp_path, [weak, strong])[:2] == ["table.md", "table.csv"]
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [row["efficiency"] for row in rows] == ["0.8", "0.625"]


@pytest.mark.slow
def test_two_processes_on_cpus(tmp_path: Path) -> None:
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("no MPI: pip install mpi4py mpich")
    command = [sys.executable, EXAMPLES / "bench_scaling.py", "--device", "cpu", "--models", "resnet18/32"]
    options = ["--batch-size", "2", "--steps", "1", "--most", "1", "--precision", "float32", "--sides", "Alpha"]
    done = child.run(
        [*command, *options, "--bucket-cap-mb", "1000", "--scaling", "strong", "--output", tmp_path / "out"]
    )
    assert done.returncode == 0, done.stderr
    (row,) = csv.DictReader((tmp_path / "out" / "table.csv").read_text().splitlines())
    assert (row["gpus"], row["batch"], row["scaling"]) == ("2", "1", "strong")
    assert float(row["alone_ms"]) > 0
    assert float(row["ms"]) > 0
    assert len(row["weights"]) == 12


@pytest.mark.slow
def test_ddp_needs_gpus() -> None:
    done = child.run([sys.executable, EXAMPLES / "bench_scaling.py", "--device", "cpu", "--here", "DDP"])
    assert done.returncode == 2
    assert done.stderr.startswith("bench_scaling: --sides DDP: its processes talk through NCCL, which needs GPUs")
