"""Windows of images as rows, and rows as images: gradients, PyTorch's values, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, check_torch

import alpha
import alpha.nn.functional as F
from alpha import ShapeError

WINDOWS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (1, 2), "stride": (2, 1)},
]


@pytest.mark.parametrize("given", WINDOWS, ids=str)
def test_gradients_of_windows(given: dict[str, Any]) -> None:
    rows = F.unfold(alpha.zeros((2, 5, 4, 3)), **given).shape
    check_gradient(lambda x: F.unfold(x, **given), (2, 5, 4, 3))
    check_gradient(lambda x: F.fold(x, (5, 4), **given), rows)


@pytest.mark.torch
@pytest.mark.parametrize("given", WINDOWS, ids=str)
def test_windows_as_in_pytorch(device: str, given: dict[str, Any]) -> None:
    functional = pytest.importorskip("torch").nn.functional

    def unfold(x: Any) -> Any:
        return functional.unfold(x.permute(0, 3, 1, 2), **given).transpose(1, 2)

    def fold(x: Any) -> Any:
        return functional.fold(x.transpose(1, 2), (5, 4), **given).permute(0, 2, 3, 1)

    rows = F.unfold(alpha.zeros((2, 5, 4, 3)), **given).shape
    check_torch(lambda x: F.unfold(x, **given), unfold, (2, 5, 4, 3), device=device)
    check_torch(lambda x: F.fold(x, (5, 4), **given), fold, rows, device=device)


def test_windows_that_do_not_fit_are_refused(device: str) -> None:
    x = alpha.tensor(np.zeros((1, 4, 4, 3), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"unfold: there is no window of \(5, 5\) in images \(4, 4\) of 3 channels"):
        F.unfold(x, 5)
    with pytest.raises(ShapeError, match="fold: 3 x 3 windows need as many rows, x has 4"):
        F.fold(x.reshape(1, 4, 12), 4, 2)
