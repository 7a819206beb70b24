"""The borders of chunks on the cpu: chunks of a few elements, in memory full of garbage, give the usual results.

small_chunks.py has a table of everything that cuts; the first tests here hold that the table is complete.
"""

from __future__ import annotations

import ast
import importlib
from dataclasses import replace
from typing import Any

import grouped_geometry
import numpy as np
import pytest
from conv2d_cases import CPU_FORMS, LONG, OPERATORS, SIMPLE, make, operands
from helpers import values
from primitive_calls import CASES, WITH_LENGTH, normal, pool, positive, run
from small_chunks import CHUNKS, OTHERS, WORKERS, called, calls, modules, numbers, small_chunks
from trials import trials

import alpha
from alpha.core.numerics import BFLOAT16, is_floating
from alpha.core.primitive import REGISTRY
from alpha.nn import functional as F
from alpha.ops.conv2d import cpu
from alpha.ops.conv2d.groups import grouped_cpu
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.views import View

Case = tuple[str, tuple[Any, ...], int]  # the name of a primitive, its arguments, and the length of its sums


# -- the table --------------------------------------------------------------------------------------


def test_whatever_cuts_on_the_cpu_is_in_the_table() -> None:
    """The numbers of each module that cuts; a new one belongs to CHUNKS, or to OTHERS if it cuts nothing there."""
    for name, tree in modules().items():
        module = importlib.import_module(name)
        found = {n for n in numbers(tree) if type(getattr(module, n)) is int}
        cutting, others = set(CHUNKS.get(name, ())), set(OTHERS.get(name, ()))
        assert not cutting & others
        assert found == cutting | others, (
            f"{name}: {sorted(found ^ (cutting | others))} is in tests/ops/all/sizes/small_chunks.py or not"
        )
    assert CHUNKS.keys() | OTHERS.keys() <= modules().keys()


def test_no_chunk_has_a_length_without_a_name() -> None:
    for name, tree in modules().items():
        for call in calls(tree):
            literals = {n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and type(n.value) is int}
            assert literals <= {0, 1, 2}, f"{name}:{call.lineno}: a number without a name, which no test can make small"


# -- primitives -------------------------------------------------------------------------------------

# what the rows do not have: sums that are cut along K, several rows of a chunk with a rest, chunks of every kind
MORE: list[Case] = [
    *(
        ("matmul_batch", (normal(D, *((K, M) if a else (M, K))), normal(D, *((N, K) if b else (K, N))), a, b), K)
        for D, M, N, K in ((1, 3, 2, 57), (1, 1, 1, 23), (1, 11, 4, 5), (1, 4, 13, 6), (4, 3, 5, 7))
        for a in (False, True)
        for b in (False, True)
    ),
    *(("sum_axis1", (normal(1, R, C),), R) for R, C in ((7, 2), (50, 3), (5, 1), (1, 9))),
    *(("extreme_axis1", (normal(A, 2, 1), True), 1) for A in (1, 7)),
    *(("sort_order", (normal(A, 1), descending), 1) for A in (1, 9) for descending in (False, True)),
    *(("read_view", (normal(2, R), View.whole((2, R)).permuted((1, 0))), 0) for R in (7, 41)),
    (
        "write_view",
        (normal(7, 3), View.whole((7, 3)).sliced(1, 1, 2), normal(2, 7), View.whole((2, 7)).permuted((1, 0))),
        0,
    ),
    *(("channel_statistics", (normal(R, 2) + 5, normal(2), positive(2), 0.3), R) for R in (7, 41, 2)),
    *(
        ("batch_norm_gradients", (normal(R, 2), normal(R, 2), normal(2), positive(2), normal(2), 1e-5, batch), R)
        for R in (7, 41)
        for batch in (True, False)
    ),
    *(("batch_norm_apply", (normal(R, 2), normal(2), positive(2), normal(2), normal(2), 1e-5), 0) for R in (7, 41)),
    ("avg_pool2d_forward", (normal(11, 5, 4, 3), pool(11, (5, 4), 3, (2, 2), 2, 0)), 4),
]


def cases(name: str) -> list[Case]:
    """Cases of few elements; of long parameters and gradients some elements."""
    with_length = name in WITH_LENGTH
    found = [
        (name, tuple(map(shortened, case[:-1] if with_length else case)), case[-1] if with_length else 0)
        for case in CASES[name]
    ]
    small = [case for case in found if sum(np.size(a) for a in case[1] if isinstance(a, np.ndarray)) <= 1000]
    return [*(small or found[:1]), *(case for case in MORE if case[0] == name)]


def shortened(argument: Any, in_list: bool = False) -> Any:
    if type(argument) in (list, tuple):
        return type(argument)(shortened(a, True) for a in argument)
    long = in_list and isinstance(argument, np.ndarray) and argument.size > 1000
    return argument.reshape(-1)[:33] if long else argument


def check_same(found: np.ndarray, usual: np.ndarray, length: int) -> None:
    """The same bits, or within the rounding of sums of `length` terms, a random walk, of the largest number."""
    assert (found.dtype, found.shape) == (usual.dtype, usual.shape)
    if not length or not is_floating(usual.dtype):
        assert found.tobytes() == usual.tobytes(), f"{found} is not {usual}"
        return
    unit = 2.0**-8 if usual.dtype == BFLOAT16 else float(np.finfo(usual.dtype).eps)
    wide = usual.astype(np.float64)
    scale = max(1.0, float(np.abs(wide[np.isfinite(wide)]).max(initial=0)))
    np.testing.assert_allclose(
        found.astype(np.float64), wide, rtol=0, atol=unit * (16 + 4 * length**0.5) * scale, equal_nan=True
    )


@pytest.mark.parametrize("name", CASES)
def test_primitives(name: str) -> None:
    """Each case of a primitive, those that the rows of functions and optimizers call among them."""
    with trials() as trial:
        for index, (_, arguments, length) in enumerate(cases(name)):
            with trial(index):
                usual = run(REGISTRY[name], "cpu", arguments)
                with small_chunks():
                    found = run(REGISTRY[name], "cpu", arguments)
                for a, b in zip(found, usual, strict=True):
                    check_same(a, b, length)


def test_every_place_that_cuts_has_met_several_chunks_and_a_short_one() -> None:
    with small_chunks() as met:
        for name in CASES:
            for _, arguments, _ in cases(name):
                run(REGISTRY[name], "cpu", arguments)
        for function, shapes in CONVOLUTIONS:
            for s in shapes:
                compute(function, s)
    sites = {(name, call.lineno): call for name, tree in modules().items() for call in calls(tree)}
    for (name, line), call in sites.items():
        runs = met[name, line]
        assert any(len(lengths) > WORKERS for lengths in runs), f"{name}:{line} has run no {WORKERS + 1} chunks"
        by_one = called(call) == "sum_in_order" or getattr(call.args[1], "value", 0) == 1
        assert by_one or any(len(set(lengths)) > 1 for lengths in runs), f"{name}:{line} has run no short chunk"


# -- convolutions -----------------------------------------------------------------------------------

SHAPES = (
    replace(SIMPLE, N=7),
    make(5, (6, 5), (3, 2), (3, 2), (2, 1), (1, 1)),
    make(3, (2, 3), (2, 4), (5, 4), (1, 2), (4, 2)),
    make(9, (4, 7), (2, 3), (1, 1), (3, 2), (1, 0)),  # outputs and inputs that no tap meets
    make(13, (3, 3), (1, 1), (2, 2), p=(1, 0)),
    replace(LONG, N=5, IC=6, OC=5),
)
DEPTHWISE = cpu.forward, cpu.backward_input, cpu.backward_weight
GROUPED = grouped_cpu.forward, grouped_cpu.backward_input, grouped_cpu.backward_weight
CONVOLUTIONS = (
    *((function, SHAPES) for _, function in CPU_FORMS),
    *((function, tuple(replace(s, N=5) for s in grouped_geometry.SHAPES)) for function in DEPTHWISE),
    *((function, grouped_geometry.ANY) for function in GROUPED),
)
OPERATOR = {function: operator for operator, function in CPU_FORMS} | {
    function: operator
    for functions in (DEPTHWISE, GROUPED)
    for function, operator in zip(functions, (FORWARD, INPUT, WEIGHT), strict=True)
}


def compute(function: Any, s: ConvShape) -> np.ndarray:
    result: np.ndarray = function(*operands(OPERATOR[function], s, "float64"), s)
    return result


def test_convolutions() -> None:
    """Each algorithm in both forms, depthwise and grouped ones, against the formula."""
    with trials() as trial:
        for function, shapes in CONVOLUTIONS:
            for s in shapes:
                with trial(function.__module__, function.__name__, s):
                    usual = compute(function, s)
                    with small_chunks():
                        found = compute(function, s)
                    check_same(found, usual, s.N * s.OH * s.OW * s.FH * s.FW * s.IC)
                    exact = OPERATORS[OPERATOR[function]][0](*operands(OPERATOR[function], s, "float64"), s)
                    np.testing.assert_allclose(found, exact, atol=1e-10)


def test_convolutions_of_pieces() -> None:
    """Convolutions of one and three axes have pieces that are copied through views, with dilation and groups."""
    calls = {
        "conv1d": ((3, 11, 4), (6, 3, 2), {"stride": 2, "padding": 4, "dilation": 3, "groups": 2}),
        "conv2d": ((3, 9, 8, 4), (6, 3, 2, 2), {"stride": (1, 2), "padding": 3, "dilation": (2, 3), "groups": 2}),
        "conv3d": ((2, 5, 4, 6, 3), (4, 3, 2, 3, 3), {"stride": (2, 1, 1), "padding": 2, "dilation": (1, 2, 2)}),
        "conv_transpose2d": ((3, 5, 4, 4), (4, 3, 2, 3), {"stride": (2, 1), "padding": 1, "dilation": (1, 2)}),
        "conv_transpose3d": ((2, 3, 4, 2, 3), (3, 2, 3, 2, 4), {"stride": (2, 1, 2), "padding": 1}),
    }

    def results(name: str) -> list[np.ndarray]:
        *shapes, options = calls[name]
        x, w = (alpha.tensor(array, requires_grad=True) for array in values(shapes))
        y = getattr(F, name)(x, w, **options)
        y.backward(alpha.tensor(values([y.shape])[0]))
        assert x.grad is not None
        assert w.grad is not None
        return [y.numpy(), x.grad.numpy(), w.grad.numpy()]

    with trials() as trial:
        for name in calls:
            with trial(name):
                usual = results(name)
                with small_chunks():
                    found = results(name)
                for a, b in zip(found, usual, strict=True):
                    check_same(a, b, 1000)
