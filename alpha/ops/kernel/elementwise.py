"""Elementwise operators: one expression for CUDA, one numpy function for cpu, the gradient rule beside them.

    add = elementwise("add", "a + b", lambda y, a, b: np.add(a, b, out=y), inputs=2)

makes a primitive on both devices. bfloat16 and float32 operands may meet (`result_type` says what they give);
what is computed with is float32. Operands `a`, `b`, `c` have the output's shape, or repeat along it (their shape is
a suffix of the output's, as a bias's is); `p`, `q`, `r` are numbers. Broadcasting of other kinds is made
by `broadcast_operands` first. Division by zero and overflow give infinities and NaN on both devices, without a warning.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha.autograd.function import Function
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.primitive import Array, Primitive, device_of, primitive
from alpha.core.tensor import Tensor
from alpha.ops.kernel.casts import (
    BLOCK,
    CUDA_TYPES,
    NUMBER_TYPES,
    DType,
    result_type,
    stream_grid,
    vector_width,
    widest_vector,
)
from alpha.ops.kernel.plan import ArrayArg, KernelLaunch, Plan, ScalarArg
from alpha.runtime import workers
from alpha.runtime.cpu import empty as cpu_empty
from alpha.runtime.cuda.array import ArrayForm

_NUMBERS = ("p", "q", "r")


def elementwise(name: str, cuda: str, cpu: Callable[..., Any], inputs: int, mask: bool = False) -> Primitive:
    """A primitive Y = f(a, b, c; p, q, r), called `f(a, .., p=, out=)`; out may be one of the operands.

    Args:
        name: unique name of the primitive.
        cuda: C++ expression of a, b, c (the operands) and p, q, r (the numbers), all of the floating type `Real`.
        cpu: `cpu(y, a, .., p, ..)` fills y from numpy chunks; y may be the memory of an operand.
        inputs: number of operands, 1 to 3.
        mask: the first operand is an array of bools; the result has the dtype of the others.
    """

    def contract(*arrays: Array, p: float = 0.0, q: float = 0.0, r: float = 0.0, out: Array | None = None) -> Array: ...

    contract.__name__ = name
    contract.__doc__ = f"Y = {cuda}, elementwise  (...) -> (...)"
    result = primitive(contract)
    result.expression, result.mask = cuda, mask
    numbers = _used_numbers(cuda)
    count = _NUMBERS.index(numbers[-1]) + 1 if numbers else 0  # how many the kernel is given; the others are zeros

    @result.impl("cpu")
    def on_cpu(*arrays: Array, p: float = 0.0, q: float = 0.0, r: float = 0.0, out: Array | None = None) -> Array:
        values = {"p": p, "q": q, "r": r}
        with np.errstate(all="ignore"):
            return _map_cpu(name, cpu, arrays, tuple([values[n] for n in numbers]), out, mask)

    @result.impl("cuda")
    def on_cuda(*arrays: Array, p: float = 0.0, q: float = 0.0, r: float = 0.0, out: Array | None = None) -> Array:
        return _map_cuda(name, cuda, arrays, (p, q, r)[:count], out, mask)

    return result


def _used_numbers(expression: str) -> tuple[str, ...]:
    words = "".join(c if c.isalnum() or c == "_" else " " for c in expression).split()
    return tuple(n for n in _NUMBERS if n in words)


def _map_cpu(
    name: str,
    function: Callable[..., Any],
    arrays: tuple[Array, ...],
    numbers: tuple[float, ...],
    out: Array | None,
    mask: bool = False,
) -> Array:
    first = arrays[0]
    dtype = result_type(name, arrays[mask:])
    if BFLOAT16 in (dtype, *[a.dtype for a in arrays[mask:]]):
        wide = [a if a.dtype == FLOAT32 else a.astype(FLOAT32) for a in arrays[mask:]]
        result = _map_cpu(name, function, (*arrays[:mask], *wide), numbers, None, mask)
        Y = cpu_empty(first.shape, dtype) if out is None else out
        Y[...] = result
        return Y
    Y = cpu_empty(first.shape, dtype) if out is None else out
    period = min(a.size for a in arrays)
    if period == 0:
        return Y
    rows = first.size // period
    if any(a.size not in (first.size, period) for a in arrays):
        function(Y, *arrays, *numbers)
        return Y
    if period == first.size and first.nbytes <= workers.CHUNK_BYTES:
        function(Y.reshape(-1), *[a.reshape(-1) for a in arrays], *numbers)
        return Y
    if period == first.size:  # no operand repeats
        flat = [a.reshape(-1) for a in arrays]
        y = Y.reshape(-1)

        def chunk(start: int, stop: int) -> None:
            function(y[start:stop], *(a[start:stop] for a in flat), *numbers)

        workers.parallel_for(first.size, workers.CHUNK_BYTES // first.itemsize, chunk)
        return Y
    table = [a.reshape(-1, period) for a in arrays]
    y2 = Y.reshape(rows, period)

    def row_chunk(start: int, stop: int) -> None:
        parts = (a if len(a) == 1 else a[start:stop] for a in table)
        function(y2[start:stop], *parts, *numbers)

    workers.parallel_for(rows, workers.CHUNK_BYTES // (period * first.itemsize), row_chunk)
    return Y


def _map_cuda(
    name: str, expression: str, arrays: tuple[Array, ...], numbers: tuple[float, ...], out: Array | None, mask: bool
) -> Array:
    first = arrays[0]
    dtype = result_type(name, arrays[mask:])
    Y = first.device.empty(first.shape, dtype) if out is None else out
    if first.size == 0:
        return Y
    forms = tuple([a.form for a in arrays])
    plan = _plan_map(name, expression, Y.dtype, forms, len(numbers), vector_width(Y, *arrays))
    named = dict(zip("abc", arrays, strict=False), Y=Y)
    if numbers:
        named.update(zip(_NUMBERS, map(NUMBER_TYPES[dtype], numbers), strict=False))
    plan.launch(first.device, named)
    return Y


NamedArray = tuple[str, int, DType]  # name, elements, dtype


@functools.lru_cache(maxsize=4096)
def _plan_map(
    name: str, expression: str, dtype: DType, operands: tuple[ArrayForm, ...], numbers: int, widest: int
) -> Plan:
    """`numbers`: how many it is given; `widest`: elements of a load, as far as the addresses allow them."""
    size = operands[0].size
    named = [(letter, form.size, form.dtype) for letter, form in zip("abc", operands, strict=False)]
    kinds = [form.dtype for form in operands]
    vector = min(widest, max(widest_vector(kind, common_period(size, named)) for kind in (dtype, *kinds)))
    number = np.dtype(NUMBER_TYPES[kinds[0]])
    values = [ScalarArg(letter, number) for letter in _NUMBERS[:numbers]]
    return Plan(name, (map_launch(expression, ("Y", size, dtype), named, vector, values),), {})


def common_period(size: int, operands: Sequence[NamedArray]) -> int:
    """The length that a vector load must divide, so that no load crosses the end of an operand that repeats."""
    return math.gcd(*(n for _, n, _ in operands if n not in (size, 1)))


def map_launch(
    expression: str, result: NamedArray, operands: Sequence[NamedArray], vector: int, numbers: Sequence[Any] = ()
) -> KernelLaunch:
    """The launch of a plan that computes `expression` of its operands a, b, c and the numbers p, q, r.

    Args:
        numbers: what the kernel takes for p, q and r, of `NUMBER_TYPES[dtype]`; those that are missing are zeros.
    """
    name, size, dtype = result
    grid, macros = stream_grid(size, vector)
    absent = 3 - len(operands)
    types = [CUDA_TYPES[kind] for _, _, kind in operands] + [CUDA_TYPES[dtype]] * absent
    return KernelLaunch(
        "elementwise/map.cu",
        "map",
        grid,
        BLOCK,
        (
            *(ArrayArg(name), *(ArrayArg(operand) for operand, _, _ in operands), *[None] * absent),
            *(np.int64(n) for n in (*(n for _, n, _ in operands), *[1] * absent, size)),
            *(*numbers, *[NUMBER_TYPES[dtype](0)] * (len(_NUMBERS) - len(numbers))),
        ),
        {
            "EXPRESSION": expression,
            "INPUTS": len(operands),
            "TYPE": CUDA_TYPES[dtype],
            **{f"TYPE_{letter}": kind for letter, kind in zip("ABC", types, strict=True)},
            **macros,
        },
    )


# -- primitives -----------------------------------------------------------------------------------

add = elementwise("add", "a + b", lambda y, a, b: np.add(a, b, out=y), 2)
subtract = elementwise("subtract", "a - b", lambda y, a, b: np.subtract(a, b, out=y), 2)
multiply = elementwise("multiply", "a * b", lambda y, a, b: np.multiply(a, b, out=y), 2)
divide = elementwise("divide", "a / b", lambda y, a, b: np.divide(a, b, out=y), 2)


def _affine_cpu(y: Array, a: Array, p: float, q: float) -> None:
    np.multiply(a, a.dtype.type(p), out=y)
    if q:
        np.add(y, a.dtype.type(q), out=y)


affine = elementwise("affine", "q == 0 ? p * a : p * a + q", _affine_cpu, 1)  # -0 + 0 would be +0
divide_by_number = elementwise("divide_by_number", "a / p", lambda y, a, p: np.divide(a, a.dtype.type(p), out=y), 1)
divide_number = elementwise("divide_number", "p / a", lambda y, a, p: np.divide(a.dtype.type(p), a, out=y), 1)


Rule = tuple[str, Callable[..., Any]]  # (CUDA expression, numpy function filling its first argument)


# a where b is not 0, else a number
unless_zero = elementwise(
    "unless_zero", "b == 0 ? p : a", lambda y, a, b, p: np.copyto(y, np.where(b == 0, a.dtype.type(p), a)), 2
)


class Activation:
    """An elementwise operator with up to two numbers: call it on a tensor, `inplace=True` writes into it.

    If the gradient reads X, an in-place call on a tensor that needs a gradient keeps a copy of X. So it saves no
    memory, but x has the new values, as in PyTorch.

    Attributes:
        forward, backward: its primitives, Y = forward(X, p=, q=) and dX = backward(dY, X or Y, p=, q=).
    """

    def __init__(self, name: str, forward: Rule, gradient: Rule, saves: str, base: type[Function]) -> None:
        if saves not in ("input", "output"):
            raise ValueError(f"{name}: saves={saves!r} is neither 'input' nor 'output'")
        self.name, self.saves, self.base = name, saves, base
        self.forward = elementwise(f"{name}_forward", *forward, inputs=1)
        self.backward = elementwise(f"{name}_backward", *gradient, inputs=2)
        self._steps: dict[tuple[str, bool], type[Function]] = {}
        self.add_rule(saves, self.backward)

    def add_rule(self, saves: str, backward: Primitive) -> None:
        """Offer a gradient that reads `saves`; a call chooses it by `saves=`."""
        run = self.forward

        class Step(Function):
            def forward(self, X: Array, *, p: float, q: float) -> Array:
                self.p, self.q = p, q
                held = X
                if self.inplace and saves == "input" and self.needs_input_grad[0]:
                    held = device_of(X).copy(X)
                Y = run(X, p=p, q=q, out=X if self.inplace else None)
                self.save(Y if saves == "output" else held)
                return Y

            def backward(self, dY: Array) -> Any:
                return dY if self.begun is not None else backward(dY, self.saved[0], p=self.p, q=self.q)

        self._steps[saves, False] = type(self.name, (Step, self.base), {"run": run})
        self._steps[saves, True] = type(f"{self.name}_", (Step, self.base), {"run": run, "inplace": True})

    def __call__(
        self, x: Tensor, p: float = 0.0, inplace: bool = False, *, q: float = 0.0, saves: str | None = None
    ) -> Tensor:
        if not is_floating(x.dtype):
            raise TypeError(f"{self.name}: x has dtype {x.dtype.name}; use .astype('float32')")
        return self._steps[saves or self.saves, bool(inplace)].apply(x, p=p, q=q)


def activation(
    name: str, forward: Rule, gradient: Rule, saves: str = "input", *, base: type[Function] = Function
) -> Activation:
    """Define an activation on both devices.

    Args:
        name: unique operator name.
        forward: (C++ expression of `a`, numpy `f(y, a)` that fills y); with numbers, `p`, `q` and `f(y, a, p, q)`.
        gradient: (C++ expression of `a` = dY and `b` = the held tensor, numpy `f(dx, a, b)`); likewise with numbers.
        saves: "input" or "output": `b` is X or Y. With "output", the in-place form saves memory where a gradient is
            needed, too.
        base: of the operators, for a first step of the gradient that they offer (alpha/autograd/first_step.py).
    """
    return Activation(name, forward, gradient, saves, base)
