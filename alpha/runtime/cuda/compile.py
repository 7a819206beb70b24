"""CUDA compilers: nvcc, and NVRTC where nvcc is missing; many kernels are compiled at once.

`compile_cached(compiler, source, options)` of cache.py keeps what they make; it takes what `cuda_compiler(arch)`
returns here. Architectures have the names of nvcc, such as sm_90a.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeAlias

from alpha import config
from alpha.errors import CompileError, ConfigError
from alpha.installation import install
from alpha.runtime import progress, workers
from alpha.runtime.activity import busy
from alpha.runtime.cuda.cache import CommandCompiler, Compiler, Group, compile_cached, failure, read_log, source_root
from alpha.runtime.cuda.driver import DeviceProperties, Driver

__all__ = [
    "CommandCompiler",
    "Compiler",
    "NvrtcCompiler",
    "compile_cached",
    "cuda_compiler",
    "find_nvcc",
    "nvcc_compiler",
    "nvcc_version",
    "nvrtc_version",
    "read_log",
    "source_root",
    "target",
]


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


Unit: TypeAlias = tuple[str, tuple[str, ...]]  # a file below cuda/ and the options of the compiler

POLL_S = 0.1  # between two looks at an interrupt that is held back


def compile_units(driver: Driver, units: Iterable[Unit], check: Callable[[], object] = lambda: None) -> int:
    """Compile the units that the disk cache does not have, as many at a time as this process may use cores.

    A bar on a terminal shows how many are done.

    Args:
        check: is called again and again meanwhile; what it raises stops the compilers.

    Returns:
        How many units were compiled.

    Raises:
        CompileError: a unit does not compile; the compilers of the others are stopped.
    """
    asked = dict.fromkeys(units)
    if not asked:
        return 0
    root = source_root()
    wanted = [(root / source, options) for source, options in asked]
    missing = [unit for unit in wanted if not driver.is_compiled(*unit)]
    if not missing:
        return 0
    group = Group()
    pool = ThreadPoolExecutor(min(workers.cores(), len(missing)), "alpha-compile", initializer=group.join)
    with busy("compiles kernels"), progress.bar("compiling kernels", len(missing), unit="kernel", leave=False) as bar:
        try:
            left = {pool.submit(driver.compile, *unit) for unit in missing}
            while left:
                done, left = wait(left, POLL_S, FIRST_COMPLETED)
                for future in done:
                    future.result()
                bar.update(len(done))
                check()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            group.stop()
            raise
        finally:
            pool.shutdown()
    return len(missing)


def no_compiler() -> str:
    """Advice for a machine without nvcc and NVRTC."""
    return f"no CUDA compiler: install the CUDA toolkit, or {install('cuda', 'nvrtc')}"


DEFAULT_HOME = "/usr/local/cuda"

# NVRTC declares the CUDA runtime itself and has no C library: the two headers that kernels include.
NVRTC_HEADERS = {
    b"cuda_runtime.h": b"",
    b"stdint.h": b"""
typedef signed char int8_t;      typedef unsigned char uint8_t;
typedef short int16_t;           typedef unsigned short uint16_t;
typedef int int32_t;             typedef unsigned int uint32_t;
typedef long long int64_t;       typedef unsigned long long uint64_t;
typedef long long intptr_t;      typedef unsigned long long uintptr_t;
""",
}


def target(compute_capability: tuple[int, int]) -> str:
    """The architecture to compile for: ALPHA_ARCH, or (9, 0) -> "sm_90a" (wgmma needs the "a")."""
    major, minor = compute_capability
    wanted = config.ARCH.get()
    if wanted and not re.fullmatch(r"sm_\d{2,3}[af]?", wanted):
        raise ConfigError(f"{config.ARCH.name}={wanted!r} is unknown: use a name such as 'sm_80' or 'sm_90a'")
    return wanted or f"sm_{major}{minor}{'a' if (major, minor) == (9, 0) else ''}"


def cuda_compiler(arch: str) -> Compiler:
    """nvcc for this architecture, or NVRTC where nvcc is missing; ALPHA_COMPILER forces one."""
    choice = config.COMPILER.choice()
    nvcc = find_nvcc()
    if nvcc is not None and choice != "nvrtc":
        return nvcc_compiler(nvcc, arch)
    if choice == "nvcc":
        raise CompileError("nvcc is not found: set CUDA_HOME, or put nvcc on PATH")
    return NvrtcCompiler(arch)


def find_nvcc() -> Path | None:
    """The nvcc of CUDA_HOME, of PATH, or of /usr/local/cuda."""
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    in_home, in_default = [shutil.which("nvcc", path=f"{home}/bin") if home else None for home in homes]
    found = in_home or shutil.which("nvcc") or in_default
    return Path(found) if found else None


def nvcc_compiler(nvcc: Path, arch: str) -> CommandCompiler:
    """A cubin for one architecture; the log has ptxas' resource report."""
    flags = [f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"]
    flags += ["-cubin", "-O3", "-std=c++17", "-lineinfo", "-Xptxas=-v"]

    def command(source: Path, options: Sequence[str], output: Path) -> list[str]:
        paths = ["-I", str(source_root()), "-o", str(output), str(source)]
        # nvcc would split -DALPHA_EXPRESSION=pow(a, p) into two macros at the comma
        escaped = [option.replace(",", "\\,") for option in options]
        return [str(nvcc), *flags, *escaped, *paths]

    identity = "\n".join((nvcc_version(nvcc), *flags))
    return CommandCompiler("nvcc", identity, ".cubin", command)


@functools.cache
def nvcc_version(nvcc: Path) -> str:
    """Text that `nvcc --version` prints."""
    try:
        return subprocess.run([str(nvcc), "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompileError(f"{nvcc} does not run: {error}") from error


class NvrtcCompiler(Compiler):
    """NVRTC, in the process, through cuda-bindings: a GPU machine without nvcc can compile too."""

    suffix = ".cubin"

    def __init__(self, arch: str) -> None:
        self._nvrtc = _load_nvrtc()
        self._flags = [f"--gpu-architecture={arch}", "-std=c++17", "-lineinfo"]
        self._flags += ["--ptxas-options=-v", "-default-device"]
        self.identity = "\n".join((f"nvrtc {nvrtc_version()}", *self._flags))

    def build(self, source: Path, options: Sequence[str], output: Path) -> str:
        folders = (source_root(), *_toolkit_headers())
        flags = [*self._flags, *(f"--include-path={folder}" for folder in folders), *options]
        headers, names = list(NVRTC_HEADERS.values()), list(NVRTC_HEADERS)
        text, title = source.read_bytes(), str(source).encode()
        program = self._call("nvrtcCreateProgram", text, title, len(names), headers, names)
        try:
            encoded = [flag.encode() for flag in flags]
            (status,) = self._nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
            log = self._read("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program)
            report = log.rstrip(b"\0").decode(errors="replace")
            if int(status):
                raise failure(source, options, f"nvrtc {' '.join(flags)}", report, status.name)
            output.write_bytes(self._read("nvrtcGetCUBINSize", "nvrtcGetCUBIN", program))
            return report
        finally:
            self._nvrtc.nvrtcDestroyProgram(program)

    def _call(self, name: str, *args: Any) -> Any:
        status, *values = getattr(self._nvrtc, name)(*args)
        if int(status):
            raise CompileError(f"{name} failed: {status.name}")
        return values[0] if values else None

    def _read(self, size: str, content: str, program: Any) -> bytes:
        buffer = bytearray(self._call(size, program))
        self._call(content, program, buffer)
        return bytes(buffer)


def nvrtc_version() -> str:
    """NVRTC's version, e.g. "13.0"; `CompileError` with the fix where it is missing."""
    _, major, minor = _load_nvrtc().nvrtcVersion()
    return f"{major}.{minor}"


def _load_nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise CompileError(f"{no_compiler()} ({error})") from error
    return nvrtc


def _toolkit_headers() -> list[Path]:
    """Folder of cuda_bf16.h and its like, if there is one: of a CUDA toolkit, or of the nvidia-cuda-runtime package."""
    folders = [Path(home, "include") for home in (os.environ.get("CUDA_HOME"), DEFAULT_HOME) if home]
    packages = importlib.util.find_spec("nvidia")
    for base in (packages.submodule_search_locations or []) if packages else []:
        folders += sorted(Path(base).glob("*/include"))
    return [folder for folder in folders if (folder / "cuda_bf16.h").is_file()][:1]
