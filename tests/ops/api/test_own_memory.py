"""Methods in place whose other operand is memory of the tensor itself: its gradient is that of the plain method."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import GradientError, Tensor

NAMES = sorted(
    name for name in dir(Tensor) if re.search(r"[a-z0-9]_$", name) and callable(getattr(Tensor, name[:-1], None))
)
OWN: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda y: y,
    "detached": lambda y: y.detach(),
    "data": lambda y: y.data,
    "view": lambda y: y.view(4).view(2, 2),
    "view of a detached one": lambda y: y.detach().view(4).view(2, 2),
    "row": lambda y: y.detach()[1],
    "column": lambda y: y[:, :1],
    "element": lambda y: y.detach()[0, 1],
}
ARGUMENTS: dict[str, Callable[[Any, str, Tensor, Tensor], Any]] = {  # of a method, with an own and another operand
    "one": lambda y, name, own, other: getattr(y, name)(own),
    "first of two": lambda y, name, own, other: getattr(y, name)(own, other),
    "second of two": lambda y, name, own, other: getattr(y, name)(other, own),
}


def result(name: str, own: str, arguments: str, device: str) -> list[np.ndarray] | str:
    """The values that a method gives and the gradients of its operands, or the name of an error."""
    x = alpha.tensor([[0.3, 0.9], [0.6, 0.8]], device=device, requires_grad=True)
    z = alpha.tensor([[0.7, 0.2], [0.5, 0.4]], device=device, requires_grad=True)
    y = x * 1.5  # which nothing has saved
    try:
        written = ARGUMENTS[arguments](y, name, OWN[own](y), z * 1.0)
        if not isinstance(written, Tensor) or written.dtype.kind != "f" or not written.requires_grad:
            return "no gradient"
        (written * alpha.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)).sum().backward()
    except (GradientError, TypeError, ValueError, IndexError) as error:
        return type(error).__name__
    return [value.numpy() for value in (written, x.grad, z.grad) if value is not None]


@pytest.mark.parametrize("own", OWN)
def test_gradients_are_those_of_the_plain_method(device: str, own: str) -> None:
    compared = 0
    for name in NAMES:
        for arguments in ARGUMENTS:
            plain, written = (result(which, own, arguments, device) for which in (name[:-1], name))
            if isinstance(plain, str) or isinstance(written, str):
                continue
            compared += 1
            for wanted, value in zip(plain, written, strict=True):
                np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6, err_msg=f"{name} {arguments}")
    assert compared > 10
