"""Pools: gradients, windows that overlap or reach over the border, indices, agreement with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import apart, check_gradient, check_torch, nchw
from launch_log import observed_launches

import alpha
import alpha.nn.functional as F
from alpha import ShapeError

# (x, kernel_size, stride, padding)
WINDOWS = [
    ((2, 6, 6, 4), 2, None, 0),
    ((2, 7, 6, 3), 3, 2, 1),
    ((2, 5, 7, 3), (2, 3), 2, 1),
    ((2, 9, 4, 8), (3, 2), (4, 3), (0, 1)),
    ((1, 1, 1, 1), 1, 1, 0),
    ((3, 5, 5, 2), 5, 1, 2),
]
ADAPTIVE = [((2, 7, 5, 4), 1), ((2, 7, 5, 3), (3, 2)), ((1, 2, 3, 4), (4, 5)), ((2, 6, 6, 8), (6, 3))]


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_gradients(case: tuple[Any, ...]) -> None:
    shape, *window = case
    check_gradient(lambda x: F.max_pool2d(x, *window), apart(*shape))
    for count in (True, False):
        check_gradient(lambda x: F.avg_pool2d(x, *window, count_include_pad=count), shape)  # noqa: B023


def test_a_divisor_of_three_axes_divides_once(device: str) -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 2, 2)
    y = F.avg_pool3d(alpha.tensor(x, device=device), (2, 3, 2), divisor_override=4)
    np.testing.assert_allclose(y.numpy().ravel(), x.sum((0, 1, 2, 3)) / 4, rtol=1e-6)


def test_packs_of_a_gradient_are_aligned() -> None:
    device: Any = alpha.get_device("cuda")
    whole = alpha.tensor(np.ones(33, np.float32), device=device)
    for dy, vector in ((whole[:32], 4), (whole[1:], 1)):
        x = alpha.tensor(np.ones((1, 4, 4, 8), np.float32), device=device, requires_grad=True)
        y = F.max_pool2d(x, 2)
        with observed_launches(device) as launched:
            y.backward(dy.reshape(1, 2, 2, 8))
        found = [launch.defines["VECTOR"] for launch in launched if launch.entry == "max_pool2d_backward"]
        assert found == [vector]


@pytest.mark.parametrize("case", ADAPTIVE, ids=str)
def test_adaptive_gradients(case: tuple[Any, Any]) -> None:
    check_gradient(lambda x: F.adaptive_avg_pool2d(x, case[1]), case[0])


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_as_in_pytorch(device: str, case: tuple[Any, ...]) -> None:
    functional = pytest.importorskip("torch").nn.functional
    shape, *window = case
    check_torch(
        lambda x: F.max_pool2d(x, *window),
        nchw(lambda x: functional.max_pool2d(x, *window)),
        apart(*shape),
        device=device,
    )
    for count in (True, False):
        check_torch(
            lambda x: F.avg_pool2d(x, *window, count_include_pad=count),  # noqa: B023
            nchw(lambda x: functional.avg_pool2d(x, *window, count_include_pad=count)),  # noqa: B023
            shape,
            device=device,
        )


@pytest.mark.torch
@pytest.mark.parametrize("case", ADAPTIVE, ids=str)
def test_adaptive_as_in_pytorch(device: str, case: tuple[Any, Any]) -> None:
    functional = pytest.importorskip("torch").nn.functional
    twin = nchw(lambda x: functional.adaptive_avg_pool2d(x, case[1]))
    check_torch(lambda x: F.adaptive_avg_pool2d(x, case[1]), twin, case[0], device=device)


def test_the_first_of_equal_numbers_gets_the_gradient(device: str) -> None:
    x = alpha.tensor(np.zeros((1, 2, 2, 4), np.float32), requires_grad=True, device=device)
    F.max_pool2d(x, 2).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy()[0, :, :, 0], [[1, 0], [0, 0]])


@pytest.mark.parametrize("position", range(4))
def test_nan_is_the_maximum(device: str, position: int) -> None:
    x = np.ones(4, np.float32)
    x[position] = np.nan
    y = F.max_pool2d(alpha.tensor(x.reshape(1, 2, 2, 1), device=device), 2)
    assert np.isnan(y.item())


CEIL = [
    ((2, 6, 6, 4), 4, None, 0),
    ((2, 7, 6, 3), 3, 2, 1),
    ((1, 6, 8, 3), (2, 3), 3, 1),
    ((2, 9, 4, 8), (3, 2), (4, 3), (0, 1)),
    ((1, 2, 2, 1), 1, 3, 0),  # the rounded window would begin behind the image
]


@pytest.mark.parametrize("case", CEIL, ids=str)
def test_ceil_mode_gradients(case: tuple[Any, ...]) -> None:
    shape, *window = case
    check_gradient(lambda x: F.max_pool2d(x, *window, ceil_mode=True), apart(*shape))
    check_gradient(lambda x: F.avg_pool2d(x, *window, True, False), shape)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("case", CEIL, ids=str)
def test_ceil_mode_as_in_pytorch(device: str, case: tuple[Any, ...]) -> None:
    functional = pytest.importorskip("torch").nn.functional
    shape, *window = case
    check_torch(
        lambda x: F.max_pool2d(x, *window, 1, True),
        nchw(lambda x: functional.max_pool2d(x, *window, 1, True)),
        apart(*shape),
        device=device,
    )
    for rest in ((True, True), (True, False), (True, True, -3), (False, False, 5)):
        check_torch(
            lambda x: F.avg_pool2d(x, *window, *rest),  # noqa: B023
            nchw(lambda x: functional.avg_pool2d(x, *window, *rest)),  # noqa: B023
            shape,
            device=device,
        )


@pytest.mark.torch
@pytest.mark.parametrize("size", [None, (None, 2), (3, None), (None, None)])
def test_adaptive_sizes_of_the_input(device: str, size: Any) -> None:
    functional = pytest.importorskip("torch").nn.functional
    twin = nchw(lambda x: functional.adaptive_avg_pool2d(x, (None, None) if size is None else size))
    check_torch(lambda x: F.adaptive_avg_pool2d(x, size), twin, (2, 5, 4, 3), device=device)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_integers_are_refused(device: str, dtype: str) -> None:
    x = alpha.tensor(np.ones((1, 4, 4, 2)), device=device).astype(dtype)
    for pool in (F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d):
        with pytest.raises(TypeError, match=rf"{pool.__name__}: x has dtype {dtype}"):
            pool(x, 2)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_a_window_of_zeros_has_the_gradient_0(device: str, p: float) -> None:
    """The root of 0 has no slope. A window beside it keeps its own."""
    values = np.zeros((1, 2, 4, 1), np.float32)
    values[0, :, 2:, 0] = 2
    x = alpha.tensor(values, device=device, requires_grad=True)
    y = F.lp_pool2d(x, p, 2)
    y.sum().backward()
    np.testing.assert_allclose(y.numpy().reshape(-1), [0, 2 * 4 ** (1 / p)], rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy()[0, :, :2], 0)
    np.testing.assert_allclose(x.grad.numpy()[0, :, 2:], 4 ** (1 / p - 1), rtol=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_batch_of_no_images_is_taken(device: str, rank: int) -> None:
    calls: dict[str, dict[str, Any]] = {
        "avg_pool": {"kernel_size": 2},
        "lp_pool": {"norm_type": 2.0, "kernel_size": 2},
        "max_pool": {"kernel_size": 2},
        "adaptive_avg_pool": {"output_size": 3},
        "adaptive_max_pool": {"output_size": 3},
        "fractional_max_pool": {"kernel_size": 2, "output_size": 3},
    }
    if rank == 1:
        del calls["fractional_max_pool"]
    x = alpha.zeros(0, *[6] * rank, 4, device=device, requires_grad=True)
    for name, given in calls.items():
        function = getattr(F, f"{name}{rank}d")
        y = function(x, **given)
        assert y.shape == (0, *[3] * rank, 4)
        x.grad = None
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.shape == x.shape
        if "max" in name:
            y, indices = function(x, **given, return_indices=True)
            assert y.shape == indices.shape == (0, *[3] * rank, 4)
            assert (indices.dtype.name, indices.device.name) == ("int64", device)
    assert getattr(F, f"max_unpool{rank}d")(y, indices, 2).shape == x.shape


def test_errors(device: str) -> None:
    x = alpha.tensor(np.zeros((1, 4, 4, 3), np.float32), device=device)
    with pytest.raises(ShapeError, match=r"avg_pool1d: the output would be \(0, 0, 3\), which is empty"):
        F.avg_pool1d(alpha.zeros(0, 1, 3, device=device), 2)
    with pytest.raises(ShapeError, match=r"adaptive_avg_pool1d: x \(N, L, C\) and a positive output_size are needed"):
        F.adaptive_avg_pool1d(alpha.zeros(0, 0, 3, device=device), 2)
    with pytest.raises(ShapeError, match=r"max_pool2d: the output would be \(1, 0, 0, 3\), which is empty"):
        F.max_pool2d(x, 5)
    with pytest.raises(ShapeError, match=r"padding \(2, 2\) at most half the kernel"):
        F.avg_pool2d(x, 3, 1, 2)
    with pytest.raises(ShapeError, match=r"avg_pool2d: x \(N, H, W, C\) is needed  \(x \(4, 4\)\)"):
        F.avg_pool2d(x.reshape(3, 16)[:1].reshape(4, 4), 2)
    with pytest.raises(ShapeError, match=r"output_size \(0, 1\)"):
        F.adaptive_avg_pool2d(x, (0, 1))


# -- one and three axes, indices, dilation ----------------------------------------------------------------

# (function, x, arguments); the last one has windows of more taps than a byte holds
MAXIMA = [
    ("max_pool1d", (2, 9, 3), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    ("max_pool2d", (2, 9, 8, 4), {"kernel_size": (3, 2), "stride": (1, 2), "padding": 1, "dilation": (2, 3)}),
    ("max_pool3d", (2, 5, 6, 7, 3), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
    ("adaptive_max_pool2d", (2, 7, 5, 4), {"output_size": (3, 2)}),
    ("adaptive_max_pool3d", (1, 4, 5, 3, 3), {"output_size": (3, 2, 3)}),
    ("max_pool2d", (1, 18, 17, 4), {"kernel_size": 17}),
]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("name", "shape", "given"), MAXIMA, ids=str)
def test_maxima_and_their_indices(device: str, name: str, shape: tuple[int, ...], given: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    values = np.round(apart(*shape)).astype(np.float32)  # with equal ones
    values.reshape(-1)[7::29] = np.nan
    values[0, :4, ..., 0] = -np.inf
    x = alpha.tensor(values, requires_grad=True, device=device)
    twin = torch.tensor(np.moveaxis(values, -1, 1).copy(), requires_grad=True)
    y, indices = getattr(F, name)(x, **given, return_indices=True)
    theirs, places = getattr(torch.nn.functional, name)(twin, **given, return_indices=True)
    np.testing.assert_array_equal(y.numpy(), np.moveaxis(theirs.detach().numpy(), 1, -1))
    np.testing.assert_array_equal(indices.numpy(), np.moveaxis(places.numpy(), 1, -1))
    (y * y).sum().backward()
    theirs.backward(2 * theirs.detach())
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.moveaxis(twin.grad.numpy(), 1, -1))


def test_unpooling_puts_the_maxima_back(device: str) -> None:
    x = alpha.tensor(apart(2, 7, 6, 3).astype(np.float32), requires_grad=True, device=device)
    y, indices = F.max_pool2d(x, 2, return_indices=True)
    back = F.max_unpool2d(y, indices, 2, output_size=(7, 6))
    kept = back.numpy() != 0
    np.testing.assert_array_equal(back.numpy(), np.where(kept, x.numpy(), 0))
    assert kept.sum() == y.size
    (back * back).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), 2 * back.numpy())
    with pytest.raises(ShapeError, match=r"max_unpool2d: output_size \(9, 6\) must be .* within the stride \(2, 2\)"):
        F.max_unpool2d(y, indices, 2, output_size=(9, 6))


# -- windows at random places -----------------------------------------------------------------------------


def test_fractional_gradients() -> None:
    samples = alpha.tensor(np.random.default_rng(0).uniform(size=(2, 3, 2)))
    check_gradient(lambda x: F.fractional_max_pool2d(x, (2, 3), (3, 4), _random_samples=samples), apart(2, 7, 8, 3))


@pytest.mark.torch
def test_fractional_as_in_pytorch(device: str) -> None:
    torch = pytest.importorskip("torch")
    values = apart(2, 5, 6, 7, 3).astype(np.float32)
    samples = np.random.default_rng(0).uniform(size=(2, 3, 3)).astype(np.float32)
    given = {"_random_samples": alpha.tensor(samples, device=device), "return_indices": True}
    y, indices = F.fractional_max_pool3d(alpha.tensor(values, device=device), (2, 1, 3), (3, 2, 4), **given)
    twin = torch.tensor(np.moveaxis(values, -1, 1).copy())
    theirs, places = torch.nn.functional.fractional_max_pool3d(
        twin, (2, 1, 3), (3, 2, 4), return_indices=True, _random_samples=torch.tensor(samples)
    )
    np.testing.assert_array_equal(y.numpy(), np.moveaxis(theirs.numpy(), 1, -1))
    np.testing.assert_array_equal(indices.numpy(), np.moveaxis(places.numpy(), 1, -1))


def test_fractional_places_are_drawn_by_the_seed(device: str) -> None:
    x = alpha.tensor(apart(2, 9, 9, 4).astype(np.float32), device=device)
    drawn = []
    for seed in (1, 1, 2):
        alpha.manual_seed(seed)
        drawn.append(F.fractional_max_pool2d(x, 2, output_ratio=0.6).numpy())
    assert drawn[0].shape == (2, 5, 5, 4)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    with pytest.raises(ShapeError, match=r"fractional_max_pool2d: \(9, 9\) windows of \(2, 2\) do not fit x \(2, 9"):
        F.fractional_max_pool2d(x, 2, 9)
    with pytest.raises(ValueError, match=r"output_ratio=1\.5 is not a number between 0 and 1"):
        F.fractional_max_pool2d(x, 2, output_ratio=1.5)


@pytest.mark.parametrize("windows", [(2, 2, 2), (1, 2, 2), (2, 1, 1), (1, 1, 2)], ids=str)
@pytest.mark.parametrize("name", ["avg_pool3d", "max_pool3d"])
def test_a_volume_without_a_batch_is_a_batch_of_one(name: str, windows: tuple[int, int, int], device: str) -> None:
    """(D, H, W, C) has four axes, as a batch of images has."""
    x = alpha.randn(4, 6, 4, 3, device=device)
    function = getattr(F, name)
    np.testing.assert_array_equal(function(x, windows).numpy(), function(x.reshape(1, 4, 6, 4, 3), windows).numpy()[0])
