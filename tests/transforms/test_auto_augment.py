"""RandAugment and TrivialAugmentWide: each operation against Pillow, and how often each one comes up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

import alpha
from alpha import transforms
from alpha.transforms.auto_augment import OPERATIONS, operated

H, W = 13, 18
_rng = np.random.default_rng(4)
BYTES = np.stack(
    [
        _rng.integers(0, 256, (H, W, 3)),
        _rng.integers(30, 140, (H, W, 3)),
        np.clip(_rng.normal(90, 30, (H, W, 3)), 0, 255),
        np.repeat(_rng.integers(0, 3, (H, W, 1)) * 100 + 20, 3, 2),
        np.full((H, W, 3), 77),
        np.kron(_rng.integers(0, 2, (H, W, 3)), 255),
    ]
).astype(np.uint8)
TRANSFORMS: dict[str, Any] = {
    "RandAugment": transforms.RandAugment(),
    "TrivialAugmentWide": transforms.TrivialAugmentWide(),
}
# the largest magnitudes of both, in torchvision's units
LARGEST = {
    "RandAugment": {"Shear": 0.3, "X": 150 / 331 * W, "Y": 150 / 331 * H, "Rotate": 30, "Blend": 0.9, "Bits": 4},
    "TrivialAugmentWide": {"Shear": 0.99, "X": 32, "Y": 32, "Rotate": 135, "Blend": 0.99, "Bits": 6},
}


def found(
    name: str, operation: str, share: float, negative: bool, mode: str = "nearest", fill: float = 0, device: str = "cpu"
) -> np.ndarray:
    """Levels of 255 that one operation makes of all images."""
    y = alpha.tensor(BYTES.astype(np.float32) / 255, device=device)
    N = len(BYTES)
    drawn = alpha.tensor(np.full((N, 1, 1, 1), OPERATIONS.index(operation), np.float32), device=device)
    sign = alpha.tensor(np.full((N, 1, 1, 1), negative), device=device)
    strengths = TRANSFORMS[name].strengths(H, W)
    return operated(y, drawn, share, sign, strengths, mode, fill / 255).numpy() * 255


def affine(image: Image.Image, data: tuple[float, ...], mode: Any, fill: int) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, data, mode, fillcolor=(fill,) * 3)


def expected(name: str, operation: str, share: float, negative: bool, fill: int = 0) -> np.ndarray:
    """Bytes as Pillow makes them of torchvision's magnitude."""
    largest, sign = LARGEST[name], -1 if negative else 1
    mode = Image.Resampling.NEAREST

    def of(image: Image.Image) -> Image.Image:
        if operation == "Identity":
            return image
        if operation.startswith("Shear"):
            shear = sign * share * largest["Shear"]
            data = (1, shear, 0, 0, 1, 0) if operation == "ShearX" else (1, 0, 0, shear, 1, 0)
            return affine(image, data, mode, fill)
        if operation.startswith("Translate"):
            moved = int(sign * share * largest[operation[-1]])
            return affine(
                image, (1, 0, -moved, 0, 1, 0) if operation[-1] == "X" else (1, 0, 0, 0, 1, -moved), mode, fill
            )
        if operation == "Rotate":
            return image.rotate(sign * share * largest["Rotate"], mode, fillcolor=(fill,) * 3)
        if operation == "Posterize":
            return ImageOps.posterize(image, int(np.round(8 - share * largest["Bits"])))
        if operation == "Solarize":
            return ImageOps.solarize(image, 255 * (1 - share))  # type: ignore[arg-type]
        if operation in ("AutoContrast", "Equalize"):
            return getattr(ImageOps, operation.lower())(image)
        return getattr(ImageEnhance, operation)(image).enhance(1 + sign * share * largest["Blend"])

    return np.stack([np.asarray(of(Image.fromarray(image))) for image in BYTES]).astype(float)


MOVES = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name not in MOVES])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_colour_is_that_of_pillow(name: str, operation: str) -> None:
    """Levels differ by what Pillow rounds: a result to a byte, and before it the gray, the mean or the smooth image."""
    for share in (0.0, 0.1, 0.3, 0.5, 23 / 30, 1.0):
        for negative in (False, True):
            off = found(name, operation, share, negative) - expected(name, operation, share, negative)
            assert np.abs(off).max() < (1.501 if operation in ("Color", "Contrast", "Sharpness") else 1.001)


@pytest.mark.parametrize("operation", MOVES)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_move_is_that_of_pillow(name: str, operation: str) -> None:
    """Pixels are those of Pillow, but for a few whose source lies between two, and `fill` is outside."""
    for share in (0.0, 0.1, 0.3, 0.5, 23 / 30, 1.0):
        for negative in (False, True):
            a = found(name, operation, share, negative, fill=200)
            b = expected(name, operation, share, negative, 200)
            wrong = (np.abs(a - b) > 0.01).any((0, 3)).mean()
            assert wrong <= (0 if operation.startswith("Translate") else 0.005), (share, negative, wrong)


@pytest.mark.parametrize("operation", MOVES)
def test_moves_between_pixels(operation: str) -> None:
    """A ramp shows the place that each pixel is read from, about the corner or the centre."""
    rows, columns = np.meshgrid(np.arange(H), np.arange(W), indexing="ij")
    ramp = np.stack([rows, columns, np.ones_like(rows)], -1)[None].astype(np.float64)
    y = alpha.tensor(ramp)
    drawn = alpha.full((1, 1, 1, 1), OPERATIONS.index(operation), dtype="float64")
    strengths = TRANSFORMS["RandAugment"].strengths(H, W)
    result = operated(y, drawn, 0.4, alpha.tensor([[[[False]]]]), strengths, "bilinear", 0.0).numpy()[0]
    u, v, shear, angle = columns + 0.5, rows + 0.5, 0.12, math.radians(12)
    du, dv = u - W / 2, v - H / 2
    x, y_from = {
        "ShearX": (u + shear * v, v),
        "ShearY": (u, v + shear * u),
        "TranslateX": (u - int(0.4 * 150 / 331 * W), v),
        "TranslateY": (u, v - int(0.4 * 150 / 331 * H)),
        "Rotate": (
            W / 2 + math.cos(angle) * du - math.sin(angle) * dv,
            H / 2 + math.sin(angle) * du + math.cos(angle) * dv,
        ),
    }[operation]
    whole = result[..., 2] > 1 - 1e-9
    assert whole.mean() > 0.6
    np.testing.assert_allclose(result[..., 0][whole], (y_from - 0.5)[whole], atol=1e-9)
    np.testing.assert_allclose(result[..., 1][whole], (x - 0.5)[whole], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_on_both_devices(operation: str) -> None:
    for share in (0.2, 1.0):
        a, b = (found("TrivialAugmentWide", operation, share, True, "bilinear", device=d) for d in ("cpu", "cuda"))
        np.testing.assert_allclose(a, b, atol=2e-3)


def run(transform: Any, images: np.ndarray, seed: int = 0) -> np.ndarray:
    alpha.manual_seed(seed)
    return transform(alpha.tensor(images)).numpy()


def test_each_operation_comes_up_as_often() -> None:
    """Results of one operation are those of one of the 14, of one magnitude and both signs."""
    source = BYTES[:1].astype(np.float32) / 255
    many = np.repeat(source, 1400, 0)
    results = np.rint(run(transforms.RandAugment(1, magnitude=15), many) * 255 * 64)
    kinds: dict[bytes, set[str]] = {}
    for operation in OPERATIONS:
        for negative in (False, True):
            one = np.rint(found("RandAugment", operation, 0.5, negative)[0] * 64)
            kinds.setdefault(one.tobytes(), set()).add(operation)
    assert {len(names) for names in kinds.values()} <= {1, 2}  # an operation may change nothing here
    counts = dict.fromkeys(map(frozenset, kinds.values()), 0)
    for image in results:
        counts[frozenset(kinds[image.tobytes()])] += 1
    for names, count in counts.items():
        assert abs(count / 1400 - len(names) / 14) < 0.03, names


def test_operations_follow_one_another() -> None:
    many = np.repeat(BYTES[:1].astype(np.float32) / 255, 300, 0)
    np.testing.assert_array_equal(run(transforms.RandAugment(0), many), many)
    kept = [(run(transforms.RandAugment(n), many) == many).all((1, 2, 3)).mean() for n in (1, 2, 3)]
    assert 0.03 < kept[0] < 0.2
    assert kept[1] < 0.08
    assert kept[2] < 0.03
    assert len({image.tobytes() for image in run(transforms.TrivialAugmentWide(), many)}) > 150


@pytest.mark.parametrize("name", ["RandAugment", "TrivialAugmentWide"])
def test_other_bounds(name: str) -> None:
    """Images in [-1, 1] change as those in [0, 1] do, and `fill` is in their unit; the default is black."""
    images = np.repeat(BYTES, 10, 0).astype(np.float32) / 255
    kind = getattr(transforms, name)
    for narrow, wide in ((None, None), (0.0, None), (0.25, -0.5)):
        a = run(kind(fill=narrow), images)
        b = run(kind(fill=wide, bounds=(-1, 1)), images * 2 - 1)
        np.testing.assert_allclose((b + 1) / 2, a, atol=2e-6)
    assert -1e-6 < a.min() <= a.max() < 1 + 1e-6


def test_gray_images_have_one_channel() -> None:
    gray = BYTES[:3, :, :, :1].astype(np.float32) / 255
    for name in ("RandAugment", "TrivialAugmentWide"):
        transform, many = getattr(transforms, name)(), np.repeat(gray, 40, 0)
        a, b = run(transform, many), run(transform, np.repeat(many, 3, 3))
        np.testing.assert_allclose(np.repeat(a, 3, 3), b, atol=1e-4)
