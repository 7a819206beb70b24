"""Resize nodes of `alpha.onnx.load`: every form of them is as onnxruntime computes it, or is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx_runs import LIMIT, apart
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import ExportError, nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X = np.random.default_rng(0).normal(size=(2, 9, 8, 3)).astype(np.float32)
USUAL = ["half_pixel", "pytorch_half_pixel", "align_corners"]
HOW = [*USUAL, "asymmetric", "half_pixel_symmetric", "tf_crop_and_resize"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
SCALES = [(2, 3), (1.5, 0.7), (0.5, 1.3), (1.05, 0.3), (0.2, 3), (1, 2.6)]
SIZES = [(18, 4), (5, 7), (10, 1), (3, 20)]


def file_of(text: str, opset: int = 19, height: Any = 9, **constants: Any) -> Any:
    """A file of nodes from x (N, 3, height, 8) to y, whose inputs behind x are constants."""
    body = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,3,{height},8] x) => (float[] y) {{ {text} }}'
    proto = onnx.parser.parse_model(body)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for name, values in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), name))
    onnx.helper.set_model_props(proto, {"layout": "NCHW"})
    return proto


def found(proto: Any, x: np.ndarray = X) -> str:
    """The outcome of a file: "right", or "refused" with the node's name."""
    try:
        network = alpha.onnx.load(proto)
    except ExportError as error:
        return "refused" if str(error).startswith("onnx.load: the node Resize_0 (Resize) ") else str(error)
    assert apart(network, proto, [x]) < 2 * LIMIT
    return "right"


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_every_mode(mode: str, by: str) -> None:
    counts: Counter[str] = Counter()
    with trials() as trial:
        for height, how, rounding in itertools.product((9, "H"), HOW, ROUNDINGS if mode == "nearest" else ["floor"]):
            attributes = f'mode="{mode}", coordinate_transformation_mode="{how}", nearest_mode="{rounding}"'
            for to in SCALES if by == "scales" else SIZES:
                values = np.array([1, 1, *to], np.float32) if by == "scales" else np.array([2, 3, *to])
                inputs = "(x, , s)" if by == "scales" else "(x, , , s)"
                with trial((height, how, rounding, to)):
                    counts[found(file_of(f"y = Resize <{attributes}> {inputs}", height=height, s=values))] += 1
        if mode != "cubic" and by == "scales":
            scales = np.array([1, 1, 1.05, 1.1], np.float32)  # which change no length
            with trial("as it is"):
                assert found(file_of(f'y = Resize <mode="{mode}"> (x, , s)', s=scales)) == "right"
    assert counts.keys() == {"right", "refused"}
    assert counts["right"] >= (128 if mode == "nearest" else 24), counts


def test_lengths_that_a_factor_gives_are_those_of_onnxruntime() -> None:
    with trials() as trial:
        for length in (10, 30, 50, 70, 90):
            x = np.ones((1, length, 8, 3), np.float32)
            for factor in (0.1, 0.3, 0.7, 0.9, 1.1, 1.3):
                with trial((length, factor)):
                    scales = np.array([1, 1, factor, 1], np.float32)
                    assert found(file_of('y = Resize <mode="linear"> (x, , s)', height="H", s=scales), x) == "right"


def test_old_files() -> None:
    with trials() as trial:
        for scale in SCALES:
            with trial(scale):
                scales = np.array([1, 1, *scale], np.float32)
                assert found(file_of('y = Resize <mode="nearest"> (x, s)', opset=10, s=scales)) == "right"
                if min(scale) >= 1:
                    proto = file_of('y = Upsample <mode="nearest"> (x, s)', opset=9, s=scales)
                    assert apart(alpha.onnx.load(proto), proto, [X]) < LIMIT


@pytest.mark.parametrize(
    "body", ["y = Resize (x, , s)", "y = Resize (x, , , n)", "y = Resize <axes: ints = [2, 3]> (x, , t)"]
)
def test_channels_are_not_resized(body: str) -> None:
    numbers = {"s": np.array([1, 2, 1, 1], np.float32), "n": np.array([2, 6, 9, 8]), "t": np.ones(2, np.float32)}
    used = {name: values for name, values in numbers.items() if f" {name})" in body}
    with pytest.raises(
        ExportError, match=r"the node Resize_0 \(Resize\) with the scales|to \(2, 6\) images|with axes="
    ):
        alpha.onnx.load(file_of(body, **used))


@pytest.mark.parametrize("factor", [0.7, 1.05, 1.3, 1.5])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_a_factor_of_alpha_goes_both_ways(factor: float, mode: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Upsample(scale_factor=factor, mode=mode))
    x = alpha.tensor(X)
    network = alpha.onnx.load(alpha.onnx.export(model, x))
    np.testing.assert_allclose(network(x).numpy(), model(x).numpy(), atol=1e-5)
    again = alpha.onnx.export(network, x)
    assert apart(network, again, [X]) < LIMIT


def test_a_resize_has_gradients() -> None:
    scales = np.array([1, 1, 1.5, 0.7], np.float32)
    for how in ("asymmetric", "half_pixel"):
        text = f'y = Resize <coordinate_transformation_mode="{how}", nearest_mode="ceil"> (x, , s)'
        x = alpha.tensor(X, requires_grad=True)
        y = alpha.onnx.load(file_of(text, s=scales))(x)
        F.relu(y).sum().backward()
        assert x.grad is not None
        assert x.grad.sum().item() == pytest.approx(float((y.numpy() > 0).sum()))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("factor", [0.7, 1.3, 1.5, 2])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_a_file_of_pytorch(factor: float, mode: str, tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.Upsample(scale_factor=factor, mode=mode))
    x = torch.tensor(X.transpose(0, 3, 1, 2).copy())
    torch.onnx.export(model, (x,), tmp_path / "torch.onnx", dynamo=False)
    network = alpha.onnx.load(tmp_path / "torch.onnx")
    wanted = model(x).detach().numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(network(alpha.tensor(X)).numpy(), wanted, atol=1e-5)
