"""Arrays repeated along axes of length 1, unless an elementwise kernel can repeat them itself."""

from __future__ import annotations

import functools
import math

import numpy as np

from alpha.core.primitive import Array, primitive
from alpha.errors import ShapeError
from alpha.ops.kernel.casts import BLOCK, DType, storage_type, stream_grid, vector_width, widest_vector
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan
from alpha.runtime.cpu import empty as cpu_empty


@primitive
def broadcast_to(X: Array, shape: tuple[int, ...]) -> Array:
    """Repeat X along axes of length 1 (and new leading axes)   X (...) -> Y shape"""


@broadcast_to.impl("cpu")
def _(X: Array, shape: tuple[int, ...]) -> Array:
    Y = cpu_empty(shape, X.dtype)
    Y[...] = X
    return Y


@broadcast_to.impl("cuda")
def _(X: Array, shape: tuple[int, ...]) -> Array:
    Y = X.device.empty(shape, X.dtype)
    if Y.size:
        _plan_broadcast(X.shape, shape, X.dtype, vector_width(X), vector_width(Y)).launch(X.device, {"X": X, "Y": Y})
    return Y


@functools.lru_cache(maxsize=4096)
def _plan_broadcast(source: tuple[int, ...], target: tuple[int, ...], dtype: DType, of_x: int, of_y: int) -> Plan:
    """`of_x`, `of_y`: elements of a load or a store, as far as the addresses allow them."""
    axes = broadcast_axes(source, target)
    if len(axes) > 6:
        raise ShapeError(f"broadcast_to: more than 6 axes  (X {source}, Y {target})")
    table = np.zeros((), _BROADCAST_AXES)
    table["length"][: len(axes)] = [length for length, _ in axes]
    table["stride"][: len(axes)] = [stride for _, stride in axes]
    length, stride = axes[-1]
    vector = min(of_x if stride else of_y, of_y, widest_vector(dtype, length))
    size = math.prod(target)
    macros = stream_grid(size, vector)[1]
    launch = KernelLaunch(
        "elementwise/broadcast.cu",
        "broadcast",
        -(-size // (BLOCK * vector)),
        BLOCK,
        (ArrayArg("Y"), ArrayArg("X"), np.int64(size), table[()]),
        {"TYPE": storage_type(dtype), "AXES": len(axes), "VECTOR": vector, "INDEX": macros["INDEX"]},
    )
    return Plan("broadcast_to", (launch,), {})


_BROADCAST_AXES = np.dtype([("length", np.int64, 6), ("stride", np.int64, 6)], align=True)


def broadcast_axes(source: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[int, int]]:
    """(length, stride in X) of the axes of Y; neighbours that both repeat, or both do not, are one."""
    padded = (1,) * (len(target) - len(source)) + source
    axes: list[tuple[int, int]] = []  # innermost first
    step = 1
    for length, own in zip(reversed(target), reversed(padded), strict=True):
        if length == 1:
            continue
        stride = step if own > 1 else 0
        if axes and (axes[-1][1] > 0) == (stride > 0):
            axes[-1] = (axes[-1][0] * length, axes[-1][1])
        else:
            axes.append((length, stride))
        step *= own
    return axes[::-1] or [(1, 0)]


def broadcast_operands(name: str, *arrays: Array) -> tuple[Array, ...]:
    """The operands so that the first has the common shape, and the others have it or repeat along it."""
    first = arrays[0].shape
    if all([array.shape == first for array in arrays]):
        return arrays
    try:
        shape = np.broadcast_shapes(*[array.shape for array in arrays])
    except ValueError:
        shapes = " and ".join(str(tuple(array.shape)) for array in arrays)
        raise ShapeError(f"{name}: shapes {shapes} do not broadcast") from None
    return tuple([_repeatable(array, shape, whole=i == 0) for i, array in enumerate(arrays)])


def _repeatable(x: Array, shape: tuple[int, ...], whole: bool) -> Array:
    if tuple(x.shape) == shape:
        return x
    core = tuple(x.shape)
    while core and core[0] == 1:
        core = core[1:]
    if not whole and (core == shape[len(shape) - len(core) :] and math.prod(core) > 0):
        return x
    return broadcast_to(x, shape)
