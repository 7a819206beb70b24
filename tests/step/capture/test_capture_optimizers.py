"""The state of an optimizer is the program's: what it does with it between two captured steps counts.

A step may give parameters other memory, as an optimizer does that goes away from the weights and back.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from rows.optimizers import OPTIMIZERS

import alpha
import alpha.nn.functional as F
from alpha import nn
from alpha.errors import CaptureWarning

pytestmark = pytest.mark.usefixtures("cuda")
Wrap = Callable[[Callable[..., Any]], Any]


def begin_anew(optimizer: Any) -> None:
    first = next(iter(optimizer.state))
    optimizer.state[first] = {}


def exchange(optimizer: Any) -> None:
    for slots in optimizer.state.values():
        for name in optimizer.slots:
            if name in slots:
                slots[name] = slots[name].device.copy(slots[name])
                slots[name].device.fill(slots[name], 0.5)


def count_anew(optimizer: Any) -> None:
    for name in optimizer.counts:
        values = [slots[name] for slots in optimizer.state.values()]
        for slots in list(optimizer.state.values())[:1]:
            slots[name] = values[0] + 1


CHANGES: dict[str, Callable[[Any], Any]] = {
    "clear": lambda o: o.state.clear(),
    "del": lambda o: o.state.__delitem__(next(iter(o.state))),
    "pop": lambda o: o.state.pop(list(o.state)[-1]),
    "a new dict": begin_anew,
    "other moments": exchange,
    "another count": count_anew,
    "load_state_dict": lambda o: o.load_state_dict(o.state_dict()),
    "no moment": lambda o: [slots.pop(name, None) for slots in o.state.values() for name in o.slots[:1]],
    "clear again": lambda o: o.state.clear(),
}


@pytest.mark.slow
@pytest.mark.parametrize("row", OPTIMIZERS, ids=lambda row: row.kind.__name__)
def test_what_is_done_with_the_state_between_two_steps_is_not_missed(row: Any) -> None:
    def run(wrap: Wrap) -> tuple[list[Any], Any]:
        draw = np.random.default_rng(0)
        values = [draw.standard_normal((3, 2), dtype=np.float32) for _ in range(2)]
        weights = [alpha.tensor(value, device="cuda", requires_grad=True) for value in values]
        optimizer = row.kind(weights, **{"lr": 0.1, **row.settings[-1]})

        def step(x: alpha.Tensor) -> alpha.Tensor:
            optimizer.zero_grad()
            loss = ((weights[0] * x).sum() + (weights[1] * weights[1] * x).sum()) * 0.1
            loss.backward()
            optimizer.step()
            return loss

        call, found = wrap(step), []
        x = alpha.tensor(values[0], device="cuda")
        for change in (lambda _: None, *CHANGES.values()):
            change(optimizer)
            for _ in range(5):
                found.append(call(x).numpy())
            found += [weight.numpy() for weight in weights]
        return found, call

    expected, _ = run(lambda step: step)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        found, step = run(alpha.capture)
    assert step.graphs
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        change = ["the first calls", *CHANGES][index // 7]
        np.testing.assert_array_equal(a, b, err_msg=f"after {change}, number {index % 7}")


class SAM(alpha.optim.Optimizer):
    """Sharpness-aware minimization, as programs write it: the weights are kept in the state, and put back."""

    def __init__(self, params: Any, base: Any, rho: float = 0.05, **options: Any) -> None:
        super().__init__(params, {"rho": rho, **options})
        self.base_optimizer = base(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    @alpha.no_grad()
    def first_step(self) -> None:
        parameters = [p for group in self.param_groups for p in group["params"]]
        norm = alpha.stack([p.grad.norm(p=2) for p in parameters]).norm(p=2)
        for p in parameters:
            self.state[p]["old_p"] = p.data.clone()
            p.add_(p.grad * (self.param_groups[0]["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @alpha.no_grad()
    def second_step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        self.zero_grad()


@pytest.fixture
def automatic_collection() -> Iterator[Any]:
    """The collector of garbage, which works again after the test."""
    yield gc
    gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("held", [None, "data", "the state", "a view", "garbage"])
def test_a_step_that_gives_parameters_other_memory(held: str | None, automatic_collection: Any) -> None:
    """The step is captured, and what the program holds of the memory before keeps its values."""

    def run(wrap: Wrap) -> tuple[list[Any], Any]:
        alpha.manual_seed(0)
        draw = np.random.default_rng(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to("cuda")
        optimizer = SAM(net.parameters(), alpha.optim.SGD, lr=0.1, momentum=0.9)

        def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.first_step()
            F.cross_entropy(net(x), y).backward()
            optimizer.second_step()
            return loss

        call, kept, found = wrap(step), [], []
        weight = net[0].weight
        for turn in range(12):
            if held == "garbage":  # a circle that nobody reaches, until it is collected
                circle = [weight.data, *optimizer.state[weight].values()]
                circle.append(circle)
                del circle
            elif turn == 7 and held is not None:
                holds = {
                    "data": weight.data,
                    "the state": optimizer.state[weight]["old_p"],
                    "a view": weight.detach()[1:3],
                }
                kept.append(holds.pop(held))
                del holds
            x = alpha.tensor(draw.standard_normal((5, 4), dtype=np.float32), device="cuda")
            kept.append(call(x, alpha.tensor(draw.integers(0, 3, 5), device="cuda")))
            if turn == 9:
                kept.clear()
            found += [tensor.numpy() for tensor in kept]
        found += [p.numpy() for p in net.parameters()]
        found += [optimizer.state[p]["old_p"].numpy() for p in net.parameters()]
        return found, call

    expected, _ = run(lambda step: step)
    if held == "garbage":
        automatic_collection.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("error" if held in (None, "garbage") else "ignore", CaptureWarning)
        found, step = run(alpha.capture)
    assert step.graphs or held not in (None, "garbage")
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"number {number}")


def test_two_tensors_of_one_memory_that_become_apart_keep_their_own_values() -> None:
    a = alpha.tensor([1.0, 2.0], device="cuda")
    b = a.detach()

    def step(x: alpha.Tensor) -> alpha.Tensor:
        b.data = a * 3
        a.data = a * 2 + x
        return a + b

    def run(call: Any) -> list[Any]:
        a.data = alpha.tensor([1.0, 2.0], device="cuda")
        b.data = a.data
        x = alpha.ones(2, device="cuda")
        return [(call(x).tolist(), a.tolist(), b.tolist()) for _ in range(6)]

    expected = run(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        assert run(alpha.capture(step)) == expected


def test_two_tensors_that_exchange_their_memory_are_named() -> None:
    a, b = (alpha.tensor([value], device="cuda") for value in (1.0, 2.0))

    def step(x: alpha.Tensor) -> alpha.Tensor:
        a.data, b.data = b.data, a.data
        return x * a

    call, x = alpha.capture(step), alpha.ones(1, device="cuda")
    with pytest.warns(CaptureWarning, match=r"a\.data, which becomes other memory: write into it"):
        assert [call(x).item() for _ in range(6)] == [2.0, 1.0] * 3
