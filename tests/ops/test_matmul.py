"""Matrix products: gradients, transposes, batches, agreement with PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import check_gradient, check_torch

import alpha
import alpha.nn.functional as F
from alpha import ShapeError

SHAPES = [
    ((3, 4), (4, 5)), ((1, 1), (1, 1)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 2, 3, 4), (2, 2, 4, 1)),
    ((2, 2, 3, 4), (4, 3)), ((1, 7), (7, 1)), ((1, 3, 4), (1, 4, 2)),
]  # fmt: skip
LINEAR = [
    ((5, 3), (4, 3), (4,)),
    ((2, 3, 6), (2, 6), (2,)),
    ((7,), (3, 7), (3,)),
    ((130, 36), (65, 36), (65,)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul_gradients(shapes: tuple[tuple[int, ...], ...]) -> None:
    check_gradient(lambda a, b: a @ b, *shapes)


@pytest.mark.parametrize("shapes", LINEAR[:3], ids=str)
def test_linear_gradients(shapes: tuple[tuple[int, ...], ...]) -> None:
    check_gradient(F.linear, *shapes)
    check_gradient(F.linear, *shapes[:2])


@pytest.mark.torch
@pytest.mark.parametrize(
    "shapes", [*SHAPES, ((300, 70), (70, 130)), ((5, 2000), (2000, 6))], ids=str
)
def test_matmul_as_in_pytorch(device: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    check_torch(lambda a, b: a @ b, lambda a, b: a @ b, *shapes, device=device, length=2000)


@pytest.mark.torch
@pytest.mark.parametrize("shapes", LINEAR, ids=str)
def test_linear_as_in_pytorch(device: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    torch = pytest.importorskip("torch")
    check_torch(F.linear, torch.nn.functional.linear, *shapes, device=device)
    check_torch(F.linear, torch.nn.functional.linear, *shapes[:2], device=device)


@pytest.mark.parametrize(
    ("a", "b"), [((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0)), ((0, 3, 4), (4, 2))]
)
def test_empty(device: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = (alpha.tensor(np.ones(s, np.float32), requires_grad=True, device=device) for s in (a, b))
    z = x @ y
    np.testing.assert_array_equal(z.numpy(), np.ones(a, np.float32) @ np.ones(b, np.float32))
    z.sum().backward()
    for leaf in (x, y):
        assert leaf.grad is not None
        assert leaf.grad.shape == leaf.shape
        assert not leaf.grad.numpy().any()


def test_errors(device: str) -> None:
    def ones(*shape: int) -> alpha.Tensor:
        return alpha.tensor(np.ones(shape, np.float32), device=device)

    with pytest.raises(ShapeError, match=r"matmul: .*  \(a \(2, 3\), b \(4, 5\)\)"):
        ones(2, 3) @ ones(4, 5)
    with pytest.raises(
        ShapeError, match=r"matmul: the batch axes differ  \(a \(2, 3, 4\), b \(3, 4, 5\)\)"
    ):
        ones(2, 3, 4) @ ones(3, 4, 5)
    with pytest.raises(ShapeError, match="linear: x has 3 features but weight expects 4"):
        F.linear(ones(2, 3), ones(5, 4))
    with pytest.raises(
        ShapeError, match=r"linear: bias has shape \(4,\), weight \(5, 3\) needs \(5,\)"
    ):
        F.linear(ones(2, 3), ones(5, 3), ones(4))
    if device == "cuda":
        with pytest.raises(TypeError, match="matmul: cuda computes in float32, not float64"):
            alpha.tensor(np.ones((2, 2)), device=device) @ alpha.tensor(
                np.ones((2, 2)), device=device
            )
