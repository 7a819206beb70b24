"""Elements that are combined at places: sums, products, means and extremes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import check_gradient

import alpha

_rng = np.random.default_rng(0)
NAN, INF = np.nan, np.inf
FOLDS = ("sum", "prod", "mean", "amax", "amin")
INDEX = np.array([[0, 1, 0, 2, 0], [0, 1, 1, 1, 2], [2, 0, 0, 0, 0]])


@pytest.mark.torch
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("fold", FOLDS)
def test_combined_elements(device: str, fold: str, include_self: bool) -> None:
    torch = pytest.importorskip("torch")
    x, src = np.round(_rng.standard_normal((4, 5))), np.round(_rng.standard_normal((3, 5)))
    src[1, 1], src[2, 0] = 0, 0
    # no element of x is one of src: PyTorch counts such a one even if it does not take part
    x, src = (x + np.arange(1, 21).reshape(4, 5) / 61).astype(np.float32), (src + (src != 0) / 8).astype(np.float32)
    g = _rng.standard_normal((4, 5)).astype(np.float32)
    ours = [alpha.tensor(a, device=device, requires_grad=True) for a in (x, src)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (x, src)]
    y = ours[0].scatter_reduce(0, alpha.tensor(INDEX, device=device), ours[1], fold, include_self=include_self)
    expected = theirs[0].scatter_reduce(0, torch.tensor(INDEX), theirs[1], fold, include_self=include_self)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-6)
    y.backward(alpha.tensor(g, device=device))
    expected.backward(torch.tensor(g))
    for mine, their in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        np.testing.assert_allclose(mine.grad.numpy(), their.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fold", FOLDS)
def test_gradients_of_combined_elements(fold: str) -> None:
    values = (np.random.default_rng(2).permutation(35) - 17.5) / 10
    index = alpha.tensor(INDEX)
    for dim, include_self in ((0, True), (1, False)):
        check_gradient(
            lambda x, src, d=dim, i=include_self: x.scatter_reduce(d, index, src, fold, include_self=i),
            values[:20].reshape(4, 5),
            values[20:].reshape(3, 5),
        )


def test_equal_extremes_share_the_gradient(device: str) -> None:
    x = alpha.tensor([2.0, 5.0], device=device, requires_grad=True)
    src = alpha.tensor([2.0, 2.0, 1.0, 5.0], device=device, requires_grad=True)
    y = x.scatter_reduce(0, alpha.tensor([0, 0, 0, 1], device=device), src, "amax")
    y.backward(alpha.tensor([6.0, 8.0], device=device))
    assert x.grad is not None
    assert src.grad is not None
    assert (x.grad.tolist(), src.grad.tolist()) == ([2, 4], [2, 2, 0, 4])


def test_combined_integers_and_nan(device: str) -> None:
    index = alpha.tensor([0, 0, 1, 1], device=device)
    for dtype, expected in (("int64", [7, -9]), ("int32", [7, -9]), ("bfloat16", [7, -9])):
        x = alpha.tensor([1, -9], device=device).astype(dtype)
        src = alpha.tensor([3, 7, -20, -10], device=device).astype(dtype)
        assert x.scatter_reduce(0, index, src, "amax").tolist() == expected
        assert x.scatter_reduce(0, index, src, "amin", include_self=False).tolist() == [3, -20]
        assert x.scatter_reduce(0, index, src, "prod", include_self=False).tolist() == [21, 200]
    assert x.long().scatter_reduce(0, index, src.long(), "mean").tolist() == [3, -13]
    found = alpha.zeros(2, device=device).scatter_reduce(
        0, index, alpha.tensor([1, NAN, 2, 3.0], device=device), "amin"
    )
    np.testing.assert_array_equal(found.numpy(), [NAN, 0])
    with pytest.raises(ValueError, match="scatter_reduce: reduce='max' is not one of sum, prod, mean, amax, amin"):
        x.scatter_reduce(0, index, src, "max")
