"""Layers: shapes, gradients, modes, embeddings, arguments that are refused."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from rows.every import LAYERS
from rows.kinds import LayerRow, joined

import alpha
from alpha import ShapeError, nn
from alpha.nn import functional as F
from alpha.ops.kernel.function_layer import FunctionLayer

X = np.random.default_rng(0).standard_normal((2, 8, 6, 3)).astype(np.float32)

SHAPES = [
    pytest.param(row, settings, shape, id=f"{row.name}-{settings}") for row in LAYERS for settings, shape in row.shapes
]


@pytest.mark.parametrize(("row", "settings", "shape"), SHAPES)
def test_output_shape_and_gradients_to_everything(
    row: LayerRow, settings: dict[str, Any], shape: tuple[int, ...]
) -> None:
    layer = row.layer(**settings)
    inputs = [
        alpha.tensor(a, requires_grad=a.dtype.kind == "f" and place not in row.constants)
        for place, a in enumerate(row.inputs)
    ]
    y = joined(layer(*inputs))
    assert y.shape == shape
    (y * y).sum().backward()
    assert all(x.grad is not None and x.grad.shape == x.shape for x in inputs if x.requires_grad)
    assert all(p.grad is not None and p.grad.shape == p.shape for p in layer.parameters())
    assert repr(layer).startswith(type(layer).__name__ + "(")


def test_every_layer_has_a_shape() -> None:
    assert not [row.name for row in LAYERS if not row.shapes], "give its row in tests/rows/layers.py `shapes`"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Conv2d(0, 4, 3), "Conv2d: in_channels=0 must be at least 1"),
        (lambda: nn.Conv2d(3, 4, (3, 0)), "Conv2d: kernel_size=0 must be at least 1"),
        (lambda: nn.Conv2d(3, 4, 3, stride=0), "Conv2d: stride=0 must be at least 1"),
        (lambda: nn.Conv2d(3, 4, (1, 2, 3)), "kernel_size=.* is neither an integer nor a pair"),
        (lambda: nn.ConvTranspose2d(3, 0, 3), "ConvTranspose2d: out_channels=0"),
        (lambda: nn.Linear(3, 0), "Linear: out_features=0"),
        (lambda: nn.BatchNorm2d(0), "BatchNorm2d: num_features=0"),
        (lambda: nn.Dropout(1.5), r"Dropout: p=1.5 is not in \[0, 1\]"),
        (nn.Upsample, "Upsample: size=None and scale_factor=None"),
    ],
)
def test_arguments_that_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_inputs_that_are_refused() -> None:
    with pytest.raises(ShapeError, match="conv2d: x has 3 channels but weight expects 4"):
        nn.Conv2d(4, 8, 3)(alpha.tensor(X))
    with pytest.raises(ShapeError, match="linear: x has 3 features but weight expects 4"):
        nn.Linear(4, 8)(alpha.tensor(X))
    with pytest.raises(ShapeError, match="batch_norm: running_mean has shape"):
        nn.BatchNorm2d(4)(alpha.tensor(X))


def test_batch_norm_in_training_and_evaluation(device: str) -> None:
    layer = nn.BatchNorm2d(3, momentum=0.25).to(device)
    x = alpha.tensor(X * 3 + 1, device=device)
    y = layer(x).numpy()
    np.testing.assert_allclose(y.mean((0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(y.var((0, 1, 2)), 1, atol=1e-4)
    rows = x.numpy().reshape(-1, 3)
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.25 * rows.mean(0), rtol=1e-4)
    expected = 0.75 + 0.25 * rows.var(0, ddof=1)
    np.testing.assert_allclose(layer.running_var.numpy(), expected, rtol=1e-4)
    before = layer.running_var.numpy()
    layer.eval()
    scale = 1 / np.sqrt(before + layer.eps)
    expected = (rows - layer.running_mean.numpy()) * scale
    np.testing.assert_allclose(layer(x).numpy().reshape(-1, 3), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(layer.running_var.numpy(), before)


@pytest.mark.torch
def test_batch_norm_that_counts_batches_as_in_pytorch(device: str) -> None:
    """The running statistics without a momentum are those of PyTorch, and the count travels with the weights."""
    torch = pytest.importorskip("torch")
    layer, twin = nn.BatchNorm2d(3, momentum=None).to(device), torch.nn.BatchNorm2d(3, momentum=None)
    for scale in (1.0, 3.0, -2.0):
        layer(alpha.tensor(X * scale + 1, device=device))
        twin(torch.tensor(X * scale + 1).permute(0, 3, 1, 2))
    for name, value in layer.state_dict().numpy().items():
        np.testing.assert_allclose(value, twin.state_dict()[name].numpy(), rtol=1e-5, atol=1e-6)
    other = nn.BatchNorm2d(3, momentum=None)
    other.load_state_dict(twin.state_dict(), layout="NCHW")
    assert other.num_batches_tracked is not None
    assert other.num_batches_tracked.item() == 3


def test_batch_norm_with_bias_correction(device: str) -> None:
    """The running mean is the mean of the batches' means, with weights 0.75^age."""
    layer = nn.BatchNorm2d(3, momentum=0.25, bias_correction=True).to(device)
    means, x = [], alpha.tensor(X, device=device)
    for shift in (1.0, -4.0, 2.0):
        alpha.checkpoint(layer, x + shift)
        means.append((X + shift).mean((0, 1, 2)))
    weights = 0.75 ** np.array([2, 1, 0])
    expected = np.average(means, axis=0, weights=weights)
    np.testing.assert_allclose(layer.running_mean.numpy(), expected, rtol=1e-4)
    before = layer.running_mean.numpy()
    layer.eval()(x)
    np.testing.assert_array_equal(layer.running_mean.numpy(), before)


def test_batch_norm_of_squares(device: str) -> None:
    """The variance in evaluation is that of all batches together, also of batches that lie apart."""
    layer = nn.SqBatchNorm(3, momentum=0.5).to(device)
    x = alpha.tensor(X, requires_grad=True, device=device)
    first, plain = layer(x), nn.BatchNorm2d(3).to(device)(x)
    np.testing.assert_array_equal(first.numpy(), plain.numpy())
    layer(x * 2.0 + 5.0)
    rows = X.reshape(-1, 3).astype(np.float64)
    batches = rows, 2 * rows + 5
    mean, sqmean = ([np.mean(b**p, axis=0) for b in batches] for p in (1, 2))
    mean, sqmean = 0.25 * mean[0] + 0.5 * mean[1], 0.25 + 0.25 * sqmean[0] + 0.5 * sqmean[1]
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.running_sqmean.numpy(), sqmean, rtol=1e-4)
    expected = (X - mean) / np.sqrt(sqmean - mean**2 + layer.eps)
    np.testing.assert_allclose(layer.eval()(x).numpy(), expected, rtol=1e-3, atol=1e-4)
    frozen = nn.GlobalSqBatchNorm(3).to(device)
    frozen.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(frozen(x).numpy(), layer(x).numpy())
    np.testing.assert_array_equal(frozen.running_mean.numpy(), layer.running_mean.numpy())
    frozen.running_mean.add_(100.0)  # a variance below 0 is one of 0
    expected = (X - frozen.running_mean.numpy()) / np.sqrt(layer.eps)
    np.testing.assert_allclose(frozen(x).numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "expected"), [({"padding": "same"}, [3, 5, 7, 8]), ({"padding": "valid"}, [3, 5, 7])], ids=str
)
def test_a_padding_by_name_that_repeats_the_border(device: str, options: dict[str, Any], expected: list[int]) -> None:
    """The larger half of "same" is behind; "valid" pads nothing."""
    layer = nn.Conv1d(1, 1, 2, padding_mode="replicate", bias=False, **options).to(device)
    layer.load_state_dict({"weight": np.ones((1, 2, 1), np.float32)})
    x = alpha.tensor(np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1), device=device)
    np.testing.assert_array_equal(layer(x).numpy().ravel(), expected)


def test_dropout_in_training_and_evaluation(device: str) -> None:
    alpha.manual_seed(3)
    layer = nn.Dropout(0.25)
    x = alpha.tensor(np.ones(4000, np.float32), requires_grad=True, device=device)
    y = layer(x)
    kept = y.numpy() != 0
    assert 0.72 < kept.mean() < 0.78
    np.testing.assert_allclose(y.numpy()[kept], 1 / 0.75, rtol=1e-6)
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), y.numpy())
    assert (layer(x).numpy() != y.numpy()).any()
    assert layer.eval()(x) is x


def test_cross_entropy_loss(device: str) -> None:
    x = alpha.tensor(np.zeros((4, 10), np.float32), requires_grad=True, device=device)
    labels = alpha.tensor([0, 1, 2, 3], device=device)
    loss = nn.CrossEntropyLoss()(x, labels)
    assert abs(loss.item() - math.log(10)) < 1e-6
    loss.backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), (0.1 - np.eye(10)[:4]) / 4, atol=1e-7)


def test_a_layer_names_itself_in_its_errors() -> None:
    with pytest.raises(ValueError, match=r"^Dropout: p=1\.5 is not in \[0, 1\]"):
        nn.Dropout(1.5)


def test_the_first_argument_may_be_called_input_as_in_pytorch(device: str) -> None:
    x = alpha.randn(2, 5, 5, 3, device=device)
    conv = nn.Conv2d(3, 4, 3).to(device)
    np.testing.assert_array_equal(conv(input=x).numpy(), conv(x).numpy())
    logits, target = alpha.randn(4, 3, device=device), alpha.tensor([0, 2, 1, 1], device=device)
    assert nn.CrossEntropyLoss()(input=logits, target=target).item() == F.cross_entropy(logits, target).item()

    class Own(nn.Module):
        def forward(self, x: Any, input: Any) -> Any:
            return x - input

    assert Own()(input=1, x=3) == 2
    with pytest.raises(TypeError, match="other"):
        nn.Sequential(conv)(other=x)
    product = alpha.matmul(input=logits, other=logits.t())
    np.testing.assert_array_equal(product.numpy(), alpha.matmul(logits, logits.t()).numpy())


def test_the_output_size_of_a_transposed_convolution(device: str) -> None:
    """The size that PyTorch's layer has, and the result of the same output padding."""
    alpha.manual_seed(0)
    x = alpha.randn(2, 4, 5, 3, device=device)
    layer = nn.ConvTranspose2d(3, 4, 3, stride=(2, 3), padding=1, dilation=(1, 2)).to(device)
    for size, extra in (((7, 15), (0, 0)), ([8, 16], (1, 1)), ((2, 8, 17, 4), (1, 2))):
        found = layer(x, output_size=size)
        own = layer.stride, layer.padding, extra, 1, layer.dilation
        assert found.shape[1:3] == tuple(size[-3:-1] if len(size) == 4 else size)
        np.testing.assert_array_equal(found.numpy(), F.conv_transpose2d(x, layer.weight, layer.bias, *own).numpy())
    assert layer(x[0], output_size=(8, 16)).shape == layer(x[0], (8, 16, 4)).shape == (8, 16, 4)
    line, volume = nn.ConvTranspose1d(3, 4, 3, 2).to(device), nn.ConvTranspose3d(3, 4, 2, 2).to(device)
    assert line(x[0], (12,)).shape == (4, 12, 4)
    assert volume(x.unsqueeze(0), output_size=(5, 8, 11)).shape == (1, 5, 8, 11, 4)
    for size in ((9, 16), (8,), (8, 14)):
        with pytest.raises(ShapeError, match=r"ConvTranspose2d: output_size=.* is not \(7, 15\) to \(8, 17\),"):
            layer(x, output_size=size)


def test_an_embedding_with_a_given_table() -> None:
    table = alpha.tensor(np.arange(6, dtype=np.float32).reshape(3, 2))
    layer = nn.Embedding.from_pretrained(table, padding_idx=0)
    assert (layer.weight.requires_grad, layer.padding_idx) == (False, 0)
    np.testing.assert_array_equal(layer(alpha.tensor([2, 0])).numpy(), [[4, 5], [0, 1]])
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad
    with pytest.raises(ShapeError, match=r"Embedding: embeddings \(R, C\) are needed"):
        nn.Embedding.from_pretrained(table.reshape(6))


@pytest.mark.parametrize("index", [-1, 4])
def test_an_embedding_has_no_row_before_the_first_or_behind_the_last(device: str, index: int) -> None:
    layer = nn.Embedding(4, 2, max_norm=0.5).to(device)
    before = layer.weight.numpy()
    x = alpha.tensor([index, 0], device=device)
    if device == "cpu":
        with pytest.raises(IndexError, match=rf"embedding: index {index} is out of range .* length 4"):
            layer(x)
        return
    y = layer(x)
    assert np.isnan(y.numpy()[0]).all()
    y[1].sum().backward()
    assert layer.weight.grad is not None
    np.testing.assert_array_equal(layer.weight.grad.numpy(), [[1, 1], [0, 0], [0, 0], [0, 0]])
    np.testing.assert_array_equal(layer.weight.numpy()[1:], before[1:])  # max_norm shortens the named row only


def test_the_row_of_padding_has_no_gradient(device: str) -> None:
    layer = nn.Embedding(4, 2, padding_idx=-1).to(device)
    assert not layer.weight.numpy()[3].any()
    layer(alpha.tensor([[3, 1], [1, 3]], device=device)).sum().backward()
    assert layer.weight.grad is not None
    np.testing.assert_array_equal(layer.weight.grad.numpy(), [[0, 0], [2, 2], [0, 0], [0, 0]])


def test_long_rows_are_shortened_in_place(device: str) -> None:
    layer = nn.Embedding(3, 4, max_norm=1.0).to(device)
    before = layer.weight.numpy()
    y = layer(alpha.tensor([2, 0, 2], device=device))
    lengths = np.linalg.norm(before, axis=1)
    expected = before / np.maximum(lengths, 1)[:, None]
    expected[1] = before[1]
    np.testing.assert_allclose(layer.weight.numpy(), expected, rtol=1e-5)
    np.testing.assert_array_equal(y.numpy(), layer.weight.numpy()[[2, 0, 2]])


@pytest.mark.parametrize("row", [row for row in LAYERS if "bias" in row.arguments], ids=lambda row: row.name)
def test_without_a_bias_no_part_of_a_layer_has_one(row: LayerRow) -> None:
    affine = {"affine": True} if "affine" in row.arguments else {}
    for bias in (True, False):
        layer = row.layer(**{**row.usual, **affine, "bias": bias})
        assert any("bias" in name for name, _ in layer.named_parameters()) is bias


# what a layer shows though it has its usual value
SHOWN = {
    *("bias=True", "eps=1e-05", "eps=1e-06", "eps=None", "momentum=0.1", "head_bias=False"),
    *("stride=(1,)", "stride=(1, 1)", "stride=(1, 1, 1)", "padding=(0,)", "padding=(0, 0)", "padding=(0, 0, 0)"),
    *("stride=2", "stride=(2,)", "stride=(2, 2)", "stride=(2, 2, 2)", "stride=None", "padding=0"),
    *("activation=relu", "norm_first=False", "nonlinearity=tanh", "mode='nearest'", "mode='bilinear'", "mode='mean'"),
    *("num_parameters=1", "init=0.25", "lower=0.125", "upper=0.3333333333333333", "min_val=-1.0", "max_val=1.0"),
    *("affine=True", "track_running_stats=True", "align_corners=True", "p=2.0"),
}


OTHERS = [row for row in LAYERS if not issubclass(row.layer, FunctionLayer)]  # which shows all of them


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_a_layer_shows_few_arguments_that_have_their_usual_value(row: LayerRow) -> None:
    shown = re.findall(r"(\w+)(=[^=]*?)(?=, \w+=|$)", row.layer(**row.usual).extra_repr())
    assert {name + value for name, value in shown if name not in row.usual} <= SHOWN
