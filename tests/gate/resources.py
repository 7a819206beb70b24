"""Registers, shared memory and occupancy of the kernels, as nvcc's assembler reports them.

python tests/gate/resources.py      # writes docs/kernels/resources.md and tests/golden/kernel_reports.txt
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import batches
import kept_reports
from kept_reports import Report, Resources
from launches import ALL, EXPRESSION, GPUS, Launch, in_turn, record, record_rare

from alpha.runtime.cuda.compile import find_nvcc, nvcc_version
from alpha.runtime.cuda.emulated.driver_emulated import DEFAULT_ARCH
from alpha.runtime.cuda.emulated.emulated_compiler import compiler_version, find_compiler

NVCC = find_nvcc()
PAGE = Path(__file__).parents[2] / "docs" / "kernels" / "resources.md"
SHOWN = ("sm_80", "sm_90a")
COMMAND = "python tests/gate/resources.py"
MOST_MISSING = 0.25  # of the reports, without which the gate takes long again
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
SHARED_UNIT = 128  # bytes of shared memory; whether nvcc pads to it depends on what is compiled beside a kernel
PARTITION_REGISTERS, PARTITIONS, WARP = 16384, 4, 32  # of an SM, all architectures


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
            -(-int(shared.group(1)) // SHARED_UNIT) * SHARED_UNIT if shared else 0,
            int(match["stack"]),
            int(match["stores"]) + int(match["loads"]),
        )
    return Report(entries, _WARNING.findall(log))


def compile_all(arch: str, launches: Iterable[Launch]) -> dict[batches.Unit, Report]:
    """The report of everything that is launched, by `Launch.unit`; `CompileError` where nvcc refuses it.

    Reports that are kept are taken, but for a sample of them (kept_reports.py): `AssertionError` if nvcc now reports
    another one of the same text.
    """
    assert NVCC is not None
    texts = batches.texts(NVCC, arch, {launch.unit for launch in launches})
    kept = {} if ALL else kept_reports.read()
    taken = {
        text.unit: kept[text.key]
        for text in texts
        if text.key in kept and not kept_reports.is_compiled_anyway(text.key)
    }
    missing = sum(text.key not in kept for text in texts)
    if kept_reports.made_by() == compilers() and not ALL and missing > MOST_MISSING * len(texts):
        warnings.warn(f"{missing} of {len(texts)} kernels of {arch} have no kept report: {COMMAND}", stacklevel=2)
    compiled = _compile(arch, [text for text in texts if text.unit not in taken])
    wrong = [
        text.unit
        for text in texts
        if text.unit in compiled and kept.get(text.key, compiled[text.unit]) != compiled[text.unit]
    ]
    assert not wrong, f"{kept_reports.FILE} has other reports than nvcc of {wrong}: {COMMAND}"
    return compiled | taken


def _compile(arch: str, texts: Sequence[batches.Text]) -> dict[batches.Unit, Report]:
    assert NVCC is not None
    return {unit: read_report(log) for unit, log in batches.logs(NVCC, arch, texts).items()}


def keep_all() -> None:
    """Keep the reports of all that `make gate` compiles; those that the same compilers have made stay as they are."""
    assert NVCC is not None
    kept = kept_reports.read() if kept_reports.made_by() == compilers() and not ALL else {}
    found = {}
    for arch in GPUS:
        launches = set(in_turn(arch)) | (_listed(arch) if arch in SHOWN else set())
        launches |= record_rare(arch) if arch == DEFAULT_ARCH else set()
        texts = batches.texts(NVCC, arch, {launch.unit for launch in launches})
        compiled = _compile(arch, [text for text in texts if text.key not in kept])
        found |= {text.key: compiled[text.unit] if text.unit in compiled else kept[text.key] for text in texts}
    kept_reports.write(found, compilers(), COMMAND)


def resident_blocks(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """Number of blocks that an SM runs at a time; 0: the kernel cannot be launched."""
    limits = MULTIPROCESSORS[arch]
    warps = -(-threads // WARP)
    warp_registers = -(-registers * WARP // 256) * 256
    by_registers = PARTITION_REGISTERS // warp_registers * PARTITIONS // warps
    shared = -(-shared_bytes // SHARED_UNIT) * SHARED_UNIT + limits.reserved_bytes
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


def compilers() -> str:
    """Names of the compilers that decide a kernel's text and report: "nvcc V13.0.88, g++ (Debian 12.2.0-14) 12.2.0"."""
    found = re.search(r"V[\d.]+", nvcc_version(NVCC)) if NVCC else None
    preprocessor = compiler_version(find_compiler()).partition("\n")[0]
    return f"nvcc {found.group() if found else 'unknown'}, {preprocessor}"


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
    launches = _listed(arch)
    reports = compile_all(arch, launches)
    kernels: dict[tuple[str, str], dict[tuple[str, ...], Configuration]] = defaultdict(dict)
    for launch in sorted(launches, key=lambda x: (x.shared_bytes, x.threads)):  # the largest one stays
        found = reports[launch.unit].entries[launch.entry]
        shared = found.shared_bytes + launch.shared_bytes
        blocks = resident_blocks(arch, launch.threads, found.registers, shared)
        configuration = Configuration(launch.threads, found.registers, shared, blocks)
        kernels[launch.source, launch.entry][launch.options] = configuration
    return kernels


def _listed(arch: str) -> set[Launch]:
    """Launches whose kernels are on the page."""
    return {x for x in record(arch) if LISTED in x.options or not any(o.startswith(EXPRESSION) for o in x.options)}


if __name__ == "__main__":
    if NVCC is None:
        sys.exit("nvcc is not found: set CUDA_HOME, or put nvcc on PATH")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    keep_all()
    PAGE.write_text(page())
    print(f"wrote {PAGE} and {kept_reports.FILE}")
