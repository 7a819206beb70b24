"""Launch of a convolution of arrays: the configuration is chosen, and the plan is kept.

    problem = ConvProblem(FORWARD, conv_shape(..), "tf32", Epilogue(bias=True))
    print(plan(problem, cuda_target(device)).describe())

A plan is made once for each problem and GPU.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from alpha import config
from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.ops.conv2d.magnitudes import known_magnitudes
from alpha.ops.conv2d.plan import cuda_target, named_operands, plan_configuration
from alpha.ops.conv2d.problem import PLAIN, UNKNOWN, WEIGHT, Configuration, ConvProblem, Epilogue, Given, Known, Target
from alpha.ops.conv2d.select.choose import choose, not_much_slower, reads_half_again, reads_half_of_gradient
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.conv2d.step_form import StepForm
from alpha.ops.kernel.casts import HalfAlone, as_float32, require_float32, require_same_float
from alpha.ops.kernel.plan import Plan
from alpha.runtime import Device

MORE_FOR_STEP = 0.4  # of the time in which a kernel of its own would read and write the arrays of a first step


def plan(problem: ConvProblem, target: Target) -> Plan:
    """Plan that runs for a problem on a GPU, with the configuration that `choose` takes.

    If that reads an fp16 copy, and its kernel does not take the first step that is asked for, one that takes it may be
    a little slower. In other precisions this gains nothing, as was measured.
    """
    v = configuration_for(problem, target)
    made, step = plan_configuration(problem, v, target), problem.epilogue.step
    if step is None or made.facts.get("takes step") or not v.reads_half or config.CONV_KERNEL.get():
        return made
    moved = problem.result.nbytes * (2 + len(step.maps) - step.half / 2)
    others = not_much_slower(v, problem.shape, target, problem.precision, problem.known, MORE_FOR_STEP * moved)
    plans = (plan_configuration(problem, other, target) for other in others)
    return next((p for p in plans if p.facts.get("takes step")), made)


def configuration_for(problem: ConvProblem, target: Target) -> Configuration:
    """The configuration that computes a problem.

    If no configuration takes its operands in bfloat16, one for tf32 multiplies them, which keeps all their bits.
    """
    operator, s = problem.operator, problem.shape
    if problem.dtype == BFLOAT16:
        v = choose(operator, s, target, "bf16", problem.known)
        if v.precision == "bf16":
            return v
    return choose(operator, s, target, _of_floats(problem.precision), problem.known)


def used_precision(X: Array, precision: str) -> str:
    """The precision of products of X and an array of its dtype: "bf16" is only for bfloat16."""
    return "bf16" if X.dtype == BFLOAT16 else _of_floats(precision)


def _of_floats(precision: str) -> str:
    return "tf32" if precision == "bf16" else precision


def prepare(
    operator: str,
    operands: tuple[Array, Array],
    s: ConvShape,
    precision: str,
    bias: Array | None = None,
    slope: float = 1.0,
    also: Epilogue = PLAIN,
    gradient: np.dtype[Any] = FLOAT32,
) -> tuple[Plan, dict[str, Any]]:
    """The plan for arrays on a GPU, and what it is launched with.

    Args:
        also: whose statistics, step or magnitude are wanted, too.
        gradient: see `ConvProblem`.
    """
    first, second = operands
    require_same_float("conv2d", first, second)
    if (first.block.address + first.offset) % 16 or (second.block.address + second.offset) % 16:
        first, second = _aligned(first), _aligned(second)
    if bias is not None:
        bias = _aligned(as_float32(bias))
        require_float32("conv2d: bias", bias)
    epilogue = bias is not None, slope != 1, also.statistics, also.step, also.magnitude
    known = UNKNOWN
    if first.dtype is FLOAT32 and (operator == WEIGHT or precision == "tf32"):
        known = known_magnitudes(first, second)
        if operator != WEIGHT and known[0] < Given.HALF:
            known = UNKNOWN  # every configuration that needs a magnitude would gain the same
    made = _cached_plan(operator, s, precision, epilogue, (first.dtype, gradient), known, first.device, _settings())
    return made, named_operands(made, operator, (first, second), bias, slope)


def needs_half_alone(s: ConvShape, device: Device, precision: str, half_of_dY: bool) -> bool:
    """`reads_half_again` for a GPU; asked once for each shape."""
    return _cached_needs(s, device, precision, half_of_dY, _settings())


@functools.lru_cache(maxsize=4096)
def _cached_needs(s: ConvShape, device: Device, precision: str, half_of_dY: bool, settings: tuple[Any, ...]) -> bool:
    return reads_half_again(s, cuda_target(device), precision, half_of_dY)


def needs_half_of_gradient(s: ConvShape, device: Device, precision: str, X: Given, wanted: tuple[bool, bool]) -> bool:
    """`reads_half_of_gradient` for a GPU; asked once for each shape."""
    return _cached_needs_of_gradient(s, device, precision, X, wanted, _settings())


@functools.lru_cache(maxsize=4096)
def _cached_needs_of_gradient(
    s: ConvShape, device: Device, precision: str, X: Given, wanted: tuple[bool, bool], settings: tuple[Any, ...]
) -> bool:
    return reads_half_of_gradient(s, cuda_target(device), precision, X, wanted)


_settings = config.reader(config.CONV_KERNEL, config.DEBUG, config.TUNE, config.CACHE_DIR)


@functools.lru_cache(maxsize=4096)
def _cached_plan(
    operator: str,
    s: ConvShape,
    precision: str,
    epilogue: tuple[bool, bool, bool, StepForm | None, bool],
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    known: Known,
    device: Device,
    settings: tuple[Any, ...],
) -> Plan:
    """The plan of a problem, made once as long as the variables that `choose` reads have these `settings`."""
    return plan(ConvProblem(operator, s, precision, Epilogue(*epilogue), *dtypes, known), cuda_target(device))


def _aligned(X: Array) -> Array:
    """X, copied if its address is not a multiple of 16 bytes, as a part of an array may be."""
    return X if type(X) is HalfAlone or X.address % 16 == 0 else X.device.copy(X)
