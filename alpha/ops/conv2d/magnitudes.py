"""The largest magnitude (absmax) of each operand, for the scale of its fp16 terms (cuda/common/fp16_terms.cuh).

The three operators of one convolution have three operands, X, W and dY, and each operator reads two of them. With

    magnitudes = Magnitudes(W)
    with magnitudes: Y = conv2d_forward(X, W, ..)
    with magnitudes: dX = conv2d_backward_input(dY, W, ..)
    with magnitudes: dW = conv2d_backward_weight(X, dY, ..)

each array is read once instead of twice. The caller guarantees that nothing writes to the arrays in between. The
magnitude of a weight, `Magnitudes(W)`, may lie beside it, where an optimizer writes it together with the weight
(alpha/autograd/derived.py).

A kernel that makes an array may find its magnitude on the way, as those of batch normalisation, of maximum pools and
of convolutions with a rectifier do. It is then `array.magnitude`, which is true as long as nothing writes to the array:

- of a tensor's array, if the tensor's version is 0 (`magnitude_of`), because every operator that writes in place
  raises it, and if no other library has the memory, too, whose writes raise nothing;
- of a gradient, unless it came from the user or another one was added to it: alpha/autograd/engine.py then forgets it.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar, Token
from typing import Any
from weakref import ref

import numpy as np

from alpha.autograd.derived import Kind, ask
from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.conv2d.problem import UNKNOWN, Known
from alpha.ops.kernel.multi_tensor import count_chunks
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, State, Table
from alpha.ops.kernel.sums import MEETING_STATE
from alpha.runtime import recording
from alpha.runtime.device import HostArray

_STATE = State(lambda: np.zeros(3, np.uint32))  # in which the blocks of a launch meet; each launch leaves it zero


class Magnitudes:
    """The magnitudes that were computed, by array. It keeps no array alive.

    Args:
        weight: the array whose magnitude an optimizer may keep, if an operator needs it.
    """

    def __init__(self, weight: Array | None = None) -> None:
        self._found: dict[ref[Array], Array] = {}
        self._weight = None if weight is None else ref(weight)
        self._outer: Token[Magnitudes | None] | None = None

    def copy(self) -> Magnitudes:
        """A copy with the magnitudes known so far. What one of them computes later is unknown to the other."""
        other = Magnitudes()
        other._found, other._weight = self._found.copy(), self._weight
        return other

    def note(self, array: Array, magnitude: Array | None) -> None:
        """Take a magnitude that is known; None: it is not."""
        if magnitude is not None:
            self._found[ref(array)] = magnitude

    def known(self, array: Array) -> Array | None:
        """The magnitude of an array that was computed or noted; None if it was not."""
        return self._found.get(ref(array)) if self._found else None

    def knows(self, a: Array, b: Array) -> Known:
        """True for each of the two arrays whose magnitude has been computed or noted."""
        return ref(a) in self._found, ref(b) in self._found

    def __enter__(self) -> Magnitudes:
        self._outer = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._outer is not None:
            _current.reset(self._outer)

    def of(self, a: Array, b: Array) -> tuple[Array, Array]:
        """The slots with the magnitudes of two operands. Those that are not known yet are computed by one launch."""
        missing = [x for x in (a, b) if ref(x) not in self._found]
        if missing and self._weight is not None:
            missing = [x for x in missing if ref(x) != self._weight or not self._finds_kept(x)]
        if missing:
            arrays: dict[str, Array] = {}
            slots = a.device.empty((len(missing),), np.uint32)
            for i, (name, x) in enumerate(zip("ab", missing, strict=False)):
                arrays[name] = x
                arrays[f"absmax_{name}"] = self._found[ref(x)] = slots.slice_rows(i, i + 1)
            sizes = tuple([(name, x.size) for name, x in zip("ab", missing, strict=False)])
            _plan(sizes, a.device.properties.num_sms).launch(a.device, arrays)
        return self._found[ref(a)], self._found[ref(b)]

    def _finds_kept(self, weight: Array) -> bool:
        """Take the magnitude that an optimizer keeps of a weight; False if none does."""
        self.note(weight, ask(weight, MAGNITUDE).read())
        return ref(weight) in self._found


def needs_magnitude(X: Array) -> bool:
    """True if a convolution of an array on a GPU scales its operands, as those with wgmma on float32 do."""
    return X.dtype is FLOAT32 and X.device.properties.compute_capability[0] == 9


def finds_magnitude(X: Array, slope: float) -> bool:
    """True if a forward convolution of X is asked for the magnitude of its result, too.

    What comes from a rectifier, whose `slope` is not 1, is often the operand of another convolution. Other results
    mostly go through an operator that finds a magnitude of its own.
    """
    return slope != 1 and needs_magnitude(X)


def magnitude_parts(
    found: bool, beside: str = ""
) -> tuple[tuple[ArrayArg | None, Table | None], dict[str, int], dict[str, Buffer]]:
    """Additions to a kernel that may find the magnitude of its result: arguments, macros, outputs of its plan."""
    outputs = {"magnitude": Buffer((1,), np.dtype(np.uint32), beside)} if found else {}
    return (ArrayArg("magnitude"), MEETING_STATE) if found else (None, None), {"MAGNITUDE": int(found)}, outputs


def known_magnitudes(a: Array, b: Array) -> Known:
    """True for each operand whose magnitude is known, so that no launch computes it."""
    current = _current.get()
    return UNKNOWN if current is None else current.knows(a, b)


def magnitude_of(x: Tensor) -> Array | None:
    """The magnitude of a tensor, if the kernel that made it found it and nothing was written to it since.

    In a captured step it is None for a tensor that was made before, which may be written before the next replay.
    """
    version, magnitude = x._version, getattr(x.array, "magnitude", None)
    if magnitude is None or version.value or version.shared:
        return None
    if recording.active() is not None and x.array.block.arena is not x.array.device.pool:
        return None
    return magnitude


_current: ContextVar[Magnitudes | None] = ContextVar("alpha_magnitudes", default=None)


def absmax(a: Array, b: Array) -> tuple[Array, Array]:
    """Bits of the largest finite magnitude of each array   a (...), b (...) -> (1,), (1,) uint32"""
    return (_current.get() or Magnitudes()).of(a, b)


@functools.lru_cache(maxsize=4096)
def _plan(operands: tuple[tuple[str, int], ...], num_sms: int) -> Plan:
    return Plan("absmax", (absmax_launch(operands, num_sms),), {})


def _room(weights: list[Array]) -> list[Array]:
    made = weights[0].device.upload(np.stack([meeting_words(weight.size) for weight in weights]))
    return [made.slice_rows(i, i + 1).reshape(-1) for i in range(len(weights))]


def meeting_words(size: int) -> HostArray:
    """The magnitude of an array of zeros, and the words behind it in which the blocks of an update meet.

    See `Row` of cuda/optimizer/update.cuh.
    """
    return np.array([0, 0, 0, count_chunks((size,))], np.uint32)


def _write(weight: Array, magnitude: Array) -> None:
    plan = _plan((("a", weight.size),), weight.device.properties.num_sms)
    plan.launch(weight.device, {"a": weight, "absmax_a": magnitude})


MAGNITUDE = Kind("magnitude", _room, _write)


def absmax_launch(operands: tuple[tuple[str, int], ...], num_sms: int) -> KernelLaunch:
    """The launch that computes the magnitudes of one or two arrays of a plan, (name, elements) each.

    It writes "absmax_a" and, of two arrays, "absmax_b".
    """
    blocks = [max(1, min(8 * num_sms, -(-size // 4096))) for _, size in operands]
    arguments: list[Any] = []
    for slot, (name, size) in zip(("absmax_a", "absmax_b"), operands, strict=False):
        arguments += [ArrayArg(slot, updated=True), ArrayArg(name), np.int64(size)]
    arguments += [None, None, np.int64(0)] * (2 - len(operands))
    return KernelLaunch("reduce/absmax.cu", "absmax", sum(blocks), 256, (*arguments, _STATE, blocks[0]))
