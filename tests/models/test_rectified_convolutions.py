"""Rectifiers that `Sequential` computes with the convolution before them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conv2d_cases import hopper
from launch_log import observed_launches

import alpha
from alpha import Tensor, nn
from alpha.runtime.registry import standing_in

X = np.random.default_rng(0).standard_normal((4, 6, 6, 8)).astype(np.float32)
RECTIFIERS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "in place": lambda: nn.ReLU(inplace=True),
    "leaky": lambda: nn.LeakyReLU(0.2, inplace=True),
    "identity": lambda: nn.LeakyReLU(1.0),
}
FORWARD = {"float32": "conv_v2_sm90_fp16x3_128x64", "tf32": "conv_v2_sm90_tf32_128x64"}


def one_by_one(modules: nn.Sequential, x: Tensor) -> Tensor:
    return functools.reduce(lambda y, module: module(y), modules, x)


def found(modules: nn.Sequential, call: Callable[[nn.Sequential, Tensor], Tensor], x: np.ndarray, on: str) -> list[Any]:
    """Result, gradients and running statistics of a copy of the modules."""
    own = copy.deepcopy(modules).to(on)
    given = alpha.tensor(x, device=on, requires_grad=True)
    y = call(own, given)
    y.backward(alpha.tensor(np.random.default_rng(1).standard_normal(y.shape).astype(y.dtype), device=on))
    made = (y, given.grad, *(p.grad for p in own.parameters()), *own.buffers())
    return [None if tensor is None else tensor.numpy() for tensor in made]


def both_ways(modules: nn.Sequential, x: np.ndarray, on: str) -> Any:
    """Pairs of what is found by the container and layer by layer."""
    calls = nn.Sequential.__call__, one_by_one
    return zip(*(found(modules, call, x, on) for call in calls), strict=True)


def entries(call: Callable[[], object]) -> list[str]:
    """Kernels that a call launches."""
    with observed_launches(alpha.get_device("cuda")) as log:
        call()
    return [launched.entry for launched in log]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value")  # of numpy, on the cpu
@pytest.mark.parametrize("name", RECTIFIERS)
def test_results_are_those_of_both_layers(device: str, name: str) -> None:
    """Bit for bit, also where something is not finite."""
    modules = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), RECTIFIERS[name](), nn.Conv2d(8, 3, 1), RECTIFIERS[name]())
    wild = X.copy()
    wild[0, 0, 0, 0], wild[1, 2, 3, 4], wild[2, 5, 5, 7] = np.inf, -np.inf, np.nan
    for x in (X, wild):
        for joint, single in both_ways(modules, x, device):
            np.testing.assert_array_equal(joint, single)


@pytest.mark.slow
@pytest.mark.parametrize("precision", FORWARD)
def test_the_kernel_of_the_convolution_computes_it(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CONV_KERNEL", FORWARD[precision])
    with standing_in(hopper()), alpha.precision(precision), alpha.no_grad():
        x = alpha.tensor(X, device="cuda")
        for name, make in RECTIFIERS.items():
            modules = nn.Sequential(nn.Conv2d(8, 8, 3), make()).to("cuda")
            launched = entries(lambda m=modules: m(x))
            assert launched[-1] == "conv_v2_sm90", (name, launched)
            np.testing.assert_array_equal(modules(x).numpy(), one_by_one(modules, x).numpy())


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("last", [[], [nn.ReLU()]], ids=["alone", "rectified"])
def test_a_batch_normalisation_behind_it(
    training: bool, last: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics in training are those of what the rectifier makes; the convolution finds them."""
    monkeypatch.setenv("ALPHA_CONV_KERNEL", FORWARD["float32"])
    conv, norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
    modules = nn.Sequential(conv, nn.LeakyReLU(0.2), norm, *last).train(training)
    with standing_in(hopper()):
        for joint, single in both_ways(modules, X, "cuda"):
            np.testing.assert_allclose(joint, single, rtol=1e-4, atol=1e-5)
        modules.to("cuda")
        launched = entries(lambda: modules(alpha.tensor(X, device="cuda")))
    assert "map" not in launched
    assert ("merge_counted_statistics" in launched) == training
    assert "statistics" not in launched


def test_a_batch_normalisation_behind_it_on_every_device(device: str) -> None:
    modules = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.BatchNorm2d(8), nn.LeakyReLU(), nn.Conv2d(8, 8, 1))
    for joint, single in both_ways(modules, X, device):
        np.testing.assert_allclose(joint, single, rtol=1e-4, atol=1e-5)


class Doubled(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x) * 2.0


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda module, args, output: output * 3.0)
    return module


def assigned(module: nn.Module) -> nn.Module:
    forward = module.forward
    vars(module)["forward"] = lambda x: forward(x) + 1.0
    return module


APART: dict[str, Callable[[], tuple[nn.Module, nn.Module]]] = {
    "an activation with a bound": lambda: (nn.Conv2d(8, 8, 1), nn.ReLU6()),
    "a slope above 1": lambda: (nn.Conv2d(8, 8, 1), nn.LeakyReLU(1.5)),
    "a slope below 0": lambda: (nn.Conv2d(8, 8, 1), nn.LeakyReLU(-0.5)),
    "another activation": lambda: (nn.Conv2d(8, 8, 1), nn.SiLU()),
    "a slope of the layer's own": lambda: (nn.Conv2d(8, 8, 1, negative_slope=0.5), nn.ReLU()),
    "a subclass": lambda: (Doubled(8, 8, 1), nn.ReLU()),
    "a hook of the convolution": lambda: (hooked(nn.Conv2d(8, 8, 1)), nn.ReLU()),
    "a hook of the rectifier": lambda: (nn.Conv2d(8, 8, 1), hooked(nn.ReLU())),
    "a forward of the convolution": lambda: (assigned(nn.Conv2d(8, 8, 1)), nn.ReLU()),
    "a forward of the rectifier": lambda: (nn.Conv2d(8, 8, 1), assigned(nn.ReLU())),
}


@pytest.mark.parametrize("why", APART)
def test_layers_that_are_called_by_themselves(why: str, device: str) -> None:
    modules = nn.Sequential(*APART[why](), nn.BatchNorm2d(8)).to(device)
    x = alpha.tensor(X, device=device)
    y = modules[:2](x)
    np.testing.assert_array_equal(y.numpy(), one_by_one(modules[:2], x).numpy())
    assert y._node is not None
    assert y._node.name not in ("Conv2d", "Conv")
    np.testing.assert_allclose(modules(x).numpy(), one_by_one(modules, x).numpy(), rtol=1e-4, atol=1e-5)


def test_the_graph_is_one_operator(device: str) -> None:
    conv = nn.Conv2d(8, 8, 3).to(device)
    x = alpha.tensor(X, device=device, requires_grad=True)
    y = nn.Sequential(conv, nn.ReLU(inplace=True))(x)
    assert y._node is not None
    assert y._node.name == "Conv2d"
    y.sum().backward(retain_graph=True)
    assert x.grad is not None
    first = x.grad.numpy()
    (again,) = alpha.grad(y.sum(), [x])
    np.testing.assert_array_equal(first, again.numpy())
