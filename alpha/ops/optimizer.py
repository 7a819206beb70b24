"""Optimizer updates: one launch updates many parameters (a multi-tensor kernel)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.ops.dtypes import need_float32
from alpha.primitive import Array, primitive
from alpha.runtime import Device, workers

CHUNK = 1 << 14  # elements of one tensor that a block updates


@primitive
def adam_update(
    parameters: list[Array],
    gradients: list[Array],
    first: list[Array],
    second: list[Array],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    step: int,
) -> None:
    """Adam (Kingma & Ba 2015) in place, bias-corrected; decay adds to the gradient, or shrinks W when decoupled

    m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
    W -= lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)
    """


@primitive
def sgd_update(
    parameters: list[Array],
    gradients: list[Array],
    velocities: list[Array],
    lr: float,
    momentum: float,
    nesterov: bool,
    decay: float,
) -> None:
    """SGD in place, as in PyTorch; decay adds to the gradient

    v = momentum v + g;  W -= lr v, or lr (g + momentum v) with nesterov; without velocities W -= lr g
    """


def _chunked(arrays: list[list[Array]], update: Callable[..., None]) -> None:
    """`update(*chunks)` over all tensors, a cache-sized chunk at a time, on all workers."""
    pieces: list[tuple[Array, ...]] = []
    for group in zip(*arrays, strict=True):
        flat = [a.reshape(-1) for a in group]
        for start in range(0, flat[0].size, 4 * CHUNK):
            pieces.append(tuple(a[start : start + 4 * CHUNK] for a in flat))

    def run(start: int, stop: int) -> None:
        for piece in pieces[start:stop]:
            update(*piece)

    workers.parallel_for(len(pieces), 8, run)


@adam_update.impl("cpu")
def _(
    parameters: list[Array],
    gradients: list[Array],
    first: list[Array],
    second: list[Array],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    step: int,
) -> None:
    rate = lr / (1 - beta1**step)
    root = 1.0 / np.sqrt(1 - beta2**step)

    def update(w: Array, g: Array, m: Array, v: Array) -> None:
        t = w.dtype.type
        if decay:
            if decoupled:
                w *= t(1 - lr * decay)
            else:
                g = g + t(decay) * w
        work = g - m
        work *= t(1 - beta1)
        m += work
        np.multiply(g, g, out=work)
        work -= v
        work *= t(1 - beta2)
        v += work
        np.sqrt(v, out=work)
        work *= t(root)
        work += t(eps)
        np.divide(m, work, out=work)
        work *= t(rate)
        w -= work

    _chunked([parameters, gradients, first, second], update)


@sgd_update.impl("cpu")
def _(
    parameters: list[Array],
    gradients: list[Array],
    velocities: list[Array],
    lr: float,
    momentum: float,
    nesterov: bool,
    decay: float,
) -> None:
    def update(w: Array, g: Array, *velocity: Array) -> None:
        t = w.dtype.type
        if decay:
            g = g + t(decay) * w
        if velocity:
            v = velocity[0]
            v *= t(momentum)
            v += g
            g = g + t(momentum) * v if nesterov else v
        w -= t(lr) * g

    _chunked([parameters, gradients, *([velocities] if velocities else [])], update)


def _table(arrays: list[list[Array]]) -> tuple[Array, int]:
    """Device table of (addresses of one tensor's arrays, start, length) a chunk, and how many."""
    for same in arrays:
        need_float32("optimizer", *same)
    addresses = tuple(tuple([a.address for a in same]) for same in arrays)
    return _device_table(arrays[0][0].device, addresses, tuple([a.size for a in arrays[0]]))


# The arena hands out the same addresses step after step, so the table is mostly there already.
@functools.lru_cache(maxsize=16)
def _device_table(device: Device, addresses: tuple[tuple[int, ...], ...], sizes: tuple[int, ...]) -> tuple[Array, int]:
    counts = -(-np.array(sizes, np.int64) // CHUNK)
    tensor = np.repeat(np.arange(len(sizes)), counts)
    chunk = np.arange(len(tensor)) - np.repeat(counts.cumsum() - counts, counts)
    table = np.empty((len(tensor), len(addresses) + 2), np.int64)
    table[:, :-2] = np.array(addresses, np.int64).T[tensor]
    table[:, -2] = chunk * CHUNK
    table[:, -1] = np.minimum(CHUNK, np.array(sizes, np.int64)[tensor] - table[:, -2])
    return device.upload(table), len(table)


def _rule(fields: str, integers: str, values: tuple[float, ...]) -> Any:
    """The numbers of an update as the structure that its kernel takes by value."""
    kinds: list[tuple[str, type]] = [(name, np.float32) for name in fields.split()]
    kinds += [(name, np.int32) for name in integers.split()]
    return np.array(values, np.dtype(kinds, align=True))[()]


@adam_update.impl("cuda")
def _(
    parameters: list[Array],
    gradients: list[Array],
    first: list[Array],
    second: list[Array],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    step: int,
) -> None:
    table, chunks = _table([parameters, gradients, first, second])
    rule = _rule(
        "lr rate root gain1 gain2 eps decay",
        "decoupled",
        (lr, lr / (1 - beta1**step), 1 / np.sqrt(1 - beta2**step), 1 - beta1, 1 - beta2, eps, decay, decoupled),
    )
    if chunks:
        table.device.launch("optimizer/adam.cu", "adam", chunks, 256, (table, rule))


@sgd_update.impl("cuda")
def _(
    parameters: list[Array],
    gradients: list[Array],
    velocities: list[Array],
    lr: float,
    momentum: float,
    nesterov: bool,
    decay: float,
) -> None:
    table, chunks = _table([parameters, gradients, velocities or gradients])
    rule = _rule("lr momentum decay", "nesterov velocities", (lr, momentum, decay, nesterov, bool(velocities)))
    if chunks:
        table.device.launch("optimizer/sgd.cu", "sgd", chunks, 256, (table, rule))
