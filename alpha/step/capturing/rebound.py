"""Tensors to which a step gives other memory, as `p.data = kept`, or whose place in a state gets a new tensor.

The next call of the step would read the new memory, a replay the memory of before. If nobody but the step's own
objects holds that, the captured step ends by a copy of the values into it, and nobody sees a difference.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable
from sys import getrefcount
from types import FrameType
from typing import Any

from alpha.autograd.versions import Version
from alpha.core.nested import map_tensors
from alpha.core.tensor import Tensor
from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.step.capturing.host_state import HostState
from alpha.step.sources.watch import Watch


class Bound:
    """The memory of the tensors of a `Watch`, and the tensors in the states of optimizers, before a step runs.

    Args:
        holders: with what the captured step itself holds tensors and arrays.
    """

    def __init__(self, watch: Watch, host: HostState, holders: Iterable[Any]) -> None:
        self._watch, self._host = watch, host
        self._own = {id(part) for part in (*watch.holders(), *holders)}
        self._tensors = [(tensor, tensor.array, tensor._version) for tensor in watch.tensors]
        self._own |= {id(self._tensors), *map(id, self._tensors)}
        self.copied_to: list[Any] = []  # the objects that nobody else may hold

    def restore(self) -> None:
        """Take back what a step that was only recorded has done."""
        for tensor, array, version in self._tensors:
            tensor.array, tensor._version = array, version

    def settle(self, device: CudaDevice, result: Any, held: dict[int, Any]) -> None:
        """Copy what the step has made into the memory of before, where nobody sees a difference."""
        moved = [(t, array, version) for t, array, version in self._tensors if t.array is not array]
        exchanged = [
            (slots, name, old, slots[name])
            for slots, before in self._host.states()
            for name, old in before.items()
            if isinstance(old, Tensor) and isinstance(slots.get(name), Tensor) and slots[name] is not old
        ]
        arrays = [(array, tensor.array) for tensor, array, _ in moved]
        arrays += [(_array_before(self._tensors, old), new.array) for _, _, old, new in exchanged]
        if not arrays or not self._may_be_copied(device, arrays, result):
            return
        known = {id(tensor) for tensor in self._watch.tensors} | {id(array) for _, array, _ in self._tensors}
        targets = list({id(target): target for target, _ in arrays}.values())
        olds = [old for _, _, old, _ in exchanged]
        slots = {id(slots) for slots, _ in self._host.states()} | {id(before) for _, before in self._host.states()}
        own = self._own | known | slots | {id(held), id(targets), id(olds)}
        own |= {id(pair) for pair in (*arrays, *moved, *exchanged)}
        memories = [target.block for target in targets]
        if any(_held_elsewhere(values, own) for values in ([*targets, *olds], memories)):
            gc.collect()  # circles that nobody reaches may hold them
            if any(_held_elsewhere(values, own) for values in ([*targets, *olds], memories)):
                return
        for target, source in {id(target): (target, source) for target, source in arrays}.values():
            device.copy_into(target, source)
        for slots_, name, old, _ in exchanged:
            slots_[name] = old
        targets_of = {id(tensor.array): (array, version) for tensor, array, version in moved}
        for holder in gc.get_referrers(*[tensor.array for tensor, _, _ in moved]) if moved else ():
            if isinstance(holder, Tensor) and id(holder.array) in targets_of:  # they share the memory from then on
                holder.array, holder._version = targets_of[id(holder.array)]
        for tensor, array, version in moved:
            tensor.array, tensor._version = array, version
            version.bump("data")
        self.copied_to = [*targets, *olds, *memories]

    def _may_be_copied(self, device: CudaDevice, arrays: list[tuple[Any, Any]], result: Any) -> bool:
        """True if all of the new arrays are the step's own, fit, and each memory of before gets one of them."""
        sources: dict[int, int] = {}
        given: set[int] = set()
        map_tensors(result, lambda tensor: given.add(id(getattr(tensor.array, "block", None))))
        for target, source in arrays:
            if not isinstance(target, DeviceArray) or not isinstance(source, DeviceArray):
                return False
            if target.form != source.form or source.block.arena is not device.scratch or id(source.block) in given:
                return False
            if target.block.arena is device.scratch or sources.setdefault(id(target.block), id(source)) != id(source):
                return False
        return True


def _array_before(tensors: list[tuple[Tensor, Any, Version]], tensor: Tensor) -> Any:
    return next((array for other, array, _ in tensors if other is tensor), None)


def _held_elsewhere(values: list[Any], own: set[int]) -> bool:
    """True if something beside the objects with the ids `own` holds one of the values."""
    everything = [*values, _Lonely()]
    ids, counts = {id(value) for value in everything}, Counter[int]()
    for holder in gc.get_referrers(*everything):
        if isinstance(holder, FrameType) or holder is everything:
            continue
        if id(holder) not in own and holder is not values:
            return True
        counts.update([id(part) for part in gc.get_referents(holder) if id(part) in ids])
    free = {getrefcount(value) - counts[id(value)] for value in everything}
    return len(free) > 1  # there are more references than were found


class _Lonely:
    """Object that nothing but a list holds."""
