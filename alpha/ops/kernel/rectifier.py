"""ReLU, leaky ReLU and hardtanh: as operators, and as a part of another operator's kernel.

Their gradient needs no more than the sign of their result, or whether it is a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from alpha.autograd.first_step import FirstStep
from alpha.autograd.function import Function
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.module.module import Module
from alpha.ops.kernel.casts import HalfAlone, as_dtype
from alpha.ops.kernel.elementwise import activation, elementwise, multiply
from alpha.ops.kernel.operands import operand_of, sum_to

# -- numpy: np.where costs ten passes, because its branches are mispredicted, so arithmetic selects -----------------

TINY = 1e-30  # a number between it and 1 / TINY is neither 0 nor infinite in float32


def _drop(y: Array, a: Array, mask: Array) -> None:
    """y = mask ? 0 : a, exact for every a: the bits of a and those of 0 or -1."""
    bits = f"i{a.itemsize}"
    keep = mask.view(np.int8)
    keep -= np.int8(1)
    np.bitwise_and(a.view(bits), keep, out=y.view(bits))


def one_or(p: float, one: Array, dtype: np.dtype[Any]) -> Array:
    """one ? 1 : p"""
    if 0 <= p <= 1:
        slope = one.astype(dtype)
        return np.maximum(slope, p, out=slope)
    if 1 < p < math.inf:
        slope = np.multiply(~one, p, dtype=dtype)
        return np.maximum(slope, 1, out=slope)
    return np.where(one, dtype.type(1), dtype.type(p))


# -- as a part of other operators ---------------------------------------------------------------------


class Rectifier(NamedTuple):
    """ReLU, ReLU6 or leaky ReLU: Y = Z > 0 ? min(Z, bound) : slope Z

    Attributes:
        slope: not negative, so that Y has the sign of Z.
        bound: of Y; infinite unless the slope is 0.
    """

    slope: float = 0.0
    bound: float = math.inf

    def rectify(self, Z: Array) -> Array:
        """Y, written to Z."""
        if self.slope:
            return leaky_relu_forward(Z, p=self.slope, out=Z)
        return relu_forward(Z, out=Z) if self.bound == math.inf else hardtanh_forward(Z, p=self.bound, out=Z)

    def undo(self, Y: Array) -> Array:
        """Z, a new array, of a rectifier that loses nothing."""
        return leaky_relu_forward(Y, p=1 / self.slope)

    def gradient(self, dY: Array, Z: Array) -> Array:
        """dZ; Y has the same sign as Z and may stand for it."""
        if self.slope:
            return leaky_relu_backward(dY, Z, p=self.slope)
        return relu_backward(dY, Z) if self.bound == math.inf else hardtanh_backward(dY, Z, p=self.bound)


# where the sign of what a rectifier was given is from, see cuda/batchnorm/gradient_rows.cuh
NOT_RECTIFIED, FROM_X, FROM_Y, FROM_OUTPUT, FROM_SUM = range(5)


class RectifierStep(FirstStep):
    """dZ = rectifier.gradient(dY + other), with the sums of channels if `normalized` has what they need.

    Args:
        sign: where the sign of what the rectifier was given is from.
        maps: "X", "Y" and "residual", as far as `sign` and the sums need them, of the form of dY; of Y
            the fp16 copy may be left alone.
        normalized: of a batch normalisation: "mean", "var", "weight" and "bias" (C,), as far as there are some, and the
            numbers "eps" and "smallest"; without any, nothing is added up.
        needs_magnitude: whether the largest magnitude of dZ is asked for beside the sums, too.

    Attributes:
        half: whether Y is an fp16 copy.
        part: (2, parts, C), the sums over parts of the rows, if the step was taken and they were asked for.
    """

    def __init__(
        self,
        rectifier: Rectifier,
        sign: int,
        maps: Mapping[str, Array],
        normalized: Mapping[str, Any] | None = None,
        needs_magnitude: bool = False,
    ) -> None:
        self.rectifier, self.sign, self.maps, self.normalized = rectifier, sign, maps, normalized or {}
        self.needs_magnitude = needs_magnitude
        self.half = type(maps.get("Y")) is HalfAlone
        self.part: Array | None = None

    def fits(self, dY: Array) -> bool:
        """True if the arrays are of the dtype of dY and begin at multiples of 16 bytes."""
        dtype = dY.dtype
        for map_ in (self.other, *self.maps.values()):
            if map_ is None:
                continue
            place = map_.copy if type(map_) is HalfAlone else map_
            if map_.dtype != dtype or (place.block.address + place.offset) % 16:
                return False
        for column in self.normalized.values():
            if hasattr(column, "block") and (column.block.address + column.offset) % 16:
                return False
        return True

    @property
    def is_elementwise(self) -> bool:
        """True if dZ = rectifier.gradient(dY), which the result of the rectifier alone decides."""
        return self.sign == FROM_Y and not self.normalized and self.other is None

    @property
    def operands(self) -> dict[str, Any]:
        """Arrays and numbers of a launch."""
        slope, bound = self.rectifier
        given = {"other": self.other, "eps": 0.0, "smallest": 0.0, "slope": slope, "bound": bound}
        result = {}
        for part in (given, self.maps, self.normalized):
            for name, value in part.items():
                if type(value) is HalfAlone:
                    result[f"behind {name} magnitude"], value = value.magnitude, value.copy
                result[f"behind {name}"] = value
        return result

    def note_taken(self, part: Array | None) -> None:
        """Take note that dZ was made, and of the sums; the other gradient is not needed any more."""
        self.part, self.other, self.taken = part, None, True


class RectifierFunction(Function):
    """A function whose gradient begins with that of a rectifier, which needs no more than the output.

    The output is the last of its saved arrays.
    """

    offers_first_step = True

    @property
    def rectified_by(self) -> Rectifier | None:
        """The rectifier that makes the output; None if there is none."""
        return None

    def first_step(self) -> FirstStep | None:
        rectifier = self.rectified_by
        if rectifier is None or isinstance(self.saved[-1], np.ndarray):
            return None
        return RectifierStep(rectifier, FROM_Y, {"Y": self.saved[-1]})


# -- as operators -----------------------------------------------------------------------------------


class _Relu(RectifierFunction):
    rectified_by = Rectifier()


class _LeakyRelu(RectifierFunction):
    p: float

    @property
    def rectified_by(self) -> Rectifier | None:
        return Rectifier(self.p) if self.p > 0 else None  # a slope of 0 times inf is NaN


RELU = activation(
    "relu",
    ("a < 0 ? 0 : a", lambda y, a: np.maximum(a, 0, out=y)),  # NaN stays NaN, and so passes its gradient
    ("b <= 0 ? 0 : a", lambda dx, a, b: _drop(dx, a, b <= 0)),
    saves="output",
    base=_Relu,
)


relu_forward, relu_backward = RELU.forward, RELU.backward


def _leaky_cpu(y: Array, a: Array, p: float) -> None:
    scaled = a * a.dtype.type(p)
    if TINY < abs(p) < 1 / TINY:
        (np.maximum if p <= 1 else np.minimum)(a, scaled, out=y)
    else:  # 0 * inf is NaN, which only a <= 0 may give
        y[...] = np.where(a > 0, a, scaled)


LEAKY_RELU = activation(
    "leaky_relu",
    ("a > 0 ? a : p * a", _leaky_cpu),
    ("b > 0 ? a : p * a", lambda dx, a, b, p: np.multiply(a, one_or(p, b > 0, a.dtype), out=dx)),
    saves="output",
    base=_LeakyRelu,
)


leaky_relu_forward, leaky_relu_backward = LEAKY_RELU.forward, LEAKY_RELU.backward


LEAKY_RELU.add_rule("input", leaky_relu_backward)


def _hardtanh_gradient_cpu(dx: Array, a: Array, b: Array, p: float, q: float) -> None:
    dx[...] = np.where((b >= b.dtype.type(p)) | (b <= b.dtype.type(q)), 0, a)


HARDTANH = activation(  # p is the upper bound, q the lower one
    "hardtanh",
    ("a > p ? p : a < q ? q : a", lambda y, a, p, q: np.clip(a, a.dtype.type(q), a.dtype.type(p), out=y)),
    ("b >= p || b <= q ? 0 : a", _hardtanh_gradient_cpu),
    saves="output",
)


hardtanh_forward, hardtanh_backward = HARDTANH.forward, HARDTANH.backward


# -- with the arithmetic before it ----------------------------------------------------------------


FORM = "p == 0 ? ({z} < 0 ? 0 : {z} > q ? q : {z}) : {z} > 0 ? {z} : p * {z}"  # of Rectifier(p, q)


def _add_cpu(y: Array, a: Array, b: Array, p: float, q: float) -> None:
    Rectifier(p, q).rectify(np.add(a, b, out=y))


def _multiply_add_cpu(y: Array, a: Array, b: Array, c: Array, p: float, q: float) -> None:
    Rectifier(p, q).rectify(np.add(a * b, c, out=y))


add_rectified = elementwise("add_rectified", FORM.format(z="(a + b)"), _add_cpu, inputs=2)
multiply_add_rectified = elementwise(
    "multiply_add_rectified", FORM.format(z="(a * b + c)"), _multiply_add_cpu, inputs=3
)


class AddRectified(Function):
    """Y = rectifier(A + B)   A, B, Y (...)"""

    def forward(self, A: Array, B: Array, *, rectifier: Rectifier) -> Array:
        self.rectifier = rectifier
        Y = add_rectified(A, B, p=rectifier.slope, q=rectifier.bound)
        self.save(Y)
        return Y

    def backward(self, dY: Array) -> Any:
        dZ = self.rectifier.gradient(dY, self.saved[0])
        return dZ, dZ


class AffineRectified(Function):
    """Y = rectifier(W X + b)   X, Y (..., *D), W, b (*D)"""

    def forward(self, X: Array, W: Array, b: Array, *, rectifier: Rectifier) -> Array:
        self.rectifier, self.offset = rectifier, operand_of(b)
        Y = multiply_add_rectified(X, W, b, p=rectifier.slope, q=rectifier.bound)
        self.save(X, W) if rectifier == IDENTITY else self.save(X, W, Y)
        return Y

    def backward(self, dY: Array) -> Any:
        X, W, *result = self.saved
        dZ = self.rectifier.gradient(dY, *result) if result else dY
        dX = as_dtype(multiply(dZ, W), X.dtype) if self.needs_input_grad[0] else None
        dW = sum_to(multiply(dZ, X), operand_of(W)) if self.needs_input_grad[1] else None
        return dX, dW, sum_to(dZ, self.offset) if self.needs_input_grad[2] else None


IDENTITY = Rectifier(1.0)


class Rectified(NamedTuple):
    """Arrays of a rectifier that the gradient of batch normalisation needs: Y, or the bias to find Z again."""

    rectifier: Rectifier
    bias: Array | None
    Y: Array | HalfAlone | None


class RectifiedInput(NamedTuple):
    """An input X that a rectifier has made, where the gradient asked for is that of what the rectifier was given."""

    X: Array
    rectifier: Rectifier


class GradientParts(NamedTuple):
    """Gradient of an output that was used twice: the sum of these two, which the rule adds up on its way."""

    dY: Array
    other: Array


class KeptOutput(NamedTuple):
    """Arrays that batch normalisation has kept in place of X: Y = rectifier(Z + residual)."""

    Y: Array | HalfAlone
    residual: Array | None
    rectifier: Rectifier  # whose slope is not 0


# what the activations register: functions, and layers with what their rectifier is
FUNCTIONS: dict[Callable[..., Tensor], Rectifier] = {}
LAYERS: dict[type[Module], Callable[[Any], Rectifier | None]] = {}


def rectifier_of(activation: Callable[[Tensor], Tensor] | None) -> Rectifier | None:
    """The rectifier that a layer or a function of `alpha.nn.functional` is; None for any other activation.

    A layer whose `forward` was assigned is another activation.

    Raises:
        TypeError: the activation is neither None nor a function, for example its name.
    """
    if activation is not None and not callable(activation):
        raise TypeError(f"activation={activation!r} is no layer and no function of a tensor")
    if isinstance(activation, Module):
        of_kind = None if "forward" in vars(activation) else LAYERS.get(type(activation))
        return None if of_kind is None else of_kind(activation)
    try:
        return FUNCTIONS.get(activation)  # type: ignore[arg-type]
    except TypeError:  # a callable that has no hash
        return None
