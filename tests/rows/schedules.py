"""The learning-rate schedules, in settings in which each argument has an effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# make(room, optimizer) -> schedule; the room is alpha.optim.lr_scheduler or PyTorch's
Make = Callable[[Any, Any], Any]
MEASURES = [1.0, 0.5, 0.6, 0.7, 0.4999, 0.8, 0.9, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]


@dataclass(frozen=True)
class ScheduleRow:
    """One schedule.

    Attributes:
        name: its name, here and in PyTorch.
        settings: what makes it, in all settings that are tried. An optimizer has two groups.
        other: what makes one of the same kind with other arguments, which then loads a state.
        wrong: keywords with which it is refused, and a part of the message.
        measured: its steps take a measure.
    """

    name: str
    settings: list[Make]
    other: Make
    wrong: list[tuple[dict[str, Any], str]]
    measured: bool = False

    def step(self, schedule: Any, number: int) -> None:
        """Make a step of a schedule, with one of MEASURES if it needs one."""
        schedule.step(*([MEASURES[number % len(MEASURES)]] if self.measured else []))


def given(name: str, *args: Any, **options: Any) -> Make:
    return lambda room, optimizer: getattr(room, name)(optimizer, *args, **options)


def simple(
    name: str, other: dict[str, Any], settings: list[dict[str, Any]], wrong: list[tuple[dict[str, Any], str]]
) -> ScheduleRow:
    return ScheduleRow(name, [given(name, **options) for options in settings], given(name, **other), wrong)


SCHEDULES = [
    simple(
        "LambdaLR",
        {"lr_lambda": lambda steps: 1.0},
        [{"lr_lambda": lambda steps: 0.9**steps}, {"lr_lambda": [lambda n: 1 / (n + 1), lambda n: n]}],
        [
            ({"lr_lambda": [len]}, "lr_lambda has 1 values, the optimizer 2 groups"),
            ({"lr_lambda": 0.9}, "lr_lambda=0.9 is no function"),
        ],
    ),
    simple(
        "MultiplicativeLR",
        {"lr_lambda": lambda steps: 1.0},
        [{"lr_lambda": lambda steps: 0.95}, {"lr_lambda": [lambda n: 1 - n / 20, lambda n: 0.5]}],
        [
            ({"lr_lambda": [len] * 3}, "lr_lambda has 3 values"),
            ({"lr_lambda": [len, 0.9]}, "lr_lambda=.* is no function"),
        ],
    ),
    simple(
        "StepLR",
        {"step_size": 1},
        [{"step_size": 3}, {"step_size": 2, "gamma": 0.5}],
        [({"step_size": 0}, "step_size=0 is not a whole"), ({"step_size": 2, "gamma": "x"}, "gamma='x' is a str")],
    ),
    simple(
        "MultiStepLR",
        {"milestones": [1]},
        [{"milestones": [2, 5]}, {"milestones": (7, 2, 7), "gamma": 0.5}, {"milestones": []}],
        [({"milestones": [1.5]}, r"milestones=\[1.5\] is not"), ({"milestones": 3}, "milestones=3 ")],
    ),
    simple(
        "ConstantLR",
        {"factor": 1.0},
        [{}, {"factor": 0.5, "total_iters": 3}, {"total_iters": 20}],
        [({"factor": 1.5}, "factor=1.5 is not between 0 and 1"), ({"total_iters": -1}, "total_iters=-1 is not")],
    ),
    simple(
        "LinearLR",
        {"start_factor": 1.0},
        [{}, {"start_factor": 0.5, "end_factor": 0.9, "total_iters": 4}, {"start_factor": 1.0, "end_factor": 0.1}],
        [({"start_factor": 0}, "start_factor=0 is not"), ({"end_factor": 2}, "end_factor=2 is not between 0 and 1")],
    ),
    simple("ExponentialLR", {"gamma": 1.0}, [{"gamma": 0.9}, {"gamma": 1.1}], [({"gamma": None}, "gamma=None is a")]),
    simple(
        "PolynomialLR",
        {"total_iters": 3},
        [{}, {"total_iters": 9, "power": 2.0}, {"power": 0.5}],
        [({"total_iters": 0}, "total_iters=0 is not"), ({"power": -1}, "power=-1 is negative")],
    ),
    simple(
        "CosineAnnealingLR",
        {"T_max": 1},
        [{"T_max": 5}, {"T_max": 7, "eta_min": 0.01}, {"T_max": 2, "eta_min": 0.2}, {"T_max": 1}],
        [({"T_max": 2.5}, "T_max=2.5 is not"), ({"T_max": 3, "eta_min": -1}, "eta_min=-1 is negative")],
    ),
    simple(
        "CosineAnnealingWarmRestarts",
        {"T_0": 9},
        [{"T_0": 3}, {"T_0": 2, "T_mult": 2, "eta_min": 0.01}, {"T_0": 20}],
        [({"T_0": 0}, "T_0=0 is not"), ({"T_0": 1, "T_mult": 0}, "T_mult=0 is not")],
    ),
    simple(
        "CyclicLR",
        {"base_lr": 0.5, "max_lr": 0.6},
        [
            {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3},
            {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "cycle_momentum": False},
            {
                "base_lr": [0.1, 0.2],
                "max_lr": [0.3, 0.5],
                "step_size_up": 2,
                "step_size_down": 3,
                "mode": "triangular2",
            },
            {"base_lr": 0.1, "max_lr": 0.2, "step_size_up": 4, "mode": "exp_range", "gamma": 0.9},
            {"base_lr": 0.1, "max_lr": 0.2, "step_size_up": 2, "scale_fn": lambda n: 1 / n, "max_momentum": 0.99},
            {
                **{"base_lr": 0.1, "max_lr": 0.2, "step_size_up": 2, "base_momentum": 0.5},
                **{"scale_fn": lambda n: 0.9**n, "scale_mode": "iterations"},
            },
        ],
        [
            ({"base_lr": [0.1], "max_lr": 1}, "base_lr has 1 values"),
            ({"base_lr": 0.1, "max_lr": 1, "mode": "square"}, "mode='square' is not one of triangular"),
        ],
    ),
    simple(
        "OneCycleLR",
        {"max_lr": 0.5, "total_steps": 99},
        [
            {"max_lr": 0.1, "total_steps": 14},
            {"max_lr": [0.1, 0.3], "epochs": 7, "steps_per_epoch": 2, "pct_start": 0.4, "cycle_momentum": False},
            {"max_lr": 0.1, "total_steps": 16, "anneal_strategy": "linear", "div_factor": 5.0, "final_div_factor": 9.0},
            {"max_lr": 0.1, "total_steps": 15, "three_phase": True, "base_momentum": 0.5, "max_momentum": 0.9},
        ],
        [
            ({"max_lr": 0.1}, "give total_steps, or epochs and steps_per_epoch"),
            ({"max_lr": 0.1, "total_steps": 5, "pct_start": 1.5}, "pct_start=1.5 is not between 0 and 1"),
            ({"max_lr": 0.1, "total_steps": 5, "anneal_strategy": "x"}, "anneal_strategy='x' is not one of cos"),
        ],
    ),
    ScheduleRow(
        "ReduceLROnPlateau",
        [
            given("ReduceLROnPlateau", patience=1),
            given("ReduceLROnPlateau", mode="max", factor=0.5, patience=0, min_lr=[0.01, 0.02]),
            given("ReduceLROnPlateau", patience=0, threshold=0.3, threshold_mode="abs", cooldown=2, min_lr=0.005),
            given("ReduceLROnPlateau", patience=1, eps=0.05),
            given("ReduceLROnPlateau", mode="max", patience=1, threshold=0.5),
        ],
        given("ReduceLROnPlateau", mode="max"),
        [({"factor": 1.0}, "factor=1.0 is not between 0 and"), ({"mode": "x"}, "mode='x' is not one of min, max")],
        measured=True,
    ),
    ScheduleRow(
        "SequentialLR",
        [
            lambda room, o: room.SequentialLR(
                o, [room.LinearLR(o, 0.1, total_iters=4), room.CosineAnnealingLR(o, 8)], [4]
            ),
            lambda room, o: room.SequentialLR(
                o, [room.ConstantLR(o), room.StepLR(o, 2), room.CosineAnnealingWarmRestarts(o, 3)], milestones=[2, 7]
            ),
            lambda room, o: room.SequentialLR(
                o, [room.ExponentialLR(o, 0.9), room.MultiplicativeLR(o, lambda n: 0.5), room.PolynomialLR(o)], [3, 5]
            ),
        ],
        lambda room, o: room.SequentialLR(o, [room.LinearLR(o, 0.2), room.CosineAnnealingLR(o, 3)], [2]),
        [({"schedulers": [], "milestones": [1]}, "0 schedules need 0 milestones, not 1")],
    ),
    ScheduleRow(
        "ChainedScheduler",
        [
            lambda room, o: room.ChainedScheduler([room.ConstantLR(o, 0.1, 4), room.ExponentialLR(o, 0.9)]),
            lambda room, o: room.ChainedScheduler([room.LinearLR(o), room.CosineAnnealingLR(o, 8, 0.01)], optimizer=o),
        ],
        lambda room, o: room.ChainedScheduler([room.ConstantLR(o, 0.5, 2), room.ExponentialLR(o, 0.5)]),
        [],
    ),
]
