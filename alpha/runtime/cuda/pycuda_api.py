"""pycuda as its driver uses it: the import, errors that name the call, the properties of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from alpha.errors import DeviceError
from alpha.runtime.cuda.driver import DeviceProperties

try:
    import pycuda.driver as drv
except ImportError as error:
    fix = "pip install -e '.[cuda]' in Alpha's checkout"
    if "libcuda" in str(error):  # pycuda is there, the driver is not
        fix = "install the NVIDIA driver"
    raise DeviceError(f"no pycuda ({error}): {fix}, or use device='cpu'") from error

__all__ = ["drv", "explain", "guarded", "of_range", "properties_of"]

REFUSALS = ("invalid argument", "invalid value", "not found")  # of this call, not a kernel's fault

P = ParamSpec("P")
R = TypeVar("R")


def guarded(method: Callable[P, R]) -> Callable[P, R]:
    """Check the thread, and turn pycuda's errors into `DeviceError` that names the call."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        driver: Any = args[0]
        driver.owner.check(method.__name__)
        try:
            return method(*args, **kwargs)
        except drv.Error as error:
            raise DeviceError(explain(driver.last_kernel, method.__name__, error)) from error

    return call


def of_range(driver: Any, call: Callable[[int], Any], wait: bool = False) -> Callable[[int], Any]:
    """A call of an `AddressRange` that checks the thread, and waits for the work that may use what it gives back."""

    def guarded(value: int) -> Any:
        driver.owner.check(call.__name__)
        if wait:
            driver.synchronize()
        return call(value)

    return guarded


def explain(last_kernel: str, call: str, error: Exception) -> str:
    """The message of an error in a call, which may be the fault of a kernel that was launched before it."""
    if any(word in str(error) for word in REFUSALS):
        return f"{call}: {error}"
    return (
        f"{call}: {error} (a kernel's fault shows at a later call; the last one launched was "
        f"{last_kernel}; CUDA_LAUNCH_BLOCKING=1 shows which it is)"
    )


def properties_of(device: Any) -> DeviceProperties:
    """What a kernel's choice depends on."""
    attribute = drv.device_attribute
    major, minor = device.compute_capability()
    version = drv.get_driver_version()
    return DeviceProperties(
        name=device.name(),
        arch=f"sm_{major}{minor}",
        compute_capability=(major, minor),
        num_sms=device.get_attribute(attribute.MULTIPROCESSOR_COUNT),
        shared_bytes_per_block=device.get_attribute(attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        total_bytes=device.total_memory(),
        driver=f"CUDA {version // 1000}.{version % 1000 // 10}",
    )
