"""Schedules: PyTorch's rates step by step, refusals, checkpoints, and steps beside a captured step."""

from __future__ import annotations

import inspect
import json
import math
from typing import Any

import numpy as np
import pytest
from rows.schedules import SCHEDULES, Make, ScheduleRow

import alpha
from alpha import CheckpointError, optim
from alpha.nn import Parameter
from alpha.optim import lr_scheduler

ROWS = {row.name: row for row in SCHEDULES}
SETTINGS = [pytest.param(row, make, id=f"{row.name}-{i}") for row in SCHEDULES for i, make in enumerate(row.settings)]
STEPS = 13


def optimizer(*rates: float, kind: Any = optim.SGD, **options: Any) -> Any:
    return kind([{"params": [Parameter(np.ones(2, np.float32))], "lr": rate} for rate in rates], **options)


def pytorchs(*rates: float, kind: str = "SGD", **options: Any) -> Any:
    import torch

    groups = [{"params": [torch.ones(2, requires_grad=True)], "lr": rate} for rate in rates]
    return getattr(torch.optim, kind)(groups, **options)


def rates(subject: Any) -> list[float]:
    return [group["lr"] for group in subject.param_groups]


def momenta(subject: Any) -> list[Any]:
    return [group.get("betas", group.get("momentum")) for group in subject.param_groups]


def own(T: Any, name: str, make: Any) -> Any:
    """A schedule of a program's own class, with twice the rates of PyTorch's or Alpha's; see OWN."""

    class Twice(getattr(T.optim.lr_scheduler, name)):  # type: ignore[misc]
        def get_lr(self) -> list[float]:
            return [2 * rate for rate in super().get_lr()]

    return make(Twice)


OWN: dict[str, tuple[Any, ...]] = {
    "CosineAnnealingLR": (4,),
    "CosineAnnealingWarmRestarts": (2,),
    "LambdaLR": (lambda step: 0.9**step,),
    "MultiplicativeLR": (lambda step: 0.9,),
    "StepLR": (2,),
    "MultiStepLR": ([2],),
    "LinearLR": (),
    "ConstantLR": (0.5, 3),
    "ExponentialLR": (0.9,),
    "PolynomialLR": (4,),
    "CyclicLR": (0.1, 1.0, 2),
    "OneCycleLR": (1.0, 10),
}
OF_OTHERS = {"SequentialLR", "ChainedScheduler", "ReduceLROnPlateau"}  # which have no get_lr


@pytest.mark.torch
@pytest.mark.parametrize("name", [row.name for row in SCHEDULES if row.name not in OF_OTHERS])
def test_a_get_lr_of_ones_own_gives_the_first_rates_too(name: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for T, given in ((torch, pytorchs(0.3, 1.0, momentum=0.9)), (alpha, optimizer(0.3, 1.0, momentum=0.9))):
        schedule = own(T, name, lambda kind, given=given: kind(given, *OWN[name]))
        found.append([rates(given)])
        for _ in range(6):
            given.step()
            schedule.step()
            found[-1].append(rates(given))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


class Below:
    """The room of the schedules, in which each class is a subclass that changes nothing."""

    def __getattr__(self, name: str) -> Any:
        return type(name, (getattr(lr_scheduler, name),), {"__module__": __name__})


@pytest.mark.parametrize(("row", "make"), SETTINGS)
@pytest.mark.filterwarnings("error")
def test_a_subclass_that_changes_nothing_has_the_rates_and_the_state_of_its_class(row: ScheduleRow, make: Make) -> None:
    pairs = [
        (given, make(room, given)) for room in (lr_scheduler, Below()) for given in [optimizer(0.3, 1.0, momentum=0.9)]
    ]
    for number in range(STEPS):
        assert rates(pairs[0][0]) == rates(pairs[1][0])
        assert json.dumps(pairs[0][1].state_dict()) == json.dumps(pairs[1][1].state_dict())
        for given, schedule in pairs:
            given.step()
            row.step(schedule, number)


class WarmUp(optim.LRScheduler):
    """Rises to the first rate, slower with each call of `slow`."""

    def __init__(self, given: Any, steps: int) -> None:
        self.steps, self.table, self.shape = steps, {"half": [1, 2.5, None]}, len
        super().__init__(given)

    def get_lr(self) -> list[float]:
        return [base * min(1.0, (self.last_epoch + 1) / self.steps) for base in self.base_lrs]

    def slow(self) -> None:
        self.steps *= 2
        self.table["half"].append("slow")


def test_what_a_schedule_of_ones_own_holds_goes_on_with_a_run() -> None:
    first = optimizer(1.0)
    schedule = WarmUp(first, 4)
    assert rates(first) == [0.25]
    schedule.step()
    schedule.slow()
    state = json.loads(json.dumps(schedule.state_dict()))
    second = optimizer(1.0)
    resumed = WarmUp(second, 3)
    second.param_groups[0]["lr"] = first.param_groups[0]["lr"]
    resumed.load_state_dict(state)
    assert (resumed.steps, resumed.table) == (8, {"half": [1, 2.5, None, "slow"]})
    for _ in range(8):
        schedule.step()
        resumed.step()
        assert rates(first) == rates(second)
    state["table"]["half"].append(1)
    assert resumed.table["half"][-1] == "slow"  # the state is no part of it
    schedule.model = object()
    with pytest.warns(UserWarning, match="WarmUp: its state does not hold model; a run that goes on has it from a new"):
        assert "model" not in schedule.state_dict()


def test_a_schedule_of_ones_own_begins_at_its_milestone() -> None:
    given = optimizer(1.0)
    both = optim.SequentialLR(given, [optim.ConstantLR(given, 0.1, 9), WarmUp(given, 4)], [1])
    found = []
    for _ in range(3):
        both.step()
        found += rates(given)
    assert found == [0.25, 0.5, 0.75]


def test_every_schedule_has_a_row() -> None:
    exported = {name for name in optim.__all__ if issubclass(getattr(optim, name), optim.LRScheduler)}
    assert exported - {"LRScheduler"} == set(ROWS), "a schedule needs one row in tests/rows/schedules.py"
    assert exported == set(lr_scheduler.__all__)


@pytest.mark.torch
@pytest.mark.parametrize("row", SCHEDULES, ids=lambda row: row.name)
def test_order_kinds_and_defaults_are_pytorchs(row: ScheduleRow) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = (
        [(p.name, p.kind, p.default) for p in inspect.signature(getattr(room, row.name)).parameters.values()]
        for room in (lr_scheduler, torch.optim.lr_scheduler)
    )
    assert ours == theirs


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize(("row", "make"), SETTINGS)
def test_rates_and_momenta_are_pytorchs(row: ScheduleRow, make: Make, kind: str) -> None:
    torch = pytest.importorskip("torch")
    options = {"momentum": 0.7} if kind == "SGD" else {}
    ours, theirs = optimizer(0.5, 1.0, kind=getattr(optim, kind), **options), pytorchs(0.5, 1.0, kind=kind, **options)
    schedule, other = make(lr_scheduler, ours), make(torch.optim.lr_scheduler, theirs)
    for step in range(STEPS):
        np.testing.assert_allclose(rates(ours), rates(theirs), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(schedule.get_last_lr(), rates(ours), rtol=0)
        np.testing.assert_allclose(momenta(ours), momenta(theirs), rtol=1e-12)
        theirs.step()
        row.step(schedule, step)
        row.step(other, step)


@pytest.mark.parametrize("done", [0, 1, 3, 6])
@pytest.mark.parametrize(("row", "make"), SETTINGS)
def test_resumed_is_uninterrupted_through_json(row: ScheduleRow, make: Make, done: int) -> None:
    whole = optimizer(0.5, 1.0, momentum=0.7)
    schedule = make(lr_scheduler, whole)
    saved: Any = None
    for step in range(10):
        if step == done:
            saved = json.loads(json.dumps([whole.state_dict()["param_groups"], schedule.state_dict()]))
        row.step(schedule, step)
    resumed = optimizer(9.0, 9.0, momentum=0.1)
    again = make(lr_scheduler, resumed)
    for step in range(2):
        row.step(again, step)
    resumed.load_state_dict({"optimizer": "SGD", "state": {}, "param_groups": saved[0]})
    again.load_state_dict(saved[1])
    for step in range(done, 10):
        row.step(again, step)
    assert rates(resumed) == rates(whole)
    assert momenta(resumed) == momenta(whole)
    assert again.state_dict() == schedule.state_dict()


@pytest.mark.parametrize("row", SCHEDULES, ids=lambda row: row.name)
def test_a_state_restores_the_arguments(row: ScheduleRow) -> None:
    first = row.settings[0](lr_scheduler, optimizer(0.5, 1.0, momentum=0.7))
    second = row.other(lr_scheduler, optimizer(0.5, 1.0, momentum=0.7))
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [pytest.param(row, *wrong, id=f"{row.name}-{i}") for row in SCHEDULES for i, wrong in enumerate(row.wrong)],
)
def test_arguments_that_mean_nothing(row: ScheduleRow, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^{row.name}: {message}"):
        getattr(lr_scheduler, row.name)(optimizer(0.5, 1.0, momentum=0.7), **options)


@pytest.mark.parametrize("row", SCHEDULES, ids=lambda row: row.name)
def test_a_state_that_does_not_fit_changes_nothing(row: ScheduleRow) -> None:
    schedule = row.settings[0](lr_scheduler, optimizer(0.5, 1.0, momentum=0.7))
    before = schedule.state_dict()
    for change, message in [
        ({"schedule": "OtherLR"}, "it is that of OtherLR"),
        ({"last_epoch": -1}, "last_epoch=-1 is not"),
        ({"base_lrs": [0.1]}, "is not a list of 2 numbers"),
        ({"last_lr": ["x", 1.0]}, "one is a str"),
        ({"speed": 1}, "speed is unknown"),
        *(({name: None}, f"{name}=None") for name in schedule.rules),
    ]:
        with pytest.raises(CheckpointError, match=message):
            schedule.load_state_dict({**before, **change})
    with pytest.raises(CheckpointError, match="last_lr is missing"):
        schedule.load_state_dict({name: value for name, value in before.items() if name != "last_lr"})
    for state in (None, 5, [1], "x"):
        with pytest.raises(TypeError, match=f"^{row.name}: the state is a .*, not a dict; give what state_dict"):
            schedule.load_state_dict(state)  # type: ignore[arg-type]
    if "schedulers" in before:
        parts = before["schedulers"]
        for changed, message in (
            (5, "schedulers is a int, not a list"),
            ([None, *parts[1:]], "schedule 0: it is a N"),
            (parts[1:], f"it has {len(parts) - 1} schedules, not {len(parts)}"),
        ):
            with pytest.raises(CheckpointError, match=message):
                schedule.load_state_dict({**before, "schedulers": changed})
    assert schedule.state_dict() == before


def test_a_schedule_of_ones_own_on_the_older_name_of_the_base() -> None:
    class Halved(lr_scheduler._LRScheduler):
        def get_lr(self) -> list[float]:
            return [base / 2**self.last_epoch for base in self.base_lrs]

    subject = optimizer(0.5, 1.0)
    schedule = Halved(subject)
    assert isinstance(schedule, lr_scheduler.LRScheduler)
    schedule.step()
    assert rates(subject) == [0.25, 0.5]


def test_the_cosine() -> None:
    subject = optimizer(0.5, 1.0)
    schedule = optim.CosineAnnealingLR(subject, 4, 0.1)
    seen = [rates(subject)]
    for _ in range(8):
        schedule.step()
        seen.append(rates(subject))
    shares = [(1 + np.cos(np.pi * k / 4)) / 2 for k in range(9)]
    np.testing.assert_allclose(seen, [[0.1 + 0.4 * s, 0.1 + 0.9 * s] for s in shares], rtol=1e-12)


def test_a_group_added_later_follows_from_its_own_rate() -> None:
    subject = optimizer(0.5)
    schedules = [optim.CosineAnnealingLR(subject, 4), optim.ReduceLROnPlateau(subject, patience=0, min_lr=0.01)]
    subject.add_param_group({"params": [Parameter(np.ones(2, np.float32))], "lr": 2.0})
    schedules[0].step()
    share = (1 + np.cos(np.pi / 4)) / 2
    np.testing.assert_allclose(rates(subject), [0.5 * share, 2.0 * share], rtol=1e-12)
    for measure in (1.0, 2.0):
        schedules[1].step(measure)  # type: ignore[call-arg]
    np.testing.assert_allclose(rates(subject), [0.05 * share, 0.2 * share], rtol=1e-12)


LISTED: dict[str, tuple[Any, str, str]] = {
    "LambdaLR": (lambda o: optim.LambdaLR(o, len_of), "lr_lambda has 1 values", "lr_lambdas"),
    "MultiplicativeLR": (lambda o: optim.MultiplicativeLR(o, len_of), "lr_lambda has 1 values", "lr_lambdas"),
    "CyclicLR": (
        lambda o: optim.CyclicLR(o, 0.1, 1.0),
        "base_lr has 1 values",
        "low_lrs, max_lrs, base_momentums, max_momentums",
    ),
    "OneCycleLR": (
        lambda o: optim.OneCycleLR(o, 1.0, 9),
        "max_lr has 1 values",
        "max_lrs, base_momentums, max_momentums",
    ),
    "SWALR": (lambda o: optim.swa_utils.SWALR(o, 0.1), "swa_lr has 1 values", "swa_lrs"),
}


def len_of(steps: int) -> float:
    return 1 / (1 + steps)


@pytest.mark.parametrize("name", LISTED)
@pytest.mark.parametrize("within", ["alone", "chained", "first", "second"])
def test_a_group_for_which_a_schedule_has_no_value(name: str, within: str) -> None:
    make, has, lists = LISTED[name]
    subject = optimizer(0.5, momentum=0.7)
    schedule = part = make(subject)
    if within == "chained":
        schedule = optim.ChainedScheduler([optim.StepLR(subject, 2), part])
    elif within != "alone":
        parts, first = [part, optim.StepLR(subject, 2)], within == "first"
        schedule = optim.SequentialLR(subject, parts if first else parts[::-1], [3 if first else 2])
    schedule.step()
    subject.add_param_group({"params": [Parameter(np.ones(2, np.float32))], "lr": 2.0})
    before = schedule.state_dict(), part.state_dict(), rates(subject), momenta(subject)
    message = f"^{name}: {has}, the optimizer 2 groups; call add_param_group before the schedule is made, or append a "
    with pytest.raises(ValueError, match=f"{message}value for each new group to {lists} of the schedule$"):
        schedule.step()
    assert (schedule.state_dict(), part.state_dict(), rates(subject), momenta(subject)) == before
    for attribute in lists.split(", "):
        values = getattr(part, attribute)
        values.append(values[0])
    schedule.step()
    assert len(schedule.get_last_lr()) == 2
    if within == "second":
        schedule.step()
    state = part.state_dict()
    for attribute in set(lists.split(", ")) & set(state):
        with pytest.raises(CheckpointError, match=f"{attribute}=.* is not a list of 2 numbers"):
            part.load_state_dict({**state, attribute: state[attribute][:1]})


def test_a_state_of_another_class_is_one_sentence() -> None:
    subject = optimizer(0.5)
    schedule, other = optim.StepLR(subject, 3), optim.CyclicLR(subject, 0.1, 1.0, cycle_momentum=False)
    with pytest.raises(CheckpointError) as error:
        schedule.load_state_dict(other.state_dict())
    assert str(error.value) == (
        "StepLR: state does not fit: it is that of CyclicLR; a run goes on with the kind of schedule that it began with"
    )
    chained = optim.ChainedScheduler([schedule])
    with pytest.raises(CheckpointError, match=r"^ChainedScheduler: state does not fit: it is that of StepLR; [^\n]*$"):
        chained.load_state_dict(schedule.state_dict())
    within = {**chained.state_dict(), "schedulers": [other.state_dict()]}
    with pytest.raises(CheckpointError, match=r"^Chained.* fit: schedule 0: it is that of CyclicLR; [^\n]*$"):
        chained.load_state_dict(within)
    with pytest.raises(CheckpointError, match=r"^StepLR: state does not fit: it is not that of an Alpha schedule; "):
        schedule.load_state_dict({"step_size": 3, "gamma": 0.1, "_step_count": 1})


def test_a_group_added_before_a_milestone_keeps_its_rate_there() -> None:
    subject = optimizer(0.5)
    parts = [optim.ConstantLR(subject, 0.5), optim.ExponentialLR(subject, 0.9)]
    schedule = optim.SequentialLR(subject, parts, [1])
    subject.add_param_group({"params": [Parameter(np.ones(2, np.float32))], "lr": 2.0})
    schedule.step()
    assert rates(subject) == [0.5, 2.0]


def test_a_state_does_not_change_with_its_schedule() -> None:
    subject = optimizer(0.5)
    schedule = optim.StepLR(subject, 3)
    state = schedule.state_dict()
    subject.add_param_group({"params": [Parameter(np.ones(2, np.float32))], "lr": 2.0})
    schedule.step()
    assert (state["base_lrs"], schedule.base_lrs) == ([0.5], [0.5, 2.0])


@pytest.mark.torch
@pytest.mark.parametrize("row", SCHEDULES[:12], ids=lambda row: row.name)
def test_last_epoch_goes_on_as_in_pytorch(row: ScheduleRow) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = optimizer(0.5, 0.5, momentum=0.7), pytorchs(0.5, 0.5, momentum=0.7)
    for subject in (ours, theirs):
        for group in subject.param_groups:
            group["initial_lr"] = 1.0
    for group in theirs.param_groups:  # PyTorch's OneCycleLR keeps its arguments there
        group.update(max_lr=0.9, min_lr=1e-4, max_momentum=0.95, base_momentum=0.85)
    for name in ("StepLR", "CosineAnnealingLR", "ExponentialLR"):
        with pytest.raises(ValueError, match="group 0 of the optimizer has no 'initial_lr'"):
            getattr(lr_scheduler, name)(optimizer(0.5), 5, last_epoch=2)
    arguments = {
        "StepLR": {"step_size": 3},
        "MultiStepLR": {"milestones": [3, 5]},
        "ExponentialLR": {"gamma": 0.5},
        "CosineAnnealingLR": {"T_max": 5},
        "CosineAnnealingWarmRestarts": {"T_0": 5},
        "LambdaLR": {"lr_lambda": lambda steps: 0.9**steps},
        "MultiplicativeLR": {"lr_lambda": lambda steps: 0.9},
        "CyclicLR": {"base_lr": 0.1, "max_lr": 0.9, "step_size_up": 3},
        "OneCycleLR": {"max_lr": 0.9, "total_steps": 9},
    }.get(row.name, {})
    schedule = getattr(lr_scheduler, row.name)(ours, **arguments, last_epoch=2)
    other = getattr(torch.optim.lr_scheduler, row.name)(theirs, **arguments, last_epoch=2)
    if row.name == "CosineAnnealingWarmRestarts":  # PyTorch's begins one step too early
        np.testing.assert_allclose(rates(ours), (1 + math.cos(math.pi * 3 / 5)) / 2, rtol=1e-12)
        return
    for _ in range(4):
        assert schedule.last_epoch == other.last_epoch
        np.testing.assert_allclose(rates(ours), rates(theirs), rtol=1e-12)
        np.testing.assert_allclose(momenta(ours), momenta(theirs), rtol=1e-12)
        theirs.step()
        schedule.step()
        other.step()


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_a_measure_must_pass_the_threshold_itself(mode: str, threshold_mode: str) -> None:
    """One that is exactly as much better as the threshold says is no improvement, and so is an equal one."""
    torch = pytest.importorskip("torch")
    for threshold in (0.0, 0.5):
        ours, theirs = optimizer(0.5), pytorchs(0.5)
        options = {"mode": mode, "threshold": threshold, "threshold_mode": threshold_mode, "patience": 0}
        schedule = lr_scheduler.ReduceLROnPlateau(ours, **options)
        other = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
        for measure in (1.0, 1.0, 1.5, 0.5, 0.25, 0.5, 0.75, 1.5, 2.25, -1.0, 0.0):
            for each in (schedule, other):
                each.step(measure)
            assert rates(ours) == rates(theirs), measure
            assert (schedule.best, schedule.num_bad_epochs) == (other.best, other.num_bad_epochs)


@pytest.mark.torch
def test_warm_restarts_at_fractions_of_an_epoch() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = optimizer(0.5), pytorchs(0.5)
    schedule = lr_scheduler.CosineAnnealingWarmRestarts(ours, 2, 3)
    other = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(theirs, 2, 3)
    for epoch in (0.5, 1.25, 2.0, 3.75, 7.9, 8.0, 9.5, 1.0):
        schedule.step(epoch)
        other.step(epoch)
        np.testing.assert_allclose(rates(ours), rates(theirs), rtol=1e-12)
        assert schedule.last_epoch == other.last_epoch


def test_one_cycle_ends() -> None:
    schedule = optim.OneCycleLR(optimizer(0.1), 1.0, 4, cycle_momentum=False)
    for _ in range(4):
        schedule.step()
    with pytest.raises(ValueError, match="OneCycleLR: step 5 is after the last one, 4"):
        schedule.step()


def test_what_cannot_be_combined() -> None:
    first, second = optimizer(0.5), optimizer(0.5)
    step, plateau = optim.StepLR(second, 2), optim.ReduceLROnPlateau(first)
    with pytest.raises(ValueError, match=r"SequentialLR: schedule 0 \(StepLR\) has another optimizer"):
        optim.SequentialLR(first, [step], [])
    with pytest.raises(TypeError, match="ChainedScheduler: schedule 0, a ReduceLROnPlateau, cannot be one"):
        optim.ChainedScheduler([plateau])
    with pytest.raises(ValueError, match="ChainedScheduler: there are no schedules"):
        optim.ChainedScheduler([])
    with pytest.raises(ValueError, match="SequentialLR: last_epoch=3 is not offered"):
        optim.SequentialLR(second, [step], [], last_epoch=3)


def test_cycles_need_a_momentum() -> None:
    with pytest.raises(ValueError, match="CyclicLR: Adagrad has no momentum and no betas; give cycle_momentum=False"):
        optim.CyclicLR(optimizer(0.5, kind=optim.Adagrad), 0.1, 0.2)


@pytest.mark.parametrize("row", SCHEDULES[:12], ids=lambda row: row.name)
def test_something_else_than_an_optimizer(row: ScheduleRow) -> None:
    with pytest.raises(TypeError, match=f"{row.name}: list is not an Alpha optimizer"):
        row.settings[0](lr_scheduler, [])


def test_last_epoch_that_means_nothing() -> None:
    with pytest.raises(ValueError, match="StepLR: last_epoch=-2 is not"):
        optim.StepLR(optimizer(0.5), 2, last_epoch=-2)
    assert type(optim.StepLR(optimizer(0.5), 2, last_epoch=np.int64(-1)).last_epoch) is int  # type: ignore[arg-type]


def test_a_schedule_of_ones_own() -> None:
    class Halved(optim.LRScheduler):
        def _lr(self, lr: float, base: float) -> float:
            return base / 2**self.last_epoch

    class Listed(optim.LRScheduler):
        def get_lr(self) -> list[float]:
            return [base / (1 + self.last_epoch) for base in self.base_lrs]

    for kind, expected in ((Halved, 0.25), (Listed, 1 / 3)):
        subject = optimizer(1.0)
        schedule = kind(subject)
        for _ in range(2):
            schedule.step()
        assert rates(subject) == [expected]
    with pytest.raises(TypeError, match="LRScheduler defines no learning rate"):
        optim.LRScheduler(optimizer(1.0)).step()


@pytest.mark.parametrize("kind", [optim.SGD, optim.AdamW])
@pytest.mark.parametrize(("row", "make"), SETTINGS)
def test_a_captured_step_follows_without_another_capture(row: ScheduleRow, make: Make, kind: Any) -> None:
    device: Any = alpha.get_device("cuda")
    if device.driver.why_no_capture:
        pytest.skip(device.driver.why_no_capture)

    def run(captured: bool) -> tuple[list[np.ndarray], Any]:
        parameters = [Parameter(alpha.tensor(np.ones(3, np.float32), device="cuda")) for _ in range(2)]
        options = {"momentum": 0.7} if kind is optim.SGD else {}
        subject = kind([{"params": [p]} for p in parameters], lr=0.1, **options)
        schedule = make(lr_scheduler, subject)

        def step(x: alpha.Tensor) -> None:
            subject.zero_grad()
            ((parameters[0] * x + parameters[1]) ** 2).sum().backward()
            subject.step()

        function = alpha.capture(step) if captured else step
        x = alpha.tensor(np.array([1.0, 2.0, 3.0], np.float32), device="cuda")
        for number in range(8):
            function(x)
            row.step(schedule, number)
        return [p.numpy() for p in parameters], function

    (ours, function), (expected, _) = run(True), run(False)
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(function.graphs) == 1
