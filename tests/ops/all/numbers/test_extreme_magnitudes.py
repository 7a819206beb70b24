"""Numbers whose squares are nearly infinite or nearly 0, and large constants: float32 is as right as float64.

The inputs of every function are scaled. A result that float32 has must then be found, on both devices, although sums of
squares, variances and other intermediate results may be outside of its range.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows.every import FUNCTIONS
from rows.kinds import FunctionRow, each
from trials import trials

import alpha
import alpha.nn.functional as F

Results = list[tuple[str, np.ndarray]]
TOLERANCE = 1e-3  # of the largest number of a result: what overflows is wrong by all of it
HUGE, LARGE, TINY, CONSTANT = 5e18, 1e15, 1e-18, 1e10

# What float32 loses, and why; PyTorch's float32 loses it, too.
PERIODS = "one step of float32 is many periods"
SQUARES = "the squares of the inputs are part of the formula, and their sum is outside of float32"
PRODUCTS = "the product of several inputs is part of the formula, and it is outside of float32"
CANCELS = "the gradient is a difference of equal numbers"
ADDED = "a number that is added to the inputs is so much larger that they vanish in it"
LOST: dict[str, tuple[tuple[float, ...], str]] = {
    "sinc": ((HUGE, LARGE, CONSTANT), PERIODS),
    "csc": ((TINY,), "its gradient is 1 / x^2"),
    "cot": ((TINY,), "its gradient is 1 / x^2"),
    "atan2": ((HUGE,), SQUARES),
    "arctan2": ((HUGE,), SQUARES),
    "acosh": ((HUGE,), SQUARES),
    "arccosh": ((HUGE,), SQUARES),
    "lp_pool3d": ((HUGE,), SQUARES),
    "mse_loss": ((HUGE,), SQUARES),
    "triplet_margin_loss": ((HUGE, TINY), f"{SQUARES}; {ADDED}"),
    "triplet_margin_with_distance_loss": ((TINY,), ADDED),
    "scatter_reduce": ((HUGE, LARGE), PRODUCTS),
    "cosine_embedding_loss": ((HUGE, LARGE, CONSTANT), PRODUCTS),
    "softsign": ((HUGE, LARGE, CONSTANT), CANCELS),
    "multi_head_attention_forward": ((HUGE, LARGE, CONSTANT), PRODUCTS),
    "rms_norm": ((TINY,), "the default of eps is a number of the dtype"),
}
LOST |= dict.fromkeys(("logsumexp", "logcumsumexp", "ctc_loss"), ((CONSTANT,), "the gradient is exp(x - result)"))
LOST |= dict.fromkeys(("multi_margin_loss", "multilabel_margin_loss", "gumbel_softmax"), ((CONSTANT,), ADDED))
LOST |= dict.fromkeys(("scaled_dot_product_attention", "cosine_similarity"), ((CONSTANT,), CANCELS))
UNSCALED = ("weight", "bias", "running_mean", "running_var", "target")  # of normalisations and losses


def results(row: FunctionRow, change: Callable[[np.ndarray], np.ndarray], dtype: Any, device: str) -> Results:
    """The result of a function and its gradients, of changed inputs."""
    alpha.manual_seed(0)
    leaves: list[tuple[str, alpha.Tensor]] = []

    def tensor(name: str, values: np.ndarray) -> alpha.Tensor:
        if values.dtype.kind != "f":
            return alpha.tensor(values, device=device)
        changed = values if name in UNSCALED else change(values.astype(np.float64)).astype(np.float32)
        with_gradient = name not in row.constants and not name.startswith("running")
        leaf = alpha.tensor(changed.astype(dtype), device=device, requires_grad=with_gradient)
        leaves.append((name, leaf))
        return leaf if not row.name.endswith("_") else leaf * 1  # what is written in place is no leaf

    given = {name: each(functools.partial(tensor, name), value) for name, value in row.usual.items()}
    made = parts_of(row.function(**given))
    rng = np.random.default_rng(1)
    scalars = [
        (y.astype(dtype) * alpha.tensor(rng.standard_normal(y.shape).astype(dtype), device=device)).sum()
        for y in made
        if y.requires_grad
    ]
    if scalars:
        functools.reduce(lambda a, b: a + b, scalars).backward()
    gradients = [(f"gradient of {name}", leaf.grad.numpy()) for name, leaf in leaves if leaf.grad is not None]
    return [*((f"result {i}", y.numpy()) for i, y in enumerate(made)), *gradients]


def parts_of(result: Any) -> list[alpha.Tensor]:
    """The tensors of a result."""
    if isinstance(result, (tuple, list)):
        return [part for value in result for part in parts_of(value)]
    return [result] if isinstance(result, alpha.Tensor) else []


def check(found: Results, exact: Results) -> None:
    for (name, values), (_, expected) in zip(found, exact, strict=True):
        largest = np.abs(expected).max(initial=0) if np.isfinite(expected).all() else np.inf
        if expected.dtype != np.float64 or not expected.size or largest > 3e38:
            continue
        error = np.abs(values - expected).max()
        assert error <= TOLERANCE * largest or error < 1e-37, f"{name} {values.flat[:3]}, right {expected.flat[:3]}"


@functools.cache
def exact_results(name: str, scale: float) -> Results:
    return results(ROWS[name], changes(scale), np.float64, "cpu")


ROWS = {row.name: row for row in FUNCTIONS}


def changes(scale: float) -> Callable[[np.ndarray], np.ndarray]:
    if scale == CONSTANT:
        return lambda values: np.full(values.shape, CONSTANT)
    return lambda values: values * scale


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("scale", [HUGE, LARGE, TINY, CONSTANT])
def test_every_function(device: str, scale: float) -> None:
    with trials() as trial:
        for name, row in ROWS.items():
            if scale in LOST.get(name, ((), ""))[0] or name == "binary_cross_entropy":  # which refuses such numbers
                continue
            with trial(name):
                check(results(row, changes(scale), np.float32, device), exact_results(name, scale))


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


def clipped(x: alpha.Tensor) -> alpha.Tensor:
    """x as it is after the gradient x of a parameter was clipped."""
    parameter = alpha.nn.Parameter(x.detach() * 0)
    parameter.grad = x.detach() * 1
    alpha.nn.utils.clip_grad_norm_([parameter], 1.0)
    return parameter.grad


def normalized_convolution(x: alpha.Tensor) -> alpha.Tensor:
    """The pair that is one operator on a GPU, whose convolution finds the channel statistics on Hopper."""
    conv, norm = alpha.nn.Conv2d(32, 32, 1, bias=False), alpha.nn.BatchNorm2d(32)
    conv.weight.detach().copy_(alpha.eye(32).reshape(32, 1, 1, 32))
    conv, norm = (layer.to(x.device, x.dtype) for layer in (conv, norm))
    return alpha.nn.conv_batch_norm(conv, norm, x)


LONG: dict[str, tuple[Callable[[alpha.Tensor], alpha.Tensor], np.ndarray]] = {
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), normal(3000, 3)),
    "batch_norm of a convolution": (normalized_convolution, normal(9, 16, 16, 32)),
    "layer_norm, rows": (lambda x: F.layer_norm(x, (1000,)), normal(4, 1000)),
    "layer_norm, long rows": (lambda x: F.layer_norm(x, (40_001,)), normal(1, 40_001)),
    "rms_norm": (lambda x: F.rms_norm(x, (1000,), eps=1e-5), normal(4, 1000)),
    "group_norm": (lambda x: F.group_norm(x, 2), normal(3, 200, 6)),
    "instance_norm": (lambda x: F.instance_norm(x), normal(2, 700, 3)),
    "std": (lambda x: x.std(0), normal(1000, 3)),
    "var": (lambda x: x.var(), normal(1000, 3)),
    "norm": (lambda x: x.norm(), normal(1000, 3)),
    "clip_grad_norm_": (clipped, normal(1000, 3)),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_sums_of_many_squares(device: str) -> None:
    """A sum of squares that is infinite, though the result is not: many large elements, or the smallest and largest."""
    wide = {"std": (1e30, 1e-30), "norm": (1e30, 1e-30), "clip_grad_norm_": (1e30,)}
    with trials() as trial:
        for name, (function, numbers) in LONG.items():
            for scale in (HUGE, 1e18, TINY, CONSTANT, *wide.get(name, ())):
                values = changes(scale)(numbers).astype(np.float32)
                pair = []
                for place, dtype in ((device, np.float32), ("cpu", np.float64)):
                    x = alpha.tensor(values.astype(dtype), device=place, requires_grad=True)
                    y = function(x)
                    if y.requires_grad:
                        seed = np.random.default_rng(1).standard_normal(y.shape).astype(dtype)
                        y.backward(alpha.tensor(seed, device=place))
                    pair.append([("result", y.numpy()), *([] if x.grad is None else [("gradient", x.grad.numpy())])])
                with trial(name, scale):
                    check(*pair)
