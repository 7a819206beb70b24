"""Questions about the GPU under PyTorch's names: `alpha.cuda.is_available()`."""

from __future__ import annotations

from alpha.runtime import get_device

__all__ = ["device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """True if a GPU works, so that "auto" means "cuda"; the emulated driver, which is slow, does not count."""
    return get_device("auto").name == "cuda"


def device_count() -> int:
    """The number of GPUs that Alpha uses: 1, or 0 if none works."""
    return int(is_available())


def synchronize() -> None:
    """Wait until all work given to the cuda device is done; raises what went wrong in it."""
    get_device("cuda").synchronize()
