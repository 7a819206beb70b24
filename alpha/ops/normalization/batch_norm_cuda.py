"""Batch normalisation on a GPU: the kernels of cuda/batchnorm, on X (R, C).

The contracts are in batch_norm_primitives.py.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.memory_mode import SMALLEST_WEIGHT
from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array
from alpha.ops.conv2d.channel_statistics import ChannelStatistics, StatisticsArguments
from alpha.ops.conv2d.magnitudes import found_beside, made_alone, magnitude_parts, with_magnitude
from alpha.ops.conv2d.problem import Given
from alpha.ops.kernel.casts import CUDA_TYPES, HalfAlone, require_float32, require_same_float, vector_width
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, ScalarArg, State
from alpha.ops.kernel.rectifier import (
    FROM_OUTPUT,
    FROM_SUM,
    FROM_X,
    FROM_Y,
    IDENTITY,
    NOT_RECTIFIED,
    GradientParts,
    KeptOutput,
    Rectified,
    RectifiedInput,
    Rectifier,
)
from alpha.ops.kernel.sums import MEETING_STATE, column_block, column_splits

LIMIT_STATE = State(lambda: np.zeros(2, np.uint32))  # in which blocks that find a limit of a gradient meet
MERGE = 2, 256  # a block that merges parts: channels, lanes
SUMS = ArrayArg("dw", only_read=True), ArrayArg("db", only_read=True)  # of the launch before
DEVIATING = ArrayArg("X", only_read=True, rarely=True)  # read if squared deviations are too large for a float
RUNNING = *[ArrayArg(name, True, updated=True) for name in ("running_mean", "running_var")], ScalarArg("momentum")


def _sizes(X: Array, *others: Array) -> tuple[int, int, np.dtype[Any], int, int]:
    """Values on which the plans below depend: R, C, dtype, elements of a load, SMs."""
    C = X.shape[-1]
    return X.size // C, C, X.dtype, vector_width(X, *others, along=C), X.device.properties.num_sms


def channel_statistics(
    X: Array,
    running_mean: Array | None,
    running_var: Array | None,
    momentum: float,
    statistics: ChannelStatistics | None = None,
) -> tuple[Array, Array]:
    plan, given = _statistics(X, StatisticsArguments(running_mean, running_var, momentum, statistics))
    found = plan.launch(X.device, given)
    return found["mean"], found["var"]


def _statistics(X: Array, wanted: StatisticsArguments, limit: bool = False) -> tuple[Plan, dict[str, Any]]:
    """The plan that makes "mean" and "var", and its operands."""
    running_mean, running_var, momentum, statistics = wanted
    require_same_float("batch_norm", X)
    if running_mean is not None:
        require_float32("batch_norm", running_mean, running_var)
    given = {"X": X, "running_mean": running_mean, "running_var": running_var, "momentum": float(momentum)}
    if statistics is None:
        return plan_statistics(*_sizes(X), limit), given
    given |= {"part": statistics.part, "counts": statistics.counts}
    return plan_merge(*_sizes(X)[:4], statistics.part.shape[1], limit), given


def apply(
    X: Array,
    mean: Array,
    var: Array,
    weight: Array,
    bias: Array,
    eps: float,
    residual: Array | None = None,
    rectifier: Rectifier | None = None,
) -> Array:
    require_float32("batch_norm", mean, var, weight, bias)
    if not X.size:
        return X.device.empty(X.shape, X.dtype)
    plan, given = _application(X, weight, bias, eps, residual, rectifier, {"mean": mean, "var": var})
    found = plan.launch(X.device, given)
    return with_magnitude(found["Y"], found)


def training(
    X: Array,
    wanted: StatisticsArguments,
    weight: Array,
    bias: Array,
    eps: float,
    residual: Array | None = None,
    rectifier: Rectifier | None = None,
    smallest: float = 0.0,
) -> tuple[Array, Array, Array]:
    second, others = _application(X, weight, bias, eps, residual, rectifier, {}, batch=True)
    first, given = _statistics(X, wanted, "half" in second.outputs)
    found = _both(first, second).launch(X.device, {**given, **others, "smallest": smallest})
    return with_magnitude(found["Y"], found), found["mean"], found["var"]


@functools.lru_cache(maxsize=4096)
def _both(first: Plan, second: Plan) -> Plan:
    """The statistics, and then what is done with them, as one plan."""
    outputs = {**first.outputs, **second.outputs}
    return Plan("batch_norm_training", (*first.launches, *second.launches), outputs, first.workspaces)


def _application(
    X: Array,
    weight: Array,
    bias: Array,
    eps: float,
    residual: Array | None,
    rectifier: Rectifier | None,
    stats: dict[str, Array],
    batch: bool = False,
) -> tuple[Plan, dict[str, Any]]:
    """The plan that makes "Y", and its operands; `stats`: "mean" and "var", unless another launch makes them.

    batch: whether they are those of X itself.
    """
    require_float32("batch_norm", weight, bias)
    given = {"X": X, "weight": weight, "bias": bias, **stats}
    if residual is not None:
        given["residual"] = residual
    require_same_float("batch_norm", X, *([] if residual is None else [residual]))
    dtype, vector = _sizes(*given.values())[2:4]
    found = found_beside(X, X.shape, vector, residual, may_be_half=batch)
    plan = plan_apply(X.shape, dtype, vector, residual is not None, rectifier, found)
    if residual is not None:
        given["residual limit"] = residual.magnitude
    return plan, {**given, "eps": float(eps), "smallest": 0.0}


def gradients(
    dY: Array | GradientParts,
    X: Array | RectifiedInput,
    mean: Array,
    var: Array,
    weight: Array,
    eps: float,
    batch: bool,
    rectified: Rectified | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    X, behind = X if isinstance(X, RectifiedInput) else (X, None)
    Y = None if rectified is None else rectified.Y
    parts = _parts(dY)
    dY = parts["dY"]
    require_same_float("batch_norm", *parts.values(), X, *([] if Y is None else [Y]))
    require_float32("batch_norm", mean, var, weight)
    device = X.device
    if X.size == 0:
        return device.zeros(X.shape, X.dtype), *(device.zeros(X.shape[-1:], FLOAT32) for _ in range(2)), dY
    given = {"X": X, **parts, "mean": mean, "var": var, "weight": weight}
    sign, rectifier, magnitude = NOT_RECTIFIED, IDENTITY, None
    if rectified is not None:
        rectifier = rectified.rectifier
        if Y is None:
            sign, given["bias"] = FROM_X, rectified.bias
        else:
            sign = FROM_Y
            given["Y"], magnitude = _kept(Y)
    dtype, vector, num_sms = _sizes(*given.values())[2:]
    beside = found_beside(X, X.shape, vector, may_be_half=batch and (behind is None or behind.slope <= 1))
    rectifiers = Rectifiers(sign, rectifier, behind, magnitude is not None)
    plan = plan_gradients(X.shape, dtype, vector, num_sms, beside, batch, rectifiers, "other" in given)
    found = plan.launch(device, {**given, "Y magnitude": magnitude, "eps": float(eps)})
    return *_gradients(found, dY), found.get("dZ", dY if sign == NOT_RECTIFIED else None)


def _parts(dY: Array | GradientParts) -> dict[str, Array]:
    """The operands of a launch that are the gradient of the output."""
    return dY._asdict() if isinstance(dY, GradientParts) else {"dY": dY}


def gradients_from_output(
    dY: Array | GradientParts, kept: KeptOutput, var: Array, weight: Array, bias: Array, eps: float
) -> tuple[Array, Array, Array, Array | None]:
    Y, residual, rectifier = kept
    parts = _parts(dY)
    dY = parts["dY"]
    require_same_float("batch_norm", *parts.values(), Y, *([] if residual is None else [residual]))
    require_float32("batch_norm", var, weight, bias)
    Y, magnitude = _kept(Y)
    given = {**parts, "Y": Y, "var": var, "weight": weight, "bias": bias}
    if residual is not None:
        given["residual"] = residual
    sign = FROM_OUTPUT if residual is None else FROM_SUM
    dtype, vector, num_sms = _sizes(*given.values())[2:]
    beside = found_beside(dY, dY.shape, vector)
    rectifiers = Rectifiers(sign, rectifier, half=magnitude is not None)
    plan = plan_gradients(dY.shape, dtype, vector, num_sms, beside, True, rectifiers, "other" in given)
    numbers = {"Y magnitude": magnitude, "eps": float(eps), "smallest": SMALLEST_WEIGHT}
    found = plan.launch(dY.device, {**given, **numbers})
    return *_gradients(found, dY), found.get("dZ")


def gradients_begun(
    dZ: Array,
    part: Array,
    kept: Array | RectifiedInput | KeptOutput,
    mean: Array,
    var: Array,
    weight: Array,
    bias: Array | None,
    eps: float,
) -> tuple[Array, Array, Array]:
    given = {"dZ": dZ, "var": var, "weight": weight}
    slope, behind, magnitude = 1.0, None, None
    if isinstance(kept, RectifiedInput):
        kept, behind = kept
    if isinstance(kept, KeptOutput):
        Y, residual, (slope, _) = kept
        require_same_float("batch_norm", dZ, Y, *([] if residual is None else [residual]))
        Y, magnitude = _kept(Y)
        given |= {"bias": bias, "Y": Y} | ({} if residual is None else {"residual": residual})
    else:
        require_same_float("batch_norm", dZ, kept)
        given |= {"X": kept, "mean": mean}
    dtype, vector = _sizes(*given.values())[2:4]
    limited = dZ.magnitude is not None and (behind is None or behind.slope <= 1)
    beside = found_beside(dZ, dZ.shape, vector, may_be_half=limited)
    form = BegunForm("X" in given, "residual" in given, magnitude is not None, part.shape[1], behind)
    plan = plan_begun(dZ.shape, dtype, vector, beside, form)
    given |= {"most": dZ.magnitude, "Y magnitude": magnitude}
    numbers = {"part": part, "eps": float(eps), "smallest": SMALLEST_WEIGHT, "slope": slope}
    return _gradients(plan.launch(dZ.device, {**given, **numbers}), dZ)


def _kept(Y: Array | HalfAlone) -> tuple[Array, Array | None]:
    """The array of Y that is kept, and the magnitude if it is the fp16 copy, of which no thread reads packs."""
    return (Y.copy, Y.magnitude) if isinstance(Y, HalfAlone) else (Y, None)


def _gradients(found: dict[str, Array], dY: Array) -> tuple[Array, Array, Array]:
    """dX, with what the kernel has found of it or as its copy alone, dweight and dbias."""
    dX = with_magnitude(found["dX"], found) if "dX" in found else made_alone(found, dY)
    return dX, found["dw"], found["db"]


def _half(shape: tuple[int, ...], beside: str = "") -> dict[str, Buffer]:
    """Outputs of a plan that also makes the fp16 copy of an array, and the magnitude from which its scale follows."""
    return {"magnitude": Buffer((1,), np.dtype(np.uint32), beside), "half": Buffer(shape, np.dtype(np.uint16))}


def _columns(R: int, C: int, vector: int) -> tuple[tuple[int, int], int, int]:
    """(block, tiles of channels, lanes) of the kernels that go through X (R, C)."""
    across, lanes, _ = column_block(1, R, C // vector)
    return (across, lanes), -(-C // (vector * across)), lanes


def _macros(dtype: np.dtype[Any], vector: int) -> dict[str, int | str]:
    return {"TYPE": CUDA_TYPES[dtype], "VECTOR": vector}


def _numbers(C: int, first: str, second: str) -> dict[str, Buffer]:
    """Two float32 numbers per channel, in one block."""
    return {first: Buffer((C,), FLOAT32), second: Buffer((C,), FLOAT32, beside=first)}


@functools.lru_cache(maxsize=4096)
def plan_statistics(R: int, C: int, dtype: np.dtype[Any], vector: int, num_sms: int, limit: bool = False) -> Plan:
    """Mean and variance per channel of X: one kernel for segments of rows, a second one that merges the segments."""
    block, tiles, lanes = _columns(R, C, vector)
    splits, rows = column_splits(num_sms, R, lanes, tiles)
    arguments, macros, outputs = _limit_parts(limit)
    macros |= _macros(dtype, vector)
    launches = (
        KernelLaunch(
            "batchnorm/statistics.cu",
            "statistics",
            (tiles, splits),
            block,
            (ArrayArg("part"), ArrayArg("X", only_read=True), R, C, rows),
            macros,
        ),
        KernelLaunch(
            "batchnorm/statistics.cu",
            "merge_statistics",
            -(-C // MERGE[0]),
            MERGE,
            (*map(ArrayArg, ("mean", "var", "part")), DEVIATING, *RUNNING, R, C, rows, splits, *arguments),
            macros,
        ),
    )
    workspaces = {"part": Buffer((2, splits, C), FLOAT32)}
    return Plan("channel_statistics", launches, {**_numbers(C, "mean", "var"), **outputs}, workspaces)


def _limit_parts(limit: bool) -> tuple[tuple[Any, ...], dict[str, int | str], dict[str, Buffer]]:
    """Additions to a launch that merges statistics, for a limit of the magnitudes of Y: arguments, macros, outputs."""
    if not limit:
        return (None,) * 4, {"LIMIT": 0}, {}
    arguments = ArrayArg("limit"), MEETING_STATE, ArrayArg("weight"), ArrayArg("bias")
    return arguments, {"LIMIT": 1}, {"limit": Buffer((1,), np.dtype(np.uint32), beside="mean")}


@functools.lru_cache(maxsize=4096)
def plan_merge(R: int, C: int, dtype: np.dtype[Any], vector: int, parts: int, limit: bool = False) -> Plan:
    """Mean and variance per channel of X, merged from the statistics that the convolution has found."""
    arguments, macros, outputs = _limit_parts(limit)
    launch = KernelLaunch(
        "batchnorm/statistics.cu",
        "merge_counted_statistics",
        -(-C // MERGE[0]),
        MERGE,
        (*map(ArrayArg, ("mean", "var", "part", "counts")), DEVIATING, *RUNNING, R, C, parts, *arguments),
        macros | _macros(dtype, vector),
    )
    return Plan("merge_counted_statistics", (launch,), {**_numbers(C, "mean", "var"), **outputs})


@functools.lru_cache(maxsize=4096)
def plan_apply(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    vector: int,
    residual: bool,
    rectifier: Rectifier | None,
    beside: Given,
) -> Plan:
    """Y = rectifier(weight (X - mean) / sqrt(var + eps) + bias + residual) in one pass; `shape`: of X (..., C).

    beside: what is made of Y, too. A copy in fp16 needs "limit", which the launches of the statistics then make.
    """
    R, C = math.prod(shape[:-1]), shape[-1]
    if residual:
        vector = min(vector, 4)  # wider packs do not fit the registers
    block, tiles, lanes = _columns(R, C, vector)
    rows = 8 * lanes
    meeting, found, outputs = magnitude_parts(beside == Given.MAGNITUDE)
    half: tuple[Any, ...] = (None, None, None)
    if beside == Given.HALF:
        meeting, outputs = (ArrayArg("magnitude"), None), _half(shape)
        limit = ArrayArg("limit", only_read=True)
        half = ArrayArg("half"), limit, ArrayArg("residual limit") if residual else None
    X = ArrayArg("X", only_read=True)  # which a convolution of the same plan may make, and other launches mean and var
    operands = ArrayArg("Y"), *meeting, X, ArrayArg("residual") if residual else None
    numbers = (
        *(ArrayArg("mean", only_read=True), ArrayArg("var", only_read=True), ArrayArg("weight"), ArrayArg("bias")),
        ScalarArg("eps"),
        ScalarArg("smallest"),
        *map(np.float32, rectifier or IDENTITY),
    )
    launch = KernelLaunch(
        "batchnorm/apply.cu",
        "apply",
        (-(-R // rows), tiles),
        block,
        (*operands, *numbers, R, C, rows, *half),
        {
            **_macros(dtype, vector),
            "RESIDUAL": int(residual),
            "RECTIFIED": int(rectifier is not None),
            "HALF": int(beside == Given.HALF),
            **found,
        },
    )
    return Plan("batch_norm_apply", (launch,), {"Y": Buffer(shape, dtype), **outputs})


@functools.lru_cache(maxsize=4096)
def plan_gradients(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    vector: int,
    num_sms: int,
    beside: Given,
    batch: bool,
    rectifiers: Rectifiers,
    other: bool = False,
) -> Plan:
    """Plan of dw and db as sums over segments of rows, which the last block merges; then dX; `shape`: of X (..., C).

    beside: what is made of dX, too.
    rectifiers: with the signs FROM_Y and FROM_SUM, dZ is made, too, and dX comes from it.
    other: whether the gradient is dY + other; dZ is then made in each case.
    """
    R, C = math.prod(shape[:-1]), shape[-1]
    sign, rectifier, behind, _ = rectifiers
    if sign != NOT_RECTIFIED or other:
        vector = min(vector, 4)  # wider packs of so many numbers per column do not fit the registers
    block, tiles, lanes = _columns(R, C, vector)
    splits, segment = column_splits(num_sms, R, lanes, tiles)
    several, has_dZ = splits > 1, other or sign in (FROM_Y, FROM_SUM)
    undone = sign in (FROM_OUTPUT, FROM_SUM)
    dZ = ArrayArg("dZ") if has_dZ else None
    part = (ArrayArg("part"), MEETING_STATE) if several else (None, None)
    bias = ArrayArg("bias") if undone or sign == FROM_X else None
    numbers = None if undone else ArrayArg("mean"), ArrayArg("var"), ArrayArg("weight"), bias
    constants = ScalarArg("eps"), ScalarArg("smallest") if undone else np.float32(0), *map(np.float32, rectifier)
    X, residual = None if undone else ArrayArg("X"), ArrayArg("residual") if sign == FROM_SUM else None
    Y = ArrayArg("Y") if undone or sign == FROM_Y else None
    rows_read = ArrayArg("dY"), ArrayArg("other") if other else None, X, Y, residual
    limited = beside >= Given.HALF
    limit = (ArrayArg("magnitude"), LIMIT_STATE) if limited else (None, None)
    sums = KernelLaunch(
        "batchnorm/gradient_sums.cu",
        "gradient_sums",
        (tiles, splits),
        block,
        (
            *(ArrayArg("dw"), ArrayArg("db"), dZ, *part, *rows_read, *numbers, *constants, R, C, segment, *limit),
            ArrayArg("Y magnitude") if rectifiers.half else None,
        ),
        {
            **_macros(dtype, vector),
            "RECTIFIED": sign,
            "OTHER": int(other),
            "LIMIT": int(limited),
            "Y_HALF": int(rectifiers.half),
        },
    )
    if has_dZ:  # has been through the rectifier
        rectifiers = rectifiers._replace(sign=FROM_SUM) if undone else Rectifiers(NOT_RECTIFIED, IDENTITY, behind)
    if rectifiers.sign == NOT_RECTIFIED:
        numbers = *numbers[:3], None
    operands = (
        ArrayArg("dZ", only_read=True) if has_dZ else ArrayArg("dY"),
        X,
        Y if undone else None,
        residual,
        *numbers,
    )
    form = _GradientForm(shape, dtype, vector, beside, batch, rectifiers)
    gradient, outputs = _input_gradient(form, operands, constants)
    if has_dZ:
        outputs["dZ"] = Buffer(shape, dtype)
    workspaces = {"part": Buffer((3 if limited else 2, splits, C), FLOAT32)} if several else {}
    return Plan("batch_norm_gradients", (sums, gradient), outputs, workspaces)


class Rectifiers(NamedTuple):
    """Rectifiers around a batch normalisation.

    Attributes:
        sign: where the sign of what the one before the output was given is from.
        rectifier: that one.
        behind: the one that has made X, if dX is the gradient of what that was given.
        half: whether Y is an fp16 copy.
    """

    sign: int
    rectifier: Rectifier
    behind: Rectifier | None = None
    half: bool = False


class _GradientForm(NamedTuple):
    """Facts on which the launch of the input gradient depends; see `plan_gradients`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    vector: int
    beside: Given
    batch: bool
    rectifiers: Rectifiers


def _input_gradient(
    form: _GradientForm, operands: tuple[ArrayArg | None, ...], constants: tuple[Any, ...]
) -> tuple[KernelLaunch, dict[str, Buffer]]:
    """The launch that makes dX of dY or dZ, "dw" and "db", and the outputs of the plan."""
    R, C = math.prod(form.shape[:-1]), form.shape[-1]
    vector, (sign, _, behind, half_Y) = min(form.vector, 4), form.rectifiers
    block, tiles, lanes = _columns(R, C, vector)
    rows = 8 * lanes
    meeting, found, outputs = magnitude_parts(form.beside == Given.MAGNITUDE, beside="dw")
    half: tuple[Any, ...] = (None, None)
    alone = form.beside == Given.HALF_ALONE
    if form.beside >= Given.HALF:
        half, outputs = (ArrayArg("half"), ArrayArg("magnitude", only_read=True)), _half(form.shape, beside="dw")
    if not alone:
        outputs["dX"] = Buffer(form.shape, form.dtype)
    launch = KernelLaunch(
        "batchnorm/input_gradient.cu",
        "input_gradient",
        (-(-R // rows), tiles),
        block,
        (
            *(None if alone else ArrayArg("dX"), *meeting, *operands, *SUMS, *constants),
            *map(np.float32, behind or IDENTITY),
            *(R, C, rows, int(form.batch)),
            *half,
            ArrayArg("Y magnitude") if half_Y else None,
        ),
        {
            **_macros(form.dtype, vector),
            "RECTIFIED": sign,
            "BEHIND": int(behind is not None),
            "HALF": int(form.beside >= Given.HALF) + alone,
            "Y_HALF": int(half_Y),
            **found,
        },
    )
    return launch, {**outputs, **_numbers(C, "dw", "db")}


class BegunForm(NamedTuple):
    """Facts about a gradient whose first step was taken; see `plan_begun`.

    Attributes:
        has_X: otherwise Y, and a `residual` if there is one, take the place of X.
        half, behind: see `Rectifiers`.
        parts: of the rows, over which a convolution has added up channels.
    """

    has_X: bool
    residual: bool
    half: bool
    parts: int
    behind: Rectifier | None


@functools.lru_cache(maxsize=4096)
def plan_begun(shape: tuple[int, ...], dtype: np.dtype[Any], vector: int, beside: Given, begun: BegunForm) -> Plan:
    """Plan of dw and db from the sums that a convolution has found, and of dX from dZ.

    beside: what is made of dX, too. A copy in fp16 needs "most", the magnitude of dZ.
    """
    has_X, residual, half_Y, parts, behind = begun
    C = shape[-1]
    sign = NOT_RECTIFIED if has_X else FROM_SUM
    limit: tuple[Any, ...] = (None, None, 0, None, None)
    if beside >= Given.HALF:
        limit = ArrayArg("weight"), ArrayArg("most"), math.prod(shape[:-1]), ArrayArg("magnitude"), LIMIT_STATE
    merge = KernelLaunch(
        "batchnorm/gradient_sums.cu",
        "merge_gradient_sums",
        -(-C // MERGE[0]),
        MERGE,
        (*map(ArrayArg, ("dw", "db", "part", "var")), ScalarArg("eps"), C, parts, *limit),
        {
            **_macros(dtype, min(vector, 4)),
            "RECTIFIED": sign,
            "OTHER": 0,
            "LIMIT": int(beside >= Given.HALF),
            "Y_HALF": 0,
        },
    )
    sides = (ArrayArg("X"), None) if has_X else (None, ArrayArg("Y"))
    mean, bias = (ArrayArg("mean"), None) if has_X else (None, ArrayArg("bias"))
    numbers = mean, ArrayArg("var"), ArrayArg("weight"), bias
    operands = ArrayArg("dZ"), *sides, ArrayArg("residual") if residual else None, *numbers
    constants = ScalarArg("eps"), ScalarArg("smallest"), ScalarArg("slope"), np.float32(math.inf)
    form = _GradientForm(shape, dtype, vector, beside, True, Rectifiers(sign, IDENTITY, behind, half_Y))
    gradient, outputs = _input_gradient(form, operands, constants)
    return Plan("batch_norm_gradients", (merge, gradient), outputs)
