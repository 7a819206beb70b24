"""The code of the pages of docs/: the blocks of each page run, in order, and those of docs/kernels/ are right.

A page without a test of its own runs in an empty folder, on the CPU. What another page needs, such as photos, is made
by its test.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import axes_geometry
import child
import conv2d_reference as reference
import numpy as np
import pytest
from PIL import Image

import alpha
from alpha.data import DataLoader, TensorDataset
from alpha.errors import DeviceError
from alpha.models.saved import Description
from alpha.ops.conv2d.shape import ConvShape, conv_shape
from alpha.runtime import get_device
from alpha.train import save_weights
from alpha.train.commands import train_photos

KERNELS = Path(__file__).parents[2] / "docs" / "kernels"
DOCS = KERNELS.parent
ROOT = DOCS.parent
PAGES = {page.relative_to(DOCS).with_suffix("").as_posix(): page for page in sorted(DOCS.glob("**/*.md"))}
TESTED = {
    f"kernels/{name}" for name in ("conv_v2", "ks_deconv", "sk_dilated", "first_layers", "fp16_terms", "more_axes")
}
TESTED |= {
    "data",
    "debugging_kernels",
    "distributed",
    "from_pytorch",
    "interoperability",
    "photos",
    "serving",
    "training",
}  # by tests of their own

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
    text = PAGES[page if page in PAGES else f"kernels/{page}"].read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def _run(page: str, **names: Any) -> dict[str, Any]:
    """The names that the blocks of a page make, after `names`."""
    for block in _blocks(page):
        exec(compile(block, f"{page}.md", "exec"), names)
    return names


@pytest.fixture
def on_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which a page runs in; "auto" is the CPU, whatever else the machine has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("alpha.get_device", lambda name="auto": get_device("cpu"))
    return tmp_path


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


@pytest.mark.torch
def test_from_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names = _run("from_pytorch")
    assert names["found"].first_output.name == "1"
    assert (tmp_path / "model.safetensors").exists()
    assert names["ours"].state_dict()["state"][0]["step"] == 1


def test_pages_with_a_test_of_their_own_have_code() -> None:
    assert {page for page in TESTED if _blocks(page)} == TESTED


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(page for page in PAGES if page not in TESTED and _blocks(page)))
def test_the_code_of_every_other_page_runs(page: str, on_cpu: Path) -> None:
    for needed in ("torch", "onnx", "onnxruntime", "matplotlib"):
        if any(re.search(rf"^(import|from) {needed}\b", block, re.MULTILINE) for block in _blocks(page)):
            pytest.importorskip(needed)
    _run(page)


@pytest.mark.parametrize("page", [*PAGES.values(), ROOT / "README.md"], ids=lambda page: page.stem)
def test_code_stands_in_blocks_that_run(page: Path) -> None:
    """A program in Python stands between fences, where it is run; an indented block holds commands or output."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"(?<=\n\n)((?: {4}[^\n]*\n+)+)", text)
    unfenced = [block for block in blocks if _is_program(textwrap.dedent(block))]
    assert not unfenced, "\n".join(unfenced)


def _is_program(text: str) -> bool:
    """True for statements of Python; names and differences, as `alpha-doctor`, are none."""
    try:
        statements = ast.parse(text).body
    except SyntaxError:
        return False
    idle = ast.Name, ast.Attribute, ast.BinOp, ast.Constant
    return not all(isinstance(found, ast.Expr) and isinstance(found.value, idle) for found in statements)


def test_a_program_is_told_from_commands() -> None:
    for program in ("import alpha", "x = 1", "f(x)", "for x in y:\n    x.f()", "@a\ndef f(): ..."):
        assert _is_program(program), program
    for other in ("alpha-doctor", "pip install .", "python a.py --x 1", "k = a b", "photos/cat/1.jpg", "alpha.nn  # x"):
        assert not _is_program(other), other


OPTION = re.compile(r"(?<!\S)--[a-z][\w-]*")


@pytest.mark.parametrize("page", [*PAGES.values(), ROOT / "README.md"], ids=lambda page: page.stem)
def test_commands_name_programs_and_options_that_exist(page: Path) -> None:
    scripts = re.findall(r'^(alpha-\w+) = "([\w.]+):main"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    programs = {name: f"{module.replace('.', '/')}.py" for name, module in scripts}
    shared = "".join(path.read_text() for path in (ROOT / "alpha/train/commands").glob("*.py"))
    for line in re.findall(r"^ {4}(.*?)(?: +#.*)?$", page.read_text(), re.MULTILINE):
        found = re.match(r"(?:ALPHA_\w+=\S+ )*(?:python (examples/\w+\.py)|(alpha-\w+))(?= |$)(.*)", line)
        if found is None:
            continue
        path = ROOT / (found[1] or programs[found[2]])
        source = path.read_text() + shared
        if found[1]:
            source += "".join(part.read_text() for part in path.parent.glob("*/*.py"))
        for option in OPTION.findall(found[3]):
            field = option[2:].replace("-", "_")  # simulate_scaling.py makes options of the fields of a class
            assert f'"{option}"' in source or re.search(rf"\b{field}\b", source), f"{line}: no option {option}"


def test_distributed(on_cpu: Path) -> None:
    """The page's programs with a small model, as a group of one process, on the CPU."""
    images, labels = np.zeros((8, 4), np.float32), np.arange(8) % 2
    loader = DataLoader(TensorDataset(images, labels), batch_size=4, shuffle=True, seed=0)
    model = alpha.nn.Linear(4, 2)
    names = {
        "make_model": lambda: model,
        "model": model,
        "train_loader": loader,
        "test_loader": loader,
        "dataset": TensorDataset(alpha.tensor(images), alpha.tensor(labels)),
        "epochs": 1,
        "optimizer": alpha.optim.SGD(model.parameters(), lr=0.1),
        "F": alpha.nn.functional,
    }
    code = "\n".join(_blocks("distributed")).replace('"cuda"', '"cpu"').replace("epochs=25", "epochs=1, show=None")
    try:
        exec(compile(code, "distributed.md", "exec"), names)
    finally:
        alpha.distributed.shutdown()
    assert (on_cpu / "weights.safetensors").is_file()


def test_debugging_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake of the page is found by the emulated driver."""
    try:
        if os.environ.get("ALPHA_CUDA_DRIVER") != "emulated":
            pytest.skip("the page is about the emulated driver")
        get_device("cuda")
    except DeviceError as error:
        pytest.skip(str(error))
    with pytest.raises(DeviceError, match="write out of bounds"):
        _run("debugging_kernels")


@pytest.mark.parametrize("page", [*PAGES.values(), ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.stem)
def test_links_to_sections_lead_there(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w./]*)#([\w-]+)\)", page.read_text()):
        headings = re.findall(r"^#+ (.*)$", (page.parent / target if target else page).read_text(), re.M)
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


def _run_on_photos(folder: Path) -> None:
    """Photos of two classes, and a run of alpha-train on them."""
    _photos(folder / "photos", ("cat", "dog"), {"train": 8, "val": 9})
    (folder / "holiday").mkdir()
    for name in ("new.jpg", "holiday/1.jpg"):
        (folder / name).write_bytes((folder / "photos" / "val" / "cat" / "0.jpg").read_bytes())
    options = ["--model", "torchvision.mobilenet_v2", "--image-size", "32", "--epochs", "1", "--batch-size", "8"]
    assert train_photos.main(["photos", *options]) == 0


def test_serving(on_cpu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page runs in a folder with a run, and on the GPU or its emulation."""
    try:
        get_device("cuda")
    except DeviceError as error:
        pytest.skip(str(error))
    description = Description("torchvision.mobilenet_v2", {"num_classes": 4}, list("abcd"), 32)
    about = {"network": json.dumps(description.as_option())}
    model = alpha.models.torchvision.mobilenet_v2(num_classes=4)
    (on_cpu / "runs" / "photos").mkdir(parents=True)
    save_weights(on_cpu / "runs" / "photos" / "weights.safetensors", model.state_dict(), about)
    page = _run("serving")
    assert page["scores"].shape == (3, 4)
    np.testing.assert_allclose(page["same"], page["scores"], rtol=1e-5, atol=1e-6)
    assert page["results"] == [8.0, 16.0, 24.0]
    assert capsys.readouterr().out.startswith("2 requests, 6 images in 2 batches; latency p50 ")


@pytest.mark.slow
def test_photos_and_training(on_cpu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The pages run in a folder with photos of two classes, and a run of alpha-train on them."""
    pytest.importorskip("tensorboardX")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("ALPHA_DATA_DIR", str(on_cpu / "data"))
    _run_on_photos(on_cpu)
    assert _run("photos")["prediction"].name in ("cat", "dog")
    logged: list[dict[str, Any]] = []
    wandb = types.ModuleType("wandb")
    wandb.log = lambda numbers, step: logged.append(numbers)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    page = _run("training")
    assert "test_accuracy" in logged[-1]
    assert page["outputs"].shape == (18, 2)
    assert page["predicted"].shape == (40, 1)
    assert page["result"].accuracy == np.trace(page["result"].metrics["confusion"]) / 18
    assert page["weight"].numpy().tolist() == [1.0, 1.0]
    assert [row.epoch for row in page["rows"]] == [1, 2]
    assert all((on_cpu / "runs" / name).is_dir() for name in ("photos", "example", "mobilenet"))
    assert "test_error" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tour", "own_photos"])
def test_notebooks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs, in a process of its own."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ALPHA_CUDA_DRIVER", "emulated")
    notebook = nbformat.read(DOCS / "notebooks" / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "saved without results, which change"
    for cell in notebook.cells:
        cell.source = cell.source.replace('get_device("auto")', 'get_device("cpu")')
    client = nbclient.NotebookClient(
        notebook, timeout=child.HANG_S, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    last = notebook.cells[-1].outputs[-1]
    assert len(last.get("text") or last.data["text/plain"]) > 20


@pytest.mark.parametrize(
    "words",
    [
        *("early stopping", "TensorBoard", "fine-tuning", "pretrained weights", "DLPack", "confusion matrix", "ONNX"),
        *("notebooks", "Windows", "macOS", "torchrun", "mixup", "own operator", "batch size", "label smoothing"),
        *("lr_find", "mixed precision", "out of memory", "checkpointing", "profiler", "determinism", "safetensors"),
    ],
)
def test_words_that_people_look_for_are_on_a_page(words: str) -> None:
    """The search of the site finds words in the pages; a subject that Alpha has not is named, too."""
    assert any(words.lower() in page.read_text().lower() for page in PAGES.values())
