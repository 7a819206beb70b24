"""Windows as rows, instance and local response normalisation, similarities: PyTorch's values, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check_torch, nchw

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, nn

# name: (ours, PyTorch's, shapes)
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "instance_norm": (
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        lambda torch: nchw(lambda x, w, b: torch.nn.functional.instance_norm(x, None, None, w, b)),
        ((2, 4, 3, 4), (4,), (4,)),
    ),
    "local_response_norm": (
        lambda x: F.local_response_norm(x, 4, 0.5, 0.6, 1.2),
        lambda torch: nchw(lambda x: torch.nn.functional.local_response_norm(x, 4, 0.5, 0.6, 1.2)),
        ((2, 4, 3, 5),),
    ),
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
def test_as_in_pytorch(device: str, name: str) -> None:
    ours, theirs, shapes = CASES[name]
    check_torch(ours, theirs(pytest.importorskip("torch")), *shapes, device=device)


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((1, 4, 4, 3), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"unfold: there is no window of \(5, 5\) in images \(4, 4\) of 3 channels"):
        F.unfold(x, 5)
    with pytest.raises(ShapeError, match="fold: 3 x 3 windows need as many rows, x has 4"):
        F.fold(x.reshape(1, 4, 12), 4, 2)
    with pytest.raises(ShapeError, match=r"instance_norm: x \(N, \.\., C\) of more than one pixel is needed"):
        F.instance_norm(x[:, :1, :1])
    with pytest.raises(ShapeError, match="use_input_stats=False needs running_mean and running_var"):
        F.instance_norm(x, use_input_stats=False)
    with pytest.raises(ShapeError, match=r"InstanceNorm2d: x \(H, W, C\) or \(N, H, W, C\) is needed"):
        nn.InstanceNorm2d(3)(x.reshape(16, 3))
    with pytest.raises(ShapeError, match=r"unflatten: sizes=\(2, 3\) do not fit axis 1 of shape \(1, 4, 4, 3\)"):
        F.unflatten(x, 1, (2, 3))
