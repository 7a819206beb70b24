"""Functions that all processes of a training call at once, each with a tensor of its own.

    alpha.distributed.all_reduce(total)             # in place, on every rank

In a program that was started alone, a group of one, each of them does nothing.
"""

from __future__ import annotations

import numpy as np

from alpha.autograd.versions import array_of, check_writable
from alpha.core.numerics import is_floating
from alpha.core.tensor import Tensor
from alpha.distributed.engines.exchange import OPERATIONS, Engine
from alpha.distributed.process_group import current
from alpha.errors import DistributedError, ShapeError
from alpha.ops.kernel.options import integer
from alpha.runtime.ranks import world_size


def all_reduce(tensor: Tensor, op: str = "sum") -> Tensor:
    """Reduce a tensor over all ranks, in place, and return it; each rank gives the same shape and dtype.

    Ranks are added up in an order that depends on their number alone, so two runs agree bit for bit. A backward pass
    does not see it: what the tensor was computed from gets the gradients that it would get without it.

    Args:
        op: "sum", "mean" (of floating-point numbers), "min" or "max".

    Raises:
        ValueError: there is no such op, or the mean is asked of whole numbers.
        DistributedError: the tensor is on another device than the group, or other ranks make another exchange.
    """
    engine = _engine("all_reduce", tensor)
    _check_operation("all_reduce", tensor, op)
    check_writable("all_reduce", tensor, False)
    if engine is not None:
        engine.all_reduce([array_of(tensor)], op)
        tensor._version.bump("all_reduce")
    return tensor


def broadcast(tensor: Tensor, src: int = 0) -> Tensor:
    """Copy the tensor of rank `src` into that of every other rank, in place, and return it.

    A backward pass does not see it, as `all_reduce`.

    Raises:
        TypeError, ValueError: there is no rank `src`.
    """
    engine = _engine("broadcast", tensor)
    src = integer("broadcast", "src", src)
    if not 0 <= src < world_size():
        raise ValueError(f"broadcast: src={src}, but there are ranks 0 to {world_size() - 1}")
    check_writable("broadcast", tensor, False)
    if engine is not None:
        engine.broadcast([array_of(tensor)], [src])
        tensor._version.bump("broadcast")
    return tensor


def all_gather(tensor: Tensor) -> Tensor:
    """The tensors (N, ..) of all ranks one behind the other, (world_size N, ..), on every rank.

    Numbers () become (world_size,). Each rank gives the same shape. No gradient flows through it.
    """
    engine, array = _engine("all_gather", tensor), array_of(tensor)
    rows = (1,) if not array.shape else array.shape
    target = tensor.device.empty((world_size() * rows[0], *rows[1:]), array.dtype)
    if engine is not None:
        engine.all_gather(target, array)
    else:
        target = tensor.device.copy(array).reshape(rows)
    return Tensor(target)


def reduce_scatter(tensor: Tensor, op: str = "sum") -> Tensor:
    """Reduce a tensor (world_size N, ..) over all ranks; rank r gets rows r N to (r + 1) N, (N, ..).

    Args:
        op: "sum", "mean", "min" or "max".

    Raises:
        ShapeError: the rows cannot be shared out equally.
    """
    engine, array = _engine("reduce_scatter", tensor), array_of(tensor)
    _check_operation("reduce_scatter", tensor, op)
    if not array.shape or array.shape[0] % world_size():
        raise ShapeError(
            f"reduce_scatter: shape {array.shape} has no rows for {world_size()} ranks, an equal number each"
        )
    if engine is None:
        return Tensor(tensor.device.copy(array))
    target = tensor.device.empty((array.shape[0] // world_size(), *array.shape[1:]), array.dtype)
    engine.reduce_scatter(target, array, op)
    return Tensor(target)


def gather_numbers(number: float) -> list[float]:
    """The number that each rank gives, in the order of ranks; for what is said or decided on the host."""
    group, values = current(), np.zeros(world_size())
    values[0 if group is None else group.place.rank] = number
    return [float(value) for value in (values if group is None else group.total(values))]


def barrier() -> None:
    """Wait until every rank has come here, and its device has done its work."""
    group = current()
    if group is not None and group.engine is not None:
        group.total(np.zeros(1))


def _engine(name: str, tensor: Tensor) -> Engine | None:
    """The engine of the group, or None in a group of one.

    Raises:
        DistributedError: the tensor is on another device than the group.
    """
    group = current()
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: a {type(tensor).__name__} is given, a Tensor is needed")
    if group is None or group.engine is None:
        return None
    if tensor.device.name != group.device.name:
        raise DistributedError(
            f"{name}: the tensor is on {tensor.device.name}, the group on {group.device.name}; move it there"
        )
    return group.engine


def _check_operation(name: str, tensor: Tensor, op: str) -> None:
    if op not in OPERATIONS:
        raise ValueError(f"{name}: op={op!r}, expected one of {', '.join(OPERATIONS)}")
    if op == "mean" and not is_floating(tensor.dtype):
        raise ValueError(f"{name}: op='mean' of {tensor.dtype.name}; whole numbers have a sum")
    if op == "sum" and tensor.dtype.kind == "b":
        raise ValueError(f"{name}: op='sum' of bool; 'max' is any of them, 'min' is all of them")
