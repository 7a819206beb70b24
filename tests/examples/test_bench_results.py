"""Figures of bench_conv.py: exact results, counts of operations, predictions, turns in which times are taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import conv2d_reference
import numpy as np
import pytest
from conv2d_cases import hopper

import alpha
from alpha import get_device
from alpha.ops.conv2d.shape import conv_shape

Rooms = Callable[[str], ModuleType]


FORMULAS = {
    "forward": conv2d_reference.forward,
    "dX": conv2d_reference.backward_input,
    "dW": conv2d_reference.backward_weight,
}


def test_operations_of_table_iii(room: Rooms) -> None:
    operators = room("operators").OPERATORS
    s = room("cases").square(8, 3, 5, 2, 3, 2)  # 4x4 outputs, 7x7 with inserted zeros
    taps = 3 * 3 * 3 * 5
    nominal = {name: operator.nominal(s) for name, operator in operators.items()}
    assert nominal == {"forward": 2 * 2 * 4 * 4 * taps, "dX": 2 * 2 * 8 * 8 * taps, "dW": 2 * 2 * 7 * 7 * taps}
    useful = 11 * 11 / (12 * 12)  # of three taps at four outputs, the first lies in the padding
    assert operators["forward"].skipped(s) == pytest.approx(1 - useful)
    assert operators["dX"].skipped(s) == pytest.approx(1 - useful / 4)


@pytest.mark.parametrize("name", ["forward", "dX", "dW"])
def test_a_part_of_the_operands_gives_that_part_of_the_result(room: Rooms, name: str) -> None:
    operators, cases, numpy_side = room("operators"), room("cases"), room("numpy_side")
    operator = operators.OPERATORS[name]
    s = cases.square(5, 40, 36, 19, 3, 2)
    side = numpy_side.NumpySide()
    operands = side.draw(s)
    part = operator.part(s)
    exact = side.exact(operator, s, operands, part)
    whole = FORMULAS[name](*(operands[key] for key in operator.operands), s)
    assert exact.size < whole.size
    np.testing.assert_allclose(exact, part.of(operator.result, whole), rtol=1e-12, atol=1e-12)
    assert operators.relative_error(exact * 1.5, exact) == pytest.approx(0.5)
    assert np.isnan(operators.relative_error(exact * np.nan, exact))


@pytest.mark.parametrize("name", FORMULAS)
def test_what_results_are_compared_with_is_right_with_groups_too(room: Rooms, name: str) -> None:
    operator, side = room("operators").OPERATORS[name], room("numpy_side").NumpySide()
    for groups, IC, OC in ((1, 5, 7), (6, 6, 12), (3, 6, 9)):
        s = conv_shape("test", (9, 11, 8, IC), (OC, 3, 4, IC // groups), (2, 1), (1, 2), groups=groups)
        operands, part = side.draw(s), operator.part(s)
        whole = FORMULAS[name](*(operands[key] for key in operator.operands), s)
        exact = side.exact(operator, s, operands, part)
        np.testing.assert_allclose(exact, part.of(operator.result, whole), rtol=1e-12, atol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", ["forward", "dX", "dW"])
def test_pytorch_computes_the_same(room: Rooms, name: str, precision: str) -> None:
    import torch

    operator = room("operators").OPERATORS[name]
    s = room("cases").square(6, 20, 24, 10, 3, 2)
    side, host = room("torch_side").TorchSide(torch, gpu=False), room("numpy_side").NumpySide()
    operands, part = side.draw(s), operator.part(s)
    exact = side.exact(operator, s, operands, part)
    arrays = {key: tensor.numpy() for key, tensor in operands.items()}
    np.testing.assert_allclose(exact, host.exact(operator, s, arrays, part), rtol=1e-9, atol=1e-9)
    tolerance = {"float32": 1e-6, "bf16": 1e-2}[precision]
    with side.precision(precision):
        contestants = side.contestants(operator, s, operands, precision)
        assert [contestant.name for contestant in contestants] == ["NCHW", "channels_last"]
        for contestant in contestants:
            found = contestant.take(contestant.call(), part)
            assert room("operators").relative_error(found, exact) < tolerance


def test_a_result_is_taken_from_either_device(room: Rooms, device: str) -> None:
    """Every kernel configuration of the precision gives a result, too, and so does the events' clock."""
    operators, sides = room("operators"), room("alpha_side")
    s = room("cases").square(3, 20, 36, 19, 3, 1)
    host = room("numpy_side").NumpySide()
    operands = host.draw(s)
    side = sides.AlphaSide(get_device(device))
    arrays = side.arrays(operands, side.dtype("float32"))
    for name, operator in operators.OPERATORS.items():
        part = operator.part(s)
        exact = part.of(operator.result, FORMULAS[name](*(operands[key] for key in operator.operands), s))
        contestants = side.contestants(operator, s, arrays, every=True)
        names = [contestant.name for contestant in contestants]
        assert len(names) == len(set(names)) > 1
        for contestant in contestants:
            found = contestant.take(contestant.call(), part)
            assert found.shape == exact.shape
            assert operators.relative_error(found, exact) < 1e-6
    if device == "cuda":
        clock = sides.event_clock(get_device(device), 1 << 12)
        start = clock.mark()
        clock.hold(0.1)
        assert clock.elapsed_ms(start, clock.mark()) > 0


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_first_step_changes_nothing_but_the_time(room: Rooms, precision: str) -> None:
    """Each first step that the chosen kernel takes is timed, and gives the dX of the kernel without one."""
    gpu = hopper(2)
    side, s = room("alpha_side").AlphaSide(gpu), room("cases").square(8, 64, 64, 10 * gpu.properties.num_sms, 3, 1)
    arrays = side.arrays(room("numpy_side").NumpySide().draw(s), side.dtype(precision))
    operator = room("operators").OPERATORS["dX"]
    part = operator.part(s)
    with alpha.precision(precision):
        chosen, *steps = side.contestants(operator, s, arrays, False, ["first-steps", "statistics"])
        assert [each.name for each in steps] == [
            "step: rectifier",
            "step: norm, rectifier",
            "step: sum, norm, rectifier",
        ]
        dX = chosen.take(chosen.call(), part)
        for each in steps:
            np.testing.assert_array_equal(each.take(each.call(), part), dX)


def test_all_kernels_are_compiled_before_the_first_timing(
    room: Rooms, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operators, sides = room("operators").OPERATORS, room("alpha_side")
    side, units = sides.AlphaSide(get_device("cuda")), []
    monkeypatch.setattr(sides, "compile_units", lambda driver, found: units.extend(found))
    s = room("cases").square(3, 8, 72, 50, 3, 1)
    precisions = ("float32", "bf16")
    side.compile([(o, s, precision, True) for o in operators.values() for precision in precisions])
    wanted = set()
    dry = sides.DryDevice.double(side.device.properties)
    with dry.driver.noting() as found:
        for operator in operators.values():
            for precision in precisions:
                operands = [dry.empty(getattr(s, name[-1]), side.dtype(precision)) for name in operator.operands]
                for v in sides.applicable(operator.key, s, sides.conv2d.cuda_target(side.device), precision):
                    if v.precision == precision:
                        sides.compute(v, *operands, s)
                        wanted |= {launch.unit for launch in found}
    assert wanted <= set(units)
    assert len(wanted) > 3


def test_predictions_are_compared_with_the_fastest(room: Rooms) -> None:
    report, case = room("report"), room("cases").Case(room("cases").square(4, 8, 8, 2, 3, 1), ("given",))
    results = [report.Result(name, ms, None, ms * factor) for name, ms, factor in (("a", 1.1, 2), ("b", 1.0, 1))]
    row = report.Row(case, room("operators").OPERATORS["dX"], "tf32", results[0], None, (results[1],))
    line = room("markdown").predictions([row]).splitlines()[-1]
    assert line == "| dX | tf32 | 1 | 0% | 100% | 100% | 100% | 1.41, 1.00 to 2.00 |"


def test_the_precision_in_force_is_measured(room: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    side, seen = room("alpha_side"), []
    original = side.choose

    def chosen(*args: Any) -> Any:
        seen.append(args[-1])
        return original(*args)

    monkeypatch.setattr(side, "choose", chosen)
    host, s = room("numpy_side").NumpySide(), room("cases").square(3, 4, 4, 2, 3, 1)
    contestants = side.AlphaSide(get_device("cpu")).contestants
    operator = room("operators").OPERATORS["forward"]
    with alpha.precision("tf32"):
        contestants(operator, s, host.draw(s), False)
    assert seen == ["tf32"]


def test_contestants_have_their_turns(room: Rooms) -> None:
    timing = room("timing")
    clock = CountingClock()

    def contestant(name: str, length: int) -> Any:
        def call() -> None:
            clock.log.extend(length * name)

        return timing.Contestant(name, call, clock, lambda result, part: result)

    times = timing.measure([contestant("a", 1), contestant("b", 4)], budget_ms=8.0 * timing.ROUNDS)
    assert times == [1.0, 4.0]
    turns = "".join(clock.log).split("hold")
    assert turns == ["aaa" + 3 * "bbbb", *(timing.ROUNDS * ["a" * 8, "b" * 8])]


def test_a_block_that_the_host_was_late_for_is_timed_again(room: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    timing, now, late = room("timing"), [0.0], [5]
    clock = CountingClock()
    clock.queues = True
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call() -> None:
        clock.log.append("a")
        now[0] += 1e-3 if clock.log.count("a") != late[0] else 1.0

    contestant = timing.Contestant("a", call, clock, lambda result, part: result)
    assert timing.measure([contestant], budget_ms=4.0 * timing.ROUNDS) == [1.0]
    assert clock.log.count("hold") == timing.ROUNDS + 1


class CountingClock:
    """Clock whose time is the number of calls so far."""

    queues = False

    def __init__(self) -> None:
        self.log: list[str] = []

    def hold(self, ms: float) -> None:
        self.log.append("hold")

    def mark(self) -> int:
        return len(self.log)

    def elapsed_ms(self, start: int, end: int) -> float:
        return float(end - start)
