"""Gathering and scattering by index: PyTorch's values and gradients, dtypes, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check_equal_torch, normal_numbers

import alpha
import alpha.nn.functional as F
from alpha import ShapeError


@pytest.mark.torch
@pytest.mark.parametrize("dim", [0, 1])
def test_gathering_and_scattering_a_part(device: str, dim: int) -> None:
    """An index that is shorter than x and src on every axis, and names places several times."""
    torch = pytest.importorskip("torch")
    at = np.array([[2, 0, 2, 1], [0, 0, 1, 3], [1, 2, 0, 2]])[: 4 - dim, :3]
    once = np.argsort(normal_numbers(*at.shape), axis=dim)
    index, twin = alpha.tensor(at, device=device), torch.tensor(at)
    places, twins = alpha.tensor(once, device=device), torch.tensor(once)
    x, src = normal_numbers(4, 5), normal_numbers(4, 4)
    check_equal_torch(lambda x: x.gather(dim, index), lambda x: x.gather(dim, twin), device, x)
    check_equal_torch(lambda x: x.index_select(dim, index[0]), lambda x: x.index_select(dim, twin[0]), device, x)

    def part(v: Any) -> Any:
        return v[: at.shape[0], : at.shape[1]]  # PyTorch has no gradient of a longer src

    check_equal_torch(
        lambda x, v: x.scatter(dim, places, v), lambda x, v: x.scatter(dim, twins, part(v)), device, x, src
    )
    whole = np.round(4 * x), np.round(4 * src)  # sums without rounding
    check_equal_torch(
        lambda x, v: x.scatter_add(dim, index, v), lambda x, v: x.scatter_add(dim, twin, part(v)), device, *whole
    )


def test_scattered_values_are_cast_to_the_dtype_of_x(device: str) -> None:
    x = alpha.tensor(normal_numbers(3, 2), device=device)
    index = alpha.tensor([[0, 1]], device=device)
    src = alpha.tensor([[1.25, 2.5]], dtype="bfloat16", device=device, requires_grad=True)
    for function, wanted in ((F.scatter, [1.25, 2.5]), (F.scatter_add, x.numpy()[[0, 1], [0, 1]] + [1.25, 2.5])):
        y = function(x, 0, index, src)
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y.numpy()[[0, 1], [0, 1]], np.float32(wanted))
        src.grad = None
        (y * 2.0).sum().backward()
        assert src.grad is not None
        assert src.grad.dtype == src.dtype
        np.testing.assert_array_equal(src.grad.numpy().astype(np.float32), [[2, 2]])
    assert F.scatter_add(x.bfloat16(), 0, index, x[:1]).dtype == src.dtype


def test_gathering_is_refused_with_the_shapes(device: str) -> None:
    x, index = (
        alpha.tensor(normal_numbers(3, 4), device=device),
        alpha.tensor(np.zeros((2, 5), np.int64), device=device),
    )
    with pytest.raises(ShapeError, match=r"gather: index is longer than x on another axis than 0  \(x \(3, 4\), index"):
        F.gather(x, 0, index)
    with pytest.raises(ShapeError, match=r"scatter_add: src is shorter than index"):
        F.scatter_add(x, 1, index, x[:1])
    with pytest.raises(TypeError, match=r"scatter: x of dtype int64 cannot hold src of dtype float32"):
        F.scatter(index, 1, index, x)
    with pytest.raises(TypeError, match=r"index_select: index has dtype float32; int64 or int32 is needed"):
        F.index_select(x, 0, x[0])
    wrong: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: F.gather(x, 0, index[0]), ShapeError, r"gather: x and index need as many axes  \(x \(3, 4\), index"),
        (lambda: F.take_along_dim(x, index[0], 1), ShapeError, "take_along_dim: as many axes are needed"),
        (lambda: F.take_along_dim(x, index, 1), ShapeError, "take_along_dim: the axes do not broadcast"),
        (lambda: F.take_along_dim(x, x, 1), TypeError, "take_along_dim: index has dtype float32; int64 or int32"),
        (lambda: F.index_select(x, 0, index), ShapeError, r"index_select: index \(I,\) or \(\) is needed"),
        (lambda: F.index_select(x.sum(), 0, index[0]), ShapeError, "index_select: x is a number, so index has one"),
        (
            lambda: F.index_add(x, 0, index, x),
            ShapeError,
            r"index_add: index \(I,\) and source as x, but I long on axis 0",
        ),
        (
            lambda: F.index_add(x, 0, index[0], x),
            ShapeError,
            r"index_add: .* \(x \(3, 4\), index \(5,\), source \(3, 4\)",
        ),
        (
            lambda: F.index_add(x > 0, 0, index[0, :3], x > 0),
            TypeError,
            "index_add: x has dtype bool, which has no sum",
        ),
        (lambda: F.scatter(x, 0, index, x, reduce="multiply"), ValueError, "scatter: reduce='multiply' is not offered"),
        (lambda: F.scatter(x, 0, index, "1"), TypeError, "scatter: src is a str, a Tensor or a number is needed"),
        (lambda: F.scatter(x, 0, x, 1.0), TypeError, "scatter: index has dtype float32; int64 or int32 is needed"),
        (lambda: F.gather(x, 0, x[:0]), TypeError, "gather: index has dtype float32; int64 or int32 is needed"),
        (lambda: F.scatter_add(x, 0, x[:0], x), TypeError, "scatter_add: index has dtype float32; int64 or int32"),
    ]
    for call, error, message in wrong:
        with pytest.raises(error, match=rf"^{message}"):
            call()
    if device == "cpu":
        with pytest.raises(IndexError, match=r"index 7 is out of range for an axis of length 3"):
            F.gather(x, 0, alpha.tensor([[7]]))
