"""Interpolation: gradients, agreement with PyTorch, what is read, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import check_gradient, check_torch, nchw

import alpha
import alpha.nn.functional as F
from alpha import ShapeError

CASES: list[dict[str, Any]] = [
    {"scale_factor": (2.3, 0.6), "mode": "bilinear"},
    {"size": (9, 2), "mode": "bilinear", "align_corners": True},
    {"size": (3, 11), "mode": "bicubic"},
    {"scale_factor": 1.7, "mode": "bicubic", "align_corners": True, "recompute_scale_factor": True},
    {"scale_factor": (1.3, 2.0), "mode": "nearest-exact"},
    {"size": (11, 3), "mode": "nearest"},
    {"size": (4, 9), "mode": "bilinear", "antialias": True},
    {"scale_factor": (1.3, 0.5), "mode": "bicubic", "antialias": True},
    {"scale_factor": (0.3, 0.41), "mode": "bicubic", "antialias": True, "recompute_scale_factor": True},
    {"size": (2, 1), "mode": "bilinear", "antialias": True, "align_corners": True},
]


@pytest.mark.parametrize("given", CASES, ids=str)
def test_gradients(given: dict[str, Any]) -> None:
    check_gradient(lambda x: F.interpolate(x, **given), (2, 6, 5, 3))


@pytest.mark.torch
@pytest.mark.parametrize("given", CASES, ids=str)
def test_as_in_pytorch(device: str, given: dict[str, Any]) -> None:
    functional = pytest.importorskip("torch").nn.functional
    twin = nchw(lambda x: functional.interpolate(x, **given))
    check_torch(lambda x: F.interpolate(x, **given), twin, (2, 6, 5, 4), device=device)


def test_what_is_not_read_does_not_matter(device: str) -> None:
    """A weight of 0 is no product, so that inf stays where it is."""
    x = np.arange(5, dtype=np.float32).reshape(1, 5, 1)
    x[0, 2] = np.inf
    y = F.interpolate(alpha.tensor(x, device=device), 9, mode="linear", align_corners=True).numpy().reshape(-1)
    np.testing.assert_array_equal(y, [0, 0.5, 1, np.inf, np.inf, np.inf, 3, 3.5, 4])


def test_an_axis_that_keeps_its_length_is_copied(device: str) -> None:
    """The factor makes no difference, as in PyTorch on the cpu; an axis that "nearest" doubles is copied, too."""
    x = alpha.tensor(np.array([0.0, 3.0, 5.0], np.float32).reshape(1, 3, 1), device=device)
    for mode, factor, expected in (
        ("nearest", 1.3, [0, 3, 5]),
        ("linear", 1.3, [0, 3, 5]),
        ("nearest", 2.1, [0, 0, 3, 3, 5, 5]),
    ):
        np.testing.assert_array_equal(F.interpolate(x, scale_factor=factor, mode=mode).numpy().reshape(-1), expected)
    square = alpha.tensor(np.random.default_rng(0).standard_normal((1, 6, 6, 1)).astype(np.float32), device=device)
    same = F.interpolate(square, scale_factor=1.1, mode="bicubic", antialias=True)
    np.testing.assert_array_equal(same.numpy(), square.numpy())


@pytest.mark.parametrize("mode", ["nearest", "area", "bilinear", "bicubic"])
def test_a_batch_of_no_images_is_taken(device: str, mode: str) -> None:
    x = alpha.zeros(0, 4, 5, 3, device=device, requires_grad=True)
    y = F.interpolate(x, scale_factor=(2, 3), mode=mode)
    assert y.shape == (0, 8, 15, 3)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    with pytest.raises(ShapeError, match=r"x \(0, 0, 5, 3\) to the lengths \(2, 2\): neither may be empty"):
        F.interpolate(x.reshape(0, 0, 5, 3), 2, mode=mode)


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((1, 4, 4, 3), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"mode='linear' needs x of 3 axes, .*  \(x \(1, 4, 4, 3\)\)"):
        F.interpolate(x, 2, mode="linear")
    with pytest.raises(ShapeError, match=r"x \(1, 4, 4, 3\) to the lengths \(0, 2\)"):
        F.interpolate(x, scale_factor=(0.2, 0.5))
    with pytest.raises(ValueError, match="align_corners=True has no meaning for mode='nearest'"):
        F.interpolate(x, 2, align_corners=True)
    with pytest.raises(ValueError, match=r"needs mode='bilinear' or 'bicubic'  \(mode='area'\)"):
        F.interpolate(x, 2, mode="area", antialias=True)
    with pytest.raises(ValueError, match=r"size=2 and scale_factor=2\.0; one of them is needed"):
        F.interpolate(x, 2, 2.0)
    for value, message in ((0.0, "is not positive"), ((2.0, -1.0), "is not positive"), ((2.0,), "nor 2 of them")):
        with pytest.raises(ValueError, match=rf"^interpolate: scale_factor=.* {message}"):
            F.interpolate(x, scale_factor=value)
    with pytest.raises(ValueError, match=r"^interpolate: mode='linearly' is not one of nearest, "):
        F.interpolate(x, 2, mode="linearly")
    with pytest.raises(ValueError, match=r"^interpolate: recompute_scale_factor=True needs scale_factor, and size is"):
        F.interpolate(x, 2, recompute_scale_factor=True)
