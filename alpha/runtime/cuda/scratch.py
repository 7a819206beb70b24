"""The scratch arena: memory of the arrays that captured steps make and drop, shared by all graphs of a device."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from alpha.errors import OutOfMemoryError
from alpha.runtime.arena import Arena, Block, Growth
from alpha.runtime.cuda.plan import Plan, Trace
from alpha.runtime.places import Live, change

EVERYWHERE = ((0, 1 << 64),)


class Scratch(Arena):
    """The arena of captured steps.

    It knows its live blocks, notes how long blocks live, can follow a `Plan` of their addresses, and takes up again the
    state that it had at the end of a capture.
    """

    small_bytes = 0  # a plan gives every block its address

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._trace: Trace | None = None
        self._plan: Plan | None = None
        self._base = 0
        self._kept: Sequence[tuple[int, int]] = ()

    @property
    def is_range(self) -> bool:
        """Whether memory that is given back and asked for again has the same addresses."""
        return self._growth is Growth.RANGE

    def keep(self, extents: Sequence[tuple[int, int]]) -> None:
        """Let no memory of these (begin, end) go back to the device, though no block lies there now."""
        self._kept = self.segments.kept = extents

    @change
    def begin(self, plan: Plan | None) -> None:
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
        """End the step; how long its blocks lived."""
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
    def live_blocks(self) -> list[Block]:
        """The blocks that somebody still holds."""
        with self._lock:
            self._begin()
            self._reclaim()
            self._end()
            blocks = [reference() for reference in self._live]
        return [block for block in blocks if block is not None]

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
