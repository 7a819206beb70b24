"""Every argument of every layer and function reaches its operator, or is refused.

A new layer, function or argument without a row fails here. Optimizers have a table of their own, made with
`argument_table`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from argument_table import Facts, Row, Subject, cases, changes, check_argument, check_complete, frozen, refused

import alpha
import alpha.nn.functional as F
import alpha.ops.conv2d
from alpha import ShapeError, Tensor, nn

generator = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return generator.standard_normal(shape).astype(np.float32)


IMAGE = normal(2, 7, 7, 3) + 0.5
ROWS = normal(6, 5)
LABELS = np.array([0, 1, 2, 3, 4, 0])
STATE = ("running_mean", "running_var")


@contextlib.contextmanager
def counted_moments() -> Iterator[list[Any]]:
    """The requests for channel statistics that convolutions make."""
    made: list[Any] = []

    class Counted(alpha.ops.conv2d.ChannelStatistics):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    with patch.object(alpha.ops.conv2d, "ChannelStatistics", Counted):
        yield made


def run(function: Callable[..., Tensor], arguments: dict[str, Any]) -> Facts:
    """Result, gradients, tensors written in place, memory and statistics of a call, or the error that shapes differ."""
    leaves, given = {}, {}
    for name, value in arguments.items():
        given[name] = value
        if isinstance(value, np.ndarray):
            trained = value.dtype.kind == "f" and name not in STATE
            leaves[name] = alpha.tensor(value, requires_grad=trained)
            given[name] = leaves[name] * 1.0 if trained else leaves[name]  # no leaf is written in place
    alpha.manual_seed(5)
    with counted_moments() as made:
        try:
            y = function(**given)
        except ShapeError as error:
            return {"values": None, "memory": None, "statistics": None, "error": str(error)}
        if y.requires_grad:
            y.backward(alpha.tensor(np.linspace(1, 2, y.size, dtype=y.dtype).reshape(y.shape)))
    grads = {name: None if leaf.grad is None else leaf.grad for name, leaf in leaves.items()}
    first = next(value for value in given.values() if isinstance(value, Tensor))
    return {
        "values": frozen([y, grads, [leaves.get(name) for name in STATE]]),
        "memory": np.shares_memory(y.array, first.array),
        "statistics": len(made),
        "error": None,
    }


def layer(make: type[nn.Module], inputs: Sequence[np.ndarray], usual: dict[str, Any], /, **rows: Row) -> Subject:
    """A layer, tried in training and in evaluation."""

    def observe(arguments: dict[str, Any]) -> Facts:
        alpha.manual_seed(4)
        module = make(**arguments)
        steps = []
        for mode in (True, False):
            module.train(mode)
            module.zero_grad()
            steps.append(run(lambda **xs: module(*xs.values()), {f"x{i}": x for i, x in enumerate(inputs)}))
            grads = [parameter.grad for parameter in module.parameters()]
            steps[-1]["values"] = [steps[-1]["values"], frozen(grads), frozen(module.state_dict())]
        return {kind: [step[kind] for step in steps] for kind in steps[0]} | {"repr": repr(module)}

    return Subject(make, observe, usual, rows)


def function(target: Callable[..., Tensor], usual: dict[str, Any], /, **rows: Row) -> Subject:
    return Subject(target, lambda arguments: run(target, arguments), usual, rows)


def other(target: Callable[..., Any], facts: Callable[[Any], Any], usual: dict[str, Any], /, **rows: Row) -> Subject:
    """What is neither a layer nor a function: `facts` of what it makes must differ."""

    def observe(arguments: dict[str, Any]) -> Facts:
        alpha.manual_seed(4)
        many = arguments.pop("modules", ()) if target is nn.Sequential else ()
        return {"values": frozen(facts(target(*many, **arguments)))}

    return Subject(target, observe, usual, rows)


CONV = {"in_channels": 3, "out_channels": 4, "kernel_size": 3}
CONV_ROWS = {
    "in_channels": changes(2, "error"),
    "out_channels": changes(5),
    "kernel_size": changes((2, 3)),
    "stride": changes((1, 2)),
    "padding": changes((0, 1)),
}
LAYERS = [
    layer(
        nn.Conv2d,
        [IMAGE],
        CONV,
        **CONV_ROWS,
        dilation=refused(2),
        groups=refused(3),
        bias=changes(False),
        padding_mode=refused("reflect"),
        negative_slope=changes(0.25),
        statistics=changes(True, "statistics"),
    ),
    layer(
        nn.ConvTranspose2d,
        [IMAGE],
        CONV,
        **CONV_ROWS,
        output_padding=changes((0, 1), stride=2),
        groups=refused(3),
        bias=changes(False),
        dilation=refused((1, 2)),
        padding_mode=refused("circular"),
        negative_slope=changes(0.25),
    ),
    layer(
        nn.Linear,
        [IMAGE],
        {"in_features": 3, "out_features": 4},
        in_features=changes(2, "error"),
        out_features=changes(5),
        bias=changes(False),
    ),
    layer(
        nn.BatchNorm2d,
        [IMAGE],
        {"num_features": 3},
        num_features=changes(4, "error"),
        eps=changes(0.5),
        momentum=changes(0.3),
        affine=changes(False),
        track_running_stats=changes(False),
        bias=changes(False),
    ),
    layer(nn.Dropout, [IMAGE], {}, p=changes(0.25), inplace=refused(True)),
    layer(
        nn.MaxPool2d,
        [IMAGE],
        {"kernel_size": 2},
        kernel_size=changes((2, 3)),
        stride=changes((2, 1)),
        padding=changes((0, 1)),
        dilation=refused(2),
        return_indices=refused(True),
        ceil_mode=changes(True),
    ),
    layer(
        nn.AvgPool2d,
        [IMAGE],
        {"kernel_size": 2},
        kernel_size=changes((2, 3)),
        stride=changes((2, 1)),
        padding=changes((0, 1)),
        ceil_mode=changes(True),
        count_include_pad=changes(False, padding=1),
        divisor_override=changes(3),
    ),
    layer(nn.AdaptiveAvgPool2d, [IMAGE], {"output_size": 1}, output_size=changes((1, None))),
    layer(nn.Flatten, [IMAGE], {}, start_dim=changes(2), end_dim=changes(2)),
    layer(
        nn.CrossEntropyLoss,
        [ROWS, LABELS],
        {},
        weight=refused(alpha.tensor(np.ones(5, np.float32))),
        size_average=refused(True),
        ignore_index=changes(0),
        reduce=refused(True),
        reduction=changes("sum"),
        label_smoothing=changes(0.1),
    ),
    layer(nn.ReLU, [IMAGE], {}, inplace=changes(True, "memory")),
    layer(nn.LeakyReLU, [IMAGE], {}, negative_slope=changes(0.3), inplace=changes(True, "memory")),
    layer(nn.ELU, [IMAGE], {}, alpha=changes(0.5), inplace=changes(True, "memory")),
    layer(nn.GELU, [IMAGE], {}, approximate=changes("tanh")),
    layer(nn.Softplus, [IMAGE], {}, beta=changes(2.0), threshold=changes(0.5)),
    layer(nn.Sigmoid, [IMAGE], {}),
    layer(nn.Tanh, [IMAGE], {}),
    other(nn.Sequential, nn.Module.state_dict, {}, modules=changes([nn.Linear(2, 2)])),
    other(nn.ModuleList, nn.Module.state_dict, {}, modules=changes([nn.Linear(2, 2)])),
    other(
        nn.Parameter,
        lambda p: [p, p.requires_grad],
        {"values": [1.0]},
        values=changes([2.0]),
        requires_grad=changes(False),
    ),
    other(nn.Buffer, lambda b: b, {"values": [1.0]}, values=changes([2.0])),
    other(
        nn.StateDict,
        lambda s: [dict(s), s.layout],
        {},
        values=changes({"a": np.ones(1, np.float32)}),
        layout=changes("NCHW"),
    ),
]

POOL_ROWS = {
    "x": changes(IMAGE + 1),
    "kernel_size": changes((2, 3)),
    "stride": changes((2, 1)),
    "padding": changes((0, 1)),
}
FUNCTIONS = [
    function(
        F.conv2d,
        {"x": IMAGE, "weight": normal(4, 3, 3, 3)},
        x=changes(IMAGE + 1),
        weight=changes(normal(4, 3, 3, 3)),
        bias=changes(normal(4)),
        stride=changes((1, 2)),
        padding=changes((0, 1)),
        dilation=refused((2, 1)),
        groups=refused(2),
        negative_slope=changes(0.25),
        statistics=changes(True, "statistics"),
    ),
    function(
        F.conv_transpose2d,
        {"x": IMAGE, "weight": normal(3, 3, 3, 4)},
        x=changes(IMAGE + 1),
        weight=changes(normal(3, 3, 3, 4)),
        bias=changes(normal(4)),
        stride=changes((1, 2)),
        padding=changes((0, 1)),
        output_padding=changes((0, 1), stride=2),
        groups=refused(3),
        dilation=refused(2),
        negative_slope=changes(0.25),
    ),
    function(
        F.max_pool2d,
        {"x": IMAGE, "kernel_size": 2},
        **POOL_ROWS,
        dilation=refused(2),
        ceil_mode=changes(True),
        return_indices=refused(True),
    ),
    function(
        F.avg_pool2d,
        {"x": IMAGE, "kernel_size": 2},
        **POOL_ROWS,
        ceil_mode=changes(True),
        count_include_pad=changes(False, padding=1),
        divisor_override=changes(-3),
    ),
    function(
        F.adaptive_avg_pool2d, {"x": IMAGE, "output_size": 1}, x=changes(IMAGE + 1), output_size=changes((None, 2))
    ),
    function(
        F.batch_norm,
        {"x": IMAGE, "running_mean": np.zeros(3, np.float32), "running_var": np.ones(3, np.float32)},
        x=changes(IMAGE + 1),
        running_mean=changes(np.full(3, 0.5, np.float32)),
        running_var=changes(np.full(3, 2.0, np.float32)),
        weight=changes(normal(3)),
        bias=changes(normal(3)),
        training=changes(True),
        momentum=changes(0.3, training=True),
        eps=changes(0.5),
    ),
    function(
        F.cross_entropy,
        {"x": ROWS, "target": LABELS},
        x=changes(ROWS + np.eye(6, 5, dtype=np.float32)),
        target=changes(LABELS[::-1].copy()),
        weight=refused(alpha.tensor(np.ones(5, np.float32))),
        size_average=refused(False),
        ignore_index=changes(0),
        reduce=refused(False),
        reduction=changes("none"),
        label_smoothing=changes(0.1),
    ),
    function(
        F.dropout, {"x": IMAGE}, x=changes(IMAGE + 1), p=changes(0.25), training=changes(False), inplace=refused(True)
    ),
    function(F.relu, {"x": IMAGE}, x=changes(IMAGE + 1), inplace=changes(True, "memory")),
    function(
        F.leaky_relu, {"x": IMAGE}, x=changes(IMAGE + 1), negative_slope=changes(0.3), inplace=changes(True, "memory")
    ),
    function(F.elu, {"x": IMAGE}, x=changes(IMAGE + 1), alpha=changes(0.5), inplace=changes(True, "memory")),
    function(F.gelu, {"x": IMAGE}, x=changes(IMAGE + 1), approximate=changes("tanh")),
    function(F.softplus, {"x": IMAGE}, x=changes(IMAGE + 1), beta=changes(2.0), threshold=changes(0.5)),
    function(F.sigmoid, {"x": IMAGE}, x=changes(IMAGE + 1)),
    function(F.tanh, {"x": IMAGE}, x=changes(IMAGE + 1)),
    function(F.add, {"x": ROWS, "other": ROWS}, x=changes(ROWS + 1), other=changes(ROWS + 1), alpha=changes(2.0)),
    function(F.mul, {"x": ROWS, "other": ROWS}, x=changes(ROWS + 1), other=changes(ROWS + 1)),
    function(F.matmul, {"a": ROWS, "b": ROWS.T.copy()}, a=changes(ROWS + 1), b=changes(ROWS.T + 1)),
    function(
        F.linear,
        {"x": ROWS, "weight": normal(3, 5)},
        x=changes(ROWS + 1),
        weight=changes(normal(3, 5)),
        bias=changes(normal(3)),
    ),
    function(F.flatten, {"x": IMAGE}, x=changes(IMAGE + 1), start_dim=changes(1), end_dim=changes(2)),
    function(F.reshape, {"x": ROWS, "shape": (30,)}, x=changes(ROWS + 1), shape=changes((5, 6))),
    function(F.transpose, {"x": ROWS, "dim0": 0, "dim1": 0}, x=changes(ROWS + 1), dim0=changes(1), dim1=changes(1)),
    function(F.normalize_pixels, {"x": LABELS.astype(np.uint8)}, x=changes(np.arange(6, dtype=np.uint8))),
    function(F.sum, {"x": ROWS}, x=changes(ROWS + 1), dim=changes(0), keepdim=changes(True), dtype=changes("float64")),
    function(F.mean, {"x": ROWS}, x=changes(ROWS + 1), dim=changes(1), keepdim=changes(True), dtype=changes("float64")),
]
SUBJECTS = {f"nn.{s.name}": s for s in LAYERS} | {f"F.{s.name}": s for s in FUNCTIONS}


def test_every_layer_and_function_is_in_the_table() -> None:
    layers = {f"nn.{n}" for n in nn.__all__ if inspect.isclass(getattr(nn, n)) and n != "Module"}
    functions = {f"F.{n}" for n in F.__all__}
    assert set(SUBJECTS) == layers | functions


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_argument_has_a_row(name: str) -> None:
    check_complete(SUBJECTS[name])


@pytest.mark.parametrize(("subject", "argument"), cases(SUBJECTS))
def test_every_argument_has_an_effect_or_is_refused(subject: Subject, argument: str) -> None:
    check_argument(subject, argument)


# whose numbers are checked by the tests of their operators
ELSEWHERE = ("F.add", "F.flatten", "F.reshape", "F.transpose", "F.sum", "F.mean", "F.leaky_relu", "F.elu", "F.softplus")


def numbers(kind: type) -> list[Any]:
    """(subject, argument) of the arguments that are an integer or a pair of integers, or a float."""

    def is_one(value: Any) -> bool:
        parts = value if isinstance(value, tuple) else (value,)
        return all(type(part) is kind for part in parts)

    return [
        case
        for case in cases({n: s for n, s in SUBJECTS.items() if n not in ELSEWHERE})
        if is_one(case.values[0].rows[case.values[1]].value)
    ]


def with_value(subject: Subject, argument: str, value: Any) -> Facts:
    row = subject.rows[argument]
    return subject.observe({**subject.usual, **row.given, argument: value})


@pytest.mark.parametrize(("subject", "argument"), numbers(int))
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_numpys_integers_are_integers(subject: Subject, argument: str, kind: type) -> None:
    row = subject.rows[argument]
    if kind is np.uint8 and np.min(row.value) < 0:
        pytest.skip("negative")
    value = tuple(map(kind, row.value)) if isinstance(row.value, tuple) else kind(row.value)
    if row.refused:
        with pytest.raises(ValueError, match="is not offered"):
            with_value(subject, argument, value)
        return
    assert with_value(subject, argument, value) == with_value(subject, argument, row.value)


@pytest.mark.parametrize(("subject", "argument"), numbers(int))
@pytest.mark.parametrize("value", [2.0, np.float32(2), True, np.True_, "2", (2, 2.0), (True, 2), ("2", 2)], ids=repr)
def test_what_is_not_an_integer_is_refused(subject: Subject, argument: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"{argument}=.*(is not an? |neither an integer|is not offered)"):
        with_value(subject, argument, value)


@pytest.mark.parametrize(("subject", "argument"), numbers(float))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, "1", True, None, [1.0]], ids=repr)
def test_numbers_that_are_not_finite_are_refused(subject: Subject, argument: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"{argument}=.*(is not finite|is not a number|is not offered)"):
        with_value(subject, argument, value)


@pytest.mark.parametrize(("subject", "argument"), numbers(float))
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_numpys_numbers_are_numbers(subject: Subject, argument: str, kind: type) -> None:
    exact = kind(subject.rows[argument].value)
    assert with_value(subject, argument, exact) == with_value(subject, argument, float(exact))


ARRAYS = [
    pytest.param(subject, argument, id=f"{name}-{argument}")
    for name, subject in SUBJECTS.items()
    for argument, row in subject.rows.items()
    if name.startswith("F.") and isinstance(row.value, np.ndarray) and name not in ("F.add", "F.mul")
]


@pytest.mark.parametrize(("subject", "argument"), ARRAYS)
def test_a_numpy_array_is_no_tensor(subject: Subject, argument: str) -> None:
    row = subject.rows[argument]
    arguments = {
        name: alpha.tensor(value) if isinstance(value, np.ndarray) and name != argument else value
        for name, value in {**subject.usual, argument: row.value}.items()
    }
    with pytest.raises(TypeError, match="a Tensor is needed"):
        subject.target(**arguments)


@pytest.mark.parametrize(
    "name", [f"nn.{s.name}" for s in LAYERS if hasattr(s.target, "forward") and "modules" not in s.rows]
)
def test_a_model_says_that_it_was_called_with_a_numpy_array(name: str) -> None:
    module = SUBJECTS[name].target(**SUBJECTS[name].usual)
    inputs = (ROWS, LABELS) if name == "nn.CrossEntropyLoss" else (IMAGE,)
    with pytest.raises(TypeError, match="a Tensor is needed"):
        module(*inputs)
