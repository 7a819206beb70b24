"""Windows of signals, and numbers at equal ratios."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpha
from alpha.ops.api import in_torch


@pytest.mark.torch
@pytest.mark.parametrize("name", [n for n in in_torch.__all__ if n.endswith("window") or n == "logspace"])
def test_windows_are_pytorchs(device: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(alpha, name), getattr(torch, name)
    settings: list[tuple[Any, ...]] = [(n, p) for n in (0, 1, 2, 5, 12) for p in (True, False)]
    if name == "logspace":
        settings = [(0.0, 2.0, 5), (-1.0, 1.0, 4, 2.0), (2.0, 0.0, 1), (0.0, 1.0, 0)]
    if name == "hamming_window":
        settings += [(7, True, 0.6), (7, False, 0.3, 0.9)]
    for given in settings:
        found = ours(*given, device=device)
        np.testing.assert_allclose(found.numpy(), theirs(*given).numpy(), rtol=1e-5, atol=1e-6)
        assert (found.dtype.name, found.device.name, found.requires_grad) == ("float32", device, False)
    wide = ours(*settings[-1], dtype="float64", requires_grad=True)
    assert (wide.dtype.name, wide.requires_grad, wide.is_leaf) == ("float64", True, True)
    np.testing.assert_allclose(
        wide.detach().numpy(), theirs(*settings[-1], dtype=torch.float64).numpy(), rtol=1e-12, atol=1e-15
    )


def test_windows_that_are_refused() -> None:
    with pytest.raises(ValueError, match="hann_window: window_length=-1 must be at least 0"):
        alpha.hann_window(-1)
    with pytest.raises(TypeError, match="bartlett_window: dtype=int64 is not a floating dtype"):
        alpha.bartlett_window(3, dtype="int64")
    with pytest.raises(TypeError, match="hamming_window: alpha='x' is not a number"):
        alpha.hamming_window(3, True, "x")  # type: ignore[arg-type]
