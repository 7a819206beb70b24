"""`alpha-doctor`, or `python -m alpha.utils.doctor`: whether Alpha works here, what is missing, and the fix.

It begins with the verdict. Exit status 0 if all that can work works: the CPU, the GPU if the machine has one of NVIDIA,
and each ALPHA_* variable has a value that means something. `--device cuda` fails without a GPU.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np

from alpha import config
from alpha.errors import AlphaError, CompileError, ConfigError, DeviceError
from alpha.installation import install
from alpha.ops.conv2d.select.choose import NAMES
from alpha.runtime import Device, get_device
from alpha.runtime.cuda.compile import find_nvcc, no_compiler, nvcc_version, nvrtc_version, target
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.device import MIB, HostArray
from alpha.train.commands.command_line import Parser, command
from alpha.train.files.state_file import blas

NVIDIA, DISPLAYS = "0x10de", "0x03"  # vendor and class on the PCI bus
STATES = {True: "works", False: "FAILS", None: "absent"}
PACKAGES = {  # distribution -> the extra that installs it, "" for none
    "numpy": "",
    "ml-dtypes": "",
    "scipy": "",
    "threadpoolctl": "",
    "pillow": "",
    "tqdm": "",
    "matplotlib": "plot",
    "pycuda": "cuda",
    "nvidia-ml-py": "cuda",
    "cuda-bindings": "cuda",
    "cuda-core": "cuda",
    "cupti-python": "profile",
}


@dataclass(frozen=True)
class Result:
    """Findings of a device's self-test; `works` is None for a device that the machine does not have."""

    device: str
    works: bool | None
    text: str


@command("alpha-doctor")
def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report and return 0 if every variable and every device that can work is right, else 1."""
    parser = Parser(
        prog="alpha-doctor",
        description="Say whether Alpha works here: test the devices, say what is installed, what is missing and the "
        "fix, list and check every ALPHA_* variable. The exit status is 0 if all that can work works, else 1.",
    )
    parser.add_argument("--device", choices=("all", *TESTS), default="all", help="which device to test (default: all)")
    wanted = parser.parse_args(arguments).device
    wrong = wrong_variables()
    results = [_check(name, test) for name, test in TESTS.items() if wanted in ("all", name)]
    emulated = config.CUDA_DRIVER.get() == "emulated"  # which was asked for, and needs no GPU
    if wanted == "all" and not (results[-1].works or emulated or nvidia_gpu()):
        results[-1] = Result("cuda", None, "this machine shows no NVIDIA GPU")
    print(f"{verdict(results, wrong)}\n")
    for result in results:
        print(f"{result.device:5} {STATES[result.works]}: {result.text}")
    for line in wrong:
        print(f"variable FAILS: {line}")
    print(f"\npython        {platform.python_version()} on {platform.platform()}")
    for name, extra in PACKAGES.items():
        print(f"{name:13} {_package(name, extra)}")
    print(f"BLAS          {blas()}")
    print(f"CPU cores     {os.cpu_count()}")
    print(f"compiler      {_compiler()}")
    print(f"kernel cache  {_cache()}")
    print(f"\n{config.table(shutil.get_terminal_size().columns)}\n")
    for line in config.unknown():
        print(f"warning: {line}\n")
    return 1 if wrong or any(result.works is False for result in results) else 0


def verdict(results: Sequence[Result], wrong: Sequence[str]) -> str:
    """The first line of the report: where Alpha works, and what does not."""
    places = {"cpu": "the CPU", "cuda": "the GPU"}
    works = " and ".join(places[result.device] for result in results if result.works)
    fails = " and ".join(places[result.device] for result in results if result.works is False)
    absent = any(result.works is None for result in results)
    found = f"works on {works}" if works else f"does not work on {fails}"
    found += ", which is all that this machine has" if absent and works and not fails else ""
    found += f", but not on {fails}" if works and fails else ""
    variables = {0: "", 1: "; a setting means nothing"}.get(len(wrong), f"; {len(wrong)} settings mean nothing")
    below = " (see below)" if fails or wrong else ""
    return f"Alpha {config.VERSION} {found}{variables}{below}."


def nvidia_gpu() -> bool:
    """True if the machine has a GPU from NVIDIA, with a driver or without, and it is not hidden from programs."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    with suppress(OSError, AttributeError):
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        count = ctypes.c_int()
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
            return count.value > 0
    for card in Path("/sys/bus/pci/devices").glob("*"):  # of Linux
        with suppress(OSError):
            kind = (card / "class").read_text()
            if (card / "vendor").read_text().strip() == NVIDIA and kind.startswith(DISPLAYS):
                return True
    return False


def wrong_variables() -> list[str]:
    """One line for each ALPHA_* variable whose value means nothing, whether or not something has read it yet."""
    lines = [variable.check() for variable in config.VARIABLES]
    checks: list[Callable[[], str]] = [lambda: config.CONV_KERNEL.choice(NAMES), lambda: target((8, 0))]
    for check in checks:  # ALPHA_CONV_KERNEL, ALPHA_ARCH
        try:
            check()
        except ConfigError as error:
            lines.append(str(error))
    return [line for line in lines if line]


def _package(name: str, extra: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"missing: {install(extra)}"


def _compiler() -> str:
    try:
        nvcc = find_nvcc()
        if nvcc is not None:
            return f"{nvcc}, {nvcc_version(nvcc).strip().splitlines()[-1]}"
        return f"NVRTC {nvrtc_version()}"
    except CompileError:
        return f"missing: {no_compiler()}"


def _cache() -> str:
    """The folder, with what is in it; what is wrong with it is said where kernels are kept."""
    try:
        folder = config.cache_dir()
    except ConfigError as error:
        return f"none: {error}"
    sizes: list[int] = []
    wrong: list[str] = []
    for path, _, files in os.walk(folder, onerror=lambda error: wrong.append(str(error))):
        for name in files:
            with suppress(OSError):  # another process has just removed it
                sizes.append(Path(path, name).lstat().st_size)
    found = f"{folder}, {len(sizes)} files, {sum(sizes) / MIB:.1f} MiB"
    return f"{found}; cannot be read: {wrong[0]}" if wrong and os.path.lexists(folder) else found


def _check(name: str, test: Callable[[Device], str]) -> Result:
    """Run one device's self-test."""
    start = time.perf_counter()
    try:
        device = get_device(name)
        result = test(device)
    except AlphaError as error:
        return Result(name, False, str(error))
    return Result(name, True, f"{result} ({time.perf_counter() - start:.2f} s)")


def _test_cpu(device: Device) -> str:
    A = np.random.default_rng(0).standard_normal((256, 256), dtype=np.float32)
    product = device.download(device.upload(A) @ device.upload(A))
    _compare(product, A.astype(np.float64) @ A, 1e-3)
    return "a 256 x 256 product agrees with float64"


def _test_cuda(device: Device) -> str:
    """Copy, compile, launch with every kind of argument, fill, compare."""
    assert isinstance(device, CudaDevice)
    count, threads, scale, shift = 4096, 128, 3.0, 0.5
    X = np.arange(count, dtype=np.float32)
    target = device.empty(count, np.float32)
    device.launch(
        "runtime/selftest.cu",
        "selftest",
        count // threads,
        threads,
        (device.upload(X), target, scale, count),
        {"SHIFT": shift},
        shared_bytes=4 * threads,
    )
    mirrored = X.reshape(-1, threads)[:, ::-1].reshape(-1)
    _compare(device.download(target), scale * mirrored + shift, 0.0)
    device.fill(target, 0.1)
    _compare(device.download(target), np.full(count, 0.1, np.float32), 0.0)
    properties = device.properties
    return (
        f"{properties.name}, {properties.arch}, {properties.num_sms} SMs, "
        f"{properties.total_bytes / MIB:.0f} MiB, driver {device.driver.name}; "
        f"a kernel compiles and agrees; steps are captured: {device.driver.why_no_capture or 'yes'}"
    )


TESTS: dict[str, Callable[[Device], str]] = {"cpu": _test_cpu, "cuda": _test_cuda}


def _compare(result: HostArray, expected: HostArray, tolerance: float) -> None:
    worst = float(np.abs(result - expected).max())
    if not worst <= tolerance:
        raise DeviceError(f"the self-test is off by {worst}: report this with the lines above")


if __name__ == "__main__":
    sys.exit(main())
