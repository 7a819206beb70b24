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
    largest: list[Array],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    maximize: bool,
    step: int,
) -> None:
    """Adam (Kingma & Ba 2015) in place, bias-corrected, as in PyTorch

    `maximize` changes the sign of g first. `decay` adds decay W to g, or shrinks W by lr decay if `decoupled`.
    m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
    W -= lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)
    If `largest` is not empty (AMSGrad), it keeps the largest v so far, which replaces v in the last line.
    """


@primitive
def sgd_update(
    parameters: list[Array],
    gradients: list[Array],
    velocities: list[Array],
    lr: float,
    momentum: float,
    gain: float,
    decay: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """SGD in place, as in PyTorch

    `maximize` changes the sign of g first, then g += decay W.
    v = momentum v + gain g;  W -= lr v, or lr (g + momentum v) if `nesterov`; without velocities W -= lr g
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
    largest: list[Array],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    maximize: bool,
    step: int,
) -> None:
    rate = lr / (1 - beta1**step)
    root = 1.0 / np.sqrt(1 - beta2**step)

    def update(w: Array, g: Array, m: Array, v: Array, *largest: Array) -> None:
        t = w.dtype.type
        if maximize:
            g = -g
        if decay:
            if decoupled:
                w *= t(1 - lr * decay)
            else:
                g = g + t(decay) * w
        # The gain comes first: gain g g is finite for larger g than g g is. v + gain (g g - v) would cancel.
        work = t(1 - beta1) * g
        m *= t(beta1)
        m += work
        np.multiply(g, t(1 - beta2), out=work)
        work *= g
        v *= t(beta2)
        v += work
        np.sqrt(np.maximum(largest[0], v, out=largest[0]) if largest else v, out=work)
        work *= t(root)
        work += t(eps)
        np.divide(m, work, out=work)
        work *= t(rate)
        w -= work

    _chunked([parameters, gradients, first, second, *([largest] if largest else [])], update)


@sgd_update.impl("cpu")
def _(
    parameters: list[Array],
    gradients: list[Array],
    velocities: list[Array],
    lr: float,
    momentum: float,
    gain: float,
    decay: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    def update(w: Array, g: Array, *velocity: Array) -> None:
        t = w.dtype.type
        if maximize:
            g = -g
        if decay:
            g = g + t(decay) * w
        if velocity:
            v = velocity[0]
            v *= t(momentum)
            v += g if gain == 1 else t(gain) * g
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
    largest: list[Array],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
    maximize: bool,
    step: int,
) -> None:
    table, chunks = _table([parameters, gradients, first, second, largest or second])
    shrink, l2 = (1 - lr * decay, 0.0) if decoupled else (1.0, decay)
    rate, root = lr / (1 - beta1**step), 1 / np.sqrt(1 - beta2**step)
    rule = _rule(
        "sign shrink l2 beta1 gain1 beta2 gain2 root eps rate",
        "",
        (-1 if maximize else 1, shrink, l2, beta1, 1 - beta1, beta2, 1 - beta2, root, eps, rate),
    )
    if chunks:
        table.device.launch("optimizer/adam.cu", "adam", chunks, 256, (table, rule), {"AMSGRAD": int(bool(largest))})


@sgd_update.impl("cuda")
def _(
    parameters: list[Array],
    gradients: list[Array],
    velocities: list[Array],
    lr: float,
    momentum: float,
    gain: float,
    decay: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    table, chunks = _table([parameters, gradients, velocities or gradients])
    sign = -1 if maximize else 1
    rule = _rule(
        "sign lr momentum gain decay",
        "nesterov velocities",
        (sign, lr, momentum, gain, decay, nesterov, bool(velocities)),
    )
    if chunks:
        table.device.launch("optimizer/sgd.cu", "sgd", chunks, 256, (table, rule))
