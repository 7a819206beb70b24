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

In "tf32" a kernel of batch normalisation may write a copy of what it makes in fp16, `array.magnitude.half`. The
magnitude is then a limit of the magnitudes of the array, from which the scale of the copy follows.

A convolution that will read the copy of X once more, for the gradient of W, keeps it in place of X (`HalfAlone`). If X
stays for other reasons, it drops the copy in the memory modes "balanced" and "least", and keeps both in "fast". A
gradient is a copy alone if the convolution reads that for all its gradients, and the program does not see the gradient
(`Convolution.half_of_gradient`).
"""

from __future__ import annotations

import functools
from contextvars import ContextVar, Token
from typing import Any
from weakref import ref

import numpy as np

from alpha.autograd.derived import Kind, ask
from alpha.autograd.memory_mode import FAST
from alpha.autograd.memory_mode import setting as memory
from alpha.core.numerics import FLOAT32
from alpha.core.primitive import Array
from alpha.core.tensor import Tensor
from alpha.ops.conv2d.problem import PACK, UNKNOWN, Given, Known
from alpha.ops.kernel.casts import HalfAlone
from alpha.ops.kernel.plan import ArrayArg, Buffer, KernelLaunch, Plan, State, Table
from alpha.ops.kernel.sums import MEETING_STATE
from alpha.ops.kernel.tables.chunk_tables import count_chunks
from alpha.runtime import recording
from alpha.runtime.device import HostArray

_STATE = State(lambda: np.zeros(3, np.uint32))  # in which the blocks of a launch meet; each launch leaves it zero


class Magnitudes:
    """The magnitudes that were computed, by array. It keeps no array alive, but magnitudes, and copies beside them.

    Args:
        weight: the array whose magnitude an optimizer may keep, if an operator needs it.
        limits: whether a limit of the magnitudes will do, as there is beside an fp16 copy. With two fp16 terms small
            numbers would lose bits by its scale.
    """

    def __init__(self, weight: Array | None = None, limits: bool = False) -> None:
        self._found: dict[ref[Array], Array] = {}
        self._limits = limits
        self._weight = None if weight is None else ref(weight)
        self._outer: Token[Magnitudes | None] | None = None

    def copy(self) -> Magnitudes:
        """A copy with the magnitudes known so far. What one of them computes later is unknown to the other."""
        other = Magnitudes(limits=self._limits)
        other._found, other._weight = self._found.copy(), self._weight
        return other

    def note(self, array: Array, magnitude: Array | None) -> None:
        """Take a magnitude that is known; None: it is not."""
        if magnitude is not None and (self._limits or not magnitude.limit):
            self._found[ref(array)] = magnitude

    def known(self, array: Array) -> Array | None:
        """The magnitude of an array that was computed or noted; None if it was not."""
        return self._found.get(ref(array)) if self._found else None

    def knows(self, a: Array, b: Array) -> Known:
        """The things that were computed or noted of each of the two arrays."""
        of_a, of_b = self._found.get(ref(a)), self._found.get(ref(b))
        half_a = Given.HALF_ALONE if type(a) is HalfAlone else Given.HALF
        half_b = Given.HALF_ALONE if type(b) is HalfAlone else Given.HALF
        return (
            Given.NOTHING if of_a is None else Given.MAGNITUDE if of_a.half is None else half_a,
            Given.NOTHING if of_b is None else Given.MAGNITUDE if of_b.half is None else half_b,
        )

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


# The fp16 copy that a kernel writes of its result if it can: none, one beside it (`Given.HALF`), or for a gradient one
# in its place (`HALF_ALONE`). A batch normalisation asks for that of its gradient which the convolution in front of it
# reads (`Convolution.half_of_gradient`), and for one of its result if the next convolution probably reads it
# (`next_reads_half`), in the memory mode "least" only in place of its input.
HALVES: ContextVar[Given] = ContextVar("alpha_halves", default=Given.MAGNITUDE)


def found_beside(
    X: Array, shape: tuple[int, ...], vector: int, residual: Array | None = None, may_be_half: bool = True
) -> Given:
    """The things that a kernel makes besides its result, for the convolution that reads this.

    Args:
        X: an array on a GPU, of the dtype of the result.
        shape: of the result.
        vector: elements that a thread loads and stores together.
        residual: is added to the result. Its magnitude must be known for a limit of that of the result.
        may_be_half: whether a limit of the magnitudes of the result can be known before it is made.
    """
    if X.dtype is not FLOAT32 or X.device.properties.compute_capability[0] != 9:  # as `needs_magnitude`
        return Given.NOTHING
    can = may_be_half and len(shape) == 4 and shape[-1] % PACK == 0 and vector > 1
    return HALVES.get() if can and (residual is None or residual.magnitude is not None) else Given.MAGNITUDE


def with_magnitude(result: Array, found: dict[str, Array]) -> Array:
    """The result, with what a kernel has found of it besides."""
    result.magnitude = magnitude = found.get("magnitude")
    if magnitude is not None:
        magnitude.half = found.get("half")
        magnitude.limit = magnitude.half is not None
    return result


def made_alone(found: dict[str, Array], like: Array) -> HalfAlone:
    """The fp16 copy that a kernel has made in place of a result.

    Args:
        like: an array of the device, shape and dtype of the result.
    """
    magnitude = found["magnitude"]
    magnitude.half, magnitude.limit = found["half"], True
    return HalfAlone(like, magnitude)


def half_alone(array: Array) -> HalfAlone | None:
    """The fp16 copy that lies beside an array, without the array; None if there is none."""
    magnitude = getattr(array, "magnitude", None)
    return None if magnitude is None or magnitude.half is None else HalfAlone(array, magnitude)


def drop_half(X: Array) -> None:
    """Drop the fp16 copy of an array that stays without it in this memory mode, which is then not "fast"."""
    magnitude = getattr(X, "magnitude", None)
    if magnitude is not None and memory.name != FAST:
        magnitude.half = None


def known_magnitudes(a: Array, b: Array) -> Known:
    """The things known of each operand, which no launch computes then."""
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


def forget_stale_magnitude(x: Tensor) -> None:
    """Forget the magnitude of a tensor's array if `magnitude_of` does not give it, so that operators may use it."""
    array = x.array
    if type(array) is not np.ndarray and array.magnitude is not None and magnitude_of(x) is None:
        array.magnitude = None


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
