"""Rounding of float32 in an expression: each operator rounds, and passes on what its operands have lost.

`bound` evaluates the C++ expression of an elementwise primitive in float64, and beside each number how far float32 may
be from it. It needs the error of each elementary function, which ULPS states once; all else follows from the
expression: that `b * b - 1` cancels near 1, for example. A contraction to FMA rounds less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

UNIT = 2.0**-24  # what one rounding to float32 may lose, relatively
TINY = 2.0**-126  # the smallest normal number; below it an absolute error remains
SPREAD = 3  # points of an interval at which a function is evaluated

# Units in the last place of the largest error over all of float32: the larger one of CUDA's math library (CUDA C++
# Programming Guide, mathematical functions) and of numpy's vector loops, 4 where numpy says no less.
ULPS: dict[str, float] = {
    **{"sqrt": 0.5, "fabs": 0, "fmax": 0, "copysign": 0, "ceil": 0, "floor": 0, "rint": 0, "trunc": 0},
    **{"exp": 4, "exp2": 4, "expm1": 4, "log": 4, "log2": 4, "log10": 4, "log1p": 4},
    **{"sin": 4, "cos": 4, "tan": 4, "asin": 4, "acos": 4, "atan": 4, "atan2": 4, "hypot": 4},
    **{"sinh": 4, "cosh": 4, "tanh": 4, "asinh": 4, "acosh": 4, "atanh": 4},
    **{"pow": 9, "erf": 4, "erfc": 4},
}


def _of_numbers(name: str) -> Callable[..., Any]:
    return np.vectorize(getattr(math, name), otypes=[float])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("sqrt", "fabs", "fmax", "copysign", "ceil", "floor", "rint", "trunc")},
    **{
        name: getattr(np, name)
        for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan")
    },
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    **{name: getattr(np, name) for name in ("sinh", "cosh", "tanh", "hypot")},
    "pow": np.power,
    "erf": _of_numbers("erf"),
    "erfc": _of_numbers("erfc"),
}

# the functions of cuda/elementwise/functions.cuh: their parameters, and what they compute in float32
_PHI, _GATE = "0.5 * erfc(-0.7071067811865476 * x)", "tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))"
_SHARE = "(1 / (1 + exp(-x)))"
DEFINED: dict[str, tuple[str, str]] = {
    "softplus": ("x k t", "k * x > t ? x : (k * x > 0 ? k * x + log1p(exp(-(k * x))) : log1p(exp(k * x))) / k"),
    "softplus_gradient": ("y x k t", "k * x > t ? y : y * ((k * x < 0 ? exp(k * x) : 1) / (1 + exp(-fabs(k * x))))"),
    "gelu": ("x", f"x * ({_PHI})"),
    "gelu_slope": ("x", f"{_PHI} + x * (0.3989422804014327 * exp(-0.5 * x * x))"),
    "gelu_tanh": ("x", f"0.5 * x * (1 + {_GATE})"),
    "gelu_tanh_slope": (
        "x",
        f"0.5 * (1 + {_GATE}) + 0.5 * x * (1 - {_GATE} * {_GATE}) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x)",
    ),
    "silu_gradient": ("y x", f"y * {_SHARE} * (1 + x * (1 - {_SHARE}))"),
    "mish_gradient": (
        "y x",
        f"y * (tanh(log1p(exp(x))) + x * {_SHARE} * (1 - tanh(log1p(exp(x))) * tanh(log1p(exp(x)))))",
    ),
}


@dataclass(frozen=True)
class Rounded:
    """Numbers in float64, and how far they may be from those of float32."""

    value: np.ndarray
    error: np.ndarray

    @classmethod
    def exact(cls, value: Any) -> Rounded:
        array = np.asarray(value, np.float64)
        return cls(array, np.zeros_like(array))

    def rounded(self, units: float = 1.0) -> Rounded:
        """Numbers, with what rounding them loses."""
        return Rounded(self.value, self.error + units * (UNIT * np.abs(self.value) + UNIT * TINY))

    def __neg__(self) -> Rounded:
        return Rounded(-self.value, self.error)

    def __add__(self, other: Rounded) -> Rounded:
        return Rounded(self.value + other.value, self.error + other.error).rounded()

    def __sub__(self, other: Rounded) -> Rounded:
        return self + -other

    def __mul__(self, other: Rounded) -> Rounded:
        error = abs(self.value) * other.error + abs(other.value) * self.error + self.error * other.error
        return Rounded(self.value * other.value, error).rounded()

    def __truediv__(self, other: Rounded) -> Rounded:
        value = self.value / other.value
        least = np.abs(other.value) - other.error  # of the divisor; none if it may be 0
        error = np.where(least > 0, (self.error + np.abs(value) * other.error) / least, np.inf)
        exact = (self.error == 0) & (other.error == 0)
        return Rounded(value, np.where(exact, 0, error)).rounded()


def apply(name: str, operands: list[Rounded]) -> Rounded:
    """A function of numbers that are not exact: its own error, and how it varies over what they may be."""
    function = FUNCTIONS[name]
    value = function(*[x.value for x in operands])
    error = np.zeros_like(value)
    for i, operand in enumerate(operands):
        if (operand.error > 0).any():
            for step in np.linspace(-1, 1, SPREAD):
                moved = [x.value + step * x.error * (i == j) for j, x in enumerate(operands)]
                moved = [np.where(np.isfinite(m), m, x.value) for m, x in zip(moved, operands, strict=True)]
                difference = np.abs(function(*moved) - value)
                error = np.maximum(error, np.where(np.isnan(difference), np.inf, difference))
    return Rounded(value, error).rounded(2 * ULPS[name])  # a unit in the last place is at most 2 UNIT


def choose(truth: tuple[np.ndarray, np.ndarray], yes: Rounded, no: Rounded) -> Rounded:
    """yes or no, by (whether it holds, whether rounding may turn it): then it may be the other one."""
    holds, unsure = truth
    value, error = np.where(holds, yes.value, no.value), np.where(holds, yes.error, no.error)
    other = np.abs(yes.value - no.value) + np.maximum(yes.error, no.error)
    return Rounded(value, np.where(unsure, other, error))


def compare(sign: str, a: Rounded, b: Rounded) -> tuple[np.ndarray, np.ndarray]:
    relation = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
    relation |= {"==": np.equal, "!=": np.not_equal}  # type: ignore[dict-item]
    margin = a.error + b.error
    return relation[sign](a.value, b.value), (margin > 0) & (np.abs(a.value - b.value) <= margin)


TOKEN = re.compile(r"\s*(\d+\.?\d*(?:e[-+]?\d+)?|\w+|&&|\|\||[<>=!]=|.)")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
Truth = tuple[np.ndarray, np.ndarray]


class Reader:
    """Evaluates an expression while it reads it, in C++'s order of operators."""

    def __init__(self, expression: str, names: dict[str, Rounded]) -> None:
        self.tokens = TOKEN.findall(expression.replace("<T>", ""))
        self.names = names
        self.place = 0

    def next(self, *wanted: str) -> str:
        """The next token if it is one of these, else nothing."""
        found = self.tokens[self.place] if self.place < len(self.tokens) else ""
        if found and (not wanted or found in wanted):
            self.place += 1
            return str(found)
        return ""

    def whole(self) -> Rounded:
        result = number(self.choice())
        if self.place != len(self.tokens):
            raise ValueError(f"{''.join(self.tokens)}: {self.tokens[self.place :]} is left")
        return result

    def choice(self) -> Any:
        condition = self.junction("||")
        if not self.next("?"):
            return condition
        yes = number(self.choice())
        self.next(":")
        no = number(self.choice())
        return choose(truth(condition), yes, no)

    def junction(self, sign: str) -> Any:
        def part() -> Any:
            return self.junction("&&") if sign == "||" else self.comparison()

        result = part()
        while self.next(sign):
            (a, maybe_a), (b, maybe_b) = truth(result), truth(part())
            result = (a | b if sign == "||" else a & b), maybe_a | maybe_b
        return result

    def comparison(self) -> Any:
        result = self.sum()
        while sign := self.next(*COMPARISONS):
            result = compare(sign, number(result), number(self.sum()))
        return result

    def sum(self) -> Any:
        result = self.product()
        while sign := self.next("+", "-"):
            other = number(self.product())
            result = number(result) + other if sign == "+" else number(result) - other
        return result

    def product(self) -> Any:
        result = self.unary()
        while sign := self.next("*", "/"):
            other = number(self.unary())
            result = number(result) * other if sign == "*" else number(result) / other
        return result

    def unary(self) -> Any:
        if self.next("-"):
            return -number(self.unary())
        if self.next("("):
            result = self.choice()
            self.next(")")
            return result
        word = self.next()
        if not self.next("("):
            return self.names[word] if word in self.names else constant(float(word))
        operands = [number(self.choice())]
        while self.next(","):
            operands.append(number(self.choice()))
        self.next(")")
        if word in DEFINED:
            parameters, definition = DEFINED[word]
            return Reader(definition, dict(zip(parameters.split(), operands, strict=True))).whole()
        return operands[0] if word == "Real" else apply(word, operands)


def constant(value: float) -> Rounded:
    result = Rounded.exact(value)
    return result if np.float32(value) == value else result.rounded()


def number(value: Any) -> Rounded:
    """A truth as 0 or 1."""
    return choose(value, Rounded.exact(1), Rounded.exact(0)) if isinstance(value, tuple) else value


def truth(value: Any) -> Truth:
    return value if isinstance(value, tuple) else compare("!=", value, Rounded.exact(0))


def bound(expression: str, arrays: list[np.ndarray], numbers: dict[str, float]) -> Rounded:
    """The exact result of an expression, and how far that of float32 may be from it.

    Args:
        arrays: the operands a, b, c, with shapes that broadcast.
        numbers: p, q, r.
    """
    names = {name: Rounded.exact(a) for name, a in zip("abc", arrays, strict=False)}
    names |= {name: constant(value) for name, value in numbers.items()}
    with np.errstate(all="ignore"):
        return Reader(expression, names).whole()
