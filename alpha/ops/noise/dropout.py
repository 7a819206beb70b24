"""Dropout: the mask is drawn again from its random stream in the backward pass, so it costs no memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core import rng
from alpha.core.primitive import Array, primitive
from alpha.core.rng import STREAM, Stream, stream_numbers
from alpha.core.tensor import Tensor
from alpha.ops.kernel.arguments import check_arguments
from alpha.ops.kernel.casts import BLOCK, CUDA_TYPES, NUMBER_TYPES, as_dtype, as_float32, vector_width
from alpha.ops.kernel.in_place import in_place, overwrite
from alpha.ops.kernel.options import real
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg
from alpha.ops.kernel.rectifier import IDENTITY, Rectifier, rectifier_of
from alpha.runtime.recording import StepValue

__all__ = ["dropout"]


@primitive
def dropout_apply(
    X: Array, stream: StepValue[Stream], p: float, rectifier: Rectifier | None = None, Z: Array | None = None
) -> Array:
    """Y = X / (1 - p) where the stream's uniform number is >= p, else 0, also for inf and NaN   X (...) -> Y (...)

    Args:
        rectifier: what X goes through before; None: nothing.
        Z: what the rectifier was given, if X is a gradient. The gradient of the rectifier is then applied to X.
    """


@dropout_apply.impl("cpu")
def _(
    X: Array, stream: StepValue[Stream], p: float, rectifier: Rectifier | None = None, Z: Array | None = None
) -> Array:
    if p == 1:
        return np.zeros(X.shape, X.dtype)
    words = rng.philox(*stream.now(), -(-X.size // 4)).reshape(-1)[: X.size]
    kept = (words >= threshold_of(p)).reshape(X.shape)
    wide: Array = as_float32(X)
    if rectifier is not None:
        wide = rectifier.rectify(wide.copy()) if Z is None else rectifier.gradient(wide, as_float32(Z))
    Y = np.multiply(wide, wide.dtype.type(1.0 / (1.0 - p)), out=np.empty_like(wide))
    Y[~kept] = 0
    return as_dtype(Y, X.dtype)


@dropout_apply.impl("cuda")
def _(
    X: Array, stream: StepValue[Stream], p: float, rectifier: Rectifier | None = None, Z: Array | None = None
) -> Array:
    if Z is not None and Z.dtype != X.dtype:
        raise TypeError(f"dropout: one dtype is needed, not {X.dtype.name} and {Z.dtype.name}")
    if p == 1:
        return X.device.zeros(X.shape, X.dtype)
    Y = X.device.empty(X.shape, X.dtype)
    if X.size:
        numbers, address = X.device.step_value(stream, stream_numbers)
        given = {"Y": Y, "X": X, "stream": numbers, "address": address}
        given |= {"threshold": threshold_of(p), "scale": NUMBER_TYPES[X.dtype](1.0 / (1.0 - p))}
        if Z is not None:
            given["Z"] = Z
        vector = min(4, vector_width(X, Y, *([] if Z is None else [Z])))
        _plan(X.size, X.dtype, vector, rectifier, Z is not None).launch(X.device, given)
    return Y


@functools.lru_cache(maxsize=1024)
def _plan(size: int, dtype: np.dtype[Any], vector: int, rectifier: Rectifier | None, gradient: bool) -> Plan:
    numbers = (
        *(ScalarArg("stream", STREAM), ArrayArg("address", optional=True)),
        *(ScalarArg("threshold", np.dtype(np.uint32)), ScalarArg("scale", np.dtype(NUMBER_TYPES[dtype]))),
    )
    constants = map(NUMBER_TYPES[dtype], rectifier or IDENTITY)
    launch = KernelLaunch(
        "dropout/dropout.cu",
        "dropout",
        -(-size // (4 * BLOCK)),
        BLOCK,
        (ArrayArg("Y"), ArrayArg("X"), np.int64(size), *numbers, ArrayArg("Z") if gradient else None, *constants),
        {"TYPE": CUDA_TYPES[dtype], "VECTOR": vector, "RECTIFIED": 0 if rectifier is None else 2 if gradient else 1},
    )
    return Plan("dropout", (launch,), {})


def threshold_of(p: float) -> np.uint32:
    """Words below it are dropped."""
    return np.uint32(min(0xFFFFFFFF, round(p * 2**32)))


class Dropout(Function):
    """Y = rectifier(X) mask / (1 - p)   X (...) -> Y (...)"""

    def forward(self, X: Array, *, p: float, rectifier: Rectifier | None) -> Array:
        self.p, self.rectifier = p, rectifier
        self.stream = rng.default.step_stream()
        if rectifier is not None:
            self.save(X)
        Y = dropout_apply(X, self.stream, p, rectifier)
        return overwrite(X, Y) if self.inplace else Y

    def backward(self, dY: Array) -> Any:
        return dropout_apply(dY, self.stream, self.p, self.rectifier, *self.saved)


DropoutInPlace = in_place(Dropout, "dropout")


def check_probability(operator: str, p: float, name: str = "p") -> None:
    """`ValueError` for a p that is not a probability; `name` is that of the argument."""
    if not 0 <= real(operator, name, p) <= 1:
        raise ValueError(f"{operator}: {name}={p} is not in [0, 1]")


@check_arguments
def dropout(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    activation: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Zero each element with probability p and scale the rest by 1 / (1 - p)   x (...) -> (...)

    A dropped element is 0 and has the gradient 0, whatever its value is, also inf and NaN.

    Args:
        training: False returns x itself.
        inplace: write the result into x, or into what the activation made of it.
        activation: is applied to x before: a layer or a function of one tensor. In training, the kernel of the dropout
            computes ReLU, ReLU6 and leaky ReLU of a positive slope itself.

    Raises:
        TypeError: x is not a Tensor of floating numbers.
        ValueError: p is not in [0, 1].
    """
    check_probability("dropout", p)
    drops = training and p > 0
    rectifier = rectifier_of(activation) if drops and activation is not None else None
    if activation is not None and rectifier is None:
        x = activation(x)
    if not drops:
        return x
    step = DropoutInPlace if inplace and rectifier is None else Dropout
    return step.apply(x, p=float(p), rectifier=rectifier)


def probability(operator: str, name: str, value: float) -> float:
    """Value that `check_probability` allows, as it is given."""
    check_probability(operator, value, name)
    return value
