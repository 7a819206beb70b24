"""alpha.FloatTensor and others, PyTorch's older names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.ops.api import typed_tensors

DTYPES = {
    "BoolTensor": "bool",
    "ByteTensor": "uint8",
    "DoubleTensor": "float64",
    "FloatTensor": "float32",
    "IntTensor": "int32",
    "LongTensor": "int64",
}


def test_all_of_them_are_here() -> None:
    assert sorted(DTYPES) == typed_tensors.__all__


@pytest.mark.parametrize("name", DTYPES)
def test_values_and_lengths(name: str) -> None:
    make: Any = getattr(alpha, name)
    given = alpha.ones(2, dtype="int64")
    for values in ([1, 0], [[1], [0]], range(2), np.array([1.0, 0.0]), given):
        found = make(values)
        assert (found.dtype.name, found.device.name) == (DTYPES[name], "cpu")
        np.testing.assert_array_equal(found.numpy(), np.asarray(values))
    assert (make(2, 3).shape, make(4).shape, make().shape) == ((2, 3), (4,), (0,))
    assert make(2).dtype.name == DTYPES[name]
    for wrong in (((2, 3),), ([1], [2]), (1.5,), ("x",)):
        with pytest.raises(TypeError, match=rf"^{name}: a list, an array or a Tensor is needed"):
            make(*wrong)


def test_a_tensor_of_a_list() -> None:
    x = alpha.Tensor([[1, 2], [3, 4]])
    assert (x.dtype.name, x.shape) == ("float32", (2, 2))
    assert alpha.Tensor([1.5], requires_grad=True).requires_grad
    with pytest.raises(TypeError, match="Tensor takes an array of a device, not a int"):
        alpha.Tensor(2)  # type: ignore[arg-type]
