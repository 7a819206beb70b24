"""The state of an optimizer is the program's: what it does with it between two captured steps counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows.optimizers import OPTIMIZERS

import alpha
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
