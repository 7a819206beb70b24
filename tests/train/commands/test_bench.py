"""Tables of alpha-bench, its defaults, and what it answers to networks and batches that do not fit."""

from __future__ import annotations

import re

import pytest

from alpha.errors import OutOfMemoryError
from alpha.runtime import get_device
from alpha.train.commands import bench

QUICK = ["--batch-size", "2", "--seconds", "0.001", "--device", "cpu"]


@pytest.mark.slow
def test_a_line_for_each_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["torchvision.mobilenet_v2,vit_tiny", "--precision", "all", *QUICK]) == 0
    about, head, *lines = capsys.readouterr().out.splitlines()
    assert about.endswith("on the CPU, images of 32x32, images/s")
    assert head.split() == ["network", "batch", "precision", "ms/step", "trained", "predicted", "peak", "MB"]
    assert [line.split()[:3] for line in lines] == [["mobilenet_v2", "2", "float32"], ["vit_tiny", "2", "float32"]]
    for line in lines:
        ms, trained, predicted, peak = (float(number.replace(",", "")) for number in line.split()[3:])
        assert trained == pytest.approx(2e3 / ms, rel=0.3, abs=0.6)
        assert predicted > trained
        assert peak > 1
    assert max(map(len, [about, head, *lines])) <= 80


@pytest.mark.slow
def test_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["vit_tiny", "--profile", "operator", *QUICK]) == 0
    _, _, line, title, columns, *rows, explained = capsys.readouterr().out.splitlines()
    assert line.startswith("vit_tiny ")
    assert title == "cpu, times by the host's clock"
    assert columns.split()[:3] == ["operator", "calls", "ms"]
    assert "matmul_batch" in {row.split()[0] for row in rows}
    assert explained.startswith("explained: 100.0% of ")


@pytest.mark.parametrize(("size", "cpu", "cuda"), [(8, 32, 512), (32, 32, 512), (128, 16, 32), (224, 16, 16)])
def test_large_images_have_small_batches(size: int, cpu: int, cuda: int) -> None:
    class Gpu:
        name = "cuda"

    assert bench.batch_of(get_device("cpu"), size) == cpu
    assert bench.batch_of(Gpu(), size) == cuda  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["resnet"], r"there is no network 'resnet'; is it resnet18"),
        (["resnet18,vgg16", "--image-size", "64"], "vgg16 cannot be trained on images of 64x64"),
        (["--seconds", "0"], "argument --seconds: 0 is not a finite number above 0"),
    ],
)
def test_mistakes(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = bench.main([*options, "--device", "cpu"])
    except SystemExit as end:
        status = end.code
    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    assert re.search(message, printed.err)


@pytest.mark.slow
def test_a_batch_that_is_too_large_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual, tried = bench.measured, []

    def measured(*args: object) -> object:
        tried.append(args)
        if len(tried) == 1:
            raise OutOfMemoryError("needs 3 GB")
        return usual(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(bench, "measured", measured)
    assert bench.main(["vit_tiny,torchvision.mobilenet_v2", *QUICK]) == 1
    printed = capsys.readouterr()
    assert printed.err == "vit_tiny float32: needs 3 GB; give a smaller --batch-size\n"
    assert "mobilenet_v2" in printed.out
