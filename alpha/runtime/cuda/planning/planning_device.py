"""A GPU that plans memory: it has the arenas of a cuda device, and addresses in place of memory.

A step that runs here asks the same arenas for the same blocks in the same order as on the GPU, and is captured and
replayed like there. So `memory_stats` shows what the GPU would show, though nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alpha.runtime.arena.arena import Growth
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.driver import DeviceProperties, RawMemory, T
from alpha.runtime.cuda.planning.driver_dry import FIRST_ADDRESS, DryDevice, DryDriver
from alpha.runtime.cuda.planning.ledger import Ledger

Growths = tuple[Growth, Growth]  # of the arena, and of scratch memory
OF_A_GPU: Growths = (Growth.RANGE, Growth.RANGE)
APART = 1 << 52  # bytes between the addresses of the two arenas


class PlanningDriver(DryDriver):
    """A GPU that hands out addresses, counts them, and records steps.

    Args:
        growths: how the arenas grow, as on the GPU that is planned for.
        free: bytes that are free on the GPU, as far as the program asks; a plan may take more.

    Attributes:
        captures, replays: how many have begun.
        most: bytes that were handed out at once.
    """

    why_no_capture = ""

    def __init__(self, properties: DeviceProperties, growths: Growths, free: int) -> None:
        super().__init__(properties, readable=False)
        self.growths = growths
        self._free, self._held = free, 0
        self.captures = self.replays = self.most = 0
        self._sizes: dict[int, int] = {}
        self._ends = {True: FIRST_ADDRESS, False: FIRST_ADDRESS + APART}  # by whether it is scratch memory

    def memory_info(self) -> tuple[int, int]:
        return max(0, self._free - self._held), self._free

    def raw_memory(self, scratch: bool) -> RawMemory:
        def allocate(nbytes: int) -> int:
            address = self._ends[scratch]
            self._ends[scratch] += nbytes if growth is Growth.RANGE else (nbytes // 512 + 1) * 512
            self._sizes[address] = nbytes
            self._held += nbytes
            self.most = max(self.most, self._held)
            return address

        def free(address: int) -> None:
            nbytes = self._sizes.pop(address)
            self._held -= nbytes
            if growth is Growth.RANGE:  # whose last piece it is
                self._ends[scratch] = address

        growth = self.growths[scratch]
        return RawMemory(allocate, free, growth)

    def begin_capture(self) -> None:
        self.captures += 1

    def end_capture(self) -> int:
        return 0

    def abandon_capture(self) -> None: ...

    def replay(self, graph: int, done: list[Any]) -> None:
        self.replays += 1
        done.append(None)

    def free_graph(self, graph: int) -> None: ...

    def outside_capture(self, function: Callable[[], T]) -> T:
        return function()


class PlanningDevice(DryDevice):
    """The cuda device of a planning driver.

    Args:
        ledger: notes the blocks; None plans sums only.

    Attributes:
        at_mark: called at the end of each backward pass.
    """

    def __init__(self, driver: PlanningDriver, ledger: Ledger | None = None) -> None:
        super().__init__(driver)
        self.at_mark: Callable[[], None] = lambda: None
        if ledger is not None:
            total = self.memory.total
            for arena in (self.arena, self.scratch):
                ledger.follow(arena, lambda: total.in_use)

    @classmethod
    def like(cls, device: CudaDevice, ledger: Ledger | None = None) -> PlanningDevice:
        """A device whose arenas grow as those of `device`, with as many free bytes as are there for its arenas."""
        growths = device.arena.growth, device.scratch.growth
        free = device.driver.memory_info()[0] + device.memory.total.reserved
        return cls(PlanningDriver(device.properties, growths, free), ledger)

    def mark_step(self) -> None:
        self.at_mark()
        super().mark_step()

    def close(self) -> None:
        """Close the device; operators that have planned for it may keep it, but not what the ledger knows."""
        super().close()
        for arena in (self.arena, self.scratch):
            Ledger.leave(arena)
        self.driver.launches = []
