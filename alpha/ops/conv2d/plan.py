"""The plan of a kernel configuration for a problem: its kernels, and what runs before and after them.

`launch.py` chooses the configuration.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from alpha.core.numerics import BFLOAT16, FLOAT32
from alpha.core.primitive import Array
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.magnitudes import absmax, absmax_launch, finds_magnitude
from alpha.ops.conv2d.prepare import IN_FP16, resize, resized, shape_for
from alpha.ops.conv2d.problem import (
    FORWARD,
    OPERANDS,
    RESULT,
    UNKNOWN,
    Configuration,
    ConvProblem,
    Epilogue,
    Target,
    seen_by_kernels,
)
from alpha.ops.conv2d.select import time_model
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.kernel.casts import HalfAlone, cast_launch, widest_vector
from alpha.ops.kernel.elementwise import add, common_period, map_launch
from alpha.ops.kernel.plan import Buffer, KernelLaunch, Plan, ScalarArg
from alpha.ops.kernel.rectifier import FORM, Rectifier
from alpha.runtime import Device
from alpha.runtime.work import Work


@functools.cache
def cuda_target(device: Device) -> Target:
    """The properties of a GPU on which plans depend."""
    properties = device.properties  # type: ignore[attr-defined]
    capability, shared_bytes = properties.compute_capability, properties.shared_bytes_per_block
    return Target("cuda", capability, properties.num_sms, shared_bytes, device, properties.name)


@dataclass
class _Surroundings:
    """Launches of a plan before and after the kernels of a configuration, and their arrays.

    Attributes:
        renamed: the arrays that those kernels are given in place of the problem's, by the names of the problem's.
    """

    before: list[KernelLaunch] = field(default_factory=list)
    after: list[KernelLaunch] = field(default_factory=list)
    workspaces: dict[str, Buffer] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def replace(self, name: str, kind: str, buffer: Buffer) -> tuple[str, str]:
        """Put a workspace in the place of an array, and return what had its place before, and the workspace."""
        source, made = self.renamed.get(name, name), f"{name} {kind}"
        self.renamed[name], self.workspaces[made] = made, buffer
        return source, made


@functools.lru_cache(maxsize=4096)
def plan_configuration(problem: ConvProblem, v: Configuration, target: Target) -> Plan:
    """The plan of one configuration for a problem, with what its kernels do not do themselves.

    That is: casts, copies with padded channels, bias and activation.
    """
    operator, result = problem.operator, RESULT[problem.operator]
    wide = problem.dtype == BFLOAT16 != v.dtype
    seen = seen_by_kernels(problem.shape, target)
    used = shape_for(v, seen, target)
    assert used is not None, f"{v.name} does not compute {problem}"
    copied = resized(operator, seen, used)
    fuses = v.supports_epilogue and result not in copied
    fused = problem.epilogue if fuses else Epilogue()
    own = replace(
        fused,
        statistics=fused.statistics and v.supports_statistics and not wide,
        step=fused.step if v.supports_step and not wide else None,
        magnitude=fused.magnitude and operator == FORWARD and problem.dtype == FLOAT32,
    )
    # copies of the operands are of the given shape, and not of what is padded
    known = problem.known if v.precision == problem.precision and used is seen else UNKNOWN
    inner: Plan = v.make(ConvProblem(operator, used, v.precision, own, v.dtype, problem.gradient, known), v, target)
    outputs, facts, around = dict(inner.outputs), dict(inner.facts), _Surroundings()
    if wide:
        _cast_operands(around, problem, facts, target)
    for name in (name for name in OPERANDS[operator] if name in copied):
        source, made = around.replace(name, "padded", Buffer(copied[name][1], v.dtype))
        around.before.append(resize(source, made, copied[name], v.dtype))
    made_as, outputs[result] = outputs[result].dtype, problem.result
    whole, last = Buffer(problem.sizes(result), made_as), result
    if made_as != problem.result.dtype:
        _, last = around.replace(result, "in float32", whole)
    if result in copied:
        _, padded = around.replace(result, "padded", Buffer(copied[result][1], made_as))
        around.after.append(resize(padded, last, copied[result][::-1], made_as))
    if not fuses:
        around.after += _epilogue(problem.epilogue, last, (whole.size, whole.shape[-1]), made_as)
    if last != result:
        around.after.append(cast_launch(last, result, whole.size, FLOAT32, BFLOAT16))
    launches = (*around.before, *(launch.renamed(around.renamed) for launch in inner.launches), *around.after)
    cycles = None
    if time_model.is_counted(v):
        cycles = time_model.cycles(v, seen, target, time_model.constants_of(target.name), problem.known)
    launches = tuple(_with_work(step, v, problem.shape, target, cycles, len(launches)) for step in launches)
    workspaces = {**inner.workspaces, **around.workspaces}
    return Plan(v.name, launches, outputs, workspaces, v.reason, cycles, facts, operator)


BESIDE = ("conv2d/prepare/", "conv2d/ks_deconv/split_filter.cu", "conv2d/sk_dilated/sum_splits.cu")  # no products


def multiplies(launch: KernelLaunch) -> bool:
    """True for the launch of a configuration that computes its products."""
    return launch.source.startswith(("conv2d/", "matmul/")) and not launch.source.startswith(BESIDE)


def _with_work(
    launch: KernelLaunch, v: Configuration, s: ConvShape, target: Target, cycles: float | None, launches: int
) -> KernelLaunch:
    """The launch of a plan; that with the products knows how many they are, and its part of the predicted cycles."""
    if not multiplies(launch):
        return launch
    kept = round(s.flops * s.useful) if time_model.trims(v) else s.flops
    others = (launches - 1) * time_model.constants_of(target.name).launch
    predicted = 0.0 if cycles is None else max(cycles - others, cycles / launches)
    work = Work(kept, s.flops - kept, math=v.math.name, cycles=predicted)
    return replace(launch, does=work)


def _cast_operands(around: _Surroundings, problem: ConvProblem, facts: dict[str, Any], target: Target) -> None:
    """Operands in bfloat16 as float32. Nobody else knows the magnitudes of these arrays, so they are found here."""
    sizes = []
    for name in OPERANDS[problem.operator]:
        source, made = around.replace(name, "in float32", Buffer(problem.sizes(name), FLOAT32))
        sizes.append((made, around.workspaces[made].size))
        around.before.append(cast_launch(source, made, sizes[-1][1], BFLOAT16, FLOAT32))
    if facts.pop("scales", False):
        around.workspaces |= dict.fromkeys(("absmax_a", "absmax_b"), Buffer((1,), np.dtype(np.uint32)))
        around.before.append(absmax_launch(tuple(sizes), target.num_sms))


def _epilogue(epilogue: Epilogue, name: str, sizes: tuple[int, int], dtype: np.dtype[Any]) -> list[KernelLaunch]:
    """Bias and activation as kernels of their own, on the array `name` with `sizes` = (elements, channels)."""
    size, channels = sizes
    array = name, size, dtype
    launches = []
    if epilogue.bias:
        operands = (array, ("bias", channels, FLOAT32))
        vector = widest_vector(dtype, common_period(size, operands))
        launches.append(map_launch(add.expression, array, operands, vector))
    if epilogue.activation:
        vector = widest_vector(dtype, 0)
        rectified = FORM.format(z="a"), array, (array,), vector, (ScalarArg("slope"), np.float32(math.inf))
        launches.append(map_launch(*rectified))
    return launches


def compute(
    v: Configuration,
    first: Array,
    second: Array,
    s: ConvShape,
    bias: Array | None = None,
    slope: float = 1.0,
    statistics: ChannelStatistics | None = None,
) -> Array:
    """Compute Y of (X, W), dX of (dY, W) or dW of (X, dY), by the operator of the configuration.

    Operands are float32, on cpu also float64, on cuda also bfloat16. `statistics` is filled if the configuration
    computes them.
    """
    if isinstance(first, np.ndarray):
        Y: Array = v.make(first, second, s)
        Y = Y if bias is None else add(Y, bias, out=Y)
        return Y if slope == 1 else Rectifier(slope).rectify(Y)
    magnitude = v.operator == FORWARD and statistics is None and finds_magnitude(first, slope)
    epilogue = Epilogue(bias is not None, slope != 1, statistics is not None, magnitude=magnitude)
    problem = ConvProblem(v.operator, s, v.precision, epilogue, first.dtype)
    made = plan_configuration(problem, v, cuda_target(first.device))
    found = made.launch(first.device, named_operands(made, v.operator, (first, second), bias, slope))
    if statistics is not None:
        statistics.take(found)
    result: Array = found[RESULT[v.operator]]
    result.magnitude = found.get("magnitude")
    return result


def named_operands(
    p: Plan, operator: str, operands: tuple[Array, Array], bias: Array | None, slope: float
) -> dict[str, Any]:
    """Arrays and numbers with which a plan is launched, by name. Arrays begin at multiples of 16 bytes."""
    first, second = OPERANDS[operator]
    named: dict[str, Any] = {first: operands[0], second: operands[1], "slope": slope}
    for name in (first, second):
        if type(named[name]) is HalfAlone:
            del named[name]
    if bias is not None:
        named["bias"] = bias
    if p.facts.get("scales"):
        named["absmax_a"], named["absmax_b"] = absmax(*operands)
        for name, magnitude in ((first, named["absmax_a"]), (second, named["absmax_b"])):
            if magnitude.half is not None and IN_FP16[name] not in p.workspaces:  # which are made there
                named[IN_FP16[name]] = magnitude.half
    return named
