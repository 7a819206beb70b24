"""Each primitive: an implementation for both devices, the same numbers from both, launches that say what they write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import assert_close
from primitive_calls import CASES, WITH_LENGTH, run
from rounding import bound
from written import checked_writes

from alpha.core.primitive import REGISTRY, Array, Primitive, primitive
from alpha.errors import DeviceError

DEVICES = ("cpu", "cuda")
PAIRS = [(name, index) for name in CASES for index in range(len(CASES[name]))]


@pytest.mark.parametrize(("name", "index"), PAIRS, ids=[f"{n}-{i}" for n, i in PAIRS])
def test_cuda_equals_cpu(name: str, index: int) -> None:
    function, case = REGISTRY[name], CASES[name][index]
    length = 1
    if name in WITH_LENGTH:
        *arguments, length = case
        case = tuple(arguments)
    expected = run(function, "cpu", case)
    with checked_writes() as writes:
        found = run(function, "cuda", case)
    assert not writes.found
    assert len(expected) == len(found)
    if function.expression and expected[0].dtype == np.float32:
        check_expression(function, case, expected[0], found[0])
        return
    for number, (e, f) in enumerate(zip(expected, found, strict=True)):
        assert e.dtype == f.dtype
        if e.dtype.kind == "f":
            assert_close(f, e, length, f"{name}, array {number}")
        else:
            np.testing.assert_array_equal(f, e, err_msg=f"{name}, array {number}")


def check_expression(function: Primitive, case: tuple[Any, ...], *results: np.ndarray) -> None:
    """The results of an elementwise primitive are as near to its expression as float32 must be (see `rounding`)."""
    numbers = case[-1] if isinstance(case[-1], dict) else {}
    arrays = [a for a in case if isinstance(a, np.ndarray)]
    exact = bound(function.expression, arrays, {"p": 0.0, "q": 0.0, "r": 0.0, **numbers})
    for device, result in zip(DEVICES, results, strict=True):
        value, error = (np.broadcast_to(a, result.shape) for a in (exact.value, exact.error))
        finite = np.isfinite(value) & (error < np.inf)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(value), err_msg=device)
        far = np.abs(result - value)[finite] / np.maximum(error[finite], np.finfo(np.float32).tiny)
        assert far.max(initial=0) <= 1, f"{function.name} on {device}: {far.max():.3g} times as far as it may be"


def test_every_primitive_has_both_devices_and_a_case() -> None:
    missing = sorted(set(REGISTRY) - set(CASES))
    assert not missing, f"{missing}: no row in tests/rows/ runs it; give it cases in CASES"
    for name in CASES:
        assert set(REGISTRY[name].implementations) == {"cpu", "cuda"}, name


def test_a_missing_implementation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alpha.core.primitive.REGISTRY", {})

    @primitive
    def lonely(X: Array) -> Array:
        """Y = X"""

    with pytest.raises(DeviceError, match="lonely has no cpu implementation"):
        lonely(np.zeros(3))
    with pytest.raises(TypeError, match=r"takes \('A',\), the contract says \('X',\)"):
        lonely.impl("cpu")(lambda A: A)
    with pytest.raises(TypeError, match="lonely is declared twice"):
        primitive(lonely.__wrapped__)


def test_two_runs_agree_bit_for_bit() -> None:
    for name in ("sum_axis1", "channel_statistics", "batch_norm_gradients", "matmul_batch"):
        case = CASES[name][1][: -1 if name in WITH_LENGTH else None]
        first, second = (run(REGISTRY[name], "cuda", case) for _ in range(2))
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
