"""Index faults in the convolution and matrix product kernels are noticed on the shapes of conv2d_geometry.py.

A seeded sample of the mutants is judged; ALPHA_MUTANTS=all judges all of them, ALPHA_MUTANTS=n a sample of n.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import index_mutations
import pytest
from index_mutations import Mutant

from alpha.errors import AlphaError
from alpha.runtime.cuda.driver_emulated import EmulatedDriver

SAMPLE, LEAST_SCORE = 100, 0.9
# (file, what changes, code of the line): why no result changes
ONLY_FIRST = "of the split position only `first` is read, and that does not depend on the size of dY"
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "conv2d/direct_stem_weight_mma.cu",
        "< -> <=",
        "if (int(blockIdx.x) < tasks)",
    ): "a grid has no more blocks than there are tasks",
    (
        "conv2d/position_gemm.cuh",
        "< -> <=",
        "for (int i = 0; i < BM; i += ROWS) {",
    ): "the copies of B come after one pass too many of A, and overwrite what it has brought",
    (
        "conv2d/filter_planes.cu",
        "< -> <=",
        "for (int r = threadIdx.y; r < 64; r += 8) {",
    ): "it writes a row beyond the tile that nothing reads: AddressSanitizer sees that (`make sanitize`)",
    (
        "conv2d/direct_stem.cu",
        "without - 1",
        "const int pixel = min(first + i * 32 + lane, pixels - 1);",
    ): "a pixel beyond the band is computed and not stored",
    (
        "conv2d/ks_deconv_ffma.cu",
        "s.OH -> s.OW",
        "const SplitPosition h = split_position(ih_s + u * s.sh, s.OH, s.FH, s.sh, s.ph);",
    ): ONLY_FIRST,
    (
        "conv2d/ks_deconv_ffma.cu",
        "s.OW -> s.OH",
        "const SplitPosition w = split_position(iw_s + v * s.sw, s.OW, s.FW, s.sw, s.pw);",
    ): ONLY_FIRST,
}

# No geometry shows these yet. They count against the score.
UNNOTICED = {
    (
        "conv2d/ks_deconv_wgmma.cu",
        "without - cw_s",
        "const int fh = h.residue + (h.size - 1 - h.taps.begin) * s.sh, fw = w.residue + (w.size - 1 - cw_s) * s.sw;",
    ),
    (
        "conv2d/direct_stem_mma.cu",
        "without * PIECE",
        "for (int i = threadIdx.x * PIECE; i < channels * K; i += THREADS * PIECE) {",
    ),
    ("conv2d/direct_stem_mma.cu", "without + PIECE", "if (i + PIECE <= channels * K) {"),
    ("conv2d/direct_stem_mma.cu", "< -> <=", "for (int p = 0; p < PLANES; p++) pairs[i].v[2 * p + r] = pair.v[p];"),
    ("matmul/matmul.cuh", "without + BK", "if (k + BK < k_stop) {"),
    (
        "conv2d/direct_stem_weight_mma.cu",
        "without * THREADS",
        "const int share = (words + chunks * THREADS - 1) / (chunks * THREADS);",
    ),
    ("conv2d/direct_stem.cu", "< -> <=", "for (int j = 0; j < GROUP; j += 4)"),
    ("conv2d/direct_stem_weight_mma.cu", "blockIdx.x -> blockIdx.y", "if (int(blockIdx.x) < tasks)"),
    ("conv2d/band_moments.cuh", "without * MI", "for (int i = 0; i < 2 * MI; i++) {"),
    (
        "conv2d/sk_dilated_wgmma.cu",
        "without + b * BLOCK",
        "const uint32_t box = tile + A_BYTES + b * BLOCK + q * B_BOX;",
    ),
}


def chosen(valid: list[Mutant]) -> list[Mutant]:
    wanted = os.environ.get("ALPHA_MUTANTS", str(SAMPLE))
    return valid if wanted == "all" else random.Random(0).sample(valid, min(int(wanted), len(valid)))


def equivalent(m: Mutant) -> str | None:
    return EQUIVALENT.get((m.file, m.change, m.code))


@pytest.mark.gate
def test_index_faults_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At least nine of ten, and each that is not is in one of the tables above."""
    try:
        EmulatedDriver().close()
    except AlphaError as error:
        pytest.skip(str(error))
    invalid = index_mutations.make_copy(tmp_path)
    valid = [m for m in index_mutations.mutants() if m.number not in invalid]
    numbers = [m.number for m in chosen(valid)]
    verdicts = index_mutations.judge_all([0], tmp_path)
    assert verdicts[0] is None, f"without a mutant: {verdicts[0]}"
    verdicts = index_mutations.judge_all(numbers, tmp_path)
    survivors = [index_mutations.mutants()[n - 1] for n in numbers if verdicts[n] is None]
    judged = len(numbers) - sum(equivalent(m) is not None for m in survivors)
    unexplained = [m for m in survivors if equivalent(m) is None]
    with capsys.disabled():
        print(
            f"\n{judged - len(unexplained)} of {judged} mutants are noticed, {len(numbers) - judged} change no result"
        )
    unnamed = [m for m in unexplained if (m.file, m.change, m.code) not in UNNOTICED]
    assert not unnamed, "not noticed:\n" + "\n".join(map(str, unnamed))
    assert judged - len(unexplained) >= LEAST_SCORE * judged


def test_there_are_mutants_of_every_kernel_file() -> None:
    found = index_mutations.mutants()
    kernels = {m.file for m in found}
    root = index_mutations.source_root()
    for folder in index_mutations.FOLDERS:
        for path in (root / folder).glob("*.cu*"):
            assert path.relative_to(root).as_posix() in kernels, f"{path.name} has no mutant"
    assert {m.kind for m in found} == {"swap", "bound", "one", "index", "term", "factor"}


def test_equivalent_mutants_exist() -> None:
    known = {(m.file, m.change, m.code) for m in index_mutations.mutants()}
    assert known >= UNNOTICED
    assert set(EQUIVALENT) <= known, "a line has changed: judge its mutants again"
