"""The cuda device, over pycuda or over the emulated driver. Importing it loads neither."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpha import config
from alpha.errors import DeviceError

if TYPE_CHECKING:
    from alpha.runtime.cuda.device import CudaDevice


def open_device() -> CudaDevice:
    """The device of the driver that ALPHA_CUDA_DRIVER names; `DeviceError` says how to fix it."""
    from alpha.runtime.cuda.device import CudaDevice
    from alpha.runtime.cuda.driver import Driver

    driver: Driver
    choice = config.CUDA_DRIVER.get()
    if choice == "pycuda":
        from alpha.runtime.cuda.driver_pycuda import PycudaDriver

        driver = PycudaDriver()
    elif choice == "emulated":
        from alpha.runtime.cuda.driver_emulated import EmulatedDriver

        driver = EmulatedDriver()
    else:
        raise DeviceError(f"ALPHA_CUDA_DRIVER={choice!r} is unknown: use 'pycuda' or 'emulated'")
    return CudaDevice(driver)
