"""The properties of one GPU per architecture, for drivers that have none."""

from __future__ import annotations

from alpha.runtime.cuda.driver import DeviceProperties

# architecture -> (SMs, shared memory that a block may have) of one GPU of it
ARCHITECTURES = {
    "sm_75": (40, 64 * 1024),
    "sm_80": (108, 163 * 1024),
    "sm_86": (84, 99 * 1024),
    "sm_89": (128, 99 * 1024),
    "sm_90": (132, 227 * 1024),
    "sm_90a": (132, 227 * 1024),
    "sm_100": (148, 227 * 1024),
    "sm_120": (170, 99 * 1024),
}


def properties_of(arch: str, driver: str, total_bytes: int) -> DeviceProperties:
    """The properties of a GPU of `arch`, one of ARCHITECTURES.

    Args:
        driver: what stands in for the GPU; the name begins with it.
        total_bytes: the size of the memory.
    """
    num_sms, shared_bytes = ARCHITECTURES[arch]
    capability = divmod(int(arch.removeprefix("sm_").removesuffix("a")), 10)
    return DeviceProperties(f"{driver} {arch}", arch, capability, num_sms, shared_bytes, total_bytes, driver)
