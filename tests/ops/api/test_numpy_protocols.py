"""Functions and signs of numpy on tensors."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import alpha

VALUES = np.array([1.0, 4.0, 9.0], np.float32)


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "//", "%", "**", "<", "<=", ">", ">=", "==", "!="])
def test_signs_are_the_tensors_own_on_both_sides(device: str, sign: str) -> None:
    x = alpha.tensor(VALUES, device=device, requires_grad=sign in "+-*/**")
    operate = eval(f"lambda a, b: a {sign} b")
    for other in (np.float32(2), np.float64(2), np.int64(2), np.array([2.0, 4.0, 8.0], np.float32)):
        for left, right in ((x, other), (other, x)):
            found = operate(left, right)
            assert isinstance(found, alpha.Tensor)
            assert found.device.name == device
            assert found.requires_grad is x.requires_grad
            expected = operate(*(v.numpy() if v is x else v for v in (left, right)))
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_signs_of_bits_and_products() -> None:
    x, y = alpha.tensor([5, 6]), np.array([3, 1])
    for found, expected in ((y & x, [1, 0]), (y | x, [7, 7]), (y ^ x, [6, 7]), (y << x, [96, 64]), (y >> x, [0, 0])):
        assert isinstance(found, alpha.Tensor)
        assert found.tolist() == expected
    product = np.eye(2, dtype=np.float32) @ alpha.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert isinstance(product, alpha.Tensor)
    assert product.tolist() == [[1, 2], [3, 4]]


def test_ufuncs_by_their_names_are_signs_too(device: str) -> None:
    x = alpha.tensor(VALUES, device=device, requires_grad=True)
    found = np.multiply(x, VALUES) + np.add(2.0, x)
    assert found.requires_grad
    np.testing.assert_array_equal(found.numpy(), VALUES * VALUES + 2 + VALUES)


def test_other_ufuncs_give_tensors_of_the_cpu() -> None:
    x = alpha.tensor(VALUES)
    for found, expected in (
        (np.sqrt(x), [1, 2, 3]),
        (np.maximum(x, 4), [4, 4, 9]),
        (np.arctan2(np.zeros(3, np.float32), x), [0, 0, 0]),
        (np.add.reduce(x), 14),
        (np.add.accumulate(x), [1, 5, 14]),
        (np.isnan(x), [False] * 3),
    ):
        assert isinstance(found, alpha.Tensor)
        assert found.tolist() == expected
    fraction, whole = np.modf(x / 2.0)
    assert (fraction.tolist(), whole.tolist()) == ([0.5, 0, 0.5], [0, 2, 4])
    assert isinstance(np.signbit(alpha.tensor([-1.0])), alpha.Tensor)
    assert np.sqrt(alpha.tensor([4.0], dtype="bfloat16")).dtype.name == "bfloat16"


def test_a_result_has_a_place_given_by_out() -> None:
    x, y, array = alpha.tensor(VALUES), alpha.zeros(3), np.zeros(3, np.float32)
    version = y._version.value
    assert np.sqrt(x, out=y) is y
    assert y.tolist() == [1, 2, 3]
    assert y._version.value > version
    assert np.sqrt(x, out=array) is array
    array += x
    assert type(array) is np.ndarray
    assert array.tolist() == [2, 6, 12]
    np.add.at(y, [0, 0], 1.0)
    assert y.tolist() == [3, 2, 3]
    whole = alpha.zeros(2, 3)
    np.sqrt(x, out=whole[0])
    assert whole.tolist() == [[1, 2, 3], [0, 0, 0]]
    column = whole[:, 1]
    np.negative(column, out=column)
    assert whole.tolist() == [[1, -2, 3], [0, 0, 0]]


def test_what_numpy_would_lose_is_refused(device: str) -> None:
    x = alpha.tensor(VALUES, device=device, requires_grad=True)
    with pytest.raises(TypeError, match=r"numpy.sqrt: the tensor requires a gradient, .*alpha.sqrt\(x\).*x.detach\(\)"):
        np.sqrt(x)
    with pytest.raises(TypeError, match=r"numpy.spacing: the tensor requires a gradient, which numpy loses; x.detach"):
        np.spacing(x)
    array = np.zeros(3, np.float32)
    with pytest.raises(TypeError, match=r"numpy.add: the tensor requires a gradient"):
        array += x
    if device != "cpu":
        with pytest.raises(TypeError, match=r"numpy.exp: the tensor is on cuda; alpha.exp\(x\) .* x.numpy\(\) copies"):
            np.exp(x.detach())


def test_what_needs_the_values_of_before_is_not_written() -> None:
    x = alpha.tensor(VALUES)
    w = alpha.tensor(VALUES, requires_grad=True)
    y = (w * x).sum()
    np.negative(x, out=x)
    with pytest.raises(alpha.GradientError, match=r"numpy\.negative"):
        y.backward()
    x = alpha.tensor(VALUES)
    y = (w * x).sum()
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        np.divide(x, 0.0, out=x)  # which has written by then
    with pytest.raises(alpha.GradientError, match=r"numpy\.divide"):
        y.backward()


def test_other_functions_are_given_arrays(device: str) -> None:
    x = alpha.tensor(VALUES, device=device, requires_grad=True)
    found: list[tuple[Any, Any]] = [
        (np.mean(x), VALUES.mean()),
        (np.sum(x, axis=0), VALUES.sum()),
        (np.concatenate([x, VALUES]), np.concatenate([VALUES, VALUES])),
        (np.stack((x, x)), np.stack((VALUES, VALUES))),
        (np.where(x > 2.0, x, 0), np.where(VALUES > 2, VALUES, 0)),
        (np.linalg.norm(x), np.linalg.norm(VALUES)),
        (np.shape(x), (3,)),
    ]
    for ours, expected in found:
        assert not isinstance(ours, alpha.Tensor)
        np.testing.assert_array_equal(ours, expected)
    np.testing.assert_allclose(x, VALUES)
    np.testing.assert_array_equal(VALUES, x)


def test_other_functions_write_to_no_tensor(device: str) -> None:
    """A write to the memory would not be counted, and one to a copy would be lost."""
    for x in (alpha.tensor(VALUES, device=device), alpha.tensor(VALUES, device=device, requires_grad=True)):
        writes: list[Callable[[], Any]] = [
            lambda x=x: np.copyto(x, 0.0),
            lambda x=x: np.put(x, [0], 5.0),
            lambda x=x: np.putmask(x, VALUES > 2, 0.0),
            lambda x=x: np.nan_to_num(x, copy=False),
            lambda x=x: np.mean([VALUES, VALUES], 0, None, x),
            lambda x=x: np.sum([VALUES, VALUES], axis=0, out=x),
        ]
        for write in writes:
            with pytest.raises(TypeError, match=r"it writes to a tensor; give numpy.asarray\(x\)"):
                write()
        np.testing.assert_array_equal(x, VALUES)
        shown = np.squeeze(x)
        assert not shown.flags.writeable
        with alpha.no_grad():
            x.zero_()
        shares = device == "cpu" and not x.requires_grad  # a copy of weights keeps the values of before a step
        np.testing.assert_array_equal(shown, 0 * VALUES if shares else VALUES)
    with pytest.raises(ValueError, match="shapes"):  # of numpy, about something else
        np.linalg.multi_dot([alpha.ones(2, 3), alpha.ones(2, 3)])


def test_tensors_in_every_argument() -> None:
    x, mask = alpha.tensor(VALUES), alpha.tensor([True, False, True])
    for values in (x, VALUES):
        found = np.sqrt(values, where=mask, out=np.zeros(3, np.float32))
        np.testing.assert_array_equal(found, [1, 0, 3])
    assert np.add.reduce(x, initial=alpha.tensor(6.0)).tolist() == 20
    pair = NamedTuple("Pair", [("a", Any), ("b", Any)])(x, VALUES)
    for arrays in (deque([x, VALUES]), pair, [x, VALUES]):
        assert np.concatenate(arrays).tolist() == [*VALUES, *VALUES]
    assert np.block([[x, x]]).shape == (1, 6)


def test_numpy_adds_a_tensor_to_an_array_in_place() -> None:
    array = np.ones(3, np.float32)
    same = array
    for operate in (operator.iadd, operator.imul, operator.isub):
        array = operate(array, alpha.tensor(VALUES))
    assert array is same
    np.testing.assert_array_equal(array, (1 + VALUES) * VALUES - VALUES)
    with pytest.raises(TypeError, match="Cannot cast"):  # as numpy with an array
        operator.iadd(np.ones(3, np.int32), alpha.tensor(VALUES))


def test_a_curve_of_tensors() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    (line,) = figure.subplots().plot(alpha.arange(3), alpha.tensor(VALUES, requires_grad=True))
    np.testing.assert_array_equal(line.get_ydata(), VALUES)
