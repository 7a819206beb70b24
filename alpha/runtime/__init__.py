"""Devices: memory, copies, kernel compilation, launches; no tensors, gradients or operators."""

from alpha.runtime.cuda.array import DeviceArray
from alpha.runtime.device import Array, Device, MemoryStats
from alpha.runtime.registry import get_device

__all__ = ["Array", "Device", "DeviceArray", "MemoryStats", "get_device"]
