"""LBFGS: PyTorch's iterates, its limits and tolerances, its line search, checkpoints, and what is refused.

It has no row in rows/optimizers.py, whose optimizers have a formula of one step of one parameter and need no closure.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trials import trials

import alpha
from alpha import CheckpointError, nn
from alpha.errors import CaptureError, CaptureWarning
from alpha.optim import LBFGS, StepLR
from alpha.optim.lbfgs import MOST, Point, lowest, strong_wolfe
from alpha.step.capturing.attempt import MOST_DOUBTS
from alpha.train import Trainer
from alpha.train.files.state_file import load_state, save_state

draw = np.random.default_rng(3)
X, Y = draw.standard_normal((12, 3)), draw.standard_normal((12, 2))
W1, B1, W2 = draw.standard_normal((3, 4)), draw.standard_normal(4), draw.standard_normal((4, 2))
SETTINGS: list[dict[str, Any]] = [
    {},
    {"lr": 0.3},
    {"line_search_fn": "strong_wolfe"},
    {"lr": 2.0, "line_search_fn": "strong_wolfe", "history_size": 3},
    {"history_size": 2, "max_iter": 7, "lr": 0.5},
    {"max_iter": 9, "max_eval": 4},
    {"max_iter": 40, "max_eval": 11, "line_search_fn": "strong_wolfe"},
    {"tolerance_grad": 0.3, "line_search_fn": "strong_wolfe"},
    {"tolerance_change": 0.05, "lr": 0.5},
    {"max_iter": 1, "line_search_fn": "strong_wolfe"},
    {"max_iter": 0},
]


def net(lib: Any, parameters: list[Any], x: Any, y: Any) -> Any:
    """A loss that is not convex."""
    w1, b1, w2 = parameters
    error = lib.tanh(x @ w1 + b1) @ w2 - y
    return (error * error).mean() + 1e-2 * (w1 * w1).sum()


def rosenbrock(lib: Any, parameters: list[Any], x: Any, y: Any) -> Any:
    """A curved valley, whose line searches are long."""
    a, b = parameters
    return (100 * (b - a * a) ** 2 + (1 - a) ** 2).sum()


LOSSES: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "net": (net, [W1, B1, W2]),
    "rosenbrock": (rosenbrock, [np.array([-1.2, 2.0]), np.array([1.0, -1.0])]),
}


class Run:
    """A loss, its parameters and the optimizer, in one of the libraries."""

    def __init__(self, lib: Any, loss: str = "net", where: dict[str, Any] | None = None, **settings: Any) -> None:
        self.function, start = LOSSES[loss]
        self.lib, where = lib, where or {"dtype": lib.float64}
        self.parameters = [lib.tensor(value, requires_grad=True, **where) for value in start]
        self.data = [lib.tensor(value, **where) for value in (X, Y)]
        self.optimizer = lib.optim.LBFGS(self.parameters, **settings)
        self.losses: list[float] = []

    def closure(self) -> Any:
        self.optimizer.zero_grad()
        loss = self.function(self.lib, self.parameters, *self.data)
        loss.backward()
        self.losses.append(loss.item())
        return loss

    def steps(self, count: int) -> list[np.ndarray]:
        for _ in range(count):
            self.optimizer.step(self.closure)
        return [p.detach().numpy() for p in self.parameters]


@pytest.mark.torch
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_iterates_are_pytorchs(loss: str, settings: dict[str, Any]) -> None:
    """Every loss that is evaluated, the parameters and the counts of two calls; later, rounding has grown."""
    torch = pytest.importorskip("torch")
    if loss == "rosenbrock" and "line_search_fn" not in settings:
        settings = {**settings, "lr": 1e-3}  # others diverge there
    ours, theirs = Run(alpha, loss, **settings), Run(torch, loss, **settings)
    for a, b in zip(ours.steps(2), theirs.steps(2), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-8, atol=1e-12)
    own, other = (run.optimizer.state[run.parameters[0]] for run in (ours, theirs))
    assert [own[name] for name in ("func_evals", "n_iter")] == [other[name] for name in ("func_evals", "n_iter")]
    assert len(own["old_dirs"]) == len(other.get("old_dirs") or ())


def test_every_argument_changes_the_iterates() -> None:
    changes: dict[str, Any] = {
        "lr": 0.2,
        "max_iter": 3,
        "max_eval": 5,
        "tolerance_grad": 1.0,
        "tolerance_change": 0.5,
        "history_size": 1,
        "line_search_fn": "strong_wolfe",
    }
    usual = Run(alpha, lr=0.5)
    usual.steps(1)
    assert set(changes) == set(LBFGS.rules) == set(inspect.signature(LBFGS).parameters) - {"params"}
    with trials() as trial:
        for name, value in changes.items():
            with trial(name):
                other = Run(alpha, **{"lr": 0.5, name: value})
                other.steps(1)
                assert other.losses != usual.losses


@pytest.mark.torch
def test_the_signature_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (
        [(name, p.kind, p.default) for name, p in inspect.signature(kind).parameters.items()]
        for kind in (LBFGS, torch.optim.LBFGS)
    )
    assert ours == theirs
    for settings in ({}, {"max_iter": 7}):
        other = torch.optim.LBFGS([torch.zeros(1)], **settings).param_groups[0]
        assert (
            LBFGS([alpha.zeros(1)], **settings).param_groups[0].items()
            >= {name: value for name, value in other.items() if name != "params"}.items()
        )


@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_it_minimises_on_both_devices(device: str, precision: str, search: str | None) -> None:
    """A layer that fits a linear map; sums over the parameters are those of float32 in every precision."""
    alpha.manual_seed(0)
    layer = nn.Linear(3, 2).to(device)
    x = alpha.tensor(X.astype(np.float32), device=device)
    target = x @ alpha.tensor(W1[:, :2].astype(np.float32), device=device)
    optimizer = LBFGS(layer.parameters(), line_search_fn=search)

    def closure() -> alpha.Tensor:
        optimizer.zero_grad()
        loss = ((layer(x).float() - target) ** 2).mean()
        loss.backward()
        return loss

    with alpha.precision(precision):
        losses = [float(optimizer.step(closure)) for _ in range(3)]
    assert losses[-1] < (1e-8 if precision == "float32" else 1e-3) < losses[0]
    assert all(p.grad is not None for p in layer.parameters())


def test_a_parameter_without_a_gradient_stays() -> None:
    used, unused = (nn.Parameter(np.array([1.0, 2.0], np.float32)) for _ in range(2))
    optimizer = LBFGS([used, unused])

    def closure() -> alpha.Tensor:
        optimizer.zero_grad()
        loss = (used * used).sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure)) == 5.0
    np.testing.assert_allclose(used.numpy(), 0, atol=1e-6)
    np.testing.assert_array_equal(unused.numpy(), [1, 2])
    assert float(optimizer.step(closure)) < 1e-12


# -- checkpoints ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_resumed_is_uninterrupted(device: str, search: str | None, tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_iter": 3, "history_size": 4, "line_search_fn": search, "lr": 0.5}
    where = {"device": device, "dtype": "float32"}
    whole = Run(alpha, where=where, **options)
    expected = whole.steps(5)
    first = Run(alpha, where=where, **options)
    values = first.steps(2)
    state = first.optimizer.state_dict()
    first.steps(1)  # the copy does not follow
    assert all(isinstance(v, np.ndarray) for v in state["state"][0]["old_dirs"])
    save_state(tmp_path / "s", state)
    for saved in (state, load_state(tmp_path / "s")):
        rest = Run(alpha, where=where, **{**options, "lr": 9.0})
        rest.optimizer.load_state_dict(saved)
        for parameter, value in zip(rest.parameters, values, strict=True):
            parameter.array = parameter.device.upload(value)
        for a, b in zip(rest.steps(3), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_copies_and_parameters_that_move(device: str) -> None:
    layer = nn.Linear(3, 2)
    optimizer = LBFGS(layer.parameters(), max_iter=3)
    pair = layer, optimizer
    x, y = (alpha.tensor(v.astype(np.float32)) for v in (X, Y))

    def steps(layer: nn.Module, optimizer: LBFGS, where: str) -> list[np.ndarray]:
        layer.to(where)
        there = x.to(where), y.to(where)

        def closure() -> alpha.Tensor:
            optimizer.zero_grad()
            loss = ((layer(there[0]) - there[1]) ** 2).mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        return [p.numpy() for p in layer.parameters()]

    steps(*pair, "cpu")
    copies = copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))
    expected = steps(*pair, "cpu")
    for other in copies:
        for a, b in zip(steps(*other, device), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_state_follows_parameters_to_another_dtype() -> None:
    layer = nn.Linear(3, 2)
    optimizer = LBFGS(layer.parameters(), max_iter=3)

    def closure() -> alpha.Tensor:
        optimizer.zero_grad()
        dtype = layer.weight.dtype
        loss = ((layer(alpha.tensor(X.astype(dtype))) - alpha.tensor(Y.astype(dtype))) ** 2).mean()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item()]
    for turn in (layer.double, layer.float):
        turn()
        losses.append(optimizer.step(closure).item())
    assert losses[0] > losses[1] > losses[2]


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    run = Run(alpha, max_iter=3)
    run.steps(1)
    state = run.optimizer.state_dict()
    small = LBFGS([alpha.zeros(3), alpha.zeros(2), alpha.zeros(1)])
    with pytest.raises(CheckpointError, match=r"LBFGS: d has shape \(24,\), the parameters have 6 elements"):
        small.load_state_dict(state)
    state["state"][0]["d"] = np.zeros(6)
    with pytest.raises(CheckpointError, match="LBFGS: prev_flat_grad has shape"):
        small.load_state_dict(state)
    state["param_groups"][0]["history_size"] = 0
    with pytest.raises(CheckpointError, match="history_size=0 is not a whole number of at least 1"):
        LBFGS([alpha.zeros(24), alpha.zeros(2), alpha.zeros(1)]).load_state_dict({**state, "state": {}})
    assert not small.state


def test_a_schedule_changes_its_rate() -> None:
    run = Run(alpha, max_iter=1, lr=0.5)
    schedule = StepLR(run.optimizer, 1, gamma=0.0)
    run.steps(1)
    schedule.step()
    before = [p.numpy() for p in run.parameters]
    for a, b in zip(run.steps(1), before, strict=True):
        np.testing.assert_array_equal(a, b)


# -- what is refused ------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    p, q = alpha.zeros(2), alpha.zeros(3)
    with pytest.raises(ValueError, match="LBFGS: all parameters are in one group; give a list of them"):
        LBFGS([{"params": [p]}, {"params": [q]}])
    wrong: list[tuple[str, Any, type[Exception], str]] = [
        ("lr", -1.0, ValueError, "is negative"),
        ("max_iter", 1.5, ValueError, "is not a whole number"),
        ("max_iter", None, ValueError, "is not a whole number"),
        ("max_eval", -1, ValueError, "is not a whole number"),
        ("tolerance_grad", np.nan, ValueError, "is not finite"),
        ("tolerance_change", "x", TypeError, "is a str, not a number"),
        ("history_size", 0, ValueError, "is not a whole number of at least 1"),
        ("line_search_fn", "wolfe", ValueError, "is not None or 'strong_wolfe'"),
        ("line_search_fn", 1, ValueError, "is not None or 'strong_wolfe'"),
    ]
    with trials() as trial:
        for name, value, error, message in wrong:
            with trial(name, value):
                with pytest.raises(error, match=f"^LBFGS: {name}=.* {message}"):
                    LBFGS([p], **{name: value})
                if value == -1.0:
                    continue  # which a group may have
                optimizer = LBFGS([p])
                optimizer.param_groups[0][name] = value
                with pytest.raises(error, match=f"^LBFGS: {name}="):
                    optimizer.step(lambda: alpha.zeros(1))
    with pytest.raises(TypeError, match="LBFGS: step needs a closure, which computes the loss and its gradients"):
        LBFGS([p]).step()


def test_it_is_not_captured() -> None:
    run, twin = (Run(alpha, max_iter=2, where={"device": "cuda", "dtype": "float32"}) for _ in range(2))

    def step(x: alpha.Tensor) -> Any:
        return run.optimizer.step(run.closure)

    x = alpha.zeros(1, device="cuda")
    with pytest.raises(CaptureError, match="LBFGS: it chooses its steps by losses and gradients"):
        alpha.capture(strict=True)(step)(x)
    captured = alpha.capture(step)
    with pytest.warns(CaptureWarning, match="runs as usual: LBFGS: it chooses its steps by losses and gradients"):
        [captured(x) for _ in range(MOST_DOUBTS)]
    captured(x)
    captured(x)
    for a, b in zip(run.parameters, twin.parameters, strict=True):
        assert (a.numpy() != b.numpy()).any()
    twin.steps(MOST_DOUBTS + 2)
    for a, b in zip(run.parameters, twin.parameters, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_a_trainer_says_that_it_has_no_closure(device: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).to(device)
    with pytest.raises(TypeError, match=r"Trainer: LBFGS\.step needs a closure"):
        Trainer(model, LBFGS(model.parameters()), device)


# -- the line search ------------------------------------------------------------------------------------


def test_the_lowest_place_of_a_cubic() -> None:
    """The place of t^3 - 3 t is 1, from points in either order, within limits; it is the middle if there is none."""

    def point(t: float) -> Point:
        return Point(t, t**3 - 3 * t, alpha.zeros(1), 3 * t * t - 3)

    for a, b in ((0.0, 3.0), (3.0, 0.0), (0.5, 2.0)):
        assert lowest(point(a), point(b), 0.0, 3.0) == pytest.approx(1.0)
    assert lowest(point(0.0), point(3.0), 1.5, 3.0) == 1.5
    assert lowest(point(0.0), point(3.0), 0.0, 0.5) == 0.5
    down = Point(1.0, 1.0, alpha.zeros(1), 1.0)
    assert lowest(Point(0.0, 0.0, alpha.zeros(1), 1.0), down, 0.0, 4.0) == pytest.approx(2.0)
    assert lowest(Point(0.0, 9.0, alpha.zeros(1), 1.0), Point(1.0, 0.0, alpha.zeros(1), 0.0), 2.0, 4.0) <= 4.0


@pytest.mark.parametrize("first", [1e-3, 0.1, 1.0, 50.0])
def test_the_search_meets_its_conditions(first: float) -> None:
    def point(t: float) -> Point:
        return Point(t, float(np.cos(t) + 0.1 * t), alpha.zeros(1), float(-np.sin(t) + 0.1))

    seen: list[float] = []

    def evaluate(t: float) -> Point:
        seen.append(t)
        return point(t)

    start = point(0.5)
    start = start._replace(t=0.0)
    found, count = strong_wolfe(lambda t: evaluate(t + 0.5)._replace(t=t), start, first, 1.0)
    assert count == len(seen) <= MOST + 1
    assert found.loss <= start.loss + 1e-4 * found.t * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope)


def test_a_search_without_an_end() -> None:
    """A loss that always falls: the longest step that was tried; one that never falls: the start."""
    falling, count = strong_wolfe(lambda t: Point(t, -t, alpha.zeros(1), -1.0), Point(0, 0, alpha.zeros(1), -1.0), 1, 1)
    assert (falling.t > 1e6, count) == (True, MOST + 1)
    rising, _ = strong_wolfe(lambda t: Point(t, 1.0, alpha.zeros(1), 1.0), Point(0, 0, alpha.zeros(1), -1.0), 1, 1)
    assert rising.t == 0
