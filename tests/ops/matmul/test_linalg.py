"""`alpha.linalg` against numpy, and its refusals; `make parity` runs PyTorch's samples of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import linalg
from alpha.errors import ShapeError


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("ord", ["fro", 1, -1, np.inf, -np.inf])
@pytest.mark.parametrize("dim", [(-2, -1), (2, 0), (0, 1)])
def test_norms_of_matrices(device: str, ord: Any, dim: tuple[int, int], keepdim: bool) -> None:
    A = drawn(3, 4, 5)
    x = alpha.tensor(A, device=device)
    expected = np.linalg.norm(A, ord, dim, keepdim)
    for found in (linalg.matrix_norm(x, ord, dim, keepdim), linalg.norm(x, ord, dim, keepdim)):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("ord", [0, 1, 2, 3.5, np.inf, -np.inf])
def test_norms_of_vectors(device: str, ord: float) -> None:
    A = drawn(3, 4)
    x = alpha.tensor(A, device=device)
    for found in (linalg.vector_norm(x, ord, 0, True), linalg.norm(x, ord, 0, True)):
        np.testing.assert_allclose(found.numpy(), np.linalg.norm(A, ord, 0, True), rtol=1e-5)
    np.testing.assert_allclose(linalg.vector_norm(x, ord).item(), np.linalg.norm(A.ravel(), ord), rtol=1e-5)


def test_a_norm_without_an_order_is_euclidean_over_any_axes(device: str) -> None:
    A = drawn(3, 4, 5)
    x = alpha.tensor(A, device=device)
    np.testing.assert_allclose(linalg.norm(x).item(), np.linalg.norm(A), rtol=1e-5)
    np.testing.assert_allclose(linalg.norm(x, dim=(0, 2)).numpy(), np.linalg.norm(A, axis=(0, 2)), rtol=1e-5)
    assert linalg.norm(x, dtype=alpha.float64 if device == "cpu" else None).dtype == (
        np.float64 if device == "cpu" else np.float32
    )


def test_products(device: str) -> None:
    a, b = drawn(4, 1, 3), drawn(2, 3)
    x, y = (alpha.tensor(v, device=device) for v in (a, b))
    np.testing.assert_allclose(linalg.vecdot(x, y).numpy(), (a * b).sum(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(linalg.vecdot(y, y, dim=0).numpy(), (b * b).sum(0), rtol=1e-5)
    np.testing.assert_allclose(linalg.cross(y, y.flip(0)).numpy(), np.cross(b, b[::-1]), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(linalg.diagonal(x, offset=1).numpy(), np.diagonal(a, 1, -2, -1))


@pytest.mark.parametrize("shapes", [[(2, 9), (9, 3)], [(9, 2), (2, 9), (9, 1)], [(3,), (3, 5), (5, 2), (2,)]])
def test_a_chain_of_products(device: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [drawn(*shape) for shape in shapes]
    tensors = [alpha.tensor(v, device=device, requires_grad=True) for v in arrays]
    result = linalg.multi_dot(tensors)
    expected = np.linalg.multi_dot(arrays)
    assert result.shape == np.shape(expected)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)
    result.sum().backward()
    assert all(v.grad is not None and v.grad.shape == v.shape for v in tensors)


def test_a_chain_takes_the_order_of_the_fewest_products(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    product = linalg.matmul
    monkeypatch.setattr(linalg, "unchecked", lambda f: lambda a, b: seen.append((a.shape, b.shape)) or product(a, b))
    linalg.multi_dot([alpha.ones(10, 100), alpha.ones(100, 5), alpha.ones(5, 50)])
    assert seen == [((10, 100), (100, 5)), ((10, 5), (5, 50))]
    seen.clear()
    linalg.multi_dot([alpha.ones(50, 5), alpha.ones(5, 100), alpha.ones(100, 10)])
    assert seen == [((5, 100), (100, 10)), ((50, 5), (5, 10))]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: linalg.matrix_norm(x, 2), ValueError, "ord=2 needs singular values"),
        (lambda x: linalg.norm(x[0], "nuc"), ValueError, "ord='nuc' needs singular values"),
        (lambda x: linalg.matrix_norm(x, 3), ValueError, "ord=3 is not one of 'fro', 1, -1, inf, -inf"),
        (
            lambda x: linalg.matrix_norm(x, dim=(0,)),
            ShapeError,
            r"dim=\(0,\) does not name two axes  \(A \(2, 3, 4\)\)",
        ),
        (lambda x: linalg.norm(x, 1), ShapeError, "ord=1 is for one axis or two, not 3"),
        (lambda x: linalg.norm(x, "fro", 0), ValueError, "ord='fro' is for matrices, dim=0 names one axis"),
        (lambda x: linalg.vector_norm(x, "fro"), TypeError, "ord='fro' is not a number"),
        (lambda x: linalg.multi_dot([x[0]]), ShapeError, "two matrices or more are needed"),
        (lambda x: linalg.multi_dot([x[0], x[1]]), ShapeError, r"rows of the next one: \(3, 4\), \(3, 4\)"),
        (lambda x: linalg.multi_dot([x, x[0]]), ShapeError, "of which the outer ones may be vectors"),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(alpha.ones(2, 3, 4))
