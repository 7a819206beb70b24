"""A step that finds no memory changes nothing, whichever block is the one that is missing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from helpers import failing_allocation
from rows.optimizers import OPTIMIZERS, OptimizerRow

import alpha
from alpha import OutOfMemoryError, nn, optim
from alpha.ops.kernel.tables import chunk_tables

MOST_BLOCKS = 400  # that a step asks for
SHAPES = {"cpu": [(120, 80), (7, 5), (8300,)], "cuda": [(6, 5), (3, 7), (9,)]}  # small arrays on cpu are numpy's own
STEPS = [
    pytest.param(row, settings, id=f"{row.name}-{settings}")
    for row in OPTIMIZERS
    for settings in {str(settings): settings for settings in (row.settings[0], row.settings[-1])}.values()
]


class Program:
    """Parameters in two groups, and their optimizer."""

    def __init__(self, device: str, row: OptimizerRow, settings: dict[str, Any]) -> None:
        draw = np.random.default_rng(0)
        shapes = row.fitting(SHAPES[device])
        self.parameters = [nn.Parameter(alpha.tensor(self.values(draw, shape), device=device)) for shape in shapes]
        groups = [{"params": self.parameters[:2]}, {"params": self.parameters[2:], "lr": 0.05}]
        self.optimizer = row.kind(groups, **settings)
        for p in self.parameters:
            p.grad = alpha.tensor(self.values(draw, p.shape), device=device)

    @staticmethod
    def values(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return draw.standard_normal(shape).astype(np.float32)

    def found(self) -> dict[str, np.ndarray]:
        """All that a step changes."""
        found = {f"parameter {i}": p.numpy() for i, p in enumerate(self.parameters)}
        for i, slots in self.optimizer.state_dict()["state"].items():
            found |= {f"state {i} {name}": np.asarray(value) for name, value in slots.items()}
        return found | {f"version {i}": np.asarray(p._version.value) for i, p in enumerate(self.parameters)}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], note: str) -> None:
    assert found.keys() == expected.keys(), note
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=f"{note}: {name}")


@pytest.mark.parametrize(("row", "settings"), STEPS)
def test_a_step_that_finds_no_memory_changes_nothing(device: str, row: OptimizerRow, settings: dict[str, Any]) -> None:
    plain = Program(device, row, settings)
    expected = []
    for _ in range(2):
        plain.optimizer.step()
        expected.append(plain.found())
    program = Program(device, row, settings)
    chunk_tables._kept.clear()  # the tables of earlier steps, so that these steps ask for some
    failures = 0
    for after in expected:
        before = program.found()
        for number in range(1, MOST_BLOCKS):
            with failing_allocation(number) as asked:
                try:
                    program.optimizer.step()
                except OutOfMemoryError:
                    failures += 1
            if len(asked) < number:
                break
            assert_same(program.found(), before, f"without block {number}")
        assert_same(program.found(), after, "after the step")
    arrays = program.optimizer.state[program.parameters[0]].keys() - program.optimizer.counts.keys()
    assert failures >= len(arrays) + (device == "cuda")


@pytest.mark.slow
def test_a_step_of_lbfgs_that_finds_no_memory_changes_nothing(device: str) -> None:
    start = np.random.default_rng(0).standard_normal(8300).astype(np.float32)

    def program() -> tuple[nn.Parameter, optim.LBFGS, Any]:
        p = nn.Parameter(alpha.tensor(start, device=device))
        optimizer = optim.LBFGS([p], max_iter=3, line_search_fn="strong_wolfe")

        def closure() -> alpha.Tensor:
            optimizer.zero_grad()
            loss = (p * p * p * p).sum() + (p * p).sum()
            loss.backward()
            return loss

        return p, optimizer, closure

    plain, one, closure = program()
    one.step(closure)
    p, optimizer, closure = program()
    for number in range(1, MOST_BLOCKS):
        with failing_allocation(number) as asked, suppress(OutOfMemoryError):
            optimizer.step(closure)
        if len(asked) < number:
            break
        np.testing.assert_array_equal(p.numpy(), start)
        assert not optimizer.state
    assert number > 10
    np.testing.assert_array_equal(p.numpy(), plain.numpy())


class Halves(optim.Optimizer):
    """An optimizer of a program, whose update is its own and writes at once."""

    def _update(self, group: dict[str, Any], ready: list[alpha.Tensor]) -> None:
        for p, mean in zip(ready, self._slots("mean", ready, group), strict=True):
            if group["lr"] == 0.5:
                raise OutOfMemoryError("out of memory: of the test")
            p.copy_(p.detach() * 0.5 + alpha.Tensor(mean))


def test_a_step_of_ones_own_that_fails_is_not_counted() -> None:
    p = nn.Parameter(alpha.tensor([1.0]))
    optimizer = Halves([p], lr=0.5)
    p.grad = alpha.tensor([1.0])
    with pytest.raises(OutOfMemoryError):
        optimizer.step()
    assert not optimizer.state
    optimizer.param_groups[0]["lr"] = 1.0
    with alpha.no_grad():
        optimizer.step()
    assert p.item() == 0.5
    assert optimizer.state[p]["step"] == 1
