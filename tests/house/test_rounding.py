"""The bound of float32's errors: it holds for what a GPU may do, and a wrong formula is beyond it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from rounding import TINY, ULPS, UNIT, bound
from trials import trials

A = np.random.default_rng(0).standard_normal(20_000).astype(np.float32)
B = np.concatenate([np.random.default_rng(1).standard_normal(10_000), 1 + np.logspace(-6, 1, 10_000)]).astype(
    np.float32
)
NUMBERS = {"p": 1.5, "q": 0.5, "r": 0.25}
Float = np.ndarray


def single(x: Float) -> Float:
    return x.astype(np.float32).astype(np.float64)


def off(name: str, x: Float) -> Float:
    """A function's result that is as wrong as ULPS allows, up or down."""
    sign = np.random.default_rng(2).choice((-1.0, 1.0), x.shape)
    return single(x * (1 + sign * ULPS[name] * UNIT))


# as a GPU computes them: products and sums in one rounding, and functions that are off
CONTRACTED: dict[str, Callable[[Float, Float], Float]] = {
    "a / sqrt(b * b - 1)": lambda a, b: single(a / off("sqrt", np.sqrt(single(b * b - 1)))),
    "a / (1 - b * b)": lambda a, b: single(a / single(1 - b * b)),
    "a * (1 - b * b)": lambda a, b: single(a * single(1 - b * b)),
    "1 / (1 + exp(-a))": lambda a, b: single(1 / single(1 + off("exp", np.exp(-a)))),
    "a - tanh(a)": lambda a, b: single(a - off("tanh", np.tanh(a))),
    "log(a / (1 - a))": lambda a, b: off("log", np.log(single(a / single(1 - a)))),
    "p * a + q": lambda a, b: single(1.5 * a + 0.5),
    "a * (b / 3 + Real(0.5))": lambda a, b: single(a * single(single(b / 3) + 0.5)),
}
# the same with a small mistake, which is beyond the bound for many numbers
WRONG: dict[str, Callable[[Float, Float], Float]] = {
    "a / sqrt(b * b - 1)": lambda a, b: a / np.sqrt(b * b - 1.00001),
    "a / (1 - b * b)": lambda a, b: a / (1 - b * b * 1.00001),
    "1 / (1 + exp(-a))": lambda a, b: 1 / (1.00001 + np.exp(-a)),
    "a - tanh(a)": lambda a, b: a - np.tanh(a * 1.00001),
    "gelu<T>(a)": lambda a, b: a * 0.5 * (1 + np.tanh(0.7978845608 * (a + 0.044715 * a**3))),
}


def beyond(expression: str, result: Float) -> Float:
    """Distance from the expression, where both are numbers, as a multiple of the distance that is allowed."""
    exact = bound(expression, [A, B], NUMBERS)
    known = np.isfinite(exact.value) & np.isfinite(result) & np.isfinite(exact.error)
    return (np.abs(result - exact.value) / np.maximum(exact.error, TINY))[known]


@np.errstate(all="ignore")
def test_what_a_gpu_may_compute_is_within() -> None:
    with trials() as trial:
        for expression, compute in CONTRACTED.items():
            with trial(expression):
                far = beyond(expression, compute(A.astype(np.float64), B.astype(np.float64)))
                assert far.size > 4000
                assert 0.2 < far.max() <= 1  # it is no larger than it must be


@np.errstate(all="ignore")
def test_a_wrong_formula_is_beyond() -> None:
    with trials() as trial:
        for expression, compute in WRONG.items():
            with trial(expression):
                far = beyond(expression, compute(A.astype(np.float64), B.astype(np.float64)))
                assert (far > 1).mean() > 0.1


def test_the_language_of_expressions() -> None:
    a, b = np.array([2.0, -3.0]), np.array([5.0, 7.0])
    with trials() as trial:
        for expression, value in (
            ("-a * b + 2 / a", -a * b + 2 / a),
            ("a < 0 ? b : a > p ? 1 : 0", [1, 7]),
            ("a < 0 && b > 6 || a == 2 ? Real(1e-3) : 0", [1e-3, 1e-3]),
            ("c * ((a > 0) * -b)", [-10, 0]),
            ("pow(b, 2) - fmax(a, p)", [23, 47.5]),
            ("a - b - 1", a - b - 1),
        ):
            with trial(expression):
                found = bound(expression, [a, b, np.array(2.0)], {"p": 1.5})
                np.testing.assert_allclose(found.value, value)
                assert (found.error <= 50 * UNIT * 50).all()
    with pytest.raises(ValueError, match="is left"):
        bound("a b", [a, b], {})
    with pytest.raises(KeyError, match="unknown"):
        bound("unknown(a)", [a], {})


def test_a_comparison_that_rounding_may_turn_is_either() -> None:
    a = np.array([1.0, 2.0])
    found = bound("a * 0.1 < 0.1 ? 5 : 7", [a], {})
    assert found.error[0] >= 2
    assert found.error[1] < 1e-5
