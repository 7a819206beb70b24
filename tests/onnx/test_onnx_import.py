"""Networks of `alpha.onnx.load`: as onnxruntime computes the file, with the file's names, trainable, in NHWC."""

from __future__ import annotations

import contextlib
import copy
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import IMAGE, ROW, Flattened, Residual, TwoInTwoOut, Volumes
from onnx_runs import LIMIT, apart
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import ExportError, nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def test_models_of_users_come_back(tmp_path: Path) -> None:
    volume = np.random.default_rng(0).normal(size=(1, 4, 4, 4, 3)).astype(np.float32)
    for model, arrays in ((Residual(), [IMAGE]), (Flattened(), [IMAGE]), (TwoInTwoOut(), [IMAGE, ROW])):
        proto = alpha.onnx.export(model, tuple(map(alpha.tensor, arrays)), tmp_path / "model.onnx")
        assert apart(alpha.onnx.load(tmp_path / "model.onnx"), proto, arrays) < LIMIT
    proto = alpha.onnx.export(Volumes(), alpha.tensor(volume))
    assert apart(alpha.onnx.load(proto), proto, [volume]) < LIMIT


def test_a_network_trains() -> None:
    alpha.manual_seed(0)
    network = alpha.onnx.load(alpha.onnx.export(Flattened(), alpha.tensor(IMAGE)))
    assert network.training
    x, target = alpha.randn(8, 8, 8, 3), alpha.tensor(np.arange(8) % 2)
    before = network.get_buffer("features.1.running_mean").numpy()
    optimizer = alpha.optim.Adam(network.parameters(), lr=0.02)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert not np.array_equal(network.get_buffer("features.1.running_mean").numpy(), before)


def test_a_copy_has_weights_of_its_own_and_a_network_can_be_pickled() -> None:
    network = alpha.onnx.load(alpha.onnx.export(Flattened(), alpha.tensor(IMAGE))).eval()
    x = alpha.tensor(IMAGE)
    right = network(x).numpy()
    other = copy.deepcopy(network)
    again = pickle.loads(pickle.dumps(network))
    with alpha.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert not network(x).numpy().any()
    np.testing.assert_array_equal(other(x).numpy(), right)
    np.testing.assert_array_equal(again(x).numpy(), right)


def test_a_network_is_exported_again() -> None:
    network = alpha.onnx.load(alpha.onnx.export(Residual(), alpha.tensor(IMAGE)))
    again = alpha.onnx.export(network, alpha.tensor(IMAGE))
    assert apart(network, again, [IMAGE]) < LIMIT


# -- files of other programs --------------------------------------------------------------------------


def file_of(body: str, opset: int = 17, **constants: Any) -> Any:
    """A file of some nodes from x (N, 4, 8, 6) to y, written in ONNX's text."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[N,4,8,6] x) => (float[] y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for name, values in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), name))
    return proto


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


W, V, C, ONE = drawn(6, 4, 3, 3), drawn(4, 3, 3, 3), drawn(4), drawn(1)
ZERO, SIX = np.float32(0), np.float32(6)
INTS = np.int64
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("y = Conv <pads: ints = [0, 1, 2, 1], strides: ints = [2, 1]> (x, w)", {"w": W}),
    ('y = Conv <auto_pad = "SAME_UPPER", strides: ints = [2, 2]> (x, w)', {"w": W}),
    ('y = Conv <auto_pad = "SAME_LOWER", strides: ints = [3, 2]> (x, w)', {"w": W}),
    ("y = Conv <group = 2, dilations: ints = [2, 1]> (x, w, b)", {"w": drawn(6, 2, 3, 3), "b": drawn(6)}),
    ("y = ConvTranspose <strides: ints = [2, 2], pads: ints = [1, 1, 0, 1]> (x, w)", {"w": V}),
    ("y = ConvTranspose <strides: ints = [2, 2], output_padding: ints = [1, 0]> (x, w)", {"w": V}),
    ("y = MaxPool <kernel_shape: ints = [3, 3], strides: ints = [2, 2], pads: ints = [0, 0, 1, 1]> (x)", {}),
    ("y = MaxPool <kernel_shape: ints = [3, 2], strides: ints = [2, 2], ceil_mode = 1> (x)", {}),
    ("y = AveragePool <kernel_shape: ints = [3, 3], pads: ints = [1, 1, 1, 1]> (x)", {}),
    ("y = AveragePool <kernel_shape: ints = [2, 2], pads: ints = [0, 0, 1, 1], count_include_pad = 1> (x)", {}),
    ("a = GlobalMaxPool (x) y = Mul (x, a)", {}),
    ("a = GlobalAveragePool (x) b = Flatten (a) y = Gemm <alpha: float = 0.5> (b, w, c)", {"w": drawn(4, 5), "c": ONE}),
    ("a = Relu (x) b = Flatten (a) c = Tanh (b) y = Gemm <transB = 1> (c, w)", {"w": drawn(5, 192)}),
    ("a = Flatten (x) y = Softmax (a)", {}),
    (
        "s = Shape (x) i = Constant <value = int64 {0}> () n = Gather (s, i) u = Unsqueeze (n, z) "
        "c = Concat <axis = 0> (u, m) a = Reshape (x, c) y = MatMul (a, w)",
        {"z": np.zeros(1, INTS), "m": -np.ones(1, INTS), "w": drawn(192, 3)},
    ),
    ("a = Reshape (x, s) y = Exp (a)", {"s": np.array([0, 2, 2, 8, 6])}),
    ("a = Reshape (x, s) b = Transpose <perm: ints = [0, 2, 1, 3, 4]> (a) y = Reshape (b, t)", {
        "s": np.array([0, 2, 2, 8, 6]), "t": np.array([0, 4, 8, 6])}),
    ("a = Transpose <perm: ints = [0, 2, 3, 1]> (x) b = LayerNormalization (a, w, c) "
     "y = Transpose <perm: ints = [0, 3, 1, 2]> (b)", {"w": drawn(4), "c": C}),
    ("y = BatchNormalization <epsilon: float = 0.1> (x, w, b, m, v)", {"w": C, "b": C, "m": C, "v": np.abs(C)}),
    ("y = InstanceNormalization (x, w, b)", {"w": C, "b": C + 1}),
    ("y = LRN <size = 3, alpha: float = 0.1> (x)", {}),
    ("y = PRelu (x, w)", {"w": drawn(4, 1, 1)}),
    ("a = Mul (x, w) b = Add (a, c) y = Sub (b, k)", {"w": drawn(4, 1, 1), "c": drawn(6), "k": np.float32(2)}),
    ("a, b = Split <axis = 1> (x, n) c = Sigmoid (b) y = Concat <axis = 1> (c, a)", {"n": np.array([1, 3])}),
    ("y = Slice (x, s, e, a, p)", {"s": np.array([1, -1]), "e": np.array([9, -9]), "a": np.array([1, 2]),
                                   "p": np.array([2, -2])}),
    ('y = Pad <mode = "reflect"> (x, p)', {"p": np.array([0, 0, 1, 2, 0, 0, 0, 1])}),
    ("y = Pad (x, p, v)", {"p": np.array([0, 1, 0, 2, 0, 0, 1, 0]), "v": np.float32(3)}),
    ("y = ReduceMean <axes: ints = [2, 3], keepdims = 0> (x)", {}),
    ("y = ReduceMax <axes: ints = [1]> (x)", {}),
    ("y = Softmax <axis = 1> (x)", {}),
    ("i = ArgMax <axis = 1> (x) y = Cast <to = 1> (i)", {}),
    ("y = Resize <mode = \"linear\"> (x, r, f)", {"r": np.zeros(0, np.float32),
                                                  "f": np.array([1, 1, 2, 1.5], np.float32)}),
    ('y = Resize <mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"> (x, r, f)', {
        "r": np.zeros(0, np.float32), "f": np.array([1, 1, 2, 3], np.float32)}),
    ("y = Gather <axis = 1> (x, i)", {"i": np.array([2, 0])}),
    ("a = Gather <axis = 2> (x, i) y = Neg (a)", {"i": np.array(-1)}),
    ("a = Clip (x, l, h) b = Clip (a, l) y = Max (b, c)", {"l": ZERO, "h": SIX, "c": ONE}),
    ("a = Greater (x, z) b = Sqrt (h) y = Where (a, x, b)", {"z": np.float32(0), "h": np.float32(4)}),
    ("a = Sum (x, x, w) y = Min (a, x)", {"w": drawn(4, 1, 1)}),
    ("a = LeakyRelu (x) b = Elu (a) c = HardSigmoid (b) d = Selu (c) y = Softplus (d)", {}),
    ("a = Unsqueeze (x, o) b = Squeeze (a, o) y = Abs (b)", {"o": np.array([1])}),
    ("a, b = Dropout (x) y = Erf (a)", {}),
]  # fmt: skip


def test_files_of_other_programs() -> None:
    x = np.random.default_rng(0).normal(size=(3, 8, 6, 4)).astype(np.float32)
    with trials() as trial:
        for body, constants in BODIES:
            with trial(body):
                proto = proto_with_layout(file_of(body, **constants))
                assert apart(alpha.onnx.load(proto), proto, [x]) < LIMIT


def test_layers_of_a_file_are_layers() -> None:
    proto = file_of("a = Conv (x, w) y = BatchNormalization <momentum: float = 0.8> (a, g, c, m, v)",
                    **{"w": W, "g": drawn(6), "c": drawn(6), "m": drawn(6), "v": np.ones(6, np.float32)})  # fmt: skip
    first, second = alpha.onnx.load(proto).children()
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.BatchNorm2d)
    assert second.momentum == pytest.approx(0.2)


def test_two_nodes_of_one_weight_share_it() -> None:
    proto = file_of("a = Conv <pads: ints = [1, 1, 1, 1]> (x, w) y = Conv (a, w)", w=drawn(4, 4, 3, 3))
    network = alpha.onnx.load(proto)
    assert [tuple(p.shape) for p in network.parameters()] == [(4, 3, 3, 4)]
    assert apart(network, proto_with_layout(proto), [np.ones((2, 8, 6, 4), np.float32)]) < LIMIT


SQUARE = drawn(192, 192) / 14


@pytest.mark.parametrize(
    "body",
    [
        "a = Flatten (x) b = Gemm (a, w, c) y = Gemm (b, w, c)",
        "a = Flatten (x) b = Gemm <transB = 1> (a, w) y = Gemm <transB = 1, alpha: float = 1.0> (b, w, c)",
        "a = Flatten (x) n = Relu (x) m = Reshape (n, t) b = MatMul (m, w) d = Gemm (a, w, c) y = Add (b, d)",
        "a = Flatten (x) n = Reshape (x, r) m = Transpose <perm: ints = [0, 2, 1, 3]> (n) k = Flatten (m) "
        "b = Gemm (k, w) d = Gemm (a, w) y = Sub (b, d)",
        "n = Conv <strides: ints = [2, 1]> (x, f) k = Flatten (n) a = Flatten (x) b = MatMul (a, w) d = MatMul (k, w) "
        "e = MatMul (b, w) y = Sum (b, d, e)",
    ],
)
def test_a_weight_of_maps_of_several_shapes(body: str) -> None:
    """One head behind maps of several lengths, and behind what was no map, is one parameter in one order."""
    known = {"w": SQUARE, "c": drawn(192), "f": drawn(8, 4, 1, 1)}
    known |= {"t": np.array([0, 192]), "r": np.array([0, 8, 4, 6])}
    proto = file_of(
        body, **{name: values for name, values in known.items() if re.search(rf"\b{name}\)|\b{name},", body)}
    )
    network = alpha.onnx.load(proto_with_layout(proto))
    assert apart(network, proto, [drawn(3, 8, 6, 4)]) < LIMIT
    assert [p.shape for p in network.parameters()].count((192, 192)) == 1


def test_a_linear_layer_of_alpha_that_is_used_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            self.conv, self.head = nn.Conv2d(3, 4, 1), nn.Linear(256, 256)

        def forward(self, x: alpha.Tensor) -> Any:
            return self.head(self.head(self.conv(x).flatten(1)))

    model, x = Twice(), alpha.tensor(IMAGE)
    network = alpha.onnx.load(alpha.onnx.export(model, x))
    np.testing.assert_allclose(network(x).numpy(), model(x).numpy(), atol=1e-5)


def test_a_layer_is_another_one_for_another_form_of_its_input() -> None:
    """Filters whose zeros follow from the size of the map, which is even and odd."""
    text = 'a = Conv <auto_pad = "SAME_UPPER", strides: ints = [2, 2]> ({}, w)'
    body = f"p = Slice (x, s, e, i) {text.format('p')} {text.format('x').replace('a =', 'b =')} y = Sub (a, b)"
    constants = {"s": np.array([0, 0]), "e": np.array([7, 5]), "i": np.array([2, 3]), "w": drawn(4, 4, 3, 3)}
    proto = proto_with_layout(file_of(body, **constants))
    network = alpha.onnx.load(proto)
    assert apart(network, proto, [drawn(3, 8, 6, 4)]) < LIMIT
    assert len(list(network.parameters())) == 1


def test_a_constant_in_two_orders_of_axes() -> None:
    """A constant beside maps and beside what was turned, whose shape is the same in both orders."""
    body = "k = Concat <axis = 1> (x, x, x, x) p = Resize (k, , , z) t = Transpose <perm: ints = [0, 2, 1, 3]> (p) "
    body += "u = Add (t, c) v = Add (p, c) y = Sub (u, v)"
    proto = proto_with_layout(file_of(body, z=np.array([3, 16, 16, 16]), c=drawn(16, 16, 16)))
    assert apart(alpha.onnx.load(proto), proto, [drawn(3, 8, 6, 4)]) < LIMIT


def proto_with_layout(proto: Any) -> Any:
    onnx.helper.set_model_props(proto, {"layout": "NCHW"})
    return proto


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("y = Det (x)", r"the node Det_0 \(Det\) is not offered"),
        ("a = Sigmoid (x) y = Conv (x, a)", r"Conv_1 \(Conv\) has an input a that is no constant"),
        ("a = Shape (x) b = Cast <to = 1> (a) y = Neg (b)", "the value a is a shape or a mask"),
        ("a, b = Dropout (x) c = Cast <to = 1> (b) y = Neg (c)", "the value b is a shape or a mask"),
        ("y = Conv <group = 4> (x, w)", "cannot be read: ShapeError: Conv2d: "),
        ("y, i = MaxPool <kernel_shape: ints = [2, 2]> (x)", "the places of the maxima"),
    ],
)
def test_what_is_refused(body: str, why: str) -> None:
    with pytest.raises(ExportError, match=f"onnx.load: .*{why}"):
        alpha.onnx.load(file_of(body, **({"w": W} if "w)" in body else {})))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(alpha.CheckpointError, match=r"none.onnx: no such file"):
        alpha.onnx.load(tmp_path / "none.onnx")
    with pytest.raises(alpha.CheckpointError, match=r"is a folder, not a regular file; name a file in it"):
        alpha.onnx.load(tmp_path)
    (tmp_path / "bad.onnx").write_bytes(b"\x00\x01 no file of ONNX")
    with pytest.raises(alpha.CheckpointError, match=r"bad.onnx is no valid file of ONNX"):
        alpha.onnx.load(tmp_path / "bad.onnx")
    network = alpha.onnx.load(alpha.onnx.export(nn.Linear(5, 2), alpha.tensor(ROW)))
    with pytest.raises(alpha.ShapeError, match="2 inputs, x are needed"):
        network(alpha.tensor(ROW), alpha.tensor(ROW))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    proto = alpha.onnx.export(Flattened(), alpha.tensor(IMAGE))
    proto.graph.output[0].name = "oupput"
    (tmp_path / "bad.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(alpha.CheckpointError, match=r"bad.onnx is no valid file of ONNX: .*'oupput'"):
        alpha.onnx.load(tmp_path / "bad.onnx")
    with pytest.raises(
        alpha.CheckpointError, match=r"^onnx.load: the model is damaged: no node makes its output 'oupput'"
    ):
        alpha.onnx.load(proto)
    proto = file_of("y = Conv <kernel_shape: ints = [3]> (x, w)", w=W)  # of which onnx tells no shape
    with pytest.raises(ExportError, match=r"onnx.load: .* kernel_shape=\[3\] has filters of the shape \[3, 3\]"):
        alpha.onnx.load(proto)
    proto = file_of("y = BatchNormalization <training_mode = 1> (x, c, c, c, c)", c=C)
    with pytest.raises(ExportError, match=r"onnx.load: the file does not tell the shape of the value y\b.* is damaged"):
        alpha.onnx.load(proto)
    proto = file_of("y = Relu (x)")
    proto.opset_import[0].domain = "of.another"
    with pytest.raises(
        alpha.CheckpointError, match=r"onnx.load: the shapes of the model cannot be worked out: .* No opset import"
    ):
        alpha.onnx.load(proto)
    proto = file_of("a = Relu (x) y = Add (a, c)", c=C)
    del proto.graph.initializer[:]
    with pytest.raises(alpha.CheckpointError, match="its node Add needs 'c', which nothing makes"):
        alpha.onnx.load(proto)


def test_every_flipped_bit_of_a_file_is_refused_or_read(tmp_path: Path) -> None:
    body = "a = Conv <strides: ints = [2, 1], group = 2> (x, w) b = MaxPool <kernel_shape: ints = [2, 2]> (a) "
    body += "c = Flatten (b) d = Gemm <transB = 1> (c, v) y = Softmax (d)"
    proto = file_of(body, w=drawn(2, 2, 3, 3), v=drawn(2, 12))
    data, path = proto.SerializeToString(), tmp_path / "flipped.onnx"
    with trials() as trial:
        for place in range(0, 8 * len(data), 5):
            changed = bytearray(data)
            changed[place // 8] ^= 1 << place % 8
            path.write_bytes(changed)
            with trial(place), contextlib.suppress(alpha.CheckpointError, ExportError):
                alpha.onnx.load(path)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (1, 1), (1, 5), (2, 1), (2, 5)])
@pytest.mark.parametrize("beta", [1, 0.5])
def test_what_a_gemm_adds(shape: tuple[int, ...], beta: float) -> None:
    body = f"a = Flatten (x) y = Gemm <beta: float = {beta}> (a, w, c)"
    proto = proto_with_layout(file_of(body, w=drawn(192, 5), c=np.asarray(drawn(*shape), np.float32)))
    network = alpha.onnx.load(proto)
    assert apart(network, proto, [drawn(2, 8, 6, 4)]) < LIMIT
    assert isinstance(next(iter(network.children())), nn.Linear)
    assert len(list(network.parameters())) == 2 or shape == ()


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_a_file_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layers = torch.nn
    torch.manual_seed(0)
    model = layers.Sequential(
        *(layers.Conv2d(3, 8, 3, padding=1, bias=False), layers.BatchNorm2d(8), layers.SiLU(), layers.MaxPool2d(2)),
        *(layers.Conv2d(8, 4, 3, stride=2, padding=1, groups=2), layers.Hardtanh(), layers.Flatten()),
        *(layers.Dropout(0.3), layers.Linear(16, 5), layers.LogSoftmax(-1)),
    ).eval()
    x = torch.randn(3, 3, 8, 8)
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes}
    torch.onnx.export(model, (x[:1],), tmp_path / "torch.onnx", dynamo=False, **names)
    network = alpha.onnx.load(tmp_path / "torch.onnx").eval()
    found = network(alpha.tensor(x.permute(0, 2, 3, 1).numpy())).numpy()
    np.testing.assert_allclose(found, model(x).detach().numpy(), atol=1e-5)
    assert isinstance(network.get_submodule("8"), nn.Linear)
