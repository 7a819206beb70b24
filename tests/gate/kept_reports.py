"""Reports of nvcc that are kept with the sources, so that `make gate` compiles only kernels that have changed.

A report is kept under the hash of all that decides it: the preprocessed text and the compiler with its flags. So a
report of another text is never taken. Reports with a fault, a warning, or a stack are not kept: these kernels are
compiled each time, and so is one of SAMPLE of the others, whose report must be the kept one. ALPHA_GATE=all compiles
everything. `python tests/gate/resources.py` writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parents[1] / "golden" / "kernel_reports.txt"
SAMPLE = 16
_TITLE = """# {compilers}
# Written by {command}: the hash of a kernel's text and compiler; of each entry point name, registers, shared bytes.
"""


@dataclass(frozen=True)
class Resources:
    """Resources of one entry point, as ptxas reports them."""

    registers: int
    shared_bytes: int  # static, in whole units of allocation
    stack_bytes: int
    spill_bytes: int


@dataclass(frozen=True)
class Report:
    """Report on one compiled file: its entry points, and the warnings of the compiler."""

    entries: dict[str, Resources]
    warnings: list[str]

    @property
    def is_kept(self) -> bool:
        sound = not any(x.stack_bytes or x.spill_bytes for x in self.entries.values())
        return bool(self.entries) and sound and not self.warnings


def read(file: Path = FILE) -> dict[str, Report]:
    found = {}
    for line in file.read_text().splitlines() if file.is_file() else ():
        if not line.startswith("#"):
            key, *words = line.split()
            triples = zip(words[::3], words[1::3], words[2::3], strict=True)
            entries = {name: Resources(int(registers), int(shared), 0, 0) for name, registers, shared in triples}
            found[key] = Report(entries, [])
    return found


def made_by(file: Path = FILE) -> str:
    """The compilers that made the file, "" if there is none."""
    return file.read_text().partition("\n")[0].removeprefix("# ") if file.is_file() else ""


def write(reports: Mapping[str, Report], compilers: str, command: str, file: Path = FILE) -> None:
    lines = [_TITLE.format(compilers=compilers, command=command)]
    for key, report in sorted(reports.items()):
        if report.is_kept:
            entries = (f"{name} {x.registers} {x.shared_bytes}" for name, x in sorted(report.entries.items()))
            lines.append(f"{key} {' '.join(entries)}\n")
    file.write_text("".join(lines))


def is_compiled_anyway(key: str) -> bool:
    """True for one of SAMPLE; with the text of a kernel the choice changes."""
    return int(key, 16) % SAMPLE == 0
