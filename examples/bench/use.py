"""The use of the GPU while a program trains, as NVML tells it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def use_of_gpu() -> Iterator[list[float]]:
    """The list of the GPU's use in percent, every 50 ms; it stays empty without NVML."""
    found: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
            while not stop.wait(0.05):
                found.append(float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu))
        except Exception:  # no NVML: nobody tells
            return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
