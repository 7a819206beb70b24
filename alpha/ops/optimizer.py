"""Optimizer updates: one launch updates many parameters (a multi-tensor kernel)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alpha.ops.dtypes import require_float32
from alpha.primitive import Array, primitive
from alpha.runtime import workers
from alpha.runtime.recording import StepValue

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice

CHUNK = 1 << 14  # elements of one tensor that a block updates


class AdamRule(NamedTuple):
    """The numbers of an Adam step."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    decay: float
    decoupled: bool
    maximize: bool
    step: int


class SgdRule(NamedTuple):
    """The numbers of an SGD step."""

    lr: float
    momentum: float
    gain: float
    decay: float
    nesterov: bool
    maximize: bool


@primitive
def adam_update(
    parameters: list[Array],
    gradients: list[Array],
    first: list[Array],
    second: list[Array],
    largest: list[Array],
    rule: StepValue[AdamRule],
) -> None:
    """Adam (Kingma & Ba 2015) in place, bias-corrected, as in PyTorch

    `maximize` changes the sign of g first. `decay` adds decay W to g, or shrinks W by lr decay if `decoupled`.
    m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
    W -= lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)
    If `largest` is not empty (AMSGrad), it keeps the largest v so far, which replaces v in the last line.
    """


@primitive
def sgd_update(
    parameters: list[Array], gradients: list[Array], velocities: list[Array], rule: StepValue[SgdRule]
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
    rule: StepValue[AdamRule],
) -> None:
    lr, beta1, beta2, eps, decay, decoupled, maximize, step = rule.now()
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
def _(parameters: list[Array], gradients: list[Array], velocities: list[Array], rule: StepValue[SgdRule]) -> None:
    lr, momentum, gain, decay, nesterov, maximize = rule.now()

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
        require_float32("optimizer", *same)
    device = arrays[0][0].device
    device.use(*itertools.chain(*arrays))
    addresses = tuple(tuple([a.address for a in same]) for same in arrays)
    return _device_table(device, addresses, tuple([a.size for a in arrays[0]]))


# The arena hands out the same addresses step after step, so the table is mostly there already.
@functools.lru_cache(maxsize=16)
def _device_table(
    device: CudaDevice, addresses: tuple[tuple[int, ...], ...], sizes: tuple[int, ...]
) -> tuple[Array, int]:
    counts = -(-np.array(sizes, np.int64) // CHUNK)
    tensor = np.repeat(np.arange(len(sizes)), counts)
    chunk = np.arange(len(tensor)) - np.repeat(counts.cumsum() - counts, counts)
    table = np.empty((len(tensor), len(addresses) + 2), np.int64)
    table[:, :-2] = np.array(addresses, np.int64).T[tensor]
    table[:, -2] = chunk * CHUNK
    table[:, -1] = np.minimum(CHUNK, np.array(sizes, np.int64)[tensor] - table[:, -2])
    return device.constant(table), len(table)


_ADAM_NUMBERS = ("sign", "shrink", "l2", "beta1", "gain1", "beta2", "gain2", "root", "eps", "rate")
_ADAM = np.dtype([(name, np.float32) for name in _ADAM_NUMBERS], align=True)
_SGD = np.dtype(
    [
        *((name, np.float32) for name in ["sign", "lr", "momentum", "gain", "decay"]),
        *((name, np.int32) for name in ["nesterov", "velocities"]),
    ],
    align=True,
)


def _adam_numbers(rule: AdamRule) -> Any:
    """`Rule` of cuda/optimizer/adam.cu, its factors computed in double precision."""
    lr, beta1, beta2, eps, decay, decoupled, maximize, step = rule
    shrink, l2 = (1 - lr * decay, 0.0) if decoupled else (1.0, decay)
    rate, root = lr / (1 - beta1**step), 1 / np.sqrt(1 - beta2**step)
    sign = -1 if maximize else 1
    return np.array((sign, shrink, l2, beta1, 1 - beta1, beta2, 1 - beta2, root, eps, rate), _ADAM)[()]


def _sgd_numbers(velocities: bool, rule: SgdRule) -> Any:
    """`Rule` of cuda/optimizer/sgd.cu."""
    lr, momentum, gain, decay, nesterov, maximize = rule
    return np.array((-1 if maximize else 1, lr, momentum, gain, decay, nesterov, velocities), _SGD)[()]


@adam_update.impl("cuda")
def _(
    parameters: list[Array],
    gradients: list[Array],
    first: list[Array],
    second: list[Array],
    largest: list[Array],
    rule: StepValue[AdamRule],
) -> None:
    table, chunks = _table([parameters, gradients, first, second, largest or second])
    if chunks:
        device = table.device
        numbers = device.step_value(rule, _adam_numbers)
        device.launch("optimizer/adam.cu", "adam", chunks, 256, (table, *numbers), {"AMSGRAD": int(bool(largest))})


@sgd_update.impl("cuda")
def _(parameters: list[Array], gradients: list[Array], velocities: list[Array], rule: StepValue[SgdRule]) -> None:
    table, chunks = _table([parameters, gradients, velocities or gradients])
    if chunks:
        device = table.device
        numbers = device.step_value(rule, functools.partial(_sgd_numbers, bool(velocities)))
        device.launch("optimizer/sgd.cu", "sgd", chunks, 256, (table, *numbers))
