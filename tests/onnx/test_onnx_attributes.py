"""Attributes of ONNX's nodes: each reader of `alpha.onnx.load` does as one says, or the node is refused by it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx_runs import LIMIT, apart
from trials import trials

import alpha
from alpha import ExportError
from alpha.onnx.readers import READERS

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

OPSET = 20
X = np.random.default_rng(0).integers(-3, 4, (2, 8, 6, 4)).astype(np.float32)  # with equal ones among them


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


NUMBERS = {"w": drawn(6, 4, 3, 3), "v": drawn(4, 6, 3, 3), "c": np.abs(drawn(4)), "r": drawn(6), "q": drawn(192, 192)}
NUMBERS |= {"s": np.array([1, 1, 2, 2], np.float32), "p": np.array([0, 0, 1, 2, 0, 0, 0, 1]), "i": np.array([0, 1])}
NUMBERS |= {"n": np.array([0, 4, 48]), "o": np.array([1]), "z": np.array([0]), "e": np.array([2])}
NUMBERS |= {
    "k": np.array(1),
    "l": np.float32(-1),
    "h": np.float32(1),
    "t": np.array([[[True]], [[False]]] * 2),
    "g": np.ones(4, np.int64),
}

# a node of each operator, of x (N, 4, 8, 6) and of NUMBERS, some with nodes around it
FLOATS = "Add Div Max Min Mul Pow Sub"
PLAIN = "Abs Ceil Celu Elu Erf Exp Floor Gelu GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish Identity LeakyRelu"
PLAIN += " LogSoftmax Mish Neg ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum Relu Selu Sigmoid Softmax"
PLAIN += " Softplus Softsign Sqrt Tanh Transpose Flatten Dropout"
NODES: dict[str, str] = {
    **{name: f"y = {name} (x)" for name in PLAIN.split()},
    **{name: f"y = {name} (x, h)" for name in FLOATS.split()},
    **{name: f"a = {name} (x, h) y = Cast <to = 1> (a)" for name in ("Equal", "Greater", "Less")},
    **{name: f"a = Exp (x) y = {name} (a)" for name in ("Log", "Reciprocal")},
    "ArgMax": "a = ArgMax (x) y = Cast <to = 1> (a)",
    "AveragePool": "y = AveragePool <kernel_shape = [2, 2]> (x)",
    "BatchNormalization": "y = BatchNormalization (x, c, c, c, c)",
    "Cast": "y = Cast <to = 1> (x)",
    "Clip": "y = Clip (x, l, h)",
    "Concat": "y = Concat <axis = 1> (x, x)",
    "ConstantOfShape": "a = Shape (x) b = ConstantOfShape (a) y = Relu (x)",
    "Conv": "y = Conv (x, w)",
    "ConvTranspose": "y = ConvTranspose (x, v)",
    "Einsum": 'y = Einsum <equation = "nchw,nchw->nchw"> (x, x)',
    "Expand": "y = Expand (x, g)",
    "Gather": "y = Gather (x, i)",
    "Gemm": "a = Flatten (x) y = Gemm (a, q, h)",
    "InstanceNormalization": "y = InstanceNormalization (x, c, c)",
    "LRN": "y = LRN <size = 3> (x)",
    "LayerNormalization": "y = LayerNormalization (x, r)",
    "MatMul": "a = Flatten (x) y = MatMul (a, q)",
    "MaxPool": "y = MaxPool <kernel_shape = [2, 2]> (x)",
    "PRelu": "y = PRelu (x, l)",
    "Pad": "y = Pad (x, p)",
    "Range": "d = Shape <end = 1> (x) u = Squeeze (d) a = Range (u, u, k) y = Relu (x)",
    "Reshape": "y = Reshape (x, n)",
    "Resize": "y = Resize (x, , s)",
    "Shape": "a = Shape (x) b = Slice (a, z, o, z) y = Relu (x)",
    "Slice": "y = Slice (x, z, e)",
    "Split": "y = Split <axis = 1, num_outputs = 1> (x)",
    "Squeeze": "a = Unsqueeze (x, o) y = Squeeze (a, o)",
    "Sum": "y = Sum (x, x)",
    "Unsqueeze": "y = Unsqueeze (x, o)",
    "Where": "y = Where (t, x, h)",
}
ELSEWHERE = {"Upsample"}  # of files before opset 10: test_onnx_resize.py

STRINGS: dict[str, list[str]] = {
    "approximate": ["tanh"],
    "auto_pad": ["SAME_UPPER", "SAME_LOWER", "VALID"],
    "coordinate_transformation_mode": ["asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"],
    "equation": ["nchw,nchw->nwch", "nchw,nchw->nc"],
    "keep_aspect_ratio_policy": ["not_larger", "not_smaller"],
    "mode": ["linear", "cubic", "reflect", "edge", "wrap"],
    "nearest_mode": ["floor", "ceil", "round_prefer_ceil"],
}
KINDS = onnx.defs.OpSchema.AttrType
VALUES: dict[Any, list[Any]] = {
    KINDS.INT: [0, 1, 2, -1],
    KINDS.FLOAT: [0.25, 2.0],
    KINDS.INTS: [[1], [2, 2], [3, 3], [3, 2], [2, 3], [0, 2, 1, 3], [1, 0, 1, 0], [1, 1, 1, 1], [1, 2, 3, 0]],
}


def file_of(operator: str, **attributes: Any) -> Any:
    """The file of a node of an operator, with these attributes, and the nodes around it."""
    body = NODES[operator]
    text = f'<ir_version: 9, opset_import: ["" : {OPSET}]> g (float[N,4,8,6] x) => (float[] y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for name, values in NUMBERS.items():
        if any(name in node.input for node in proto.graph.node):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), name))
    (node,) = (node for node in proto.graph.node if node.op_type == operator)
    for name, value in attributes.items():
        for found in [found for found in node.attribute if found.name == name]:
            node.attribute.remove(found)
        node.attribute.append(onnx.helper.make_attribute(name, value))
    onnx.helper.set_model_props(proto, {"layout": "NCHW"})
    return proto


def runs(proto: Any) -> bool:
    """True if onnxruntime runs a file."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        session.run(None, {"x": np.moveaxis(X, -1, 1)})
    except Exception:  # of onnxruntime, which has a class for each reason
        return False
    return True


def outcome(proto: Any) -> str:
    """The outcome of a file that onnxruntime runs: "right", or the error of the import."""
    try:
        network = alpha.onnx.load(proto)
    except ExportError as error:
        return str(error)
    return "right" if apart(network, proto, [X]) < 2 * LIMIT else "wrong"


def test_every_reader_has_a_node_here() -> None:
    assert NODES.keys() | ELSEWHERE == READERS.keys()


@pytest.mark.parametrize("operator", sorted(NODES))
def test_every_attribute_is_used_or_refused(operator: str) -> None:
    attributes = onnx.defs.get_schema(operator, OPSET).attributes
    with trials() as trial:
        with trial("as it is"):
            assert outcome(file_of(operator)) == "right"
        for name, schema in attributes.items():
            if (operator, name) == ("BatchNormalization", "training_mode"):
                continue
            for value in STRINGS.get(name, []) if schema.type == KINDS.STRING else VALUES.get(schema.type, []):
                proto = file_of(operator, **{name: value})
                if runs(proto):
                    with trial(name, value):
                        found = outcome(proto)
                        assert re.match(rf"right$|onnx.load: the node {operator}_\d \({operator}\) ", found), found


@pytest.mark.parametrize("operator", sorted(NODES))
def test_an_attribute_that_no_reader_knows_is_refused(operator: str) -> None:
    with pytest.raises(ExportError, match=rf"the node \w+ \({operator}\) with unheard=\[3, 4\] is not offered"):
        alpha.onnx.load(file_of(operator, unheard=[3, 4]))


def test_what_a_new_reader_leaves_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NODES, "Hardmax", "y = Hardmax (x)")
    monkeypatch.setitem(READERS, "Hardmax", lambda b, node: b.call("Identity", [node.inputs[0]], node.outputs))
    alpha.onnx.load(file_of("Hardmax", axis=-1))
    with pytest.raises(ExportError, match=r"the node Hardmax_0 \(Hardmax\) with axis=1 is not offered"):
        alpha.onnx.load(file_of("Hardmax", axis=1))


@pytest.mark.parametrize(
    ("operator", "attributes", "why"),
    [
        ("ArgMax", {"select_last_index": 1}, "with select_last_index=1 is not offered"),
        ("Conv", {"kernel_shape": [2, 2]}, r"with kernel_shape=\[2, 2\] has filters of the shape \[3, 3\]"),
        ("Conv", {"auto_pad": "SAME_UPPER", "pads": [2, 2, 2, 2]}, r"with auto_pad=SAME_UPPER and pads=\[2, 2, 2, 2\]"),
        ("Gemm", {"transA": 1}, "with transA=1 is not offered"),
        ("LayerNormalization", {"stash_type": 10}, "with stash_type=10 is not offered"),
        ("ReduceL2", {"noop_with_empty_axes": 1}, "with noop_with_empty_axes=1 and no axes is not offered"),
        ("Resize", {"antialias": 1}, "with antialias=1 is not offered"),
        ("Resize", {"keep_aspect_ratio_policy": "not_larger"}, "with keep_aspect_ratio_policy=not_larger is not"),
        ("Split", {"num_outputs": 2}, "with num_outputs=2 has 1 outputs"),
    ],
)
def test_what_is_refused(operator: str, attributes: dict[str, Any], why: str) -> None:
    with pytest.raises(ExportError, match=why):
        alpha.onnx.load(file_of(operator, **attributes))


@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"])
def test_a_reduction_over_no_axes_is_its_input(operator: str) -> None:
    network = alpha.onnx.load(file_of(operator, noop_with_empty_axes=1, keepdims=0))
    np.testing.assert_array_equal(network(alpha.tensor(X)).numpy(), X)


def test_a_file_of_training_is_a_network_in_training() -> None:
    proto = file_of("BatchNormalization", training_mode=1)
    proto.graph.node[0].output.extend(["running mean", "running var"])
    network = alpha.onnx.load(proto)
    mean = network(alpha.tensor(X)).numpy().mean((0, 1, 2))
    np.testing.assert_allclose(mean, NUMBERS["c"], atol=1e-5)
