"""Moments of a convolution's channels, found with it, for the batch normalisation that follows."""

from __future__ import annotations

from collections.abc import Callable

import conv2d_geometry
import numpy as np
import pytest
from helpers import sample_of
from test_conv2d import arrays_of, hopper, make, operands, reordered

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.ops import batchnorm
from alpha.ops.conv2d import bands, reference, wgmma
from alpha.ops.conv2d.bands import Tile
from alpha.ops.conv2d.plan import compute
from alpha.ops.conv2d.variant import ChannelMoments
from alpha.ops.conv2d.variants import FORWARD, VARIANTS, Variant

# tiles of 64 channels that do not divide the SMs, several a block
WIDE = make(64, (8, 8), (32, 5 * 64), (1, 1))


FINDERS = [v for v in VARIANTS if v.finds_moments]


@pytest.mark.parametrize(
    "row",
    [
        *sample_of(v for v in FINDERS if v.precision != "tf32"),
        # the sums of tf32 reach the same code as those of float32
        *(pytest.param(v, id=v.name, marks=pytest.mark.gate) for v in FINDERS if v.precision == "tf32"),
    ],
)
def test_moments_of_the_result(row: Variant) -> None:
    """If a tile has rows that are not there, with a large mean, with products in segments, with many tiles per block.

    With bfloat16 they are the moments of the results before these are rounded.
    """
    device, tile = hopper(), Tile.of(row)
    for s in (*conv2d_geometry.of(row)[:2], WIDE):
        X, W = (device.upload(a.astype(arrays_of(row))) for a in operands(FORWARD, s, "float32"))
        b, slope = device.upload(np.linspace(1e3, 1e4, s.OC, dtype=np.float32)), 0.25
        moments, again = ChannelMoments(), ChannelMoments()
        Y = device.download(compute(row, X, W, s, b, slope, moments))
        room = bands.conv_v2_groups(s, tile).stages(1, wgmma.moment_bytes(tile))[0]
        assert (moments.part is not None) == (room > 0), s
        if not room:
            continue
        if row.precision == "bf16":
            Y = reference.forward(*(device.download(a).astype("float64") for a in (X, W)), s)
            Y += device.download(b)
            Y = np.where(Y > 0, Y, slope * Y)
        rows = Y.astype("float64").reshape(-1, s.OC)
        counts = device.download(moments.counts).astype("float64")[:, None]
        means, squares = device.download(moments.part).astype("float64")
        assert counts.sum() == len(rows)
        mean = (counts * means).sum(axis=0) / len(rows)
        var = (squares + counts * (means - mean) ** 2).sum(axis=0) / len(rows)
        np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(var, rows.var(axis=0), rtol=1e-4)
        if s is WIDE:
            other = reordered("sm_90a")
            X, W, b = (other.upload(device.download(a)) for a in (X, W, b))
            compute(row, X, W, s, b, slope, again)
            assert other.download(again.part).tobytes() == device.download(moments.part).tobytes()


def test_batch_norm_takes_the_moments_of_its_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CONV_VARIANT", "conv_v2_wgmma_128x64")
    device = hopper()
    X, W = (
        alpha.tensor(a, device=device)
        for a in operands(FORWARD, make(40, (3, 3), (32, 64), (3, 3), p=(1, 1)), "float32")
    )
    one, zero, b = (alpha.tensor(np.full(64, value, np.float32), device=device) for value in (1, 0, -2))
    seen: list[ChannelMoments | None] = []
    run = batchnorm.channel_moments.implementations["cuda"]
    monkeypatch.setitem(batchnorm.channel_moments.implementations, "cuda", lambda *a: seen.append(a[4]) or run(*a))

    def normalised(moments: bool, write: Callable[[Tensor], object] = lambda y: None) -> np.ndarray:
        y = F.conv2d(X, W, b, 1, 1, moments=moments)
        write(y)
        return F.batch_norm(y, None, None, one, zero, training=True).numpy()

    plain = normalised(False)
    np.testing.assert_allclose(normalised(True), plain, atol=2e-6)
    assert [m is not None for m in seen] == [False, True]
    for write in (lambda y: y.add_(3.0), lambda y: y.detach().add_(3.0)):
        seen.clear()
        np.testing.assert_allclose(normalised(True, write), plain, atol=2e-6)
        assert seen == [None]  # written to since: not its moments


def test_layers_find_moments_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_CONV_VARIANT", "conv_v2_wgmma_128x64")
    layers = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1, moments=True), nn.BatchNorm2d(64))
    x = alpha.tensor(operands(FORWARD, make(40, (3, 3), (32, 64), (3, 3)), "float32")[0])
    on_cpu = layers(x).numpy()
    assert layers[0](x)._moments is None
    statistics = layers[1].running_var.numpy()
    layers.to(hopper())
    x = x.to(hopper())
    np.testing.assert_allclose(layers(x).numpy(), on_cpu, atol=5e-6)
    assert layers[0](x)._moments is not None
    layers.eval()
    assert layers[0](x)._moments is None
    assert (layers[1].running_var.numpy() != statistics).any()


def test_thousands_of_parts_merge(rng: np.random.Generator) -> None:
    """As the moments of all rows, running statistics too; some parts are empty."""
    device, C = hopper(), 20
    counts = rng.integers(0, 17, 1500)
    rows = (100 + rng.standard_normal((counts.sum(), C))).astype(np.float32)
    parts = np.split(rows.astype(np.float64), np.cumsum(counts)[:-1])
    means = np.stack([p.mean(axis=0) if len(p) else np.zeros(C) for p in parts])
    squares = np.stack([((p - m) ** 2).sum(axis=0) for p, m in zip(parts, means, strict=True)])
    found = ChannelMoments(
        device.upload(np.stack([means, squares]).astype(np.float32)), device.upload(counts.astype(np.float32))
    )
    ours = [device.upload(np.full(C, v, np.float32)) for v in (90, 2)]
    theirs = [np.full(C, v, np.float32) for v in (90, 2)]
    expected = batchnorm.channel_moments(rows, *theirs, 0.3)
    results = batchnorm.channel_moments(device.upload(rows), *ours, 0.3, found)
    for result, exact in zip((*results, *ours), (*expected, *theirs), strict=True):
        np.testing.assert_allclose(device.download(result), exact, rtol=2e-5)
