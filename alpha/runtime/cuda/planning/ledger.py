"""The ledger of a planned step: which block was made where, how long it lived, and what it was for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any
from weakref import getweakrefs, ref

from alpha.runtime.arena.arena import Arena
from alpha.runtime.arena.places import Block
from alpha.runtime.device import Array
from alpha.runtime.recording import NO_LAYER, Layer

Where = Callable[[], tuple[str, Layer]]  # the phase and the layer of the code that runs now


@dataclass
class Life:
    """A block: it was the `born`-th, and gone when the `died`-th was made.

    Attributes:
        phase, layer: where it was made.
        kind: what it is, in words; empty as long as nobody has said so.
    """

    nbytes: int
    phase: str
    layer: Layer
    born: int
    died: float = inf
    kind: str = ""


class Ledger:
    """Lives of all blocks of a device, from when it was made.

    Attributes:
        peak: the most bytes that were ever in use when a block had been made.
        peak_at: the number of that block.
    """

    def __init__(self, where: Where) -> None:
        self._where = where
        self._lives: list[Life] = []
        self._open: dict[ref[Block], Life] = {}
        self._walks: list[int] = []  # the numbers of the blocks with which a backward pass began
        self.peak = self.peak_at = 0

    def follow(self, arena: Arena, in_use: Callable[[], int]) -> None:
        """Note each block that an arena makes, and when it dies; `in_use` counts the bytes that are in use."""
        allocate = arena.allocate

        def noted(nbytes: int) -> Block:
            block = allocate(nbytes)
            self._born(block, in_use())
            return block

        arena.allocate = noted  # type: ignore[method-assign]
        arena.returned = _Returned(self._died)
        arena._died = arena.returned.append

    @staticmethod
    def leave(arena: Arena) -> None:
        """Let an arena note nothing any more."""
        vars(arena).pop("allocate", None)
        arena.returned = deque()
        arena._died = arena.returned.append

    def _born(self, block: Block, in_use: int) -> None:
        phase, layer = self._where()
        number = len(self._lives)
        if phase == "backward" and (not self._lives or self._lives[-1].phase != "backward"):
            self._walks.append(number)
        life = Life(block.nbytes, phase, layer, number)
        self._lives.append(life)
        self._open[_reference(block)] = life
        if in_use > self.peak:
            self.peak, self.peak_at = in_use, number

    def _died(self, reference: ref[Block]) -> None:
        life = self._open.pop(reference, None)
        if life is not None:
            life.died = len(self._lives)

    def tell(self, array: Array | Any, kind: str, layer: Layer = NO_LAYER, again: bool = False) -> None:
        """Say what the block of an array is, if nobody has; `again`: also if somebody has."""
        life = self._open.get(_reference(array.block)) if hasattr(array, "block") else None
        if life is not None and (again or not life.kind):
            life.kind, life.layer = kind, life.layer if layer == NO_LAYER else layer

    def at_peak(self) -> list[Life]:
        """The blocks that were alive at the peak."""
        return [life for life in self._lives[: self.peak_at + 1] if life.died > self.peak_at]

    def waits_for_backward(self, life: Life) -> bool:
        """True if a block was made by a forward pass, and was still there when the next backward pass began."""
        walk = next((walk for walk in self._walks if walk > life.born), None)
        return walk is not None and life.phase == "forward" and life.died > walk


class _Returned(deque[ref[Block]]):
    """The blocks of an arena that have died; the ledger learns of each at once."""

    def __init__(self, died: Callable[[ref[Block]], None]) -> None:
        super().__init__()
        self._tell = died

    def append(self, reference: ref[Block]) -> None:
        self._tell(reference)
        super().append(reference)


def _reference(block: Block) -> ref[Block]:
    """The reference of an arena to a block; no other may be made, since arenas know their blocks by all of them."""
    reference: ref[Block] = getweakrefs(block)[0]
    return reference
