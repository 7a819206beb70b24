"""The optimizers: their formulas, and settings in which each argument has an effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alpha import optim

Settings = dict[str, Any]
# formula(group, step, W, g, slots) -> W: one step of one parameter in float64; `slots` is a dict that steps share
Formula = Callable[[Mapping[str, Any], int, np.ndarray, np.ndarray, dict[str, Any]], np.ndarray]

# for each argument settings in which it changes the result, and those with which it is refused
CHANGES: dict[str, list[Settings]] = {
    "lr": [{"lr": 0.03}, {"lr": np.float32(0.5)}, {"lr": 1}],
    "weight_decay": [{"weight_decay": 0.3}, {"weight_decay": np.float64(2.0)}],
    "maximize": [{"maximize": True}, {"maximize": True, "weight_decay": 0.1}],
}
REFUSED: dict[str, list[Settings]] = {
    "foreach": [{"foreach": True}, {"foreach": False}],
    "fused": [{"fused": True}],
    "capturable": [{"capturable": True}],
    "differentiable": [{"differentiable": True}],
    "decoupled_weight_decay": [{"decoupled_weight_decay": True}],
}


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
        own: why PyTorch has none of this name, if so.
    """

    kind: type[optim.Optimizer]
    formula: Formula
    settings: list[Settings]
    changes: Mapping[str, list[Settings]] = field(default_factory=dict)
    extremes: list[Settings] = field(default_factory=lambda: [{}])
    own: str = ""

    @property
    def name(self) -> str:
        return self.kind.__name__

    @property
    def arguments(self) -> list[str]:
        """The names of its arguments, without the parameters."""
        return list(inspect.signature(self.kind).parameters)[1:]

    @property
    def offered(self) -> list[str]:
        return [argument for argument in self.arguments if argument not in REFUSED]


def sgd(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    momentum = group["momentum"]
    g = (-g if group["maximize"] else g) + group["weight_decay"] * w
    if momentum:
        v = momentum * slots["v"] + (1 - group["dampening"]) * g if "v" in slots else g
        slots["v"] = v
        g = g + momentum * v if group["nesterov"] else v
    return w - group["lr"] * g


def adam(
    group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any], decoupled: bool = False
) -> np.ndarray:
    lr, decay, (b1, b2) = group["lr"], group["weight_decay"], group["betas"]
    g = -g if group["maximize"] else g
    w, g = (w * (1 - lr * decay), g) if decoupled else (w, g + decay * w)
    m = slots["m"] = b1 * slots.get("m", 0) + (1 - b1) * g
    v = slots["v"] = b2 * slots.get("v", 0) + (1 - b2) * g * g
    if group["amsgrad"]:
        v = slots["largest"] = np.maximum(slots.get("largest", 0), v)
    return w - lr * m / (1 - b1**step) / (np.sqrt(v / (1 - b2**step)) + group["eps"])


def adamw(group: Mapping[str, Any], step: int, w: np.ndarray, g: np.ndarray, slots: dict[str, Any]) -> np.ndarray:
    return adam(group, step, w, g, slots, decoupled=True)


ADAM_CHANGES: dict[str, list[Settings]] = {
    "betas": [{"betas": (0.5, 0.7)}, {"betas": (0, 0)}, {"betas": (0.0, 0.999)}, {"betas": [0.99, 0.0]}],
    "eps": [{"eps": 0.1}],
    "amsgrad": [{"amsgrad": True, "betas": (0.9, 0.3)}, {"amsgrad": True, "betas": (0.9, 0.3), "maximize": True}],
}
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
        optim.Adam,
        adam,
        [
            {},
            {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6},
            {"lr": 0.01, "weight_decay": 0.1, "maximize": True},
            {"lr": 0.01, "amsgrad": True, "betas": (0.9, 0.3)},
        ],
        ADAM_CHANGES,
        [
            {"betas": (0, 0), "lr": 0.1},
            {"betas": (0.9999999, 0.99999999), "lr": 0.1},
            {"betas": (0.0, 0.999), "eps": 1e-30},
            {"betas": (0.9, 0.0), "eps": 0.0, "lr": 1e-3},
            {"lr": 1e-20},
            {"lr": 1e10, "eps": 1e10},
            {"weight_decay": 1e10, "lr": 0.1},
            {"weight_decay": 1e-10, "amsgrad": True},
        ],
    ),
    OptimizerRow(
        optim.AdamW,
        adamw,
        [
            {"lr": 0.01},
            {"lr": 0.01, "weight_decay": 0.2, "betas": (0.5, 0.9)},
            {"lr": 0.01, "amsgrad": True, "betas": (0.9, 0.3)},
        ],
        ADAM_CHANGES,
        [{"weight_decay": 1e4, "lr": 1e-4}, {"weight_decay": 1e-3, "lr": 1e-7, "eps": 1.0}],
    ),
]
