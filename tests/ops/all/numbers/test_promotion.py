"""The dtype in which tensors of two dtypes meet: PyTorch's, for every function of two tensors that PyTorch has, too."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS

import alpha
from alpha.nn import functional as F

DTYPES = ("float32", "float64", "bfloat16", "int64", "uint8", "bool")
FLOATING = DTYPES[:3]
PLACES = list(itertools.product([(2, 2), ()], repeat=2))
OPERATORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{name: lambda lib, a, b, name=name: getattr(a, name)(b) for name in ("__add__", "__mul__", "__truediv__")},
    **{name: lambda lib, a, b, name=name: getattr(a, name)(b) for name in ("__floordiv__", "__mod__", "__pow__")},
    **{name: lambda lib, a, b, name=name: getattr(a, name)(b) for name in ("__eq__", "__lt__", "__ge__")},
    "where": lambda lib, a, b: lib.where(lib.ones((2, 2), dtype=lib.bool), a, b),
    "stack": lambda lib, a, b: lib.stack([a, b]),
    "cat": lambda lib, a, b: lib.cat([a, b]),
    "addcmul": lambda lib, a, b: lib.addcmul(a, a, b),
    "clamp": lambda lib, a, b: lib.clamp(a, min=b),
    "number": lambda lib, a, b: a * 0.5 + b * 2,
}
# other rules: a product of two dtypes, which PyTorch refuses; comparisons of places; a gradient's own dtype
OWN = {"cosine_similarity", "pairwise_distance", "isclose", "allclose"}


def binary() -> dict[str, Callable[[Any, Any, Any], Any]]:
    names = [row.function.__name__ for row in FUNCTIONS if {"x", "other"} <= set(row.usual)]
    found = {name: lambda lib, a, b, name=name: getattr(lib, name)(a, b) for name in names if name not in OWN}
    return {**found, **OPERATORS}


def numbers(lib: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    values = np.array([[1, 2], [3, 1]]).reshape(-1)[: int(np.prod(shape))].reshape(shape)
    return lib.tensor(values.tolist(), dtype=getattr(lib, dtype))


def result(make: Callable[[], Any]) -> str:
    try:
        found = make()
    except (TypeError, RuntimeError, ValueError, NotImplementedError, alpha.AlphaError) as error:
        return f"refused: {error}"
    found = found[0] if isinstance(found, tuple) else found
    return str(getattr(found, "dtype", type(found))).rpartition(".")[2]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", binary())
def test_results_have_pytorchs_dtype(name: str) -> None:
    """Alpha takes two floating dtypes if PyTorch does; if both take two dtypes, the results have one dtype."""
    torch = pytest.importorskip("torch")
    function, wrong = binary()[name], []
    for first, second in itertools.product(DTYPES, repeat=2):
        for one, other in PLACES:
            theirs = result(lambda: function(torch, *pair(torch, first, second, one, other)))  # noqa: B023
            mine = result(lambda: function(alpha, *pair(alpha, first, second, one, other)))  # noqa: B023
            both = first in FLOATING and second in FLOATING
            if theirs.startswith("refused") or (mine.startswith("refused") and not both):
                continue
            if mine != theirs:
                wrong.append(f"{first} {one} with {second} {other}: {mine}, PyTorch {theirs}")
    assert not wrong, wrong[:8]


def pair(lib: Any, first: str, second: str, one: tuple[int, ...], other: tuple[int, ...]) -> tuple[Any, Any]:
    return numbers(lib, first, one), numbers(lib, second, other)


IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    **{name: lambda a, b, name=name: getattr(a, name)(b) for name in ("add_", "sub_", "mul_", "div_", "pow_")},
    **{name: lambda a, b, name=name: getattr(a, name)(b) for name in ("copy_", "fmod_", "remainder_", "atan2_")},
}


@pytest.mark.torch
@pytest.mark.parametrize("name", IN_PLACE)
def test_writes_in_place_keep_the_dtype_or_are_refused(name: str) -> None:
    torch = pytest.importorskip("torch")
    for first, second in itertools.product(DTYPES, repeat=2):
        if name == "sub_" and "bool" in (first, second):
            continue  # which PyTorch refuses
        values = []
        for lib in (alpha, torch):
            a, b = pair(lib, first, second, (2, 2), (2, 2))
            try:
                values.append(IN_PLACE[name](a, b).double().numpy())
            except (TypeError, RuntimeError, ValueError):
                values.append(None)
        mine, theirs = values
        if first in FLOATING and second in FLOATING:
            assert mine is not None, (first, second)
        if theirs is None and mine is not None:
            assert (first, second) in {("bool", "bool")} or name in ("copy_",), (first, second)
        if mine is not None and theirs is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-2 if "bfloat16" in (first, second) else 1e-6)


def test_gradients_have_the_dtypes_of_the_operands() -> None:
    x, y = alpha.ones(2, 2, dtype="float32"), alpha.ones(2, 2, dtype="float64") * 3
    x.requires_grad, y.requires_grad = True, True
    z = (x * y + alpha.where(x > 0, x, y) + alpha.cat([x, y])[:2]).sum() + F.l1_loss(x, y)
    assert z.dtype == np.float64
    z.backward()
    for leaf in (x, y):
        assert leaf.grad is not None
        assert leaf.grad.dtype == leaf.dtype
    np.testing.assert_allclose(x.grad.numpy(), np.full((2, 2), 5 - 0.25))  # type: ignore[union-attr]


def test_a_mask_in_float64_does_not_change_the_dtype_of_an_attention() -> None:
    q = alpha.randn(1, 3, 4)
    mask = alpha.tensor(np.triu(np.full((3, 3), -np.inf), 1))
    assert mask.dtype == np.float64
    found = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    assert found.dtype == np.float32
    np.testing.assert_allclose(
        found.numpy(), F.scaled_dot_product_attention(q, q, q, is_causal=True).numpy(), rtol=1e-6
    )
