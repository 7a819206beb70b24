"""Transforms of batches: what each one does to an image, that each image has its own numbers, and both modes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from argument_table import Facts, Row, Subject, changes, check_argument, check_complete, frozen, refused

import alpha
from alpha import ShapeError, nn, transforms

IMAGES = np.random.default_rng(0).random((6, 9, 12, 3)).astype(np.float32)
RANDOM: dict[str, dict[str, Any]] = {
    "ColorJitter": {"brightness": 0.4},
    "GaussianBlur": {"kernel_size": (3, 5)},
    "RandAugment": {},
    "RandomAffine": {"degrees": 30},
    "RandomChoice": {"transforms": [transforms.Lambda(lambda x, axis=axis: x.flip(axis)) for axis in (1, 2)]},
    "RandomCrop": {"size": (6, 8)},
    "RandomErasing": {},
    "RandomGrayscale": {},
    "RandomHorizontalFlip": {},
    "RandomResizedCrop": {"size": (5, 6)},
    "RandomRotation": {"degrees": 30},
    "RandomVerticalFlip": {},
    "TrivialAugmentWide": {},
}
MIXING = {"CutMix": {"num_classes": 4}, "MixUp": {"num_classes": 4}}  # with labels: test_mixing.py
FIXED: dict[str, dict[str, Any]] = {
    "CenterCrop": {"size": 6},
    "Grayscale": {},
    "Normalize": {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)},
    "Resize": {"size": (5, 6)},
}


def run(transform: nn.Module, images: np.ndarray = IMAGES, device: str = "cpu", seed: int = 0) -> np.ndarray:
    alpha.manual_seed(seed)
    return transform.to(device)(alpha.tensor(images, device=device)).numpy()


def test_every_transform_is_here() -> None:
    assert {*RANDOM, *FIXED, *MIXING, "Compose", "Lambda", "Transform", "takes_targets"} == set(transforms.__all__)


def test_a_function_is_a_transform() -> None:
    transform = transforms.Compose([transforms.Lambda(lambda x: x * 0.5), transforms.Grayscale()])
    half = run(transforms.Grayscale(), IMAGES * np.float32(0.5))
    np.testing.assert_array_equal(run(transform), half)
    np.testing.assert_array_equal(run(transform.eval()), half)
    with pytest.raises(TypeError, match="Lambda: a function is needed, not a float"):
        transforms.Lambda(0.5)  # type: ignore[arg-type]


def test_means_may_be_tensors() -> None:
    as_numbers = transforms.Normalize(**FIXED["Normalize"])
    as_tensors = transforms.Normalize(*(alpha.tensor(values) for values in FIXED["Normalize"].values()))
    np.testing.assert_array_equal(run(as_tensors), run(as_numbers))
    assert transforms.Normalize(alpha.tensor(0.5), alpha.tensor(0.5)).mean.shape == (1,)


# -- targets of each pixel --------------------------------------------------------------------------

KNOWN = {name: options for name, options in {**RANDOM, **FIXED}.items() if name != "RandomChoice"}


@pytest.mark.parametrize("name", KNOWN)
def test_masks_beside_a_transform_are_refused_if_pixels_are_moved(name: str) -> None:
    """A dot on an image is at the same place behind a transform that leaves pixels where they are."""
    transform, dotted = getattr(transforms, name)(**KNOWN[name]), IMAGES.copy()
    dotted[:, 3, 7] = 1 - np.round(dotted[:, 3, 7])
    moves = False
    for seed in range(10):
        change = np.abs(run(transform, dotted, seed=seed) - run(transform, seed=seed)).sum(-1)
        same_size = change.shape == IMAGES.shape[:3]
        moved = not same_size or any(image.max() > 0.05 and image.argmax() != 3 * 12 + 7 for image in change)
        moves |= moved and name != "Resize"  # see the next test
    images = alpha.tensor(IMAGES)
    masks, labels = alpha.zeros(6, 9, 12, dtype=alpha.int64), alpha.zeros(6, dtype=alpha.int64)
    for whole in (transforms.Compose([transform]), transforms.Compose([transforms.Compose([transform])])):
        for targets in (masks, masks[..., None], (labels, {"mask": masks})):
            if moves:
                with pytest.raises(
                    ValueError, match=rf"{name}: it would move the pixels of the images \(6, 9, 12, 3\)"
                ):
                    whole(images, targets)
            else:
                assert whole(images, targets)[1] is targets
            assert whole.eval()(images, targets)[1] is targets
            whole.train()
        assert whole(images, labels)[1] is labels


def test_a_resize_may_leave_targets_of_the_old_size_but_hides_no_move() -> None:
    """Images of the old size are the targets of super-resolution."""
    images = alpha.tensor(IMAGES)
    small, large = transforms.Compose([transforms.Resize((3, 4))])(images, images)
    assert (small.shape, large is images) == ((6, 3, 4, 3), True)
    with pytest.raises(ValueError, match="RandomHorizontalFlip: it would move the pixels"):
        transforms.Compose([transforms.Resize((3, 4)), transforms.RandomHorizontalFlip()])(images, images)


def test_masks_as_a_channel_are_moved_with_their_images() -> None:
    masks = alpha.tensor((IMAGES.sum(-1) * 10).astype(np.int64))
    moved = [transforms.RandomHorizontalFlip(), transforms.RandomAffine(30, (0.1, 0.2)), transforms.RandomCrop(6)]
    both = transforms.Compose(moved)(alpha.cat([alpha.tensor(IMAGES), masks[..., None].float()], -1)).numpy()
    inside = both[..., :3].sum(-1) > 0
    np.testing.assert_array_equal((both[..., :3].sum(-1) * 10)[inside].astype(np.int64), both[..., 3][inside])


# -- arguments --------------------------------------------------------------------------------------


def subject(name: str, usual: dict[str, Any], **rows: Row) -> Subject:
    target: Callable[..., nn.Module] = getattr(transforms, name)

    def observe(arguments: dict[str, Any]) -> Facts:
        transform = target(**arguments)
        return {"values": frozen(run(transform)), "repr": repr(transform), "error": None}

    return Subject(target, observe, usual, rows)


EDGES = changes("edge", padding=3)
ARGUMENTS = [
    subject("CenterCrop", {"size": 6}, size=changes((6, 7))),
    subject("Grayscale", {}, num_output_channels=changes(3)),
    subject(
        "Normalize",
        FIXED["Normalize"],
        mean=changes((0.3, 0.2, 0.1)),
        std=changes((1.0, 2.0, 3.0)),
        inplace=refused(True),
    ),
    subject(
        "Resize",
        {"size": (5, 6)},
        size=changes(4),
        interpolation=changes("nearest"),
        max_size=changes(7, size=6),
        antialias=changes(False),
    ),
    subject(
        "ColorJitter",
        {},
        brightness=changes(0.4),
        contrast=changes(0.4),
        saturation=changes((0.2, 0.3)),
        hue=changes(0.2),
        bounds=changes((-1, 1), contrast=0.4),
    ),
    subject(
        "RandomAffine",
        {"degrees": 0},
        degrees=changes((20, 30)),
        translate=changes((0.2, 0.3)),
        scale=changes((0.5, 0.7)),
        shear=changes((10, 20, 5, 6)),
        interpolation=changes("bilinear", degrees=30),
        fill=changes(0.5, degrees=30),
        center=refused((0, 0)),
    ),
    subject(
        "RandomCrop",
        {"size": (6, 8)},
        size=changes(5),
        padding=changes(2),
        pad_if_needed=refused(True),
        fill=changes(0.5, padding=3),
        padding_mode=EDGES,
    ),
    subject(
        "RandomErasing",
        {"p": 1.0},
        p=changes(0.3),
        scale=changes((0.5, 0.6)),
        ratio=changes((4.0, 5.0)),
        value=changes("random"),
        inplace=refused(True),
    ),
    subject("GaussianBlur", {"kernel_size": 3}, kernel_size=changes((3, 5)), sigma=changes(0.5)),
    subject(
        "RandAugment",
        {},
        num_ops=changes(1),
        magnitude=changes(20),
        num_magnitude_bins=changes(11),
        interpolation=changes("bilinear"),
        fill=changes(0.5),
        bounds=changes((-1, 1)),
    ),
    subject(
        "TrivialAugmentWide",
        {},
        num_magnitude_bins=changes(5),
        interpolation=changes("bilinear"),
        fill=changes(0.5),
        bounds=changes((-1, 1)),
    ),
    subject(
        "RandomChoice",
        RANDOM["RandomChoice"],
        transforms=changes([transforms.Lambda(lambda x: x * 0.5), transforms.Grayscale(3)]),
        p=changes((1, 5)),
    ),
    subject("RandomGrayscale", {}, p=changes(1.0)),
    subject("RandomHorizontalFlip", {}, p=changes(1.0)),
    subject("RandomVerticalFlip", {}, p=changes(1.0)),
    subject(
        "RandomResizedCrop",
        {"size": (5, 6)},
        size=changes(4),
        scale=changes((0.2, 0.3)),
        ratio=changes((2.0, 3.0)),
        interpolation=changes("bicubic"),
    ),
    subject(
        "RandomRotation",
        {"degrees": 30},
        degrees=changes((50, 60)),
        interpolation=changes("bicubic"),
        expand=refused(True),
        center=refused((0, 0)),
        fill=changes(0.5),
    ),
]


@pytest.mark.parametrize("row", ARGUMENTS, ids=lambda row: row.name)
def test_every_argument_has_an_effect_or_is_refused(row: Subject) -> None:
    check_complete(row)
    for argument in row.rows:
        check_argument(row, argument)


def test_every_transform_has_a_row_of_arguments() -> None:
    assert {row.name for row in ARGUMENTS} == {*RANDOM, *FIXED}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("RandomHorizontalFlip", {"p": 1.5}, r"RandomHorizontalFlip: p=1\.5 is not between 0 and 1"),
        ("RandomCrop", {"size": 0}, "RandomCrop: size=0 must be at least 1"),
        ("RandomCrop", {"size": 4, "padding": (1, 2, 3)}, r"padding=\(1, 2, 3\) is neither one number nor 2 or 4"),
        ("RandomCrop", {"size": 4, "padding": -1}, "padding=-1 must be at least 0"),
        ("RandomCrop", {"size": 4, "padding_mode": "zeros"}, "padding_mode='zeros' is not one of constant, edge"),
        ("RandomRotation", {"degrees": (30, 10)}, r"degrees=\(30, 10\) must go up"),
        ("RandomRotation", {"degrees": -5}, "degrees=-5 is negative"),
        ("RandomRotation", {"degrees": 5, "interpolation": "linear"}, "interpolation='linear' is not one of"),
        ("RandomAffine", {"degrees": 0, "translate": (0.1, 2)}, r"translate=\(0\.1, 2\) is no pair of shares"),
        ("RandomAffine", {"degrees": 0, "scale": (0, 1)}, r"scale=\(0, 1\) must be above 0"),
        ("RandomResizedCrop", {"size": 4, "scale": (0.5, 2)}, "must be above 0 and up to 1"),
        ("RandomErasing", {"value": "noise"}, "value='noise' is neither a number nor 'random'"),
        ("ColorJitter", {"hue": 0.7}, "hue=0.7 must"),
        ("ColorJitter", {"brightness": (0.5, 0.6, 0.7)}, "is no pair"),
        ("ColorJitter", {"bounds": (1, 1)}, "must differ"),
        ("Normalize", {"mean": (1, 2), "std": (1,)}, "must be as many"),
        ("Normalize", {"mean": (1, 2), "std": (1, 0)}, "no std may be 0"),
        ("Resize", {"size": 4, "max_size": 4}, r"max_size=4 needs a size of one number below it  \(size=4\)"),
        ("Resize", {"size": (4, 5), "max_size": 9}, r"max_size=9 needs a size of one number below it"),
        ("GaussianBlur", {"kernel_size": 4}, "GaussianBlur: kernel_size=4 must be odd"),
        ("GaussianBlur", {"kernel_size": 3, "sigma": 0}, "GaussianBlur: sigma=0 must be above 0"),
        ("GaussianBlur", {"kernel_size": 3, "sigma": (2, 1)}, r"GaussianBlur: sigma=\(2, 1\) must go up"),
        ("RandAugment", {"magnitude": 31}, "RandAugment: magnitude=31 must be below num_magnitude_bins=31"),
        ("RandAugment", {"num_ops": -1}, "RandAugment: num_ops=-1 must be at least 0"),
        ("RandAugment", {"interpolation": "area"}, "RandAugment: interpolation='area' is not one of"),
        (
            "TrivialAugmentWide",
            {"num_magnitude_bins": 1},
            "TrivialAugmentWide: num_magnitude_bins=1 must be at least 2",
        ),
        ("TrivialAugmentWide", {"fill": (0, 0, 0)}, r"TrivialAugmentWide: fill=\(0, 0, 0\) is not a number"),
        ("TrivialAugmentWide", {"bounds": (1, 1)}, r"TrivialAugmentWide: bounds=\(1, 1\) must differ"),
        ("RandomChoice", {"transforms": []}, "RandomChoice: at least one transform"),
        ("RandomChoice", RANDOM["RandomChoice"] | {"p": (1,)}, r"RandomChoice: p=\(1,\) must be 2 numbers"),
        ("RandomChoice", RANDOM["RandomChoice"] | {"p": (0, 0)}, r"RandomChoice: p=\(0, 0\) must be 2 numbers"),
        ("MixUp", {"alpha": 0}, "MixUp: alpha=0 must be above 0"),
        ("CutMix", {"num_classes": 0}, "CutMix: num_classes=0 must be at least 1"),
        ("Grayscale", {"num_output_channels": 2}, "num_output_channels=2 is neither 1 nor 3"),
    ],
)
def test_an_argument_that_means_nothing_is_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        getattr(transforms, name)(**arguments)


# -- every transform --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RANDOM)
def test_each_image_has_its_own_numbers(name: str) -> None:
    """Six copies of one image do not stay equal, and the seed decides."""
    transform = getattr(transforms, name)(**({"p": 0.5} if name == "RandomGrayscale" else {}) | RANDOM[name])
    copies = np.repeat(IMAGES[:1], 6, axis=0)
    first = run(transform, copies)
    assert len({image.tobytes() for image in first}) > 1
    np.testing.assert_array_equal(first, run(transform, copies))
    assert (first != run(transform, copies, seed=1)).any()


@pytest.mark.parametrize("name", [*RANDOM, *FIXED])
def test_both_devices_agree(name: str) -> None:
    transform = getattr(transforms, name)(**(RANDOM | FIXED)[name])
    np.testing.assert_allclose(run(transform, device="cuda"), run(transform), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", [*RANDOM, *FIXED])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_the_dtype_stays(name: str, dtype: str) -> None:
    transform = getattr(transforms, name)(**(RANDOM | FIXED)[name])
    x = alpha.tensor(IMAGES, dtype=dtype)
    for mode in (True, False):
        assert transform.train(mode)(x).dtype.name == dtype


@pytest.mark.parametrize("name", RANDOM)
def test_evaluation_has_no_randomness(name: str) -> None:
    transform = getattr(transforms, name)(**RANDOM[name]).eval()
    y = run(transform)
    if "size" not in RANDOM[name]:
        np.testing.assert_array_equal(y, IMAGES)
        return
    np.testing.assert_array_equal(y, run(transform, seed=1))
    assert y.shape == (6, *RANDOM[name]["size"], 3)


def as_large(name: str, x: np.ndarray) -> dict[str, Any]:
    """The arguments of a transform, with a size that is that of the images."""
    arguments = (RANDOM | FIXED)[name]
    return arguments | {"size": x.shape[1:3]} if "size" in arguments else arguments


@pytest.mark.parametrize("name", [*RANDOM, *FIXED])
def test_evaluation_keeps_the_size_of_training(name: str) -> None:
    """A model sees images of one size in both modes, of larger, equal and smaller images."""
    transform = getattr(transforms, name)(**(RANDOM | FIXED)[name])
    for shape in ((6, 9, 12, 3), (6, 8, 8, 3), (2, 30, 17, 3)):
        x = np.random.default_rng(1).random(shape).astype(np.float32)
        trained, evaluated = (run(transform.train(mode), x) for mode in (True, False))
        assert trained.shape == evaluated.shape


@pytest.mark.parametrize("name", RANDOM)
def test_evaluation_changes_nothing_if_the_size_is_right(name: str) -> None:
    np.testing.assert_array_equal(run(getattr(transforms, name)(**as_large(name, IMAGES)).eval()), IMAGES)


@pytest.mark.parametrize("padding_mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("size", [(9, 12), (9, 8), (13, 14), (12, 13), (10, 7)])
def test_a_crop_of_a_padded_image_in_evaluation(size: tuple[int, int], padding_mode: str) -> None:
    """The middle of the image; padding is seen only if the crop is larger than the image."""
    numpys: dict[str, Any] = {"mode": padding_mode} | ({"constant_values": 0.3} if padding_mode == "constant" else {})
    padded = np.pad(IMAGES, ((0, 0), (2, 2), (2, 2), (0, 0)), **numpys)
    starts = [2 + (round((n - m) / 2) if m <= n else -((m - n) // 2)) for n, m in zip((9, 12), size, strict=True)]
    transform = transforms.RandomCrop(size, padding=2, fill=0.3, padding_mode=padding_mode)
    expected = padded[:, starts[0] : starts[0] + size[0], starts[1] : starts[1] + size[1]]
    np.testing.assert_array_equal(run(transform.eval()), expected)


@pytest.mark.parametrize("name", [*RANDOM, *FIXED])
def test_what_is_no_batch_of_images_is_refused(name: str) -> None:
    transform = getattr(transforms, name)(**(RANDOM | FIXED)[name])
    with pytest.raises(TypeError, match=f"{name}: x is a ndarray, a Tensor"):
        transform(IMAGES)
    with pytest.raises(ShapeError, match=rf"{name}: images \(N, H, W, C\) are needed  \(x \(9, 12, 3\)\)"):
        transform(alpha.tensor(IMAGES[0]))
    with pytest.raises(TypeError, match=f"{name}: x has dtype uint8; use"):
        transform(alpha.zeros(2, 9, 12, 3, dtype="uint8"))
    none, some = (transform(alpha.zeros(count, 9, 12, 3)).shape for count in (0, 2))
    assert none == (0, *some[1:])


@pytest.mark.parametrize("name", ["ColorJitter", "Grayscale", "RandomGrayscale"])
def test_colours_need_three_channels(name: str) -> None:
    transform = getattr(transforms, name)(**({"saturation": 0.5} if name == "ColorJitter" else {}))
    with pytest.raises(ShapeError, match=rf"{name}: images \(N, H, W, 3\) .*\(x \(2, 9, 12, 1\)\)"):
        transform(alpha.zeros(2, 9, 12, 1))


@pytest.mark.parametrize("name", ["RandAugment", "TrivialAugmentWide"])
def test_operations_need_one_or_three_channels(name: str) -> None:
    with pytest.raises(ShapeError, match=rf"{name}: images of 1 or 3 channels .*\(x \(2, 9, 12, 2\)\)"):
        getattr(transforms, name)()(alpha.zeros(2, 9, 12, 2))
    assert getattr(transforms, name)()(alpha.rand((20, 9, 12, 1))).shape == (20, 9, 12, 1)


# -- geometry ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "axis"), [("RandomHorizontalFlip", 2), ("RandomVerticalFlip", 1)])
def test_a_flip(device: str, name: str, axis: int) -> None:
    always, never = (getattr(transforms, name)(p) for p in (1.0, 0.0))
    np.testing.assert_array_equal(run(always, device=device), np.flip(IMAGES, axis))
    np.testing.assert_array_equal(run(never, device=device), IMAGES)


@pytest.mark.parametrize(("mode", "numpys"), [("edge", "edge"), ("reflect", "reflect"), ("symmetric", "symmetric")])
def test_a_crop_is_a_part_of_the_padded_image(mode: str, numpys: Any) -> None:
    check_crops(np.pad(IMAGES, ((0, 0), (1, 4), (2, 3), (0, 0)), numpys), padding_mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize("fill", [0.0, 0.3])
def test_a_crop_of_an_image_with_a_border(fill: float) -> None:
    check_crops(np.pad(IMAGES, ((0, 0), (1, 4), (2, 3), (0, 0)), constant_values=fill), fill=fill)


def check_crops(padded: np.ndarray, **arguments: Any) -> None:
    """Each crop is a part of the padded image, bit for bit; over some seeds all places come up."""
    transform = transforms.RandomCrop((8, 10), padding=(2, 1, 3, 4), **arguments)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 10), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
    seen: set[tuple[int, int]] = set()
    for seed in range(60):
        for image, parts in zip(run(transform, seed=seed), windows, strict=True):
            places = np.argwhere((parts == image).all(axis=(2, 3, 4)))
            assert len(places) == 1
            seen.add((int(places[0][0]), int(places[0][1])))
    assert seen == {(row, column) for row in range(7) for column in range(8)}


def test_a_crop_that_is_larger_than_the_image() -> None:
    with pytest.raises(
        ShapeError, match=r"size=\(12, 12\) is larger than .* padding \(1, 1, 1, 1\)  \(x \(6, 9, 12, 3\)\)"
    ):
        run(transforms.RandomCrop(12, padding=1))


@pytest.mark.parametrize("size", [(6, 8), (5, 7), (9, 12), (12, 8), (10, 15)])
def test_the_middle_of_an_image(size: tuple[int, int]) -> None:
    """The middle is torchvision's: an odd rest is rounded to the even number, a small image gets zeros around."""
    expected = IMAGES
    for axis, wanted in enumerate(size, 1):
        length = expected.shape[axis]
        if wanted <= length:
            first = round((length - wanted) / 2)
            expected = expected.take(range(first, first + wanted), axis)
        else:
            before = (wanted - length) // 2
            pads = [(0, 0)] * 4
            pads[axis] = before, wanted - length - before
            expected = np.pad(expected, pads)
    np.testing.assert_array_equal(run(transforms.CenterCrop(size)), expected)


def test_quarter_turns() -> None:
    square = IMAGES[:, :, :9]
    turned = run(transforms.RandomRotation((90, 90)), square)
    np.testing.assert_array_equal(turned, np.rot90(square, axes=(1, 2)))  # counter-clockwise, as torchvision's
    clockwise = run(transforms.RandomAffine((90, 90)), square)
    np.testing.assert_array_equal(clockwise, np.rot90(square, -1, axes=(1, 2)))


def test_an_affine_map_by_its_formula() -> None:
    """Every output pixel shows the input pixel that the inverse of scale, rotation and shear names."""
    angle, sx, sy, growth = (*np.radians([25.0, 8.0, 5.0]), 1.2)
    cos, sin, tan = np.cos, np.sin, np.tan
    forward = growth * np.array(
        [
            [cos(angle - sy) / cos(sy), -cos(angle - sy) * tan(sx) / cos(sy) - sin(angle)],
            [sin(angle - sy) / cos(sy), -sin(angle - sy) * tan(sx) / cos(sy) + cos(angle)],
        ]
    )
    H, W = IMAGES.shape[1:3]
    v, u = np.meshgrid(np.arange(H) + 0.5 - H / 2, np.arange(W) + 0.5 - W / 2, indexing="ij")
    x, y = np.einsum("ij,jhw->ihw", np.linalg.inv(forward), np.stack([u, v]))
    column, row = np.rint(x + W / 2 - 0.5).astype(int), np.rint(y + H / 2 - 0.5).astype(int)
    inside = (column >= 0) & (column < W) & (row >= 0) & (row < H)
    expected = np.where(inside[..., None], IMAGES[:, row.clip(0, H - 1), column.clip(0, W - 1)], 0.25)
    transform = transforms.RandomAffine((25, 25), scale=(1.2, 1.2), shear=(8, 8, 5, 5), fill=0.25)
    assert np.abs(run(transform) - expected).max() < 1e-6


@pytest.mark.slow
def test_moves_are_whole_pixels_within_their_share() -> None:
    transform = transforms.RandomAffine(0, translate=(0.25, 0.34))
    seen = set()
    for seed in range(40):
        for image, moved in zip(IMAGES, run(transform, seed=seed), strict=True):
            places = [
                (down, right)
                for down in range(-3, 4)
                for right in range(-3, 4)
                if np.array_equal(shifted(image, down, right), moved)
            ]
            assert len(places) == 1
            seen.add(places[0])
    assert {abs(down) for down, _ in seen} == {abs(right) for _, right in seen} == {0, 1, 2, 3}


def shifted(image: np.ndarray, down: int, right: int) -> np.ndarray:
    wide = np.pad(image, ((3, 3), (3, 3), (0, 0)))
    return wide[3 - down : 3 - down + image.shape[0], 3 - right : 3 - right + image.shape[1]]


def test_a_resized_part_has_its_area_and_ratio() -> None:
    """Numbers at opposite sides of a ramp tell how large the part is and where it begins."""
    ramp = (
        np.stack(np.meshgrid(np.arange(64), np.arange(80), indexing="ij"), -1)[None].repeat(200, 0).astype(np.float32)
    )
    y = run(transforms.RandomResizedCrop(16, scale=(0.2, 0.5), ratio=(0.5, 2.0)), ramp)
    step = y[:, 8, 8] - y[:, 7, 7]  # input pixels per output pixel
    height, width = 16 * step.T
    area, ratio = height * width / (64 * 80), width / height
    assert 0.19 < area.min() < 0.23
    assert 0.45 < area.max() < 0.501
    assert 0.49 < ratio.min() < 0.6
    assert 1.7 < ratio.max() < 2.01
    middle = (y[:, 7, 7] + y[:, 8, 8]) / 2 + 0.5
    assert (middle[:, 0] >= height / 2 - 0.01).all()
    assert (middle[:, 0] <= 64 - height / 2 + 0.01).all()
    assert (middle[:, 1] >= width / 2 - 0.01).all()
    assert (middle[:, 1] <= 80 - width / 2 + 0.01).all()


def test_a_resized_crop_shows_the_middle_in_evaluation() -> None:
    y = run(transforms.RandomResizedCrop((9, 6)).eval())
    np.testing.assert_allclose(y, IMAGES[:, :, 3:9], atol=1e-5)


@pytest.mark.parametrize(("size", "shape"), [(6, (6, 8)), ((5, 4), (5, 4)), ([18], (18, 24)), ((9, 12), (9, 12))])
def test_the_shorter_side_or_both(size: Any, shape: tuple[int, int]) -> None:
    assert run(transforms.Resize(size)).shape == (6, *shape, 3)


@pytest.mark.parametrize(
    ("size", "most", "shape"), [(6, 8, (6, 8)), (6, 7, (5, 7)), (1, 2, (1, 1)), ([18], 20, (15, 20))]
)
def test_the_longer_side_has_a_limit(size: Any, most: int, shape: tuple[int, int]) -> None:
    assert run(transforms.Resize(size, max_size=most)).shape == (6, *shape, 3)


def test_a_reduced_image_keeps_its_mean(device: str) -> None:
    """A third of each side: nine pixels have a part in each, and without `antialias` one."""
    stripes = np.zeros((1, 9, 9, 1), np.float32)
    stripes[:, :, ::3] = 3
    small = run(transforms.Resize(3), stripes, device)
    np.testing.assert_allclose(small[:, :, 1], 1, atol=1e-6)
    assert (run(transforms.Resize(3, antialias=False), stripes, device) == 0).all()
    for interpolation in ("nearest", "bicubic"):
        run(transforms.Resize(3, interpolation), stripes, device)


def test_an_erased_rectangle() -> None:
    transform = transforms.RandomErasing(0.5, scale=(0.1, 0.3), ratio=(0.5, 2.0), value=7)
    seen = 0
    for seed in range(20):
        for image, source in zip(run(transform, seed=seed), IMAGES, strict=True):
            gone = (image == 7).all(axis=2)
            np.testing.assert_array_equal(image[~gone], source[~gone])
            if gone.any():
                rows, columns = gone.any(1).sum(), gone.any(0).sum()
                assert gone.sum() == rows * columns
                assert 0.05 < gone.mean() < 0.4
                seen += 1
    assert 40 < seen < 80  # of 120


# -- colours ----------------------------------------------------------------------------------------

SHARES = np.array([0.2989, 0.587, 0.114], np.float32)


def jittered(**arguments: float) -> np.ndarray:
    return run(transforms.ColorJitter(**{name: (value, value) for name, value in arguments.items()}))


def test_brightness_contrast_and_saturation() -> None:
    gray = IMAGES @ SHARES
    mean = gray.mean(axis=(1, 2))[:, None, None, None]
    np.testing.assert_allclose(jittered(brightness=1.5), np.clip(IMAGES * 1.5, 0, 1), rtol=1e-5)
    np.testing.assert_allclose(jittered(contrast=0.5), mean + (IMAGES - mean) * 0.5, rtol=1e-5)
    wide = gray[..., None]
    np.testing.assert_allclose(jittered(saturation=2.0), np.clip(wide + (IMAGES - wide) * 2, 0, 1), atol=1e-6)


def test_the_hue() -> None:
    """A third of a turn moves the channels on by one, and the gray stays; a turn there and back changes nothing."""
    np.testing.assert_allclose(jittered(hue=1 / 3), np.roll(IMAGES, 1, axis=3), atol=2e-6)
    np.testing.assert_allclose(jittered(hue=-1 / 3), np.roll(IMAGES, -1, axis=3), atol=2e-6)
    gray = np.repeat(IMAGES[..., :1], 3, axis=3)
    np.testing.assert_allclose(run(transforms.ColorJitter(hue=0.5), gray), gray, atol=1e-6)


def test_colours_within_other_bounds() -> None:
    """Images in [-1, 1] change as those in [0, 1] do."""
    transform = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
    wide = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1, bounds=(-1, 1))
    np.testing.assert_allclose(run(wide, IMAGES * 2 - 1), run(transform) * 2 - 1, atol=5e-6)


def test_gray_images() -> None:
    np.testing.assert_allclose(run(transforms.Grayscale()), (IMAGES @ SHARES)[..., None], rtol=1e-5)
    np.testing.assert_allclose(
        run(transforms.RandomGrayscale(1.0)), (IMAGES @ SHARES)[..., None] * np.ones(3), rtol=1e-5
    )


def test_channels_are_normalized() -> None:
    transform = transforms.Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    expected = (IMAGES - np.array([0.1, 0.2, 0.3])) / np.array([0.5, 0.6, 0.7])
    np.testing.assert_allclose(run(transform), expected, rtol=1e-5, atol=1e-6)
    assert not transform.state_dict()
    with pytest.raises(ShapeError, match="2 means for 3 channels"):
        run(transforms.Normalize((1, 2), (1, 1)))


# -- in a model -------------------------------------------------------------------------------------


def test_transforms_in_a_row() -> None:
    both = transforms.Compose([transforms.RandomVerticalFlip(1.0), transforms.RandomHorizontalFlip(1.0)])
    np.testing.assert_array_equal(run(both), IMAGES[:, ::-1, ::-1])
    assert isinstance(both, nn.Sequential)


def test_a_model_changes_its_images_in_training_only() -> None:
    model = nn.Sequential(transforms.RandomHorizontalFlip(1.0), nn.Flatten())
    np.testing.assert_array_equal(run(model), IMAGES[:, :, ::-1].reshape(6, -1))
    np.testing.assert_array_equal(run(model.eval()), IMAGES.reshape(6, -1))


def test_a_gradient_flows_to_the_image() -> None:
    x = alpha.tensor(IMAGES, requires_grad=True)
    transforms.RandomRotation(20, "bilinear")(x).sum().backward()
    assert x.grad is not None
    assert math.isfinite(float(x.grad.sum()))


def test_a_transform_of_ones_own() -> None:
    class Invert(transforms.Transform):
        def apply_to(self, x: alpha.Tensor) -> alpha.Tensor:
            return 1 - x

    np.testing.assert_array_equal(run(Invert()), 1 - IMAGES)
    np.testing.assert_array_equal(run(Invert().eval()), IMAGES)


@pytest.mark.parametrize("shape", [(2, 0, 5, 3), (2, 5, 0, 3), (2, 0, 0, 3)])
def test_images_without_pixels_are_not_scaled(shape: tuple[int, ...]) -> None:
    for max_size in (None, 9):
        with pytest.raises(ShapeError, match=f"Resize: images of {shape[1]} x {shape[2]} have no pixels"):
            transforms.Resize(5, max_size=max_size)(alpha.zeros(*shape))
