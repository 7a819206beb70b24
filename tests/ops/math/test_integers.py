"""Arithmetic of integers and bools, and their bits: PyTorch's values and dtypes, on both devices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, positive

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, Tensor
from alpha.ops.math.integers import SIGNS

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
INTEGERS = ("uint8", "int32", "int64")
DTYPES = (*INTEGERS, "bool", "float32")
WITHOUT_SIGN: dict[str, Callable[[Any, Any], Any]] = {
    "/": lambda a, b: a.div(b, rounding_mode="trunc"),
    "fmod": lambda a, b: a.fmod(b),
    "gcd": lambda a, b: a.gcd(b),
}
WORDS = ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor")


def values(dtype: str, seed: int, low: int = -9) -> np.ndarray:
    found = np.random.default_rng(seed).integers(low, 9, (3, 4))
    return np.where(found == 0, 3, found).astype(dtype)


def same(ours: Callable[[], Any], theirs: Callable[[], Any], case: str) -> None:
    """The same values and dtype, or both refuse."""
    try:
        expected = theirs()
    except RuntimeError as error:
        if "Subtraction" in str(error):
            return  # of a bool from an integer, which Alpha computes
        with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
            ours()
        return
    found = ours()
    assert f"torch.{found.dtype}" == str(expected.dtype), case
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6, err_msg=case)


@pytest.mark.torch
@pytest.mark.parametrize("sign", OPERATORS)
def test_as_in_pytorch(sign: str) -> None:
    torch = pytest.importorskip("torch")
    function = OPERATORS[sign]
    for first in DTYPES:
        a = values(first, 1, low=0 if sign == "**" else -9)
        x, t = alpha.tensor(a), torch.tensor(a)
        others = [values(second, 2, low=0 if sign in ("**", "<<", ">>") else -9) for second in DTYPES]
        for b in (*others, others[0][0], others[2][:, :1], np.array(3), np.array(2.5, np.float32)):
            case = f"{first} {sign} {b.dtype} {b.shape}"
            same(lambda x=x, b=b: function(x, alpha.tensor(b)), lambda t=t, b=b: function(t, torch.tensor(b)), case)
        for number in (3, -2, 2.5, 0, *(() if sign == "**" else (True,))):  # PyTorch refuses bools of one kind only
            same(lambda x=x, n=number: function(x, n), lambda t=t, n=number: function(t, n), f"{first} {sign} {number}")
            if number > 0:
                case = f"{number} {sign} {first}"
                same(lambda x=x, n=number: function(n, x), lambda t=t, n=number: function(n, t), case)


@pytest.mark.torch
@pytest.mark.parametrize("name", WORDS)
def test_words_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    for first in DTYPES:
        a = values(first, 1) * (values("int64", 5) > 0)
        for b in [values(second, 2) * (values("int64", 6) > 0) for second in DTYPES]:
            same(
                lambda a=a, b=b: getattr(alpha, name)(alpha.tensor(a), alpha.tensor(b)),
                lambda a=a, b=b: getattr(torch, name)(torch.tensor(a), torch.tensor(b)),
                f"{name} {a.dtype} {b.dtype}",
            )
        for inverse in ("logical_not", "bitwise_not", "neg"):
            x, t = alpha.tensor(a), torch.tensor(a)
            ours = operator.neg if inverse == "neg" else getattr(F, inverse)
            same(lambda x=x, f=ours: f(x), lambda t=t, n=inverse: getattr(torch, n)(t), f"{inverse} {a.dtype}")


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_the_devices_agree_at_the_ends_of_the_range(dtype: str) -> None:
    """Devices agree on what C++ leaves open: overflow, division by 0, and shifts by more bits than there are."""
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    signed = (-1, -2, -3) if dtype in ("int32", "int64") else ()
    numbers = np.array([low, high, 0, 1, *signed, *(() if dtype == "bool" else (2, 7, 31, 64, 100))], dtype)
    a, b = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    for sign in SIGNS:
        results = []
        for device in ("cpu", "cuda"):
            x, y = alpha.tensor(a, device=device), alpha.tensor(b, device=device)
            try:
                found = (OPERATORS | WITHOUT_SIGN)[sign](x, y)
            except TypeError:
                assert dtype == "bool"
                break
            assert found.dtype == dtype
            results.append(found.numpy())
        else:
            np.testing.assert_array_equal(*results, err_msg=sign)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["fmod", "gcd", "lcm", "sub", "rsub"])
def test_functions_as_in_pytorch(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    function, twin = getattr(alpha, name), getattr(torch, name)
    for first in DTYPES:
        a = values(first, 1)
        for b in (values(second, 2) for second in DTYPES):
            x, y, t, u = (
                alpha.tensor(a, device=device),
                alpha.tensor(b, device=device),
                torch.tensor(a),
                torch.tensor(b),
            )
            same(lambda x=x, y=y: function(x, y), lambda t=t, u=u: twin(t, u), f"{name} {first} {b.dtype}")


def test_negatives_and_differences_of_integers(device: str) -> None:
    small = alpha.tensor(np.array([0, 3, 1], np.uint8), device=device)
    np.testing.assert_array_equal(alpha.neg(small).numpy(), [0, 253, 255])
    np.testing.assert_array_equal(alpha.diff(small).numpy(), [3, 254])
    np.testing.assert_array_equal(alpha.diff(small > 0).numpy(), [True, False])
    for function in (alpha.gcd, alpha.lcm):
        with pytest.raises(TypeError, match="integers are needed, not dtypes float32 and uint8"):
            function(small.float(), small)


@pytest.mark.torch
def test_rounded_division_of_floats_as_in_pytorch(device: str) -> None:
    torch = pytest.importorskip("torch")
    numbers = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -7.25, 1e5, 1e-3, np.inf, -np.inf, np.nan, 0.1], np.float32)
    a, b = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    x, y, t, u = alpha.tensor(a, device=device), alpha.tensor(b, device=device), torch.tensor(a), torch.tensor(b)
    np.testing.assert_array_equal((x // y).numpy(), (t // u).numpy())
    np.testing.assert_array_equal((x % y).numpy(), (t % u).numpy())
    np.testing.assert_array_equal(x.fmod(y).numpy(), t.fmod(u).numpy())
    for mode in ("floor", "trunc"):
        found = x.div(y, rounding_mode=mode)
        np.testing.assert_array_equal(found.numpy(), t.div(u, rounding_mode=mode).numpy())


def test_gradients() -> None:
    check_gradient(lambda a, b: (a * 3.1) % b, positive(4, 3), positive(3) + 1)
    check_gradient(lambda a, b: (a * -3.1).fmod(b), positive(4, 3), positive(3) + 1)
    x = alpha.tensor([1.0, 5.0], requires_grad=True)
    (x // 2 + x.div(2, rounding_mode="trunc")).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0])
    (x * alpha.tensor([3, 4]) + (x > 2)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [3, 4])


def test_written_in_place(device: str) -> None:
    x = alpha.tensor([5, -3, 8], device=device)
    y = x
    y += 2
    y *= alpha.tensor([1, 2, 3], device=device)
    y -= np.ones(3, np.int32)
    y //= 2
    y <<= 1
    y |= 1
    y %= 100
    assert y is x
    np.testing.assert_array_equal(x.numpy(), [7, 97, 29])
    mask = alpha.tensor([True, False, True], device=device)
    other = mask
    other &= x > 10
    assert other is mask
    np.testing.assert_array_equal(mask.numpy(), [False, False, True])


def test_errors(device: str) -> None:
    x, flags = alpha.tensor([1, 2], device=device), alpha.tensor([True, False], device=device)
    with pytest.raises(TypeError, match=r"add_: the result has dtype float32, which x of dtype int64 cannot hold"):
        x += 0.5
    with pytest.raises(ShapeError, match=r"add_: the result \(1, 2\) does not fit into \(2,\)"):
        x += alpha.tensor([[1, 2]], device=device)
    with pytest.raises(TypeError, match=r"sub: there is no - of dtype bool"):
        flags - flags
    with pytest.raises(TypeError, match=r"bitwise_and: integers or bools are needed, not dtype float"):
        x & 1.5
    with pytest.raises(TypeError, match=r"bitwise_not: .*not dtype float32; use \.astype\('int64'\)"):
        ~x.float()
    with pytest.raises(ValueError, match="pow: int64 to the power of -1 is no integer"):
        x**-1
    with pytest.raises(ZeroDivisionError, match="remainder: integers are divided by 0"):
        x % 0
    with pytest.raises(TypeError, match=r"add: alpha=0\.5 must be an integer"):
        x.add(x, alpha=0.5)
    with pytest.raises(ValueError, match="div: rounding_mode='up' is neither"):
        Tensor.div(x, 2, rounding_mode="up")
