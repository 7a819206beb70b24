"""Index faults in the convolution and matrix product kernels are noticed on the shapes of conv2d_geometry.py.

A seeded sample of the mutants is judged; ALPHA_MUTANTS=all judges all of them, ALPHA_MUTANTS=n a sample of n.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path

import conv2d_steps
import index_mutations
import pytest
from conv2d_cases import OPERATORS, arrays_of
from index_mutations import Mutant

from alpha.errors import AlphaError
from alpha.ops.conv2d.plan import compute
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver
from alpha.runtime.cuda.planning.driver_dry import DryDevice, DryDriver

pytestmark = pytest.mark.gate

SAMPLE = 60
# (file, what changes, code of the line): why no result changes. They are not judged.
SANITIZED = "it touches what lies beyond an array and changes no result: such faults are for `make sanitize`"
OTHER_TILE = "a tile beyond the last channel reads another vector, and is not stored"
ONE_STEP_MORE = "a step or row beyond the last meets no result"
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "conv2d/sm90/statistics.cuh",
        "< -> <=",
        "target[0] = origin + mean, target[(long)p.statistics_parts * p.GN] = rest < 0 ? 0 : rest;",
    ): "0 becomes 0",
    (
        "conv2d/direct/forward_sm80.cu",
        "without * VECTOR, place 2",
        "for (int i = threadIdx.x * VECTOR; i < channels * K; i += THREADS * VECTOR) {",
    ): "it reads each number VECTOR times",
    ("conv2d/direct/forward_sm80.cu", "without + VECTOR", "if (i + VECTOR <= channels * K) {"): SANITIZED,
    (
        "conv2d/direct/forward_sm80.cu",
        "< -> <=",
        "for (int p = 0; p < TERMS; p++) pairs[i].v[2 * p + r] = pair.v[p];",
    ): "the next pair overwrites it; the last one is for AddressSanitizer",
    (
        "conv2d/direct/weight_sm80.cu",
        "without * THREADS, place 2",
        "const int share = (words + chunks * THREADS - 1) / (chunks * THREADS);",
    ): "the first chunk brings all words, the others none",
    ("conv2d/direct/forward_sm80.cu", "< -> <=", "for (int i = 0; i < VECTOR; i++) {"): SANITIZED,
    (
        "conv2d/ks_deconv/sm90.cuh",
        "without - 1",
        "last = split_pixel(iw + (count - 1) * s.sw, width);",
    ): "the taps too many meet the zeros beyond dY",
    ("conv2d/sm90/products.cuh", "< -> <=", "for (int r = 0; r < R; r++) sum[r] += step_sum[r];"): SANITIZED,
    (
        "conv2d/sm90/products.cuh",
        "< -> <=",
        "for (int e = 0; e < 2; e++)",
    ): "the second half overwrites what the first writes too much; that of the second is for AddressSanitizer",
    (
        "conv2d/direct/forward_ffma.cu",
        "< -> <=",
        "for (int first = 0; first < pixels; first += 32 * PIXELS) {",
    ): "a pass beyond the last pixel stores nothing",
    (
        "conv2d/direct/weight_ffma.cu",
        "< -> <=",
        "for (int pixel = group; pixel < pixels; pixel += AHEAD * P) {",
    ): "a pass beyond the last pixel breaks off at once",
    (
        "conv2d/ks_deconv/ffma.cu",
        "< -> <=",
        "__device__ Column column(int n) const { return {(long)n * s.OC, n < N}; }",
    ): "a column beyond the last is computed and not stored",
    (
        "conv2d/sk_dilated/sm90.cu",
        "without - 1",
        "rows = od.size() * oh.size(), columns = (ow.size() + TILE_OW - 1) / TILE_OW;",
    ): "a tile of columns too many meets zeros of X",
    (
        "conv2d/direct/forward_sm80.cu",
        "< -> <=",
        "for (int i = threadIdx.x; i < STEPS * 8; i += THREADS) {",
    ): "it writes the first word of the rows, before that is filled",
    ("conv2d/direct/forward_sm80.cu", "> -> >=", "if (BLOCKS > 1) load_filters(block, j0);"): "the same filters again",
    ("conv2d/direct/weight_ffma.cu", "< -> <=", "for (int j = 0; j < KT; j++) {"): SANITIZED,
    (
        "conv2d/sm90/tile.cuh",
        "< -> <=, place 2",
        "else if (begin < i + steps_of_K && i < end)",
    ): "an input tile of no steps more",
    (
        "conv2d/direct/forward_ffma.cu",
        "without * PIXELS",
        "for (int first = 0; first < pixels; first += 32 * PIXELS) {",
    ): "pixels are computed several times, with the same result",
    (
        "conv2d/direct/forward_sm80.cu",
        "without * MT, place 2",
        "for (int first = warp * 16 * MT; first < pixels; first += WARPS * 16 * MT) {",
    ): "pixels are computed several times, with the same result",
    (
        "conv2d/sk_dilated/sm90.cu",
        "without - 1",
        "const int first = block.first_tap, last = min(first + TAPS, s.FW) - 1;",
    ): "it begins at columns of output pixels that no tap needs: they meet zeros of X",
    ("matmul/ffma.cu", "without + BK", "if (k + BK < k_stop) {"): "the last step fetches zeros that nobody reads",
    ("matmul/ffma.cu", "< -> <=", "if (k + BK < k_stop) {"): "the last step fetches zeros that nobody reads",
    ("matmul/ffma.cu", "without + g * 64", "const int n = n0 + g * 64 + tx * 4;"): "all tiles have 64 columns",
    (
        "matmul/operand.cuh",
        "> -> >=",
        "const bool spare = THREADS % LANES > 0 && group >= GROUPS;",
    ): "without a remainder no group is beyond the last",
    (
        "matmul/operand.cuh",
        ">= -> >",
        "const bool spare = THREADS % LANES > 0 && group >= GROUPS;",
    ): "a spare thread stores what another one stores",
    (
        "matmul/operand.cuh",
        "< -> <=, place 2",
        "if (!spare && (OUTER % GROUPS == 0 || outer < OUTER) && (PACKS % LANES == 0 || inner < INNER))",
    ): "it writes into the padding of the row",
    (
        "matmul/sm80.cu",
        "< -> <=",
        "for (int i = 0; i < VECTOR; i++) rounded.v[i] = MATH == BF16 ? __float_as_uint(x.v[i]) : round_tf32(x.v[i]);",
    ): SANITIZED,
    ("matmul/sm80.cu", ">= -> >", "if (k >= depth) break;"): "the rest of a tile is zeros",
    (
        "matmul/sm80.cu",
        "< -> <=",
        "for (int k = tile.k_start, stage = 0; k < tile.k_stop; k += BK, stage ^= 1) {",
    ): "a step more has no depth",
    ("matmul/sm80.cu", "< -> <=", "if (k + BK < tile.k_stop) {"): "the last step fetches zeros that nobody reads",
    ("matmul/sm80.cu", "without + BK", "if (k + BK < tile.k_stop) {"): "the last step fetches zeros that nobody reads",
    (
        "matmul/sm80.cu",
        "without - k",
        "multiply(sum, a[stage], b[stage], m, n, tile.k_stop - k);",
    ): "the rest of a tile is zeros",
    (
        "conv2d/sm80/mainloop.cuh",
        "< -> <=",
        "for (int i = 0; i < BM; i += ROWS) {",
    ): "the copies of B come after one pass too many of A, and overwrite what it has brought",
    (
        "conv2d/direct/forward_ffma.cu",
        "without - 1",
        "const int pixel = min(first + i * 32 + lane, pixels - 1);",
    ): "a pixel beyond the rows is computed and not stored",
    (
        "conv2d/grouped/any_ffma.cu",
        "< -> <=",
        "return {first < 0 ? (-first + d - 1) / d : 0, last > 0 ? min(F, (last + d - 1) / d) : 0};",
    ): "at 0 both branches are 0",
    (
        "conv2d/depthwise/weight_ffma.cu",
        "without * blockDim.y",
        "for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < count; i += blockDim.x * blockDim.y) "
        "dW[i] = sums[i];",
    ): "sums are stored several times, with the same values",
    (
        "conv2d/depthwise/map.cuh",
        "< -> <=",
        "for (int t = 0; t < COLUMNS; t++) sum[live - Strip::DONE][t] = sum[live][t];",
    ): "the first sum of the next row comes there anyway",
    (
        "conv2d/sk_dilated/sm90.cu",
        "without + part * 32",
        "tma_load(box + part * TERM_BYTES, X + phase, full, channel + part * 32, n, x, input_row);",
    ): "tiles of 32 channels do not use the second part",
    (
        "conv2d/sm90/epilogue.cuh",
        "< -> <=",
        "for (int j = 0; j < BN / 8; j++) {",
    ): "columns beyond the tile are not stored",
    (
        "conv2d/sm90/epilogue.cuh",
        "< -> <=",
        "const float2 next = j + 1 < BN / 8 ? pair(j + 1) : make_float2(0, 0);",
    ): SANITIZED,
    (
        "conv2d/sm90/epilogue.cuh",
        "without + 1",
        "const float2 next = j + 1 < BN / 8 ? pair(j + 1) : make_float2(0, 0);",
    ): SANITIZED,
    (
        "conv2d/sm90/tile.cuh",
        "without - taps.first_row",
        "return floor_divide(row - taps.first_row, taps.rows).remainder;",
    ): "another order of the same rows",
    (
        "conv2d/depthwise/map.cuh",
        "< -> <=",
        "to.load(source, row < end_row ? row : -1, p.source_height, p.source_width, first);",
    ): ONE_STEP_MORE,
    (
        "conv2d/depthwise/map.cuh",
        "< -> <=",
        "for (int begin = steps.begin; begin < steps.end; begin += STEPS)",
    ): ONE_STEP_MORE,
    ("conv2d/depthwise/map.cuh", ">= -> >", "if (step >= steps.end) break;"): ONE_STEP_MORE,
    (
        "conv2d/depthwise/weight_ffma.cu",
        "< -> <=",
        "for (int group = blockIdx.y; group < groups; group += gridDim.y) {",
    ): "the threads of a group beyond the last have no image",
    (
        "conv2d/depthwise/weight_ffma.cu",
        ">= -> >",
        "if (!LATE && unsigned(source_row) >= unsigned(s.IH)) continue;",
    ): "the row is found to be outside when it is loaded",
    (
        "conv2d/small_groups/map_sm80.cuh",
        "< -> <=",
        "const int channel = first_channel + n * 8 < p.channels ? first_channel + n * 8 : block_channel;",
    ): OTHER_TILE,
    (
        "conv2d/small_groups/map_sm80.cuh",
        "without + n * 8",
        "const int channel = first_channel + n * 8 < p.channels ? first_channel + n * 8 : block_channel;",
    ): OTHER_TILE,
    (
        "conv2d/small_groups/map_sm80.cuh",
        "< -> <=",
        "if (EPILOGUE && p.bias != nullptr && first_channel + n * 8 + 2 * t < p.channels)",
    ): SANITIZED,
    (
        "conv2d/small_groups/map_sm80.cuh",
        "without + n * 8",
        "if (EPILOGUE && p.bias != nullptr && first_channel + n * 8 + 2 * t < p.channels)",
    ): SANITIZED,
    (
        "conv2d/small_groups/map_sm80.cuh",
        "without + 2 * t",
        "if (EPILOGUE && p.bias != nullptr && first_channel + n * 8 + 2 * t < p.channels)",
    ): SANITIZED,
    (
        "conv2d/small_groups/map_sm80.cuh",
        "without * t",
        "if (EPILOGUE && p.bias != nullptr && first_channel + n * 8 + 2 * t < p.channels)",
    ): SANITIZED,
    (
        "conv2d/small_groups/map_sm80.cuh",
        "< -> <=",
        "const bool exists = group < STRIPS * GROUPS && image < p.images;",
    ): "the block of the next strip writes these pixels after it",
    (
        "conv2d/small_groups/map_sm80.cuh",
        "< -> <=",
        "const bool inside = to < p.channels && source / Map::SOURCE_GROUP == group;",
    ): "a channel beyond the last is computed and not stored",
    ("conv2d/small_groups/map_sm80.cuh", ">= -> >", "if (number >= steps.end) return;"): ONE_STEP_MORE,
    (
        "conv2d/small_groups/map_sm80.cuh",
        "without * p.segment_rows",
        "const Range wanted = {segment * p.segment_rows, min((segment + 1) * p.segment_rows, p.height)};",
    ): "a block also computes the rows of those before it, with the same result",
    ("conv2d/small_groups/map_sm80.cuh", "< -> <=", "if (number < steps.end)"): ONE_STEP_MORE,
    (
        "conv2d/small_groups/map_sm80.cuh",
        "< -> <=",
        "for (int number = steps.begin; number < steps.end; number += Tile::PHASES)",
    ): ONE_STEP_MORE,
    ("conv2d/small_groups/strip_rows.cuh", "< -> <=", "for (int i = 0; i < ROUNDS; i++) {"): SANITIZED,
    ("conv2d/small_groups/weight_sm80.cu", "< -> <=", "for (int n = 0; n < NT; n++) {"): SANITIZED,
    ("conv2d/small_groups/weight_sm80.cu", "< -> <=", "for (int m = 0; m < MT; m++)"): SANITIZED,
    (
        "conv2d/small_groups/weight_sm80.cu",
        "< -> <=",
        "const int own = block_channel + (wn * NT + n) * 8, channel = own < channels ? own : block_channel;",
    ): OTHER_TILE,
    (
        "conv2d/small_groups/weight_sm80.cu",
        "without - 1",
        "const int fw = K_VECTORS == 1 ? 2 * pair : pair / (K_VECTORS / 2), next = min(fw + 1, FW - 1);",
    ): "the second tap of the last pair is not stored",
    (
        "conv2d/small_groups/weight_sm80.cu",
        "< -> <=",
        "for (int i = 0; i < WORDS; i++) own[i] += sums[i * 32];",
    ): SANITIZED,
    ("conv2d/small_groups/weight_sm80.cu", "< -> <=", "for (int pair = 0; pair < PAIRS; pair++)"): SANITIZED,
    (
        "conv2d/small_groups/weight_sm80.cu",
        "< -> <=",
        "for (int e = 0; e < 4; e++) {",
    ): "what it stores is overwritten by the next pair, or belongs to another group",
    (
        "conv2d/small_groups/weight_sm80.cu",
        "s.ph -> s.pw",
        "steps = Map::steps(rows, s.ph);",
    ): "these steps do not depend on the padding",
    ("conv2d/small_groups/weight_sm80.cu", ">= -> >", "if (number >= end) return;"): ONE_STEP_MORE,
    (
        "conv2d/small_groups/weight_sm80.cu",
        "< -> <=",
        "for (int i = blockIdx.y; i < tasks; i += gridDim.y) {",
    ): "a task beyond the last has no images: zeros",
    ("conv2d/small_groups/weight_sm80.cu", "< -> <=", "if (number < task.steps.end) {"): ONE_STEP_MORE,
    (
        "conv2d/small_groups/weight_sm80.cu",
        "< -> <=",
        "if (number < task.rows.end) y.bring(free + Map::SOURCE_ROWS * XRows::BYTES, number);",
    ): ONE_STEP_MORE,
    (
        "conv2d/small_groups/weight_sm80.cu",
        "< -> <=",
        "for (int number = task.steps.begin; number < task.steps.end; number += Map::LIVE)",
    ): ONE_STEP_MORE,
}
# files without a mutant, which only name the arguments of a kernel that is elsewhere
WITHOUT_ARITHMETIC = {"conv2d/ks_deconv/sm90.cu", "conv2d/ks_deconv/sm90_first_step.cu"}


def ranked() -> list[Mutant]:
    """All mutants, in an order that an edit of a kernel leaves as it is but for the mutants of the edited lines."""
    return sorted(
        index_mutations.mutants(), key=lambda m: hashlib.sha256("\0".join((m.file, m.change, m.code)).encode()).digest()
    )


def equivalent(m: Mutant) -> str | None:
    return EQUIVALENT.get((m.file, m.change, m.code))


def test_index_faults_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of the sample but those of the table above."""
    try:
        EmulatedDriver().close()
    except AlphaError as error:
        pytest.skip(str(error))
    wanted = os.environ.get("ALPHA_MUTANTS", str(SAMPLE))
    count = len(ranked()) if wanted == "all" else int(wanted)
    candidates = ranked()[: count + count // 2]  # as not all compile; a copy with few mutants compiles faster
    invalid = index_mutations.make_copy(tmp_path, [m.number for m in candidates])
    sample = [m for m in candidates if m.number not in invalid][:count]
    assert len(sample) == count or wanted == "all", f"only {len(sample)} mutants compile"
    numbers = [m.number for m in sample if equivalent(m) is None]
    wrong = index_mutations.judge_without(tmp_path)
    assert not wrong, f"without a mutant: {wrong}"
    verdicts = index_mutations.judge_all(numbers, tmp_path)
    survivors = [index_mutations.mutants()[n - 1] for n in numbers if verdicts[n] is None]
    with capsys.disabled():
        noticed = len(numbers) - len(survivors)
        print(f"\n{noticed} of {len(numbers)} mutants are noticed, {len(sample) - len(numbers)} change no result")
    assert not survivors, "not noticed:\n" + "\n".join(map(str, survivors))


@pytest.mark.parametrize("name", index_mutations.TURNS)
def test_warpgroups_take_turns_where_mutants_are_judged(name: str) -> None:
    """The small GPU of the judges launches the kernel in turns, with each form of a step that they run."""
    properties = dataclasses.replace(DryDevice.of("sm_90a").properties, num_sms=index_mutations.FEW)
    on = DryDevice(DryDriver(properties))
    row, s = index_mutations.row_of(name), index_mutations.in_turns(name, index_mutations.FEW)
    first, second = (on.zeros(getattr(s, side), arrays_of(row)) for side in OPERATORS[row.operator][1])
    compute(row, first, second, s)
    for form in index_mutations.STEPS.get(name, ()):
        assert conv2d_steps.launch_on_zeros(row, s, form, on)
    launches = [launch for launch in on.driver.launches if "sm90" in launch.source]
    assert len(launches) == 1 + len(index_mutations.STEPS.get(name, ()))
    assert all("-DALPHA_PING_PONG=1" in launch.options for launch in launches)


def test_there_are_mutants_of_every_kernel_file() -> None:
    found = index_mutations.mutants()
    kernels = {m.file for m in found}
    root = index_mutations.source_root()
    for folder in index_mutations.FOLDERS:
        for path in (root / folder).rglob("*.cu*"):
            name = path.relative_to(root).as_posix()
            if name in WITHOUT_ARITHMETIC:
                assert name not in kernels, f"{name} has mutants: take it off the list of files without arithmetic"
            else:
                assert name in kernels, f"{name} has no mutant"
    assert {m.kind for m in found} == {"swap", "bound", "one", "index", "term", "factor"}


def test_equivalent_mutants_exist() -> None:
    known = {(m.file, m.change, m.code) for m in index_mutations.mutants()}
    assert set(EQUIVALENT) <= known, "a line has changed: judge its mutants again"
