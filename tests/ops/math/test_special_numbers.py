"""Names of signs and further elementwise functions: special numbers and gradients are PyTorch's, on both devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NUMBERS = np.array([0.0, -0.0, 0.25, 1.0, -1.0, -2.5, 7.0, np.inf, -np.inf, np.nan], np.float32)
PAIRS = [np.array(column, np.float32) for column in zip(*itertools.product(NUMBERS, NUMBERS), strict=True)]
OF_ONE = ("neg", "absolute", "sgn", "erfc", "sinc", "logit")
OF_TWO = ("fmax", "fmin", "fmod", "copysign", "logaddexp", "logaddexp2", "xlogy", "ldexp", "clamp_min", "clamp_max")
SHAPES = [((), ()), ((0,), (0,)), ((0, 3), (3,)), ((3, 1), (4,)), ((), (2, 3)), ((2, 3), ()), ((1, 3), (2, 1, 3))]


def check(name: str, arrays: list[np.ndarray], device: str, *rest: Any, **more: Any) -> None:
    """Values and gradients of the function and the method against PyTorch's, in float32; NaN is equal to NaN."""
    theirs = [torch.tensor(values, requires_grad=True) for values in arrays]
    expected = getattr(torch, name)(*theirs, *rest, **more)
    seed = np.asarray(np.random.default_rng(0).standard_normal(tuple(expected.shape)), np.float32)
    expected.backward(torch.tensor(seed))
    for call in (getattr(alpha, name), lambda x, *others, **named: getattr(x, name)(*others, **named)):
        ours = [alpha.tensor(values, requires_grad=True, device=device) for values in arrays]
        found = call(*ours, *rest, **more)
        compare(found, expected, name)
        found.backward(alpha.tensor(seed, device=device))
        for place, (x, t) in enumerate(zip(ours, theirs, strict=True)):
            assert x.grad is not None
            compare(x.grad, t.grad, f"{name}, gradient {place}")


def compare(found: Tensor, expected: Any, what: str) -> None:
    assert found.shape == tuple(expected.shape)
    assert str(expected.dtype) == f"torch.{found.dtype}"
    exact = expected.detach().numpy(force=True)
    np.testing.assert_allclose(found.numpy(), exact, rtol=2e-5, atol=1e-6, equal_nan=True, err_msg=what)


@pytest.mark.parametrize("name", OF_ONE)
def test_special_numbers_of_one(device: str, name: str) -> None:
    check(name, [NUMBERS], device)


@pytest.mark.parametrize("name", OF_TWO)
def test_special_numbers_of_two(device: str, name: str) -> None:
    with np.errstate(all="ignore"):
        check(name, PAIRS, device)


@pytest.mark.parametrize("name", [*OF_TWO, "sub", "multiply", "divide", "pow"])
def test_shapes_of_two(device: str, name: str) -> None:
    rng = np.random.default_rng(0)
    for shapes in SHAPES:
        check(name, [np.asarray(rng.uniform(0.5, 2, shape), np.float32) for shape in shapes], device)


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.5])
def test_bounds_of_logit(device: str, eps: float) -> None:
    check("logit", [np.array([-1.0, 0.05, 0.1, 0.3, 0.5, 0.93, 2.0, np.nan], np.float32)], device, eps)
    for wrong in (-0.1, 0.6):
        with pytest.raises(ValueError, match=rf"logit: eps={wrong} must be within 0 and 0.5"):
            alpha.logit(alpha.ones(2, device=device), wrong)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_sums_of_products(device: str, name: str) -> None:
    rng = np.random.default_rng(0)
    for shapes in (((), (), ()), ((4, 3), (3,), (4, 1)), ((1,), (2, 3), (3,)), ((0, 3), (3,), (1,))):
        arrays = [np.asarray(rng.uniform(0.5, 2, shape), np.float32) for shape in shapes]
        for value in (1, -2.5, 0):
            check(name, arrays, device, value=value)


def test_a_sum_of_products_has_the_common_dtype(device: str) -> None:
    x, low = alpha.ones(3, device=device), alpha.full((3,), 2.0, dtype="bfloat16", device=device)
    for found, value in ((x.addcmul(low, x), 3), (x.addcdiv(x, low), 1.5)):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found.numpy(), np.full(3, value))
    assert low.addcmul(x, x).dtype == np.float32
    assert low.addcmul_(x, x).dtype == "bfloat16"
    with pytest.raises(TypeError, match=r"addcmul: value=0.5 must be an integer beside the dtype int64"):
        alpha.tensor([1, 2], device=device).addcmul(
            alpha.tensor(2, device=device), alpha.tensor(3, device=device), value=0.5
        )


def test_weights_of_lerp(device: str) -> None:
    rng = np.random.default_rng(0)
    a, b, w = (np.asarray(rng.standard_normal(shape), np.float32) for shape in ((4, 3), (3,), (4, 1)))
    for weight in (0.0, 0.3, 0.5, 0.8, 1.0, 3.0, -1.0):
        check("lerp", [a, b], device, weight)
    check("lerp", [a, b, w], device)
    check("lerp", [a, b, w[0, 0]], device)
    x, y = (alpha.tensor(values, device=device) for values in (a, np.broadcast_to(b, a.shape)))
    np.testing.assert_array_equal(x.lerp(y, 1).numpy(), y.numpy())
    np.testing.assert_array_equal(x.lerp(y, alpha.ones(1, device=device)).numpy(), y.numpy())
    with pytest.raises(TypeError, match=r"lerp: weight='1' is not a number or a Tensor"):
        x.lerp(y, "1")


def test_heaviside(device: str) -> None:
    for dtype in (np.float32, np.int64, np.bool_):
        a, b = (values.astype(dtype) for values in (NUMBERS[:6], NUMBERS[:6][::-1].copy()))
        found = alpha.heaviside(alpha.tensor(a, device=device), alpha.tensor(b, device=device))
        compare(found, torch.heaviside(torch.tensor(a), torch.tensor(b)), str(dtype))
    np.testing.assert_array_equal(alpha.heaviside(alpha.tensor([np.nan]), alpha.tensor([3.0])).numpy(), [0.0])
    x = alpha.ones(2, requires_grad=True, device=device)
    assert not x.heaviside(x).requires_grad
    with pytest.raises(TypeError, match=r"heaviside: x has dtype float32 and values int64; use \.astype"):
        x.heaviside(alpha.tensor([1, 2], device=device))


NUMBER_BESIDE: dict[str, Callable[..., Any]] = {
    "copysign": lambda lib, x: lib.copysign(x, -1),
    "xlogy": lambda lib, x: lib.xlogy(x, 2),
    "fmod": lambda lib, x: lib.fmod(x, 3),
    "rsub": lambda lib, x: lib.rsub(x, 5),
    "rsub alpha": lambda lib, x: lib.rsub(x, 5, alpha=2),
    "sub alpha": lambda lib, x: lib.sub(x, 5, alpha=2),
    "float_power": lambda lib, x: lib.float_power(x, 2),
    "true_divide": lambda lib, x: lib.true_divide(x, 2),
    "divide": lambda lib, x: lib.divide(x, 2, rounding_mode="floor"),
    "clamp_min": lambda lib, x: lib.clamp_min(x, 2),
    "clamp_max": lambda lib, x: lib.clamp_max(x, 2.5),
    "eq": lambda lib, x: lib.eq(x, 2),
    "ge": lambda lib, x: lib.ge(x, 2.5),
}


@pytest.mark.parametrize("name", NUMBER_BESIDE)
def test_a_number_beside_every_dtype(device: str, name: str) -> None:
    function = NUMBER_BESIDE[name]
    for dtype in ("float32", "int64", "int32", "uint8"):
        values = np.arange(5).astype(dtype)
        compare(function(alpha, alpha.tensor(values, device=device)), function(torch, torch.tensor(values)), dtype)


def test_mixed_integers_and_floats(device: str) -> None:
    """-1 of int64 beside uint8 is -1, also as a 0-d tensor; and a floating operand decides the dtype."""
    small = np.arange(3, dtype=np.uint8)
    for other in (np.array(-1), np.array([-1, 1, -1]), np.array(-1.0, np.float32), np.array([0.5], np.float32)):
        for name in ("copysign", "xlogy"):
            ours = getattr(alpha, name)(alpha.tensor(small, device=device), alpha.tensor(other, device=device))
            compare(ours, getattr(torch, name)(torch.tensor(small), torch.tensor(other)), f"{name} {other}")


def test_clamp_between_tensors(device: str) -> None:
    rng = np.random.default_rng(0)
    x, low, high = (rng.integers(-3, 4, 300).astype(np.float32) for _ in range(3))
    low, high = np.minimum(low, high), np.maximum(low, high) + 1
    x[:3], low[3:6], high[6:9] = np.nan, np.nan, np.nan
    check("clamp", [x, low, high], device)


def test_signs_of_python(device: str) -> None:
    x = alpha.tensor([1.25, -2.75], device=device, requires_grad=True)
    assert +x is x
    for digits, expected in ((None, [1, -3]), (1, [1.2, -2.8]), (-1, [0, 0])):
        found = round(x) if digits is None else round(x, digits)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        with pytest.raises(TypeError, match=rf"{name}: str is no operand"):
            getattr(alpha, name)(x, "1")


def test_clamp_of_whole_numbers_with_one_bound(device: str) -> None:
    """The other bound is the end of the dtype."""
    for dtype in ("bool", "uint8", "int32", "int64"):
        ends = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        values = np.array([*ends, 1], dtype)
        kind = bool if dtype == "bool" else int  # a number of another kind would change the dtype
        for given in ({"min": kind(0)}, {"min": kind(1)}, {"max": kind(0)}, {"max": kind(1)}):
            found = alpha.tensor(values, device=device).clamp(**given)
            expected = np.clip(values.astype(object), given.get("min", ends[0]), given.get("max", ends[1]))
            assert found.dtype == dtype
            np.testing.assert_array_equal(found.numpy(), expected.astype(dtype), err_msg=f"{dtype} {given}")
            if dtype != "bool":
                np.testing.assert_array_equal(found.numpy(), torch.tensor(values).clamp(**given).numpy())


def test_equal_operands_share_the_gradient_and_others_do_not(device: str) -> None:
    a, b = [1.0, 2.0, 3.0, np.nan, 1.0], [2.0, 2.0, 2.0, 1.0, np.nan]
    for function, expected in ((alpha.maximum, [0.0, 0.5, 1.0]), (alpha.minimum, [1.0, 0.5, 0.0])):
        x, y = (alpha.tensor(v, requires_grad=True, device=device) for v in (a, b))
        function(x, y).sum().backward()
        assert x.grad is not None
        assert y.grad is not None
        assert x.grad.tolist()[:3] == expected
        assert y.grad.tolist()[:3] == [1 - share for share in expected]
        assert x.grad.tolist()[3:] == y.grad.tolist()[3:] == [1.0, 1.0]  # the NaN of the result is of both
