"""Cases of primitives that follow from what is known of them: from an expression, or from the rows that run them."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import alpha
from alpha.core.numerics import BFLOAT16
from alpha.core.primitive import Primitive
from alpha.ops.conv2d.magnitudes import meeting_words
from alpha.runtime.recording import StepValue
from rows.every import FUNCTIONS
from rows.kinds import FunctionRow, each, joined
from rows.optimizers import OPTIMIZERS, OptimizerRow

Case = tuple[Any, ...]  # the arguments, and after them a dict of the keywords if there are any
NUMBERS = {"p": 1.5, "q": 0.5, "r": 0.25}
SIZES = ((3,), (4, 5), (1,), (16389,))  # of parameters: small ones of odd sizes, and one of several chunks


def operands(function: Primitive) -> int:
    """Number of arrays that an elementwise primitive takes."""
    return max(place for place, letter in enumerate("abc", 1) if _names(function, letter))


def of_expression(function: Primitive) -> list[Case]:
    """A case of an elementwise primitive, with numbers of both signs."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((7, 9)).astype(np.float32) for _ in range(operands(function))]
    if function.mask:
        arrays[0] = arrays[0] > 0
    numbers = {name: value for name, value in NUMBERS.items() if _names(function, name)}
    return [(*arrays, numbers) if numbers else tuple(arrays)]


def _names(function: Primitive, letter: str) -> bool:
    return re.search(rf"\b{letter}\b", function.expression) is not None


def of_rows() -> dict[str, list[Case]]:
    """The primitives that functions and optimizers call on the cpu, with the arguments of each call.

    The last element of a case is the length of the longest sum that it may have.
    """
    found: dict[str, list[Case]] = defaultdict(list)
    for function in FUNCTIONS:
        if function.name.endswith("_"):
            continue  # it writes its argument, and calls what the function without the sign does
        arrays = [*function.tensors.values(), *itertools.chain(*function.lists.values())]
        with _recorded(found, length=max(array.size for array in arrays)):
            _call(function)
    for optimizer in OPTIMIZERS:
        for settings in optimizer.settings:
            step = _steps(optimizer, settings)
            step()  # the second one has moments
            with _recorded(found, length=1):
                step()
        if (update := getattr(optimizer.kind, "update", None)) is not None:
            found[update.name].append(_with_values_beside(found[update.name][-1]))
    return found


def _with_values_beside(case: Case) -> Case:
    """An update that also writes what lies beside its parameters: both, one each, nothing, both."""
    *arguments, length = case
    copies = [np.zeros(w.shape, BFLOAT16) for w in arguments[0]]
    magnitudes: list[Any] = [meeting_words(w.size) for w in arguments[0]]
    wanted = [(copies[0], magnitudes[0]), (copies[1], None), (None, None), (copies[3], magnitudes[3])]
    return (*arguments, [list(column) for column in zip(*wanted, strict=True)], length)


@contextmanager
def _recorded(found: dict[str, list[Case]], length: int) -> Iterator[None]:
    inner: Callable[..., Any] = Primitive.__call__

    def call(function: Primitive, *args: Any, **kwargs: Any) -> Any:
        found[function.name].append((*map(_copied, args), *([kwargs] if kwargs else []), length))
        return inner(function, *args, **kwargs)

    with patch.object(Primitive, "__call__", call):
        yield


def _copied(value: Any) -> Any:
    """The value as it is now, because an update writes into its arguments."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return StepValue.fixed(value.now()) if isinstance(value, StepValue) else value


def _call(row: FunctionRow) -> None:
    """A function and its gradients."""
    given = {
        name: alpha.tensor(
            value,
            requires_grad=value.dtype.kind == "f" and not name.startswith("running") and name not in row.constants,
        )
        for name, value in row.tensors.items()
    }
    lists = {name: each(alpha.tensor, value) for name, value in row.usual.items() if isinstance(value, list)}
    y = joined(row.function(**{**row.usual, **lists, **given}))
    if y.requires_grad:
        y.backward(alpha.tensor(np.ones(y.shape, y.dtype)))


def _steps(row: OptimizerRow, settings: dict[str, Any]) -> Callable[[], None]:
    """Function that makes a step of a new optimizer, each with other gradients."""
    rng = np.random.default_rng(0)
    parameters = [
        alpha.tensor(rng.uniform(0.5, 2.0, size).astype(np.float32), requires_grad=True)
        for size in row.fitting(list(SIZES))
    ]
    optimizer = row.kind(parameters, **settings)

    def step() -> None:
        for parameter in parameters:
            parameter.grad = alpha.tensor(rng.standard_normal(parameter.shape).astype(np.float32))
        optimizer.step()

    return step
