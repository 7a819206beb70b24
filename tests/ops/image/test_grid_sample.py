"""Images read at places: values by hand, places outside, gradients that meet, dtypes, and what is refused."""

from __future__ import annotations

from itertools import islice, product
from typing import Any

import numpy as np
import pytest
from helpers import assert_close
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import ShapeError

RAMP = np.arange(12, dtype=np.float32).reshape(1, 3, 4, 1)  # pixel (y, x) is 4 y + x


def at(x: np.ndarray, places: Any, device: str = "cpu", **options: Any) -> np.ndarray:
    """The numbers at places (x, y) of an image of one channel."""
    grid = np.asarray(places, np.float32).reshape(1, 1, -1, 2)
    y = F.grid_sample(alpha.tensor(x, device=device), alpha.tensor(grid, device=device), **options)
    return y.numpy().reshape(-1)


def pixel(x: float, y: float, align_corners: bool = False, size: tuple[int, int] = (3, 4)) -> tuple[float, float]:
    """The place of a pixel, or of a point between pixels, in a grid."""
    H, W = size
    if align_corners:
        return 2 * x / (W - 1) - 1, 2 * y / (H - 1) - 1
    return (2 * x + 1) / W - 1, (2 * y + 1) / H - 1


@pytest.mark.parametrize("align_corners", [False, True])
def test_pixels_and_points_between_them(device: str, align_corners: bool) -> None:
    places = [pixel(x, y, align_corners) for x, y in ((0, 0), (3, 2), (1.5, 1), (2, 0.25))]
    found = at(RAMP, places, device, align_corners=align_corners)
    np.testing.assert_allclose(found, [0, 11, 5.5, 3], rtol=1e-6, atol=1e-6)
    nearest = at(
        RAMP, [*places[:2], pixel(1.4, 0.6, align_corners)], device, mode="nearest", align_corners=align_corners
    )
    np.testing.assert_array_equal(nearest, [0, 11, 5])


def test_the_ways_to_pad(device: str) -> None:
    """One pixel and two and a half pixels left of the image, in row 0: reflected about the edge, or about pixel 0."""
    for align_corners, mirrored in ((False, [0, 1.5]), (True, [1, 2.5])):
        places = [pixel(x, 0, align_corners) for x in (-1, -2.5)]
        options = {"device": device, "align_corners": align_corners}
        for x, padding_mode, expected in (
            (RAMP + 1, "zeros", [0, 0]),
            (RAMP + 1, "border", [1, 1]),
            (RAMP, "reflection", mirrored),
        ):
            found = at(x, places, padding_mode=padding_mode, **options)
            np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=padding_mode)


def test_zeros_beside_the_image_count(device: str) -> None:
    """Half a pixel outside, half of the sample is the zero there."""
    assert at(RAMP + 1, [pixel(-0.5, 0)], device) == pytest.approx([0.5])


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places_that_are_no_numbers_read_zero(device: str, mode: str) -> None:
    """Numbers beyond the largest integer read zero, too."""
    places = [(np.nan, 0), (0, np.inf), (-np.inf, 0), (1e30, 0), (3e38, -3e38)]
    with np.errstate(all="ignore"):
        assert not at(RAMP + 1, places, device, mode=mode).any()


def test_gradients_that_meet_at_a_pixel_add_up(device: str) -> None:
    """Every sample reads pixel (1, 1); a sum that lost one of them, or added in the order of arrival, would show."""
    grid = np.broadcast_to(np.array(pixel(1, 1), np.float32), (1, 9, 7, 2)).copy()
    x = alpha.tensor(RAMP, device=device, requires_grad=True)
    y = F.grid_sample(x, alpha.tensor(grid, device=device), mode="nearest")
    y.backward(alpha.tensor(np.arange(63, dtype=np.float32).reshape(y.shape), device=device))
    expected = np.zeros_like(RAMP)
    expected[0, 1, 1] = 63 * 31
    np.testing.assert_array_equal(x.grad.numpy(), expected)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("device", "share"), [("cpu", 1), ("cuda", 5), pytest.param("cuda", 1, marks=pytest.mark.gate)]
)
def test_as_pytorch(device: str, share: int, rng: np.random.Generator) -> None:
    """All kinds, or a share of them: each is a kernel to compile."""
    torch = pytest.importorskip("torch")
    dtype = "float64" if device == "cpu" else "float32"
    kinds = product((2, 3), ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True))
    with trials() as trial:
        for rank, mode, padding_mode, align_corners in islice(kinds, 0, None, share):
            if rank == 3 and mode == "bicubic":
                continue
            with trial(rank, mode, padding_mode, align_corners):
                x = rng.standard_normal((2, *(5, 4, 6)[-rank:], 3)).astype(dtype)
                grid = rng.uniform(-2.5, 2.5, (2, *(3, 5, 2)[-rank:], rank)).astype(dtype)
                dy = rng.standard_normal((*grid.shape[:-1], 3)).astype(dtype)
                theirs = [torch.tensor(np.moveaxis(x, -1, 1).copy()), torch.tensor(grid)]
                ours = [alpha.tensor(values, device=device, dtype=dtype) for values in (x, grid)]
                for tensor in (*theirs, *ours):
                    tensor.requires_grad_()
                options = mode, padding_mode, align_corners
                there = torch.nn.functional.grid_sample(*theirs, *options)
                there.backward(torch.tensor(np.moveaxis(dy, -1, 1).copy()))
                here = F.grid_sample(*ours, *options)
                here.backward(alpha.tensor(dy, device=device, dtype=dtype))
                pairs = [(here, there.detach().movedim(1, -1)), (ours[0].grad, theirs[0].grad.movedim(1, -1))]
                for found, expected in (*pairs, (ours[1].grad, theirs[1].grad)):
                    tolerance = 1e-10 if dtype == "float64" else 2e-4
                    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)


# -- dtypes -----------------------------------------------------------------------------------------


def test_a_bfloat16_image_has_its_places_in_float32(device: str, rng: np.random.Generator) -> None:
    """Places in bfloat16 would be off by a quarter of a pixel in an image of 128."""
    x = rng.standard_normal((1, 128, 128, 2)).astype(np.float32)
    grid = rng.uniform(-1, 1, (1, 9, 8, 2)).astype(np.float32)
    image = alpha.tensor(x, device=device, dtype="bfloat16")
    y = F.grid_sample(image, alpha.tensor(grid, device=device))
    assert y.dtype.name == "bfloat16"
    wide = F.grid_sample(image.astype("float32"), alpha.tensor(grid, device=device)).numpy()
    np.testing.assert_allclose(y.numpy().astype(np.float32), wide, rtol=2.0**-8, atol=1e-6)


def test_the_grid_of_a_bfloat16_image_may_be_bfloat16(device: str) -> None:
    x = alpha.tensor(RAMP, device=device, dtype="bfloat16", requires_grad=True)
    grid = alpha.tensor(np.full((1, 2, 2, 2), 0.3), device=device, dtype="bfloat16", requires_grad=True)
    F.grid_sample(x, grid).sum().backward()
    assert x.grad.dtype.name == grid.grad.dtype.name == "bfloat16"


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_an_affine_grid_does_not_depend_on_the_precision_of_products(precision: str) -> None:
    theta = np.array([[[0.7, -0.3, 0.123456], [0.2, 1.1, -0.654321]]], np.float32)
    with alpha.precision(precision):
        grid = F.affine_grid(alpha.tensor(theta, device="cuda"), (1, 5, 6, 3)).numpy()
    expected = F.affine_grid(alpha.tensor(theta.astype(np.float64)), (1, 5, 6, 3)).numpy()
    assert_close(grid, expected.astype(np.float32), 3, precision)


def test_the_identity_maps_an_image_onto_itself(device: str, rng: np.random.Generator) -> None:
    x = alpha.tensor(rng.standard_normal((2, 5, 6, 3)), device=device, dtype="float32")
    theta = alpha.tensor(np.tile(np.eye(2, 3, dtype=np.float32), (2, 1, 1)), device=device)
    for align_corners in (False, True):
        grid = F.affine_grid(theta, x.shape, align_corners)
        y = F.grid_sample(x, grid, "nearest", align_corners=align_corners)
        np.testing.assert_array_equal(y.numpy(), x.numpy())


# -- empty and refused ------------------------------------------------------------------------------


def test_no_images_and_no_samples(device: str) -> None:
    for N, OH, C in ((0, 2, 3), (2, 0, 3), (2, 2, 0)):
        x = alpha.zeros(N, 4, 5, C, device=device, requires_grad=True)
        grid = alpha.zeros(N, OH, 3, 2, device=device, requires_grad=True)
        y = F.grid_sample(x, grid)
        assert y.shape == (N, OH, 3, C)
        y.sum().backward()
        assert not x.grad.numpy().any()
        assert not grid.grad.numpy().any()


@pytest.mark.parametrize(
    ("x", "grid", "options", "message"),
    [
        ((2, 4, 5, 3), (2, 3, 3, 3), {}, r"grid_sample: x \(N, H, W, C\) .*x \(2, 4, 5, 3\), grid \(2, 3, 3, 3\)"),
        ((2, 4, 5, 3), (1, 3, 3, 2), {}, "grid_sample: x"),
        ((2, 4, 5, 3), (2, 3, 2), {}, "grid_sample: x"),
        ((2, 4, 3), (2, 3, 1), {}, "grid_sample: x"),
        ((2, 0, 5, 3), (2, 3, 3, 2), {}, r"the images have no pixels  \(x \(2, 0, 5, 3\)\)"),
        ((2, 4, 5, 3), (2, 3, 3, 2), {"mode": "linear"}, "mode='linear' is not one of bilinear, nearest, bicubic"),
        ((2, 4, 5, 3), (2, 3, 3, 2), {"padding_mode": "edge"}, "padding_mode='edge' is not one of zeros, border"),
        ((2, 4, 4, 5, 3), (2, 3, 3, 3, 3), {"mode": "bicubic"}, "mode='bicubic' is offered for images"),
    ],
)
def test_what_does_not_fit_is_refused(x: Any, grid: Any, options: Any, message: str) -> None:
    with pytest.raises((ShapeError, ValueError), match=message):
        F.grid_sample(alpha.zeros(*x), alpha.zeros(*grid), **options)


@pytest.mark.parametrize(
    ("theta", "size", "message"),
    [
        ((2, 2, 3), (1, 4, 5, 3), r"theta \(2, 2, 3\), size \(1, 4, 5, 3\)"),
        ((2, 3, 4), (2, 4, 5, 3), r"theta \(2, 3, 4\), size \(2, 4, 5, 3\)"),
        ((2, 2, 3), (), r"size \(\)"),
        ((2, 2, 3), (2, 0, 5, 3), "has a length below 1"),
    ],
)
def test_an_affine_grid_of_another_size_is_refused(theta: Any, size: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        F.affine_grid(alpha.zeros(*theta), size)
