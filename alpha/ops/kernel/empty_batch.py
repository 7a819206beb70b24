"""The result of an operator on a batch of 0 images: no kernel has anything to compute."""

from __future__ import annotations

from typing import Any

from alpha.autograd.function import Function
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor


class NoImages(Function):
    """Y without elements   X (0, *I, C), weights that may be None -> Y (0, *O, C) of the given shape

    The gradients of the weights are 0.
    """

    def forward(self, X: Array, *weights: Array | None, shape: tuple[int, ...]) -> Array:
        self.forms = [None if A is None else (A.shape, A.dtype) for A in (X, *weights)]
        return Tensor(X).device.empty(shape, X.dtype)

    def backward(self, dY: Array) -> Any:
        zeros = Tensor(dY).device.zeros
        pairs = zip(self.forms, self.needs, strict=True)
        return [zeros(*form) if needed and form is not None else None for form, needed in pairs]
