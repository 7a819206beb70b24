"""Sums, affine maps and dropout with a rectifier in their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import assert_close, check_gradient
from launch_log import observed_launches

import alpha
from alpha import Tensor, nn
from alpha.core.numerics import BFLOAT16
from alpha.nn import functional as F

ACTIVATIONS = [nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.25), nn.LeakyReLU(0.0), nn.SiLU()]
A, B = (4 * np.random.default_rng(seed).standard_normal((6, 5, 8)).astype(np.float32) for seed in range(2))


def results(call: Callable[..., Tensor], device: str, dtype: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The result and the gradients of the arrays."""
    tensors = [alpha.tensor(array, device=device).to(dtype).detach() for array in arrays]
    for tensor in tensors:
        tensor.requires_grad = True
    alpha.manual_seed(3)
    y = call(*tensors)
    y.backward(alpha.tensor(B[..., ::-1].copy(), device=device).to(dtype))
    return [np.asarray(t.numpy(), np.float32) for t in (y, *(x.grad for x in tensors)) if t is not None]


def affine(activation: Any, fused: bool) -> Callable[..., Tensor]:
    def call(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        layer = nn.Affine((5, 8)).to(x.device)
        vars(layer).update(weight=weight, bias=bias)
        return layer(x, activation) if fused else activation(F.mul(x, weight) + bias)  # type: ignore[no-any-return]

    return call


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=["float32", "bfloat16"])
def test_together_as_one_by_one(device: str, activation: Any, dtype: Any) -> None:
    cases: list[tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[np.ndarray, ...]]] = [
        (lambda a, b: F.add(a, b, activation=activation), lambda a, b: activation(a + b), (A, B)),
        (lambda a, b: F.add(a, b, activation=activation), lambda a, b: activation(a + b), (A, B[0, 0].copy())),
        (
            lambda a, b: F.add(a, b, alpha=2, activation=activation),
            lambda a, b: activation(F.add(a, b, alpha=2)),
            (A, B),
        ),
        (lambda a: F.add(a, 1.5, activation=activation), lambda a: activation(a + 1.5), (A,)),
        (affine(activation, True), affine(activation, False), (A, B[0].copy(), A[1].copy())),
        (lambda a: F.dropout(a, 0.3, activation=activation), lambda a: F.dropout(activation(a), 0.3), (A,)),
        (lambda a: F.dropout(a, 0.3, False, activation=activation), activation, (A,)),
        (lambda a: F.dropout(a, 1.0, activation=activation), lambda a: F.dropout(activation(a), 1.0), (A,)),
    ]
    for fused, plain, arrays in cases:
        found, wanted = (results(call, device, dtype, *arrays) for call in (fused, plain))
        for mine, own in zip(found, wanted, strict=True):
            if dtype == np.float32:
                assert_close(mine, own, 40, "fused")
            else:  # the sum is not rounded before the activation
                np.testing.assert_allclose(mine, own, rtol=2**-6, atol=2**-6 * np.abs(own).max())


def test_an_affine_layer_without_a_bias_is_followed_by_the_activation(device: str) -> None:
    x, layer = alpha.tensor(A, device=device), nn.Affine(8, bias=False).to(device)
    for activation in (nn.ReLU(), nn.SiLU()):
        np.testing.assert_array_equal(nn.Sequential(layer, activation)(x).numpy(), activation(x).numpy())


def test_gradients() -> None:
    for activation in (F.relu, F.leaky_relu, F.relu6):
        check_gradient(lambda a, b, f=activation: F.add(a, b, activation=f), (3, 4), (3, 4))
        check_gradient(affine(activation, True), (3, 5, 8), (5, 8), (5, 8))


def entries(call: Callable[[], object]) -> list[str]:
    with observed_launches(alpha.get_device("cuda")) as launched:
        call()
    return [launch.entry for launch in launched]


def test_one_kernel() -> None:
    a, b = (alpha.tensor(values, device="cuda") for values in (A, B))
    layer, drop = nn.Affine(8).to("cuda"), nn.Dropout(0.5)
    for activation in (nn.ReLU(), F.leaky_relu):
        assert entries(lambda f=activation: F.add(a, b, activation=f)) == ["map"]
        assert entries(lambda f=activation: layer(a, f)) == ["map"]
        assert entries(lambda f=activation: F.dropout(a, activation=f)) == ["dropout"]
    relu = nn.ReLU()
    assert entries(lambda: nn.Sequential(layer, relu)(a)) == ["map"]
    assert entries(lambda: nn.Sequential(relu, drop)(a)) == ["dropout"]
    assert entries(lambda: nn.Sequential(layer, relu, drop)(a)) == ["map", "dropout"]
    assert entries(lambda: nn.Sequential(nn.SiLU(), drop)(a)) == ["map", "dropout"]


def test_sequential_writes_to_its_input_as_its_modules_do(device: str) -> None:
    for modules, written in (([nn.ReLU(inplace=True), nn.Dropout(0.5)], True), ([nn.ReLU(), nn.Dropout(0.5)], False)):
        x = alpha.tensor(A, device=device)
        nn.Sequential(*modules)(x)
        np.testing.assert_array_equal(x.numpy(), np.maximum(A, 0) if written else A)


@pytest.mark.parametrize("pair", [lambda: (nn.Affine(8), nn.ReLU()), lambda: (nn.ReLU(), nn.Dropout(0.0))])
@pytest.mark.parametrize("hooked", [0, 1])
def test_hooks_see_what_they_would_see_one_by_one(device: str, pair: Any, hooked: int) -> None:
    modules, seen = [module.to(device) for module in pair()], []
    modules[hooked].register_forward_hook(lambda _, args, output: seen.append((args[0].numpy(), output.numpy())))
    x = alpha.tensor(A, device=device)
    nn.Sequential(*modules)(x)
    middle = modules[0](x)
    modules[1](middle)
    for together, alone in zip(*seen, strict=True):
        np.testing.assert_array_equal(together, alone)


def test_a_result_that_is_written_to_is_refused(device: str) -> None:
    a, b = (alpha.tensor(values, device=device, requires_grad=True) for values in (A, B))
    y = F.add(a, b, activation=F.relu)
    with alpha.no_grad():
        y.mul_(-1.0)
    with pytest.raises(alpha.GradientError, match="written in place"):
        y.sum().backward()
