"""First steps of a gradient that a kernel of KS-deconv takes: their forms, arrays and launch, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import conv2d_reference as reference
import numpy as np
from conv2d_cases import arrays_of, make, operands
from written import checked_writes

from alpha.core.numerics import BFLOAT16
from alpha.ops.conv2d.plan import cuda_target, named_operands, plan_configuration
from alpha.ops.conv2d.problem import INPUT, Configuration, ConvProblem, Epilogue
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.step_form import StepForm
from alpha.ops.kernel.casts import HalfAlone
from alpha.ops.kernel.rectifier import (
    FROM_OUTPUT,
    FROM_SUM,
    FROM_X,
    FROM_Y,
    IDENTITY,
    NOT_RECTIFIED,
    Rectifier,
    RectifierStep,
)
from alpha.runtime.cuda.cuda_device import CudaDevice


class Form(NamedTuple):
    """The form of a step.

    Attributes:
        sign: where the sign is from.
        sums: whether channels are added up.
        other: whether another gradient is added.
        half: whether Y is an fp16 copy.
    """

    sign: int
    sums: bool
    other: bool
    half: bool = False


FORMS = [
    Form(FROM_X, True, False),
    Form(FROM_X, True, True),
    Form(FROM_Y, True, True),
    Form(FROM_OUTPUT, True, False),
    Form(FROM_SUM, True, True),
    Form(NOT_RECTIFIED, True, False),
    Form(FROM_Y, False, False),
    Form(FROM_Y, False, True),
    Form(FROM_Y, True, True, True),
    Form(FROM_OUTPUT, True, False, True),
]
# a form that reads as many arrays as another one, and computes a part of what that computes
NEEDS_LESS = {
    Form(NOT_RECTIFIED, True, False): Form(FROM_X, True, False),
    Form(FROM_Y, False, False): Form(FROM_X, True, False),
    Form(FROM_Y, False, True): Form(FROM_X, True, True),
}
WIDEST = [Form(FROM_Y, True, True), Form(FROM_Y, False, False)]  # read most arrays, with and without sums
# 2-D maps of one residue and of four, with rows of pixels that no tile fills, and several tiles of channels
SHAPES = [make(40, (7, 5), (64, 64), (3, 3), p=(1, 1)), make(9, (9, 11), (72, 64), (3, 3), s=(2, 2), p=(1, 1))]
TRANSPOSED = make(300, (1, 1), (72, 40), (1, 1))  # of one tap: in tf32 the kernel transposes the filter
EPS, SMALLEST, SLOPE = 1e-5, 1e-5, 0.25
ERRORS = {"float32": 1e-5, "tf32": 4e-3, "bf16": 1.5e-2}  # allowed, of the largest number of dZ


def is_asked_for(form: Form, row: Configuration) -> bool:
    """True if a network asks for this form: in bfloat16 no sum is undone, and in tf32 alone there are copies."""
    if form.half:
        return row.precision == "tf32"
    return arrays_of(row) != BFLOAT16 or form.sign != FROM_SUM


def rectifier_of(sign: int, slope: float = SLOPE) -> Rectifier:
    return IDENTITY if sign == NOT_RECTIFIED else Rectifier(slope)


def step_of(form: Form, rectifier: Rectifier, arrays: dict[str, Any]) -> RectifierStep:
    """The step of a form on arrays: "other", "X", "Y" and "residual", and "mean", "var", "weight" and "bias"."""
    sign, adds_up, other, _ = form
    columns = {name: arrays[name] for name in ("mean", "var", "weight", "bias")} if adds_up else {}
    numbers = {"eps": EPS, "smallest": SMALLEST} if adds_up else {}
    maps = {name: arrays[name] for name in ("X", "Y", "residual")}
    step = RectifierStep(rectifier, sign, maps, {**columns, **numbers}, needs_magnitude=True)
    step.other = arrays["other"] if other else None
    return step


def launch_step(
    row: Configuration, given: tuple[Any, Any], s: ConvShape, step: RectifierStep, device: CudaDevice
) -> dict[str, Any] | None:
    """The outputs of the plan on (dY, W); None if it does not take the step."""
    form = StepForm.of(step, magnitude=given[0].dtype == np.float32)
    problem = ConvProblem(INPUT, s, row.precision, Epilogue(step=form), given[0].dtype)
    plan = plan_configuration(problem, row, cuda_target(device))
    if not plan.facts.get("takes step"):
        return None
    return plan.launch(device, {**named_operands(plan, INPUT, given, None, 1.0), **step.operands})


def launch_on_zeros(row: Configuration, s: ConvShape, form: Form, device: CudaDevice) -> bool:
    """True if the kernel takes the step, which is launched on zeros: for the record of a dry run."""
    dY, W = (device.zeros(getattr(s, name), arrays_of(row)) for name in ("Y", "W"))
    columns = {name: device.zeros((s.IC,), np.float32) for name in ("mean", "var", "weight", "bias")}
    maps: dict[str, Any] = {name: device.zeros(s.X, dY.dtype) for name in ("X", "Y", "residual", "other")}
    if form.half:
        maps["Y"] = copied(maps["Y"], device.zeros(s.X, np.uint16), LIMIT)
    step = step_of(form, rectifier_of(form.sign), {**columns, **maps})
    return launch_step(row, (dY, W), s, step, device) is not None


def arrays_for(s: ConvShape, dtype: np.dtype[Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Arrays of a step, as in a batch normalisation of X: Y = rectifier(Z + residual)."""
    rng = np.random.default_rng(seed)
    X, residual, other = (rng.standard_normal(s.X).astype(dtype).astype("float64") for _ in range(3))
    mean, bias = rng.standard_normal((2, s.IC)).astype("float32")
    var, weight = rng.uniform(0.5, 2, (2, s.IC)).astype("float32")
    Z = (X - mean) / np.sqrt(var + EPS) * weight + bias
    columns = {"mean": mean, "var": var, "weight": weight, "bias": bias}
    return {"X": X, "residual": residual, "other": other, "Z": Z, **columns}


def expected(form: Form, dX: np.ndarray, slope: float, a: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """DZ and the two sums of each channel, in float64."""
    sign, _, other, _ = form
    Z = a["Z"] if sign in (FROM_X, FROM_OUTPUT) else a["Y"]
    g = dX + a["other"] if other else dX
    dZ = g * np.where(Z > 0, 1, slope)
    centred = a["X"] - a["mean"]
    if sign in (FROM_OUTPUT, FROM_SUM):
        centred = centred / np.sqrt(a["var"] + EPS)
    return dZ, np.stack([dZ.sum(axis=(0, 1, 2)), (dZ * centred).sum(axis=(0, 1, 2))])


LIMIT, SCALE = 100.0, 2.0**8  # of the magnitudes of what is copied in fp16; 100 times the scale is below 2^15


def in_half(a: np.ndarray) -> np.ndarray:
    """Numbers below `LIMIT` times the scale, as fp16."""
    return (a * SCALE).astype(np.float16)


def copied(array: Any, half: Any, limit: float) -> HalfAlone:
    """The copy of an array that is left alone, with a limit of its magnitudes."""
    magnitude = array.device.upload(np.float32([limit]).view(np.uint32))
    magnitude.half, magnitude.limit = half, True
    return HalfAlone(array, magnitude)


@dataclass(frozen=True)
class Judged:
    """A step that was asked for: whether the kernel took it, and what is wrong with its results."""

    taken: bool
    fault: str | None = None


@dataclass(frozen=True)
class Case:
    """A step of random arrays on the host, the same in each run."""

    row: Configuration
    s: ConvShape
    form: Form
    dY: np.ndarray
    W: np.ndarray
    arrays: dict[str, np.ndarray]  # of float64, but for the columns

    @classmethod
    def of(cls, row: Configuration, s: ConvShape, form: Form) -> Case:
        dtype = arrays_of(row)
        dY, W = (a.astype(dtype) for a in operands(INPUT, s, "float32"))
        arrays = arrays_for(s, dtype)
        total = arrays["Z"] + arrays["residual"] if form.sign in (FROM_Y, FROM_SUM) else arrays["Z"]
        Y = np.where(total > 0, total, rectifier_of(form.sign).slope * total)
        arrays["Y"] = Y.astype(dtype).astype("float64")
        if form.half:
            arrays["Y"] = in_half(arrays["Y"]).astype("float64") / SCALE
        if form.sign == FROM_OUTPUT and (form.half or dtype == BFLOAT16):  # X is what is found again from it
            undone = np.where(arrays["Y"] > 0, arrays["Y"], arrays["Y"] / SLOPE) - arrays["bias"]
            arrays["X"] = undone / arrays["weight"] * np.sqrt(arrays["var"] + EPS) + arrays["mean"]
        return cls(row, s, form, dY, W, arrays)

    def run(self, device: CudaDevice) -> dict[str, np.ndarray] | None:
        """The outputs "dX", with sums "part", and of floats "magnitude"; None if the kernel does not take the step."""
        names = ("X", "Y", "residual", "other", "mean", "var", "weight", "bias")
        host = {name: self.arrays[name] for name in names}
        given: dict[str, Any]
        given = {name: device.upload(a.astype(self.dY.dtype if a.ndim > 1 else "float32")) for name, a in host.items()}
        if self.form.half:
            given["Y"] = copied(given["Y"], device.upload(in_half(self.arrays["Y"]).view(np.uint16)), LIMIT)
        step = step_of(self.form, rectifier_of(self.form.sign), given)
        with checked_writes() as writes:
            found = launch_step(self.row, (device.upload(self.dY), device.upload(self.W)), self.s, step, device)
        assert not writes.found
        if found is None:
            return None
        results = {name: device.download(found[name]) for name in ("dX", "part", "magnitude") if name in found}
        if "magnitude" in results:
            results["magnitude"] = results["magnitude"].view(np.float32)
        return results


def judge(row: Configuration, s: ConvShape, form: Form, device: CudaDevice) -> Judged:
    """Take a step of random arrays, and compare dZ, its sums and its largest magnitude with float64."""
    case = Case.of(row, s, form)
    found = case.run(device)
    if found is None:
        return Judged(False)
    dX = reference.backward_input(case.dY.astype("float64"), case.W.astype("float64"), s)
    dZ, sums = expected(form, dX, rectifier_of(form.sign).slope, case.arrays)
    got = found["dX"].astype("float64")
    scale, error = np.abs(dZ).max(), ERRORS[row.precision]
    if not np.allclose(got, dZ, rtol=0, atol=error * scale):
        return Judged(True, f"{s} {form}: dZ is wrong by {np.abs(got - dZ).max():.1e} of {scale:.1e}")
    if form.sums:
        part = found["part"].astype("float64").sum(axis=1)
        atol = error * np.abs(sums).max() + error * scale * np.sqrt(dZ[..., 0].size)
        if not np.allclose(part, sums, rtol=1e-7, atol=atol):
            return Judged(True, f"{s} {form}: a sum is wrong by {np.abs(part - sums).max():.1e}, allowed {atol:.1e}")
    if "magnitude" in found and found["magnitude"][0] != np.abs(got).max():
        return Judged(True, f"{s} {form}: the largest magnitude is {found['magnitude'][0]}, not {np.abs(got).max()}")
    return Judged(True)
