"""The cuda device, over pycuda or over the emulated driver. Importing it loads neither."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from alpha import config
from alpha.errors import DeviceError
from alpha.installation import OR_CPU

if TYPE_CHECKING:
    from alpha.runtime.cuda.cuda_device import CudaDevice


def open_device() -> CudaDevice:
    """The device of the driver that ALPHA_CUDA_DRIVER names; `DeviceError` says what is missing and the fix."""
    from alpha.runtime.cuda.cuda_device import CudaDevice
    from alpha.runtime.cuda.driver import Driver

    driver: Driver
    if config.CUDA_DRIVER.choice() == "pycuda":
        from alpha.runtime.cuda.driver_pycuda import PycudaDriver

        driver = PycudaDriver()
    else:
        if sys.platform != "linux":
            raise DeviceError(
                f"the emulated cuda driver needs Linux, not {sys.platform}: unset ALPHA_CUDA_DRIVER{OR_CPU}"
            )
        from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver

        driver = EmulatedDriver()
    return CudaDevice(driver)
