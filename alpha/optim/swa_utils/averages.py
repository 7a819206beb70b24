"""Means of weights, simple and exponential ones, computed in place for all parameters in one launch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.versions import array_of
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor
from alpha.ops.kernel.tables.chunk_tables import chunk_table
from alpha.ops.kernel.tables.multi_tensor import in_chunks
from alpha.optim.lr_scheduler.base import between


@primitive
def average_parameters(averaged: list[Array], current: list[Array], count: Array | None, gain: float) -> None:
    """A += weight (X - A) in place, in which weight is `gain`, or 1 / (count + 1) if it is negative

    count () int64. At a count of 0, weight is 1; without a count, it is `gain`. With a weight of 1, A is exactly X.
    """


@primitive
def count_up(count: Array) -> None:
    """count += 1 in place   () int64"""


@average_parameters.impl("cpu")
@np.errstate(all="ignore")
def _(averaged: list[Array], current: list[Array], count: Array | None, gain: float) -> None:
    before = 1 if count is None else int(count)
    weight = 1.0 if before == 0 else 1 / (before + 1) if gain < 0 else gain

    def average(a: Array, x: Array) -> None:
        if weight == 1:
            np.copyto(a, x)
        else:
            a += a.dtype.type(weight) * (x - a)

    in_chunks([averaged, current], average)


@count_up.impl("cpu")
def _(count: Array) -> None:
    count += 1


@average_parameters.impl("cuda")
def _(averaged: list[Array], current: list[Array], count: Array | None, gain: float) -> None:
    nothing = [None] * len(averaged)
    table, chunks = chunk_table([averaged, current, averaged], "AveragedModel", [nothing, nothing])
    if chunks:
        table.device.launch("optimizer/average.cu", "average", chunks, 256, (table, count, np.float32(gain)))


@count_up.impl("cuda")
def _(count: Array) -> None:
    count.device.launch("optimizer/average.cu", "count_up", 1, 1, (count,))


class Average:
    """A mean of all models so far, or an exponential one with this gain of the newest model.

    `AveragedModel` updates all parameters with it in one launch.
    """

    def __init__(self, gain: float = -1.0) -> None:
        self.gain = gain

    def weight(self, num_averaged: int | Tensor) -> float:
        """The weight of the newest model."""
        return self.gain if self.gain >= 0 else 1 / (int(num_averaged) + 1)


class _SingleAverage(Average):
    def __call__(self, averaged: Tensor, current: Tensor, num_averaged: int | Tensor) -> Tensor:
        with no_grad():
            return averaged + (current - averaged) * self.weight(num_averaged)


class _MultiAverage(Average):
    def __call__(self, averaged: list[Tensor], current: list[Tensor], num_averaged: int | Tensor) -> None:
        average_parameters([*map(array_of, averaged)], [*map(array_of, current)], None, self.weight(num_averaged))
        for target in averaged:
            target._version.bump("average_parameters")


def _gain(decay: float) -> float:
    checked: float = between(0, 1)(decay)
    return 1 - checked


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, int | Tensor], Tensor]:
    """An exponential mean of one parameter: (averaged, current, count) -> decay averaged + (1 - decay) current"""
    return _SingleAverage(_gain(decay))


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[list[Tensor], list[Tensor], int | Tensor], None]:
    """An exponential mean of lists of parameters, in place: averaged = decay averaged + (1 - decay) current"""
    return _MultiAverage(_gain(decay))


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, int | Tensor], Tensor]:
    """A mean of one parameter: (averaged, current, count) -> averaged + (current - averaged) / (count + 1)"""
    return _SingleAverage()


def get_swa_multi_avg_fn() -> Callable[[list[Tensor], list[Tensor], int | Tensor], None]:
    """A mean of lists of parameters, in place: averaged += (current - averaged) / (count + 1)"""
    return _MultiAverage()
