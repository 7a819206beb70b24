"""Elementwise functions of one tensor with a gradient rule, made from expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpha.autograd.function import Function
from alpha.core.numerics import is_floating
from alpha.core.primitive import Array, Primitive
from alpha.core.tensor import Tensor
from alpha.ops.kernel.elementwise import elementwise

Rule = tuple[str, Callable[..., Any]]  # (CUDA expression, numpy function filling its first argument)


class Activation:
    """An elementwise operator with up to two numbers: call it on a tensor, `inplace=True` writes into it.

    If the gradient reads X, an in-place call on a tensor that needs a gradient keeps a copy of X. So it saves no
    memory, but x has the new values, as in PyTorch.

    Attributes:
        forward, backward: its primitives, Y = forward(X, p=, q=) and dX = backward(dY, X or Y, p=, q=).
    """

    def __init__(self, name: str, forward: Rule, gradient: Rule, holds: str) -> None:
        if holds not in ("X", "Y"):
            raise ValueError(f"{name}: holds={holds!r} is neither 'X' nor 'Y'")
        self.name, self.holds = name, holds
        self.forward = elementwise(f"{name}_forward", *forward, inputs=1)
        self.backward = elementwise(f"{name}_backward", *gradient, inputs=2)
        self._steps: dict[tuple[str, bool], type[Function]] = {}
        self.add_rule(holds, self.backward)

    def add_rule(self, holds: str, backward: Primitive) -> None:
        """Offer a gradient that reads `holds`; a call chooses it by `holds=`."""
        run = self.forward

        class Step(Function):
            def forward(self, X: Array, *, p: float, q: float) -> Array:
                self.p, self.q = p, q
                held = X
                if self.inplace and holds == "X" and self.needs[0]:
                    held = Tensor(X).device.copy(X)
                Y = run(X, p=p, q=q, out=X if self.inplace else None)
                self.save(Y if holds == "Y" else held)
                return Y

            def backward(self, dY: Array) -> Any:
                return backward(dY, self.saved[0], p=self.p, q=self.q)

        self._steps[holds, False] = type(self.name, (Step,), {})
        self._steps[holds, True] = type(f"{self.name}_", (Step,), {"inplace": True})

    def __call__(
        self, x: Tensor, p: float = 0.0, inplace: bool = False, *, q: float = 0.0, holds: str | None = None
    ) -> Tensor:
        if not is_floating(x.dtype):
            raise TypeError(f"{self.name}: x has dtype {x.dtype.name}; use .astype('float32')")
        return self._steps[holds or self.holds, bool(inplace)].apply(x, p=p, q=q)


def activation(name: str, forward: Rule, gradient: Rule, holds: str = "X") -> Activation:
    """Define an activation on both devices.

    Args:
        name: unique operator name.
        forward: (C++ expression of `a`, numpy `f(y, a)` that fills y); with numbers, `p`, `q` and `f(y, a, p, q)`.
        gradient: (C++ expression of `a` = dY and `b` = the held tensor, numpy `f(dx, a, b)`); likewise with numbers.
        holds: "X" or "Y", what `b` is. With "Y", the in-place form saves memory where a gradient is needed, too.
    """
    return Activation(name, forward, gradient, holds)
