"""Files of `alpha.onnx.export`: layout, names, the batch, evaluation mode; and what is refused, by which error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import IMAGE, ROW, Flattened, Residual, TwoInTwoOut, Volumes
from onnx_runs import LIMIT, difference, exported, operators

import alpha
import alpha.nn.functional as F
from alpha import ExportError, ShapeError, Tensor, models, nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

WORDS = np.random.default_rng(2).integers(0, 20, (1, 7))


class Sequence(nn.Module):
    def __init__(self, kind: Any, **arguments: Any) -> None:
        self.embedding, self.layer = nn.Embedding(20, 6), kind(6, 5, batch_first=True, **arguments)
        self.head = nn.Linear(10 if arguments.get("bidirectional") else 5, 3)

    def forward(self, words: Tensor) -> Any:
        return self.head(self.layer(self.embedding(words))[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        self.embedding, self.place = nn.Embedding(20, 8), nn.Parameter(np.ones((7, 8), np.float32))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

    def forward(self, words: Tensor) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.encoder(self.embedding(words) + self.place, mask=mask)


class Calls(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


# -- models of users ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        Sequence(nn.LSTM),
        Sequence(nn.LSTM, bidirectional=True, num_layers=2),
        Sequence(nn.GRU, bias=False),
        Sequence(nn.RNN, nonlinearity="relu"),
        Attention(),
    ],
    ids=["lstm", "deep", "gru", "rnn", "attention"],
)
def test_sequences(model: nn.Module) -> None:
    exported(model, WORDS)


def test_a_custom_module_has_no_transposes() -> None:
    assert not operators(exported(Residual(), IMAGE))["Transpose"]


def test_volumes_have_no_transposes() -> None:
    found = operators(exported(Volumes(), np.ones((1, 4, 4, 4, 3), np.float32)))
    assert found == {"Conv": 1, "BatchNormalization": 1, "Relu": 1, "AveragePool": 1}


def test_a_model_on_any_device(device: str) -> None:
    model = Flattened().to(device)
    proto = alpha.onnx.export(model, alpha.tensor(IMAGE, device=device))
    assert difference(model.to("cpu"), proto, [IMAGE * np.float32(0.5)]) < LIMIT
    network = alpha.onnx.load(proto).to(device).eval()
    assert network(alpha.tensor(IMAGE, device=device)).device.name == device


def test_bytes_of_photos_are_an_input() -> None:
    photos = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3)).astype(np.uint8)
    model = nn.Sequential(Calls(F.normalize_pixels), nn.Conv2d(3, 4, 3))
    assert exported(model, photos).graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8


def test_two_inputs_and_two_outputs() -> None:
    proto = exported(TwoInTwoOut(), IMAGE, ROW)
    assert [info.name for info in proto.graph.input] == ["image", "facts"]
    assert [info.name for info in proto.graph.output] == ["map", "scores"]
    named = alpha.onnx.export(
        TwoInTwoOut(), (alpha.tensor(IMAGE), alpha.tensor(ROW)), input_names=["a", "b"], output_names=["c", "d"]
    )
    assert [info.name for info in (*named.graph.input, *named.graph.output)] == ["a", "b", "c", "d"]


def test_a_function_is_exported() -> None:
    exported(lambda x: (x * 2).relu().sum(-1), ROW)


def shape_of(info: Any) -> list[Any]:
    return [axis.dim_param or axis.dim_value for axis in info.type.tensor_type.shape.dim]


def test_the_file_is_nchw_with_any_batch(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    alpha.onnx.export(Residual(), alpha.tensor(IMAGE), path)
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    assert shape_of(proto.graph.input[0]) == ["N", 3, 8, 8]
    assert shape_of(proto.graph.output[0]) == ["N", 10, 8, 8]
    assert [(opset.domain, opset.version) for opset in proto.opset_import] == [("", 20)]
    kept = exported(Residual(), IMAGE, layout="NHWC")
    assert shape_of(kept.graph.input[0]) == ["N", 8, 8, 3]


def test_the_batch_may_be_fixed_or_on_another_axis() -> None:
    proto = exported(Residual(), IMAGE, batch_axis=None, batches=(1,))
    assert shape_of(proto.graph.input[0]) == [1, 3, 8, 8]
    steps = np.random.default_rng(0).normal(size=(4, 2, 6)).astype(np.float32)
    model = nn.LSTM(6, 5)
    proto = alpha.onnx.export(model, alpha.tensor(steps), batch_axis=1)
    assert shape_of(proto.graph.input[0]) == [4, "N", 6]
    assert [shape_of(info) for info in proto.graph.output] == [[4, "N", 5], [1, "N", 5], [1, "N", 5]]
    for batch in (1, 3):
        assert difference(model, proto, [np.resize(steps, (4, batch, 6))]) < LIMIT


def test_lengths_that_follow_the_batch() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    for function in (
        lambda x: alpha.cat([x, alpha.ones(1, 4)], 0),
        lambda x: x.reshape(-1),
        lambda x: alpha.stack([x, x], 1).reshape(-1, 4),
        lambda x: x - x.mean(0, keepdim=True),
        lambda x: x.unsqueeze(0).expand(3, -1, -1),
        lambda x: x @ x.transpose(0, 1),
        lambda x: alpha.zeros(len(x), 2) + x[:, :2],
    ):
        exported(function, x, batches=(2, 7))
    with pytest.raises(ExportError, match="cannot be described"):
        alpha.onnx.export(lambda x: (x @ x.transpose(0, 1)).reshape(-1), alpha.tensor(x))


def test_weights_keep_their_names_and_those_behind_a_flattened_map_are_turned() -> None:
    model = Flattened()
    proto = exported(model, IMAGE)
    assert operators(proto) == dict.fromkeys(
        ["Conv", "BatchNormalization", "Relu", "AveragePool", "Flatten", "Gelu", "Gemm"], 1
    )
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    own = dict(model.named_tensors())
    np.testing.assert_array_equal(weights["features.0.weight"], np.moveaxis(own["features.0.weight"].numpy(), -1, 1))
    turned = own["classifier.3.weight"].numpy().reshape(2, 3, 3, 4).transpose(0, 3, 1, 2).reshape(2, 36)
    np.testing.assert_array_equal(weights["classifier.3.weight"], turned)
    assert weights.keys() == own.keys()


def test_a_model_in_training_is_exported_in_evaluation_and_stays_in_training() -> None:
    model = Residual()
    model.norm.eval()
    before = [module.training for module in model.modules()]
    exported(model, IMAGE)
    assert [module.training for module in model.modules()] == before
    assert not model.first.is_hooked
    assert model.norm.running_mean is not None
    assert not model.norm.running_mean.numpy().any()


def test_writes_in_place() -> None:
    def residual(x: Tensor) -> Tensor:
        y = x * 2
        z = y.reshape(-1, 5)
        F.relu(y, inplace=True)
        y += x
        return z + y

    exported(residual, ROW)

    def stale(x: Tensor) -> Tensor:
        y = x * 2
        part = y[0]
        y.mul_(3.0)
        return part + y

    def part(x: Tensor) -> Tensor:
        y = x * 2
        y[:, 1:3].add_(1.0)
        return y

    for function in (stale, part):
        with pytest.raises(ExportError, match=r"in place|written through another tensor|cannot be exported"):
            alpha.onnx.export(function, alpha.tensor(np.resize(ROW, (2, 5))))


def test_large_weights_go_to_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alpha.onnx.exporter.LARGEST", 100)
    model = nn.Linear(5, 300)
    with pytest.raises(ExportError, match="give a path"):
        alpha.onnx.export(model, alpha.tensor(ROW))
    alpha.onnx.export(model, alpha.tensor(ROW), tmp_path / "wide.onnx")
    assert (tmp_path / "wide.onnx.data").stat().st_size >= 4 * 5 * 300
    assert difference(model, onnx.load(tmp_path / "wide.onnx"), [ROW]) < LIMIT


def test_bicubic_maps_run_in_onnxruntime_in_either_layout() -> None:
    for options in ({"size": (3, 5)}, {"size": (8, 5)}, {"size": (12, 13)}, {"scale_factor": 0.7}):
        for layout in ("NCHW", "NHWC"):
            exported(
                Calls(lambda x, options=options: F.interpolate(x, mode="bicubic", **options)), IMAGE, layout=layout
            )
    exported(nn.Sequential(nn.LayerNorm(3), nn.ReLU(), nn.Upsample((3, 5), mode="bicubic")), IMAGE)
    exported(nn.Upsample(scale_factor=1.05, mode="bicubic"), IMAGE)  # whose lengths stay


def test_factors_give_the_lengths_that_onnxruntime_rounds() -> None:
    x = np.ones((1, 45, 10, 1), np.float32)
    for factor in ((2.6, 1), (1, 2.3)):
        refused(lambda x, to=factor: F.interpolate(x, scale_factor=to, mode="bilinear"), "a factor of .* cannot be", x)
    exported(nn.Upsample(scale_factor=(1.3, 0.75), mode="bilinear"), x)


# -- what is refused ----------------------------------------------------------------------------------


def refused(function: Any, match: str, x: np.ndarray = ROW, **options: Any) -> None:
    with pytest.raises(ExportError, match=match):
        alpha.onnx.export(Calls(function), alpha.tensor(x), **options)


def test_an_operator_without_a_rule_is_named_with_its_layer() -> None:
    class Stairs(alpha.Function):
        def forward(self, X: Any) -> Any:
            return np.floor(X)

    model = nn.Sequential(nn.Linear(5, 5), Calls(Stairs.apply))
    with pytest.raises(ExportError, match=r"the operator Stairs of 1 \(Calls\) has no rule"):
        alpha.onnx.export(model, alpha.tensor(ROW))
    refused(lambda x: F.mse_loss(x, x), r"the operator mse_loss of the model \(Calls\) has no rule")
    refused(lambda x: x.argsort(), "the operator argsort of")


def test_an_operator_of_a_user_is_refused_and_one_in_pytorchs_form_is_exported_by_its_parts() -> None:
    class Add(alpha.Function):  # named as one of Alpha's
        def forward(self, X: Any) -> Any:
            return X - 1

    class Doubled(alpha.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

    refused(lambda x: Add.apply(x), "the operator Add of")
    exported(lambda x: Doubled.apply(x).relu(), ROW)


@pytest.mark.parametrize(
    "read",
    [lambda x: x * x.sum().item(), lambda x: x if x.sum() > 0 else -x, lambda x: x + alpha.tensor(x.numpy())],
    ids=["item", "if", "numpy"],
)
def test_values_that_the_program_reads_are_refused(read: Any) -> None:
    refused(read, r"the model \(Calls\) reads values of a tensor")


def test_what_no_operator_makes_is_refused() -> None:
    refused(lambda x: x + alpha.rand(5), "differed between two runs")
    refused(lambda x: x + alpha.tensor(np.asarray(x) * 2), "differed between two runs|reads values")
    refused(lambda x: x.relu() if len(x) % 2 else x.tanh(), "the forward ran 1 operators .* from tanh")
    exported(lambda x: x.relu() if len(x) % 2 else x.tanh(), ROW, batch_axis=None, batches=(1,))


def test_statistics_of_the_batch_and_bfloat16_are_refused() -> None:
    refused(lambda x: F.batch_norm(x, None, None, training=True), "the mean and variance of the batch")
    refused(lambda x: F.batch_norm(x, x[0], x[0] * x[0]), "the operator BatchNorm of .* an option that depends on the")
    refused(lambda x: x, "the input x is bfloat16", ROW.astype("bfloat16"))
    refused(lambda x: x.astype("bfloat16") * 2, "bfloat16")
    with alpha.precision("bf16"):
        proto = alpha.onnx.export(nn.Linear(5, 2), alpha.tensor(ROW))
    assert operators(proto) == {"Gemm": 1}


def training(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *layers)


IN_TRAINING: dict[str, Any] = {
    "norm": lambda: training(nn.BatchNorm2d(4)),
    "norm, relu": lambda: training(nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
    "norm, relu, pool": lambda: training(nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
    "relu, norm": lambda: training(nn.ReLU(), nn.BatchNorm2d(4)),
    "residual": lambda: models.torchvision.resnet18(num_classes=2),
    "unet": lambda: models.unet(num_classes=2, width=4),
    "dropout": lambda: training(nn.Dropout(0.5)),
    "relu, dropout": lambda: training(nn.ReLU(), nn.Dropout(0.5)),
    "dropout of maps": lambda: training(nn.Dropout2d(0.5)),
    "alpha dropout": lambda: training(nn.AlphaDropout(0.5)),
    "counted": lambda: training(nn.BatchNorm2d(4, momentum=None)),
}


@pytest.mark.parametrize("kind", IN_TRAINING)
def test_a_function_of_a_model_in_training_is_told_to_evaluate_it(kind: str) -> None:
    """No kernel that computes several layers at once hides them from the list of operators."""
    model, x = IN_TRAINING[kind](), alpha.rand(2, 32, 32, 3)
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    drawn = alpha.get_rng_state()
    with pytest.raises(ExportError, match=r"the operator (BatchNorm|Drop\w+) of the function .*: call eval\(\) of its"):
        alpha.onnx.export(lambda x: model(x), x)
    assert all(np.array_equal(value.numpy(), before[name]) for name, value in model.state_dict().items())
    assert alpha.get_rng_state() == drawn
    model.eval()
    alpha.onnx.export(lambda x: model(x), alpha.rand(2, 32, 32, 3))


def test_wrong_arguments() -> None:
    model, x = nn.Linear(5, 2), alpha.tensor(ROW)
    with pytest.raises(TypeError, match=r"input 0 is a ndarray, a Tensor is needed"):
        alpha.onnx.export(model, ROW)
    with pytest.raises(ValueError, match="layout='NWHC' is neither"):
        alpha.onnx.export(model, x, layout="NWHC")
    with pytest.raises(ShapeError, match="batch_axis=2 is no axis of input 0"):
        alpha.onnx.export(model, x, batch_axis=2)
    with pytest.raises(ShapeError, match="1 and 3 elements along batch_axis"):
        alpha.onnx.export(lambda x, y: x + y, (x, alpha.ones(3, 5)))
    with pytest.raises(ExportError, match="the forward failed for inputs"):
        alpha.onnx.export(lambda x: x.reshape(1, 5), x)
    with pytest.raises(ValueError, match="input_names"):
        alpha.onnx.export(model, x, input_names=["a", "b"])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx.checker", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install .*\[onnx\]"):
        alpha.onnx.export(nn.Linear(5, 2), alpha.tensor(ROW))
