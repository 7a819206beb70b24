"""Runs the small kernels of tests/emulation/kernels/ on the emulated driver, or on another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from alpha.runtime.cuda.driver import Driver
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.kernel import Define, define_options, pack

KERNELS = Path(__file__).parent / "kernels"


class Emulator:
    """Runs one kernel with numpy arrays as its device memory; they hold the result afterwards."""

    def __init__(self, driver: Driver | None = None) -> None:
        self.driver = driver or EmulatedDriver()

    def __call__(
        self,
        source: str,
        entry: str,
        grid: int | tuple[int, int, int],
        block: int | tuple[int, int, int],
        *args: Any,
        shared_bytes: int = 0,
        defines: Mapping[str, Define] | None = None,
    ) -> None:
        grid3 = (grid, 1, 1) if isinstance(grid, int) else grid
        block3 = (block, 1, 1) if isinstance(block, int) else block
        path = self.driver.compile(KERNELS / source, define_options(defines or {}))
        function = self.driver.function(self.driver.load(path), entry, shared_bytes)
        arrays = [(arg, self._upload(arg)) for arg in args if isinstance(arg, np.ndarray)]
        addresses = iter([address for _, address in arrays])
        values = [np.uint64(next(addresses)) if isinstance(a, np.ndarray) else a for a in args]
        try:
            self.driver.launch(function, grid3, block3, shared_bytes, pack(values))
            for array, address in arrays:
                self.driver.download(array, address)
        finally:
            for _, address in arrays:
                self.driver.free(address)

    def _upload(self, array: np.ndarray[Any, Any]) -> int:
        address = self.driver.allocate(array.nbytes)
        self.driver.upload(address, array)
        return address


def source_line(source: str, text: str) -> int:
    """The number of the one line of a kernel file that holds `text`."""
    lines = (KERNELS / source).read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if text in line]
    return number
