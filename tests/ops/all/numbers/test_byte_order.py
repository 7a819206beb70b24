"""Arrays whose bytes are in the other order become tensors, weights and operands in the order of the machine."""

from __future__ import annotations

import numpy as np
import pytest

import alpha


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">i8"])
def test_arrays_of_another_byte_order(device: str, dtype: str) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    for x in (
        alpha.tensor(values, device=device),
        alpha.tensor([[0, 1, 2], [3, 4, 5]], dtype=dtype, device=device),
        alpha.tensor(values[0, 0], device=device).reshape(1),
        alpha.nn.Parameter(values, requires_grad=False),
    ):
        assert x.dtype.isnative
        assert x.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(x.numpy(), values.reshape(-1)[: x.size].reshape(x.shape))
        assert (x == x.astype(dtype)).numpy().all()
    x = alpha.tensor(values.astype(">f4"), requires_grad=True, device=device)
    ((x + values) @ values.T.copy()).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.tile(values.sum(axis=0), (2, 1)))
    layer = alpha.nn.Linear(3, 2, bias=False).to(device)
    layer.load_state_dict({"weight": values.astype(">f4")})
    assert layer.weight.dtype.isnative
    np.testing.assert_array_equal(layer.weight.numpy(), values)
