"""bernoulli, multinomial, normal, randperm, gumbel_softmax: distributions, both devices, captured steps, errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha import ShapeError, Tensor
from alpha.ops.noise import distributions

WEIGHTS = np.array([[3.0, 0.0, 1.0, 4.0], [1.0, 1.0, 0.0, 0.0]], np.float32)
CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "bernoulli": lambda x: alpha.bernoulli(x / 4),
    "bernoulli p": lambda x: x.bernoulli(0.3),
    "multinomial": lambda x: x.multinomial(2),
    "multinomial again": lambda x: x.multinomial(9, replacement=True),
    "normal": lambda x: alpha.normal(x, x + 1),
    "normal of a number": lambda x: alpha.normal(2.0, x),
    "exponential_": lambda x: x.clone().exponential_(2.0),
    "geometric_": lambda x: x.clone().geometric_(0.1),
    "cauchy_": lambda x: x.clone().cauchy_(1.0, 2.0),
    "log_normal_": lambda x: x.clone().log_normal_(0.0, 0.5),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, 0.5),
    "gumbel_softmax hard": lambda x: F.gumbel_softmax(x, hard=True, dim=0),
}


@pytest.mark.parametrize("name", CALLS)
def test_both_devices_draw_alike(name: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        alpha.manual_seed(3)
        found.append(CALLS[name](alpha.tensor(WEIGHTS, device=device)))
        assert found[-1].device.name == device
    np.testing.assert_allclose(*(y.numpy() for y in found), rtol=1e-5)
    assert not np.array_equal(found[0].numpy(), CALLS[name](alpha.tensor(WEIGHTS)).numpy())  # a later draw


@pytest.mark.parametrize("name", CALLS)
def test_a_captured_step_draws_what_a_step_draws(name: str) -> None:
    x = alpha.tensor(WEIGHTS, device="cuda")
    step = alpha.capture(lambda: CALLS[name](x))
    drawn = []
    for call in (step, lambda: CALLS[name](x)):
        alpha.manual_seed(5)
        drawn.append([call().numpy() for _ in range(5)])
    assert step.why_not == ""
    np.testing.assert_array_equal(*drawn)


def test_places_come_as_often_as_their_weights_say() -> None:
    alpha.manual_seed(1)
    rows = 40000
    weights = alpha.tensor(np.tile(WEIGHTS[:1], (rows, 1)))
    shares = WEIGHTS[0] / WEIGHTS[0].sum()
    first = weights.multinomial(3).numpy()
    again = alpha.tensor(WEIGHTS[0]).multinomial(rows, True).numpy()
    largest = F.gumbel_softmax(weights.log(), 0.1).argmax(1).numpy()
    hard = F.gumbel_softmax(weights.log(), hard=True).sum(0).numpy() / rows
    for found in (first[:, 0], again, largest):
        np.testing.assert_allclose(np.bincount(found, minlength=4) / rows, shares, atol=0.01)
    np.testing.assert_allclose(hard, shares, atol=0.01)
    # without replacement: each once, never the one of weight 0, and the second by the weights that are left
    np.testing.assert_array_equal(np.sort(first, 1), np.tile([0, 2, 3], (rows, 1)))
    second = first[first[:, 0] == 3, 1]
    np.testing.assert_allclose(np.mean(second == 0), 3 / 4, atol=0.015)


def test_many_weights_are_drawn_evenly() -> None:
    """The least numbers of many keys differ, so that no place is preferred."""
    alpha.manual_seed(2)
    ones = alpha.ones(300_000)
    for places in (ones.multinomial(100_000).numpy(), ones.multinomial(100_000, True).numpy()):
        np.testing.assert_allclose(np.histogram(places, 10, (0, 300_000))[0], 10_000, rtol=0.05)
    assert len(np.unique(ones.multinomial(100_000).numpy())) == 100_000


def test_large_and_small_weights(device: str) -> None:
    x = alpha.tensor(np.array([1e30, 0.0, 1e30, 1e-30], np.float32), device=device)
    assert set(x.multinomial(50, True).tolist()) == {0, 2}
    assert sorted(x.multinomial(3).tolist()) == [0, 2, 3]
    wide = alpha.tensor([1e-300, 0.0, 1e-300, 1e-305], dtype="float64")
    assert set(wide.multinomial(50, True).tolist()) == {0, 2}
    assert 1 not in wide.multinomial(3).tolist()
    assert x.bfloat16().multinomial(1, True).shape == (1,)


def test_normal_numbers() -> None:
    alpha.manual_seed(4)
    x = alpha.normal(3.0, 0.5, (200, 200), dtype="float64", requires_grad=True)
    assert (x.dtype.name, x.requires_grad, x.is_leaf) == ("float64", True, True)
    np.testing.assert_allclose([x.numpy().mean(), x.numpy().std()], [3.0, 0.5], atol=0.01)
    mean = alpha.tensor([[0.0], [100.0]])
    y = alpha.normal(mean, alpha.full((10_000,), 2.0))
    np.testing.assert_allclose(y.numpy().mean(1), [0, 100], atol=0.1)
    np.testing.assert_allclose(y.numpy().std(1), 2, atol=0.1)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_normal_numbers_have_the_dtype_of_the_tensors(device: str, dtype: str) -> None:
    """The digits count, too: numbers of float64 are no float32 numbers."""
    zeros, ones = (alpha.full((2, 300), value, dtype=dtype, device=device) for value in (0.0, 1.0))
    alpha.manual_seed(9)
    expected = alpha.randn(2, 300, dtype=dtype, device=device).numpy()
    for mean, std in ((zeros, ones), (zeros, 1.0), (0.0, ones)):
        alpha.manual_seed(9)
        found = alpha.normal(mean, std, requires_grad=True)
        assert (found.dtype.name, found.device.name, found.requires_grad) == (dtype, device, True)
        np.testing.assert_array_equal(found.detach().numpy(), expected)


WITH_GENERATOR: dict[str, Callable[[Tensor, alpha.Generator], Tensor]] = {
    "bernoulli": lambda x, g: (x * 0 + 0.5).bernoulli(generator=g),
    "bernoulli p": lambda x, g: x.bernoulli(0.5, generator=g),
    "multinomial": lambda x, g: x.multinomial(20, generator=g),
    "multinomial again": lambda x, g: x.multinomial(20, True, generator=g),
    "normal": lambda x, g: alpha.normal(x, x, generator=g),
    "normal of numbers": lambda x, g: alpha.normal(0.0, 1.0, (20,), generator=g),
    "randperm": lambda x, g: alpha.randperm(20, generator=g),
    "exponential_": lambda x, g: x.clone().exponential_(generator=g),
    "geometric_": lambda x, g: x.clone().geometric_(0.1, generator=g),
    "cauchy_": lambda x, g: x.clone().cauchy_(generator=g),
    "log_normal_": lambda x, g: x.clone().log_normal_(generator=g),
}


@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_a_generator_alone_decides_what_is_drawn(name: str) -> None:
    def draw(seed: int, program: int) -> tuple[np.ndarray, float]:
        alpha.manual_seed(program)
        return WITH_GENERATOR[name](alpha.ones(20), alpha.Generator().manual_seed(seed)).numpy(), alpha.rand(1).item()

    (first, following), (again, _), (other, undisturbed) = draw(1, 3), draw(1, 4), draw(2, 3)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert following == undisturbed
    alpha.manual_seed(3)
    assert following == alpha.rand(1).item()


def test_the_ends_of_an_exponential_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """No number is 0 or infinite, whatever 32 bits are drawn."""
    bits = np.array([0, 1, 2**31, 2**32 - 1], np.float32)
    monkeypatch.setattr(distributions, "drawn", lambda *_: bits)
    found = distributions.exponential(alpha.ones(4)).numpy()
    np.testing.assert_allclose(found, [2.0**-33, 3 * 2.0**-33, np.log(2), 24 * np.log(2)], rtol=1e-6)


def test_further_distributions(device: str) -> None:
    """The quantiles of the distributions, and the dtypes that they take."""
    alpha.manual_seed(8)
    x = alpha.zeros(200, 200, device=device)
    quantiles = np.array([0.1, 0.5, 0.9])
    cases: dict[str, tuple[Callable[[Tensor], Tensor], np.ndarray]] = {
        "exponential_": (lambda x: x.exponential_(2.0), -np.log(1 - quantiles) / 2),
        "cauchy_": (lambda x: x.cauchy_(3.0, 0.5), 3 + 0.5 * np.tan(np.pi * (quantiles - 0.5))),
        "log_normal_": (lambda x: x.log_normal_(1.0, 0.25), np.exp(1 + 0.25 * np.array([-1.28155, 0, 1.28155]))),
        "geometric_": (lambda x: x.geometric_(0.05), np.ceil(np.log(1 - quantiles) / np.log(0.95))),
    }
    for name, (draw, expected) in cases.items():
        assert draw(x) is x
        np.testing.assert_allclose(np.quantile(x.numpy(), quantiles), expected, rtol=0.05, atol=0.02, err_msg=name)
    assert x.numpy().min() == 1
    trials = alpha.zeros(1000, dtype="int64", device=device).geometric_(0.5)
    assert (trials.dtype.name, trials.numpy().min()) == ("int64", 1)
    assert alpha.zeros(10, dtype="bfloat16", device=device).log_normal_().dtype.name == "bfloat16"
    leaf = alpha.ones(3, device=device, requires_grad=True)
    y = leaf * 2
    y.exponential_()
    y.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [0, 0, 0]


def test_distributions_that_are_refused() -> None:
    x = alpha.zeros(2)
    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: x.exponential_(0), ValueError, "exponential_: lambd=0.0 is not above 0"),
        (lambda: x.exponential_("1"), TypeError, "exponential_: lambd='1' is not a number"),
        (lambda: x.geometric_(1.0), ValueError, "geometric_: p=1.0 is not between 0 and 1"),
        (lambda: x.geometric_("1"), TypeError, "geometric_: p='1' is not a number"),
        (lambda: x.cauchy_(0, -1), ValueError, "cauchy_: sigma=-1.0 is not above 0"),
        (lambda: x.cauchy_("0"), TypeError, "cauchy_: median='0' is not a number"),
        (lambda: x.log_normal_("1"), TypeError, "log_normal_: mean='1' is not a number"),
        (lambda: x.log_normal_(1, 0), ValueError, "log_normal_: std=0.0 is not above 0"),
        (lambda: x.long().log_normal_(), TypeError, "log_normal_: x has dtype int64"),
        (lambda: alpha.normal("0", x + 1), TypeError, "normal: mean='0' is not a number"),  # type: ignore[arg-type]
        (lambda: alpha.normal(x, "1"), TypeError, "normal: std='1' is not a number"),  # type: ignore[arg-type]
        (lambda: x.long().exponential_(), TypeError, "exponential_: x has dtype int64; float32, float64 or bfloat16"),
        (lambda: x.long().cauchy_(), TypeError, "cauchy_: x has dtype int64"),
        (lambda: x.requires_grad_().log_normal_(), alpha.GradientError, "copy_"),
    ]
    for call, error, message in calls:
        with pytest.raises(error, match=f"^{message}"):
            call()


@pytest.mark.parametrize("name", ["exponential_", "cauchy_", "log_normal_"])
def test_numbers_are_drawn_as_exactly_as_the_dtype_holds_them(device: str, name: str) -> None:
    def draw(dtype: str) -> Tensor:
        alpha.manual_seed(3)
        drawn: Tensor = getattr(alpha.zeros(50, dtype=dtype, device=device), name)()
        assert drawn.dtype == dtype
        return drawn

    np.testing.assert_array_equal(draw("bfloat16").numpy(), draw("float32").bfloat16().numpy())
    if device == "cpu":
        wide = draw("float64").numpy()
        assert np.count_nonzero(wide != wide.astype(np.float32)) > 25


def test_probabilities(device: str) -> None:
    alpha.manual_seed(6)
    x = alpha.tensor([0.0, 1.0, 0.25], device=device, requires_grad=True).reshape(1, 3).expand(20_000, 3)
    y = alpha.bernoulli(x)
    assert not y.requires_grad
    np.testing.assert_allclose(y.numpy().mean(0), [0, 1, 0.25], atol=0.01)
    assert x.bfloat16().bernoulli().dtype == x.bfloat16().dtype


def test_the_gradient_of_hard_choices_is_that_of_the_shares(device: str) -> None:
    g = alpha.tensor(np.arange(8, dtype=np.float32).reshape(2, 4), device=device)
    found = []
    for hard in (False, True):
        alpha.manual_seed(7)
        x = alpha.tensor(WEIGHTS, device=device, requires_grad=True)
        y = F.gumbel_softmax(x, 2.0, hard)
        y.backward(g)
        assert x.grad is not None
        found.append(x.grad.numpy())
    assert set(np.round(y.numpy(), 6).ravel()) == {0, 1}
    np.testing.assert_array_equal(*found)
    assert np.abs(found[0]).max() > 0


def test_wrong_arguments() -> None:
    x = alpha.tensor(WEIGHTS)
    for call, error, message in (
        (lambda: x.multinomial(3), ValueError, "multinomial: a row has 2 weights above 0 for 3 places"),
        (lambda: (x * 0).multinomial(3, True), ValueError, "multinomial: a row has 0 weights above 0 for 1 places"),
        (lambda: (-x).multinomial(1), ValueError, "multinomial: a weight is -3.0"),
        (lambda: (x / 0).multinomial(1), ValueError, "multinomial: a weight is "),
        (lambda: x.multinomial(5), ShapeError, "multinomial: 5 places of 4 need replacement=True"),
        (lambda: x.reshape(2, 2, 2).multinomial(1), ShapeError, "multinomial: weights"),
        (lambda: x.bernoulli(), ValueError, "bernoulli: x has 3.0"),
        (lambda: x.bernoulli(1.5), ValueError, "bernoulli: p=1.5"),
        (lambda: alpha.normal(0.0, 1.0), TypeError, "normal: size is needed"),
        (lambda: alpha.normal(0.0, -1.0, (2,)), ValueError, "normal: std=-1.0 must be at least 0"),
        (lambda: alpha.normal(x, x, (2,)), TypeError, "normal: size, dtype and device are those of the tensors"),
        (lambda: alpha.normal(x, x[:, :3]), ShapeError, "normal: the shapes do not broadcast"),
        (lambda: alpha.normal(x.long(), 1.0), TypeError, "normal: mean has dtype int64"),
        (lambda: F.gumbel_softmax(x, 0.0), ValueError, "gumbel_softmax: tau=0.0 must be more than 0"),
    ):
        with pytest.raises(error, match=rf"^{message}"):
            call()


def test_random_numbers_are_those_of_the_seed() -> None:
    found = []
    for device in ("cpu", "cuda"):
        alpha.manual_seed(3)
        x, y = alpha.rand(3, 7, device=device), alpha.randint(-2, 9, (5,), device=device)
        z = alpha.randn(4, 3, device=device)
        found.append((x.numpy(), y.numpy(), alpha.rand_like(x).numpy()))
        assert x.device.name == y.device.name == device
        assert 0 <= found[-1][0].min() <= found[-1][0].max() < 1
        np.testing.assert_allclose(z.numpy().mean(), 0.0, atol=1.0)
    for cpu, cuda in zip(*found, strict=True):
        np.testing.assert_array_equal(cpu, cuda)


def test_a_captured_step_draws_other_numbers_at_each_replay() -> None:
    @alpha.capture
    def step(x: Tensor) -> Tensor:
        return (
            x + alpha.rand(4, device="cuda") * alpha.arange(1, 5, device="cuda").float() + alpha.eye(4, device="cuda")
        )

    x = alpha.zeros(4, device="cuda")
    alpha.manual_seed(0)
    found = [step(x).numpy() for _ in range(6)]
    alpha.manual_seed(0)
    times = np.arange(1, 5, dtype=np.float32)
    expected = [alpha.rand(4).numpy() * times + np.eye(4, dtype=np.float32) for _ in range(6)]
    np.testing.assert_array_equal(found, expected)


def test_random_orders(device: str) -> None:
    alpha.manual_seed(1)
    x = alpha.randperm(300, device=device)
    assert (x.dtype.name, x.device.name) == ("int64", device)
    assert sorted(x.tolist()) == list(range(300))
    assert x.tolist() != list(range(300))
    assert alpha.randperm(300, device=device).tolist() != x.tolist()
    alpha.manual_seed(1)
    assert alpha.randperm(300, device=device, dtype="int32").tolist() == x.tolist()
    assert alpha.randperm(0, device=device).shape == (0,)
    with pytest.raises(ValueError, match="randperm: n=-1"):
        alpha.randperm(-1)
