"""The code of docs/kernels/*.md and of three pages of docs/: the blocks of each run, in order, and are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import axes_geometry
import conv2d_reference as reference
import numpy as np
import pytest
from PIL import Image

from alpha.ops.conv2d.shape import ConvShape, conv_shape
from alpha.runtime import get_device
from alpha.train.commands import train_photos

KERNELS = Path(__file__).parents[2] / "docs" / "kernels"
DOCS = KERNELS.parent
TESTED = {"conv_v2", "ks_deconv", "sk_dilated", "first_layers", "fp16_terms", "more_axes"}

# H, W, F_H, F_W, (sh, sw), (ph, pw): padding above the filter, strides above it, filters larger than the map
SHAPES = [
    (5, 6, 3, 3, (1, 1), (1, 1)),
    (7, 5, 3, 3, (2, 2), (1, 1)),
    (6, 9, 5, 4, (2, 3), (2, 1)),
    (4, 5, 1, 2, (3, 2), (0, 0)),
    (3, 3, 5, 5, (1, 2), (3, 4)),
    (2, 3, 1, 1, (2, 1), (2, 1)),
]


def _blocks(page: str) -> list[str]:
    text = ((DOCS if page in ("data", "interoperability", "training") else KERNELS) / f"{page}.md").read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def _run(page: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in _blocks(page):
        exec(compile(block, f"{page}.md", "exec"), names)
    return names


def _case(shape: tuple[Any, ...], IC: int = 3) -> tuple[ConvShape, np.ndarray, np.ndarray, np.ndarray]:
    """A shape and X, W, dY for it."""
    H, W, FH, FW, stride, padding = shape
    s = conv_shape("conv2d", (4, H, W, IC), (5, FH, FW, IC), stride, padding)
    rng = np.random.default_rng(0)
    return s, rng.standard_normal(s.X), rng.standard_normal(s.W), rng.standard_normal(s.Y)


def _relative(a: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(a - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("s", axes_geometry.SHAPES, ids=range(len(axes_geometry.SHAPES)))
def test_more_axes(s: ConvShape) -> None:
    rng = np.random.default_rng(0)
    axes = s.depth, s.height, s.width
    X, W = (
        rng.standard_normal((n, *lengths, s.IC))
        for n, lengths in ((s.N, [a.I for a in axes]), (s.OC, [a.F for a in axes]))
    )
    exact = reference.forward(X.reshape(s.X), W.reshape(s.W), s)
    assert _relative(_run("more_axes")["conv_v2"](X, W, axes).reshape(s.Y), exact) < 1e-12


@pytest.mark.torch
def test_interoperability() -> None:
    assert _run("interoperability")["images"].max() > 100


def test_every_block_is_tested() -> None:
    assert {page.stem for page in KERNELS.glob("*.md") if _blocks(page.stem)} == TESTED


@pytest.mark.parametrize("page", sorted(KERNELS.glob("*.md")), ids=lambda p: p.stem)
def test_links_to_sections_lead_there(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((\w*(?:\.md)?)#([\w-]+)\)", page.read_text()):
        headings = re.findall(r"^#+ (.*)$", (KERNELS / (target or page.name)).read_text(), re.M)
        assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_conv_v2(shape: tuple[Any, ...]) -> None:
    page = _run("conv_v2")
    s, X, W, _ = _case(shape)
    Y, step = reference.forward(X, W, s), (s.sh, s.sw, s.ph, s.pw)
    np.testing.assert_allclose(page["conv_v2"](X, W, *step), Y, atol=1e-12)
    for TILE_OW in (1, 2, 4):
        np.testing.assert_allclose(page["conv_v2_input_row_tiles"](X, W, *step, TILE_OW), Y, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ks_deconv(shape: tuple[Any, ...]) -> None:
    page = _run("ks_deconv")
    s, _, W, dY = _case(shape)
    dX, step = reference.backward_input(dY, W, s), (s.sh, s.sw, s.ph, s.pw)
    assert sum(C.shape[1] * C.shape[2] for C in page["split_filter"](W, s.sh, s.sw).values()) == (s.FH * s.FW)
    np.testing.assert_allclose(page["ks_deconv"](dY, W, s.IH, s.IW, *step), dX, atol=1e-12)

    left = (s.IH + 2 * s.ph - s.FH) % s.sh, (s.IW + 2 * s.pw - s.FW) % s.sw
    Y = page["conv_transpose2d"](dY, W, *step, output_padding=left)
    np.testing.assert_allclose(Y, dX, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sk_dilated(shape: tuple[Any, ...]) -> None:
    page = _run("sk_dilated")
    s, X, _, dY = _case(shape)
    dW, step = reference.backward_weight(X, dY, s), (s.FH, s.FW, s.sh, s.sw, s.ph, s.pw)
    np.testing.assert_allclose(page["sk_dilated"](X, dY, *step), dW, atol=1e-12)
    np.testing.assert_allclose(page["split_k"](X, dY, 3, *step), dW, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_first_layers(shape: tuple[Any, ...]) -> None:
    page = _run("first_layers")
    s, X, W, dY = _case(shape)
    step = s.sh, s.sw, s.ph, s.pw
    np.testing.assert_allclose(page["direct_forward"](X, W, *step), reference.forward(X, W, s), atol=1e-12)
    np.testing.assert_allclose(
        page["direct_weight"](X, dY, s.FH, s.FW, *step), reference.backward_weight(X, dY, s), atol=1e-12
    )


@pytest.mark.parametrize("shape", [*SHAPES[:1], (5, 8, 1, 1, (1, 1), (0, 0)), (6, 9, 5, 4, (1, 1), (0, 3))], ids=str)
def test_last_layers(shape: tuple[Any, ...]) -> None:
    page = _run("first_layers")
    s, X, W, dY = _case(shape)
    found = page["few_outputs_input"](dY, W, s.ph, s.pw)
    np.testing.assert_allclose(found, reference.backward_input(dY, W, s), atol=1e-12)
    found = page["few_outputs_weight"](X, dY, s.FH, s.FW, s.ph, s.pw)
    np.testing.assert_allclose(found, reference.backward_weight(X, dY, s), atol=1e-12)


def test_fp16_terms() -> None:
    """A product of matrices is a 1x1 convolution; the errors are those that the page derives."""
    page = _run("fp16_terms")
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((64, 4608)).astype(np.float32) for _ in range(2))
    s = conv_shape("conv2d", (64, 1, 1, 4608), (64, 1, 1, 4608), (1, 1), (0, 0))
    exact = reference.forward(A.reshape(s.X), B.reshape(s.W), s).reshape(64, 64)
    assert _relative(page["multiply"](A, B, 2), exact) < 5e-7
    assert 2.5e-4 < _relative(page["multiply"](A, B, 1), exact) < 3.3e-4
    assert _relative(page["multiply"](A * 2.0**90, B * 2.0**-80, 2) / 1024, exact) < 5e-7

    x, (found, scale) = A.ravel(), page["fp16_terms"](A.ravel(), 2)
    assert 2**14 <= np.abs(x).max() * scale < 2**15
    bound = np.maximum(2.0**-22 * np.abs(x), 2.0**-39 * np.abs(x).max())
    assert np.all(np.abs(x - sum(found).astype(float) / scale) <= bound)

    one, apart = (_relative(page["tensor_core_sum"](A, B, n), exact) for n in (A.shape[1], 64))
    assert 4e-6 < one < 5e-5
    assert apart < 3e-7


def _photos(folder: Path, names: tuple[str, ...], parts: dict[str, int]) -> None:
    """Photos of dark and light noise, in folders PART/CLASS/0.jpg .."""
    rng = np.random.default_rng(0)
    for part, count in parts.items():
        for number, name in enumerate(names):
            (folder / part / name).mkdir(parents=True)
            for index in range(count):
                pixels = rng.integers(0, 128, (40, 48, 3), np.uint8) + np.uint8(128 * number)
                Image.fromarray(pixels).save(folder / part / name / f"{index}.jpg")


def test_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The page runs in a folder with two classes of photos."""
    _photos(tmp_path / "photos", ("dark", "light"), {"train": 8})
    monkeypatch.chdir(tmp_path)
    page = _run("data")
    assert capsys.readouterr().out.splitlines() == ["(8, 64) int64", "['dark', 'light'] (8, 32, 32, 3) (8,)"]
    assert page["counts"].tolist() == [5, 5, 5, 5]
    assert page["item"][1] == 3
    assert [len(x) for x, _ in page["batches"]] == [20] * 10
    assert 70 < sum(int((y == 3).sum()) for _, y in page["batches"]) < 130  # half of 200


def test_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The page runs in a folder with photos of two classes, and a run of alpha-train on them."""
    pytest.importorskip("tensorboardX")
    pytest.importorskip("matplotlib")
    _photos(tmp_path / "photos", ("cat", "dog"), {"train": 8, "val": 9})
    (tmp_path / "new.jpg").write_bytes((tmp_path / "photos" / "val" / "cat" / "0.jpg").read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPHA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("alpha.get_device", lambda name: get_device("cpu"))  # whatever else the machine has
    options = ["--model", "torchvision.mobilenet_v2", "--image-size", "32", "--epochs", "1", "--batch-size", "8"]
    assert train_photos.main(["photos", *options]) == 0
    page = _run("training")
    assert page["outputs"].shape == (18, 2)
    assert page["predicted"].shape == (40, 1)
    assert page["result"].accuracy == np.trace(page["result"].metrics["confusion"]) / 18
    assert page["weight"].numpy().tolist() == [1.0, 1.0]
    assert [row.epoch for row in page["rows"]] == [1, 2]
    assert page["prediction"].name in ("cat", "dog")
    assert all((tmp_path / "runs" / name).is_dir() for name in ("photos", "example", "mobilenet"))
    assert "test_error" in capsys.readouterr().out
