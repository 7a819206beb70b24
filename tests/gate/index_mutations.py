"""Index faults planted in the convolution and matrix product kernels, judged on the emulated driver.

Every mutant changes one occurrence in a line of code: rows for columns, a bound or an index by one, a term or factor
left out. All of them are compiled into one copy of the kernels, each behind a test of the variable `alpha_mutant`, so
that a kernel is compiled once for all. A mutant is killed if a kernel that includes its file gives a result that is not
the formula's in float64, faults, or does not end. What does not compile is no mutant.

    python tests/gate/index_mutations.py COPY      # a worker: mutants by number from stdin, verdicts on stdout
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import itertools
import json
import os
import pickle
import re
import select
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / folder) for folder in (".", "support", "support/conv2d", "gate")]

import axes_geometry  # noqa: E402
import conv2d_cases  # noqa: E402
import conv2d_geometry  # noqa: E402
import conv2d_steps  # noqa: E402
import ping_pong_cases  # noqa: E402
from helpers import compiled_quickly, reads_weight, tile_area  # noqa: E402

from alpha.core.numerics import BFLOAT16  # noqa: E402
from alpha.errors import DeviceError  # noqa: E402
from alpha.ops.conv2d.channel_statistics import ChannelStatistics  # noqa: E402
from alpha.ops.conv2d.plan import compute  # noqa: E402
from alpha.ops.conv2d.problem import FORWARD, MathMode  # noqa: E402
from alpha.ops.conv2d.select.grouped_table import GROUPED  # noqa: E402
from alpha.ops.conv2d.select.table import CONFIGURATIONS  # noqa: E402
from alpha.ops.gemm.tiles import Product, ffma, mma  # noqa: E402
from alpha.ops.kernel.rectifier import FROM_OUTPUT, FROM_SUM, FROM_X, FROM_Y  # noqa: E402
from alpha.runtime.cuda.cache import _sources, compile_cached, source_root  # noqa: E402
from alpha.runtime.cuda.cuda_device import CudaDevice  # noqa: E402
from alpha.runtime.cuda.emulated import emulated_compiler  # noqa: E402
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver  # noqa: E402
from alpha.runtime.cuda.planning.driver_dry import DryDevice  # noqa: E402

FOLDERS = ("conv2d", "matmul")
# without those that launch the kernel of another row
ROWS = [v for v in (*CONFIGURATIONS, *GROUPED) if v.device == "cuda" and v.base is None]
SUBJECTS = "subjects.pickle"  # in the copy: to draw the geometries takes a worker some time
SEVERAL_PARTS = (
    "conv_v2_sm90_bf16_256x64",
    "conv_v2_sm90_fp16x3_256x64",
    "ks_deconv_sm90_bf16_128x128",
    "sk_dilated_sm90_bf16_128x128",
)
STEPS = {  # by row: forms that together read every map, on rows without and with registers to read it all at once
    "ks_deconv_sm90_bf16_128x64": [conv2d_steps.Form(FROM_Y, True, True), conv2d_steps.Form(FROM_X, True, False)],
    "ks_deconv_sm90_fp16x3_128x64": [conv2d_steps.Form(FROM_SUM, True, False)],
    "ks_deconv_sm90_fp16_128x64": [conv2d_steps.Form(FROM_OUTPUT, True, False, half=True)],
    "ks_deconv_sm90_bf16_256x64": ping_pong_cases.STEPS[:2],
}
TURNS = {row.name: operator for operator, row in ping_pong_cases.ROWS.items()}
PARTS = 16  # of the runs without a mutant, for so many processors
FEW = 3  # SMs, so that a block takes up several tiles
PATIENCE = 60  # seconds of a mutant; then it does not end
LIMITS = {"float32": 1e-6, "tf32": 1e-3, "bf16": 5e-3}

# -- mutants ----------------------------------------------------------------------------------------

PAIRS = (
    *(("IH", "IW"), ("OH", "OW"), ("FH", "FW"), ("sh", "sw"), ("ph", "pw"), ("oh", "ow"), ("ih", "iw"), ("fh", "fw")),
    *(("CH", "CW"), ("ch", "cw"), ("ih_s", "iw_s"), ("U", "V"), ("u", "v"), ("h", "w"), ("y", "x")),
    *(("row", "column"), ("rows", "columns"), ("taps_per_row", "taps_per_column")),
)
COUNTERPART = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
SWAP = re.compile(r"(?<![\w\".])((?:\w+\.)*)(" + "|".join(sorted(COUNTERPART, key=len, reverse=True)) + r")\b(?!\s*\()")
DECLARED = re.compile(r"\b(?:int|long|bool|float|unsigned|auto|Range|SplitPixel)\b[\s&*]*$")
COMPARISON = re.compile(r" (<=|>=|<|>) ")
ONE = re.compile(r" ([+-]) 1\b(?![.\w])")
TERM = re.compile(r" ([+-]) (?!1\b(?![.\w]))")
FACTOR = re.compile(r" \* ([A-Za-z_][\w.]*)(?![\w.(\[<])")
INDEX = re.compile(r"(?<=[\w\])])\[([^\[\]&]*[a-z][^\[\]]*)\]")
DECLARATION = re.compile(r"\s*(?:const )?(?:int|long|bool|float|unsigned|Range|WorkTile|TileTaps)[\w\s,*&]*;")
NO_CODE = re.compile(
    r"\b(?:static_assert|constexpr|template|asm|using|enum|ALPHA_DYNAMIC_SHARED|__shared__|__launch_bounds__)\b|^\s*#"
)


@dataclass(frozen=True)
class Mutant:
    """Text around the code from `column` to `end` of a line, which changes it if `alpha_mutant` has this number."""

    number: int
    file: str
    line: int
    column: int
    end: int
    kind: str
    change: str
    before: str  # # stands for the number
    after: str
    code: str  # of the line

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.change}  |  {self.code}"


def _changes(code: str) -> Iterator[tuple[int, int, str, str, str, str]]:
    """(column, end, kind, what changes, text before, text after) of each mutant of a line."""
    for m in SWAP.finditer(code):
        other, rest = COUNTERPART[m[2]], code[m.end() :]
        if m[1] or not (DECLARED.search(code[: m.start()]) or re.match(r"\s*(?:=[^=]|\{)", rest)):
            yield m.start(), m.end(), "swap", f"{m[0]} -> {m[1]}{other}", f"(alpha_is(#) ? {m[1]}{other} : ", ")"
    for m in COMPARISON.finditer(code):
        sign = "" if m[1] in ("<", ">=") else "-"
        change = f"{m[1]} -> " + {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[m[1]]
        yield m.end(), m.end(), "bound", change, f"{sign}alpha_one(#) + ", ""
    for m in ONE.finditer(code):
        yield m.end() - 1, m.end(), "one", f"without{m[0]}", "(", " - alpha_one(#))"
    for m in INDEX.finditer(code):
        if not DECLARED.search(re.sub(r"[\w.]+$", "", code[: m.start()])):
            yield m.end() - 1, m.end() - 1, "index", f"[{m[1]}] -> [.. + 1]", "", " + alpha_one(#)"
    for m in TERM.finditer(code):
        if term := _term(code[m.end() :]):
            yield m.end(), m.end(), "term", f"without {m[1]} {term}", "(1 - alpha_one(#)) * ", ""
    for m in FACTOR.finditer(code):
        yield m.start(1), m.end(1), "factor", f"without * {m[1]}", "(alpha_is(#) ? 1 : ", ")"


def _term(rest: str) -> str:
    """The term at the beginning of a text."""
    depth = 0
    for i, c in enumerate(rest):
        depth += (c in "([") - (c in ")]")
        if depth < 0 or (depth == 0 and re.match(r"[,;{}?:]| [+<>=!&|?^-]", rest[i:])):
            return rest[:i].strip()
    return rest.strip()


@functools.cache
def mutants() -> tuple[Mutant, ...]:
    """One of each occurrence in the lines of code."""
    found: list[Mutant] = []
    root = source_root()
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*.cu*")):
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("//")[0].rstrip()
            if NO_CODE.search(code) or DECLARATION.match(code):
                continue
            seen: Counter[str] = Counter()
            for column, end, kind, change, before, after in _changes(code):
                if kind == "swap" and "." not in change and not re.search(rf"\b{change.split()[-1]}\b", text):
                    continue  # no such name
                seen[change] += 1
                if seen[change] > 1:
                    change += f", place {seen[change]}"
                name = path.relative_to(root).as_posix()
                found.append(
                    Mutant(len(found) + 1, name, number, column, end, kind, change, before, after, code.strip())
                )
    return tuple(found)


# -- the copy of the kernels that has all of them ---------------------------------------------------

SWITCH = """
extern "C" __attribute__((visibility("default"))) int alpha_mutant;
__attribute__((visibility("default"))) int alpha_mutant = 0;
static inline bool alpha_is(int number) { return alpha_mutant == number; }
static inline int alpha_one(int number) { return alpha_mutant == number ? 1 : 0; }
"""


Places = dict[tuple[str, int], list[tuple[int, int, int]]]  # (file, line): columns and number of each mutant


def write_copy(root: Path, without: set[int]) -> Places:
    """The kernels with all mutants but `without`, and where these are."""
    shutil.copytree(source_root(), root, dirs_exist_ok=True)
    head = root / "common" / "cuda.h"
    head.write_text(head.read_text() + SWITCH)
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for m in mutants():
        if m.number not in without:
            by_line.setdefault((m.file, m.line), []).append(m)
    places: Places = {}
    for name in sorted({name for name, _ in by_line}):
        lines = (root / name).read_text().splitlines()
        for (file, number), these in by_line.items():
            if file == name:
                lines[number - 1], places[file, number] = _with(lines[number - 1], these)
        (root / name).write_text("\n".join(lines) + "\n")
    return places


def _with(line: str, these: list[Mutant]) -> tuple[str, list[tuple[int, int, int]]]:
    """A line with its mutants, one within the other or side by side, and the columns of each."""
    text, at, begins = "", 0, {}
    found: list[tuple[int, int, int]] = []
    closing = sorted(these, key=lambda m: (m.end, -m.column, -m.number))
    opening = sorted(these, key=lambda m: (m.column, m.column < m.end, -m.end, m.number))
    for column in sorted({c for m in these for c in (m.column, m.end)}):
        text, at = text + line[at:column], column
        for m in closing:
            if m.end == column and m.column < m.end:
                text += m.after.replace("#", str(m.number))
                found.append((begins[m.number], len(text), m.number))
        for m in opening:
            if m.column == column:
                begins[m.number] = len(text)
                text += m.before.replace("#", str(m.number))
                if m.column == m.end:
                    text += m.after.replace("#", str(m.number))
                    found.append((begins[m.number], len(text), m.number))
    return text + line[at:], found


ERROR = re.compile(r"/((?:conv2d|matmul)/[\w./]+):(\d+):(\d+): error: (.*)")


def make_copy(root: Path, wanted: Iterable[int] | None = None) -> set[int]:
    """A copy that compiles, with the mutants `wanted` (default: all); the numbers of those that are not in it.

    These are the mutants that do not compile, those in files that no row here launches, and those not wanted.
    """
    compiler = emulated_compiler.EmulatedCompiler("sm_90a")
    included = {path for source in units() for path in included_by(source)}
    kept = {m.number for m in mutants()} if wanted is None else set(wanted)
    without = {m.number for m in mutants() if m.file not in included or m.number not in kept}
    command = [emulated_compiler.find_compiler(), *compiler._flags, "-w", "-fsyntax-only", "-fmax-errors=0"]
    left = sorted(
        {(source, _way(options)): (source, options) for source in units() for options in units()[source]}.values()
    )

    def errors(unit: tuple[str, tuple[str, ...]]) -> str:
        arguments = [*command, *unit[1], "-I", str(root), "-x", "c++", str(root / unit[0])]
        return subprocess.run(arguments, capture_output=True, text=True, check=False).stderr

    while left:
        places = write_copy(root, without)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            logs = list(pool.map(errors, left))
        left = [unit for unit, log in zip(left, logs, strict=True) if "error:" in log]
        wrong: set[int] = set()
        for file, line, column, message in ERROR.findall("\n".join(logs)):
            wrong |= _at_fault(places.get((file, int(line)), []), int(column) - 1, message)
        assert wrong or not left, "\n".join(logs)
        without |= wrong
    (root / SUBJECTS).write_bytes(pickle.dumps(subjects()))
    return without


def _way(options: tuple[str, ...]) -> tuple[str, ...]:
    """Macros that decide what compiles, and not how large it is."""
    return tuple(x for x in options if re.match(r"-DALPHA_(?:MATH|TERMS|PREPARED|TYPE|B_MN|TRANSPOSE|VECTOR)", x))


def _at_fault(here: list[tuple[int, int, int]], column: int, message: str) -> set[int]:
    """Mutants of a line that an error of the compiler is about."""
    at = {n for begin, end, n in here if begin <= column < end}
    unknown = re.search(r"[‘']([\w.]+)[’'] (?:was not declared|has no member)", message) or re.search(
        r"has no member named [‘'](\w+)[’']", message
    )
    if unknown:
        named = {n for n in at or {n for *_, n in here} if unknown[1] in mutants()[n - 1].before}
        return named or at
    return at or {n for *_, n in here}


# -- what they are judged on ------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A launch of a row on a shape, or of a matrix product: a call says what is wrong with the result."""

    price: float
    name: str  # of the row
    case: Any
    step: conv2d_steps.Form | None = None  # that the row takes

    def __call__(self, device: CudaDevice) -> str | None:
        if self.step is not None:
            return conv2d_steps.judge(row_of(self.name), self.case, self.step, device).fault
        if self.name:
            return _run_row(row_of(self.name), self.case, device)
        return _run_product(*self.case, device)


def row_of(name: str) -> Any:
    return next(v for v in ROWS if v.name == name)


@functools.cache
def subjects() -> dict[str, list[Run]]:
    """Runs that launch each kernel file: the smallest tile of each way to take operands, on its row's geometries."""
    found: dict[str, list[Run]] = {}
    for row in rows():
        several, whole = row.name in SEVERAL_PARTS, conv2d_geometry.whole(row)
        shapes = [*conv2d_geometry.of(row)[: 2 if several else None], *([whole] if whole and not several else [])]
        shapes += axes_geometry.of(row) if row.name not in SEVERAL_PARTS else ()
        shapes += [in_turns(row.name, FEW)] if row.name in TURNS else []
        runs = [Run(conv2d_geometry.cost(row, s), row.name, s) for s in shapes]
        for source in sources_of(row):
            found.setdefault(source, []).extend(runs)
    for name, forms in STEPS.items():
        shapes = [in_turns(name, FEW)] if name in TURNS else conv2d_steps.SHAPES
        runs = [Run(conv2d_geometry.cost(row_of(name), s), name, s, form) for s in shapes for form in forms]
        for source in {x.source for x in _step_launches(name)}:
            found.setdefault(source, []).extend(runs)
    found["matmul/ffma.cu"] = [Run(p.M, "", (p, one_b, "float32")) for p, one_b in _products()]
    found["matmul/sm80.cu"] = [
        Run(p.M, "", (p, one_b, how)) for how in ("tf32", "bf16") for p, one_b in (*_products(), *_batches())
    ]
    return found


def in_turns(name: str, num_sms: int) -> Any:
    """A shape on which the warpgroups of a row take turns."""
    small = ping_pong_cases.STEP_SHAPES[1]  # one tile of channels, which any number of SMs can share
    return ping_pong_cases.for_operator(TURNS[name], ping_pong_cases.with_tiles(small, num_sms))


@functools.cache
def rows() -> tuple[Any, ...]:
    """Smallest tile of each way to take operands, and a tile of several parts on either side of each operator."""
    ways, found = set(), []
    for row in sorted(ROWS, key=lambda v: (tile_area(v), v.precision != "bf16")):
        way = row.operator, row.make, row.math, row.tile.get("PREPARED"), reads_weight(row)
        alike = row.math is MathMode.FP16 or row.name == "direct_weight_sm80_tf32x3"  # another mode has its indices
        if (way not in ways and not alike) or row.name in SEVERAL_PARTS:
            ways.add(way)
            found.append(row)
    return tuple(found)


@functools.cache
def _launches(name: str) -> tuple[Any, ...]:
    row = row_of(name)
    on = DryDevice.of("sm_90a")
    for s in (*conv2d_geometry.of(row), *filter(None, [conv2d_geometry.whole(row)]), *axes_geometry.of(row)):
        _launch(row, s, on, on.zeros)
    if name in TURNS:
        _launch(row, in_turns(name, on.properties.num_sms), on, on.empty)
    return tuple(x for x in on.driver.launches if x.source.split("/")[0] in FOLDERS)


@functools.cache
def _step_launches(name: str) -> tuple[Any, ...]:
    on = DryDevice.of("sm_90a")
    s = in_turns(name, on.properties.num_sms) if name in TURNS else conv2d_steps.SHAPES[0]
    for form in STEPS[name]:
        taken = conv2d_steps.launch_on_zeros(row_of(name), s, form, on)
        assert taken, f"{name} does not take the step {form}"
    return tuple(x for x in on.driver.launches if x.source.split("/")[0] in FOLDERS)


def sources_of(row: Any) -> set[str]:
    return {x.source for x in _launches(row.name)}


@functools.cache
def units() -> dict[str, set[tuple[str, ...]]]:
    """The options with which each kernel file is compiled."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for row in rows():
        for x in _launches(row.name):
            found.setdefault(x.source, set()).add(x.options)
    for x in itertools.chain.from_iterable(map(_step_launches, STEPS)):
        found.setdefault(x.source, set()).add(x.options)
    on = DryDevice.of("sm_90a")
    for runs in (subjects()["matmul/ffma.cu"], subjects()["matmul/sm80.cu"]):
        for p, one_b, how in (run.case for run in runs):
            _multiply(p, how, *(on.zeros(shape, _dtype(how)) for shape in _shapes(p, one_b)))
    for x in on.driver.launches:
        if x.source.split("/")[0] in FOLDERS:
            found.setdefault(x.source, set()).add(x.options)
    return found


@functools.cache
def included_by(source: str) -> frozenset[str]:
    """The source and what it includes."""
    root = source_root()
    paths = [root / source, *(root / name for name, _ in _sources(root / source, root)[1:])]
    return frozenset(p.relative_to(root).as_posix() for p in paths if p.is_file())


def _launch(row: Any, s: Any, device: CudaDevice, array: Callable[..., Any]) -> tuple[Any, Any]:
    """Y, and the statistics of its channels if the row finds them; with a bias and an activation if it takes them."""
    names = conv2d_cases.OPERATORS[row.operator][1]
    first, second = (array(getattr(s, name), conv2d_cases.arrays_of(row)) for name in names)
    if not row.supports_epilogue:
        return compute(row, first, second, s), None
    bias = device.upload(_bias(s.OC if row.operator == FORWARD else s.IC))
    if not row.supports_statistics:
        return compute(row, first, second, s, bias, 0.5), None
    statistics = ChannelStatistics()
    return compute(row, first, second, s, bias, 0.5, statistics), statistics


def _bias(channels: int) -> np.ndarray:
    return np.linspace(-2, 3, channels, dtype=np.float32)


@functools.lru_cache(maxsize=64)
def _case(name: str, s: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The operands of a row and its result in float64."""
    row = row_of(name)
    first, second = (a.astype(conv2d_cases.arrays_of(row)) for a in conv2d_cases.operands(row.operator, s, "float32"))
    turn = (*conv2d_geometry.of(row), s).index(s)
    for a in (first, second) if row.precision == "float32" else ():  # so that a scale that does not see it overflows
        a.flat[(0, a.size - 1, a.size // 2, a.size // 3)[turn % 4]] = 100
    exact = conv2d_cases.OPERATORS[row.operator][0](first.astype(np.float64), second.astype(np.float64), s)
    if row.supports_epilogue:
        exact = exact + _bias(exact.shape[-1])
        exact = np.where(exact > 0, exact, 0.5 * exact)
    return first, second, exact


def _run_row(row: Any, s: Any, device: CudaDevice) -> str | None:
    first, second, exact = _case(row.name, s)
    waiting = [first, second]
    Y, statistics = _launch(row, s, device, lambda *_: device.upload(waiting.pop(0)))
    found = device.download(Y).astype(np.float64)
    error = conv2d_cases.relative_error(found, exact)
    if not error < LIMITS[row.precision]:
        return f"{row.name} {s}: error {error:.1e}"
    if statistics is not None and statistics.part is not None:
        counts = device.download(statistics.counts).astype(np.float64)[:, None]
        means, squares = device.download(statistics.part).astype(np.float64)
        pixels = exact.reshape(-1, exact.shape[-1])
        mean = (counts * means).sum(axis=0) / counts.sum()
        variance = (squares + counts * (means - mean) ** 2).sum(axis=0) / counts.sum()
        near = 1e-2 if row.precision == "tf32" else 1e-3
        same = counts.sum() == len(pixels) and np.allclose(mean, pixels.mean(axis=0), rtol=near, atol=near)
        if not same or not np.allclose(variance, pixels.var(axis=0), rtol=near, atol=near):
            return f"{row.name} {s}: statistics"
    return None


def _products() -> list[tuple[Product, bool]]:
    """Every transpose on and off a vector, a batch, one B for a batch, a K in several splits, large and whole tiles."""
    found = [
        (Product(2, M, N, K, a, b), (M + a) % 2 == 0)
        for M, N, K in ((70, 37, 50), (136, 72, 200))
        for a in (False, True)
        for b in (False, True)
    ]
    more = (
        Product(1, 1700, 648, 8, False, False),
        Product(2, 20, 12, 700, False, True),
        Product(2, 128, 128, 40, False, False),
    )
    return [*found, *((p, False) for p in more)]


def _shapes(p: Product, one_b: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    A, B = (p.K, p.M) if p.transpose_a else (p.M, p.K), (p.N, p.K) if p.transpose_b else (p.K, p.N)
    return (p.D, *A), (1 if one_b else p.D, *B)


def _batches() -> list[tuple[Product, bool]]:
    """Small, odd ones, as attention has them: tiles of other lengths, with fragments beyond Y."""
    sizes = (
        Product(5, 65, 65, 64, False, True),
        Product(40, 33, 20, 65, True, False),
        Product(5, 80, 96, 40, False, False),
    )
    return [(p, False) for p in sizes]


def _dtype(how: str) -> Any:
    return BFLOAT16 if how == "bf16" else np.float32


def _multiply(p: Product, how: str, A: Any, B: Any) -> Any:
    return ffma(p, A, B) if how == "float32" else mma(p, A, B, np.dtype(np.float32))


def _run_product(p: Product, one_b: bool, how: str, device: CudaDevice) -> str | None:
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal(n).astype(np.float32).astype(_dtype(how)) for n in _shapes(p, one_b))
    wide = (X.astype(np.float64) for X in (A, B))
    a, b = (X.transpose(0, 2, 1) if t else X for X, t in zip(wide, p[4:], strict=True))
    error = conv2d_cases.relative_error(device.download(_multiply(p, how, device.upload(A), device.upload(B))), a @ b)
    return None if error < LIMITS["tf32" if how == "tf32" else "float32"] else f"{p} {how}: error {error:.1e}"


# -- judging ----------------------------------------------------------------------------------------


class SwitchingDriver(EmulatedDriver):
    """Takes the kernels from a copy with mutants, of which one is on.

    `small`: a GPU of few SMs, whose threads come in another order.
    """

    def __init__(self, root: Path, mutant: int, small: bool) -> None:
        variables = patch.dict(os.environ, ALPHA_ARCH="sm_90a", ALPHA_EMULATED_SEED="1" if small else "0")
        with compiled_quickly(), variables:
            super().__init__()
        if small:
            self.properties = dataclasses.replace(self.properties, num_sms=FEW)
        self._root = root
        self.mutant = mutant

    def compile(self, source: Path, options: Sequence[str]) -> Path:
        name = source.relative_to(source_root())
        if name.parts[0] not in FOLDERS:
            return super().compile(source, options)
        with patch.object(emulated_compiler, "source_root", lambda: self._root):
            return compile_cached(self._compiler, self._root / name, options, self._root)

    def load(self, artefact: Path) -> ctypes.CDLL:
        library = super().load(artefact)
        if hasattr(library, "alpha_mutant"):
            ctypes.c_int.in_dll(library, "alpha_mutant").value = self.mutant
        return library


def judge(number: int, root: Path, progress: Callable[[], object] = lambda: None, part: int = 0) -> str | None:
    """Fault that gives a mutant away, or None.

    Number 0 is no mutant: it takes one of PARTS of the runs, each on one of both GPUs.
    """
    file = mutants()[number - 1].file if number else ""
    found: dict[str, list[Run]] = pickle.loads((root / SUBJECTS).read_bytes())
    runs = [run for source, each in found.items() if not number or file in included_by(source) for run in each]
    ordered = sorted(dict.fromkeys(runs), key=lambda run: run.price)
    both = itertools.product((False, True), ordered)
    for small, run in both if number else ((i % 2 == 0, run) for i, run in enumerate(ordered[part::PARTS])):
        device = CudaDevice(SwitchingDriver(root, number, small))
        try:
            wrong = run(device)
        except DeviceError as error:
            return str(error)
        finally:
            device.close()
        progress()
        if wrong:
            return wrong
    return None


class Worker:
    """A process that judges mutants, so that one that crashes or does not end harms no other."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None
        self._read = b""

    def verdict(self, number: int, part: int = 0) -> str | None:
        if self._process is None:
            command, self._read = [sys.executable, __file__, str(self._root)], b""
            self._process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number} {part}\n".encode())
        while True:
            line = self._line()
            if line is None or line == b"":
                self.close()
                return "it does not end" if line is None else "it crashes"
            if line != b"\n":  # the end of a run, of several
                verdict: str | None = json.loads(line)
                return verdict

    def _line(self) -> bytes | None:
        """The next line, empty at the end of the process; None: too much of the processor's time has passed."""
        assert self._process is not None
        assert self._process.stdout is not None
        begin = self._seconds()
        while b"\n" not in self._read:
            if select.select([self._process.stdout], [], [], 1.0)[0]:
                got = os.read(self._process.stdout.fileno(), 1 << 16)
                if not got:
                    return b""
                self._read += got
            elif self._seconds() - begin > PATIENCE:
                return None
        line, _, self._read = self._read.partition(b"\n")
        return line + b"\n"

    def _seconds(self) -> float:
        """The processor's time that the process has taken."""
        assert self._process is not None
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):  # what was not sent is not wanted
                    pipe.close()  # type: ignore[union-attr]
            self._process = None


Report = Callable[[int, str | None], object]


def judge_without(root: Path) -> list[str]:
    """Faults without a mutant."""
    return [text for text in _judge([(0, part) for part in range(PARTS)], root) if text is not None]


def judge_all(
    numbers: Sequence[int], root: Path, report: Report = lambda number, verdict: None
) -> dict[int, str | None]:
    """Verdicts by number."""
    return dict(zip(numbers, _judge([(number, 0) for number in numbers], root, report), strict=True))


def _judge(
    tasks: Sequence[tuple[int, int]], root: Path, report: Report = lambda number, verdict: None
) -> list[str | None]:
    """The verdict of each (number, part); the processors share the work."""
    waiting = list(enumerate(tasks))[::-1]
    verdicts: list[str | None] = [None] * len(tasks)

    def work(_: int) -> None:
        worker = Worker(root)
        try:
            while waiting:
                index, (number, part) = waiting.pop()
                verdicts[index] = worker.verdict(number, part)
                report(number, verdicts[index])
        finally:
            worker.close()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(work, range(os.cpu_count() or 1)))
    return verdicts


def main() -> None:
    root = Path(sys.argv[1])
    os.environ["ALPHA_CUDA_DRIVER"] = "emulated"
    for line in sys.stdin:
        number, part = map(int, line.split())
        print(json.dumps(judge(number, root, lambda: print(flush=True), part)), flush=True)


if __name__ == "__main__":
    sys.modules["index_mutations"] = sys.modules["__main__"]  # where the pickle's classes are
    main()
