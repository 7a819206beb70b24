"""Comparisons: bools elementwise, numbers of every kind, mixed dtypes; hashing and truth stay usable."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import DeviceError, ShapeError, Tensor

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
DTYPES = ("float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool")
NUMBERS = [0, 1, 2, -1, 255, 256, 300, 0.5, 1.0, -0.0, np.inf, -np.inf, np.nan, True, False, 2**40]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RELATIONS)
def test_numbers(device: str, name: str, dtype: str) -> None:
    """Numbers compare as if both were real numbers: 1.5 is no integer, 300 no uint8."""
    relation = RELATIONS[name]
    values = np.array([0, 1, 2, 255]).astype(dtype)
    x, exact = alpha.tensor(values, device=device), values.astype(np.float64)
    for number in NUMBERS:
        for n in (number, np.float64(number)):
            found = relation(x, n)
            assert isinstance(found, Tensor)
            assert found.dtype == np.bool_
            np.testing.assert_array_equal(found.numpy(), relation(exact, float(number)), err_msg=str(number))
            np.testing.assert_array_equal(relation(n, x).numpy(), relation(float(number), exact), err_msg=str(number))


@pytest.mark.parametrize("second", DTYPES)
@pytest.mark.parametrize("first", DTYPES)
def test_two_dtypes(device: str, first: str, second: str) -> None:
    a, b = np.array([0, 1, 2, 3]).astype(first), np.array([[1], [2]]).astype(second)
    for relation in RELATIONS.values():
        found = relation(alpha.tensor(a, device=device), alpha.tensor(b, device=device))
        np.testing.assert_array_equal(found.numpy(), relation(a.astype(np.float64), b.astype(np.float64)))


def test_large_integers_are_compared_exactly(device: str) -> None:
    x = alpha.tensor([2**53, 2**53 + 1], device=device)
    np.testing.assert_array_equal((x == 2**53 + 1).numpy(), [False, True])
    np.testing.assert_array_equal((x == alpha.tensor([2**53 + 1], device=device)).numpy(), [False, True])


def test_nan_equals_nothing(device: str) -> None:
    x = alpha.tensor([np.nan, 1.0], device=device)
    np.testing.assert_array_equal((x == x).numpy(), [False, True])
    np.testing.assert_array_equal((x != x).numpy(), [True, False])


def test_arrays_and_lists(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    for other in ([1.0, 3.0], np.array([1, 3]), np.array([1.0, 3.0])):
        for found in (x == other, other == x):
            assert isinstance(found, Tensor)
            np.testing.assert_array_equal(found.numpy(), [True, False])


def test_other_objects_are_not_equal(device: str) -> None:
    x = alpha.tensor([1.0], device=device)
    for other in (None, "1", object()):
        assert (x == other) is False
        assert (x != other) is True
        with pytest.raises(TypeError, match="not supported between"):
            x < other  # noqa: B015


def test_shapes_and_devices_that_do_not_fit(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    with pytest.raises(ShapeError, match=r"comparison: shapes \(2,\) and \(3,\) do not broadcast"):
        x == alpha.tensor([1.0, 2.0, 3.0], device=device)  # noqa: B015
    if device == "cuda":
        with pytest.raises(DeviceError, match=r"\.to\(device\)"):
            x == alpha.tensor([1.0, 2.0])  # noqa: B015


def test_a_comparison_has_no_gradient(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], requires_grad=True, device=device)
    mask = x > 1
    assert not mask.requires_grad
    (x * mask.astype("float32")).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), [0, 1])


def test_tensors_are_keys_by_identity(device: str) -> None:
    """Dictionaries and sets find a tensor itself, whatever its elements are."""
    tensors = [alpha.tensor([0.0, 0.0], device=device) for _ in range(200)]
    table = {tensor: index for index, tensor in enumerate(tensors)}
    assert len(set(tensors)) == 200
    assert [table[tensor] for tensor in tensors] == list(range(200))
    assert alpha.tensor([0.0, 0.0], device=device) not in table
    assert tensors[0] in tensors
    assert len(set(map(hash, tensors))) == 200


def test_an_optimizer_takes_equal_parameters(device: str) -> None:
    parameters = [alpha.tensor([1.0, 1.0], requires_grad=True, device=device) for _ in range(2)]
    optimizer = alpha.optim.SGD(parameters, lr=0.5, momentum=0.9)
    for parameter in parameters:
        (parameter * 1.0).sum().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    for parameter in parameters:
        np.testing.assert_array_equal(parameter.numpy(), [0.5, 0.5])
    with pytest.raises(ValueError, match="comes twice"):
        alpha.optim.SGD([parameters[0], parameters[0]], lr=0.1)


@pytest.mark.parametrize(("value", "true"), [(0.0, False), (-0.0, False), (0.5, True), (np.nan, True), (3, True)])
def test_truth_of_one_element(device: str, value: float, true: bool) -> None:
    for shape in ((), (1,), (1, 1)):
        assert bool(alpha.tensor(np.full(shape, value), device=device)) is true


@pytest.mark.parametrize("shape", [(0,), (2,), (0, 3)], ids=str)
def test_truth_of_several_elements_is_refused(device: str, shape: tuple[int, ...]) -> None:
    x = alpha.tensor(np.zeros(shape, np.float32), device=device)
    with pytest.raises(ShapeError, match=r"bool: a tensor of \d elements .* is neither true nor false"):
        bool(x)
    with pytest.raises(ShapeError, match="neither true nor false"):
        _ = x in [alpha.tensor(np.zeros(shape, np.float32), device=device)]


def test_elements(device: str) -> None:
    x = alpha.tensor([[1, 2], [3, 4]], device=device)
    assert 3 in x
    assert 2.5 not in x
    assert alpha.tensor([3, 4], device=device) in x
    with pytest.raises(TypeError, match="in: a str cannot be an element"):
        "3" in x  # noqa: B015


def test_as_python_numbers(device: str) -> None:
    three = alpha.tensor([3], device=device)
    assert (int(three), float(three), operator.index(three)) == (3, 3.0, 3)
    assert "abcd"[alpha.tensor(1, device=device)] == "b"
    assert list(range(alpha.tensor(2, device=device))) == [0, 1]
    for wrong in (alpha.tensor([1.0], device=device), alpha.tensor([1, 2], device=device)):
        with pytest.raises(TypeError, match="only an integer tensor of one element is an index"):
            operator.index(wrong)


def test_a_number_is_compared_in_the_tensors_precision(device: str) -> None:
    """0.1 as float32 is another number than 0.1 as float64."""
    if device == "cpu":
        assert (alpha.tensor(np.array([0.1])) == 0.1).numpy().all()
    assert (alpha.tensor(np.array([0.1], np.float32), device=device) == 0.1).numpy().all()
