"""MixUp and CutMix, chains of transforms that take labels, and which transforms do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from argument_table import Facts, Row, Subject, changes, check_argument, check_complete, frozen
from scipy import stats

import alpha
from alpha import ShapeError, nn, transforms

IMAGES = np.random.default_rng(0).random((6, 9, 12, 3)).astype(np.float32)
LABELS = np.array([0, 3, 1, 2, 1, 0])
EYE = np.eye(4, dtype=np.float32)[LABELS]
MIXING = ["CutMix", "MixUp"]


def run(
    mix: Callable[..., Any],
    images: np.ndarray = IMAGES,
    labels: np.ndarray = LABELS,
    device: str = "cpu",
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    alpha.manual_seed(seed)
    y, targets = mix(alpha.tensor(images, device=device), alpha.tensor(labels, device=device))
    return y.numpy(), targets.numpy()


def subject(name: str) -> Subject:
    target = getattr(transforms, name)

    def observe(arguments: dict[str, Any]) -> Facts:
        mix = target(**arguments)
        return {
            "values": frozen(run(mix, labels=EYE if arguments["num_classes"] is None else LABELS)),
            "repr": repr(mix),
        }

    rows: dict[str, Row] = {"alpha": changes(9.0), "num_classes": changes(7)}
    return Subject(target, observe, {"num_classes": 4}, rows)


@pytest.mark.parametrize("name", MIXING)
def test_every_argument_has_an_effect(name: str) -> None:
    row = subject(name)
    check_complete(row)
    for argument in row.rows:
        check_argument(row, argument)


def test_images_and_labels_are_mixed_with_those_before() -> None:
    shares = []
    for seed in range(20):
        y, targets = run(transforms.MixUp(num_classes=4), seed=seed)
        share = targets[1, 3]  # of class 3, which only image 1 has
        np.testing.assert_allclose(y, share * IMAGES + (1 - share) * np.roll(IMAGES, 1, 0), atol=1e-6)
        np.testing.assert_allclose(targets, share * EYE + (1 - share) * np.roll(EYE, 1, 0), atol=1e-6)
        shares.append(share)
    assert len(set(shares)) == 20


@pytest.mark.slow
def test_a_rectangle_shows_the_image_before() -> None:
    """A target has the area that is really there, and the rectangles come to all places."""
    touched = np.zeros((9, 12), bool)
    for seed in range(100):
        y, targets = run(transforms.CutMix(num_classes=4), seed=seed)
        other = np.roll(IMAGES, 1, 0)
        pasted = (y != IMAGES).all((0, 3))
        np.testing.assert_array_equal(y, np.where(pasted[..., None], other, IMAGES))
        rows, columns = np.flatnonzero(pasted.any(1)), np.flatnonzero(pasted.any(0))
        assert pasted.sum() == len(rows) * len(columns)
        if pasted.any():
            assert (rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1) == (len(rows), len(columns))
        share = 1 - pasted.mean()
        np.testing.assert_allclose(targets, share * EYE + (1 - share) * np.roll(EYE, 1, 0), atol=1e-6)
        touched |= pasted
    assert touched.all()


def test_rectangles_are_those_of_their_formula() -> None:
    """Draws are those of `symmetric_beta` and two more; half a side is rounded down, and the edges cut it."""
    for seed in range(50):
        y, _ = run(transforms.CutMix(alpha=0.7, num_classes=4), seed=seed)
        alpha.manual_seed(seed)
        x = alpha.tensor(IMAGES)
        share = transforms.mixing.symmetric_beta(x, 0.7).item()
        pasted = np.ones((9, 12), bool)
        for axis, n in enumerate((9, 12)):
            middle = int(alpha.rand((1, 1, 1, 1)).item() * n)
            half = int(0.5 * np.sqrt(1 - share) * n)
            inside = (np.arange(n) >= middle - half) & (np.arange(n) < middle + half)
            pasted &= inside[:, None] if axis == 0 else inside
        np.testing.assert_array_equal((y != IMAGES).all((0, 3)), pasted)


@pytest.mark.slow
@pytest.mark.parametrize("a", [0.05, 0.2, 0.5, 1.0, 3.0, 40.0])
def test_shares_have_a_beta_distribution(a: float, device: str) -> None:
    """Kolmogorov and Smirnov's distance of a sample, and its mean and variance, 1 / 2 and 1 / (8 a + 4)."""
    count = 1500 if device == "cpu" else 60
    x = alpha.zeros(1, 1, 1, 1, device=device)
    alpha.manual_seed(1)
    shares = np.array([transforms.mixing.symmetric_beta(x, a).item() for _ in range(count)])
    assert ((shares >= 0) & (shares <= 1)).all()
    places = np.linspace(1e-5, 1 - 1e-5, 99)  # not at the ends, where float32 cannot tell shares apart
    distances = [abs((shares <= at).mean() - stats.beta.cdf(at, a, a)) for at in places]
    assert max(distances) < 1.95 / np.sqrt(count)  # which one sample in a thousand exceeds
    variance = 1 / (8 * a + 4)
    assert abs(shares.mean() - 0.5) < 4 * np.sqrt(variance / count)
    if device == "cpu":
        assert abs(shares.var() / variance - 1) < 0.15


def test_the_extremes_of_a_share() -> None:
    """No draw makes NaN, also for the smallest alpha in float32."""
    alpha.manual_seed(0)
    x = alpha.zeros(1, 1, 1, 1)
    shares = np.array([transforms.mixing.symmetric_beta(x, 1e-3).item() for _ in range(500)])
    assert ((shares < 1e-6) | (shares > 1 - 1e-6)).mean() > 0.95
    assert 0.4 < shares.mean() < 0.6


@pytest.mark.parametrize("name", MIXING)
def test_both_devices_agree_and_the_seed_decides(name: str) -> None:
    mix = getattr(transforms, name)(num_classes=4)
    first = run(mix)
    for found, expected in zip(run(mix, device="cuda"), first, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)
    np.testing.assert_array_equal(run(mix)[0], first[0])
    assert (run(mix, seed=1)[0] != first[0]).any()


@pytest.mark.parametrize("name", MIXING)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_targets_have_the_dtype_of_the_images(name: str, dtype: str) -> None:
    x = alpha.tensor(IMAGES, dtype=dtype)
    for labels in (alpha.tensor(LABELS), alpha.tensor(LABELS, dtype="uint8"), alpha.tensor(EYE, dtype="float64")):
        y, targets = getattr(transforms, name)(num_classes=4)(x, labels)
        assert (y.shape, targets.shape) == (x.shape, (6, 4))
        assert y.dtype == targets.dtype == x.dtype
    assert getattr(transforms, name)()(x, alpha.tensor(EYE))[1].shape == (6, 4)


@pytest.mark.parametrize("name", MIXING)
def test_labels_may_be_mixed_again(name: str) -> None:
    mix = getattr(transforms, name)()
    soft = np.random.default_rng(3).random((6, 4)).astype(np.float32)
    _, targets = run(mix, labels=soft)
    share = (targets[0, 0] - soft[5, 0]) / (soft[0, 0] - soft[5, 0])
    np.testing.assert_allclose(targets, share * soft + (1 - share) * np.roll(soft, 1, 0), atol=1e-5)


@pytest.mark.parametrize("name", MIXING)
def test_evaluation_returns_what_it_was_given(name: str) -> None:
    mix = getattr(transforms, name)().eval()
    x, labels = alpha.tensor(IMAGES), alpha.tensor(LABELS)
    assert mix(x, labels) == (x, labels)
    assert mix(x) is x


@pytest.mark.parametrize("name", MIXING)
def test_what_cannot_be_mixed_is_refused(name: str) -> None:
    x, labels = alpha.tensor(IMAGES), alpha.tensor(LABELS)
    mix = getattr(transforms, name)(num_classes=4)
    with pytest.raises(TypeError, match=f"{name}: labels are needed in training"):
        mix(x)
    with pytest.raises(TypeError, match=f"{name}: labels are a list, a Tensor is needed"):
        mix(x, [0, 1])
    with pytest.raises(TypeError, match=f"{name}: labels have dtype bool"):
        mix(x, labels > 1)
    with pytest.raises(ShapeError, match=rf"{name}: labels \(N,\) of integers.*labels \(5,\)\)"):
        mix(x, labels[:5])
    with pytest.raises(ShapeError, match=rf"{name}: labels \(N, num_classes\) of floats.*labels \(6,\)\)"):
        mix(x, labels.float())
    with pytest.raises(ShapeError, match=f"{name}: num_classes=4 for labels of 3 classes"):
        mix(x, alpha.zeros(6, 3))
    with pytest.raises(ValueError, match=f"{name}: labels of integers need num_classes"):
        getattr(transforms, name)()(x, labels)
    with pytest.raises(ValueError, match="class 4 is out of range for num_classes=4"):
        mix(x, labels + 1)
    with pytest.raises(TypeError, match=f"{name}: x is a ndarray"):
        mix(IMAGES, labels)
    with pytest.raises(ShapeError, match=rf"{name}: images \(N, H, W, C\)"):
        mix(x[0], labels)
    none = mix(alpha.zeros(0, 9, 12, 3), alpha.zeros(0, dtype="int64"))
    assert [each.shape for each in none] == [(0, 9, 12, 3), (0, 4)]


# -- chains -----------------------------------------------------------------------------------------


def test_a_chain_of_images_and_labels() -> None:
    chain = transforms.Compose([transforms.RandomHorizontalFlip(1.0), transforms.CutMix(num_classes=4), nn.ReLU()])
    y, targets = run(chain)
    alpha.manual_seed(0)
    flipped = transforms.RandomHorizontalFlip(1.0)(alpha.tensor(IMAGES))
    expected = transforms.CutMix(num_classes=4)(flipped, alpha.tensor(LABELS))
    np.testing.assert_array_equal(y, expected[0].numpy())
    np.testing.assert_array_equal(targets, expected[1].numpy())
    x, labels = alpha.tensor(IMAGES), alpha.tensor(LABELS)
    assert chain.eval()(x, labels)[1] is labels
    np.testing.assert_array_equal(chain(x).numpy(), IMAGES)
    with pytest.raises(TypeError, match="CutMix: labels are needed"):
        chain.train()(x)


def test_a_chain_without_mixing_returns_the_labels() -> None:
    x, labels = alpha.tensor(IMAGES), alpha.tensor(LABELS)
    chain = transforms.Compose([transforms.RandomVerticalFlip(1.0)])
    y, targets = chain(x, labels)
    assert targets is labels
    np.testing.assert_array_equal(y.numpy(), IMAGES[:, ::-1])


def both(x: Any, targets: Any) -> Any:
    return x, targets


class Own(nn.Module):
    def forward(self, x: Any, targets: Any) -> Any:
        return x * 2, targets


@pytest.mark.parametrize(
    ("augment", "takes"),
    [
        (transforms.MixUp(), True),
        (transforms.CutMix(), True),
        (transforms.RandomHorizontalFlip(), False),
        (transforms.Compose([transforms.Grayscale(3)]), False),
        (transforms.Compose([transforms.Grayscale(3), transforms.MixUp()]), True),
        (transforms.Compose([transforms.Compose([transforms.MixUp()])]), True),
        (transforms.Compose([Own()]), True),
        (transforms.RandomChoice([transforms.MixUp(), transforms.CutMix()]), True),
        (transforms.RandomChoice([transforms.Grayscale(3)]), False),
        (transforms.Lambda(lambda x: x), False),
        (nn.Sequential(nn.ReLU()), False),
        (Own(), True),
        (both, True),
        (lambda x: x, False),
        (lambda x, y=None: x, False),
        (lambda x, *, y: x, False),
        (lambda x, y, z: x, False),
        (len, False),
        (dict, False),
    ],
)
def test_which_take_targets(augment: Any, takes: bool) -> None:
    assert transforms.takes_targets(augment) is takes


def test_a_chain_of_a_module_of_ones_own() -> None:
    y, targets = run(transforms.Compose([Own(), transforms.MixUp(num_classes=4)]))
    assert y.max() > 1.5
    assert targets.shape == (6, 4)


# -- one of several ---------------------------------------------------------------------------------


def test_each_image_goes_through_one_transform() -> None:
    """Shares of the transforms are those of p, of images and of targets alike."""
    many = np.repeat(IMAGES[:1], 400, 0)
    choice = transforms.RandomChoice(
        [transforms.RandomVerticalFlip(1.0), transforms.RandomHorizontalFlip(1.0)], p=[1, 3]
    )
    alpha.manual_seed(0)
    y = choice(alpha.tensor(many)).numpy()
    up = (y == IMAGES[0, ::-1]).all((1, 2, 3))
    assert ((y == IMAGES[0, :, ::-1]).all((1, 2, 3)) ^ up).all()
    assert abs(up.mean() - 0.25) < 0.07
    assert transforms.RandomChoice([nn.Identity(), nn.Identity()], p=[1, 3]).p == (0.25, 0.75)


def test_a_choice_of_mixings() -> None:
    mixes = [transforms.MixUp(num_classes=4), transforms.CutMix(num_classes=4)]
    y, targets = run(transforms.RandomChoice(mixes))
    alpha.manual_seed(0)
    x, labels = alpha.tensor(IMAGES), alpha.tensor(LABELS)
    made = [mix(x, labels) for mix in mixes]
    first = alpha.rand((6, 1, 1, 1)).numpy() < 0.5
    assert 0 < first.sum() < 6
    np.testing.assert_array_equal(y, np.where(first, *(image.numpy() for image, _ in made)))
    np.testing.assert_array_equal(targets, np.where(first[:, 0, 0], *(target.numpy() for _, target in made)))
    never = transforms.RandomChoice([*mixes, transforms.Compose([])], p=[1, 0, 0]).eval()
    assert never(x, labels) == (x, labels)


def test_a_choice_of_different_shapes() -> None:
    x, labels = alpha.tensor(IMAGES), alpha.tensor(LABELS)
    with pytest.raises(ShapeError, match=r"RandomChoice: .* same shapes .*\(6, 9, 12, 1\).*\(6, 9, 12, 3\)"):
        transforms.RandomChoice([transforms.Grayscale(1), transforms.Grayscale(3)])(x)
    with pytest.raises(ShapeError, match=r"RandomChoice: .* same shapes .*\(6,\).*\(6, 4\)"):
        transforms.RandomChoice([transforms.Grayscale(3), transforms.MixUp(num_classes=4)])(x, labels)
    crops = transforms.RandomChoice([transforms.RandomCrop(6), transforms.RandomResizedCrop(6)])
    assert crops(x).shape == crops.eval()(x).shape == (6, 6, 6, 3)
