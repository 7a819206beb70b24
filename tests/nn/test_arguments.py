"""Every argument of every layer and function reaches its operator, or is refused.

A new layer, function or argument without a row in tests/rows/ fails here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from argument_table import Facts, Row, Subject, changes, check_argument, check_complete, frozen
from rows.every import FUNCTIONS, LAYERS
from rows.kinds import FunctionRow, LayerRow, NotedStatistics, each, joined
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, Tensor, nn

STATE = ("running_mean", "running_var")


def run(function: Callable[..., Tensor], arguments: dict[str, Any], constants: tuple[str, ...] = STATE) -> Facts:
    """Result, gradients, tensors written in place, memory and statistics of a call, or the error that shapes differ."""
    leaves: dict[str, Tensor] = {}
    given: dict[str, Any] = {}

    def leaf(name: str, value: np.ndarray) -> Tensor:
        trained = value.dtype.kind == "f" and name.split()[0] not in constants
        leaves[name] = alpha.tensor(value, requires_grad=trained)
        return leaves[name] * 1.0 if trained else leaves[name]  # no leaf is written in place

    for name, value in arguments.items():
        given[name] = each(lambda array, name=name: leaf(f"{name} {len(leaves)}", array), value)
    alpha.manual_seed(5)
    try:
        y = joined(function(**given))
    except ShapeError as error:
        return {"values": None, "memory": None, "statistics": None, "error": str(error)}
    if y.requires_grad:
        y.backward(alpha.tensor(np.linspace(1, 2, y.size, dtype=y.dtype).reshape(y.shape)))
    grads = {name: None if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}
    first = next((value for value in given.values() if isinstance(value, Tensor)), None)
    return {
        "values": frozen([y, grads, [leaf for name, leaf in leaves.items() if name.split()[0] in STATE]]),
        "memory": first is not None and np.shares_memory(y.array, first.array),
        "statistics": [value.noted for value in given.values() if isinstance(value, NotedStatistics)],
        "error": None,
    }


def layer(row: LayerRow) -> Subject:
    """A layer, tried in training and in evaluation."""

    def observe(arguments: dict[str, Any]) -> Facts:
        alpha.manual_seed(4)
        module = row.layer(**arguments)
        steps = []
        for mode in (True, False):
            module.train(mode)
            module.zero_grad()
            steps.append(run(lambda **xs: module(*xs.values()), {f"x{i}": x for i, x in enumerate(row.inputs)}))
            grads = [parameter.grad for parameter in module.parameters()]
            steps[-1]["values"] = [steps[-1]["values"], frozen(grads), frozen(module.state_dict().numpy())]
        return {kind: [step[kind] for step in steps] for kind in steps[0]} | {"repr": repr(module)}

    return Subject(row.layer, observe, row.usual, row.arguments)


def other(target: Callable[..., Any], facts: Callable[[Any], Any], usual: dict[str, Any], /, **rows: Row) -> Subject:
    """Subject that is neither a layer nor a function: `facts` of what it makes must differ."""

    def observe(arguments: dict[str, Any]) -> Facts:
        alpha.manual_seed(4)
        many = arguments.pop("modules", ()) if target is nn.Sequential else ()
        return {"values": frozen(facts(target(*many, **arguments)))}

    return Subject(target, observe, usual, rows)


OTHERS = [
    other(nn.Sequential, nn.Module.state_dict, {}, modules=changes([nn.Linear(2, 2)])),
    other(nn.ModuleDict, nn.Module.state_dict, {}, modules=changes({"a": nn.Linear(2, 2)})),
    other(nn.ModuleList, nn.Module.state_dict, {}, modules=changes([nn.Linear(2, 2)])),
    other(nn.ParameterDict, nn.Module.state_dict, {}, parameters=changes({"a": nn.Parameter([2.0])})),
    other(nn.ParameterList, nn.Module.state_dict, {}, values=changes([nn.Parameter([2.0])])),
    other(
        nn.Parameter,
        lambda p: [p, p.requires_grad],
        {"values": [1.0]},
        values=changes([2.0]),
        requires_grad=changes(False),
    ),
    other(nn.Buffer, lambda b: [b, b.persistent], {"values": [1.0]}, values=changes([2.0]), persistent=changes(False)),
    *(
        other(
            kind,
            lambda p: [p.requires_grad, p.dtype.name, p.device.name, getattr(p, "persistent", None)],
            {},
            requires_grad=changes(kind is nn.UninitializedBuffer),
            device=changes("cuda"),
            dtype=changes("float64"),
            **rows,
        )
        for kind, rows in ((nn.UninitializedParameter, {}), (nn.UninitializedBuffer, {"persistent": changes(False)}))
    ),
    other(
        nn.StateDict,
        lambda s: [dict(s), s.layout],
        {},
        values=changes({"a": np.ones(1, np.float32)}),
        layout=changes("NCHW"),
    ),
]
SUBJECTS = {
    **{f"nn.{row.name}": layer(row) for row in LAYERS},
    **{f"nn.{subject.name}": subject for subject in OTHERS},
    **{
        f"F.{row.name}": Subject(
            row.function, partial(run, row.function, constants=STATE + row.constants), row.usual, row.arguments
        )
        for row in FUNCTIONS
    },
}


def test_every_layer_and_function_has_a_row() -> None:
    layers = {f"nn.{n}" for n in nn.__all__ if inspect.isclass(getattr(nn, n)) and n != "Module"}
    functions = {f"F.{n}" for n in F.__all__}
    missing = sorted((layers | functions) - set(SUBJECTS))
    assert not missing, f"{missing}: an activation, a loss, a layer or another function needs one row in tests/rows/"
    assert set(SUBJECTS) == layers | functions


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_argument_has_a_row(name: str) -> None:
    check_complete(SUBJECTS[name])


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_argument_has_an_effect_or_is_refused(name: str) -> None:
    with trials() as trial:
        for argument in SUBJECTS[name].rows:
            with trial(argument):
                check_argument(SUBJECTS[name], argument)


# whose numbers are checked by the tests of their operators
ELSEWHERE = {"F.add", "F.flatten", "F.reshape", "F.transpose", "F.sum", "F.mean", "F.rms_norm", "nn.RMSNorm"}
# as those of TransformerEncoderLayer, RNN and RNNCell
ELSEWHERE |= {"nn.Transformer", "nn.TransformerDecoderLayer", "nn.GRU", "nn.GRUCell", "nn.LSTMCell"}
ELSEWHERE.add("nn.PairwiseDistance")  # its p may be infinite
ELSEWHERE |= {f"F.{row.name}" for row in FUNCTIONS if row.any_number}
# the code of two axes checks them; convolutions stand for the other numbers of axes
ELSEWHERE |= {name for name in SUBJECTS if name.endswith(("1d", "3d")) and "conv" not in name.lower()}


def numbers(kind: type) -> list[Any]:
    """(subject, arguments) of the arguments that are an integer or a pair of integers, or a float."""

    def is_one(value: Any) -> bool:
        parts = value if isinstance(value, tuple) else (value,)
        return all(type(part) is kind for part in parts)

    found = {
        name: [argument for argument, row in subject.rows.items() if is_one(row.value)]
        for name, subject in SUBJECTS.items()
        if name not in ELSEWHERE
    }
    return [pytest.param(SUBJECTS[name], arguments, id=name) for name, arguments in found.items() if arguments]


def with_value(subject: Subject, argument: str, value: Any) -> Facts:
    row = subject.rows[argument]
    return subject.observe({**subject.usual, **row.given, **row.together, argument: value})


@pytest.mark.parametrize(("subject", "arguments"), numbers(int))
def test_numpys_integers_are_integers(subject: Subject, arguments: list[str]) -> None:
    with trials() as trial:
        for argument in arguments:
            row = subject.rows[argument]
            expected = None if row.refused else with_value(subject, argument, row.value)
            for kind in (np.int64, np.int32, np.uint8)[: 2 if np.min(row.value) < 0 else 3]:
                value = tuple(map(kind, row.value)) if isinstance(row.value, tuple) else kind(row.value)
                with trial(argument, kind.__name__):
                    if row.refused:
                        with pytest.raises(ValueError, match="is not offered"):
                            with_value(subject, argument, value)
                    else:
                        assert with_value(subject, argument, value) == expected


NO_INTEGERS = (2.0, np.float32(2), True, np.True_, "2", (2, 2.0), (True, 2), ("2", 2))
NOT_FINITE = (np.nan, np.inf, -np.inf, "1", True, None, [1.0])


@pytest.mark.parametrize(("subject", "arguments"), numbers(int))
def test_what_is_not_an_integer_is_refused(subject: Subject, arguments: list[str]) -> None:
    refused(subject, arguments, NO_INTEGERS, "is not an? |neither an integer|is not offered")


@pytest.mark.parametrize(("subject", "arguments"), numbers(float))
def test_numbers_that_are_not_finite_are_refused(subject: Subject, arguments: list[str]) -> None:
    refused(subject, arguments, NOT_FINITE, "is not finite|is not a number|is not offered")


# the least value of each integer of a layer, and integers that a layer does not look at before it is called
LEAST = {
    **dict.fromkeys(("in_channels", "out_channels", "in_features", "out_features", "in1_features", "in2_features"), 1),
    **dict.fromkeys(("num_features", "num_channels", "num_groups", "groups", "num_parameters", "normalized_shape"), 1),
    **dict.fromkeys(("kernel_size", "stride", "dilation", "size", "upscale_factor", "downscale_factor"), 1),
    **dict.fromkeys(("input_size", "hidden_size", "num_layers", "num_embeddings", "embedding_dim"), 1),
    **dict.fromkeys(("embed_dim", "num_heads", "kdim", "vdim", "d_model", "nhead", "dim_feedforward"), 1),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers", "output_size"), 1),
    **dict.fromkeys(("padding", "output_padding", "proj_size", "normalized_shape"), 0),
    "n_classes": 2,
}
LATER = {"dim", "start_dim", "end_dim", "blank", "ignore_index", "padding_idx", "divisor_override"}
LATER_OF = {"size": "Upsampl", "output_size": "Adaptive", "padding": "Pad", "p": "MultiMarginLoss"}
TAKEN_WITH = {"in_features": {"div_value": 1.0}, "n_classes": {"cutoffs": [1]}}  # of AdaptiveLogSoftmaxWithLoss


@pytest.mark.parametrize("row", LAYERS, ids=lambda row: row.name)
def test_an_integer_of_a_layer_has_a_least_value(row: LayerRow) -> None:
    for argument, other in row.arguments.items():
        values = other.value if isinstance(other.value, tuple) else (other.value,)
        if set(map(type, values)) != {int} or other.refused or argument in LATER:
            continue
        if LATER_OF.get(argument, row.name + "?") in row.name or argument == "unflattened_size":
            continue
        least, given = LEAST[argument], {**row.usual, **other.given, **other.together}
        if row.name == "AdaptiveLogSoftmaxWithLoss":
            given |= TAKEN_WITH[argument]
        row.layer(**{**given, argument: least})
        with pytest.raises(ValueError, match=rf"^\w+: {argument}={least - 1} must be at least {least}"):
            row.layer(**{**given, argument: least - 1})


def refused(subject: Subject, arguments: list[str], wrong: tuple[Any, ...], reason: str) -> None:
    with trials() as trial:
        for argument, value in product(arguments, wrong):
            if value is None and argument == "momentum":
                continue  # the mean over all batches
            if value is True and argument == "dim" and "unbiased" in subject.rows:
                continue  # which it stands for, as in x.var(True)
            with (
                trial(argument, repr(value)),
                pytest.raises((TypeError, ValueError), match=rf"{argument}=.*({reason})"),
            ):
                with_value(subject, argument, value)


@pytest.mark.parametrize(("subject", "arguments"), numbers(float))
def test_numpys_numbers_are_numbers(subject: Subject, arguments: list[str]) -> None:
    with trials() as trial:
        for argument, kind in product(arguments, (np.float32, np.float64)):
            exact = kind(subject.rows[argument].value)
            with trial(argument, kind.__name__):
                assert with_value(subject, argument, exact) == with_value(subject, argument, float(exact))


@pytest.mark.parametrize("row", [row for row in FUNCTIONS if row.tensors], ids=lambda row: row.name)
def test_a_numpy_array_is_no_tensor(row: FunctionRow) -> None:
    subject = SUBJECTS[f"F.{row.name}"]
    for argument in row.tensors:
        arguments = {
            name: alpha.tensor(value) if isinstance(value, np.ndarray) and name != argument else value
            for name, value in {**subject.usual, argument: subject.rows[argument].value}.items()
        }
        with pytest.raises(TypeError, match="a Tensor is needed"):
            subject.target(**arguments)


@pytest.mark.parametrize("row", [row for row in LAYERS if row.name != "Identity"], ids=lambda row: row.name)
def test_a_layer_says_that_it_was_called_with_a_numpy_array(row: LayerRow) -> None:
    with pytest.raises(TypeError, match="a Tensor is needed"):
        row.layer(**row.usual)(*row.inputs)
