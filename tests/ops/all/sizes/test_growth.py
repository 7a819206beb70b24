"""Memory grows with what a function is given and gives: an axis of twice the length takes about twice as much."""

from __future__ import annotations

import functools
import tracemalloc
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from trials import trials

import alpha
import alpha.nn.functional as F
from alpha import Tensor, nn
from alpha.ops.kernel.tables import kept_tables
from alpha.ops.kernel.tables.kept_tables import KeptTables, Rows, kept


def normal(*shape: int) -> Tensor:
    return alpha.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32), requires_grad=True)


def below(most: int, count: int) -> Tensor:
    return alpha.tensor(np.random.default_rng(1).integers(0, most, count))


# Functions of an axis, a table for which could have an element for each pair of an input and an output.
ALONG: dict[str, Callable[[int], Tensor]] = {
    "nearest": lambda n: F.interpolate(normal(1, n, 1), scale_factor=2.5),
    "nearest-exact": lambda n: F.interpolate(normal(1, n, 1), scale_factor=0.4, mode="nearest-exact"),
    "linear": lambda n: F.interpolate(normal(1, n, 1), scale_factor=2, mode="linear", align_corners=True),
    "area": lambda n: F.interpolate(normal(1, n, 1), n // 3, mode="area"),
    "bilinear": lambda n: F.interpolate(normal(1, 2, n, 1), (2, 2 * n), mode="bilinear"),
    "bicubic": lambda n: F.interpolate(normal(1, n, 2, 1), (n // 2, 2), mode="bicubic"),
    "antialias": lambda n: F.interpolate(normal(1, n, 2, 1), (n // 5, 2), mode="bicubic", antialias=True),
    "trilinear": lambda n: F.interpolate(normal(1, n, 2, 2, 1), scale_factor=(2, 1, 1), mode="trilinear"),
    "adaptive_avg_pool1d": lambda n: F.adaptive_avg_pool1d(normal(1, n, 1), n // 3),
    "adaptive_max_pool1d": lambda n: F.adaptive_max_pool1d(normal(1, n // 4, 1), n),
    "max_unpool1d": lambda n: F.max_unpool1d(*F.max_pool1d(normal(1, n, 1), 2, return_indices=True), 2),
    "fractional_max_pool2d": lambda n: F.fractional_max_pool2d(normal(1, n, 4, 1), 2, output_size=(n // 3, 2)),
    "grid_sample": lambda n: F.grid_sample(normal(1, n, 2, 1), normal(1, n, 2, 2), align_corners=False),
    "affine_grid": lambda n: F.affine_grid(normal(1, 2, 3), (1, n, 2, 1), align_corners=False),
    "fold": lambda n: F.fold(F.unfold(normal(1, n, 2, 1), 2), (n, 2), 2),
    "embedding": lambda n: F.embedding(below(n, n), normal(n, 2)),
    "embedding_bag": lambda n: F.embedding_bag(below(9, n), normal(9, 2), alpha.tensor([0, n - n // 3, n - 2])),
    "scatter_add": lambda n: normal(n).scatter_add(0, below(n, n), normal(n)),
    "repeat_interleave": lambda n: alpha.repeat_interleave(normal(n), below(3, n)),
    "quantile": lambda n: normal(n).quantile(alpha.tensor(np.linspace(0, 1, n).astype(np.float32))),
    "einsum": lambda n: alpha.einsum("bi,ci,i->i", normal(2, n), normal(2, n), normal(n)),
    "ctc_loss": lambda n: F.ctc_loss(
        F.log_softmax(normal(9, n, 5), -1),
        alpha.ones(n, 3, dtype="int64"),
        alpha.tensor([9] * n),
        alpha.tensor([3] * n),
    ),
    "pack_sequence": lambda n: nn.utils.rnn.pack_sequence([normal(n, 1), *(normal(1, 1) for _ in range(n // 4))]).data,
    "conv1d, dilated": lambda n: F.conv1d(normal(1, n, 1), normal(1, 3, 1), dilation=n // 4),
    "chunk": lambda n: alpha.cat(normal(n).chunk(n // 8)),
}


def peak(function: Callable[[int], Tensor], n: int) -> int:
    """The most bytes that are held at a time, of a call with its gradient that makes its tables anew.

    The call is made twice and the less is taken, since other threads, as those of the test runner, have memory, too.
    """
    return min(_peak(function, n) for _ in range(2))


def _peak(function: Callable[[int], Tensor], n: int) -> int:
    with patch.object(kept_tables, "TABLES", KeptTables()):
        tracemalloc.start()
        try:
            function(n).sum().backward()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.slow
def test_along_an_axis() -> None:
    with trials() as trial:
        for name, function in ALONG.items():
            function(64)  # what is made at the first call
            with trial(name):
                first, second = peak(function, 1000), peak(function, 2000)
                assert second <= 2.5 * first + 50_000, f"{first:,} and {second:,} bytes"


def test_tables_are_kept_within_bytes() -> None:
    tables, made = KeptTables(10_000), []

    def table(n: int) -> Rows:
        made.append(n)
        return Rows(np.zeros(n, np.int64))

    for n in (300, 400, 300, 600, 300, 400, 2000, 2000, 300):
        assert len(tables.get(n, functools.partial(table, n)).numbers) == n
        assert tables.nbytes <= 10_000
    assert made == [300, 400, 600, 400, 2000, 2000]  # 400 went for 600, and 2000 never fits


def test_a_table_is_made_once() -> None:
    calls = []

    @kept
    def pair(n: int, text: str) -> tuple[Rows, Rows]:
        calls.append((n, text))
        return Rows(np.arange(n)), Rows(np.arange(n) + 1)

    assert pair(3, "a") is pair(3, "a")
    assert pair(3, "b") is not pair(3, "a")
    assert calls == [(3, "a"), (3, "b")]
