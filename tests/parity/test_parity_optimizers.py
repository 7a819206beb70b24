"""Every optimizer that Alpha offers, with the options of PyTorch's optim_db, and every schedule of the same name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import parity_names as names
import pytest
from rows.optimizers import OPTIMIZERS, OptimizerRow
from rows.schedules import SCHEDULES as SCHEDULE_ROWS
from test_parity_operators import report

import alpha

SHAPES = ((3, 4), (5,), (2, 3, 3, 4), (1,))
STEPS = 6
ROWS = {row.name: row for row in OPTIMIZERS}
SCHEDULES = {row.name: row for row in SCHEDULE_ROWS}


@pytest.mark.parametrize("on", ["cpu, float64", "cpu, float32", "cuda, float32"], indirect=True)
@pytest.mark.parametrize("optimizer", names.optimizers())
def test_optimizer(optimizer: str, on: tuple[str, str], record_property: Callable[[str, str], None]) -> None:
    import parity_compare as compare
    import torch
    from torch.testing._internal.common_optimizers import optim_db

    device, dtype = on
    tally = compare.Tally()
    for info in (info for info in optim_db if info.optim_cls.__name__ == optimizer):
        for given in info.optim_inputs_func("cpu", getattr(torch, dtype)):
            for groups in (False, True):
                try:
                    one(info.optim_cls, ROWS[optimizer], given.kwargs, groups, device, dtype)
                except compare.Refused as refusal:
                    tally.add("refused", str(refusal))
                except compare.Wrong as wrong:
                    tally.add("wrong", f"{given.desc!r} {given.kwargs}{' in groups' * groups}: {wrong}")
                else:
                    tally.add("right", "")
        if info.optim_error_inputs_func is not None and device == "cpu":
            tally.wrong += bad_inputs(info, ROWS[optimizer], device, dtype)
    report("optimizer", optimizer, on, tally, record_property)


def grouped(parameters: list[Any], groups: bool) -> list[Any]:
    """The parameters themselves, or in two groups, the second with a rate of its own."""
    return [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.02}] if groups else parameters


def one(theirs: Any, row: OptimizerRow, options: dict[str, Any], groups: bool, device: str, dtype: str) -> None:
    """The same gradients for several steps; in one of them a parameter has none."""
    import parity_compare as compare
    import torch

    rng = np.random.default_rng(5)
    shapes = row.fitting(list(SHAPES))
    values = [rng.standard_normal(shape) for shape in shapes]
    twins = [torch.tensor(value, dtype=getattr(torch, dtype), requires_grad=True) for value in values]
    own = [alpha.tensor(value, dtype=dtype, device=device, requires_grad=True) for value in values]
    twin = theirs(grouped(twins, groups), **options)
    keywords = compare.Arguments((), options, compare.Layout(""), "cpu").ours[1]
    optimizer = compare.call_alpha(row.kind, grouped(own, groups), **keywords)
    for step in range(STEPS):
        for i, (a, b) in enumerate(zip(own, twins, strict=True)):
            if step == 2 and i == 1:
                a.grad = b.grad = None
                continue
            gradient = rng.standard_normal(shapes[i])
            a.grad = alpha.tensor(gradient, dtype=dtype, device=device)
            b.grad = torch.tensor(gradient, dtype=b.dtype)
        with row.twin():
            twin.step()
        compare.call_alpha(optimizer.step)
        for i, (a, b) in enumerate(zip(own, twins, strict=True)):
            compare.check_array(f"parameter {i} after step {step + 1}", a.numpy(), b, None, STEPS)


def bad_inputs(info: Any, row: OptimizerRow, device: str, dtype: str) -> Iterator[str]:
    """Options that PyTorch refuses, and Alpha takes without a reason in its row, or breaks on."""
    import parity_compare as compare
    import torch

    taken: set[str] = set()
    for error in info.optim_error_inputs_func("cpu", getattr(torch, dtype)):
        given = error.optimizer_error_input
        parameters = given.params
        if parameters is None:
            parameters = [torch.zeros(1, 1, dtype=getattr(torch, dtype), requires_grad=True)]
        known: dict[int, Any] = {}

        def carried(value: Any, known: dict[int, Any] = known) -> Any:
            if isinstance(value, torch.Tensor):
                return known.setdefault(id(value), compare.tensor(value, None, device))
            if isinstance(value, dict):
                return {name: carried(part) for name, part in value.items()}
            return type(value)(map(carried, value)) if isinstance(value, (list, tuple)) else value

        try:
            compare.call_alpha(row.kind, carried(parameters), **carried(given.kwargs))
        except compare.Refused:
            continue
        except compare.Wrong as wrong:
            yield f"bad options, {given.desc}: {wrong}"
        else:
            taken.add(given.desc)
            if given.desc not in row.takes_more:
                yield f"bad options, {given.desc}: taken; PyTorch says {error.error_regex}"
    yield from (f"takes_more has {desc!r}, which is not taken" for desc in row.takes_more.keys() - taken)


@pytest.mark.parametrize("on", ["cpu, float32"], indirect=True)
@pytest.mark.parametrize("schedule", names.schedules())
def test_schedule(schedule: str, on: tuple[str, str], record_property: Callable[[str, str], None]) -> None:
    """The rates of two groups, step by step."""
    import parity_compare as compare
    import torch

    tally, row = compare.Tally(), SCHEDULES[schedule]
    for number, make in enumerate(row.settings):
        twins = [torch.zeros(2, requires_grad=True) for _ in range(2)]
        own = [alpha.tensor(np.zeros(2, np.float32), requires_grad=True) for _ in range(2)]
        lrs = (0.1, 0.03)
        groups = ([{"params": [p], "lr": lr} for p, lr in zip(side, lrs, strict=True)] for side in (twins, own))
        twin = torch.optim.SGD(next(groups), lr=0.1, momentum=0.9)
        optimizer = alpha.optim.SGD(next(groups), lr=0.1, momentum=0.9)
        try:
            theirs = make(torch.optim.lr_scheduler, twin)
            ours = compare.call_alpha(make, alpha.optim.lr_scheduler, optimizer)
            for step in range(12):
                mine, others = ([group["lr"] for group in side.param_groups] for side in (optimizer, twin))
                if not np.allclose(mine, others, rtol=1e-12, atol=1e-15):
                    raise compare.Wrong(f"setting {number}, after {step} steps: {mine}, PyTorch's {others}")
                if not np.allclose(ours.get_last_lr(), theirs.get_last_lr(), rtol=1e-12, atol=1e-15):
                    raise compare.Wrong(f"setting {number}, get_last_lr after {step} steps: {ours.get_last_lr()}")
                twin.step()
                row.step(theirs, step)
                compare.call_alpha(row.step, ours, step)
        except compare.Refused as refusal:
            tally.add("refused", str(refusal))
        except compare.Wrong as wrong:
            tally.add("wrong", str(wrong))
        else:
            tally.add("right", "")
    report("schedule", schedule, on, tally, record_property)
