"""Batch normalisation, a rectifier and a maximum pool as one operator: what is normalised is nowhere in memory.

The kernel of the forward pass normalises each pixel as it looks for the maxima. Those of the gradients gather that of
the pool from the windows in which a pixel lies, and compute the rest as for batch normalisation alone. So neither the
result of the normalisation nor its gradient, the largest arrays of a network that begins with such layers, is written
and read.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array, primitive
from alpha.ops.conv2d.channel_statistics import StatisticsArguments
from alpha.ops.conv2d.magnitudes import magnitude_parts, needs_magnitude
from alpha.ops.kernel.casts import CUDA_TYPES, require_float32, require_same_float, vector_width
from alpha.ops.kernel.options import lengths
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, ScalarArg
from alpha.ops.kernel.rectifier import FROM_X, IDENTITY, NOT_RECTIFIED, Rectified, RectifiedInput, Rectifier
from alpha.ops.kernel.sums import MEETING_STATE, column_block, column_splits
from alpha.ops.normalization.batch_norm_cuda import SUMS
from alpha.ops.normalization.batch_norm_primitives import (
    BatchStatistics,
    batch_norm_apply,
    batch_norm_gradients,
    channel_statistics,
    filled,
    with_step,
)
from alpha.ops.pooling.max_pool import max_pool2d_backward, max_pool2d_forward
from alpha.ops.pooling.pool_shape import PoolShape, Windows

LONGEST = 3  # windows of the pools that the kernels take
MOST_PIXELS = (1 << 31) - (1 << 16)  # which the kernels count in 32 bits, a step further than there are


def takes_windows(windows: Windows | None) -> bool:
    """True if the kernels take a pool of such windows: the stride is 2, and a window has at most 3 x 3 pixels.

    With a stride of 1 each pixel would be normalised once for each of its windows, which takes longer than a pass.
    Longer strides are rare, and do not fit the registers.
    """
    if windows is None:
        return False
    F = lengths("max_pool2d", "kernel_size", windows.kernel_size, 2)
    stride = F if windows.stride is None else lengths("max_pool2d", "stride", windows.stride, 2)
    dilation = lengths("max_pool2d", "dilation", windows.dilation, 2, least=1)
    return stride == (2, 2) and dilation == (1, 1) and max(F) <= LONGEST


class Columns(NamedTuple):
    """Numbers of the channels, (C,) each."""

    mean: Array
    var: Array
    weight: Array
    bias: Array


def is_whole(s: PoolShape) -> bool:
    """True if the windows lie side by side and cover the map, so that each pixel lies in one of them."""
    return (s.FH, s.FW, s.ph, s.pw, s.OH * s.sh, s.OW * s.sw) == (s.sh, s.sw, 0, 0, s.IH, s.IW)


@primitive
def batch_norm_pool(
    X: Array, columns: Columns, eps: float, s: PoolShape, rectifier: Rectifier | None = None
) -> tuple[Array, Array]:
    """Y, I = `max_pool2d_forward` of `batch_norm_apply`

    X (N, IH, IW, C), columns (C,) -> Y, I (N, OH, OW, C), I of uint8
    """


@primitive
def batch_norm_pool_gradients(
    dY: Array,
    I: Array,
    X: Array | RectifiedInput,
    columns: Columns,
    eps: float,
    batch: bool,
    s: PoolShape,
    rectifier: Rectifier | None = None,
) -> tuple[Array, Array, Array]:
    """dX, dweight, dbias = `batch_norm_gradients` of `max_pool2d_backward`

    dY, I (N, OH, OW, C), X (N, IH, IW, C), columns (C,) -> dX (N, IH, IW, C), dweight, dbias (C,)

    Args:
        X: with the rectifier that has made it, dX is the gradient of what that was given.
        batch: the statistics came from X itself, so that their gradient counts.

    On a GPU a pixel that is no maximum adds nothing to dweight, also if X is not finite there; otherwise it adds
    0 times infinity, which is NaN.
    """


# -- cpu --------------------------------------------------------------------------------------------


@batch_norm_pool.impl("cpu")
def _(X: Array, columns: Columns, eps: float, s: PoolShape, rectifier: Rectifier | None = None) -> tuple[Array, Array]:
    Y, I = max_pool2d_forward(batch_norm_apply(X, *columns, eps, None, rectifier), s)
    return Y, I


@batch_norm_pool_gradients.impl("cpu")
def _(
    dY: Array,
    I: Array,
    X: Array | RectifiedInput,
    columns: Columns,
    eps: float,
    batch: bool,
    s: PoolShape,
    rectifier: Rectifier | None = None,
) -> tuple[Array, Array, Array]:
    rectified = None if rectifier is None else Rectified(rectifier, columns.bias, None)
    pooled = max_pool2d_backward(dY, I, s)
    dX, dweight, dbias, _ = batch_norm_gradients(pooled, X, *columns[:3], eps, batch, rectified)
    return dX, dweight, dbias


# -- cuda -------------------------------------------------------------------------------------------


@batch_norm_pool.impl("cuda")
def _(X: Array, columns: Columns, eps: float, s: PoolShape, rectifier: Rectifier | None = None) -> tuple[Array, Array]:
    require_same_float("batch_norm", X)
    require_float32("batch_norm", *columns)
    given = {"X": X, **columns._asdict()}
    vector = min(vector_width(*given.values(), along=s.C), 4)  # wider packs are no faster
    plan = plan_forward(s, _Form(X.dtype, vector, needs_magnitude(X)), rectifier)
    found = plan.launch(X.device, given | {"eps": eps})
    found["Y"].magnitude = found.get("magnitude")
    return found["Y"], found["I"]


@batch_norm_pool_gradients.impl("cuda")
def _(
    dY: Array,
    I: Array,
    X: Array | RectifiedInput,
    columns: Columns,
    eps: float,
    batch: bool,
    s: PoolShape,
    rectifier: Rectifier | None = None,
) -> tuple[Array, Array, Array]:
    X, behind = X if isinstance(X, RectifiedInput) else (X, None)
    require_same_float("batch_norm", dY, X)
    require_float32("batch_norm", *columns)
    given = {"dY": dY, "I": I, "X": X, **columns._asdict()}
    vector = min(vector_width(*given.values(), along=s.C), 4)  # wider packs do not fit the registers
    form = _Form(X.dtype, vector, needs_magnitude(X))
    plan = plan_gradients(s, form, X.device.properties.num_sms, batch, rectifier, behind)
    found = plan.launch(X.device, given | {"eps": eps})
    found["dX"].magnitude = found.get("magnitude")
    return found["dX"], found["dw"], found["db"]


class _Form(NamedTuple):
    """Form of the arrays of a launch: the type of X, the elements of a load, whether a largest magnitude is found."""

    dtype: np.dtype[Any]
    vector: int
    magnitude: bool

    def macros(self, s: PoolShape, rectified: int) -> dict[str, int | str]:
        windows = {name: value for name, value in s.macros().items() if name != "ADAPTIVE"}
        return {
            "TYPE": CUDA_TYPES[self.dtype],
            "VECTOR": self.vector,
            "RECTIFIED": rectified,
            "WHOLE": int(is_whole(s)),
            **windows,
        }

    def blocks(self, R: int, C: int) -> tuple[tuple[int, int], int, int]:
        """(block, tiles of channels, lanes) of a kernel that goes through R rows of C channels."""
        across, lanes, _ = column_block(1, R, C // self.vector)
        return (across, lanes), -(-C // (self.vector * across)), lanes


NUMBERS = tuple(map(ArrayArg, Columns._fields))


@functools.lru_cache(maxsize=4096)
def plan_forward(s: PoolShape, form: _Form, rectifier: Rectifier | None) -> Plan:
    """Plan of Y and I in one pass over X."""
    R = s.N * s.OH * s.OW
    block, tiles, lanes = form.blocks(R, s.C)
    rows = 8 * lanes
    meeting, found, outputs = magnitude_parts(form.magnitude)
    launch = KernelLaunch(
        "batchnorm/apply_pool.cu",
        "apply_pool",
        (-(-R // rows), tiles),
        block,
        (
            *(ArrayArg("Y"), ArrayArg("I"), *meeting, ArrayArg("X"), *NUMBERS, ScalarArg("eps")),
            *map(np.float32, rectifier or IDENTITY),
            *(R, s.IH, s.IW, s.C, s.OH, s.OW, rows),
        ),
        {**form.macros(s, int(rectifier is not None)), **found},
    )
    Y, I = (Buffer((s.N, s.OH, s.OW, s.C), dtype) for dtype in (form.dtype, s.tap_dtype))
    return Plan("batch_norm_pool", (launch,), {"Y": Y, "I": I, **outputs})


@functools.lru_cache(maxsize=4096)
def plan_gradients(
    s: PoolShape, form: _Form, num_sms: int, batch: bool, rectifier: Rectifier | None, behind: Rectifier | None
) -> Plan:
    """Plan of dw and db as sums over segments of the windows, which the last block merges; then of dX.

    A cell has sh x sw pixels.
    """
    R = s.N * s.OH * s.OW
    block, tiles, lanes = form.blocks(R, s.C)
    splits, segment = column_splits(num_sms, R, lanes, tiles)
    macros = form.macros(s, NOT_RECTIFIED if rectifier is None else FROM_X)
    part = (ArrayArg("part"), MEETING_STATE) if splits > 1 else (None, None)
    rows_read = *map(ArrayArg, ("dY", "I", "X")), *NUMBERS
    slopes = tuple(map(np.float32, rectifier or IDENTITY))
    sizes = s.IH, s.IW, s.C, s.OH, s.OW
    sums = KernelLaunch(
        "batchnorm/pool_gradient_sums.cu",
        "pool_gradient_sums",
        (tiles, splits),
        block,
        (ArrayArg("dw"), ArrayArg("db"), *part, *rows_read, ScalarArg("eps"), *slopes, R, *sizes, segment),
        {**macros, "LIMIT": 0},
    )
    meeting, found, outputs = magnitude_parts(form.magnitude, beside="dw")
    cells = s.N * -(-s.IH // s.sh) * -(-s.IW // s.sw)
    block, tiles, lanes = form.blocks(cells, s.C)
    rows = (8 if is_whole(s) else 32) * lanes  # with more where a block has an SM alone: it begins less often
    gradient = KernelLaunch(
        "batchnorm/pool_input_gradient.cu",
        "pool_input_gradient",
        (-(-cells // rows), tiles),
        block,
        (
            *(ArrayArg("dX"), *meeting, *rows_read, *SUMS, ScalarArg("eps"), *slopes),
            *map(np.float32, behind or IDENTITY),
            *(s.N * s.IH * s.IW, cells, *sizes, rows, int(batch)),
        ),
        {**macros, "BEHIND": int(behind is not None), **found},
    )
    workspaces = {"part": Buffer((2, splits, s.C), FLOAT32)} if splits > 1 else {}
    outputs |= {"dw": Buffer((s.C,), FLOAT32), "db": Buffer((s.C,), FLOAT32, beside="dw")}
    outputs["dX"] = Buffer((s.N, s.IH, s.IW, s.C), form.dtype)
    return Plan("batch_norm_pool_gradients", (sums, gradient), outputs, workspaces)


# -- the function -----------------------------------------------------------------------------------


class BatchNormPool(Function):
    """Y = max over windows of rectifier(weight (X - mean) / sqrt(var + eps) + bias)

    X (N, IH, IW, C), weight, bias (C,) or None -> Y (N, OH, OW, C)

    X is kept for the gradients, and the taps of the maxima.
    """

    takes_first_steps = True

    def forward(
        self,
        X: Array,
        weight: Array | None,
        bias: Array | None,
        *,
        stats: BatchStatistics,
        eps: float,
        rectifier: Rectifier | None,
        shape: PoolShape,
    ) -> Array:
        weight = filled(X, 1) if weight is None else weight
        bias = filled(X, 0) if bias is None else bias
        if not isinstance(X, np.ndarray):  # before the running statistics are written
            require_same_float("batch_norm", X)
            require_float32("batch_norm", weight, bias)
        if stats.training:
            wanted = StatisticsArguments(*stats.arrays, stats.momentum, stats.statistics)
            mean, var = channel_statistics(X, *wanted)
            stats.note_moved()
        else:
            mean, var = stats.arrays
            self.guard(*stats.running or ())  # they are read again by backward
        Y, I = batch_norm_pool(X, Columns(mean, var, weight, bias), eps, shape, rectifier)
        self.mean, self.var, self.eps, self.batch = mean, var, eps, stats.training
        self.s, self.rectifier = shape, rectifier
        self.save(X, I, weight, bias)
        return Y

    def backward(self, dY: Array) -> Any:
        X, I, weight, bias = self.saved
        given = X if self.behind is None else with_step(X, self.behind)
        columns = Columns(self.mean, self.var, weight, bias)
        return batch_norm_pool_gradients(dY, I, given, columns, self.eps, self.batch, self.s, self.rectifier)
