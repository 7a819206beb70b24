"""Reshape, rows, transpose, casts and moves between devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import check_gradient
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, Tensor
from alpha.ops.kernel.broadcasting import broadcast_axes

CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x.reshape(3, 8) * 2.0,
    "reshape -1": lambda x: x.reshape(-1, 2),
    "flatten": lambda x: x.flatten(1),
    "flatten all": lambda x: x.flatten() * x.flatten(0, -1),
    "a row": lambda x: x[2] * 3.0,
    "the last row": lambda x: x[-1],
    "rows": lambda x: x[1:3],
    "rows twice": lambda x: x[1:3] * x[0:2] + x[2:],
    "no rows": lambda x: x[2:2],
    "transpose": lambda x: F.transpose(x.reshape(6, 4), 0, 1) * x.reshape(24).reshape(4, 6).transpose(1, 1),
    "astype": lambda x: x.astype("float64"),
}


NAMES = ("float32", "float64", "int32", "int64", "uint8", "bool")
CASTS = [(n, "float32") for n in NAMES] + [("float32", n) for n in ("int64", "uint8", "bool")]


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    check_gradient(CASES[name], (4, 3, 2))


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_same_on_both_devices(name: str, rng: np.random.Generator) -> None:
    values, grads = rng.standard_normal((4, 3, 2)).astype(np.float32), []
    for device in ("cpu", "cuda"):
        x = alpha.tensor(values, requires_grad=True, device=device)
        y = CASES[name](x)
        y.backward(alpha.tensor(np.ones(y.shape, y.dtype), device=device))
        assert x.grad is not None
        grads.append(x.grad.numpy())
    np.testing.assert_array_equal(grads[0], grads[1])


def test_views_share_memory(device: str) -> None:
    x = alpha.tensor(np.zeros((4, 3), np.float32), device=device)
    view = x[1:3].reshape(6)
    view.add_(1.0)
    np.testing.assert_array_equal(x.numpy().sum(axis=1), [0, 3, 3, 0])


def test_gradients_cross_devices() -> None:
    x = alpha.tensor([1.0, 2.0], requires_grad=True)
    y = (x.to("cuda") * 3.0).to("cpu") * x
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.device.name == "cpu"
    np.testing.assert_array_equal(x.grad.numpy(), [6, 12])


@pytest.mark.parametrize(("source", "target"), CASTS, ids=str)
def test_casts_as_numpy(device: str, source: str, target: str) -> None:
    values = np.array([0, 1, 2, 250, 3], np.float64).astype(source)
    x = alpha.tensor(values, device=device).astype(target)
    assert x.dtype == target
    np.testing.assert_array_equal(x.numpy(), values.astype(target))


def test_pixels_become_floats(device: str) -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(4, 64)
    y = F.normalize_pixels(alpha.tensor(pixels, device=device)).numpy()
    assert y.dtype == np.float32
    assert (y.min(), y.max()) == (-1, 1)
    np.testing.assert_allclose(y, pixels / 127.5 - 1, atol=1e-6)
    with pytest.raises(TypeError, match="uint8 pixels are needed, not float32"):
        F.normalize_pixels(alpha.tensor([1.0], device=device))


def test_axes_of_a_broadcast_are_merged() -> None:
    assert broadcast_axes((4, 1, 1, 8), (4, 5, 6, 8)) == [(4, 8), (30, 0), (8, 1)]
    assert broadcast_axes((3, 4), (2, 3, 4)) == [(2, 0), (12, 1)]
    assert broadcast_axes((1,), (5, 6)) == [(30, 0)]
    assert broadcast_axes((2, 3), (2, 3)) == [(6, 1)]
    assert broadcast_axes((), (1, 1)) == [(1, 0)]


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((4, 3), np.float32), device=device)
    for shape in ((5, 3), (-1, 5), (-1, -1), (0, -1)):
        with pytest.raises(ShapeError, match=r"reshape: 12 elements of shape \(4, 3\) do not fit"):
            x.reshape(shape)
    with pytest.raises(ShapeError, match=r"transpose: 1 is not an axis of shape \(4,\)"):
        F.transpose(alpha.tensor(np.zeros(4, np.float32), device=device), 0, 1)
    with pytest.raises(ShapeError, match=r"unflatten: sizes=\(2, 3\) do not fit axis 1 of shape \(1, 4, 4, 3\)"):
        F.unflatten(alpha.zeros(1, 4, 4, 3, device=device), 1, (2, 3))


@pytest.mark.parametrize("shape", [(-2, -2), (-2, 2), (2, -3), (-1, -1), (3,), (0, -1), (-4,)], ids=str)
def test_lengths_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    x = alpha.zeros(4)
    for call in (lambda: x.reshape(shape), lambda: F.reshape(x, shape), lambda: x.view(*shape)):
        with pytest.raises(
            ShapeError, match=rf"^reshape: 4 elements of shape \(4,\) do not fit {re.escape(str(shape))}"
        ):
            call()


def test_a_length_that_follows_from_the_others(device: str) -> None:
    """The number of all elements does not tell it if another axis has none."""
    for N in (2, 0):
        x = alpha.zeros(N, 6, 3, device=device)
        assert x.unflatten(1, (2, -1)).shape == (N, 2, 3, 3)
        assert x.unflatten(-2, (-1, 6)).shape == (N, 1, 6, 3)
    assert alpha.zeros(0, 3, device=device).unflatten(0, (-1, 5)).shape == (0, 5, 3)


def test_axes_that_do_not_fit_are_refused() -> None:
    x = alpha.zeros(2, 3)
    wrong: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: x.flip((0, -2)), ShapeError, r"flip: dims=\(0, -2\) name an axis of shape \(2, 3\) twice"),
        (lambda: x.flip(2), ShapeError, r"flip: 2 is not an axis of shape \(2, 3\); only -2 to 1"),
        (lambda: x.flip(0.5), TypeError, "flip: dims=0.5 is not an integer"),
        (lambda: x.flip((2, 0.5)), TypeError, "flip: dims=0.5 is not an integer"),
        (lambda: x.permute(0), ShapeError, r"permute: dims=\(0,\) are not the axes of shape \(2, 3\)"),
        (lambda: F.permute(x, 0), TypeError, "permute: dims=0 is not a tuple of integers"),
        (lambda: x.transpose(0, "1"), TypeError, "transpose: dim1='1' is not an integer"),
        (lambda: x.transpose("0", 1), TypeError, "transpose: dim0='0' is not an integer"),
        (lambda: x.swapaxes(0, "1"), TypeError, "swapaxes: axis1='1' is not an integer"),
        (lambda: x.swapaxes("0", 1), TypeError, "swapaxes: axis0='0' is not an integer"),
        (
            lambda: x.movedim((0, 1), 0),
            ShapeError,
            r"movedim: source=\(0, 1\) and destination=0 name different numbers",
        ),
        (lambda: x.movedim("0", 0), TypeError, "movedim: source='0' is not an integer"),
        (lambda: x.movedim(0, "0"), TypeError, "movedim: destination='0' is not an integer"),
        (lambda: x.squeeze("0"), TypeError, "squeeze: dim='0' is not an integer"),
        (lambda: x.unsqueeze(3), ShapeError, r"unsqueeze: 3 is not an axis of shape \(2, 3\); only -3 to 2"),
        (lambda: x.expand(3), ShapeError, r"expand: shape \(2, 3\) does not expand to \(3,\)"),
        (lambda: x.expand(-1, 2, 3), ShapeError, r"expand: shape \(2, 3\) does not expand to \(-1, 2, 3\)"),
        (lambda: x.repeat(2), ShapeError, r"repeat: 1 numbers \(2,\) for the 2 axes of shape \(2, 3\)"),
        (lambda: x.tile(("2",)), TypeError, "tile: dims='2' is not an integer"),
        (lambda: x.rot90(1, (0,)), ShapeError, r"rot90: two axes are needed, not dims=\(0,\)"),
        (lambda: x.roll((1, 2)), ShapeError, r"roll: dims are needed for the 2 numbers of shifts=\(1, 2\)"),
        (lambda: x.roll((1, 2), 0), ShapeError, "roll: 2 numbers of shifts=.* for 1 axes of dims=0"),
        (lambda: alpha.tensor(0.0).unflatten(0, (1,)), ShapeError, r"unflatten: 0 is not an axis of shape \(\)"),
        *(
            (
                lambda sizes=sizes: x.unflatten(1, sizes),
                ShapeError,
                rf"unflatten: sizes={re.escape(str(sizes))} do not fit",
            )
            for sizes in ((2,), (), (0, -1), (2, -1), (-1, -1), (-1, -1, 1), (3, 0), (1, 4), (4, -1), (1, 1))
        ),
        (lambda: x.unflatten(1, (-2,)), ValueError, "unflatten: sizes=-2 must be at least -1"),
    ]
    with trials() as trial:
        for call, error, message in wrong:
            with trial(message), pytest.raises(error, match=rf"^{message}"):
                call()
