"""Methods that give a tensor random numbers of further distributions, made of equally distributed ones.

The rules are those of `uniform_`: they follow from `alpha.manual_seed`, and a captured step draws them anew.
"""

from __future__ import annotations

import math

from alpha.core.generators import Generator
from alpha.core.numerics import BFLOAT16, FLOAT32, is_floating
from alpha.core.tensor import Tensor
from alpha.ops.array.creation import rand, randn
from alpha.ops.kernel.options import real


def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """x becomes random numbers of the density lambd exp(-lambd y)   x (...) of floats -> x

    Raises:
        TypeError: x is not floating.
        ValueError: lambd is not above 0.
    """
    return x.copy_(_waiting("exponential_", x, generator) / _above("exponential_", "lambd", lambd))


def geometric_(x: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """x becomes the numbers of trials up to the first success, each of probability p   x (...) -> x

    Raises:
        ValueError: p is not between 0 and 1.
    """
    chance = real("geometric_", "p", p)
    if not 0 < chance < 1:
        raise ValueError(f"geometric_: p={chance} is not between 0 and 1")
    uniform = rand(x.shape, dtype=_dtype(x), device=x.device, generator=generator)
    # ln(1 - p) is below 0, and so is ln(1 - u)
    failures = (1 - uniform).log() / math.log1p(-chance)
    return x.copy_(failures.ceil().clamp(min=1).astype(x.dtype))


def cauchy_(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """x becomes random numbers of the density sigma / (pi ((y - median)^2 + sigma^2))   x (...) of floats -> x

    Raises:
        TypeError: x is not floating.
        ValueError: sigma is not above 0.
    """
    middle, width = real("cauchy_", "median", median), _above("cauchy_", "sigma", sigma)
    _floating("cauchy_", x)
    angle = (rand(x.shape, dtype=_dtype(x), device=x.device, generator=generator) - 0.5) * math.pi
    return x.copy_((angle.tan() * width + middle).astype(x.dtype))


def log_normal_(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
    """x becomes exp of random numbers of N(mean, std)   x (...) of floats -> x

    Raises:
        TypeError: x is not floating.
        ValueError: std is not above 0.
    """
    middle, width = real("log_normal_", "mean", mean), _above("log_normal_", "std", std)
    _floating("log_normal_", x)
    drawn = randn(x.shape, dtype=_dtype(x), device=x.device, generator=generator)
    return x.copy_((drawn * width + middle).exp().astype(x.dtype))


def _waiting(operator: str, x: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of the density exp(-y), in the dtype of x."""
    _floating(operator, x)
    return (-(1 - rand(x.shape, dtype=_dtype(x), device=x.device, generator=generator)).log()).astype(x.dtype)


def _dtype(x: Tensor) -> object:
    """In which the numbers are drawn."""
    return x.dtype if is_floating(x.dtype) and x.dtype != BFLOAT16 else FLOAT32


def _floating(operator: str, x: Tensor) -> None:
    if not is_floating(x.dtype):
        raise TypeError(f"{operator}: x has dtype {x.dtype.name}; float32, float64 or bfloat16 is needed")


def _above(operator: str, name: str, value: float) -> float:
    checked = real(operator, name, value)
    if checked <= 0:
        raise ValueError(f"{operator}: {name}={checked} is not above 0")
    return checked
