"""nvcc's resource reports of many kernel files, several files per process.

nvcc spends most of its time on the CUDA headers. So the files of one batch become one file that includes these headers
once. Each file is preprocessed without them and stands in a namespace; a number is added to the names of its kernels.
nvcc generates the code of one kernel at a time, so registers, stack, spills and shared memory are the same as for a
file that is compiled alone. If a batch does not compile, or if nvcc prints anything but resources, then the files of
the batch are compiled alone, so that each message names its file. That takes several times as long, so Python warns if
nothing is wrong with the files themselves.

What nvcc prints is cached in `<cache>/reports/` under the hash of the preprocessed text and of the compiler with its
flags.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from alpha import config
from alpha.errors import CompileError
from alpha.runtime.cuda.cache import one_builder, source_root
from alpha.runtime.cuda.compile import nvcc_compiler
from alpha.runtime.cuda.emulated.emulated_compiler import arch_number, entries, find_compiler

Unit = tuple[str, tuple[str, ...]]  # file below cuda/, options of the compiler
BATCH, SMALL_BATCH = 24, 48  # files; those of elementwise operators compile fast
_SYSTEM = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", re.MULTILINE)
_INCLUDED = re.compile(r"^#pragma ALPHA_INCLUDE (\S+)$", re.MULTILINE)
_MARKER = re.compile(r'# \d+ "(.*?)"')  # the next line is of this file
UNUSED_IN_HEADER, UNUSED_IN_SOURCE = "#pragma nv_diag_suppress 177", "#pragma nv_diag_default 177"
_NUMBERED = re.compile(r"(\w+?)__unit(\d+)\b")
_REPORT = re.compile(r"(?:ptxas info|\s*\d+ bytes stack frame)")
_OF_AN_ENTRY = re.compile(r"^ptxas info\s*: Compiling entry function '\w+?__unit(\d+)'", re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """A unit after its own headers are included and its macros are expanded."""

    unit: Unit
    headers: tuple[str, ...]  # of CUDA and C, which it includes first
    body: str
    compiler: str  # and its flags

    @property
    def key(self) -> str:
        """A hash of all that decides the report."""
        content = "\0".join((self.compiler, self.unit[0], *self.headers, self.body))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def entries(self) -> list[str]:
        return [name for name, _ in entries((source_root() / self.unit[0]).read_text())]

    def numbered(self, number: int) -> str:
        body = self.body
        for entry in self.entries:
            body = re.sub(rf"\b{entry}\b", f"{entry}__unit{number}", body)
        return f"namespace unit{number} {{\n{body}\n}}\n"


def texts(nvcc: Path, arch: str, units: Iterable[Unit]) -> list[Text]:
    """Texts of all units; `CompileError` of the first one that cannot be preprocessed."""
    identity = nvcc_compiler(nvcc, arch).identity
    with ThreadPoolExecutor(os.cpu_count()) as pool, _system_headers() as folder:
        return list(pool.map(lambda unit: preprocess(unit, arch, folder, identity), sorted(set(units))))


def logs(nvcc: Path, arch: str, texts: Sequence[Text]) -> dict[Unit, str]:
    """Text that nvcc prints of each unit; `CompileError` of the first unit that it refuses."""
    lock = config.cache_dir() / "reports" / f"{arch}.lock"  # another process waits, and then finds the reports
    with one_builder(lock), ThreadPoolExecutor(os.cpu_count()) as pool:
        places = {text.unit: _place(text) for text in texts}
        found = {unit: place.read_text() for unit, place in places.items() if place.is_file()}
        missing = [text for text in texts if text.unit not in found]
        batches = list(_batches(missing))
        for compiled in pool.map(lambda batch: compile_batch(nvcc, arch, batch), batches):
            for unit, log in compiled.items():
                _keep(places[unit], log)
            found |= compiled
    return found


def preprocess(unit: Unit, arch: str, system_headers: Path, compiler: str) -> Text:
    """Text of a unit without the headers of CUDA, whose macros stay to be expanded when the batch is compiled."""
    source, options = unit
    root = source_root()
    target = [f"-D__CUDA_ARCH__={arch_number(arch)}", "-D__CUDACC__", "-D__NVCC__"]
    if arch.endswith("a"):
        target.append(f"-D__CUDA_ARCH_FEAT_SM{arch_number(arch) // 10}_ALL")
    command = [find_compiler(), "-x", "c++", "-E", "-nostdinc", "-std=c++17", *target, *options]
    command += ["-I", str(root), "-I", str(system_headers), str(root / source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CompileError(f"{source} {' '.join(options)}\n{result.stderr}")
    headers = tuple(dict.fromkeys(_INCLUDED.findall(result.stdout)))
    return Text(unit, headers, _as_one_file(_INCLUDED.sub("", result.stdout), root / source), compiler)


def _as_one_file(preprocessed: str, source: Path) -> str:
    """The text without the preprocessor's markers.

    nvcc warns of an unused constant in a source, but not in a header. Here the headers are part of the source, so
    pragmas turn the warning off for their lines.
    """
    lines: list[str] = []
    of_header = None
    for line in preprocessed.splitlines():
        marker = _MARKER.match(line)
        if marker is None and line.strip():
            lines.append(line)
        elif marker is not None and of_header != (marker[1] != str(source)):
            of_header = marker[1] != str(source)
            lines.append(UNUSED_IN_HEADER if of_header else UNUSED_IN_SOURCE)
    return "\n".join(lines)


@contextmanager
def _system_headers() -> Iterator[Path]:
    """A folder with a header of each name that a kernel includes as <...>; it notes only that it was included."""
    with tempfile.TemporaryDirectory(prefix="alpha-headers-") as name:
        folder = Path(name)
        paths = [path for path in source_root().rglob("*.*") if path.suffix in (".cu", ".cuh", ".h")]
        for header in {header for path in paths for header in _SYSTEM.findall(path.read_text())}:
            (folder / header).parent.mkdir(parents=True, exist_ok=True)
            (folder / header).write_text(f"#pragma once\n#pragma ALPHA_INCLUDE {header}\n")
        yield folder


def _batches(texts: Sequence[Text]) -> Iterator[list[Text]]:
    """Batches of files with the same headers, so that no file borrows a header that it does not include."""
    for _, same in groupby(sorted(texts, key=lambda t: (t.headers, t.unit)), key=lambda t: t.headers):
        group = list(same)
        while group:
            size = SMALL_BATCH if group[0].unit[0].startswith("elementwise/") else BATCH
            yield group[:size]
            del group[:size]


def compile_batch(nvcc: Path, arch: str, batch: Sequence[Text]) -> dict[Unit, str]:
    """The log of each; of one file alone, it is nvcc's own."""
    if len(batch) > 1:
        lines = [f"#include <{header}>\n" for header in batch[0].headers]
        text = "".join((*lines, *(item.numbered(number) for number, item in enumerate(batch))))
        with tempfile.TemporaryDirectory(prefix="alpha-batch-") as folder:
            source = Path(folder) / "batch.cu"
            source.write_text(text)
            try:
                log = nvcc_compiler(nvcc, arch).build(source, (), Path(folder) / "batch.cubin")
            except CompileError:
                log = "it fails"
        parts = _by_number(log)
        if parts is not None:
            return {item.unit: parts.get(number, "") for number, item in enumerate(batch)}
    found = {item.unit: _alone(nvcc, arch, item.unit) for item in batch}
    if len(batch) > 1 and all(_by_number(each) is not None for each in found.values()):
        said = next((line for line in log.splitlines() if not _REPORT.match(line)), log)
        first = batch[0].unit[0]
        warnings.warn(f"nvcc says this of a batch, but of none of its files alone ({first} ..): {said}", stacklevel=2)
    return found


def _alone(nvcc: Path, arch: str, unit: Unit) -> str:
    source, options = unit
    with tempfile.TemporaryDirectory(prefix="alpha-unit-") as folder:
        return nvcc_compiler(nvcc, arch).build(source_root() / source, options, Path(folder) / "unit.cubin")


def _by_number(log: str) -> dict[int, str] | None:
    """The resource report of each unit of a batch; None if the log says anything else."""
    lines = log.splitlines()
    if not all(_REPORT.match(line) for line in lines) or "Performance Loss" in log:
        return None
    parts: dict[int, str] = {}
    for part in re.split(r"^(?=ptxas info\s*: Compiling entry)", log, flags=re.MULTILINE):
        found = _OF_AN_ENTRY.match(part)
        if found:
            number = int(found.group(1))
            parts[number] = parts.get(number, "") + _NUMBERED.sub(r"\1", part)
    return parts


def _place(text: Text) -> Path:
    return config.cache_dir() / "reports" / f"{text.key}.txt"


def _keep(place: Path, log: str) -> None:
    """Write a log that appears at once, or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=place.parent, suffix=".new", delete=False) as file:
        file.write(log)
    Path(file.name).replace(place)
