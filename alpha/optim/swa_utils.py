"""Averages of a model's weights during training, under PyTorch's names: EMA and SWA (Izmailov et al., UAI 2018).

Means of weights are computed in place, for all parameters in one launch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.versions import array_of
from alpha.core.primitive import Array, primitive
from alpha.core.tensor import Tensor, tensor
from alpha.errors import ShapeError
from alpha.module.module import Buffer, Module, device_of
from alpha.ops.kernel.multi_tensor import chunk_table, in_chunks
from alpha.optim.hyper import Rule, whole
from alpha.optim.lr_scheduler.base import LRScheduler, between, numbers, one_of
from alpha.optim.optimizer import Optimizer
from alpha.runtime import Device
from alpha.runtime.recording import phase

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


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


class AveragedModel(Module):
    """A copy of a model whose weights are an average of the model's, with PyTorch's arguments in PyTorch's order.

    Call `update_parameters(model)` after an optimizer step, also within a captured step; call it like the model.

    Args:
        model: is copied.
        device: of the copy; by default that of the model.
        avg_fn: (averaged, current, count) -> the new average of one parameter. By default the mean of all.
        multi_avg_fn: (all averaged, all current, count) -> None, in place. Give only one of the two.
        use_buffers: average the buffers, too, such as running statistics; they are copied otherwise.

    A function that is none of `get_ema_avg_fn` and the three others of this module gets the count as a number. This
    waits for the device, and a step with it cannot be captured.

    Attributes:
        module: the copy.
        n_averaged: () int64, how often `update_parameters` was called.
    """

    def __init__(
        self,
        model: Module,
        device: str | Device | None = None,
        avg_fn: Callable[[Tensor, Tensor, int], Tensor] | None = None,
        multi_avg_fn: Callable[[list[Tensor], list[Tensor], int], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("AveragedModel: give avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.n_averaged = Buffer(tensor(np.zeros((), np.int64), device=device_of(self.module)))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the weights of `model` into the average.

        Raises:
            ShapeError: a parameter or buffer is missing in `model`, or has another shape.
        """
        meant: list[tuple[Tensor, Tensor]] = []
        copied: list[tuple[Tensor, Tensor]] = []
        given = dict(model.named_tensors())
        for name, own in self.module.named_tensors():
            other = given.get(name)
            if other is None or other.shape != own.shape:
                found = "is missing" if other is None else f"has shape {other.shape}"
                raise ShapeError(f"AveragedModel: {name} {found} in the model, here it has shape {own.shape}")
            averaged = self.use_buffers or not isinstance(own, Buffer)
            (meant if averaged and own.dtype.kind == "f" else copied).append((own, _on_device(other, own.device)))
        with no_grad(), phase("update"):
            self._average(meant)
            _copy(copied)
            count_up(self.n_averaged.array)
        for own in (*(own for own, _ in (*meant, *copied)), self.n_averaged):
            own._version.bump("update_parameters")

    def _average(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        function = self.multi_avg_fn or self.avg_fn or Average()
        if isinstance(function, Average):
            if pairs:
                averaged, current = ([array_of(pair[side]) for pair in pairs] for side in (0, 1))
                average_parameters(averaged, current, self.n_averaged.array, function.gain)
            return
        count = int(self.n_averaged.item())
        if count == 0:
            _copy(pairs)
        elif self.multi_avg_fn is not None:
            self.multi_avg_fn([own.detach() for own, _ in pairs], [other for _, other in pairs], count)
        elif self.avg_fn is not None:
            _copy([(own, self.avg_fn(own.detach(), other, count)) for own, other in pairs])


def _on_device(value: Tensor, device: Device) -> Tensor:
    detached = value.detach()
    return detached if value.device is device else Tensor(device.upload(detached.numpy()))


def _copy(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Write the second tensor of each pair into the first one."""
    floats = [(array_of(own), array_of(other)) for own, other in pairs if own.dtype.kind == "f" == other.dtype.kind]
    if floats:
        average_parameters([own for own, _ in floats], [other for _, other in floats], None, 1.0)
    for own, other in pairs:
        if own.dtype.kind == "f":
            continue
        if isinstance(own.array, np.ndarray):
            np.copyto(own.array, array_of(other))
        else:
            own.array.device.copy_into(own.array, array_of(other))


_BEGINNING = {"running_mean": 0, "running_var": 1, "running_sqmean": 1, "num_batches_tracked": 0}


def update_bn(loader: Iterable[Any], model: Module, device: str | Device | None = None) -> None:
    """Compute the running statistics of the batch normalisations anew, as means over the batches of a loader.

    Args:
        loader: batches that the model takes, or tuples and lists that begin with one. Arrays become tensors.
        model: an `AveragedModel`, for example; its other state does not change. A layer whose running statistics do not
            move in training, such as `GlobalBatchNorm`, keeps them.
        device: of the batches; by default that of the model.
    """
    norms: list[Any] = [
        m for m in model.modules() if hasattr(m, "momentum") and isinstance(getattr(m, "running_mean", None), Buffer)
    ]
    if not norms:
        return
    for norm in norms:
        for name, value in _BEGINNING.items():
            if isinstance(buffer := getattr(norm, name, None), Buffer):
                buffer.device.fill(buffer.array, value)
                buffer._version.bump("update_bn")
    with _means(model, norms) as begin_batch, no_grad():
        for number, batch in enumerate(loader):
            first = batch[0] if isinstance(batch, (list, tuple)) else batch
            if not isinstance(first, Tensor):
                first = tensor(first, device=device or device_of(model))
            begin_batch(number)
            model(first if device is None else first.to(device))


@contextmanager
def _means(model: Module, norms: list[Any]) -> Iterator[Callable[[int], None]]:
    """Training mode in which each batch enters the running statistics with the weight 1 / (its number + 1)."""
    modes = [(module, module.training) for module in model.modules()]
    momenta = [norm.momentum for norm in norms]

    def begin_batch(number: int) -> None:
        for norm in norms:  # one that counts its batches takes their mean by itself
            counts = getattr(norm, "num_batches_tracked", None) is not None
            norm.momentum = None if counts else 1 / (number + 1)

    model.train()
    try:
        yield begin_batch
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, mode in modes:
            module.training = mode


class SWALR(LRScheduler):
    """Change of lr from its value to `swa_lr`, where it stays, with PyTorch's arguments in PyTorch's order.

    Args:
        optimizer: its groups' "lr" is set.
        swa_lr: the last rate, or a list of one per group.
        anneal_epochs: steps on the way.
        anneal_strategy: "cos" or "linear".
        last_epoch: the number of the last step; -1 begins anew.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        "swa_lrs": numbers,
        "anneal_epochs": whole,
        "anneal_strategy": one_of("cos", "linear"),
    }
    per_group: ClassVar[Mapping[str, str]] = {"swa_lrs": "swa_lr"}
    swa_lrs: list[float]
    anneal_epochs: int
    anneal_strategy: str

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        self._take_optimizer(optimizer)
        swa_lrs = self._per_group("swa_lr", swa_lr)
        self._take(swa_lrs=swa_lrs, anneal_epochs=anneal_epochs, anneal_strategy=anneal_strategy)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        step = self.last_epoch if self.anneal_epochs else max(1, self.last_epoch)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group, last in zip(self.optimizer.param_groups, self.swa_lrs, strict=True):
            first = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            rates.append(last * now + first * (1 - now))
        return rates

    def get_first_lr(self) -> list[float]:
        return self.get_lr()

    def _share(self, step: int) -> float:
        """The share of the way that is done."""
        done = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * done)) / 2 if self.anneal_strategy == "cos" else done
