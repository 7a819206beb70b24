"""Import of an ONNX network as a Module: maps become NHWC, weights become layers and parameters."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import Any

from alpha.errors import CheckpointError
from alpha.io.files import check_readable
from alpha.onnx.builder import Builder, lengths_of
from alpha.onnx.imported import Network
from alpha.onnx.package import onnx_package
from alpha.onnx.readers import READERS


def load(path: str | PathLike[str] | Any) -> Network:
    """The network of an ONNX file as a Module, in training mode

    Its maps are NHWC: an input (N, C, H, W) of the file is (N, H, W, C), and so are outputs; inputs of other axes stay.
    Convolutions, norms and linear layers are layers of alpha.nn with Parameters and running statistics, under the names
    that the file has, so the network can be trained. Dropout, which most files have not, drops in training.

    Args:
        path: of the file, or an `onnx.ModelProto`.

    Raises:
        CheckpointError: the file cannot be read.
        ExportError: an operator, or a form of it, is not offered; the message names the node.
        ImportError: the package onnx is missing.
    """
    onnx = onnx_package()
    if isinstance(path, (str, PathLike)):
        proto, subject = _read(onnx, path), f"of the file {fspath(path)}"
    else:
        proto, subject = path, "of the model"
        _check_names(proto.graph)
    try:
        shapes = _shapes(onnx, proto)
    except Exception as error:  # of onnx, which has a class for each reason
        raise CheckpointError(f"onnx.load: the shapes {subject} cannot be worked out: {error}") from error
    return Builder(proto, shapes).build(READERS)


def _read(onnx: Any, path: str | PathLike[str]) -> Any:
    """The checked file. Raises CheckpointError if it is none of ONNX."""
    name = fspath(path)
    check_readable(Path(name), name)
    try:
        proto = onnx.load(name)
        onnx.checker.check_model(name)
    except Exception as error:  # of protobuf, of onnx, or of its files of weights
        raise CheckpointError(f"{name} is no valid file of ONNX: {error}") from error
    return proto


def _check_names(graph: Any) -> None:
    """CheckpointError unless each value of a graph is made before it is used, which onnx checks of files."""
    fault = "onnx.load: the model is damaged:"
    made = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        for name in node.input:
            if name and name not in made:
                raise CheckpointError(
                    f"{fault} its node {node.name or node.op_type} needs {name!r}, which nothing makes"
                )
        made.update(node.output)
    for info in graph.output:
        if info.name not in made:
            raise CheckpointError(f"{fault} no node makes its output {info.name!r}")


BATCHES = 2, 3  # for which shapes are computed: what differs follows the batch


def _shapes(onnx: Any, proto: Any) -> dict[str, tuple[int | None, ...]]:
    """The shapes of values, as far as the file tells them; None for a length that follows the batch or is not known."""
    both = []
    for batch in BATCHES:
        one = onnx.ModelProto()
        one.CopyFrom(proto)
        del one.graph.value_info[:]
        for info in one.graph.input:
            axes = info.type.tensor_type.shape.dim
            if len(axes) and not axes[0].HasField("dim_value"):
                axes[0].dim_value = batch
        for info in one.graph.output:
            info.type.tensor_type.ClearField("shape")
        graph = onnx.shape_inference.infer_shapes(one, data_prop=True).graph
        found = {info.name: lengths_of(info) for info in (*graph.value_info, *graph.input, *graph.output)}
        both.append({name: lengths for name, lengths in found.items() if lengths is not None})
    first, second = both
    return {
        name: tuple(n if n == m else None for n, m in zip(lengths, second[name], strict=True))
        for name, lengths in first.items()
        if name in second and len(second[name]) == len(lengths)
    }
