"""Batch normalisation with the maximum pool behind it: one operator, which computes what the two compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
import pytest
from conv2d_cases import hopper
from launch_log import observed_launches

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.autograd import tracing
from alpha.nn.summary.kept_sides import INPUT, kept_sides
from alpha.ops.kernel.plan import Plan
from alpha.ops.normalization import batch_norm
from alpha.ops.normalization.batch_norm_pool import BatchNormPool, takes_windows
from alpha.ops.pooling.max_pool import MaxPool2d
from alpha.ops.pooling.pool_shape import Windows
from alpha.runtime.cuda.cuda_device import CudaDevice

RNG = np.random.default_rng(0)
SHAPE = (3, 9, 8, 20)
X = RNG.standard_normal(SHAPE).astype(np.float32) * 2 + 1
SPECIAL = np.where(RNG.random(SHAPE) < 0.3, RNG.choice(np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0]), SHAPE), X)
SPECIAL[0, :4, :4] = -np.inf  # windows without a number above it
POOLS = {
    "apart": nn.MaxPool2d(2),
    "overlapping": nn.MaxPool2d(3, 2, 1),
    "beyond the border": nn.MaxPool2d(3, 2, ceil_mode=True),
    "of two lengths": nn.MaxPool2d((1, 3), 2),
    "padded": nn.MaxPool2d(2, 2, 1),
}
ACTIVATIONS = {"none": None, "relu": nn.ReLU(), "leaky relu": nn.LeakyReLU(0.25), "relu6": nn.ReLU6()}


@pytest.fixture
def hopper_gpu() -> CudaDevice:
    """The GPU if it is a Hopper one, else an emulated one of two SMs."""
    return hopper(2)


def layer(on: str, C: int = SHAPE[-1]) -> nn.BatchNorm2d:
    """A layer whose weights have both signs."""
    norm = nn.BatchNorm2d(C)
    draws = np.random.default_rng(1).standard_normal((3, C)).astype(np.float32)
    norm.load_state_dict(
        {
            "weight": alpha.tensor(draws[0]),
            "bias": alpha.tensor(draws[1]),
            "running_mean": alpha.tensor(draws[2]),
            "running_var": alpha.tensor(np.abs(draws[2]) + 0.5),
        }
    )
    return norm.to(on)


def computed(call: Callable[..., Tensor], norm: nn.BatchNorm2d, x: np.ndarray, on: str) -> list[np.ndarray]:
    """The result, the running statistics, and the gradients of x, weight and bias."""
    given = alpha.tensor(x, device=on, requires_grad=True)
    y = call(norm, given)
    dy = np.random.default_rng(2).standard_normal(y.shape).astype(np.float32)
    y.backward(alpha.tensor(dy, device=on).astype(y.dtype))
    grads = given.grad, norm.weight.grad, norm.bias.grad  # type: ignore[union-attr]
    return [t.numpy().astype(np.float64) for t in (y, norm.running_mean, norm.running_var, *grads) if t is not None]


def together(activation: Any, pool: nn.MaxPool2d) -> Callable[..., Tensor]:
    def call(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
        y = nn.batch_norm_activation(norm, x, activation, pool=pool)
        assert isinstance(y._node, BatchNormPool)
        return y

    return call


def apart(activation: Any, pool: nn.MaxPool2d) -> Callable[..., Tensor]:
    def call(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
        y: Tensor = pool(nn.batch_norm_activation(norm, x, activation))
        assert isinstance(y._node, MaxPool2d)
        return y

    return call


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pool", POOLS)
def test_together_as_one_by_one(device: str, pool: str, activation: str, training: bool, dtype: str) -> None:
    """The maxima are the same bit for bit; gradients differ by what rounding them between the operators costs."""
    x = X if dtype == "float32" else X.astype(ml_dtypes.bfloat16)
    how = ACTIVATIONS[activation], POOLS[pool]
    found, expected = (computed(call(*how), layer(device).train(training), x, device) for call in (together, apart))
    for f, e in zip(found[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(f, e)
    tolerance = 2e-6 if dtype == "float32" else 2e-2
    for f, e in zip(found[3:], expected[3:], strict=True):
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance * np.abs(e).max())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_drawn_shapes(device: str, seed: int) -> None:
    """Channels that are no whole packs, maps of one pixel, several blocks, tiles of channels, gaps between windows."""
    rng = np.random.default_rng(seed)
    C = int(rng.choice([1, 3, 4, 8, 20, 65, 300]))
    length = int(rng.integers(1, 4))
    pool = nn.MaxPool2d(length, 2, int(rng.integers(0, length // 2 + 1)), ceil_mode=bool(rng.integers(2)))
    shape = (int(rng.integers(2, 40)), *(int(i) for i in rng.integers(length, 24, 2)), C)
    x = rng.standard_normal(shape).astype(np.float32)
    activation = list(ACTIVATIONS.values())[rng.integers(len(ACTIVATIONS))]
    found, expected = (computed(call(activation, pool), layer(device, C), x, device) for call in (together, apart))
    np.testing.assert_array_equal(found[0], expected[0])
    for f, e in zip(found[3:], expected[3:], strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-5 * np.abs(e).max())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pool", POOLS)
def test_what_is_not_finite(device: str, pool: str, dtype: str) -> None:
    """NaN is above every number, and windows of -inf alone have a maximum, too."""
    x = alpha.tensor(SPECIAL.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32), device=device)
    norm = layer(device).eval()
    for activation in ACTIVATIONS.values():
        found, expected = (call(activation, POOLS[pool]) for call in (together, apart))
        x = x.detach().requires_grad_()
        np.testing.assert_array_equal(found(norm, x).float().numpy(), expected(norm, x).float().numpy())


def test_gradients_of_float64() -> None:
    """The rule gives the slopes of the function."""
    norm, pool = nn.BatchNorm2d(3).double(), nn.MaxPool2d(3, 2, 1)
    x = np.random.default_rng(3).standard_normal((2, 5, 4, 3))
    weights = np.random.default_rng(4).standard_normal((2, 3, 2, 3))

    def loss(values: np.ndarray) -> Tensor:
        y = nn.batch_norm_activation(norm, alpha.tensor(values, requires_grad=True), nn.LeakyReLU(0.2), pool=pool)
        return (y * alpha.tensor(weights)).sum()

    given = alpha.tensor(x, requires_grad=True)
    y = nn.batch_norm_activation(norm, given, nn.LeakyReLU(0.2), pool=pool)
    (y * alpha.tensor(weights)).sum().backward()
    assert given.grad is not None
    for place in ((0, 0, 0, 0), (1, 4, 3, 2), (0, 2, 1, 1)):
        step = np.zeros_like(x)
        step[place] = 1e-6
        slope = (loss(x + step).item() - loss(x - step).item()) / 2e-6
        assert given.grad.numpy()[place] == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_the_result_of_the_normalisation_is_nowhere(hopper_gpu: CudaDevice) -> None:
    """Two passes over x in forward, of which the convolution saves one, two in backward; nothing as large is made."""
    on = hopper_gpu
    x = alpha.tensor(X, device=on, requires_grad=True)
    norm, pool = nn.BatchNorm2d(SHAPE[-1]).to(on), nn.MaxPool2d(2)
    with observed_launches(on) as launched:
        nn.batch_norm_activation(norm, x, nn.ReLU(), pool=pool).sum().backward()
    entries = [launch.entry for launch in launched if launch.source.startswith(("batchnorm", "pool2d"))]
    assert entries == ["statistics", "merge_statistics", "apply_pool", "pool_gradient_sums", "pool_input_gradient"]


def test_the_rectifier_of_x_is_undone_in_the_same_pass(hopper_gpu: CudaDevice) -> None:
    """Convolution, leaky ReLU, batch normalisation and pool, as in the paper's VGG."""
    results = []
    for on in ("cpu", hopper_gpu):
        alpha.manual_seed(0)
        layers = nn.Conv2d(20, 20, 3, padding=1), nn.LeakyReLU(0.01), nn.BatchNorm2d(20), nn.MaxPool2d(2)
        model = nn.Sequential(*layers).to(on)
        x = alpha.tensor(X, device=on, requires_grad=True)
        with observed_launches(hopper_gpu) as launched:
            model(x).square().sum().backward()
        results.append([x.grad, *(p.grad for p in model.parameters())])
    entries = [launch.entry for launch in launched]
    assert [launch.defines["BEHIND"] for launch in launched if launch.entry == "pool_input_gradient"] == [1]
    assert entries[entries.index("pool_input_gradient") + 1] != "map"
    for e, f in zip(*results, strict=True):
        assert e is not None
        assert f is not None
        np.testing.assert_allclose(f.numpy(), e.numpy(), rtol=1e-4, atol=1e-5 * np.abs(e.numpy()).max())


def test_the_statistics_of_the_convolution_are_used(hopper_gpu: CudaDevice) -> None:
    """X is read once in the forward pass."""
    model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.MaxPool2d(2)).to(hopper_gpu)
    N = 10 * hopper_gpu.properties.num_sms
    x = alpha.tensor(RNG.standard_normal((N, 8, 8, 64)).astype(np.float32), device=hopper_gpu)
    with observed_launches(hopper_gpu) as launched:
        model(x)
    entries = [launch.entry for launch in launched if launch.source.startswith(("batchnorm", "pool2d"))]
    assert entries == ["merge_counted_statistics", "apply_pool"]


def nodes(y: Tensor) -> list[str]:
    """The operators behind a result, along first inputs."""
    found, node = [], y._node
    while node is not None and hasattr(node, "edges"):
        found.append(node.name)
        node = node.edges[0]
    return found


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("before", [[], [nn.Conv2d(20, 20, 1)], [nn.Conv2d(20, 20, 1), nn.LeakyReLU()]])
@pytest.mark.parametrize("activation", [[], [nn.ReLU()]])
def test_sequential_calls_them_together(before: list[nn.Module], activation: list[nn.Module], training: bool) -> None:
    x = alpha.tensor(X, requires_grad=True)
    model = nn.Sequential(*before, nn.BatchNorm2d(20), *activation, nn.MaxPool2d(2), nn.Conv2d(20, 4, 1)).train(
        training
    )
    y = model(x)
    assert nodes(y)[:2] == ["Conv2d", "BatchNormPool"]
    one_by_one: Any = x
    for module in model.children():
        one_by_one = module(one_by_one)
    np.testing.assert_allclose(y.numpy(), one_by_one.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(2, 1),
        nn.MaxPool2d(3, 3),
        nn.MaxPool2d(5, 2),
        nn.MaxPool2d(2, 2, dilation=2),
        nn.AdaptiveMaxPool2d(3),
        nn.AvgPool2d(2),
    ],
    ids=str,
)
def test_other_pools_have_their_own_passes(pool: nn.Module) -> None:
    y = nn.Sequential(nn.BatchNorm2d(20), pool)(alpha.tensor(X, requires_grad=True))
    assert "BatchNorm" in nodes(y)


def test_which_pools_the_kernels_take() -> None:
    assert takes_windows(Windows(2, None, 0, 1, False))
    assert takes_windows(Windows((1, 3), (2, 2), 0, 1, True))
    assert not takes_windows(Windows(2, (2, 1), 0, 1, False))
    assert not takes_windows(Windows(4, 2, 0, 1, False))
    assert not takes_windows(Windows(2, 2, 0, (1, 2), False))
    assert not takes_windows(None)


def test_maps_of_more_pixels_than_the_kernels_count_have_two_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    norm, pool, x = layer("cpu"), nn.MaxPool2d(2), alpha.tensor(X, requires_grad=True)
    for most, made_by in ((3 * 9 * 8, BatchNormPool), (3 * 9 * 8 - 1, MaxPool2d)):
        monkeypatch.setattr(batch_norm, "MOST_PIXELS", most)
        assert isinstance(nn.batch_norm_activation(norm, x, None, pool=pool)._node, made_by)


def test_a_pool_that_the_kernels_do_not_take_changes_nothing_before_it(hopper_gpu: CudaDevice) -> None:
    """Convolution and batch normalisation stay one plan."""
    for pool in (nn.MaxPool2d(3, 3), nn.MaxPool2d(2, 1), nn.AvgPool2d(2)):
        model = nn.Sequential(nn.Conv2d(20, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), pool).to(hopper_gpu)
        x = alpha.tensor(X, device=hopper_gpu, requires_grad=True)
        plans: list[str] = []
        with patch.object(Plan, "launch", autospec=True, side_effect=Plan.launch) as launch:
            model(x)
            plans += [call.args[0].name for call in launch.call_args_list]
        assert sum(name.endswith(", batch_norm") for name in plans) == 1


def test_a_forward_of_its_own_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool whose class or instance has another forward is another pool."""
    x = alpha.tensor(X)
    model = nn.Sequential(nn.BatchNorm2d(20), nn.MaxPool2d(2))
    used = nn.MaxPool2d.forward
    with monkeypatch.context() as changed:
        changed.setattr(nn.MaxPool2d, "forward", lambda self, x: used(self, x) * 0 + 7)
        assert model(x).numpy().max() == 7
    model[1].forward = lambda x: x  # type: ignore[method-assign]
    assert model(x).shape == SHAPE


@pytest.mark.parametrize("how", [{"momentum": None}, {"bias_correction": True}, {"track_running_stats": False}])
def test_layers_of_other_running_statistics(device: str, how: dict[str, Any]) -> None:
    x, pool = alpha.tensor(X, device=device, requires_grad=True), nn.MaxPool2d(2)
    one, other = (nn.BatchNorm2d(20, **how).to(device) for _ in range(2))
    found, expected = together(nn.ReLU(), pool)(one, x), apart(nn.ReLU(), pool)(other, x)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    for ours, theirs in zip(one.buffers(), other.buffers(), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_a_second_run_moves_no_statistics() -> None:
    norm, x = nn.BatchNorm2d(20), alpha.tensor(X, requires_grad=True)
    y = alpha.checkpoint(lambda x: nn.batch_norm_activation(norm, x, None, pool=nn.MaxPool2d(2)), x)
    assert norm.running_mean is not None
    moved = norm.running_mean.numpy().copy()
    y.sum().backward()
    assert moved.any()
    np.testing.assert_array_equal(norm.running_mean.numpy(), moved)


def test_what_is_kept_is_the_input() -> None:
    model = nn.Sequential(nn.Conv2d(20, 8, 3), nn.BatchNorm2d(8), nn.LeakyReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 1))
    with alpha.memory_mode("balanced"):
        assert kept_sides(model, (alpha.tensor(X),)) == {"1": INPUT}


def test_a_call_that_is_refused_moves_nothing(hopper_gpu: CudaDevice) -> None:
    norm = nn.BatchNorm2d(20).to(hopper_gpu)
    norm.weight = nn.Parameter(alpha.ones(20).double().to(hopper_gpu))
    with pytest.raises(TypeError, match="float32"):
        nn.batch_norm_activation(norm, alpha.tensor(X, device=hopper_gpu), None, pool=nn.MaxPool2d(2))
    assert norm.running_mean is not None
    assert not norm.running_mean.numpy().any()


def test_a_hook_on_either_layer_sees_what_it_saw(device: str) -> None:
    for position in (0, 1, 2):
        model = nn.Sequential(nn.BatchNorm2d(20), nn.ReLU(), nn.MaxPool2d(2)).to(device)
        seen: list[tuple[int, ...]] = []
        model[position].register_forward_hook(lambda _, __, y, seen=seen: seen.append(y.shape))
        y = model(alpha.tensor(X, device=device))
        assert seen == [SHAPE if position < 2 else y.shape]


def test_places_of_the_maxima_are_returned() -> None:
    y, places = nn.Sequential(nn.BatchNorm2d(20), nn.MaxPool2d(2, return_indices=True))(alpha.tensor(X))
    assert y.shape == places.shape == (3, 4, 4, 20)


def test_a_tracer_is_told_of_two_operators() -> None:
    told: list[str] = []

    class Listener:
        def operator(self, node: Any, inputs: Any, options: Any, run: Callable[[], Tensor]) -> Tensor:
            told.append(node.name)
            return run()

        def whole(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            told.append(function.__name__)
            return function(*args, **kwargs)

        def read(self, tensor: Tensor) -> None:
            pass

    model = nn.Sequential(nn.BatchNorm2d(20), nn.MaxPool2d(2)).eval()
    with tracing.tracing(Listener()):
        model(alpha.tensor(X))
    assert told[0] == "BatchNorm"
    assert "max_pool" in told[1].lower() or told[1] == "MaxPool2d"


def test_a_residual_and_any_activation_go_with_a_pool() -> None:
    x, residual = alpha.tensor(X), alpha.tensor(X[::-1].copy())
    norm, pool = nn.BatchNorm2d(20), nn.MaxPool2d(2)
    for activation, added in ((F.silu, None), (nn.ReLU(), residual), (F.silu, residual)):
        found = nn.batch_norm_activation(norm, x, activation, added, pool=pool)
        z = norm(x) if added is None else norm(x) + added
        np.testing.assert_allclose(found.numpy(), pool(activation(z)).numpy(), rtol=1e-6, atol=1e-6)
    mean, var = alpha.zeros(20), alpha.ones(20)
    found = F.batch_norm(x, mean, var, residual=residual, activation=F.relu, pool=pool)
    expected = F.max_pool2d(F.batch_norm(x, mean, var, residual=residual, activation=F.relu), 2)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_windows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(alpha.errors.ShapeError, match="max_pool2d: the output would be"):
        nn.Sequential(nn.BatchNorm2d(20), nn.MaxPool2d(2))(alpha.zeros(2, 1, 4, 20))
    with pytest.raises(alpha.errors.ShapeError, match="max_pool2d"):
        F.batch_norm(alpha.zeros(4, 20), alpha.zeros(20), alpha.ones(20), pool=nn.MaxPool2d(2))
    norm = nn.BatchNorm2d(20)
    with pytest.raises(TypeError, match="pool=2 is no layer and no function"):
        norm(alpha.tensor(X), pool=2)
    assert not norm.running_mean.numpy().any()  # type: ignore[union-attr]


def test_captured_as_eager(device: str) -> None:
    def trained(captured: bool) -> list[np.ndarray]:
        alpha.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(20, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten(),
            nn.Linear(5 * 4 * 8, 3),
        ).to(device)  # fmt: skip
        optimizer = alpha.optim.SGD(model.parameters(), lr=0.01)
        x, labels = alpha.tensor(X, device=device), alpha.tensor(np.array([0, 1, 2]), device=device)

        def step(x: Tensor, labels: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            return loss

        run = alpha.capture(step) if captured else step
        losses = [run(x, labels).numpy() for _ in range(4)]
        return [*losses, *(p.numpy() for p in model.parameters())]

    for e, f in zip(trained(False), trained(True), strict=True):
        np.testing.assert_array_equal(f, e)
