"""Fused updates: one launch per group changes all parameters and their state arrays in place.

An optimizer declares its hyper-parameters as fields (`hyper.py`), and its update beside its class: a `NamedTuple` of
the numbers of a step, and a function of one parameter in numpy. The kernel `cuda/optimizer/<name>.cu` has a struct
`Rule` with the same fields in the same order.

On a GPU the same launch writes what operators have asked for beside a parameter: its bfloat16 copy, its largest
magnitude (alpha/autograd/derived.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, get_type_hints

import numpy as np

from alpha.autograd.derived import make_room, settle, to_write
from alpha.core.primitive import Array, Primitive, primitive
from alpha.core.tensor import Tensor
from alpha.ops.conv2d.magnitudes import MAGNITUDE
from alpha.ops.kernel.casts import COPY
from alpha.ops.kernel.tables.deferred import make
from alpha.ops.kernel.tables.multi_tensor import in_chunks, launch_update
from alpha.optim.optimizer import Group, Optimizer, gradients
from alpha.runtime.recording import StepValue


class Decay(NamedTuple):
    """The change of a gradient g and of a parameter W before the update; `Decay` of cuda/optimizer/update.cuh.

    g = sign g + l2 W + l1 sign(W);  W = shrink W - shift sign(W), in which the right sides have the old W.
    """

    sign: float = 1.0
    shrink: float = 1.0
    shift: float = 0.0
    l2: float = 0.0
    l1: float = 0.0

    @classmethod
    def of(cls, group: Mapping[str, Any], decoupled: bool = False) -> Decay:
        """The decay of a group; if `decoupled`, it is not in the gradient, and W is changed instead."""
        l2, l1, sign = float(group["weight_decay"]), float(group["l1_decay"]), -1.0 if group["maximize"] else 1.0
        if decoupled:
            return cls(sign, shrink=1 - group["lr"] * l2, shift=group["lr"] * l1)
        return cls(sign, l2=l2, l1=l1)

    def apply(self, w: Array, g: Array) -> Array:
        """Change w in place and return the new gradient."""
        t = w.dtype.type
        if self.sign < 0:
            g = -g
        if self.l2:
            g = g + t(self.l2) * w
        direction = np.sign(w) if self.l1 or self.shift else w
        if self.l1:
            g = g + t(self.l1) * direction
        if self.shrink != 1:
            w *= t(self.shrink)
        if self.shift:
            w -= t(self.shift) * direction
        return g


def fused_update(name: str, cpu: Callable[..., None]) -> Primitive:
    """The primitive `<name>_update(parameters, gradients, slots, numbers, beside)`, which changes parameters in place.

    Args:
        name: the kernel is `name` of cuda/optimizer/<name>.cu.
        cpu: `cpu(numbers, w, g, *slots)` updates a chunk of one parameter w, whose gradient g it does not change. Its
            docstring has the formulas.

    `slots` has a list of arrays for each state array of a parameter, which change, too. A list is empty if the settings
    do not need it; `cpu` has None in its place then. `numbers` is a `StepValue` of a `NamedTuple` of floats, bools and
    `Decay`. `beside` is nothing, or two lists: the copy of each parameter in bfloat16 and its largest magnitude (see
    `MAGNITUDE`), which are written, too; None where one is not wanted. Inside of `deferred` the changes wait.
    """

    def contract(
        parameters: list[Array],
        gradients: list[Array],
        slots: Sequence[list[Array]],
        numbers: StepValue[Any],
        beside: Sequence[Sequence[Array | None]] = (),
    ) -> None: ...

    contract.__name__ = f"{name}_update"
    contract.__doc__ = cpu.__doc__
    result = primitive(contract)

    @result.impl("cpu")
    def _(
        parameters: list[Array],
        gradients: list[Array],
        slots: Sequence[list[Array]],
        numbers: StepValue[Any],
        beside: Sequence[Sequence[Array | None]] = (),
    ) -> None:
        now, held = numbers.now(), [bool(slot) for slot in slots]

        def update(w: Array, g: Array, *arrays: Array) -> None:
            there = iter(arrays)
            cpu(now, w, g, *[next(there) if used else None for used in held])

        def all_chunks() -> None:
            with np.errstate(all="ignore"):
                in_chunks([parameters, gradients, *filter(None, slots)], update)
                for w, *values in zip(parameters, *beside, strict=True) if beside else ():
                    _write_beside(w, *values)

        make(all_chunks)

    @result.impl("cuda")
    def _(
        parameters: list[Array],
        gradients: list[Array],
        slots: Sequence[list[Array]],
        numbers: StepValue[Any],
        beside: Sequence[Sequence[Array | None]] = (),
    ) -> None:
        held = sum(1 << index for index, slot in enumerate(slots) if slot)
        arrays = [parameters, gradients, *(slot or parameters for slot in slots)]
        launch_update(name, arrays, held, numbers, _packed, beside or [[None] * len(parameters)] * len(BESIDE))

    return result


BESIDE = COPY, MAGNITUDE  # what updates can write beside a parameter: the columns of `Row` in update.cuh


def _write_beside(w: Array, copy: Array | None, magnitude: Array | None) -> None:
    if copy is not None:
        copy[...] = w
    if magnitude is not None:
        magnitude[0] = np.abs(w[np.isfinite(w)]).max(initial=0).view(np.uint32)


def update_weights(
    update: Primitive, weights: list[Tensor], given: list[Array], slots: Sequence[list[Array]], numbers: StepValue[Any]
) -> None:
    """Update weights by `given` (see `fused_update`), and with them what operators have asked for beside them."""
    arrays = [weight.array for weight in weights]
    if isinstance(arrays[0], np.ndarray):
        update(arrays, given, slots, numbers)
        return
    make_room(weights, BESIDE)
    columns = [to_write(arrays, kind) for kind in BESIDE]
    written = [value for column in columns for value in column if value is not None]
    for value in written:
        value.note()
    beside = [[None if value is None else value.array for value in column] for column in columns]
    update(arrays, given, slots, numbers, beside if written else ())
    make(functools.partial(settle, written))


def _packed(numbers: Any) -> Any:
    """The struct `Rule` of the kernel."""
    return np.array(numbers, _struct(numbers.__class__))[()]


@functools.cache
def _struct(numbers: type) -> np.dtype[Any]:
    """The C++ struct of a `NamedTuple`: a float for a float, an int for a bool, in the same order."""
    kinds: dict[Any, Any] = {float: np.float32, bool: np.int32}
    fields = [(name, kinds.get(kind) or _struct(kind)) for name, kind in get_type_hints(numbers).items()]
    return np.dtype(fields, align=True)


class FusedOptimizer(Optimizer):
    """Base of the optimizers whose update is one kernel: it names `update`, `slots` and `_numbers`."""

    update: ClassVar[Primitive]
    per_step: ClassVar[frozenset[str]] = frozenset({"lr", "initial_lr", "momentum", "betas"})
    own_settings: ClassVar[frozenset[str]] = frozenset({"l1_decay"})

    def _used_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        """The slots that the settings of `group` need."""
        return self.slots

    def _structure(self, group: Mapping[str, Any]) -> tuple[Any, ...]:
        return self._used_slots(group)

    def _required_slots(self, group: Mapping[str, Any]) -> tuple[str, ...]:
        return self._used_slots(group)

    def _numbers(self, group: Group, state: Mapping[str, Any]) -> Any:
        """The numbers of a step of parameters of one age, one of which has this `state`."""
        raise TypeError(f"{self._name} defines no update")

    def _update(self, group: Group, ready: list[Tensor]) -> None:
        self._launch(group, ready, self._numbers)

    def _launch(self, group: Group, ready: list[Tensor], numbers_of: Callable[[Group, Mapping[str, Any]], Any]) -> None:
        used = self._used_slots(group)
        slots = [self._slots(name, ready, group) if name in used else [] for name in self.slots]
        numbers = StepValue(lambda: numbers_of(group, self.state[ready[0]]))
        update_weights(type(self).update, ready, gradients(ready), slots, numbers)
