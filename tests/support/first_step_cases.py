"""First steps of a gradient, taken by one kernel configuration of the input gradient: forms, arrays and launches."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.ops.conv2d.first_step import FROM_OUTPUT, FROM_SUM, FROM_X, FROM_Y, NOT_RECTIFIED, RectifierStep
from alpha.ops.conv2d.plan import cuda_target, named_operands, plan_configuration
from alpha.ops.conv2d.problem import INPUT, Configuration, ConvProblem, Epilogue
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.rectifier import IDENTITY, Rectifier
from alpha.runtime.cuda.cuda_device import CudaDevice

# where the sign is from, whether channels are added up, whether another gradient is added
FORMS = [
    (FROM_X, True, False),
    (FROM_X, True, True),
    (FROM_Y, True, True),
    (FROM_OUTPUT, True, False),
    (FROM_SUM, True, True),
    (NOT_RECTIFIED, True, False),
    (FROM_Y, False, False),
    (FROM_Y, False, True),
]
WIDEST = [(FROM_Y, True, True), (FROM_Y, False, False)]  # forms that need most registers, with and without sums
EPS, SMALLEST = 1e-5, 1e-5


def rectifier_of(sign: int, slope: float) -> Rectifier:
    return IDENTITY if sign == NOT_RECTIFIED else Rectifier(slope)


def step_of(form: tuple[int, bool, bool], rectifier: Rectifier, arrays: dict[str, Any]) -> RectifierStep:
    """The step of a form on arrays: "other", "X", "Y" and "residual", and "mean", "var", "weight" and "bias"."""
    sign, adds_up, other = form
    columns = {name: arrays[name] for name in ("mean", "var", "weight", "bias")} if adds_up else {}
    numbers = {"eps": EPS, "smallest": SMALLEST} if adds_up else {}
    step = RectifierStep(
        rectifier, sign, {name: arrays[name] for name in ("X", "Y", "residual")}, {**columns, **numbers}
    )
    step.other = arrays["other"] if other else None
    return step


def launch(
    row: Configuration, operands: tuple[Any, Any], s: ConvShape, step: RectifierStep, device: CudaDevice
) -> dict[str, Any] | None:
    """The outputs of the plan; None if it does not take the step."""
    dY = operands[0]
    form = step.form(magnitude=dY.dtype == np.float32)
    problem = ConvProblem(INPUT, s, row.precision, Epilogue(step=form), dY.dtype)
    plan = plan_configuration(problem, row, cuda_target(device))
    if not plan.facts.get("takes step"):
        return None
    return plan.launch(device, {**named_operands(plan, INPUT, operands, None, 1.0), **step.operands})
