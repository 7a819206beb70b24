"""Kernels with one barrier or wait deleted, run on the emulated driver beside the originals.

One copy of the kernels has all mutants, each behind a test of a variable, so that a kernel is compiled once for all.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product, zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

import conv2d_geometry
import conv2d_steps
import launches
import numpy as np
from helpers import compiled_quickly, tile_area
from index_mutations import SWITCH

from alpha.core.primitive import REGISTRY
from alpha.errors import DeviceError
from alpha.ops.conv2d import cuda_target
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, INPUT, WEIGHT, Configuration
from alpha.ops.conv2d.select.grouped_table import GROUPED
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.runtime.cuda.cache import _sources, compile_cached, source_root
from alpha.runtime.cuda.cuda_device import CudaDevice
from alpha.runtime.cuda.emulated import emulated_compiler
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver

ARCH = "sm_90a"  # has every kernel
SEEDS = (0, 1, 2)
FEW = 4  # SMs, so that a block computes more tiles than its ring of tasks holds
CALL = re.compile(
    r"\b(__syncthreads|__syncwarp|named_barrier_sync|cp_async_wait|mbarrier_wait|wgmma_wait)\b"
    r"(<[^;>]*>)?\([^;]*\);"
)
WRAPPER = "ALPHA_EMULATED"  # a header with an emulated twin is not a kernel
# The FFMA loop computes a sum again that is NaN, and so would repair what a missing barrier has spoiled.
REPAIR = ("common/gemm_ffma.cuh", "not_numbers |= 1u", "not_numbers |= 0u")
Run = Callable[[CudaDevice], list[np.ndarray]]
make = launches.conv2d_cases.make
# what the smallest tiles do not do on FEW SMs: a filter that is transposed, several threads that add up splits, and the
# magnitude of the result of a first layer
RARE = {
    "conv2d/direct/forward_sm80.cu": ("direct_sm80_fp16x3", make(5, (9, 7), (3, 20), (3, 3), p=(1, 1))),
    "conv2d/ks_deconv/sm90.cu": ("ks_deconv_sm90_tf32_128x64", make(300, (1, 1), (72, 40), (1, 1))),
    "conv2d/sk_dilated/sum_splits.cu": ("sk_dilated_sm90_bf16_64x32", make(1024, (4, 4), (8, 8), (3, 1), p=(1, 0))),
}


@dataclasses.dataclass(frozen=True, order=True)
class Mutant:
    """`source`, a kernel file, without the wait at a line of `file`: itself or what it includes."""

    source: str
    file: str
    line: int
    column: int
    text: str

    @property
    def place(self) -> tuple[str, int, int]:
        return self.file, self.line, self.column

    def __str__(self) -> str:
        return f"{self.source}: without {self.file}:{self.line} {self.text}"


def mutants() -> list[Mutant]:
    """One for each barrier or wait of each kernel that an operator launches."""
    found = []
    root = source_root()
    for source in subjects():
        for path in _files(root / source, root):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                name = path.relative_to(root).as_posix()
                for match in CALL.finditer(line.split("//")[0]):
                    found.append(Mutant(source, name, number, match.start(), match.group()))
    return sorted(found)


def judge(mutant: Mutant, runs: int | None = None) -> str | None:
    """Fault that gives the mutant away, in the first of its runs or in all, or None."""
    for number, run in enumerate(subjects()[mutant.source][:runs]):
        expected = _expected(mutant.source, number)
        for seed in SEEDS:
            try:
                with opened(MutatingDriver(mutant.source, _places()[mutant.place], seed)) as device:
                    found = run(device)
            except DeviceError as error:
                return str(error)
            pairs = zip(found, expected, strict=True)
            if not all(np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in pairs):
                return f"wrong result, seed {seed}"
    return None


@functools.cache
def _expected(source: str, number: int) -> list[np.ndarray]:
    with opened(MutatingDriver(source, 0, 0)) as device:
        return subjects()[source][number](device)


@functools.cache
def _places() -> dict[tuple[str, int, int], int]:
    """The number of each mutant in the copy."""
    return {place: number for number, place in enumerate(sorted({m.place for m in mutants()}), 1)}


@functools.cache
def _copy() -> tempfile.TemporaryDirectory[str]:
    """The kernels with all mutants; number 0 is none."""
    folder = tempfile.TemporaryDirectory(prefix="alpha-mutants-")
    root = Path(folder.name)
    shutil.copytree(source_root(), root, dirs_exist_ok=True)
    head = root / "common" / "cuda.h"
    head.write_text(head.read_text() + SWITCH)
    texts = {m.place: m.text for m in mutants()}
    for file, line, column in sorted(texts, reverse=True):  # the last of a line first, so that columns stay right
        lines = (root / file).read_text().splitlines()
        code, call = lines[line - 1], texts[file, line, column]
        switched = f"(alpha_is({_places()[file, line, column]}) ? (void)0 : (void)({call.removesuffix(';')}));"
        lines[line - 1] = code[:column] + switched + code[column + len(call) :]
        (root / file).write_text("\n".join(lines) + "\n")
    repairing, active, inactive = REPAIR
    text = (root / repairing).read_text()
    assert active in text
    (root / repairing).write_text(text.replace(active, inactive))
    return folder


class SeededDriver(EmulatedDriver):
    """A GPU of few SMs, whose threads come in one of several orders."""

    def __init__(self, seed: int) -> None:
        variables = patch.dict(os.environ, ALPHA_ARCH=ARCH, ALPHA_EMULATED_SEED=str(seed))
        with compiled_quickly(), variables:
            super().__init__()
        self.properties = dataclasses.replace(self.properties, num_sms=FEW)


class MutatingDriver(SeededDriver):
    """Takes the kernels from the copy and turns one mutant on, in one kernel file with all that it includes."""

    def __init__(self, source: str, mutant: int, seed: int) -> None:
        super().__init__(seed)
        self._source = source
        self._mutant = mutant
        self._root = Path(_copy().name)
        self._mutated: set[Path] = set()

    def compile(self, source: Path, options: Sequence[str]) -> Path:
        name = source.relative_to(source_root())
        with patch.object(emulated_compiler, "source_root", lambda: self._root):
            artefact = compile_cached(self._compiler, self._root / name, options, self._root)
        if name == Path(self._source):
            self._mutated.add(artefact)
        return artefact

    def load(self, artefact: Path) -> ctypes.CDLL:
        library = super().load(artefact)
        if hasattr(library, "alpha_mutant"):
            ctypes.c_int.in_dll(library, "alpha_mutant").value = self._mutant if artefact in self._mutated else 0
        return library


@contextmanager
def opened(driver: EmulatedDriver) -> Iterator[CudaDevice]:
    device = CudaDevice(driver)
    yield device
    device.close()


def _files(path: Path, root: Path) -> list[Path]:
    """The source and the headers of kernel code that it includes."""
    paths = [path, *(root / name for name, _ in _sources(path, root)[1:])]
    return [p for p in paths if p.is_file() and WRAPPER not in p.read_text()]


@functools.cache
def subjects() -> dict[str, list[Run]]:
    """Runs that launch a kernel file with barriers: the cases of its primitives, the shapes of its smallest tile.

    Of a kernel that takes its operands in several ways, the smallest tile for each. The first run of each tile comes
    before the second of any, so that most mutants are noticed before many kernels are compiled.
    """
    found: dict[str, list[list[Run]]] = defaultdict(list)
    seen: set[tuple[str, str, str]] = set()
    rows = [row for row in (*CONFIGURATIONS, *GROUPED) if row.name in launches.record_rows(ARCH)]
    for row in sorted(rows, key=tile_area):
        way = row.math.name, row.tile.get("PREPARED")
        operands = f"{way} {row.tile.get('BM', 0) < 128}"  # smaller: the warpgroups ping-pong
        new = {
            # what prepares the operands is the same kernel for each way
            (x.source, x.entry, operands if "-DALPHA_BM=" in "".join(x.options) else "")
            for x in launches.record_rows(ARCH)[row.name]
        } - seen
        for source in {source for source, _, _ in new}:
            found[source].append(_step_runs(row) if source.endswith("first_step.cu") else _row_runs(row))
        seen |= new
    by_name = {row.name: row for row in rows}
    for source, (name, s) in RARE.items():
        found[source].append([_run_of(by_name[name], s)])
    transposing = by_name["ks_deconv_sm90_tf32_128x64"]
    found["conv2d/ks_deconv/sm90_first_step.cu"].append(_step_runs(transposing, (conv2d_steps.TRANSPOSED,)))
    for source, runs in _runs_in_turns().items():
        found[source].append(runs)
    for name, arguments in launches.primitive_cases():
        on = launches.device(ARCH)
        launches.primitive_calls.run(REGISTRY[name], on, arguments)
        for source in {x.source for x in launches.recorded(on)}:
            if not source.startswith("conv2d"):
                found[source].append([_primitive_run(name, arguments)])
    half_cases = launches.half_cases
    for case, shape in product(half_cases.CASES, (half_cases.SHAPE, half_cases.FEW)):
        on, run = launches.device(ARCH), _half_run(case, half_cases.Operands.draw(shape))
        case.run(on)
        for source in {x.source for x in launches.recorded(on)}:
            found[source].append([run])
    return {source: [run for turn in zip_longest(*runs) for run in turn if run] for source, runs in found.items()}


def _runs_in_turns() -> dict[str, list[Run]]:
    """Runs of kernels whose warpgroups take turns."""
    cases = launches.ping_pong_cases
    shapes = {
        operator: [
            cases.for_operator(operator, cases.with_tiles(small, FEW)) for small in (cases.SHAPES[0], cases.UNUSED_TAPS)
        ]
        for operator in cases.ROWS
    }
    found: dict[str, list[Run]] = {
        f"conv2d/{row.name.partition('_sm90')[0]}/sm90.cu": [_run_of(row, s) for s in shapes[operator]]
        for operator, row in cases.ROWS.items()
    }
    row, (s, unused_taps) = cases.ROWS[INPUT], shapes[INPUT]
    steps = [_step_run(conv2d_steps.Case.of(row, s, form)) for form in cases.STEPS]
    steps.append(_step_run(conv2d_steps.Case.of(row, unused_taps, cases.STEPS[0])))
    return {**found, "conv2d/ks_deconv/sm90_first_step.cu": steps}


def _primitive_run(name: str, arguments: tuple[Any, ...]) -> Run:
    return lambda device: launches.primitive_calls.run(REGISTRY[name], device, arguments, magnitudes=True)


def _half_run(case: Any, operands: Any) -> Run:
    def run(device: CudaDevice) -> list[np.ndarray]:
        made = case.run(device, operands)
        return [device.download(array) for array in (made, made.magnitude, made.magnitude.half)]

    return run


def _row_runs(row: Configuration) -> list[Run]:
    target = cuda_target(launches.device(ARCH))
    # few shapes show that a transform warp does not wait; of other Hopper rows each shape is compiled apart
    converts = row.operator == WEIGHT and row.math.in_terms and row.tile.get("PREPARED") == 0
    few = conv2d_geometry.is_hopper(row) and not converts
    edges = [launches.conv2d_cases.LONG] if few else [] if row in GROUPED else launches.conv2d_cases.cuda_shapes()
    shapes = [s for s in (*conv2d_geometry.of(row), *edges) if row.supports(s, target)]
    if row.supports_statistics:  # the next tile's statistics take their place
        shapes.append(launches.conv2d_cases.MANY)

    return [_run_of(row, s) for s in shapes]


def _step_runs(row: Configuration, shapes: Iterable[Any] = conv2d_steps.SHAPES) -> list[Run]:
    """The widest steps that a row takes, which have all the barriers of the others."""
    return [_step_run(conv2d_steps.Case.of(row, s, form)) for s in shapes for form in conv2d_steps.WIDEST]


def _step_run(case: conv2d_steps.Case) -> Run:
    def run(device: CudaDevice) -> list[np.ndarray]:
        found = case.run(device)  # none: the row does not take this form
        return [array.astype(np.float32) for array in found.values()] if found is not None else []

    return run


def _run_of(row: Configuration, s: Any) -> Run:
    def run(device: CudaDevice) -> list[np.ndarray]:
        dtype = launches.conv2d_cases.arrays_of(row)
        first, second = (
            device.upload(a.astype(dtype)) for a in launches.conv2d_cases.operands(row.operator, s, "float32")
        )
        arrays = [compute(row, first, second, s)]
        if row.supports_statistics:
            found = ChannelStatistics()
            arrays += [compute(row, first, second, s, None, 1.0, found)]
            arrays += [found.part, found.counts] if found.part is not None else []
        if row.operator == FORWARD and row.supports_epilogue:
            Y = compute(row, first, second, s, None, 0.5)
            arrays += [Y] if Y.magnitude is None else [Y, Y.magnitude]
        return [device.download(a).astype(np.float32) for a in arrays]

    return run
