"""Two warpgroups in turns: which convolutions have them, and what they compute."""

from __future__ import annotations

import dataclasses
from typing import Any

import conv2d_steps as steps
import ml_dtypes
import numpy as np
import ping_pong_cases as cases
import pytest
from conv2d_cases import OPERATORS, hopper, make, operands, relative_error, reordered
from launch_log import observed_launches

from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.plan import compute, plan_configuration
from alpha.ops.conv2d.problem import FORWARD, INPUT, ConvProblem, Epilogue, Target
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.step_form import StepForm
from alpha.ops.kernel.rectifier import FROM_X, FROM_Y, NOT_RECTIFIED
from alpha.runtime.cuda.cuda_device import CudaDevice

H200 = Target("cuda", (9, 0), 132, 227 << 10, name="NVIDIA H200")
FEW = 2  # SMs
NO_EPILOGUE = Epilogue()
LAYER = make(256, (64, 64), (64, 64), (3, 3), p=(1, 1))


def macros(operator: str, s: ConvShape, epilogue: Epilogue = NO_EPILOGUE) -> dict[str, Any]:
    row = cases.ROWS[operator]
    plan = plan_configuration(ConvProblem(operator, s, "bf16", epilogue, row.dtype), row, H200)
    return dict(plan.launches[-1].defines)


@pytest.mark.parametrize(
    ("s", "turns_of_y", "turns_of_dx"),
    [
        (LAYER, 1, 1),
        (make(512, (16, 16), (64, 64), (3, 3), p=(1, 1)), 1, 1),
        (make(256, (16, 16), (64, 64), (3, 3), p=(1, 1)), 0, 0),  # 256 tiles for 132 SMs
        (make(256, (64, 64), (72, 72), (3, 3), p=(1, 1)), 0, 0),  # the filter leaves no room
        (make(256, (64, 64), (64, 64), (1, 1)), 1, 1),
        (make(256, (64, 64), (60, 60), (1, 1)), 0, 0),  # rows of results off 16 bytes
        (make(256, (64, 64), (64, 64), (3, 3), p=(4, 4)), 0, 1),  # pixels of Y without a product
        (make(256, (64, 64), (64, 64), (3, 3), s=(2, 2), p=(1, 1)), 1, 0),  # two blocks of dX share an SM
        (dataclasses.replace(LAYER, dh=2, dw=2, ph=2, pw=2), 0, 0),
    ],
)
def test_which_convolutions_have_warpgroups_in_turns(s: ConvShape, turns_of_y: int, turns_of_dx: int) -> None:
    for operator, takes_turns in ((FORWARD, turns_of_y), (INPUT, turns_of_dx)):
        if not cases.ROWS[operator].supports(s, H200):
            assert not takes_turns
            continue
        found = macros(operator, s)
        assert found["PING_PONG"] == takes_turns, operator
        if takes_turns:
            steps_of_k = -(-(s.IC if operator == FORWARD else s.OC) // 64)
            assert (found["KEEP_B"], found["B_STAGES"]) == (1, s.taps * steps_of_k)
            assert found["A_STAGES"] >= 3


@pytest.mark.parametrize(
    ("sign", "other", "takes_turns"),
    [(FROM_X, False, 1), (FROM_X, True, 1), (FROM_Y, False, 1), (FROM_Y, True, 0), (NOT_RECTIFIED, False, 0)],
)
def test_which_first_steps_are_taken_in_turns(sign: int, other: bool, takes_turns: int) -> None:
    """Steps of one or two maps are. Another kernel takes the others."""
    found = macros(INPUT, LAYER, Epilogue(step=StepForm(sign, True, True, other, False)))
    assert found["PING_PONG"] == takes_turns
    assert found["RECTIFIED"] == sign


def shape_of(operator: str, s: ConvShape, device: CudaDevice) -> ConvShape:
    return cases.for_operator(operator, cases.with_tiles(s, device.properties.num_sms))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operator", "small"),
    [*((operator, s) for operator in (FORWARD, INPUT) for s in cases.SHAPES), (FORWARD, cases.STRIDED)],
)
def test_results(operator: str, small: ConvShape) -> None:
    """Y or dX is the formula's, with and without bias and activation, and the same in any order of threads."""
    device, row = hopper(FEW), cases.ROWS[operator]
    s = shape_of(operator, small, device)
    first, second = (a.astype(ml_dtypes.bfloat16) for a in operands(operator, s, "float32"))
    exact = OPERATORS[operator][0](first.astype("float64"), second.astype("float64"), s)
    with observed_launches(device) as launched:
        found = device.download(compute(row, device.upload(first), device.upload(second), s))
    assert [launch.defines["PING_PONG"] for launch in launched] == [1]
    assert relative_error(found.astype("float64"), exact) < 5e-3
    other = reordered("sm_90a", num_sms=FEW)
    np.testing.assert_array_equal(other.download(compute(row, other.upload(first), other.upload(second), s)), found)
    if operator == FORWARD:
        bias = np.linspace(-20, 20, s.OC, dtype="float32")
        Y = device.download(compute(row, device.upload(first), device.upload(second), s, device.upload(bias), 0.25))
        exact = exact + bias
        assert relative_error(Y.astype("float64"), np.where(exact > 0, exact, 0.25 * exact)) < 5e-3


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("operator", [FORWARD, INPUT])
def test_what_is_not_finite_stays_where_it_is(operator: str, bad: float) -> None:
    """A pixel that is not finite reaches the pixels whose taps read it, and their channels' statistics. No others."""
    device, row = hopper(FEW), cases.ROWS[operator]
    s = shape_of(operator, cases.SHAPES[0], device)
    first, second = (a.astype(ml_dtypes.bfloat16) for a in operands(operator, s, "float32"))
    place = (first.shape[0] - 2, 4, 6, 5)
    touches = np.zeros(first.shape)
    touches[place] = 1
    touched = OPERATORS[operator][0](touches, np.ones(second.shape), s) > 0
    first[place] = 0
    exact = OPERATORS[operator][0](first.astype("float64"), second.astype("float64"), s)
    first[place] = bad
    statistics = ChannelStatistics() if operator == FORWARD else None
    found = compute(row, device.upload(first), device.upload(second), s, statistics=statistics)
    result = device.download(found).astype("float64")
    np.testing.assert_array_equal(np.isfinite(result), ~touched)
    assert relative_error(result[~touched], exact[~touched]) < 5e-3
    if statistics is not None:
        assert statistics.part is not None
        reached = ~np.isfinite(device.download(statistics.part)).all(axis=(0, 1))
        np.testing.assert_array_equal(reached, touched.any(axis=(0, 1, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("mean", [0.0, 1e3])
@pytest.mark.parametrize("small", cases.SHAPES)
def test_statistics(small: ConvShape, mean: float) -> None:
    """Statistics are those of the results before rounding, also about a large mean, and the same in any order."""
    device, row = hopper(FEW), cases.ROWS[FORWARD]
    s = shape_of(FORWARD, small, device)
    X, W = (a.astype(ml_dtypes.bfloat16) for a in operands(FORWARD, s, "float32"))
    bias, slope = np.full(s.OC, mean, "float32"), 0.25
    exact = OPERATORS[FORWARD][0](X.astype("float64"), W.astype("float64"), s) + mean
    exact = np.where(exact > 0, exact, slope * exact).reshape(-1, s.OC)
    found = []
    for on in (device, reordered("sm_90a", num_sms=FEW)):
        statistics = ChannelStatistics()
        compute(row, on.upload(X), on.upload(W), s, on.upload(bias), slope, statistics)
        assert statistics.part is not None
        found.append([on.download(a) for a in (statistics.part, statistics.counts)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    (means, squares), counts = (a.astype("float64") for a in found[0])
    assert counts.sum() == len(exact)
    average = (counts[:, None] * means).sum(axis=0) / len(exact)
    variance = (squares + counts[:, None] * (means - average) ** 2).sum(axis=0) / len(exact)
    np.testing.assert_allclose(average, exact.mean(axis=0), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(variance, exact.var(axis=0), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("form", cases.STEPS)
@pytest.mark.parametrize("small", cases.STEP_SHAPES)
def test_first_steps(small: ConvShape, form: steps.Form) -> None:
    """The gradient behind a rectifier and its sums are those in float64, and the same in any order of threads."""
    device, row = hopper(FEW), cases.ROWS[INPUT]
    s = shape_of(INPUT, small, device)
    with observed_launches(device) as launched:
        judged = steps.judge(row, s, form, device)
    assert judged.taken
    assert judged.fault is None, judged.fault
    fits = form != cases.OF_NARROW_TILES or small is not cases.STEP_SHAPES[0]
    assert launched[-1].defines["PING_PONG"] == fits
    case = steps.Case.of(row, s, form)
    one, two = case.run(device), case.run(reordered("sm_90a", num_sms=FEW))
    assert one is not None
    assert two is not None
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
