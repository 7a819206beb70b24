"""Functions that are composed of others: what they refuse, and cases that the rows in tests/rows/ do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.integrate import trapezoid

import alpha
from alpha import ShapeError, Tensor

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def test_copies_with_a_part_leave_x_and_share_no_memory(device: str) -> None:
    x = alpha.tensor(X, device=device, requires_grad=True)
    src = alpha.tensor(np.full(4, 9.0, np.float32), device=device, requires_grad=True)
    y = x.select_scatter(src, 0, -1)
    np.testing.assert_array_equal(y.numpy(), np.vstack([X[:2], [[9] * 4]]))
    (y * y).sum().backward()
    assert x.grad is not None
    assert src.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.vstack([2 * X[:2], [[0] * 4]]))
    np.testing.assert_array_equal(src.grad.numpy(), 18)
    np.testing.assert_array_equal(x.numpy(), X)
    whole = alpha.tensor(X, device=device)
    part = whole.narrow_copy(0, 1, 2)
    part.zero_()
    np.testing.assert_array_equal(whole.numpy(), X)
    every = whole.slice_scatter(alpha.zeros(3, 2, device=device), 1, step=2)
    np.testing.assert_array_equal(every.numpy()[:, ::2], 0)
    np.testing.assert_array_equal(every.numpy()[:, 1::2], X[:, 1::2])
    of_integers = alpha.ones(2, 2, dtype="int64", device=device).diagonal_scatter(alpha.zeros(2, device=device))
    assert of_integers.tolist() == [[0, 1], [1, 0]]
    assert of_integers.dtype.name == "int64"


def test_powers_of_matrices(device: str) -> None:
    x = alpha.tensor(X[:, :3] / 4, device=device)
    for n in (0, 1, 2, 5, 6):
        expected = np.linalg.matrix_power(x.numpy().astype(np.float64), n)
        np.testing.assert_allclose(x.matrix_power(n).numpy(), expected, rtol=1e-4, atol=1e-3)
    first = x.matrix_power(1)
    first.zero_()
    assert x.numpy().any()
    nothing = alpha.full((2, 3, 3), np.nan, device=device, requires_grad=True).matrix_power(0)
    np.testing.assert_array_equal(nothing.numpy(), np.stack([np.eye(3)] * 2))
    assert nothing.requires_grad


def test_covariances_with_weights(device: str) -> None:
    counts, weights = np.array([1, 2, 0, 3]), np.array([0.5, 1.0, 2.0, 0.25], np.float32)
    x = alpha.tensor(X * X, device=device)
    given = {"fweights": alpha.tensor(counts, device=device), "aweights": alpha.tensor(weights, device=device)}
    for names in ((), ("fweights",), ("aweights",), ("fweights", "aweights")):
        for correction in (0, 1):
            numpys = {"fweights": counts, "aweights": weights}
            expected = np.cov(X * X, ddof=correction, **{name: numpys[name] for name in names})
            found = x.cov(correction=correction, **{name: given[name] for name in names})
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-3)
    assert x[0].cov().shape == x[0].corrcoef().shape == ()


def test_integrals(device: str) -> None:
    x = alpha.tensor(X, device=device)
    places = alpha.tensor(np.array([0.0, 1.0, 3.0, 4.5], np.float32), device=device)
    np.testing.assert_allclose(alpha.trapezoid(x, places).numpy(), trapezoid(X, places.numpy()), rtol=1e-6)
    np.testing.assert_allclose(alpha.trapz(x, dx=0.5, dim=0).numpy(), trapezoid(X, dx=0.5, axis=0), rtol=1e-6)
    grid = alpha.tensor(np.sort(np.abs(X), axis=1), device=device)
    np.testing.assert_allclose(alpha.trapezoid(x, grid).numpy(), trapezoid(X, grid.numpy()), rtol=1e-5)
    up_to = alpha.cumulative_trapezoid(x, places)
    assert up_to.shape == (3, 3)
    np.testing.assert_allclose(up_to.numpy()[:, -1], trapezoid(X, places.numpy()), rtol=1e-6)
    assert alpha.trapezoid(x[:, :1]).tolist() == [0, 0, 0]


def test_norms_that_are_limited(device: str) -> None:
    x = alpha.tensor(X, device=device)
    y = x.renorm(2, 0, 6.0)
    norms = np.linalg.norm(X, axis=1)
    np.testing.assert_allclose(y.numpy(), X * np.minimum(1, 6 / norms)[:, None], rtol=1e-5)
    assert x.renorm_(2, 0, 6.0) is x
    np.testing.assert_array_equal(x.numpy(), y.numpy())
    assert alpha.dist(x, x, float("inf")).item() == 0


def test_vander(device: str) -> None:
    x = alpha.tensor([1, 2, 3], device=device)
    for count, increasing in ((None, False), (2, True), (0, False), (5, True)):
        found = alpha.vander(x, count, increasing)
        np.testing.assert_array_equal(found.numpy(), np.vander([1, 2, 3], count, increasing))
        assert found.dtype.name == "int64"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.select_scatter(x, 0, 1), ShapeError, r"select_scatter: src has shape \(3, 4\), the part of x"),
        (lambda x: x.select_scatter(x[0], 0, 3), IndexError, "select_scatter: index=3 is out of range for axis 0"),
        (lambda x: x.slice_scatter(x, step=0), ValueError, "slice_scatter: step=0 must be at least 1"),
        (lambda x: x.slice_scatter(x, end=1), ShapeError, r"slice_scatter: src has shape \(3, 4\), the part"),
        (lambda x: x.diagonal_scatter(x), ShapeError, r"diagonal_scatter: src has shape \(3, 4\), the part"),
        (lambda x: x.diagonal_scatter(x, dim1=1), ShapeError, "diagonal_scatter: dim1 and dim2 are both axis 1"),
        (lambda x: x.hsplit(3), ShapeError, r"hsplit: axis 1 of shape \(3, 4\) does not divide into 3 parts"),
        (lambda x: x.sum().hsplit(1), ShapeError, "hsplit: x has 0 axes, at least 1 are needed"),
        (lambda x: x[0].vsplit(2), ShapeError, "vsplit: x has 1 axes, at least 2 are needed"),
        (lambda x: x.dsplit(2), ShapeError, "dsplit: x has 2 axes, at least 3 are needed"),
        (lambda x: x.split_with_sizes([1, 1]), ShapeError, r"split_with_sizes: \(1, 1\) do not add up to 3, axis 0"),
        (lambda x: x[0].adjoint(), ShapeError, r"adjoint: x \(.., M, N\) is needed  \(x \(4,\)\)"),
        (lambda x: x.addr(x, x[0]), ShapeError, r"addr: vec1 \(M,\) and vec2 \(N,\) are needed"),
        (lambda x: x.addbmm(x, x), ShapeError, r"addbmm: batch1 \(D, M, K\) and batch2 \(D, K, N\) are needed"),
        (lambda x: x.matrix_power(2), ShapeError, r"matrix_power: x \(.., M, M\) is needed"),
        (lambda x: x[:, :3].matrix_power(-1), ValueError, "matrix_power: n=-1 is below 0; inverses are not offered"),
        (lambda x: x[:, :3].matrix_power(0.5), TypeError, "matrix_power: n=0.5 is not an integer"),
        (lambda x: x.reshape(3, 2, 2).cov(), ShapeError, r"cov: x \(V, N\) or \(N,\) is needed"),
        (lambda x: x.cov(fweights=x[0]), ValueError, "cov: fweights has a negative weight"),
        (lambda x: x.cov(fweights=x[0].abs()), TypeError, "cov: fweights has dtype float32; int64 or int32"),
        (lambda x: x.cov(aweights=x), ShapeError, r"cov: aweights \(4,\) is needed"),
        (lambda x: x.reshape(3, 2, 2).corrcoef(), ShapeError, r"corrcoef: x \(V, N\) or"),
        (alpha.vander, ShapeError, r"vander: a vector x \(M,\) is needed"),
        (lambda x: alpha.trapezoid(x, x[0], dx=1.0), ValueError, "trapezoid: x and dx=1.0 are given; give one of them"),
        (lambda x: alpha.trapz(x, x[0, :3]), ShapeError, r"trapezoid: x \(3,\) has not the places of y \(3, 4\)"),
        (lambda x: alpha.trapezoid(x.sum()), ShapeError, "trapezoid: y has no axis"),
        (lambda x: x.renorm(0, 0, 1.0), ValueError, "renorm: p=0.0 must be above 0 and maxnorm=1.0 at least 0"),
        (lambda x: x[0].renorm(2, 0, 1.0), ShapeError, "renorm: x of at least two axes is needed"),
    ],
)
def test_what_is_refused(call: Callable[[Tensor], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(alpha.tensor(X))
