"""AveragedModel, a copy of a model whose weights are an average of the model's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.autograd.grad_mode import no_grad
from alpha.autograd.versions import array_of
from alpha.core.tensor import Tensor, tensor
from alpha.errors import ShapeError
from alpha.module.module import Buffer, Module, device_of
from alpha.optim.swa_utils.averages import Average, average_parameters, count_up
from alpha.runtime import Device
from alpha.runtime.recording import phase


class AveragedModel(Module):
    """A copy of a model whose weights are an average of the model's, with PyTorch's arguments in PyTorch's order.

    Call `update_parameters(model)` after an optimizer step, also within a captured step; call it like the model.

    Args:
        model: is copied.
        device: of the copy; by default that of the model.
        avg_fn: (averaged, current, count) -> the new average of one parameter. By default the mean of all.
        multi_avg_fn: (all averaged, all current, count) -> None, in place. Give only one of the two.
        use_buffers: average the buffers, too, such as running statistics; they are copied otherwise.

    A function that is none of `get_ema_avg_fn` and the three others of `alpha.optim.swa_utils` gets the count as a
    number. This waits for the device, and a step with it cannot be captured.

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
