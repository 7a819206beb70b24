"""Exchanges that are not the same on all ranks are errors that name both, wherever they differ."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ranks import ran, run_ranks

from alpha.distributed.engines.exchange import described


@pytest.mark.slow
def test_every_pair_of_different_exchanges_is_an_error_on_cpus() -> None:
    first, second = run_ranks(2, "mismatch.py", "each")
    assert len(first) > 200
    for (one, other, error), (_, _, same) in zip(first, second, strict=True):
        assert error == same, (one, other)
        assert bool(error) is (one != other), (one, other, error)
        if error:
            assert error.startswith("the ranks do not make the same exchange: rank 0 begins "), error
            assert ", rank 1 " in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "emulated", "text"),
    [
        ("watch", False, "is a comparison of a text, of rank 1 all_reduce sum of float64 (1,)"),
        ("later", True, "is all_reduce sum of float32 (4,), of rank 1 all_reduce max of float32 (4,)"),
    ],
)
def test_the_watch_finds_what_nobody_compares_before(place: str, emulated: bool, text: str) -> None:
    found = ran(2, "mismatch.py", place, emulated=emulated)
    assert found.status != 0
    (line, *_) = [line for line in found.errors.splitlines() if "do not make the same exchanges: exchange " in line]
    assert text in line


def test_exchanges_that_differ_have_different_texts() -> None:
    def array(shape: tuple[int, ...], dtype: Any = "float32") -> Any:
        return SimpleNamespace(shape=shape, dtype=np.dtype(dtype))

    plain, long = [array((2, 3))], [array((2,))] * 50
    texts = [
        described("all_reduce sum", plain),
        described("all_reduce max", plain),
        described("all_reduce sum", [array((3, 2))]),
        described("all_reduce sum", [array((2, 3), "float16")]),
        described("all_reduce sum", plain * 2),
        described("reduce sum", plain, [0]),
        described("reduce sum", plain, [1]),
        described("broadcast", long, [0] * 50),
        described("broadcast", long, [0] * 49 + [1]),
        described("broadcast", [*long[1:], array((3,))], [0] * 50),
        described("broadcast", [], []),
    ]
    assert all(one != other for one, other in combinations(texts, 2))
    assert max(map(len, texts)) < 150
