"""Registers, shared memory and occupancy of the kernels, as nvcc's assembler reports them.

python tests/gate/resources.py      # writes docs/kernels/resources.md
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from launches import record
from recorder import Launch

from alpha.runtime.cuda.cache import compile_cached, read_log, source_root
from alpha.runtime.cuda.compile import find_nvcc, nvcc_compiler, nvcc_version

NVCC = find_nvcc()
PAGE = Path(__file__).parents[2] / "docs" / "kernels" / "resources.md"
SHOWN = ("sm_75", "sm_80", "sm_90a")
COMMAND = "python tests/gate/resources.py"


@dataclass(frozen=True)
class Multiprocessor:
    """What blocks that run at the same time share (CUDA Programming Guide, technical specifications)."""

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int  # of shared memory, a block


MULTIPROCESSORS = {
    "sm_75": Multiprocessor(32, 16, 64 << 10, 0),
    "sm_80": Multiprocessor(64, 32, 164 << 10, 1 << 10),
    "sm_86": Multiprocessor(48, 16, 100 << 10, 1 << 10),
    "sm_89": Multiprocessor(48, 24, 100 << 10, 1 << 10),
    "sm_90a": Multiprocessor(64, 32, 228 << 10, 1 << 10),
    "sm_100": Multiprocessor(64, 32, 228 << 10, 1 << 10),
    "sm_120": Multiprocessor(48, 24, 100 << 10, 1 << 10),
}
PARTITION_REGISTERS, PARTITIONS, WARP = 16384, 4, 32  # of a multiprocessor, all architectures


@dataclass(frozen=True)
class Resources:
    """What ptxas says of one entry point."""

    registers: int
    shared_bytes: int  # static
    stack_bytes: int
    spill_bytes: int


@dataclass(frozen=True)
class Report:
    """Of one compiled file: its entry points, and what the compiler warns of."""

    entries: dict[str, Resources]
    warnings: list[str]


_ENTRY = re.compile(
    r"Compiling entry function '(?P<entry>\w+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes "
    r"spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_WARNING = re.compile(r".*(?:warning|Performance Loss).*", re.IGNORECASE)


def read_report(log: str) -> Report:
    entries = {}
    for match in _ENTRY.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        entries[match["entry"]] = Resources(
            int(match["registers"]),
            int(shared.group(1)) if shared else 0,
            int(match["stack"]),
            int(match["stores"]) + int(match["loads"]),
        )
    return Report(entries, _WARNING.findall(log))


def compile_all(arch: str, launches: Iterable[Launch]) -> dict[tuple[str, tuple[str, ...]], Report]:
    """The report of everything that is launched, by `Launch.unit`; `CompileError` where nvcc refuses it."""
    assert NVCC is not None
    compiler = nvcc_compiler(NVCC, arch)

    def report(unit: tuple[str, tuple[str, ...]]) -> Report:
        source, options = unit
        return read_report(read_log(compile_cached(compiler, source_root() / source, options)))

    units = sorted({launch.unit for launch in launches})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(units, pool.map(report, units), strict=True))


def resident_blocks(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """How many blocks a multiprocessor runs at a time; 0: the kernel cannot be launched."""
    limits = MULTIPROCESSORS[arch]
    warps = -(-threads // WARP)
    warp_registers = -(-registers * WARP // 256) * 256
    by_registers = PARTITION_REGISTERS // warp_registers * PARTITIONS // warps
    shared = -(-shared_bytes // 128) * 128 + limits.reserved_bytes
    by_shared = limits.shared_bytes // shared if shared else limits.blocks
    return min(limits.blocks, limits.warps // warps, by_registers, by_shared)


def page() -> str:
    """docs/kernels/resources.md."""
    tables = {arch: _cells(arch) for arch in SHOWN}
    rows = sorted({key for cells in tables.values() for key in cells})
    lines = [_INTRODUCTION.format(nvcc=release(), command=COMMAND)]
    family = ""
    for key in rows:
        source, entry, options = key
        folder = source.split("/")[0]
        if folder != family:
            family = folder
            lines += ["", f"## {family}", "", _HEAD, "|---|---|---|" + "---|---|" * len(SHOWN)]
        threads, shared = next(cells[key][:2] for cells in tables.values() if key in cells)
        macros = ", ".join(option.removeprefix("-DALPHA_").replace("ALPHA_", "") for option in options)
        cells = [f"`{entry}`" + (f"<br>{_code(macros)}" if macros else ""), str(threads), str(shared)]
        for arch in SHOWN:
            cells += tables[arch].get(key, (0, 0, "", ""))[2:]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def release() -> str:
    """ "13.0", of "Cuda compilation tools, release 13.0, V13.0.48"."""
    found = re.search(r"release ([\d.]+)", nvcc_version(NVCC)) if NVCC else None
    return found.group(1) if found else "unknown"


_INTRODUCTION = """# Registers, shared memory and occupancy

Every kernel as the operators launch it, compiled by nvcc {nvcc}. `{command}` writes this page, and a test fails when it
is stale. No kernel spills or has a stack frame. Shared memory is static and dynamic together, of the launch that needs
the most. Occupancy is how many blocks, and warps, a multiprocessor runs at a time; an empty field: the architecture
runs another kernel."""
_HEAD = "| kernel | threads | shared, bytes |" + "".join(f" {arch}: registers | blocks (warps) |" for arch in SHOWN)


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def _cells(arch: str) -> dict[tuple[str, str, tuple[str, ...]], tuple[int, int, str, str]]:
    """(threads, shared bytes, registers, blocks and warps) of each kernel's largest launch."""
    launches = record(arch)
    reports = compile_all(arch, launches)
    cells = {}
    for launch in sorted(launches, key=lambda x: (x.shared_bytes, x.threads)):
        found = reports[launch.unit].entries[launch.entry]
        shared = found.shared_bytes + launch.shared_bytes
        blocks = resident_blocks(arch, launch.threads, found.registers, shared)
        warps = blocks * -(-launch.threads // WARP)
        key = launch.source, launch.entry, launch.options
        cells[key] = launch.threads, shared, str(found.registers), f"{blocks} ({warps})"
    return cells


if __name__ == "__main__":
    if NVCC is None:
        sys.exit("nvcc is not found: set CUDA_HOME, or put nvcc on PATH")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
