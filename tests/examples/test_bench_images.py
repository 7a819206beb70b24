"""bench_images.py on a few tiny images: a line for each side, and a mistake in a line."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from alpha.data.images import decoding

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("bench_images")


# each side with processes starts two of them, and torchvision takes its time in each
@pytest.mark.slow
@pytest.mark.parametrize("packages", [[], pytest.param(["torchvision", "simplejpeg"], marks=pytest.mark.gate)])
def test_a_line_for_each_side(
    packages: list[str],
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("torchvision", "simplejpeg"):
        if name not in packages:
            monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    monkeypatch.setattr(decoding, "_simplejpeg", decoding._simplejpeg.__wrapped__)  # which remembers nothing
    beside, simplejpeg = (importlib.util.find_spec(name) is not None for name in ("torchvision", "simplejpeg"))
    draw = np.random.default_rng(0)
    for number in range(8):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (12, 16, 3), np.uint8)).save(path)
    options = ["--size", "8", "--workers", "1", "--batch-size", "2", "--rounds", "1"]
    assert script.main([str(tmp_path / "photos"), *options]) == 0
    text, *lines = capsys.readouterr().out.splitlines()
    assert text.startswith("8 images, packed in ")
    assert beside or lines.pop(0) == "torchvision is not installed, so there are no ratios"
    assert lines.pop(0).split() == ["images/s", "per", "core", "ratio"]
    decoders = ["Pillow", *(["simplejpeg"] if simplejpeg else [])]
    sides = [f"ImageFolder, {decoder}, 1 {how}" for decoder in decoders for how in ("thread", "threads", "processes")]
    sides = [*(["torchvision, 0 workers", "torchvision, 1 processes"] if beside else []), *sides]
    for line, side in zip(lines, [*sides, "PackedImages, 1 thread"], strict=True):
        ratio = r" +[\d.]+x" if beside and "torchvision" not in side else ""
        assert re.fullmatch(rf"{side} +\d+ +\d+{ratio}", line.rstrip()), line
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_a_folder_that_is_not_there(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([str(tmp_path / "nowhere")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bench_images: ")
    assert "nowhere: cannot be read as a folder of images" in line
