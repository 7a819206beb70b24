"""Running statistics of batch normalisations, computed anew for averaged weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from alpha.autograd.grad_mode import no_grad
from alpha.core.tensor import Tensor, tensor
from alpha.module.module import Buffer, Module, device_of
from alpha.runtime import Device

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
