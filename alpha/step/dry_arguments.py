"""Arguments of dry runs and plans of memory: shapes in place of tensors, and a GPU by its name."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.core.nested import map_tensors
from alpha.core.numerics import FLOAT32
from alpha.core.tensor import Tensor, full
from alpha.errors import DeviceError, ShapeError
from alpha.installation import OR_CPU
from alpha.module.module import Module
from alpha.ops.array.axes import lengths_of
from alpha.runtime import Device, get_device
from alpha.runtime.cuda.compile import ARCHITECTURES


def shaped(shape: tuple[int, ...], dtype: Any = FLOAT32) -> Tensor:
    """A tensor without memory, for the arguments of a dry run.

    Raises:
        ShapeError: no array can have this shape.
    """
    try:
        return Tensor(np.broadcast_to(np.zeros((), dtype), shape))
    except (ValueError, OverflowError) as error:
        raise ShapeError(f"no tensor can have the shape {shape}: {error}") from None


def input_of(operator: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor without memory, of the shape that a module was given in place of its input.

    Raises:
        TypeError, ValueError: a size is no integer of at least 0, or no array can have this shape.
    """
    return shaped(lengths_of(operator, f"the input's shape {shape}: size", shape))


def is_shape(value: Any) -> bool:
    """True for a tuple of integers."""
    return isinstance(value, tuple) and all(isinstance(size, (int, np.integer)) for size in value)


class BothPasses:
    """The forward pass of a module and, in training mode, the backward pass of all its results."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> None:
        results: list[Tensor] = []
        map_tensors(self.module(x), results.append)
        for result in results if self.module.training else ():
            if result._requires_grad:
                result.backward(full(result.shape, 1, result.dtype, result.device), retain_graph=True)


def device_of(operator: str, gpu: str | Device | None) -> Device:
    """The device that `gpu`, which is no architecture, names.

    Raises:
        DeviceError: it names none, or this machine has no GPU that can be used.
    """
    if gpu is not None and not isinstance(gpu, Device) and str(gpu).partition(":")[0] not in ("cuda", "auto"):
        raise DeviceError(f"{operator}: gpu={gpu!r} is no GPU that Alpha knows: use {known_gpus()}")
    try:
        return get_device("cuda" if gpu is None else gpu)
    except DeviceError as error:
        why = str(error).removesuffix(OR_CPU)  # neither function has an argument `device`
        raise DeviceError(
            f"{operator}: the GPU of this machine cannot be used: {why}; for a GPU that is not there, pass "
            f"gpu='sm_90a' or another architecture: {', '.join(map(repr, ARCHITECTURES))}"
        ) from error


def known_gpus() -> str:
    """The GPUs that a dry run knows, in words."""
    names = ", ".join(map(repr, ARCHITECTURES))
    return f"'cuda', the GPU of this machine, or the architecture of another one: {names}"
