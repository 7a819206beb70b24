"""Transforms with intervals of one number, which differ from axis to axis, against loops over pixels in float64.

So an axis that is taken for the other one, a ratio that is upside down and an argument that is dropped are noticed.
"""

from __future__ import annotations

import colorsys
import itertools
import math
from typing import Any

import numpy as np
import pytest
from trials import trials

import alpha
from alpha import ShapeError, nn, transforms

H, W = 9, 14
ROWS, COLUMNS = np.meshgrid(np.arange(H), np.arange(W), indexing="ij")
# a random channel, and two that say where a pixel is
IMAGES = np.stack([np.dstack([np.random.default_rng(i).random((H, W)), ROWS, COLUMNS]) for i in range(5)])
COLOURS = np.random.default_rng(9).random((3, 4, 5, 3))


def run(transform: nn.Module, images: np.ndarray = IMAGES, seed: int = 0) -> np.ndarray:
    alpha.manual_seed(seed)
    return transform(alpha.tensor(images, dtype="float64")).numpy()


def cubic(t: float) -> float:
    """The weight of a pixel at a distance t (Keys 1981, a = -0.75)."""
    t, a = abs(t), -0.75
    if t < 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def sampled(image: np.ndarray, row: float, column: float, mode: str, outside: float | None) -> np.ndarray:
    """The image between its pixels; `outside` is the value around it, None repeats its border."""
    if outside is None and mode != "bicubic":
        row, column = min(max(row, 0), len(image) - 1), min(max(column, 0), image.shape[1] - 1)
    reach = 2 if mode == "bicubic" else 1
    weight = {"nearest": lambda t: float(-0.5 <= t < 0.5), "bilinear": lambda t: max(0, 1 - abs(t)), "bicubic": cubic}
    value = np.zeros(image.shape[2])
    for i, j in itertools.product(*(range(math.floor(at) - reach, math.floor(at) + reach + 2) for at in (row, column))):
        share = weight[mode](row - i) * weight[mode](column - j)
        inside = 0 <= i < len(image) and 0 <= j < image.shape[1]
        near = image[min(max(i, 0), len(image) - 1), min(max(j, 0), image.shape[1] - 1)]
        value += share * (near if inside or outside is None else np.full(image.shape[2], outside))
    return value


def turned(degrees: float) -> np.ndarray:
    """The matrix of (x, y) turned clockwise, since y counts downwards."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[cos, -sin], [sin, cos]])


def sheared(x: float, y: float) -> np.ndarray:
    tan_x, tan_y = math.tan(math.radians(x)), math.tan(math.radians(y))
    return np.array([[1, 0], [-tan_y, 1]]) @ np.array([[1, -tan_x], [0, 1]])


def mapped(matrix: np.ndarray, mode: str, fill: float) -> np.ndarray:
    """Each output pixel shows what the matrix, about the centre, moves there."""
    centre, inverse = np.array([(W - 1) / 2, (H - 1) / 2]), np.linalg.inv(matrix)
    expected = np.empty_like(IMAGES)
    for n, row, column in itertools.product(range(len(IMAGES)), range(H), range(W)):
        x, y = inverse @ (np.array([column, row]) - centre) + centre
        expected[n, row, column] = sampled(IMAGES[n], y, x, mode, fill)
    return expected


MAPS: list[tuple[dict[str, Any], np.ndarray]] = [
    ({"degrees": (33, 33)}, turned(33)),
    ({"degrees": (-20, -20)}, turned(-20)),
    ({"degrees": 0, "scale": (0.63, 0.63)}, 0.63 * np.eye(2)),
    ({"degrees": 0, "scale": (1.7, 1.7)}, 1.7 * np.eye(2)),
    ({"degrees": 0, "shear": (25, 25)}, sheared(25, 0)),
    ({"degrees": 0, "shear": (25, 25, 0, 0)}, sheared(25, 0)),
    ({"degrees": 0, "shear": (0, 0, 19, 19)}, sheared(0, 19)),
    ({"degrees": (10, 10), "scale": (0.8, 0.8), "shear": (12, 12, -7, -7)}, 0.8 * turned(10) @ sheared(12, -7)),
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_affine_maps_and_turns(mode: str) -> None:
    with trials() as trial:
        for arguments, matrix in MAPS:
            with trial(arguments):
                found = run(transforms.RandomAffine(**arguments, interpolation=mode, fill=0.3))
                np.testing.assert_allclose(found, mapped(matrix, mode, 0.3), atol=1e-9)
        with trial("RandomRotation"):  # counter-clockwise
            found = run(transforms.RandomRotation((33, 33), mode, fill=-0.4))
            np.testing.assert_allclose(found, mapped(turned(-33), mode, -0.4), atol=1e-9)


@pytest.mark.parametrize(("translate", "right", "down"), [((0.3, 0), 4, 0), ((0, 0.4), 0, 4), ((0.15, 0.25), 2, 2)])
def test_moves_of_one_axis(translate: tuple[float, float], right: int, down: int) -> None:
    """The first number is the share of the width, and all whole moves up to it come up, in both directions."""
    seen = set()
    for seed in range(60):
        for moved in run(transforms.RandomAffine(0, translate=translate, fill=-1), seed=seed):
            rows, columns = np.nonzero(moved[..., 1] >= 0)
            shift = rows[0] - moved[rows[0], columns[0], 1], columns[0] - moved[rows[0], columns[0], 2]
            assert (moved[..., 1][rows, columns] == rows - shift[0]).all()
            assert (moved[..., 2][rows, columns] == columns - shift[1]).all()
            seen.add(shift)
    assert seen == set(itertools.product(range(-down, down + 1), range(-right, right + 1)))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("size", "scale", "ratio"),
    [((16, 16), 0.3, 3.0), ((4, 11), 0.2, 0.4), ((7, 5), 0.5, 1.0), ((6, 6), 1.0, 50.0), (3, 1.0, 0.02)],
)
def test_resized_parts(size: Any, scale: float, ratio: float, mode: str) -> None:
    """A part of known height and width: where it begins is drawn, so that is read from the result."""
    transform = transforms.RandomResizedCrop(size, (scale, scale), (ratio, ratio), mode)
    height, width = size if isinstance(size, tuple) else (size, size)
    area = scale * H * W
    lengths = min(math.sqrt(area / ratio), H), min(math.sqrt(area * ratio), W)
    steps = [part / n for part, n in zip(lengths, (height, width), strict=True)]
    alpha.manual_seed(0)
    draws = [alpha.rand((len(IMAGES), 1, 1, 1), dtype="float64").numpy().ravel() for _ in range(4)][2:]
    places = [draw * (whole - part) for draw, whole, part in zip(draws, (H, W), lengths, strict=True)]
    for n, image in enumerate(run(transform)):
        assert image.shape == (height, width, 3)
        for row, column in itertools.product(range(height), range(width)):
            at = [first[n] + (i + 0.5) * s - 0.5 for first, i, s in zip(places, (row, column), steps, strict=True)]
            if mode == "nearest" and any(abs(a % 1 - 0.5) < 1e-6 for a in at):
                continue  # between two pixels
            expected = sampled(IMAGES[n], *at, mode, None)
            np.testing.assert_allclose(image[row, column], expected, atol=1e-9, err_msg=f"{row}, {column}")


@pytest.mark.parametrize("size", [(4, 3), (3, 9), (18, 7), (9, 14)])
def test_the_middle_that_a_resized_crop_shows_in_evaluation(size: tuple[int, int]) -> None:
    step = min(H / size[0], W / size[1])
    for source, image in zip(IMAGES, run(transforms.RandomResizedCrop(size).eval()), strict=True):
        for row, column in itertools.product(*map(range, size)):
            at = [(n - 1) / 2 + (i - (m - 1) / 2) * step for n, i, m in zip((H, W), (row, column), size, strict=True)]
            np.testing.assert_allclose(image[row, column], sampled(source, *at, "bilinear", None), atol=1e-9)


@pytest.mark.parametrize(("scale", "ratio"), [(0.2, 5.0), (0.2, 0.2), (0.4, 1.0), (1.0, 3.0), (0.03, 1.5)])
def test_erased_parts(scale: float, ratio: float) -> None:
    """ratio is the width over the height; every place comes up."""
    area = scale * H * W
    height, width = (min(round(math.sqrt(part)), n) for part, n in ((area / ratio, H), (area * ratio, W)))
    seen = set()
    for seed in range(80):
        transform = transforms.RandomErasing(1.0, (scale, scale), (ratio, ratio), value=-2)
        for source, image in zip(IMAGES, run(transform, seed=seed), strict=True):
            gone = (image == -2).all(2)
            rows, columns = np.flatnonzero(gone.any(1)), np.flatnonzero(gone.any(0))
            assert (len(rows), len(columns), gone.sum()) == (height, width, height * width)
            np.testing.assert_array_equal(image[~gone], source[~gone])
            seen.add((int(rows[0]), int(columns[0])))
    places = set(itertools.product(range(H - height + 1), range(W - width + 1)))
    assert seen <= places
    assert {row for row, _ in seen} == {row for row, _ in places}
    assert {column for _, column in seen} == {column for _, column in places}


@pytest.mark.parametrize(
    ("padding", "sides"), [((3, 1), (3, 1, 3, 1)), ((1, 0, 4, 2), (1, 0, 4, 2)), ([0, 2, 0, 0], (0, 2, 0, 0))]
)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_crops_of_padded_images(padding: Any, sides: tuple[int, int, int, int], mode: str) -> None:
    """Padding is (left and right, top and bottom) or (left, top, right, bottom); the place is drawn."""
    left, top, right, bottom = sides
    numpys: dict[str, Any] = {"mode": mode} if mode != "constant" else {"constant_values": 0.25}
    padded = np.pad(IMAGES, ((0, 0), (top, bottom), (left, right), (0, 0)), **numpys)
    transform = transforms.RandomCrop((7, 10), padding, fill=0.25, padding_mode=mode)
    seen = set()
    for seed in range(60):
        for whole, image in zip(padded, run(transform, seed=seed), strict=True):
            places = [
                (row, column)
                for row in range(whole.shape[0] - 6)
                for column in range(whole.shape[1] - 9)
                if np.array_equal(whole[row : row + 7, column : column + 10], image)
            ]
            assert len(places) == 1
            seen.add(places[0])
    assert {row for row, _ in seen} == set(range(H + top + bottom - 6))
    assert {column for _, column in seen} == set(range(W + left + right - 9))
    np.testing.assert_array_equal(run(transform.eval()), IMAGES[:, 1:8, 2:12])


@pytest.mark.slow
@pytest.mark.parametrize("size", [(5, 20), (12, 3), 4, [13]])
def test_resized_images(size: Any) -> None:
    whole = size[0] if isinstance(size, list) else size
    height, width = (whole, whole * W // H) if isinstance(whole, int) else whole
    with trials() as trial:
        for mode in ("nearest", "bilinear", "bicubic"):
            found = run(transforms.Resize(size, mode, antialias=False))
            with trial(mode):
                assert found.shape == (len(IMAGES), height, width, 3)
                for row, column in itertools.product(range(height), range(width)):
                    at = [((i + 0.5) * n / m - 0.5) for i, n, m in ((row, H, height), (column, W, width))]
                    if mode == "nearest":
                        at = [i * n // m for i, n, m in ((row, H, height), (column, W, width))]
                    expected = [sampled(image, *at, mode, None) for image in IMAGES]
                    np.testing.assert_allclose(found[:, row, column], expected, atol=1e-9, err_msg=f"{row}, {column}")


def jittered(
    image: np.ndarray, brightness: float = 1, contrast: float = 1, saturation: float = 1, hue: float = 0
) -> np.ndarray:
    """One image in [0, 1], pixel by pixel."""

    def gray(pixel: np.ndarray) -> float:
        return 0.2989 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]

    bright = np.clip(image * brightness, 0, 1)
    mean = np.mean([gray(pixel) for pixel in bright.reshape(-1, 3)])
    made = np.empty_like(image)
    for place in np.ndindex(*image.shape[:2]):
        pixel = np.clip(mean + (bright[place] - mean) * contrast, 0, 1)
        pixel = np.clip(gray(pixel) + (pixel - gray(pixel)) * saturation, 0, 1)
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        made[place] = colorsys.hsv_to_rgb((h + hue) % 1, s, v)
    return made


@pytest.mark.parametrize(
    "numbers",
    [
        {"brightness": 0.4},
        {"brightness": 1.8},
        {"contrast": 0.3},
        {"contrast": 2.5},
        {"saturation": 0.0},
        {"saturation": 1.7},
        {"hue": 0.13},
        {"hue": -0.41},
        {"brightness": 1.3, "contrast": 0.6, "saturation": 1.4, "hue": 0.2},
    ],
)
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 3.0)])
def test_colours(numbers: dict[str, float], bounds: tuple[float, float]) -> None:
    low, high = bounds
    transform = transforms.ColorJitter(**{name: (value, value) for name, value in numbers.items()}, bounds=bounds)
    expected = np.stack([jittered(image, **numbers) for image in COLOURS])
    found = run(transform, COLOURS * (high - low) + low)
    np.testing.assert_allclose((found - low) / (high - low), expected, atol=1e-9)


def test_numbers_that_stand_for_intervals() -> None:
    """A number r is 1 - r to 1 + r of a factor, not below 0, and -r to r of a turn; each image has one of them."""
    jitter = transforms.ColorJitter(0.25, 1.5, (0.5, 0.75), 0.1)
    assert (jitter.brightness, jitter.contrast) == ((0.75, 1.25), (0.0, 2.5))
    assert (jitter.saturation, jitter.hue) == ((0.5, 0.75), (-0.1, 0.1))
    assert transforms.RandomRotation(7).degrees == transforms.RandomAffine(7).degrees == (-7.0, 7.0)
    assert transforms.RandomAffine(0, shear=7).shear == ((-7.0, 7.0), (0.0, 0.0))
    images = np.full((200, 1, 1, 3), 0.5)
    factors = run(transforms.ColorJitter(brightness=(0.3, 0.9)), images)[:, 0, 0, 0] * 2
    assert 0.3 <= factors.min() < 0.32
    assert 0.88 < factors.max() < 0.9


@pytest.mark.parametrize("p", [0.2, 0.9])
@pytest.mark.parametrize("name", ["RandomHorizontalFlip", "RandomVerticalFlip"])
def test_flips_of_each_image(name: str, p: float) -> None:
    many = np.repeat(IMAGES[:1], 300, axis=0)
    mirrored = IMAGES[0][:, ::-1] if name == "RandomHorizontalFlip" else IMAGES[0][::-1]
    turned_around = 0
    for image in run(getattr(transforms, name)(p), many):
        assert any(np.array_equal(image, one) for one in (IMAGES[0], mirrored))
        turned_around += np.array_equal(image, mirrored)
    assert abs(turned_around / 300 - p) < 0.1


@pytest.mark.parametrize("size", [(3, 3), (5, 3), (1, 7), (11, 17)])
@pytest.mark.parametrize("sigma", [0.1, 0.8, 5.0])
def test_blurred_images(size: tuple[int, int], sigma: float) -> None:
    """kernel_size is (along x, along y); an image is mirrored without repeating its outermost pixels."""
    across, down = (n // 2 for n in size)
    padded = np.pad(IMAGES, ((0, 0), (down, down), (across, across), (0, 0)), mode="reflect")
    weights = [np.exp(-(np.arange(-r, r + 1) ** 2) / (2 * sigma**2)) for r in (down, across)]
    expected = np.zeros_like(IMAGES)
    for i, j in itertools.product(range(2 * down + 1), range(2 * across + 1)):
        share = weights[0][i] / weights[0].sum() * weights[1][j] / weights[1].sum()
        expected += share * padded[:, i : i + H, j : j + W]
    np.testing.assert_allclose(run(transforms.GaussianBlur(size, sigma)), expected, atol=1e-9)


def test_each_image_is_blurred_by_its_own_width() -> None:
    many = np.zeros((200, 5, 5, 1))
    many[:, 2, 2] = 1
    middles = run(transforms.GaussianBlur(5, (0.5, 1.5)), many)[:, 2, 2, 0]

    def middle(sigma: float) -> float:
        return float(1 / np.exp(-(np.arange(-2, 3) ** 2) / (2 * sigma**2)).sum() ** 2)

    assert middle(1.5) - 1e-9 <= middles.min() < middle(1.45)
    assert middle(0.55) < middles.max() <= middle(0.5) + 1e-9


def test_a_blur_needs_its_pixels() -> None:
    with pytest.raises(ShapeError, match=r"GaussianBlur: kernel_size=\(3, 19\) is too large .*\(x \(5, 9, 14, 3\)\)"):
        run(transforms.GaussianBlur((3, 19)))
    run(transforms.GaussianBlur((27, 17)))


def test_a_blur_of_any_precision() -> None:
    """Levels do not depend on the precision of a model's products."""
    x, blur = alpha.tensor(IMAGES, dtype="float32", device="cuda"), transforms.GaussianBlur(5, 1.0)
    with alpha.precision("bf16"):
        coarse = blur(x).numpy()
    np.testing.assert_array_equal(coarse, blur(x).numpy())
