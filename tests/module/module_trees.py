"""A module with every kind of attribute, and the names of its parameters and buffers."""

from __future__ import annotations

import numpy as np

import alpha
from alpha import Tensor, nn


class Net(nn.Module):
    """Every kind of attribute, and a parameter that is None."""

    def __init__(self) -> None:
        self.scale = nn.Parameter([2.0])
        self.offset: nn.Parameter | None = None
        self.count = nn.Buffer(np.zeros(1, np.float32))
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
        self.heads = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
        self.note = alpha.tensor([9.0])  # a plain tensor is not part of the model
        self.listed = [nn.Linear(1, 1)]

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x) * self.scale
        for head in self.heads:
            y = head(y)
        return y


NAMES = [
    "scale",
    "count",
    "body.0.weight",
    "body.0.bias",
    "body.2.weight",
    "heads.0.weight",
    "heads.0.bias",
    "heads.1.weight",
    "heads.1.bias",
]
