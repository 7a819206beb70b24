"""Finite numbers in place of NaN and of infinities: nan_to_num."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array, device_of
from alpha.core.tensor import Tensor
from alpha.ops.indexing.where import select
from alpha.ops.kernel.arguments import AnyTensor, check_arguments
from alpha.ops.kernel.elementwise import elementwise, subtract
from alpha.ops.kernel.operands import NUMBERS
from alpha.ops.math.comparison import compare

__all__ = ["nan_to_num"]

LARGEST = {BFLOAT16: (2 - 2.0**-7) * 2.0**127, **{t: float(np.finfo(t).max) for t in (FLOAT32, np.dtype(np.float64))}}


def _finite_cpu(y: Array, a: Array, p: float, q: float, r: float) -> None:
    number = a.dtype.type
    np.copyto(y, np.where(np.isfinite(a), a, np.where(a > 0, number(q), np.where(a < 0, number(r), number(p)))))


# a - a is NaN unless a is finite
made_finite = elementwise("made_finite", "a - a == 0 ? a : a > 0 ? q : a < 0 ? r : p", _finite_cpu, 1)


class NanToNum(Function):
    """Y = X with numbers in place of NaN and of infinities   X (...) -> Y (...)"""

    def forward(self, X: Array, *, p: float, q: float, r: float) -> Array:
        self.save(X)
        return made_finite(X, p=p, q=q, r=r)

    def backward(self, dY: Array) -> Any:
        (X,) = self.saved
        zero = device_of(dY).zeros((), X.dtype)
        finite = compare(subtract(X, X), zero, "==")
        return select(finite, dY, zero, out=None)


@check_arguments
def nan_to_num(
    x: AnyTensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with numbers in place of NaN and of infinities, whose gradient is 0   x (...) -> (...)

    Args:
        nan: None is 0.
        posinf, neginf: by default the largest and the least number of the dtype.
    """
    if not is_floating(x.dtype):
        return x.clone()
    most = LARGEST[x.dtype]
    numbers = {"nan": (nan, 0.0), "posinf": (posinf, most), "neginf": (neginf, -most)}
    for name, (number, _) in numbers.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, NUMBERS)):
            raise TypeError(f"nan_to_num: {name}={number!r} is not a number")
    p, q, r = (usual if number is None else float(number) for number, usual in numbers.values())
    return NanToNum.apply(x, p=p, q=q, r=r)
