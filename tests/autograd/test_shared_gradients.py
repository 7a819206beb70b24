"""A function that returns one array as the gradient of two inputs."""

from __future__ import annotations

from typing import Any

import alpha
from alpha import Function


class Sum(Function):
    """a + b, whose gradients are one array."""

    def forward(self, A: Any, B: Any) -> Any:
        return A + B

    def backward(self, dY: Any) -> Any:
        both = dY * 2
        return both, both


def test_a_leaf_does_not_take_an_array_that_is_still_on_its_way() -> None:
    w = alpha.ones(1, requires_grad=True)
    v = w * 3
    for first, second in ((w, v), (v, w)):
        w.grad = None
        (Sum.apply(first, second) + w).sum().backward(retain_graph=True)
        assert w.grad is not None
        assert w.grad.item() == 2 + 2 * 3 + 1
