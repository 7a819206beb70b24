"""Scratch memory: arrays that captured steps make and drop, shared by all graphs of a device; and small workspaces.

A step asks for the same arrays each time. `Trace` notes when each is made and dropped; `MemoryPlan` then places the
largest first, each in the smallest gap between the arrays that live at the same time. An allocator that learns of an
array only when it is asked for leaves gaps that no later array fits.
"""

from __future__ import annotations

import weakref
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.errors import OutOfMemoryError
from alpha.runtime.arena.arena import Arena, Block, Growth
from alpha.runtime.arena.places import Live, change
from alpha.runtime.cuda.array import ArrayForm, DeviceArray, side_by_side

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice


EVERYWHERE = ((0, 1 << 64),)


class Scratch(Arena):
    """The arena of captured steps.

    It knows its live blocks, notes how long blocks live, can follow a `MemoryPlan` of their addresses, and takes up
    again the state that it had at the end of a capture.
    """

    small_bytes = 0  # a plan gives every block its address

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._trace: Trace | None = None
        self._plan: MemoryPlan | None = None
        self._base = 0
        self._kept: Sequence[tuple[int, int]] = ()

    @property
    def is_range(self) -> bool:
        """True if memory that is given back and asked for again has the same addresses."""
        return self.growth is Growth.RANGE

    def keep(self, extents: Sequence[tuple[int, int]]) -> None:
        """Let no memory of these (begin, end) go back to the device, though no block lies there now."""
        self._kept = self.segments.kept = extents

    @change
    def begin(self, plan: MemoryPlan | None) -> None:
        """Begin a step, with nothing live: note its blocks from here on, and give them the addresses of `plan`."""
        with self._lock:
            self._begin()
            self._coalesce()
            self._meter.peak = self._meter.in_use
            self._trace, self._plan = Trace(), plan
            if plan is not None and plan.nbytes:  # none in a step that only an optimizer makes
                self._base = self._make_room(plan.nbytes)
            self.segments.kept = EVERYWHERE  # what is recorded will use memory of blocks that have died by then
            self._end()

    @change
    def finish(self) -> Trace:
        """End the step and return how long its blocks lived."""
        with self._lock:
            self._begin()
            self._reclaim()
            trace = self._trace
            assert trace is not None
            self._end()
        self.abandon()
        return trace

    def abandon(self) -> None:
        """End the step, whether or not one has begun."""
        self.segments.kept = self._kept
        self._trace = self._plan = None

    def allocate(self, nbytes: int) -> Block:
        block = super().allocate(nbytes)
        if self._trace is not None:
            self._trace.born(block.address, block.nbytes)
        return block

    def _reclaim(self) -> None:
        if self._trace is not None:
            for reference in tuple(self.returned):
                if reference in self._live:
                    self._trace.died(self._live[reference][0])
        super()._reclaim()

    def _choose(self, size: int) -> int | None:
        if self._plan is not None and self._trace is not None:
            self._coalesce()
            offset = self._plan.offset(self._trace.count, size)
            if offset is not None and self._free.take_at(self._base + offset, size):
                return self._base + offset
            self._plan = None  # the step does something else than it did: the rest is not planned
        return super()._choose(size)

    def _make_room(self, nbytes: int) -> int:
        """The address of so many consecutive free bytes, for which segments are added if needed."""
        address = self._free.fit(nbytes)
        if address is None and self.segments.grow(nbytes):
            address = self._free.fit(nbytes)
        if address is None:
            raise OutOfMemoryError(f"out of memory: a step needs {nbytes} bytes, {self._meter.total or self._meter}")
        return address

    @change
    def live_sizes(self) -> dict[int, tuple[int, str]]:
        """(bytes, label) of the live blocks by their addresses, in ascending order."""
        with self._lock:
            self._begin()
            self._reclaim()
            self._end()
            return {address: (size, label) for address, size, label in sorted(self._live.values())}

    @change
    def restore(self, live: Mapping[int, tuple[int, str]]) -> dict[int, Block]:
        """Blocks at the addresses of `live`, which `live_sizes` has given; nothing else may be live before.

        What an earlier call has made for the same replay, and was cut off, is made use of.
        """
        with self._lock:
            self._begin()
            self._coalesce()
            blocks = {block.address: block for reference in self._live if (block := reference()) is not None}
            if any(address not in live or block.nbytes != live[address][0] for address, block in blocks.items()):
                raise AssertionError(f"{len(blocks)} blocks of scratch memory are live before a replay")
            self.segments.free_all_but((address, size) for address, (size, _) in live.items())
            added: Live = {}
            for address, (size, label) in live.items():
                if address not in blocks:
                    blocks[address] = block = Block(self, address, size)
                    added[weakref.ref(block, self._died)] = address, size, label
            self._live.update(added)
            self._meter.use(sum(size for _, size, _ in added.values()))
            self._end()
        return blocks


WORKSPACE_BYTES = 2**20  # most workspaces are smaller


class SmallWorkspaces:
    """One piece of a device's memory, of `WORKSPACE_BYTES`, that all plans use for their workspaces if these fit.

    Plans may share it because the launches of one plan end before those of the next plan begin. A plan whose workspaces
    lie here does not ask the arena for memory each time that it is launched.

    Attributes:
        memory: None until a plan has asked for some.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self.memory: DeviceArray | None = None

    def of(self, forms: tuple[ArrayForm, ...]) -> list[DeviceArray] | None:
        """Arrays for the workspaces of a plan; None if they do not fit, or if each array is isolated."""
        offsets, nbytes = side_by_side(forms)
        device = self._device
        if nbytes > WORKSPACE_BYTES or device.arena.is_isolated:
            return None
        if self.memory is None:
            self.memory = device.outside_capture(lambda: device.empty((WORKSPACE_BYTES,), np.uint8))
        block = self.memory.block
        return [DeviceArray(device, block, offset, form) for offset, form in zip(offsets, forms, strict=True)]

    def clear(self) -> None:
        """Give the memory back; no plan may be launched any more."""
        self.memory = None


@dataclass
class Life:
    """A block of `nbytes`: it is the `birth`-th that was asked for, and gone when the `death`-th was."""

    nbytes: int
    birth: int
    death: float = inf


class Trace:
    """The blocks of a step, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.begin, self.end = 0, 0  # of the memory that the blocks have lain in
        self._living: dict[int, Life] = {}

    @property
    def count(self) -> int:
        """Number of blocks that were asked for."""
        return len(self.lives)

    def born(self, address: int, nbytes: int) -> None:
        """Note a new block."""
        self.begin = min(self.begin, address) if self.lives else address
        self.end = max(self.end, address + nbytes)
        life = self._living[address] = Life(nbytes, self.count)
        self.lives.append(life)

    def died(self, address: int) -> None:
        """Note that a block was dropped; one from before the trace is left out."""
        life = self._living.pop(address, None)
        if life is not None:
            life.death = self.count


class MemoryPlan:
    """Offsets for the blocks of a step.

    Attributes:
        lives: of the blocks.
        nbytes: of all blocks together.
    """

    def __init__(self, lives: Sequence[Life]) -> None:
        self.lives = lives
        self._offsets = min(
            (_place(lives, smallest_gap) for smallest_gap in (True, False)), key=lambda offsets: _end(lives, offsets)
        )
        self.nbytes = _end(lives, self._offsets)

    def offset(self, number: int, nbytes: int) -> int | None:
        """Offset of the block that is asked for as the `number`-th; None if the plan has another one there."""
        if number < len(self.lives) and self.lives[number].nbytes == nbytes:
            return self._offsets[number]
        return None


def _end(lives: Sequence[Life], offsets: Sequence[int]) -> int:
    return max((offset + life.nbytes for offset, life in zip(offsets, lives, strict=True)), default=0)


def _place(lives: Sequence[Life], smallest_gap: bool) -> list[int]:
    """The offset of each block, the largest placed first; in the smallest gap that holds it, or in the lowest."""
    offsets = [0] * len(lives)
    placed: list[tuple[int, int, int, float]] = []  # (offset, end, birth, death), by offset
    for number in sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, i)):
        life = lives[number]
        place, best, end = -1, inf, 0
        for low, high, birth, death in placed:
            if birth >= life.death or life.birth >= death:
                continue
            if low - end >= life.nbytes and (low - end < best if smallest_gap else place < 0):
                place, best = end, low - end
            end = max(end, high)
        offsets[number] = place if place >= 0 else end
        insort(placed, (offsets[number], offsets[number] + life.nbytes, life.birth, life.death))
    return offsets
