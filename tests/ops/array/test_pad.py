"""Padding of the last axes: PyTorch's values and gradients, refusals, a warning about images."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import check_equal_torch, normal_numbers

import alpha
import alpha.nn.functional as F
from alpha import ShapeError


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("numbers_", [(1, 2), (0, 1, 2, 0), (-1, 1, -2, 1), (-1, -1, 2, -1), (4, 0, 0, 3)], ids=str)
def test_padding(device: str, mode: str, numbers_: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    x = normal_numbers(2, 3, 6) if len(numbers_) == 2 else normal_numbers(2, 3, 5, 6)
    check_equal_torch(
        lambda x: F.pad(x, numbers_, mode), lambda x: torch.nn.functional.pad(x, numbers_, mode), device, x
    )


def test_padding_that_would_surround_a_map_of_pytorch_warns() -> None:
    images = alpha.ones(2, 5, 6, 3)
    with pytest.warns(UserWarning, match=r"adds 1 channels on both sides of the images \(2, 5, 6, 3\), which are NHWC"):
        F.pad(images, (1, 1, 2, 2))
    assert F.pad(images, (0, 0, 1, 1, 2, 2)).shape == (2, 9, 8, 3)
    for x, pad in (
        (alpha.ones(2, 5, 6, 8), (1, 1, 2, 2)),
        (images, (0, 1, 0, 1)),
        (images, (0, 0, 1, 1)),
        (images, (1, 1)),
    ):
        F.pad(x, pad)  # scores of an attention, or one axis


def test_padding_that_does_not_fit_is_refused() -> None:
    x = alpha.ones(3, 4)
    wrong: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        (((1, 1), "mirror"), ValueError, "mode='mirror' is not one of constant, reflect, replicate, circular"),
        (((1, 1, 1),), ShapeError, r"pad=\(1, 1, 1\) must be pairs, one for each of the last axes of shape \(3, 4\)"),
        (((1,) * 6,), ShapeError, r"pad=\(1, 1, 1, 1, 1, 1\) must be pairs"),
        (((1, 1), "constant", "0"), TypeError, "value='0' is not a number"),
        (((1, 1), "reflect", 0.0), ValueError, "value=0.0 is for mode='constant', not for mode='reflect'"),
        (((-3, -2),), ShapeError, r"axis 1 of shape \(3, 4\) is shorter than -3 and -2 take away"),
        (((0, 4), "reflect"), ShapeError, "0 and 4 do not fit axis 1 .* mode='reflect'; each may be at most 3"),
        (((5, 0), "circular"), ShapeError, "5 and 0 do not fit axis 1 .* mode='circular'; each may be at most 4"),
        (((-5, 0), "replicate"), ShapeError, "-5 and 0 do not fit axis 1"),
    ]
    for given, error, message in wrong:
        with pytest.raises(error, match=rf"^pad: {message}"):
            F.pad(x, *given)
    with pytest.raises(ShapeError, match=r"^pad: .* mode='replicate'; each may be at most 0"):
        F.pad(alpha.ones(3, 0), (1, 0), "replicate")
    for given in (((-2, -2),), ((3, 3), "reflect"), ((4, 4), "circular"), ((-4, 0), "replicate")):  # just so
        F.pad(x, *given)
