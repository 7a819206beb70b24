"""Runs of exported models by onnxruntime, beside the same forward in Alpha."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import alpha
from alpha import nn
from alpha.onnx.recorder import tensors_in

LIMIT = 1e-5  # of the difference, relative to the largest number of a result


def outputs_of(proto: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Results of onnxruntime on the cpu; inputs and results in Alpha's order of axes."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    turned = {prop.key: prop.value for prop in proto.metadata_props}["layout"] == "NCHW"
    used = {given.name for given in session.get_inputs()}
    feed = {
        info.name: np.moveaxis(array, -1, 1) if turned and array.ndim in (4, 5) else array
        for info, array in zip(proto.graph.input, arrays, strict=True)
        if info.name in used
    }
    return [np.moveaxis(y, 1, -1) if turned and y.ndim in (4, 5) else y for y in session.run(None, feed)]


def difference(model: Callable[..., Any], proto: Any, arrays: Sequence[np.ndarray]) -> float:
    """The largest difference of a file's results from those of the model in evaluation, relative to the largest."""
    modules = [module for module in model.modules() if module.training] if isinstance(model, nn.Module) else []
    for module in modules:
        module.training = False
    with alpha.no_grad():
        wanted = [y.numpy() for y in tensors_in(model(*map(alpha.tensor, arrays)))]
    for module in modules:
        module.training = True
    worst = 0.0
    for found, right in zip(outputs_of(proto, arrays), wanted, strict=True):
        assert (found.shape, found.dtype) == (right.shape, right.dtype)
        known = np.isfinite(right)
        np.testing.assert_array_equal(found[~known], right[~known])
        scale = max(float(np.abs(right[known], dtype=float).max(initial=0.0)), 1e-3)
        apart = np.abs(found[known].astype(float) - right[known].astype(float))
        worst = max(worst, float(apart.max(initial=0.0)) / scale)
    return worst


def apart(network: nn.Module, proto: Any, arrays: Sequence[np.ndarray]) -> float:
    """The largest difference between a network and its file, relative to the largest number."""
    network.eval()
    with alpha.no_grad():
        made = network(*map(alpha.tensor, arrays))
    worst = 0.0
    for y, right in zip(made if isinstance(made, tuple) else [made], outputs_of(proto, arrays), strict=True):
        assert y.shape == right.shape
        scale = max(float(np.abs(right).max(initial=0.0)), 1e-3)
        worst = max(worst, float(np.abs(y.numpy() - right).max(initial=0.0)) / scale)
    return worst


def exported(model: Callable[..., Any], *arrays: np.ndarray, batches: Sequence[int] = (1, 4), **options: Any) -> Any:
    """The file of a model, which is compared with Alpha for batches of several lengths."""
    proto = alpha.onnx.export(model, tuple(map(alpha.tensor, arrays)), **options)
    for batch in batches:
        several = [other_numbers(np.resize(array, (batch, *array.shape[1:]))) for array in arrays]
        assert difference(model, proto, several) < LIMIT
    return proto


def other_numbers(array: np.ndarray) -> np.ndarray:
    """Numbers that the export has not seen, so that none can be in the file; integers as they are."""
    return array * array.dtype.type(0.9) if array.dtype.kind == "f" else array


def operators(proto: Any) -> Counter[str]:
    """Counts of the operators of ONNX in a file."""
    return Counter(node.op_type for node in proto.graph.node)


def with_statistics(model: nn.Module) -> nn.Module:
    """The model with running statistics that are not 0 and 1."""
    rng = np.random.default_rng(3)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(alpha.tensor(rng.normal(0, 0.1, buffer.shape).astype(np.float32)))
        if name.endswith("running_var"):
            buffer.copy_(alpha.tensor(rng.uniform(0.5, 1.5, buffer.shape).astype(np.float32)))
    return model
