"""New tensors: of numbers, of what is given, of named lengths; and conversions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha


def test_new_tensors(device: str) -> None:
    for x, expected in (
        (alpha.zeros(2, 3, device=device), np.zeros((2, 3), np.float32)),
        (alpha.ones((2,), dtype="int32", device=device), np.ones(2, np.int32)),
        (alpha.full((2, 1), 7, device=device), np.full((2, 1), 7)),
        (alpha.arange(5, device=device), np.arange(5)),
        (alpha.arange(1, 2, 0.25, device=device), np.arange(1, 2, 0.25, dtype=np.float32)),
        (alpha.arange(7, 1, -2, device=device), np.arange(7, 1, -2)),
        (alpha.linspace(-1, 1, 9, device=device), np.linspace(-1, 1, 9, dtype=np.float32)),
        (alpha.eye(3, 2, device=device), np.eye(3, 2, dtype=np.float32)),
        (alpha.eye(2, 3, dtype="bool", device=device), np.eye(2, 3, dtype=bool)),
    ):
        assert x.device.name == device
        assert x.dtype == expected.dtype
        np.testing.assert_array_equal(x.numpy(), expected)
    assert alpha.empty(2, 3, device=device, requires_grad=True).requires_grad
    assert alpha.full_like(alpha.zeros(2, device=device), 3, dtype="int64").tolist() == [3, 3]


def test_conversions(device: str) -> None:
    x = alpha.tensor([1.5, 0.0], device=device, requires_grad=True)
    assert [x.to(kind).dtype.name for kind in ("float64", np.int32, "bool")] == ["float64", "int32", "bool"]
    assert x.to("cpu", "int64").device.name == x.cpu().device.name == "cpu"
    assert x.to(device) is x.to(dtype="float32") is x.float() is x
    assert (x.numel(), x.dim(), x.tolist(), x.bool().tolist()) == (2, 1, [1.5, 0.0], [True, False])
    y = x.clone()
    y[0] = 5.0
    assert x.tolist() == [1.5, 0.0]


def test_tensors_of_what_is_given(device: str) -> None:
    x = alpha.tensor([1.0, 2.0], device=device)
    assert alpha.as_tensor(x) is x
    assert alpha.as_tensor(x, dtype="float64", device="cpu").dtype == np.float64
    made = alpha.as_tensor([1, 2], "float32", device)
    assert (made.dtype.name, made.device.name) == ("float32", device)
    values = np.arange(3.0)
    made = alpha.from_numpy(values)
    values[:] = 0
    assert made.tolist() == [0, 1, 2]
    assert made.dtype == np.float64
    with pytest.raises(TypeError, match="from_numpy: a list is no numpy array"):
        alpha.from_numpy([1.0])


@pytest.mark.parametrize("make", [alpha.zeros, alpha.ones, alpha.empty, alpha.rand, alpha.randn])
def test_lengths_may_be_named(make: Any, device: str) -> None:
    assert make(size=(2, 3), device=device).shape == make(2, 3, device=device).shape == (2, 3)
    assert make(size=4).shape == (4,)
    assert make(size=()).shape == make(()).shape == ()
    with pytest.raises(TypeError, match=rf"{make.__name__}: the lengths are given twice, as \(2,\) and as size=3"):
        make(2, size=3)
