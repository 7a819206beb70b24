"""Registers, shared memory and occupancy of the kernels, as nvcc's assembler reports them.

python tests/gate/resources.py      # writes docs/kernels/resources.md
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import batches
from launches import EXPRESSION, Launch, record

from alpha.runtime.cuda.compile import find_nvcc, nvcc_version

NVCC = find_nvcc()
PAGE = Path(__file__).parents[2] / "docs" / "kernels" / "resources.md"
SHOWN = ("sm_80", "sm_90a")
COMMAND = "python tests/gate/resources.py"
LISTED = f"{EXPRESSION}a + b"  # a new expression is no new kernel


@dataclass(frozen=True)
class Multiprocessor:
    """Resources that blocks share if they run at the same time (CUDA Programming Guide, technical specifications)."""

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int  # of shared memory, per block


MULTIPROCESSORS = {
    "sm_75": Multiprocessor(32, 16, 64 << 10, 0),
    "sm_80": Multiprocessor(64, 32, 164 << 10, 1 << 10),
    "sm_86": Multiprocessor(48, 16, 100 << 10, 1 << 10),
    "sm_89": Multiprocessor(48, 24, 100 << 10, 1 << 10),
    "sm_90a": Multiprocessor(64, 32, 228 << 10, 1 << 10),
    "sm_100": Multiprocessor(64, 32, 228 << 10, 1 << 10),
    "sm_120": Multiprocessor(48, 24, 100 << 10, 1 << 10),
}
PARTITION_REGISTERS, PARTITIONS, WARP = 16384, 4, 32  # of an SM, all architectures


@dataclass(frozen=True)
class Resources:
    """Resources of one entry point, as ptxas reports them."""

    registers: int
    shared_bytes: int  # static
    stack_bytes: int
    spill_bytes: int


@dataclass(frozen=True)
class Report:
    """Report on one compiled file: its entry points, and the warnings of the compiler."""

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


def compile_all(arch: str, launches: Iterable[Launch]) -> dict[batches.Unit, Report]:
    """The report of everything that is launched, by `Launch.unit`; `CompileError` where nvcc refuses it."""
    assert NVCC is not None
    logs = batches.logs(NVCC, arch, {launch.unit for launch in launches})
    return {unit: read_report(log) for unit, log in logs.items()}


def resident_blocks(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """Number of blocks that an SM runs at a time; 0: the kernel cannot be launched."""
    limits = MULTIPROCESSORS[arch]
    warps = -(-threads // WARP)
    warp_registers = -(-registers * WARP // 256) * 256
    by_registers = PARTITION_REGISTERS // warp_registers * PARTITIONS // warps
    shared = -(-shared_bytes // 128) * 128 + limits.reserved_bytes
    by_shared = limits.shared_bytes // shared if shared else limits.blocks
    return min(limits.blocks, limits.warps // warps, by_registers, by_shared)


@dataclass(frozen=True)
class Configuration:
    """One kernel as it is compiled for one architecture, with its largest launch."""

    threads: int
    registers: int
    shared_bytes: int  # static and dynamic together
    blocks: int  # that one SM runs at a time


def page() -> str:
    """docs/kernels/resources.md."""
    tables = {arch: _configurations(arch) for arch in SHOWN}
    lines = [_INTRODUCTION.format(nvcc=release(), command=COMMAND)]
    family = ""
    for source, entry in sorted({kernel for table in tables.values() for kernel in table}):
        if source.split("/")[0] != family:
            family = source.split("/")[0]
            lines += ["", f"## {family}", "", _HEAD, "|---" * _HEAD.count(" | ") + "|---|"]
        of_arch = [list(table.get((source, entry), {}).values()) for table in tables.values()]
        every = [configuration for found in of_arch for configuration in found]
        cells = [
            f"`{entry}`",
            str(len({options for table in tables.values() for options in table.get((source, entry), ())})),
        ]
        cells += [_range(x.threads for x in every), _range(-(-x.shared_bytes // 1024) for x in every)]
        for found in of_arch:
            cells += [_range(x.registers for x in found), _range(x.blocks for x in found)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _range(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return "" if not found else f"{found[0]}" if len(found) == 1 else f"{found[0]}-{found[-1]}"


def release() -> str:
    """ "13.0", of "Cuda compilation tools, release 13.0, V13.0.48"."""
    found = re.search(r"release ([\d.]+)", nvcc_version(NVCC)) if NVCC else None
    return found.group(1) if found else "unknown"


_INTRODUCTION = """# Registers, shared memory and occupancy

Every kernel as the operators launch it, compiled by nvcc {nvcc} for two architectures. `{command}`
writes this page, and a test of `make gate` fails if a line of it is no longer true. Elementwise operators share the
kernel `map`, which is listed as the sum of two arrays.

A kernel is compiled in several configurations: data types, tile sizes, filter shapes. A row gives the range of each
number over all configurations of one kernel: threads per block, shared memory in KiB, and for each architecture
registers per thread and how many blocks one SM runs at a time. If these two are empty, the architecture
runs another kernel. Shared memory is static and dynamic together, of the launch that needs the most. No configuration
spills registers or has a stack frame."""
_OF_ARCHITECTURES = " | ".join(f"{arch}: registers | blocks" for arch in SHOWN)
_HEAD = f"| kernel | configurations | threads | shared | {_OF_ARCHITECTURES} |"


def _configurations(arch: str) -> dict[tuple[str, str], dict[tuple[str, ...], Configuration]]:
    """Configurations of each kernel (file, entry), by the options of the compiler."""
    launches = [x for x in record(arch) if LISTED in x.options or not any(o.startswith(EXPRESSION) for o in x.options)]
    reports = compile_all(arch, launches)
    kernels: dict[tuple[str, str], dict[tuple[str, ...], Configuration]] = defaultdict(dict)
    for launch in sorted(launches, key=lambda x: (x.shared_bytes, x.threads)):  # the largest one stays
        found = reports[launch.unit].entries[launch.entry]
        shared = found.shared_bytes + launch.shared_bytes
        blocks = resident_blocks(arch, launch.threads, found.registers, shared)
        configuration = Configuration(launch.threads, found.registers, shared, blocks)
        kernels[launch.source, launch.entry][launch.options] = configuration
    return kernels


if __name__ == "__main__":
    if NVCC is None:
        sys.exit("nvcc is not found: set CUDA_HOME, or put nvcc on PATH")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
