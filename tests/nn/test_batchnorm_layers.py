"""Layers of batch normalisation, computed together with a convolution before and an activation behind them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from helpers import assert_close
from launch_log import observed_launches

import alpha
from alpha import nn
from alpha.errors import DeviceError, GradientError, ShapeError
from alpha.nn import functional as F
from alpha.ops.kernel.plan import Plan
from alpha.ops.normalization import conv_batch_norm
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.registry import standing_in

X = np.random.default_rng(0).standard_normal((4, 6, 5, 8)).astype(np.float32)


def layers(device: str, momentum: float | None = 0.1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    alpha.manual_seed(1)
    return nn.Conv2d(8, 8, 3, padding=1, bias=False).to(device), nn.BatchNorm2d(8, momentum=momentum).to(device)


def run(call: Callable[..., alpha.Tensor], device: str, *modules: nn.Module) -> list[np.ndarray]:
    """The result, the gradients of x and of all parameters, and the running statistics."""
    x = alpha.tensor(X, device=device, requires_grad=True)
    y = call(x)
    y.backward(alpha.tensor(X[..., ::-1].copy(), device=device).astype(y.dtype))
    grads = [t.grad for t in (x, *(p for module in modules for p in module.parameters()))]
    buffers = [b for module in modules for b in module.buffers()]
    return [t.numpy() for t in (y, *grads, *buffers) if t is not None]


def entries(call: Callable[[], object]) -> list[str]:
    """The kernels of cuda/batchnorm and cuda/elementwise that a call launches."""
    with observed_launches(alpha.get_device("cuda")) as launched:
        call()
    return [launch.entry for launch in launched if launch.source.split("/")[0] in ("batchnorm", "elementwise")]


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("with_residual", [True, False])
@pytest.mark.parametrize(
    "activation", [None, nn.ReLU(), nn.LeakyReLU(0.2), nn.SiLU(), F.relu6], ids=lambda a: getattr(a, "__name__", str(a))
)
def test_together_as_one_by_one(device: str, activation: Any, with_residual: bool, momentum: float | None) -> None:
    for training in (True, False):
        found = []
        for fused in (True, False):
            conv, norm = layers(device, momentum)
            norm.train(training)

            def call(x: alpha.Tensor, fused: bool = fused, conv: Any = conv, norm: Any = norm) -> alpha.Tensor:
                if fused:
                    return nn.conv_batch_norm(conv, norm, x, activation, x if with_residual else None)
                y = norm(conv(x))
                y = y + x if with_residual else y
                return y if activation is None else activation(y)  # type: ignore[no-any-return]

            found.append(run(call, device, conv, norm))
        for mine, own in zip(*found, strict=True):
            assert_close(mine, own, 300, "conv_batch_norm")


def watched(module: nn.Module) -> nn.Module:
    """The module with a hook that changes nothing, as a dry run sets it."""

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        return output

    vars(after)["only_watches"] = True
    module._forward_hooks = (after,)
    return module


@functools.cache
def emulated(arch: str) -> CudaDevice:
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("ALPHA_ARCH", arch)
        return CudaDevice(EmulatedDriver())


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("with_residual", [True, False])
def test_one_plan_launches_what_two_do(arch: str, precision: str, with_residual: bool) -> None:
    """The kernels are the same and in the same order, and so are the bits of all results, gradients and statistics."""
    with standing_in(emulated(arch)), alpha.precision(precision):
        plans, found, launches = [], [], []
        for one in (True, False):
            conv, norm = layers("cuda")
            if not one:
                watched(conv)

            def call(x: alpha.Tensor, conv: Any = conv, norm: Any = norm) -> alpha.Tensor:
                y = nn.conv_batch_norm(conv, norm, x, F.relu)  # whose dtype is that of the next result, too
                return nn.conv_batch_norm(conv, norm, y, nn.LeakyReLU(0.1), y if with_residual else None)

            with observed_launches(alpha.get_device("cuda")) as launched, patch.object(Plan, "launch", plan_log(plans)):
                found.append(run(call, "cuda", conv, norm))
            launches.append([(x.source, x.entry, dict(x.defines)) for x in launched])
        assert launches[0] == launches[1]
        for mine, own in zip(*found, strict=True):
            np.testing.assert_array_equal(mine, own)
        assert len([name for name in plans if name.endswith(", batch_norm")]) == 2


def plan_log(names: list[str]) -> Callable[..., Any]:
    """`Plan.launch`, which notes the name of the plan."""
    launch = Plan.launch

    def noted(plan: Plan, *args: Any) -> Any:
        names.append(plan.name)
        return launch(plan, *args)

    return noted


@pytest.mark.parametrize(
    ("conv", "norm"),
    [
        ({"padding_mode": "reflect"}, {}),
        ({"negative_slope": 0.5}, {}),
        ({"groups": 8}, {}),
        ({"bias": True}, {}),
        ({"stride": (2, 1), "padding": "valid"}, {}),
        ({"stride": [2, 1]}, {}),  # assigned to the layer, as a user may do
        ({}, {"affine": False}),
        ({}, {"bias": False}),
        ({}, {"track_running_stats": False}),
        ({}, {"bias_correction": True}),
        ({}, {"eps": 1}),
        ({}, {"momentum": 1}),
    ],
    ids=str,
)
def test_every_kind_of_pair_is_computed(device: str, conv: dict[str, Any], norm: dict[str, Any]) -> None:
    found, assigned = [], conv["stride"] if isinstance(conv.get("stride"), list) else None
    for together in (True, False):
        alpha.manual_seed(1)
        first = nn.Conv2d(8, 8, 3, **{"padding": 1, **conv}).to(device)
        second = nn.BatchNorm2d(8, **norm).to(device)
        first.stride = assigned or first.stride
        calls = {True: nn.Sequential(first, second), False: lambda x, a=first, b=second: b(a(x))}
        x = alpha.tensor(X, device=device, requires_grad=True)
        y = calls[together](x)
        (y * y).sum().backward()
        parts = [*first.parameters(), *second.parameters(), x]
        found.append([t.numpy() for t in (y, *second.buffers(), *(p.grad for p in parts if p.grad is not None))])
    for mine, own in zip(*found, strict=True):
        assert_close(mine, own, 300, "a pair")


@pytest.mark.parametrize(
    ("x", "channels", "residual", "change", "error"),
    [
        (X, 6, None, {}, "running_mean has shape \\(6,\\), x"),
        (X[:1, :1, :1], 8, None, {}, "one row"),
        (X[0], 8, None, {}, "N, H, W, C"),
        (X[..., :3], 8, None, {}, "channels"),
        (X, 8, X[:2], {}, "residual"),
        (X.astype(np.float64), 8, None, {}, "float64"),
        (X, 8, None, {"eps": -1.0}, "eps=-1.0 is negative"),
        (X, 8, None, {"momentum": float("nan")}, "momentum"),
    ],
)
def test_what_does_not_fit_is_refused_as_by_the_layers(
    device: str, x: Any, channels: int, residual: Any, change: dict[str, Any], error: str
) -> None:
    conv, norm = nn.Conv2d(8, 8, 1).to(device), nn.BatchNorm2d(channels).to(device)
    vars(norm).update(change)
    statistics = [buffer.numpy() for buffer in norm.buffers()]
    given = alpha.tensor(x, device=device)
    with pytest.raises((ShapeError, TypeError, ValueError), match=error):
        nn.conv_batch_norm(conv, norm, given, None, None if residual is None else alpha.tensor(residual, device=device))
    with pytest.raises(TypeError, match="Tensor"):
        nn.conv_batch_norm(conv, norm, x)
    for before, after in zip(statistics, norm.buffers(), strict=True):
        np.testing.assert_array_equal(before, after.numpy())


def test_the_pair_is_one_operator_on_every_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    usual = conv_batch_norm.convolved_and_normalized
    monkeypatch.setattr(conv_batch_norm, "convolved_and_normalized", lambda *args: calls.append(args) or usual(*args))
    conv, norm = layers(device)
    nn.Sequential(conv, norm, nn.ReLU())(alpha.tensor(X, device=device))
    assert len(calls) == 1
    other = alpha.tensor(X, device="cuda" if device == "cpu" else "cpu")
    with pytest.raises(DeviceError):
        nn.conv_batch_norm(conv, norm, other)


def test_the_graph_is_that_of_two_operators(device: str) -> None:
    conv, norm = layers(device)
    x = alpha.tensor(X, device=device, requires_grad=True)
    y = nn.conv_batch_norm(conv, norm, x, nn.ReLU())
    assert y._node is not None
    assert (y._node.name, getattr(y._node.edges[0], "name", None)) == ("BatchNorm", "Conv2d")
    y.sum().backward(retain_graph=True)
    first = [p.grad.numpy() for p in (x, conv.weight, norm.weight) if p.grad is not None]
    (again,) = alpha.grad(y.sum(), [x], retain_graph=True)
    np.testing.assert_array_equal(first[0], again.numpy())
    with alpha.no_grad():
        assert nn.conv_batch_norm(conv, norm, x)._node is None
        conv.weight.mul_(2.0)
    with pytest.raises(GradientError, match="Conv2d: a tensor saved for backward was written in place by"):
        y.sum().backward()
    frozen = nn.conv_batch_norm(conv.requires_grad_(False), norm, alpha.tensor(X, device=device))
    assert frozen._node is not None
    assert frozen._node.edges[0] is None


def test_a_checkpoint_moves_the_running_statistics_once(device: str) -> None:
    found = []
    for kept in (True, False):
        conv, norm = layers(device)
        x = alpha.tensor(X, device=device, requires_grad=True)
        call = functools.partial(nn.conv_batch_norm, conv, norm)
        (call(x) if kept else alpha.checkpoint(call, x)).sum().backward()
        found.append([buffer.numpy() for buffer in norm.buffers()])
    for mine, own in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, own)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, lambda: nn.LeakyReLU(0.1)])
def test_sequential_computes_an_activation_with_the_batch_norm(norm: Any, activation: Any) -> None:
    x = alpha.tensor(np.ones((4, *(3,) * {"1": 1, "2": 2, "3": 3}[norm.__name__[9]], 8), np.float32), device="cuda")
    both = nn.Sequential(norm(8), activation()).to("cuda")
    assert entries(lambda: both(x))[-1] == "apply"
    assert "map" not in entries(lambda: both(x))
    assert entries(lambda: nn.Sequential(both[0], nn.Identity(), both[1])(x))[-1] == "map"
    assert entries(lambda: nn.Sequential(both[0], nn.SiLU())(x))[-1] == "map"


def test_sequential_with_a_convolution_before() -> None:
    conv, norm = layers("cuda")
    x = alpha.tensor(X, device="cuda")
    for modules in ([conv, norm, nn.ReLU()], [conv, norm], [conv, norm, nn.ReLU(), nn.ReLU()]):
        for training in (True, False):
            norm.train(training)
            want = conv(x)
            for module in modules[1:]:
                want = module(want)
            assert_close(nn.Sequential(*modules)(x).numpy(), want.numpy(), 300, "Sequential")
        assert entries(lambda m=modules: nn.Sequential(*m)(x)).count("map") == max(0, len(modules) - 3)


def altered(kind: Any) -> Any:
    """A layer of one's own, which is not what the kernels compute."""
    return type("Altered", (kind,), {"forward": lambda self, x: kind.forward(self, x) + 1.0})


@pytest.mark.parametrize(
    "pair",
    [
        lambda: (altered(nn.Conv2d)(8, 8, 1), nn.BatchNorm2d(8)),
        lambda: (nn.Conv2d(8, 8, 1), altered(nn.BatchNorm2d)(8)),
        lambda: (altered(nn.BatchNorm2d)(8), nn.ReLU()),
        lambda: (nn.BatchNorm2d(8), altered(nn.LeakyReLU)()),
        lambda: (nn.ReLU(), altered(nn.Dropout)(0.0)),
    ],
    ids=["conv", "norm behind", "norm", "activation", "dropout"],
)
def test_sequential_calls_a_subclass_by_itself(device: str, pair: Any) -> None:
    first, second = (module.to(device) for module in pair())
    x = alpha.tensor(X, device=device)
    assert_close(nn.Sequential(first, second)(x).numpy(), second(first(x)).numpy(), 300, "Sequential")


@pytest.mark.parametrize("hooked", ["norm", "activation"])
@pytest.mark.parametrize("where", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_sees_what_it_would_see_one_by_one(device: str, hooked: str, where: str) -> None:
    conv, norm = layers(device)
    modules = {"norm": norm, "activation": nn.ReLU(inplace=True)}
    x = alpha.tensor(X, device=device)
    seen: list[np.ndarray] = []

    def note(_: nn.Module, args: tuple[alpha.Tensor, ...], output: alpha.Tensor | None = None) -> None:
        seen.append((args[0] if output is None else output).numpy())

    handle = getattr(modules[hooked], where)(note)
    calls = [
        lambda: nn.conv_batch_norm(conv, norm, x, modules["activation"]),
        lambda: nn.Sequential(conv, norm, modules["activation"])(x),
        lambda: modules["activation"](norm(conv(x))),
    ]
    results = [call().numpy() for call in calls]
    assert len(seen) == 3
    for values in (results, seen):
        assert_close(values[0], values[2], 300, "hooks")
        assert_close(values[1], values[2], 300, "hooks")
    handle.remove()
    assert not norm.is_hooked
    calls[0]()
    assert len(seen) == 3


def replace_forward(module: nn.Module, added: float) -> None:
    """Give a module a forward of its own, which takes only what the layer's users give."""
    forward = module.forward
    vars(module)["forward"] = lambda x: forward(x) + added


@pytest.mark.parametrize("replaced", ["conv", "norm", "activation", "dropout"])
def test_sequential_calls_a_forward_that_was_assigned(device: str, replaced: str) -> None:
    conv, norm = layers(device)
    modules = {"conv": conv, "norm": norm, "activation": nn.ReLU(), "dropout": nn.Dropout(0.5)}
    replace_forward(modules[replaced], 7.0)
    x = alpha.tensor(X, device=device)
    for names in (
        ["conv", "norm", "activation"],
        ["conv", "norm"],
        ["conv", "activation", "dropout"],
        ["norm", "activation"],
    ):
        part, input = [modules[name] for name in names], x if "conv" in names else conv(x)
        results = []
        for call in (nn.Sequential(*part), lambda x, part=part: functools.reduce(lambda y, module: module(y), part, x)):
            alpha.manual_seed(0)
            results.append(call(input).numpy())
        assert_close(results[0], results[1], 300, "an assigned forward")


def test_a_bfloat16_factor_behind_a_convolution(device: str) -> None:
    """One kernel for both takes float32 parameters alone; the gradient has the dtype of its tensor."""
    alpha.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).to(device)
    x, ends = alpha.randn(2, 6, 6, 3, device=device), []
    for dtype in ("float32", "bfloat16"):
        net[1].weight = nn.Parameter(alpha.full((8,), 0.5, dtype=dtype, device=device))  # exact in both
        net(x).square().sum().backward()
        assert net[1].weight.grad.dtype == net[1].weight.dtype
        ends.append(net[1].weight.grad.float().numpy())
    np.testing.assert_allclose(ends[1], ends[0], rtol=2**-7)


def test_a_norm_that_counts_batches_counts_them_behind_a_convolution(device: str) -> None:
    """A momentum that is written to it later, with which it needs their number no more, changes nothing in that."""
    for written in ({}, {"momentum": 0.1}, {"momentum": 0.1, "bias_correction": True}):
        conv, norm = layers(device, momentum=None)
        vars(norm).update(written)
        for count in (1, 2):
            nn.conv_batch_norm(conv, norm, alpha.tensor(X, device=device))
            assert norm.num_batches_tracked is not None
            assert norm.num_batches_tracked.item() == count


def test_what_is_written_to_a_norm_reaches_a_captured_step() -> None:
    """A captured step sees the changes as an eager one does.

    The norm has no running statistics, then their mean, which is counted from 0, then a momentum again.
    """
    alpha.manual_seed(0)
    captured, plain = (nn.BatchNorm2d(3).to("cuda") for _ in range(2))
    x = alpha.randn(2, 3, 3, 3, device="cuda")
    step = alpha.capture(lambda x: captured(x).sum())
    writes: list[dict[str, Any]] = [{}, {"track_running_stats": False}, {"track_running_stats": True, "momentum": None}]
    for write in [*writes, {"momentum": 0.5}]:
        for norm in (captured, plain):
            if "momentum" in write and write["momentum"] is None:
                norm.track_running_stats = True
                norm.momentum = None
                with pytest.raises(ValueError, match=r"momentum=None .* call reset_running_stats\(\) first"):
                    norm(x)
                norm.reset_running_stats()
            for name, value in write.items():
                setattr(norm, name, value)
        for i in range(5):
            step(x * (i + 1))
            plain(x * (i + 1))
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            a, b = (getattr(norm, name) for norm in (captured, plain))
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, err_msg=f"{name} after {write}")
    assert captured.num_batches_tracked.item() == 10


def test_statistics_of_huge_numbers_serve_evaluation(device: str) -> None:
    """Squares of the numbers are infinite in float32, their variance is not."""
    values = np.random.default_rng(0).choice([-3e18, 3e18], (8, 4, 4, 3)).astype(np.float32)
    norm = nn.BatchNorm2d(3).to(device)
    for _ in range(3):
        y = norm(alpha.tensor(values, device=device))
    wide = values.astype(np.float64)
    assert np.isfinite(y.numpy()).all()
    kept = 1 - (1 - norm.momentum) ** 3
    expected = kept * wide.var((0, 1, 2), ddof=1) + 1 - kept
    np.testing.assert_allclose(norm.running_var.numpy(), expected, rtol=1e-5)
    norm.eval()
    shown = norm(alpha.tensor(values, device=device)).numpy()
    wanted = (wide - norm.running_mean.numpy()) / np.sqrt(expected)
    np.testing.assert_allclose(shown, wanted, rtol=1e-4, atol=1e-5)
