"""Every argument of every optimizer reaches its update: values and order against PyTorch's, on both devices."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import optim
from alpha.nn import Parameter

OPTIMIZERS = ("SGD", "Adam", "AdamW")
SHAPES = [(3, 4), (5,), (), (2, 3, 3, 2)]
STEPS = 5
OTHER: dict[str, list[dict[str, Any]]] = {  # argument -> settings that must change the result, or be refused
    "lr": [{"lr": 0.03}, {"lr": np.float32(0.5)}, {"lr": 1}],
    "momentum": [{"momentum": 0.9}, {"momentum": 2.0}],
    "dampening": [
        {"momentum": 0.9, "dampening": 0.3},
        {"momentum": 0.5, "dampening": 1.0, "weight_decay": 0.1},
        {"momentum": 0.5, "dampening": -1},
    ],
    "weight_decay": [{"weight_decay": 0.3}, {"weight_decay": np.float64(2.0)}],
    "nesterov": [{"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "nesterov": np.True_, "weight_decay": 0.1}],
    "maximize": [{"maximize": True}, {"maximize": True, "weight_decay": 0.1}],
    "betas": [{"betas": (0.5, 0.7)}, {"betas": (0, 0)}, {"betas": (0.0, 0.999)}, {"betas": [0.99, 0.0]}],
    "eps": [{"eps": 0.1}],
    "amsgrad": [{"amsgrad": True, "betas": (0.9, 0.3)}, {"amsgrad": True, "betas": (0.9, 0.3), "maximize": True}],
    "foreach": [{"foreach": True}, {"foreach": False}],
    "fused": [{"fused": True}],
    "capturable": [{"capturable": True}],
    "differentiable": [{"differentiable": True}],
    "decoupled_weight_decay": [{"decoupled_weight_decay": True}],
}
REFUSED = ("foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay")


def arguments(name: str) -> list[str]:
    """The names of an optimizer's arguments, without the parameters."""
    return list(inspect.signature(getattr(optim, name)).parameters)[1:]


OFFERED = [
    (name, argument, options)
    for name in OPTIMIZERS
    for argument in arguments(name)
    if argument not in REFUSED
    for options in OTHER.get(argument, [{}])
]


def values(seed: int, scale: float = 1.0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [(scale * np.asarray(draw.standard_normal(shape))).astype(np.float32) for shape in SHAPES]


def run(device: str, name: str, options: dict[str, Any], gradients: list[list[np.ndarray]]) -> list[np.ndarray]:
    """The parameters after a step for each of the gradients."""
    parameters = [Parameter(alpha.tensor(value, device=device)) for value in values(0)]
    optimizer = getattr(optim, name)(parameters, **options)
    for given in gradients:
        for parameter, gradient in zip(parameters, given, strict=True):
            parameter.grad = alpha.tensor(gradient, device=device)
        optimizer.step()
    return [parameter.numpy() for parameter in parameters]


def run_torch(name: str, options: dict[str, Any], gradients: list[list[np.ndarray]], dtype: str) -> list[np.ndarray]:
    torch = pytest.importorskip("torch")
    parameters = [torch.nn.Parameter(torch.tensor(value, dtype=getattr(torch, dtype))) for value in values(0)]
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in options.items()}
    if "betas" in plain:
        plain["betas"] = tuple(float(beta) for beta in plain["betas"])
    optimizer = getattr(torch.optim, name)(parameters, **plain)
    for given in gradients:
        for parameter, gradient in zip(parameters, given, strict=True):
            parameter.grad = torch.tensor(gradient, dtype=parameter.dtype)
        optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters]


def test_every_argument_has_an_entry() -> None:
    known = {argument for name in OPTIMIZERS for argument in arguments(name)}
    assert known == set(OTHER)
    exported = {name for name in optim.__all__ if issubclass(getattr(optim, name), optim.Optimizer)}
    assert exported - {"Optimizer"} == set(OPTIMIZERS)


@pytest.mark.parametrize(("name", "argument", "options"), OFFERED)
def test_an_argument_reaches_the_update(device: str, name: str, argument: str, options: dict[str, Any]) -> None:
    gradients = [values(step) for step in range(1, STEPS + 1)]
    without = {key: value for key, value in options.items() if key != argument}
    result = run(device, name, options, gradients)
    assert any((a != b).any() for a, b in zip(result, run(device, name, without, gradients), strict=True))


@pytest.mark.torch
@pytest.mark.parametrize(("name", "argument", "options"), OFFERED)
def test_values_are_pytorchs(device: str, name: str, argument: str, options: dict[str, Any]) -> None:
    gradients = [values(step) for step in range(1, STEPS + 1)]
    result, expected = run(device, name, options, gradients), run_torch(name, options, gradients, "float64")
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, argument) for name in OPTIMIZERS for argument in arguments(name) if argument in REFUSED],
)
def test_what_pytorch_has_and_alpha_does_not_is_refused(name: str, argument: str) -> None:
    for options in OTHER[argument]:
        with pytest.raises(ValueError, match=f"^{name}: {argument}.* is not offered"):
            getattr(optim, name)([Parameter(np.zeros(3, np.float32))], **options)


@pytest.mark.torch
@pytest.mark.parametrize("name", [*OPTIMIZERS, "CosineAnnealingLR"])
def test_order_kinds_and_defaults_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")

    def signature(room: Any) -> dict[str, tuple[Any, Any]]:
        parameters = inspect.signature(getattr(room, name)).parameters
        return {key: (parameter.kind, parameter.default) for key, parameter in parameters.items()}

    ours = signature(optim)
    theirs = signature(torch.optim if name in OPTIMIZERS else torch.optim.lr_scheduler)
    assert ours == theirs

    def positional(table: dict[str, tuple[Any, Any]]) -> list[str]:
        return [key for key, (kind, _) in table.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]

    assert positional(ours) == positional(theirs)


SCALES = (1e-20, 1e-12, 1.0, 1e12, 1e20)
EXTREMES: list[tuple[str, dict[str, Any]]] = [
    ("Adam", {"betas": (0, 0), "lr": 0.1}),
    ("Adam", {"betas": (0.9999999, 0.99999999), "lr": 0.1}),
    ("Adam", {"betas": (0.0, 0.999), "eps": 1e-30}),
    ("Adam", {"betas": (0.9, 0.0), "eps": 0.0, "lr": 1e-3}),
    ("Adam", {"lr": 1e-20}),
    ("Adam", {"lr": 1e10, "eps": 1e10}),
    ("Adam", {"weight_decay": 1e10, "lr": 0.1}),
    ("Adam", {"weight_decay": 1e-10, "amsgrad": True}),
    ("AdamW", {"weight_decay": 1e4, "lr": 1e-4}),
    ("AdamW", {"weight_decay": 1e-3, "lr": 1e-7, "eps": 1.0}),
    ("SGD", {"lr": 1e-20}),
    ("SGD", {"lr": 1e10, "weight_decay": 1e-12}),
    ("SGD", {"lr": 0.1, "momentum": 0.9999999, "dampening": 0.9999999}),
    ("SGD", {"lr": 1e-3, "momentum": 0.9, "nesterov": True, "weight_decay": 1e3}),
]


@pytest.mark.torch
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("name", "options"), EXTREMES)
def test_extremes_are_pytorchs(device: str, name: str, options: dict[str, Any], scale: float) -> None:
    """Gradients fall, too: after large ones a moment must forget them as PyTorch's does."""
    gradients = [values(1, scale), values(2, scale), values(3, scale * 1e-4), values(4, scale)]
    with np.errstate(all="ignore"):
        result = run(device, name, options, gradients)
    expected = run_torch(name, options, gradients, "float32")
    for a, b, start in zip(result, expected, values(0), strict=True):
        # compared is how far the parameters went; squares of 1e-20 are subnormal and have few bits
        moved = np.abs(b.astype(np.float64) - start)
        largest = moved[np.isfinite(moved)].max(initial=0)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=max((2e-2 if scale < 1e-15 else 1e-5) * largest, 1e-7))


def test_a_second_moment_does_not_cancel(device: str) -> None:
    """After a gradient of 100 one of 0.01 moves a parameter by lr again."""
    gradients = [[np.full(shape, g, np.float32) for shape in SHAPES] for g in (100, 0.01)]
    result = run(device, "Adam", {"betas": (0, 0), "lr": 0.1}, gradients)
    for a, start in zip(result, values(0), strict=True):
        np.testing.assert_allclose(a, start - 0.2, rtol=1e-5, atol=1e-6)


def test_dampening_leaves_the_first_gradient_of_each_parameter(device: str) -> None:
    """The second parameter has its first gradient at the third step, the third one at the first with momentum."""
    a, b, c = (Parameter(alpha.tensor(np.zeros(4, np.float32), device=device)) for _ in range(3))
    optimizer = optim.SGD([{"params": [a, b]}, {"params": [c], "momentum": 0.0}], 1.0, 0.5, 0.5)
    for step in range(4):
        a.grad = c.grad = alpha.tensor(np.ones(4, np.float32), device=device)
        b.grad = alpha.tensor(np.ones(4, np.float32), device=device) if step >= 2 else None
        if step == 2:
            optimizer.param_groups[1]["momentum"] = 0.5
        optimizer.step()
    np.testing.assert_array_equal(a.numpy(), -4.0)  # v = 1, then 0.5 + 0.5
    np.testing.assert_array_equal(b.numpy(), -2.0)
    np.testing.assert_array_equal(c.numpy(), -4.0)


WRONG: list[tuple[str, Any, type[Exception]]] = [
    *[
        (name, value, ValueError)
        for name in ("lr", "weight_decay", "momentum", "eps")
        for value in (-1, np.nan, np.inf)
    ],
    *[
        (name, value, TypeError)
        for name in ("lr", "weight_decay", "momentum", "eps")
        for value in ("x", None, True, [1])
    ],
    ("lr", np.float32("nan"), ValueError),
    ("dampening", np.nan, ValueError),
    ("dampening", "x", TypeError),
    *[(name, value, TypeError) for name in ("nesterov", "maximize", "amsgrad") for value in (1, "yes", None)],
    ("betas", 0.9, TypeError),
    ("betas", (0.9, 0.9, 0.9), TypeError),
    ("betas", (0.9, 1.0), ValueError),
    ("betas", (0.9, np.nan), ValueError),
    ("betas", (-0.1, 0.9), ValueError),
    ("betas", ("a", 0.9), TypeError),
]


@pytest.mark.parametrize(("argument", "value", "error"), WRONG)
def test_a_hyper_parameter_that_means_nothing_is_refused_wherever_it_comes_in(
    argument: str, value: Any, error: type[Exception]
) -> None:
    for name in OPTIMIZERS:
        if argument not in arguments(name):
            continue
        kind = getattr(optim, name)
        parameter, late = (Parameter(np.ones(3, np.float32)) for _ in range(2))
        with pytest.raises(error, match=f"^{name}: {argument}="):
            kind([parameter], **{argument: value})
        optimizer = kind([parameter])
        with pytest.raises(error, match=f"^{name}: {argument}="):
            optimizer.add_param_group({"params": [late], argument: value})
        assert len(optimizer.param_groups) == 1
        state = optimizer.state_dict()
        state["param_groups"][0][argument] = value
        with pytest.raises(alpha.CheckpointError, match=f"group 0: {argument}="):
            optimizer.load_state_dict(state)
        optimizer.param_groups[0][argument] = value
        parameter.grad = alpha.tensor(np.ones(3, np.float32))
        with pytest.raises(error, match=f"^{name}: {argument}="):
            optimizer.step()
        np.testing.assert_array_equal(parameter.numpy(), 1)
        assert not optimizer.state


def test_numpy_scalars_are_numbers() -> None:
    optimizer = optim.Adam([Parameter(np.ones(3, np.float32))], np.float32(0.5), (np.float64(0.5), np.float32(0.25)))
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"]) == (0.5, (0.5, 0.25))
    assert {type(group["lr"]), *map(type, group["betas"])} == {float}


def test_the_rules_of_every_optimizer() -> None:
    assert set(optim.Optimizer.rules) == {"lr", "weight_decay"}
    for name in OPTIMIZERS:
        assert set(getattr(optim, name).rules) <= set(arguments(name))


def test_a_parameter_that_was_given_another_array_is_not_updated() -> None:
    a, b = (Parameter(np.ones(3, np.float32)) for _ in range(2))
    optimizer = optim.SGD([a, b], lr=0.1)
    a.grad, b.grad = (alpha.tensor(np.ones(3, np.float32)) for _ in range(2))
    b.array = np.ones(4, np.float32)
    with pytest.raises(alpha.GradientError, match=r"^SGD: a gradient is float32 \(3,\) on cpu, its parameter .*\(4,\)"):
        optimizer.step()
    np.testing.assert_array_equal(a.numpy(), 1)
