"""Dtypes of operators in a launch: C++ types, packs per thread, checks, casts, and copies that stand for arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha.autograd.derived import Kind, ask
from alpha.autograd.memory_mode import LEAST
from alpha.autograd.memory_mode import setting as memory
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array, primitive
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty

DType = np.dtype[Any]

BLOCK = 256  # threads a block of every one-dimensional kernel
CUDA_TYPES: dict[DType, str] = {
    FLOAT32: "float",
    BFLOAT16: "bfloat16",
    np.dtype(np.float64): "double",
    np.dtype(np.int32): "int",
    np.dtype(np.int64): "long long",
    np.dtype(np.uint8): "unsigned char",
    np.dtype(np.bool_): "bool",
}
# the numpy type in which a kernel on arrays of a dtype takes its numbers
NUMBER_TYPES: dict[DType, Any] = {dtype: np.float32 if dtype == BFLOAT16 else dtype.type for dtype in CUDA_TYPES}
_STEPS = {8: 2, 4: 2, 1: 4}  # packs a thread, by elements a pack: enough loads in flight


def storage_type(dtype: DType) -> str:
    """The C++ type for kernels that move elements and compute nothing."""
    return "unsigned short" if dtype == BFLOAT16 else CUDA_TYPES[dtype]


def vector_width(*arrays: Array, along: int = 0, beside: DType = FLOAT32) -> int:
    """Neighbouring elements that a thread takes together, of an axis `along` long: 8, 4 or 1.

    Such packs are aligned in every array and divide the axis; 8, where one of the arrays is bfloat16: 16 bytes of it.
    Beside them there may be an array of the dtype `beside` that begins an allocation.
    """
    addresses, has_16_bits = 0, beside.itemsize == 2
    for array in arrays:
        addresses |= array.block.address + array.offset  # `address`, without a call
        has_16_bits |= array.dtype.itemsize == 2
    for pack in (8, 4) if has_16_bits else (4,):
        if along % pack == 0 and (
            addresses % 16 == 0  # more than any needs, and nearly always so
            or all(a.address % min(16, pack * a.dtype.itemsize) == 0 for a in arrays)
        ):
            return pack
    return 1


def widest_vector(dtype: DType, along: int) -> int:
    """`vector_width` of arrays that begin an allocation."""
    return next((pack for pack in ((8, 4) if dtype.itemsize == 2 else (4,)) if along % pack == 0), 1)


def stream_grid(size: int, vector: int) -> tuple[int, dict[str, int | str]]:
    """Blocks, and macros, of a kernel that goes through `size` elements once."""
    steps = _STEPS[vector]
    index = "unsigned" if size < 2**31 else "unsigned long long"
    macros: dict[str, int | str] = {"VECTOR": vector, "STEPS": steps, "INDEX": index}
    return -(-size // (BLOCK * vector * steps)), macros


def require_floating(operator: str, dtype: DType) -> None:
    """`TypeError` for integers and bools, with which most operators compute on no device."""
    if not is_floating(dtype):
        raise TypeError(f"{operator}: the tensor has dtype {dtype.name}; use .astype('float32')")


def require_float32(operator: str, *arrays: Array) -> None:
    """`TypeError` where an array is not float32, the type of the larger cuda kernels."""
    for array in arrays:
        if array.dtype is not FLOAT32 and array.dtype != FLOAT32:  # nearly always the same object
            raise TypeError(f"{operator}: cuda computes in float32, not {array.dtype.name}")


def require_same_float(operator: str, *arrays: Array) -> None:
    """`TypeError` where the arrays are not all float32 or all bfloat16."""
    first = arrays[0].dtype
    for array in arrays:
        if array.dtype is not FLOAT32:
            break
    else:
        return  # nearly always
    if first != BFLOAT16:
        require_float32(operator, *arrays)
        return
    for array in arrays:
        if array.dtype is not first and array.dtype != first:
            names = ", ".join(array.dtype.name for array in arrays)
            raise TypeError(f"{operator}: one dtype is needed, not {names}")


def result_type(operator: str, arrays: Sequence[Array]) -> DType:
    """The dtype of what is computed from the arrays: theirs, or float32 if float32 and bfloat16 meet.

    Arrays of no axes do not count if one has axes. `TypeError` for other dtypes that differ.
    """
    first: DType = arrays[0].dtype
    for array in arrays:
        if array.dtype is not first and array.dtype != first:
            _require_mixable(operator, [array.dtype for array in arrays])
            counting = [array for array in arrays if array.ndim] or arrays
            return FLOAT32 if FLOAT32 in [array.dtype for array in counting] else BFLOAT16
    return first


def _require_mixable(operator: str, dtypes: Sequence[DType]) -> None:
    if set(dtypes) != {FLOAT32, BFLOAT16}:
        names = " and ".join(dtype.name for dtype in dtypes)
        raise TypeError(f"{operator}: dtypes {names} differ; use .astype")


@primitive
def cast(X: Array, dtype: DType, scale: float, shift: float) -> Array:
    """Y = scale X + shift in another dtype   X (...) -> Y (...)"""


@cast.impl("cpu")
@np.errstate(all="ignore")
def _(X: Array, dtype: DType, scale: float, shift: float) -> Array:
    Y = cpu_empty(X.shape, dtype)
    x, y = X.reshape(-1), Y.reshape(-1)

    def chunk(start: int, stop: int) -> None:
        if scale == 1.0 and shift == 0.0:
            y[start:stop] = x[start:stop]
        elif dtype == BFLOAT16:
            y[start:stop] = x[start:stop].astype(FLOAT32) * np.float32(scale) + np.float32(shift)
        else:
            np.multiply(x[start:stop], dtype.type(scale), out=y[start:stop], dtype=dtype)
            y[start:stop] += dtype.type(shift)

    workers.parallel_for(X.size, workers.CHUNK_BYTES // dtype.itemsize, chunk)
    return Y


@cast.impl("cuda")
def _(X: Array, dtype: DType, scale: float, shift: float) -> Array:
    for kind in (X.dtype, dtype):
        if kind not in CUDA_TYPES:
            known = ", ".join(t.name for t in CUDA_TYPES)
            raise TypeError(f"cast: cuda has no {kind.name} ({known})")
    Y = X.device.empty(X.shape, dtype)
    _cast_into(X, Y, scale, shift)
    return Y


def _cast_into(X: Array, Y: Array, scale: float = 1.0, shift: float = 0.0) -> None:
    """Y = scale X + shift on a GPU, whatever lay in Y before."""
    if X.size:
        affine = (scale, shift) != (1.0, 0.0)
        plan = _plan_cast(X.size, X.dtype, Y.dtype, vector_width(X, Y), affine)
        number = NUMBER_TYPES[Y.dtype]
        plan.launch(X.device, {"X": X, "Y": Y, "scale": number(scale), "shift": number(shift)})


def _room_for_copies(weights: list[Array]) -> list[Array]:
    return [weight.device.empty(weight.shape, BFLOAT16) for weight in weights]


COPY = Kind("bfloat16", _room_for_copies, _cast_into)  # of a float32 array, in the same shape


@functools.lru_cache(maxsize=4096)
def _plan_cast(size: int, dtype: DType, wanted: DType, vector: int, affine: bool) -> Plan:
    return Plan("cast", (cast_launch("X", "Y", size, dtype, wanted, vector, affine),), {})


def cast_launch(
    source: str, result: str, size: int, dtype: DType, wanted: DType, vector: int = 4, affine: bool = False
) -> KernelLaunch:
    """The launch of a plan that writes an array in another dtype; if `affine`, scale X + shift, two of its operands."""
    # no wider: neighbouring threads read and write neighbouring words of the larger type
    grid, macros = stream_grid(size, min(4, vector))
    number = NUMBER_TYPES[wanted]
    scale, shift = number(1), number(0)
    if affine:
        scale, shift = ScalarArg("scale", np.dtype(number)), ScalarArg("shift", np.dtype(number))
    return KernelLaunch(
        "elementwise/cast.cu",
        "cast",
        grid,
        BLOCK,
        (ArrayArg(result), ArrayArg(source), np.int64(size), scale, shift),
        {"FROM": CUDA_TYPES[dtype], "TO": CUDA_TYPES[wanted], "AFFINE": int(affine), **macros},
    )


def as_dtype(X: Array, dtype: DType) -> Array:
    """X itself where it has that dtype, else a copy in it."""
    return X if X.dtype == dtype else cast(X, dtype, 1.0, 0.0)


def as_float32(X: Array) -> Array:
    """X, in float32 where it is bfloat16."""
    return cast(X, FLOAT32, 1.0, 0.0) if X.dtype == BFLOAT16 else X


def product_type(operator: str, precision: str, a: DType, b: DType, on_cuda: bool) -> DType:
    """The dtype of a product: bfloat16 with "bf16" on cuda, and if one of the operands is so; else theirs.

    Tensor cores multiply operands of one dtype, and parameters are float32, so bfloat16 decides; not as in a sum.
    """
    if a is not b and a != b:
        _require_mixable(operator, (a, b))
        return BFLOAT16
    return BFLOAT16 if on_cuda and precision == "bf16" and a == FLOAT32 else a


def cast_operands(operator: str, precision: str, A: Array, B: Array) -> tuple[Array, Array]:
    """The operands of a product in that precision, in the dtype of the product; they are only read."""
    dtype = product_type(operator, precision, A.dtype, B.dtype, not isinstance(A, np.ndarray))
    return _operand(A, dtype), _operand(B, dtype)


def _operand(X: Array, dtype: DType) -> Array:
    """X in a dtype: itself, the copy that an optimizer keeps of a weight, or a new one.

    In the memory mode "least" no copy is kept from the update to the next forward pass.
    """
    if X.dtype == dtype:
        return X
    may_be_kept = dtype == BFLOAT16 and not isinstance(X, np.ndarray) and memory.name != LEAST
    copy = ask(X, COPY).read() if may_be_kept else None
    return cast(X, dtype, 1.0, 0.0) if copy is None else copy


class HalfAlone:
    """An array of floats of which the fp16 copy alone is there; it stands for the array as an operand.

    Args:
        array: the one that is left out, or another one of its device, shape and dtype if it was never made.
        magnitude: its magnitude, with the copy beside it, which others may drop.

    Attributes:
        copy: the copy (...), uint16.
        block, offset, nbytes: the memory of the copy, as of any array.
    """

    def __init__(self, array: Array, magnitude: Array) -> None:
        self.device, self.shape, self.dtype = array.device, array.shape, array.dtype
        self.magnitude = magnitude.reshape(magnitude.shape)  # an object of its own
        self.magnitude.limit, self.magnitude.half = magnitude.limit, magnitude.half
        self.copy: Array = magnitude.half
        self.block, self.offset, self.nbytes = self.copy.block, self.copy.offset, self.copy.nbytes
