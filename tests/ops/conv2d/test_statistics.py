"""Channel statistics that a convolution computes for the batch normalisation that follows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import conv2d_geometry
import conv2d_reference as reference
import numpy as np
import pytest
from conv2d_cases import arrays_of, hopper, make, operands, reordered
from helpers import sample_names, sample_of
from launch_log import observed_launches

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.ops.conv2d.channel_statistics import ChannelStatistics
from alpha.ops.conv2d.hopper import output_launch, output_tiles
from alpha.ops.conv2d.hopper.output_tiles import Tile
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.problem import FORWARD, Configuration
from alpha.ops.conv2d.select.table import CONFIGURATIONS
from alpha.ops.normalization import batch_norm_primitives as batchnorm

# tiles of 64 channels that do not divide the SMs, several per block
WIDE = make(64, (8, 8), (32, 5 * 64), (1, 1))


FINDERS = [v for v in CONFIGURATIONS if v.supports_statistics]
SAMPLE = sample_names([v for v in FINDERS if v.precision != "tf32"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [
        *sample_of(v for v in FINDERS if v.precision != "tf32"),
        # the sums of tf32 reach the same code as those of float32
        *(pytest.param(v, id=v.name, marks=pytest.mark.gate) for v in FINDERS if v.precision == "tf32"),
    ],
)
def test_statistics_of_the_result(row: Configuration) -> None:
    """Cases are a large mean, split-K, many tiles per block, and tiles that have rows outside of the map.

    With bfloat16 they are the statistics of the results before these are rounded. A kernel is compiled for each shape,
    so rows that `make test` leaves out take one of the first two in turn.
    """
    device, tile = hopper(), Tile.of(row)
    first = conv2d_geometry.of(row)[:2]
    turn = FINDERS.index(row) % len(first)
    for s in (*(first if row.name in SAMPLE else [first[turn]]), WIDE):
        X, W = (device.upload(a.astype(arrays_of(row))) for a in operands(FORWARD, s, "float32"))
        b, slope = device.upload(np.linspace(1e3, 1e4, s.OC, dtype=np.float32)), 0.25
        statistics, again = ChannelStatistics(), ChannelStatistics()
        Y = device.download(compute(row, X, W, s, b, slope, statistics))
        room = output_tiles.conv_v2_tiles(s, tile).stages(1, output_launch.statistics_bytes(tile))[0]
        spilling = output_launch.STATISTICS_SPILL.get((tile.math, tile.BM, tile.BN))
        splits = s is not WIDE and conv2d_geometry.launched(row, s)["SPLIT_K"] == "1"
        spills = spilling is output_launch.Splits.ANY or (spilling is output_launch.Splits.SEVERAL and splits)
        assert (statistics.part is not None) == (room > 0 and not spills), s
        if statistics.part is None:
            continue
        if row.precision == "bf16":
            Y = reference.forward(*(device.download(a).astype("float64") for a in (X, W)), s)
            Y += device.download(b)
            Y = np.where(Y > 0, Y, slope * Y)
        rows = Y.astype("float64").reshape(-1, s.OC)
        counts = device.download(statistics.counts).astype("float64")[:, None]
        means, squares = device.download(statistics.part).astype("float64")
        assert counts.sum() == len(rows)
        mean = (counts * means).sum(axis=0) / len(rows)
        var = (squares + counts * (means - mean) ** 2).sum(axis=0) / len(rows)
        np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(var, rows.var(axis=0), rtol=1e-4)
        if s is WIDE:
            other = reordered("sm_90a")
            X, W, b = (other.upload(device.download(a)) for a in (X, W, b))
            compute(row, X, W, s, b, slope, again)
            assert other.download(again.part).tobytes() == device.download(statistics.part).tobytes()


@pytest.mark.slow
def test_batch_norm_takes_the_statistics_of_its_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "conv_v2_sm90_fp16x3_128x64")
    device = hopper()
    X, W = (
        alpha.tensor(a, device=device)
        for a in operands(FORWARD, make(40, (3, 3), (32, 64), (3, 3), p=(1, 1)), "float32")
    )
    one, zero, b = (alpha.tensor(np.full(64, value, np.float32), device=device) for value in (1, 0, -2))
    seen = seen_by_batch_norm(monkeypatch)

    def normalised(found: ChannelStatistics | None, write: Callable[[Tensor], object] = lambda y: None) -> np.ndarray:
        y = F.conv2d(X, W, b, 1, 1, statistics=found)
        write(y)
        return F.batch_norm(y, None, None, one, zero, training=True, statistics=found).numpy()

    plain = normalised(None)
    found = ChannelStatistics()
    np.testing.assert_allclose(normalised(found), plain, atol=2e-6)
    assert seen == [None, found]
    for write in (lambda y: y.add_(3.0), lambda y: y.detach().add_(3.0)):
        seen.clear()
        np.testing.assert_allclose(normalised(ChannelStatistics(), write), plain, atol=2e-6)
        assert seen == [None]  # written to since: these are not its statistics
    seen.clear()
    y = F.conv2d(X, W, b, 1, 1)
    F.batch_norm(y, None, None, one, zero, training=True, statistics=found)
    assert seen == [None]  # the statistics of another tensor
    on_cpu = F.conv2d(X.to("cpu"), W.to("cpu"), b.to("cpu"), 1, 1, statistics=found)
    assert found.part is None
    assert not found.describes(on_cpu)  # the kernel has computed none, and those of the earlier call are gone


def seen_by_batch_norm(monkeypatch: pytest.MonkeyPatch) -> list[ChannelStatistics | None]:
    """The statistics that each batch normalisation on the cuda device is given."""
    seen: list[ChannelStatistics | None] = []
    known = batchnorm.batch_norm_training.implementations
    run = known["cuda"]
    monkeypatch.setitem(known, "cuda", lambda X, wanted, *a: seen.append(wanted.statistics) or run(X, wanted, *a))
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("together", [nn.Sequential, lambda *pair: functools.partial(nn.conv_batch_norm, *pair)])
def test_a_convolution_finds_statistics_for_the_batch_norm_that_follows(
    together: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALPHA_CONV_KERNEL", "conv_v2_sm90_fp16x3_128x64")
    conv, norm = nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64)
    x = alpha.tensor(operands(FORWARD, make(40, (3, 3), (32, 64), (3, 3)), "float32")[0])
    on_cpu = together(conv, norm)(x).numpy()
    running = norm.running_var.numpy()
    conv.to(hopper())
    norm.to(hopper())
    x = x.to(hopper())
    with observed_launches(hopper()) as log:
        np.testing.assert_allclose(together(conv, norm)(x).numpy(), on_cpu, atol=5e-6)
    assert [x.defines["STATISTICS"] for x in log if x.entry == "conv_v2_sm90"] == [1]
    assert [x.entry for x in log][-2:] == ["merge_counted_statistics", "apply"]
    assert (norm.running_var.numpy() != running).any()
    norm.eval()
    with observed_launches(hopper()) as log:
        together(conv, norm)(x)
    assert [x.defines["STATISTICS"] for x in log if x.entry == "conv_v2_sm90"] == [0]


def test_a_sequential_leaves_other_modules_alone() -> None:
    """A subclass may have a forward of its own."""

    class Doubled(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x) * 2.0

    x = alpha.tensor(np.ones((2, 4, 4, 3), np.float32))
    assert nn.Sequential(nn.Conv2d(3, 4, 1), Doubled(4), nn.Conv2d(4, 2, 1))(x).shape == (2, 4, 4, 2)


def test_thousands_of_parts_merge(rng: np.random.Generator) -> None:
    """The result is the statistics of all rows, and running statistics, too; some parts are empty."""
    device, C = hopper(), 20
    counts = rng.integers(0, 17, 1500)
    rows = (100 + rng.standard_normal((counts.sum(), C))).astype(np.float32)
    parts = np.split(rows.astype(np.float64), np.cumsum(counts)[:-1])
    means = np.stack([p.mean(axis=0) if len(p) else np.zeros(C) for p in parts])
    squares = np.stack([((p - m) ** 2).sum(axis=0) for p, m in zip(parts, means, strict=True)])
    found = ChannelStatistics(
        device.upload(np.stack([means, squares]).astype(np.float32)), device.upload(counts.astype(np.float32))
    )
    ours = [device.upload(np.full(C, v, np.float32)) for v in (90, 2)]
    theirs = [np.full(C, v, np.float32) for v in (90, 2)]
    expected = batchnorm.channel_statistics(rows, *theirs, 0.3)
    results = batchnorm.channel_statistics(device.upload(rows), *ours, 0.3, found)
    for result, exact in zip((*results, *ours), (*expected, *theirs), strict=True):
        np.testing.assert_allclose(device.download(result), exact, rtol=2e-5)
