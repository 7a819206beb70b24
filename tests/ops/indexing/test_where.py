"""`where` and `nonzero`, which name places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.errors import CaptureError
from alpha.runtime.recording import Recording, recorded


def test_nonzero_is_no_part_of_a_captured_step() -> None:
    x = alpha.tensor(np.array([[0, 1], [2, 0]], np.float32))
    rows, columns = x.nonzero(as_tuple=True)
    np.testing.assert_array_equal(x[rows, columns].numpy(), [1, 2])
    recording = Recording(capturing=True)
    with recorded(recording), pytest.raises(CaptureError, match="nonzero has a number of elements that only the host"):
        x.nonzero()


def test_where_without_values_names_the_places(device: str) -> None:
    x = alpha.tensor([[0.0, 2.0], [3.0, 0.0]], device=device)
    rows, columns = alpha.where(x > 0)
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [1, 0])
    with pytest.raises(TypeError, match="where: a NoneType is no operand"):
        alpha.where(x > 0, 1.0)


@pytest.mark.torch
@pytest.mark.parametrize("values", [3, 0, [], [0.0, 2.0, -1.0], [[0, 5], [0, 0], [7, 8]]], ids=str)
def test_nonzero_gives_pytorchs_places(device: str, values: Any) -> None:
    torch = pytest.importorskip("torch")
    x, twin = alpha.tensor(np.array(values), device=device), torch.tensor(np.array(values))
    found = [x.nonzero(), *x.nonzero(as_tuple=True)]
    expected = [twin.nonzero(), *twin.nonzero(as_tuple=True)]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == np.int64
        assert ours.device.name == device
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
