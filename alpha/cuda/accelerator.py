"""The GPU under the names of `torch.accelerator`.

device = alpha.accelerator.current_accelerator() if alpha.accelerator.is_available() else "cpu"
"""

from __future__ import annotations

from alpha.core.names.missing_names import tell_instead
from alpha.cuda import current_device as current_device_index
from alpha.cuda import device_count, empty_cache, is_available, synchronize
from alpha.runtime import Device, get_device

__all__ = ["current_accelerator", "current_device_index", "device_count", "empty_cache", "is_available", "synchronize"]


def current_accelerator(check_available: bool = False) -> Device | None:
    """The cuda device, or None if no GPU works; `check_available` makes no difference."""
    return get_device("cuda") if is_available() else None


tell_instead(__name__)
