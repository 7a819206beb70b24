"""Compilation of a kernel file to a library for the CPU: the C++ compiler and cuda/common/emulation."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from alpha import config
from alpha.errors import CompileError, DeviceError
from alpha.runtime.cuda import cache
from alpha.runtime.cuda.cache import Compiler, cache_key, compile_cached, failure, source_root
from alpha.runtime.cuda.emulated.emulated_memory import MAX_THREADS

# CUDA code reinterprets pointers freely, so no strict aliasing; its integers wrap. No product is contracted with a sum,
# so that each -O gives the same bits.
FLAGS = (
    *("-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off"),
    *("-fno-exceptions", "-fno-rtti", "-Wall", "-Wno-unknown-pragmas", "-Wno-unused"),
    *("-pipe", "-DALPHA_EMULATED"),
)
# A kernel needs no C++ library, and to search through it takes a tenth of the time of a small one.
LIBRARIES = ("-nodefaultlibs", "-lm", "-lgcc", "-lc")
HEADER, EMULATOR = "common/cuda.h", "common/emulation/emulator.cpp"  # what is compiled once, for all kernels
DEBUG = ("-O0", "-g3")  # g3: the debugger knows threadIdx and the other macros
EXACT = ("-Og",)  # of sanitizer builds: reports keep the right line
# Beside -O1 of g++: kernels on tensor cores run in less than half of the time, and compile in a tenth more.
QUICK = "-fexpensive-optimizations"
# Pages of a thread's stack: not a power of two, else all stacks would meet in a few sets of the cache.
STACK, LARGE_STACK = 17, 65
EXTENSIONS = ("avx2", "fma", "f16c", "bmi2", "popcnt")  # used where the processor has them

_ENTRY = re.compile(r'extern\s+"C"\s+__global__\s+([^{;]*?)\{', re.DOTALL)
_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\s*\(")


class EmulatedCompiler(Compiler):
    """A shared library with a launcher `alpha_launch_<name>` for each entry of one `.cu` file."""

    suffix = ".so"

    def __init__(self, arch: str) -> None:
        self._compiler = find_compiler()
        sanitize = config.EMULATED_SANITIZE.get()
        self._flags = [*FLAGS, f"-D__CUDA_ARCH__={arch_number(arch)}"]
        if sanitize:
            self._flags += [f"-fsanitize={sanitize}", "-fno-sanitize-recover=undefined"]
            self._flags += ["-g", "-fno-omit-frame-pointer"]
            if "address" in sanitize.split(","):
                require_address_sanitizer(self._compiler)
        self._libraries = () if sanitize else LIBRARIES  # a sanitizer brings its own
        slow = bool(sanitize) or config.EMULATED_DEBUG.flag()
        self.stack_bytes = (LARGE_STACK if slow else STACK) * mmap.PAGESIZE
        if config.EMULATED_DEBUG.flag():
            self._flags += DEBUG
        else:
            level = config.EMULATED_OPTIMIZE.integer()
            self._flags += EXACT if sanitize else (f"-O{level}", "-g1")
            if not sanitize and level == 1 and "clang" not in compiler_version(self._compiler):
                self._flags.append(QUICK)
        self._flags += processor_flags()
        self._header_compiler = _PartCompiler(self._compiler, (*self._flags, "-x", "c++-header"), ".gch")
        self._emulator = _PartCompiler(self._compiler, (*self._flags, "-c"), ".o")
        emulator = cache_key(self._emulator, source_root() / EMULATOR, (), source_root())
        self.identity = "\n".join(
            (compiler_version(self._compiler), *self._flags, *self._libraries, f"emulator {emulator}")
        )

    def _header(self) -> list[str]:
        """Options that include the emulation's headers precompiled, which halves the time of a small kernel.

        g++ finds the precompiled header beside an empty file. If the header does not fit the options of a kernel, g++
        takes the empty file, and the kernel includes the headers itself.
        """
        if "-g3" in self._flags or "clang" in self.identity:  # the debugger needs the macros; clang has another form
            return []
        plain = compile_cached(self._header_compiler, source_root() / HEADER, ()).with_suffix("")
        with contextlib.suppress(OSError):
            plain.touch()
        return ["-include", str(plain)] if plain.is_file() else []

    def build(self, source: Path, options: Sequence[str], output: Path) -> str:
        text = source.read_text()
        unit = output.with_suffix(".cpp")
        lines = [f'#include "{source}"']
        lines += [f"ALPHA_EMULATED_ENTRY({name}, ({limit}))" for name, limit in entries(text)]
        unit.write_text("\n".join(lines) + "\n")
        command = [self._compiler, *self._flags, *self._header(), *options, "-I", str(source_root())]
        emulator = compile_cached(self._emulator, source_root() / EMULATOR, ())
        command += ["-o", str(output), str(unit), str(emulator), *self._libraries]
        return run_compiler(command, source, options, output.parent)


class _PartCompiler(Compiler):
    """Compiler of the parts that all kernels share, compiled once: the precompiled header of g++, and the emulator."""

    def __init__(self, compiler: str, flags: Sequence[str], suffix: str) -> None:
        self._command = [compiler, *flags]
        self.suffix = suffix
        self.identity = "\n".join((compiler_version(compiler), *flags))

    def build(self, source: Path, options: Sequence[str], output: Path) -> str:
        command = [*self._command, *options, "-I", str(source_root()), "-o", str(output), str(source)]
        return run_compiler(command, source, options, output.parent)


def run_compiler(command: list[str], source: Path, options: Sequence[str], temporary: Path | None = None) -> str:
    """Text that the compiler prints; its temporary files lie in `temporary`.

    Raises:
        CompileError: it fails; the message has the command and the options.
    """
    # a sanitizer's library that Python runs with would slow the compiler down, too
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    result = cache.run(command, environment)
    log = result.stdout + result.stderr
    if result.returncode:
        raise failure(source, options, shlex.join(command), log, result.returncode)
    return log


def entries(text: str) -> list[tuple[str, str]]:
    """(name, most threads of a block) of the `extern "C" __global__` functions of a source.

    The second is the expression in `__launch_bounds__`, or the limit of every GPU.
    """
    found = []
    for match in _ENTRY.finditer(text):
        head, threads = _split_launch_bounds(match.group(1))
        name = re.search(r"(\w+)\s*\(", head)
        if name:
            found.append((name.group(1), threads))
    return found


def _split_launch_bounds(head: str) -> tuple[str, str]:
    """A function's head without its `__launch_bounds__`, and the first argument of that."""
    match = _LAUNCH_BOUNDS.search(head)
    if match is None:
        return head, str(MAX_THREADS)
    depth, end, first_end = 1, match.end(), None
    while depth and end < len(head):
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(head[end], 0)
        if head[end] == "," and depth == 1 and first_end is None:
            first_end = end
        end += 1
    return head[: match.start()] + head[end:], head[match.end() : first_end or end - 1]


def kernel_line(library: Path, instruction: int) -> str | None:
    """The kernel's source line, "conv_v2.cuh:88", at an instruction's offset in its library."""
    command = ["addr2line", "-i", "-e", str(library), hex(instruction)]
    try:
        frames = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"([^/\s]+\.cuh?:\d+)", frames)  # innermost first; the emulator's own are .h
    return found.group(1) if found else None


def find_compiler() -> str:
    """The C++ compiler of CXX, else g++, else clang++."""
    found = shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++")
    if found is None:
        raise CompileError("the emulated CUDA driver needs a C++ compiler: install g++, or set CXX")
    return found


@functools.cache
def compiler_version(compiler: str) -> str:
    """Text that `--version` prints."""
    try:
        return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompileError(f"{compiler} does not run: {error}") from error


@functools.cache
def processor_flags() -> tuple[str, ...]:
    """Compiler flags of this processor's vector extensions; part of the cache's key."""
    try:
        found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return ()
    known = found.group(1).split() if found else []
    return tuple(f"-m{name}" for name in EXTENSIONS if name in known)


def require_address_sanitizer(compiler: str) -> None:
    """`DeviceError` with the command where Python was started without the sanitizer's library."""
    if hasattr(ctypes.CDLL(None), "__asan_init"):
        return
    library = f"$({Path(compiler).name} -print-file-name=libasan.so)"
    raise DeviceError(
        f"{config.EMULATED_SANITIZE.name}=address needs the sanitizer's library loaded first: "
        f"run LD_PRELOAD={library} ASAN_OPTIONS=detect_leaks=0 python ..."
    )


def arch_number(arch: str) -> int:
    """ "sm_90a" -> 900, the value of __CUDA_ARCH__."""
    return 10 * int(re.sub(r"\D", "", arch))
