"""The optimizers: their formulas, and settings in which each argument has an effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from alpha import optim

Settings = dict[str, Any]
# formula(group, step, W, g, slots) -> W: one step of one parameter in float64; `slots` is a dict that steps share
Formula = Callable[[Mapping[str, Any], int, np.ndarray, np.ndarray, dict[str, Any]], np.ndarray]

# for each argument settings in which it changes the result, and those with which it is refused
CHANGES: dict[str, list[Settings]] = {
    "lr": [{"lr": 0.03}, {"lr": np.float32(0.5)}, {"lr": 1}],
    "weight_decay": [{"weight_decay": 0.3}, {"weight_decay": np.float64(2.0)}],
    "maximize": [{"maximize": True}, {"maximize": True, "weight_decay": 0.1}],
    "l1_decay": [{"l1_decay": 0.3}, {"l1_decay": 0.1, "maximize": True}],
}
ALPHAS = {"fixed_norm", "l1_decay"}  # arguments that PyTorch does not have
REFUSED: dict[str, list[Settings]] = {
    "capturable": [{"capturable": True}],
    "differentiable": [{"differentiable": True}],
}
WITHOUT_EFFECT = {"foreach", "fused"}  # arguments that choose an implementation of PyTorch's


@dataclass(frozen=True)
class OptimizerRow:
    """One optimizer.

    Attributes:
        kind: the class.
        formula: one step in float64.
        settings: arguments with which its steps are compared with the formula and with PyTorch, interrupted and
            resumed; with the last ones it is captured.
        changes: settings for the arguments that CHANGES and REFUSED do not have, or other ones.
        extremes: settings that are tried with very small and very large gradients.
        largest: the largest scale of these gradients that is compared with PyTorch.
        own: why PyTorch has none of this name, if so.
        matrices: it updates matrices only.
        twin: what PyTorch's optimizer runs in.
        averages: the names of its means of parameters, in Alpha's state and in PyTorch's.
        takes_more: inputs that PyTorch refuses, by PyTorch's description of them, and why Alpha takes them.
    """

    kind: type[optim.Optimizer]
    formula: Formula
    settings: list[Settings]
    changes: Mapping[str, list[Settings]] = field(default_factory=dict)
    extremes: list[Settings] = field(default_factory=lambda: [{}])
    largest: float = 1e20
    own: str = ""
    matrices: bool = False
    twin: Callable[[], AbstractContextManager[None]] = nullcontext
    averages: tuple[str, str] | None = None
    takes_more: Mapping[str, str] = field(default_factory=dict)

    def fitting(self, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Shapes of parameters, as matrices of the same rows if the optimizer updates no others."""
        if not self.matrices:
            return shapes
        return [(shape[0] if shape else 1, int(np.prod(shape[1:]))) for shape in shapes]

    def needs_a_twin(self, settings: Settings) -> None:
        """Skip the test if PyTorch has no such optimizer, or not these arguments."""
        if self.own:
            pytest.skip(self.own)
        if missing := ALPHAS & set(settings):
            pytest.skip(f"PyTorch has no {', '.join(missing)}")

    @property
    def name(self) -> str:
        return self.kind.__name__

    @property
    def arguments(self) -> list[str]:
        """The names of its arguments, without the parameters."""
        return list(inspect.signature(self.kind).parameters)[1:]

    @property
    def offered(self) -> list[str]:
        return [argument for argument in self.arguments if argument not in REFUSED.keys() | WITHOUT_EFFECT]


def decayed(group: Mapping[str, Any], w: np.ndarray, g: np.ndarray, decoupled: bool = False) -> Any:
    """The parameter and the gradient after weight decay."""
    g = -g if group["maximize"] else g
    decay = group["weight_decay"] * w + group["l1_decay"] * np.sign(w)
    return (w - group["lr"] * decay, g) if decoupled else (w, g + decay)


def moments(group: Mapping[str, Any], g: np.ndarray, slots: dict[str, Any]) -> Any:
    """The first and second moment of a step."""
    b1, b2 = group["betas"]
    m = slots["m"] = b1 * slots.get("m", 0) + (1 - b1) * g
    v = slots["v"] = b2 * slots.get("v", 0) + (1 - b2) * g * g
    return m, v


def sgd(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    momentum = group["momentum"]
    w, g = decayed(group, w, g)
    if momentum:
        v = momentum * slots["v"] + (1 - group["dampening"]) * g if "v" in slots else g
        slots["v"] = v
        g = g + momentum * v if group["nesterov"] else v
    return w - group["lr"] * g


def momentum(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    beta = group["beta"]
    w, g = decayed(group, w, g)
    v = slots["v"] = beta * slots.get("v", 0) + (1 - beta) * g
    return w - group["lr"] * v / (1 - beta**step)


def rmsprop(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    alpha, rate = group["alpha"], group["momentum"]
    w, g = decayed(group, w, g)
    v = slots["v"] = alpha * slots.get("v", 0) + (1 - alpha) * g * g
    mean = slots["mean"] = alpha * slots.get("mean", 0) + (1 - alpha) * g
    d = g / (np.sqrt(v - mean * mean if group["centered"] else v) + group["eps"])
    slots["velocity"] = rate * slots.get("velocity", 0) + d
    return w - group["lr"] * slots["velocity"]


def adadelta(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    w, g = decayed(group, w, g)
    v = slots["v"] = group["rho"] * slots.get("v", 0) + (1 - group["rho"]) * g * g
    d = np.sqrt(slots.get("u", 0) + group["eps"]) / np.sqrt(v + group["eps"]) * g
    slots["u"] = group["rho"] * slots.get("u", 0) + (1 - group["rho"]) * d * d
    return w - group["lr"] * d


def asgd(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    w, g = decayed(group, w, g)
    eta = group["lr"] / (1 + group["lambd"] * group["lr"] * (step - 1)) ** group["alpha"]
    w = w * (1 - group["lambd"] * eta) - eta * g
    mean = slots.get("mean", w)
    slots["mean"] = mean + (w - mean) / max(1, step - 1 - group["t0"])
    return w


def rprop(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    g = -g if group["maximize"] else g
    turn = np.sign(g * slots.get("before", 0))
    factor = np.where(turn > 0, group["etas"][1], np.where(turn < 0, group["etas"][0], 1))
    slots["length"] = np.clip(slots.get("length", group["lr"]) * factor, *group["step_sizes"])
    slots["before"] = np.where(turn < 0, 0, g)
    return w - np.sign(slots["before"]) * slots["length"]


def adagrad(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    w, g = decayed(group, w, g)
    total = slots["total"] = slots.get("total", group["initial_accumulator_value"]) + g * g
    return w - group["lr"] / (1 + (step - 1) * group["lr_decay"]) * g / (np.sqrt(total) + group["eps"])


def adam(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    lr, (b1, b2) = group["lr"], group["betas"]
    w, g = decayed(group, w, g, group["decoupled_weight_decay"])
    m, v = moments(group, g, slots)
    if group["amsgrad"]:
        v = slots["largest"] = np.maximum(slots.get("largest", 0), v)
    return w - lr * m / (1 - b1**step) / (np.sqrt(v / (1 - b2**step)) + group["eps"])


def adamax(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    b1, b2 = group["betas"]
    w, g = decayed(group, w, g)
    m, _ = moments(group, g, slots)
    largest = slots["largest"] = np.maximum(b2 * slots.get("largest", 0), np.abs(g) + group["eps"])
    return w - group["lr"] * m / (1 - b1**step) / largest


def adamod(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    (b1, b2), b3 = group["betas"], group["beta3"]
    w, g = decayed(group, w, g)
    m, v = moments(group, g, slots)
    rate = group["lr"] / (1 - b1**step) / (np.sqrt(v / (1 - b2**step)) + group["eps"])
    mean = slots["mean"] = b3 * slots.get("mean", 0) + (1 - b3) * rate
    return w - np.minimum(rate, mean) * m


def radam(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    b1, b2 = group["betas"]
    w, g = decayed(group, w, g, group["decoupled_weight_decay"])
    m, v = moments(group, g, slots)
    most, bias = 2 / (1 - b2) - 1, 1 - b2**step
    length = most - 2 * step * b2**step / bias
    update = group["lr"] * m / (1 - b1**step)
    if length <= 5:
        return w - update
    rectified = np.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
    return w - update * rectified * np.sqrt(bias) / (np.sqrt(v) + group["eps"])


def nadam(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    b1, b2 = group["betas"]
    w, g = decayed(group, w, g, group["decoupled_weight_decay"])
    m, v = moments(group, g, slots)
    mu = [b1 * (1 - 0.5 * 0.96 ** (k * group["momentum_decay"])) for k in range(1, step + 2)]
    update = (1 - mu[-2]) / (1 - np.prod(mu[:-1])) * g + mu[-1] / (1 - np.prod(mu)) * m
    return w - group["lr"] * update / (np.sqrt(v / (1 - b2**step)) + group["eps"])


def lion(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    b1, b2 = group["betas"]
    w, g = decayed(group, w, g, decoupled=True)
    m = slots.get("m", 0)
    slots["m"] = b2 * m + (1 - b2) * g
    return w - group["lr"] * np.sign(b1 * m + (1 - b1) * g)


def muon(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    beta, (a, b, c), (rows, columns) = group["momentum"], group["ns_coefficients"], w.shape
    v = slots["v"] = beta * slots.get("v", 0) + (1 - beta) * g
    x = beta * v + (1 - beta) * g if group["nesterov"] else v
    x = (x.T if rows > columns else x) / max(np.sqrt((x * x).sum()), group["eps"])
    for _ in range(group["ns_steps"]):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    matched = group["adjust_lr_fn"] == "match_rms_adamw"
    ratio = 0.2 * np.sqrt(max(rows, columns)) if matched else np.sqrt(max(1, rows / columns))
    if group["fixed_norm"]:
        w = w * np.sqrt(rows) / np.sqrt((w * w).sum())
    return w * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * ratio * (x.T if rows > columns else x)


def adafactor(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    share, (eps1, eps2) = step ** group["beta2_decay"], group["eps"]
    eps1 = np.finfo(np.float32).eps if eps1 is None else eps1
    square = g * g

    def mean(name: str, new: np.ndarray) -> np.ndarray:
        slots[name] = (1 - share) * slots.get(name, 0) + share * new
        return slots[name]

    if g.ndim < 2:
        v = mean("v", square)
    else:
        row, column = mean("row", square.mean(-1, keepdims=True)), mean("column", square.mean(-2, keepdims=True))
        v = row * column / np.maximum(row.mean(-2, keepdims=True), eps1)
    u = (-g if group["maximize"] else g) / np.maximum(np.sqrt(v), eps1)
    length = min(group["lr"], step**-0.5) * max(eps2, np.sqrt(np.mean(w * w)))
    length /= max(1, np.sqrt(np.mean(u * u)) / group["d"])
    return w * (1 - group["lr"] * group["weight_decay"]) - length * u


@contextmanager
def muon_in_full_precision() -> Iterator[None]:
    """PyTorch's Muon computes in bfloat16; inside of this it has the precision of its parameters."""
    import torch

    with patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone):
        yield


@contextmanager
def nadam_in_full_precision() -> Iterator[None]:
    """PyTorch's NAdam keeps the product of its momenta in the default dtype."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


ADAM_CHANGES: dict[str, list[Settings]] = {
    "betas": [{"betas": (0.5, 0.7)}, {"betas": (0, 0)}, {"betas": (0.0, 0.999)}, {"betas": [0.99, 0.0]}],
    "eps": [{"eps": 0.1}],
}
AMSGRAD_CHANGES: dict[str, list[Settings]] = {
    **ADAM_CHANGES,
    "amsgrad": [{"amsgrad": True, "betas": (0.9, 0.3)}, {"amsgrad": True, "betas": (0.9, 0.3), "maximize": True}],
}
DECOUPLED: dict[str, list[Settings]] = {
    "decoupled_weight_decay": [{"decoupled_weight_decay": True, "weight_decay": 0.3, "lr": 0.1}]
}
ADAM_EXTREMES: list[Settings] = [
    {"betas": (0, 0), "lr": 0.1},
    {"betas": (0.9999999, 0.99999999), "lr": 0.1},
    {"betas": (0.0, 0.999), "eps": 1e-30},
    {"lr": 1e-20},
    {"lr": 1e10, "eps": 1e10},
    {"weight_decay": 1e10, "lr": 0.1},
]
OPTIMIZERS = [
    OptimizerRow(
        optim.SGD,
        sgd,
        [
            {"lr": 0.1},
            {"lr": 0.1, "weight_decay": 0.1},
            {"lr": 0.1, "momentum": 0.9},
            {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "maximize": True},
            {"lr": 0.1, "momentum": 0.8, "nesterov": True},
            {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
            {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "l1_decay": 0.1},
            {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01},
        ],
        {
            "momentum": [{"momentum": 0.9}, {"momentum": 2.0}],
            "dampening": [
                {"momentum": 0.9, "dampening": 0.3},
                {"momentum": 0.5, "dampening": 1.0, "weight_decay": 0.1},
                {"momentum": 0.5, "dampening": -1},
            ],
            "nesterov": [
                {"momentum": 0.9, "nesterov": True},
                {"momentum": 0.9, "nesterov": np.True_, "weight_decay": 0.1},
            ],
        },
        [
            {"lr": 1e-20},
            {"lr": 1e10, "weight_decay": 1e-12},
            {"lr": 0.1, "momentum": 0.9999999, "dampening": 0.9999999},
            {"lr": 1e-3, "momentum": 0.9, "nesterov": True, "weight_decay": 1e3},
        ],
    ),
    OptimizerRow(
        optim.Momentum,
        momentum,
        [{"lr": 0.1}, {"lr": 0.1, "beta": 0.5, "weight_decay": 0.1, "l1_decay": 0.1, "maximize": True}],
        {"beta": [{"beta": 0.5}, {"beta": 0}]},
        own="it is Dragon-Alpha's; PyTorch's SGD has a momentum without bias correction",
    ),
    OptimizerRow(
        optim.RMSprop,
        rmsprop,
        [
            {},
            {"lr": 0.1, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1, "l1_decay": 0.1, "maximize": True},
            {"momentum": 0.9},
            {"centered": True},
            {"centered": True, "momentum": 0.9, "weight_decay": 0.1, "maximize": True},
        ],
        {
            "alpha": [{"alpha": 0.5}, {"alpha": 0, "centered": True, "eps": 0.1}],
            "eps": [{"eps": 0.1}],
            "momentum": [{"momentum": 0.9}],
            "centered": [{"centered": True}, {"centered": True, "momentum": 0.5}],
        },
        [{"alpha": 0}, {"alpha": 0.9999999, "lr": 0.1}, {"momentum": 0.9, "lr": 1e-20}, {"weight_decay": 1e10}],
    ),
    OptimizerRow(
        optim.Adadelta,
        adadelta,
        [
            {},
            {"lr": 0.5, "weight_decay": 0.1, "l1_decay": 0.1, "maximize": True},
            {"rho": 0.5, "eps": 1e-3, "weight_decay": 0.2},
        ],
        {"lr": [{"lr": 0.03}, {"lr": np.float32(0.5)}], "rho": [{"rho": 0.5}], "eps": [{"eps": 0.1}]},
        [{"rho": 0}, {"eps": 1e-20}, {"weight_decay": 1e10}],
    ),
    OptimizerRow(
        optim.Adafactor,
        adafactor,
        [
            {},
            {"lr": 0.3, "beta2_decay": -0.5, "weight_decay": 0.1, "maximize": True},
            {"lr": 1.0, "eps": (1e-2, 3.0), "d": 1.5, "weight_decay": 0.2},
        ],
        {
            "beta2_decay": [{"beta2_decay": -0.3}, {"beta2_decay": 0}],
            "eps": [{"eps": (0.9, 1e-3)}, {"eps": (None, 2)}, {"eps": [0.0, 3.0]}],
            "d": [{"d": 2}],
        },
        [{}, {"eps": (1e-30, 1e-3)}, {"eps": (None, 0.0)}, {"lr": 1e10, "weight_decay": 1e-12}, {"beta2_decay": 0.0}],
        largest=1e12,  # squares of infinity make a mean infinite here, and NaN in PyTorch
    ),
    OptimizerRow(
        optim.ASGD,
        asgd,
        [
            {},
            {"lr": 0.1, "lambd": 0.1, "weight_decay": 0.1, "l1_decay": 0.1, "maximize": True},
            {"lambd": 0.3, "alpha": 2.0, "t0": 1.0},
        ],
        {
            "lambd": [{"lambd": 0.5}],
            "alpha": [{"alpha": 3.0, "lambd": 0.5, "lr": 1.0}],
            "t0": [{"t0": -3.0}, {"t0": 1}],
        },
        [{"lr": 1e10}, {"t0": 0.0}],
        averages=("mean", "ax"),
    ),
    OptimizerRow(
        optim.Rprop,
        rprop,
        [{}, {"lr": 0.5, "etas": (0.3, 2.0), "maximize": True}, {"step_sizes": (0.009, 0.011)}],
        {"maximize": [{"maximize": True}], "etas": [{"etas": (0.1, 3.0)}], "step_sizes": [{"step_sizes": (0.5, 1.0)}]},
    ),
    OptimizerRow(
        optim.Adagrad,
        adagrad,
        [
            {},
            {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "l1_decay": 0.1, "maximize": True},
            {"initial_accumulator_value": 0.5, "eps": 1e-4, "lr_decay": 1.0},
        ],
        {
            "lr_decay": [{"lr_decay": 0.5}],
            "initial_accumulator_value": [{"initial_accumulator_value": 1}],
            "eps": [{"eps": 0.1}],
        },
        [{"eps": 1e-30}, {"lr": 1e10, "eps": 1e10}, {"weight_decay": 1e10}, {"initial_accumulator_value": 1e30}],
    ),
    OptimizerRow(
        optim.Adam,
        adam,
        [
            {},
            {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6},
            {"lr": 0.01, "weight_decay": 0.1, "maximize": True},
            {"lr": 0.01, "weight_decay": 0.1, "l1_decay": 0.2, "maximize": True},
            {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True},
            {"lr": 0.01, "amsgrad": True, "betas": (0.9, 0.3)},
        ],
        {**AMSGRAD_CHANGES, **DECOUPLED},
        [*ADAM_EXTREMES, {"betas": (0.9, 0.0), "eps": 0.0, "lr": 1e-3}, {"weight_decay": 1e-10, "amsgrad": True}],
    ),
    OptimizerRow(
        optim.AdamW,
        adam,
        [
            {"lr": 0.01},
            {"lr": 0.01, "weight_decay": 0.2, "betas": (0.5, 0.9)},
            {"lr": 0.01, "weight_decay": 0.2, "l1_decay": 0.5},
            {"lr": 0.01, "amsgrad": True, "betas": (0.9, 0.3)},
        ],
        AMSGRAD_CHANGES,
        [{"weight_decay": 1e4, "lr": 1e-4}, {"weight_decay": 1e-3, "lr": 1e-7, "eps": 1.0}],
    ),
    OptimizerRow(
        optim.Adamax,
        adamax,
        [{}, {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.1, "maximize": True}, {"l1_decay": 0.1}],
        ADAM_CHANGES,
        ADAM_EXTREMES,
    ),
    OptimizerRow(
        optim.AdaMod,
        adamod,
        [
            {"lr": 0.1},
            {"lr": 0.1, "betas": (0.8, 0.9), "beta3": 0.5, "eps": 1e-3, "weight_decay": 0.1, "l1_decay": 0.1},
            {"lr": 0.1, "beta3": 0.2, "maximize": True},
        ],
        {**ADAM_CHANGES, "beta3": [{"beta3": 0.5}, {"beta3": 0.0}]},
        own="PyTorch has none",
    ),
    OptimizerRow(
        optim.RAdam,
        radam,
        [
            {},
            {"lr": 0.1, "betas": (0.8, 0.6), "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
            {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True, "l1_decay": 0.1},
            {"lr": 0.1, "betas": (0.8, 0.7), "weight_decay": 0.1, "decoupled_weight_decay": True},
        ],
        {**ADAM_CHANGES, **DECOUPLED, "eps": [{"eps": 0.1, "betas": (0.9, 0.9)}]},
        ADAM_EXTREMES,
    ),
    OptimizerRow(
        optim.NAdam,
        nadam,
        [
            {},
            {"lr": 0.1, "betas": (0.8, 0.6), "eps": 1e-3, "weight_decay": 0.1, "maximize": True},
            {"lr": 0.1, "momentum_decay": 1.5, "weight_decay": 0.1, "decoupled_weight_decay": True, "l1_decay": 0.1},
            {"lr": 0.1, "momentum_decay": 0.5, "weight_decay": 0.1, "decoupled_weight_decay": True},
        ],
        {**ADAM_CHANGES, **DECOUPLED, "momentum_decay": [{"momentum_decay": 0.5}, {"momentum_decay": 0}]},
        # of other settings PyTorch's v / (1 - beta2^step) overflows in float32, and Alpha's does not
        [{"betas": (0, 0), "lr": 0.1}, {"betas": (0, 0), "eps": 1e-30}, {"lr": 1e-20}],
        twin=nadam_in_full_precision,
    ),
    OptimizerRow(
        optim.Lion,
        lion,
        [
            {"lr": 0.01},
            {"lr": 0.01, "betas": (0.5, 0.7), "weight_decay": 1.0, "l1_decay": 1.0},
            {"lr": 0.01, "weight_decay": 0.5, "maximize": True},
        ],
        {"betas": [{"betas": (0.5, 0.99), "lr": 0.1}, {"betas": (0.0, 0.5)}]},
        own="PyTorch has none",
    ),
    OptimizerRow(
        optim.Muon,
        muon,
        [
            {"lr": 0.1},
            {"lr": 0.1, "weight_decay": 0.5, "momentum": 0.5, "nesterov": False, "adjust_lr_fn": "original"},
            {"lr": 0.1, "ns_coefficients": (3.0, -3.2, 1.2), "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"},
            {"lr": 0.1, "fixed_norm": True},
        ],
        {
            "momentum": [{"momentum": 0.5}, {"momentum": 0}],
            "nesterov": [{"nesterov": False, "momentum": 0.3}],
            "ns_coefficients": [{"ns_coefficients": (2, -1.5, 0.5)}, {"ns_coefficients": [3.0, -3.2, 1.2]}],
            "eps": [{"eps": 100.0}],
            "ns_steps": [{"ns_steps": 2}, {"ns_steps": 0}],
            "adjust_lr_fn": [{"adjust_lr_fn": "match_rms_adamw"}],
            "fixed_norm": [{"fixed_norm": True}],
        },
        [{"lr": 1e-20}, {"lr": 0.1, "weight_decay": 1e10}],
        matrices=True,
        twin=muon_in_full_precision,
        takes_more={"only support 2D parameters": "it takes a filter as the matrix with a row for each filter"},
    ),
]
