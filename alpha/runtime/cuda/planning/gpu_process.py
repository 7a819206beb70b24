"""The GPU memory of this process, as NVIDIA's library NVML counts it, and what of it is not Alpha's arrays."""

from __future__ import annotations

import os

from alpha.runtime.cuda.driver import DeviceProperties

HOPPER_BYTES = 531_000_000  # context, kernels and graphs of Alpha on an H200, the same for networks of 0.9 to 6.8 GB
HOPPER = (9, 0)


def process_bytes(own: str = "") -> int:
    """The GPU memory of this process by NVML; 0 if nobody tells, as without nvidia-ml-py.

    Args:
        own: the GPU of this process, a number or a UUID as in CUDA_VISIBLE_DEVICES, if others have GPUs of their own.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        if own:
            by_number = own.isdigit()
            handles = [
                pynvml.nvmlDeviceGetHandleByIndex(int(own)) if by_number else pynvml.nvmlDeviceGetHandleByUUID(own)
            ]
        else:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        processes = [p for handle in handles for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        found = {p.pid: p.usedGpuMemory or 0 for p in processes}
    except Exception:  # no NVML, or another error of its own kind
        return 0
    if os.getpid() in found:
        return int(found[os.getpid()])
    return int(next(iter(found.values()))) if len(found) == 1 else 0  # in a container numbers differ


def overhead(properties: DeviceProperties, now: int = 0) -> tuple[int, str]:
    """Bytes that a process takes on a GPU beside its arrays, and where the number comes from, in words.

    Args:
        now: what NVML counts beside them at the moment, on that GPU; 0 if that is not known. The kernels of a step and
            its graph may still come on top.
    """
    if now > HOPPER_BYTES or (now and properties.compute_capability != HOPPER):
        return now, "as NVML counts it now"
    where = "" if properties.compute_capability == HOPPER else "; this GPU may take less"
    return HOPPER_BYTES, f"as measured on an H200{where}"
