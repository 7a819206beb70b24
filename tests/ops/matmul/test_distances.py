"""Similarities and distances of rows: PyTorch's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers import check_torch

import alpha.nn.functional as F

# name: (ours, PyTorch's, shapes)
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "cosine_similarity": (
        lambda a, b: F.cosine_similarity(a, b, -1, 1.5),
        lambda torch: lambda a, b: torch.nn.functional.cosine_similarity(a, b, -1, 1.5),
        ((4, 3, 2), (3, 2)),
    ),
    "pairwise_distance": (
        lambda a, b: F.pairwise_distance(a, b, 3.0, 0.1, True),
        lambda torch: lambda a, b: torch.nn.functional.pairwise_distance(a, b, 3.0, 0.1, True),
        ((4, 3), (3,)),
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_distances_as_in_pytorch(device: str, name: str) -> None:
    ours, theirs, shapes = CASES[name]
    check_torch(ours, theirs(pytest.importorskip("torch")), *shapes, device=device)
