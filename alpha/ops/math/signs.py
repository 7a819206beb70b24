"""Signs of elements: given to those of another tensor by copysign, and as a step by heaviside."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.ops.indexing.where import where
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.elementwise import elementwise
from alpha.ops.kernel.of_two import OfTwo, floating_pair
from alpha.ops.math.comparison import relate

__all__ = ["copysign", "heaviside"]


def _copysign_slope_cpu(dx: Array, a: Array, b: Array, c: Array) -> None:
    np.copyto(dx, np.where(b == 0, 0, a * (np.copysign(b, c) / b)))


with_sign = elementwise("with_sign", "copysign(a, b)", lambda y, a, b: np.copysign(a, b, out=y), 2)
with_sign_slope = elementwise("with_sign_slope", "b == 0 ? 0 : a * (copysign(b, c) / b)", _copysign_slope_cpu, 3)


class CopySign(OfTwo):
    """Y = |A| with the sign of B   A (...), B (...) -> the broadcast shape"""

    operator, primitive = "copysign", with_sign

    def slopes(self, dY: Array, A: Array, B: Array, Y: Array) -> Any:
        yield lambda: self.run(with_sign_slope, dY, A, B)
        yield lambda: device_of(dY).zeros(dY.shape, dY.dtype)


@check_arguments
def copysign(x: AnyTensor, other: Any) -> Tensor:
    """|x| with the sign of other, with broadcasting; of integers in float32

    x (...), other (...) or a number -> the broadcast shape
    """
    return CopySign.apply(*floating_pair("copysign", x, other))


@check_arguments
def heaviside(x: AnyTensor, values: AnyTensor) -> Tensor:
    """1 where x is positive, the element of `values` where x is 0, else 0; without a gradient

    x (...), values (...) of one dtype -> the broadcast shape
    """
    if x.dtype != values.dtype:
        raise TypeError(f"heaviside: x has dtype {x.dtype.name} and values {values.dtype.name}; use .astype")
    chosen: Tensor = where(relate(x, 0, "=="), values.detach(), relate(x, 0, ">").astype(x.dtype))
    return chosen
