"""Export of a forward as an ONNX file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np

from alpha.config import VERSION, user_path
from alpha.core.numerics import is_floating, precision
from alpha.core.rng import get_rng_state, set_rng_state
from alpha.core.tensor import Tensor, tensor
from alpha.errors import ExportError, ShapeError, type_name
from alpha.io.files import write_atomically
from alpha.module.module import Module
from alpha.onnx.graph import Graph, Order, channels_first, natural
from alpha.onnx.package import IR_VERSION, OPSET, onnx_package
from alpha.onnx.recorder import Recorder, Step, Value, check_lengths, host_values, paired
from alpha.onnx.rules import rule_of

BATCHES = 2, 3, 5  # of the runs: an axis of length 1 is broadcast, so it would say nothing of the batch
LARGEST = 2**31 - 2**24  # bytes of weights in a file of one part; protobuf's limit is 2**31 for all
LAYOUTS = "NCHW", "NHWC"


def export(
    model: Callable[..., Any],
    x: Any,
    path: str | PathLike[str] | None = None,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    batch_axis: int | Sequence[int | None] | None = 0,
    layout: str = "NCHW",
) -> Any:
    """Write the forward of a model as an ONNX file (opset 20), checked by `onnx.checker`

    The model runs in evaluation mode, and is then as it was before: dropout vanishes, and batch normalisation uses its
    running statistics. It runs twice, with other numbers and for batches of two lengths; x gives shapes, dtypes and the
    range of the numbers. The file has float32, whatever `alpha.precision` is. All that the forward decides by shapes
    other than the batch is fixed in the file.

    Args:
        model: a Module, or a function of tensors.
        x: the input, or a tuple of the inputs: Tensors on the device of the model.
        path: of the file; None writes none. Weights of more than 2 GB go to a file beside it, `path` with ".data".
        input_names: by default the names of the arguments of forward.
        output_names: by default "output", or "output_0", ..; the keys if forward returns a dict.
        batch_axis: the axis that may have any length in the file, one for all inputs or one for each; None: no axis.
        layout: "NCHW": inputs and outputs of 4 and 5 axes have the channels second in the file, as ONNX's networks
            have. "NHWC": all have Alpha's order of axes. Fewer axes are never exchanged.

    Returns:
        The `onnx.ModelProto`; one whose weights went to a second file names that file.

    Raises:
        ExportError: an operator has no rule, or cannot be exported as it is used; the message names it and the layer.
        ImportError: the package onnx is missing.
        ShapeError: batch_axis names an axis that an input does not have.
    """
    onnx = onnx_package()
    if layout not in LAYOUTS:
        raise ValueError(f"onnx.export: layout={layout!r} is neither 'NCHW' nor 'NHWC'")
    inputs = _inputs(x)
    names = _input_names(model, inputs, input_names)
    axes = _batch_axes(inputs, batch_axis)
    batches = BATCHES[:2] if any(axis is not None for axis in axes) else (0, 0)
    record = _record(model, (inputs, names, axes), batches)
    graph = Graph(record.names, batches)
    outputs = _output_names(record, output_names)
    written = _write(graph, record, (names, axes, outputs), layout)
    proto = onnx.helper.make_model(
        written, opset_imports=[onnx.helper.make_opsetid("", OPSET)], producer_name="alpha", producer_version=VERSION
    )
    proto.ir_version = IR_VERSION
    onnx.helper.set_model_props(proto, {"layout": layout})
    _save(onnx, proto, path)
    return proto


def _inputs(x: Any) -> list[Tensor]:
    given = list(x) if isinstance(x, (tuple, list)) else [x]
    for number, value in enumerate(given):
        if not isinstance(value, Tensor):
            raise TypeError(f"onnx.export: input {number} is a {type_name(value)}, a Tensor is needed")
    if not given:
        raise TypeError("onnx.export: at least one input is needed")
    return given


def _input_names(model: Any, inputs: Sequence[Tensor], names: Sequence[str] | None) -> list[str]:
    if names is not None:
        if len(names) != len(inputs) or len(set(names)) != len(names):
            raise ValueError(f"onnx.export: input_names={list(names)} for {len(inputs)} inputs")
        return list(names)
    function = model.forward if isinstance(model, Module) else model
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found += [f"{parameter.name}_{i}" for i in range(len(inputs) - len(found))]
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            found.append(parameter.name)
    return found[: len(inputs)]


def _batch_axes(inputs: Sequence[Tensor], batch_axis: Any) -> list[int | None]:
    """The axis of each input that follows the batch."""
    alike = batch_axis is None or isinstance(batch_axis, int)
    wanted = [batch_axis] * len(inputs) if alike else list(batch_axis)
    if len(wanted) != len(inputs):
        raise ShapeError(f"onnx.export: batch_axis={batch_axis} has {len(wanted)} axes for {len(inputs)} inputs")
    axes: list[int | None] = []
    for number, (value, axis) in enumerate(zip(inputs, wanted, strict=True)):
        if axis is None or (alike and not value.ndim):
            axes.append(None)
            continue
        if not -value.ndim <= axis < value.ndim:
            raise ShapeError(f"onnx.export: batch_axis={axis} is no axis of input {number} of shape {value.shape}")
        if not value.size:
            raise ShapeError(f"onnx.export: input {number} of shape {value.shape} has no elements")
        axes.append(axis % value.ndim)
    lengths = {value.shape[axis] for value, axis in zip(inputs, axes, strict=True) if axis is not None}
    if len(lengths) > 1:
        raise ShapeError(
            f"onnx.export: the inputs have {' and '.join(map(str, sorted(lengths)))} elements along batch_axis, which "
            "is one length in the file; give an axis for each input, and None for one that has no batch"
        )
    return axes


# -- the runs ---------------------------------------------------------------------------------------------


def _record(
    model: Any, given: tuple[Sequence[Tensor], Sequence[str], Sequence[int | None]], batches: tuple[int, int]
) -> Recorder:
    """The record of the forward, with what two runs tell of it."""
    inputs, names, axes = given
    first, second = Recorder(model), Recorder(model)

    def run(recorder: Recorder, batch: int, other: bool) -> None:
        tensors = [_example(value, axis, batch, other) for value, axis in zip(inputs, axes, strict=True)]
        try:
            with precision("float32"):
                recorder.run(tensors, names)
        except (ExportError, TypeError):
            raise
        except Exception as error:
            shapes = ", ".join(str(value.shape) for value in tensors)
            advice = " If it needs the batch of x, give batch_axis=None" if batch else ""
            raise ExportError(
                f"onnx.export: the forward failed for inputs {shapes} of other numbers than x: {error}.{advice}"
            ) from error

    with _evaluation(model):
        run(first, batches[0], False)
        run(second, batches[1], True)
        paired(first, second, batches)
        if any(n.fixed and n.per_image for value in first.values for n in value.lengths):
            third = Recorder(model)  # a square of the batch looks like a multiple and a constant in two runs
            run(third, BATCHES[2], False)
            check_lengths(first, third, BATCHES[2])
    return first


def _example(value: Tensor, axis: int | None, batch: int, other: bool) -> Tensor:
    """An input like the given one for a batch of some length; `other`: with other numbers, in the same range."""
    array = host_values(value)
    if axis is not None:
        array = array.take(np.arange(batch) % array.shape[axis], axis)
    if other:
        array = np.flip(array)
        if is_floating(array.dtype):
            wide = array.astype(np.float64)
            known = wide[np.isfinite(wide)]
            low, high = min(known.min(initial=0.0), 0.0), max(known.max(initial=0.0), 1e-3)
            drawn = np.random.default_rng(0).uniform(low, high, wide.shape)
            array = (0.5 * wide + 0.5 * drawn).astype(array.dtype)
    return tensor(np.ascontiguousarray(array), device=value.device)


@contextmanager
def _evaluation(model: Any) -> Iterator[None]:
    """Put all modules into evaluation mode; afterwards restore their modes, and the state of the random numbers."""
    modules = [module for module in model.modules() if module.training] if isinstance(model, Module) else []
    drawn = get_rng_state()
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        set_rng_state(drawn)
        for module in modules:
            module.training = True


# -- the graph --------------------------------------------------------------------------------------------


def _write(
    g: Graph, record: Recorder, names: tuple[Sequence[str], Sequence[int | None], Sequence[str]], layout: str
) -> Any:
    helper = onnx_package().helper
    inputs, axes, outputs = names
    for name in (*inputs, *outputs):
        g.free(name)

    def order_of(value: Value) -> Order:
        return channels_first(value.rank) if layout == "NCHW" and value.rank in (4, 5) else natural(value.rank)

    def described(value: Value, name: str) -> Any:
        order = order_of(value)
        shape = [_text(n) for n in g.shape_in(value, order)]
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_value_info(name, dtype, shape, f"axes {order} of Alpha's {value.rank}")

    infos = []
    for value, name, axis in zip(record.given, inputs, axes, strict=True):
        order = order_of(value)
        if value.dtype.name == "bfloat16":
            raise ExportError(f"onnx.export: the input {name} is bfloat16; export a model of float32: model.float()")
        g.bind(value, name, order)
        if axis is not None and g.batch is None:
            g.batch = name, order.index(axis)
        infos.append(described(value, name))
    for step in record.steps:
        _convert(g, step)
    g.layer = ""
    made = [g.get(value, order_of(value)) for value in record.outputs]
    for name, wanted in zip(made, outputs, strict=True):
        g.rename_output(name, wanted, once=made.count(name) == 1)
    nodes = g.finish(outputs)
    results = [described(value, name) for value, name in zip(record.outputs, outputs, strict=True)]
    title = type(record.model).__name__ if isinstance(record.model, Module) else record.model.__name__
    return helper.make_graph(nodes, title, infos, results, list(g.initializers.values()))


def _convert(g: Graph, step: Step) -> None:
    """Write an operator; one that depends on no input is a constant already."""
    if not any(value.depends for value in step.outputs):
        return
    rule = rule_of(step)
    if rule is None:
        raise step.refused("has no rule in alpha.onnx, so it cannot be exported")
    if step.hides:
        raise step.refused(
            "has an option that depends on the input, as statistics of a norm may; it cannot be exported"
        )
    g.layer = step.layer
    rule(g, step)


def _text(length: Any) -> int | str:
    """A length in the description of an input or output: a number, or "N" and what is computed of it."""
    if length.is_fixed:
        return int(length.fixed)
    product = "N" if length.per_image == 1 else f"{length.per_image}N"
    return product + (f"{length.fixed:+d}" if length.fixed else "")


def _output_names(record: Recorder, names: Sequence[str] | None) -> list[str]:
    count = len(record.outputs)
    if names is not None:
        if len(names) != count or len(set(names)) != count:
            raise ValueError(f"onnx.export: output_names={list(names)} for {count} outputs")
        return list(names)
    if isinstance(record.structure, dict) and len(record.structure) == count:
        return [str(key) for key in record.structure]
    return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]


def _save(onnx: Any, proto: Any, path: str | PathLike[str] | None) -> None:
    size = sum(len(initializer.raw_data) for initializer in proto.graph.initializer)
    if size < LARGEST:
        written = proto.SerializeToString()
        onnx.checker.check_model(written, full_check=True)
        if path is not None:
            write_atomically(user_path(path), written)
    elif path is None:
        raise ExportError(f"onnx.export: {size:,} bytes are too many for one message of ONNX; give a path")
    else:
        file = user_path(path)
        onnx.save(proto, file, save_as_external_data=True, location=f"{file.name}.data")
        onnx.checker.check_model(str(file), full_check=True)
