"""A convolution and the batch normalisation of its result in training, as one plan on a GPU.

The launches and the nodes of the graph are those of the two operators one after the other. A step without
`alpha.capture` waits less for Python.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.memory_mode import FAST
from alpha.autograd.memory_mode import setting as memory
from alpha.core.numerics import BFLOAT16, get_precision, is_floating
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.conv2d import Conv2d, conv2d_forward
from alpha.ops.conv2d.channel_statistics import StatisticsArguments
from alpha.ops.conv2d.launch import prepare
from alpha.ops.conv2d.magnitudes import HALVES, forget_stale_magnitude, found_beside, magnitude_of, with_magnitude
from alpha.ops.conv2d.problem import FORWARD, WITH_STATISTICS, Given
from alpha.ops.conv2d.shape import ConvShape
from alpha.ops.convolution.conv_arguments import Padding, axes_of
from alpha.ops.convolution.whole import shape_of_kernels
from alpha.ops.kernel.casts import product_type, require_float32, require_same_float, vector_width, widest_vector
from alpha.ops.kernel.options import Lengths
from alpha.ops.kernel.plan import Plan
from alpha.ops.kernel.rectifier import Rectifier
from alpha.ops.normalization.batch_norm import BatchNorm, may_write_half
from alpha.ops.normalization.batch_norm_cuda import plan_apply, plan_merge, plan_statistics
from alpha.ops.normalization.batch_norm_primitives import BatchStatistics, batch_norm_training
from alpha.runtime.cuda.cuda_device import CudaDevice


class Normalization(NamedTuple):
    """Normalisation of the convolution's result: the arguments of `batch_norm_training` after X.

    Attributes:
        wanted: the running statistics.
        weight, bias: (C,)
        residual: (..., C), is added before the rectifier; None: nothing.
        smallest: a weight nearer to 0 counts as that.
    """

    wanted: StatisticsArguments
    weight: Array
    bias: Array
    eps: float
    residual: Array | None
    rectifier: Rectifier | None
    smallest: float


def convolved_and_normalized(
    X: Array, W: Array, s: ConvShape, precision: str, b: Array | None, n: Normalization
) -> tuple[Array, Array, Array, Array]:
    """Z = X * W + b, and `batch_norm_training` of Z: Z, Y, mean, var."""
    if isinstance(X, np.ndarray):
        Z = conv2d_forward(X, W, s, precision, b)
        return Z, *batch_norm_training(Z, *n)
    first, given = prepare(FORWARD, (X, W), s, precision, b, also=WITH_STATISTICS)
    made = first.outputs["Y"]
    operands = {"weight": n.weight, "offset": n.bias}
    running_mean, running_var, momentum, _ = n.wanted
    require_float32("batch_norm", n.weight, n.bias)
    if running_mean is not None:
        require_float32("batch_norm", running_mean, running_var)
    if n.residual is not None:
        require_same_float("batch_norm", made, n.residual)
        operands["residual"] = n.residual
    vector = vector_width(*operands.values(), along=s.OC, beside=made.dtype)
    beside = found_beside(X, made.shape, vector, n.residual)
    if n.residual is not None:
        operands["residual limit"] = n.residual.magnitude
    facts = X.device.properties.num_sms, vector, n.residual is not None, n.rectifier, beside
    numbers = {"running_mean": running_mean, "running_var": running_var, "momentum": momentum, "eps": float(n.eps)}
    numbers["smallest"] = n.smallest
    found = _joined(first, *facts).launch(X.device, {**given, **operands, **numbers})
    return found["Z"], with_magnitude(found["Y"], found), found["mean"], found["var"]


@functools.lru_cache(maxsize=4096)
def _joined(first: Plan, num_sms: int, vector: int, residual: bool, rectifier: Rectifier | None, beside: Given) -> Plan:
    """The plan of a convolution, and then those of batch normalisation on its result, here with the name Z.

    The channel statistics that the convolution computes, if it can, are workspaces.
    """
    made = first.outputs["Y"]
    R, C = math.prod(made.shape[:-1]), made.shape[-1]
    own = widest_vector(made.dtype, C)
    workspaces = {name: buffer for name, buffer in first.outputs.items() if name != "Y"}
    if "statistics" in workspaces:
        stats = plan_merge(R, C, made.dtype, own, workspaces["statistics"].shape[1], beside == Given.HALF)
    else:
        stats = plan_statistics(R, C, made.dtype, own, num_sms, beside == Given.HALF)
    apply = plan_apply(made.shape, made.dtype, vector, residual, rectifier, beside)
    names = {"X": "Z", "bias": "offset", "part": "statistics", "counts": "statistics_counts"}
    renamed = [launch.renamed({"Y": "Z"}) for launch in first.launches]
    renamed += [launch.renamed(names) for launch in (*stats.launches, *apply.launches)]
    workspaces |= {names[name]: buffer for name, buffer in stats.workspaces.items()}
    outputs = {"Z": made, **stats.outputs, **apply.outputs}
    assert not first.workspaces.keys() & (workspaces.keys() | outputs.keys()), "two arrays of one name"
    if beside != Given.NOTHING:
        outputs["magnitude"] = replace(outputs["magnitude"], beside="mean")
    return Plan(
        f"{first.name}, batch_norm",
        tuple(renamed),
        outputs,
        {**first.workspaces, **workspaces},
        first.reason,
        first.cycles,
    )


def conv_batch_norm(
    operands: tuple[Tensor, Tensor, Tensor | None],
    sizes: tuple[Lengths, Padding, Lengths],
    groups: int,
    affine: tuple[Tensor, Tensor],
    stats: BatchStatistics,
    eps: float,
    residual: Tensor | None,
    rectifier: Rectifier | None,
) -> Tensor | None:
    """rectifier(batch_norm(conv2d(x, weight, bias)) + residual), with the statistics of the batch

    x (N, IH, IW, IC), weight (OC, FH, FW, IC / groups), bias, affine (OC,), residual and result (N, OH, OW, OC)

    Args:
        operands: x, weight and bias of the convolution.
        sizes: its stride, padding and dilation.
        affine: weight and bias of the batch normalisation.

    Returns:
        None if the two operators must be called one after the other: to compute it in another way, or to refuse it.
    """
    given = *affine, residual
    arrays = [None if tensor is None else tensor.array for tensor in (*operands, *given, *(stats.running or ()))]
    forms = tuple([None if X is None else (getattr(X, "device", None), X.shape, X.dtype) for X in arrays])
    shape = _shape_of_kernels(forms, sizes, groups, get_precision())
    if shape is None:
        return None
    conv, norm = Conv2d(), BatchNorm()
    (X, W, b), tensors = conv.take(operands)
    (weight, bias, added), others = norm.take(given)
    X, W = conv.begin(X, W, b, shape, 1.0, magnitude_of(operands[0]))
    wanted = StatisticsArguments(*stats.arrays, stats.momentum)
    smallest, made = 0.0, X.dtype
    if memory.name != FAST:
        made = product_type("conv2d", conv.precision, X.dtype, W.dtype, not isinstance(X, np.ndarray))
        smallest = norm.begin(made, rectifier, residual is not None)
    # as one after the other, which ask the node of z: there is none without a gradient
    half = conv.next_reads_half and True in conv.needs_input_grad
    half = half and may_write_half(made, rectifier, residual is not None)
    if half and residual is not None:
        forget_stale_magnitude(residual)
    n = Normalization(wanted, weight, bias, eps, added, rectifier, smallest)
    token = HALVES.set(Given.HALF if half else Given.MAGNITUDE)
    try:
        with conv.magnitudes:
            Z, Y, norm.mean, norm.var = convolved_and_normalized(X, W, shape, conv.precision, b, n)
    finally:
        HALVES.reset(token)
    stats.note_moved()
    conv.has_statistics = True
    conv.keep(X, W, Z)
    z = conv.give(Z, operands, tensors)
    norm.needs_input_grad = (z._requires_grad, *norm.needs_input_grad)
    norm.eps, norm.batch = eps, True
    norm.keep(Z, weight, bias, Y, added is not None, rectifier)
    return norm.give(Y, (z, *given), (z, *others))


Form = tuple[Any, tuple[int, ...], np.dtype[Any]]  # device, shape and dtype of an array


@functools.lru_cache(maxsize=4096)
def _shape_of_kernels(
    forms: tuple[Form | None, ...], sizes: tuple[Lengths, Padding, Lengths], groups: int, precision: str
) -> ConvShape | None:
    """The shape of the convolution, if arrays of these forms can be convolved and normalised together."""
    x, weight, bias, gamma, beta, residual, *running = forms
    assert x is not None
    assert weight is not None
    arrays = [form for form in forms if form is not None]
    if any(device != x[0] or not is_floating(dtype) for device, _, dtype in arrays) or len(x[1]) != 4:
        return None
    c = axes_of("conv2d", x[1], weight[1], sizes, groups)
    if any(form is not None and (form[1] != (c.OC,) or form[2] == BFLOAT16) for form in (bias, gamma, beta, *running)):
        return None
    on_cuda = isinstance(x[0], CudaDevice)
    shape = shape_of_kernels(c, "cuda" if on_cuda else "cpu")
    if shape is None or math.prod(shape.Y[:-1]) < 2:
        return None
    made = product_type("conv2d", precision, x[2], weight[2], on_cuda)
    return None if residual is not None and residual[1:] != (shape.Y, made) else shape
