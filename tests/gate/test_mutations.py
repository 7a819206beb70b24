"""Deleting any one barrier or wait from a kernel changes its result or is reported as a fault."""

from __future__ import annotations

import mutations
import pytest

from alpha.errors import AlphaError
from alpha.runtime.cuda.emulated.driver_emulated import EmulatedDriver

MEETING = "stmatrix and ldmatrix bring the lanes of a warp together in the emulator"
OWN_BARRIER = "its warps meet at a barrier of their own"
ONE_AFTER_THE_OTHER = "for blocks that run at the same time, and the emulator's come one after the other"
# (kernel, file of the wait, its text, or nothing for all of the file): why nothing changes without it
EXPLAINED = {
    ("batchnorm/apply.cu", "common/columns.cuh", ""): "it adds no lanes up",
    ("batchnorm/apply_pool.cu", "common/columns.cuh", ""): "it adds no lanes up",
    ("batchnorm/gradient_sums.cu", "common/last_block.cuh", ""): ONE_AFTER_THE_OTHER,
    ("batchnorm/input_gradient.cu", "common/columns.cuh", ""): "it adds no lanes up",
    ("batchnorm/pool_gradient_sums.cu", "common/largest.cuh", ""): "it finds no limit",
    ("batchnorm/pool_gradient_sums.cu", "common/last_block.cuh", ""): ONE_AFTER_THE_OTHER,
    ("batchnorm/pool_input_gradient.cu", "common/columns.cuh", ""): "it adds no lanes up",
    ("batchnorm/statistics.cu", "common/largest.cuh", ""): "threads of the first warp alone have a limit",
    ("conv2d/conv_v2/sm90.cu", "common/largest.cuh", ""): OWN_BARRIER,
    ("conv2d/conv_v2/sm90.cu", "conv2d/sm90/ping_pong.cuh", "__syncwarp();"): MEETING,
    ("conv2d/conv_v2/sm90.cu", "conv2d/sm90/split_k.cuh", ""): ONE_AFTER_THE_OTHER,
    ("conv2d/conv_v2/sm90.cu", "conv2d/sm90/transpose.cuh", ""): "only the filter of dX is transposed",
    ("conv2d/ks_deconv/sm90.cu", "common/largest.cuh", ""): OWN_BARRIER,
    ("conv2d/ks_deconv/sm90.cu", "conv2d/sm90/largest.cuh", ""): "it finds no magnitude",
    ("conv2d/ks_deconv/sm90.cu", "conv2d/sm90/ping_pong.cuh", "__syncwarp();"): MEETING,
    (
        "conv2d/ks_deconv/sm90.cu",
        "conv2d/sm90/ping_pong.cuh",
        "named_barrier_sync(BARRIER, CONSUMERS);",
    ): "it finds no statistics",
    ("conv2d/ks_deconv/sm90.cu", "conv2d/sm90/split_k.cuh", ""): ONE_AFTER_THE_OTHER,
    (
        "conv2d/ks_deconv/sm90.cu",
        "conv2d/sm90/turns.cuh",
        "",
    ): "the other two kernels show it, in other orders of threads",
    ("conv2d/ks_deconv/sm90.cu", "conv2d/sm90/statistics.cuh", ""): "it finds no statistics",
    ("conv2d/ks_deconv/sm90_first_step.cu", "common/columns.cuh", ""): "it adds no lanes up",
    ("conv2d/ks_deconv/sm90_first_step.cu", "common/largest.cuh", ""): OWN_BARRIER,
    ("conv2d/ks_deconv/sm90_first_step.cu", "conv2d/sm90/first_step.cuh", "__syncwarp();"): "it is there for registers",
    (
        "conv2d/ks_deconv/sm90_first_step.cu",
        "conv2d/sm90/output_tiles.cuh",
        "__syncwarp();",
    ): "the lanes of a warp exchange their results after they have read the task",
    ("conv2d/ks_deconv/sm90_first_step.cu", "conv2d/sm90/first_step_channels.cuh", "__syncwarp();"): MEETING,
    (
        "conv2d/ks_deconv/sm90_first_step.cu",
        "conv2d/sm90/first_step_channels.cuh",
        "named_barrier_sync(BARRIER, CONSUMERS);",
    ): "numbers of channels are read behind the products of a tile; without the barrier before the sums they are wrong",
    ("conv2d/ks_deconv/sm90_first_step.cu", "conv2d/sm90/ping_pong.cuh", ""): "it stores results in another way",
    ("conv2d/ks_deconv/sm90_first_step.cu", "conv2d/sm90/split_k.cuh", ""): ONE_AFTER_THE_OTHER,
    ("conv2d/ks_deconv/sm90_first_step.cu", "conv2d/sm90/statistics.cuh", ""): "it finds no statistics",
    ("optimizer/average.cu", "common/largest.cuh", ""): "it writes nothing beside a mean",
    ("reduce/scan_rows.cu", "common/rows.cuh", ""): "it scans the lanes of a row and does not join them",
    ("reduce/sum.cu", "common/last_block.cuh", ""): ONE_AFTER_THE_OTHER,
}


@pytest.fixture(autouse=True)
def needs_a_compiler(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        EmulatedDriver().close()
    except AlphaError as error:
        pytest.skip(str(error))
    cache = getattr(pytestconfig, "cache", None)  # none with -p no:cacheprovider
    if cache is not None:  # mutants are no kernels to keep with the others
        monkeypatch.setenv("ALPHA_CACHE_DIR", str(cache.mkdir("mutants")))


pytestmark = pytest.mark.gate
MUTANTS = mutations.mutants()


def explained(mutant: mutations.Mutant) -> bool:
    return any((mutant.source, mutant.file, text) in EXPLAINED for text in ("", mutant.text))


@pytest.mark.parametrize("kernel", sorted({m.source for m in MUTANTS if not explained(m)}))
def test_a_missing_wait_is_noticed(kernel: str) -> None:
    mutants = [m for m in MUTANTS if m.source == kernel and not explained(m)]
    verdicts = {str(mutant): mutations.judge(mutant) for mutant in mutants}
    assert not [mutant for mutant, verdict in verdicts.items() if verdict is None], "not noticed"


@pytest.mark.parametrize(("kernel", "file", "text"), EXPLAINED)
def test_what_is_explained_survives(kernel: str, file: str, text: str) -> None:
    waits = [m for m in MUTANTS if (m.source, m.file) == (kernel, file) and text in ("", m.text)]
    assert any(mutations.judge(m, runs=2) is None for m in waits), "nothing is to be explained"


def test_there_are_mutants() -> None:
    assert len(MUTANTS) >= 25
