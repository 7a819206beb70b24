"""Random numbers: Philox against its published answers, streams, distributions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.core import rng


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # Random123's known answers for philox4x32-10
        ((0, 0), 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (
            (0x85A308D3243F6A88, 0x0370734413198A2E),
            0x299F31D0A4093822,
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers(counter: tuple[int, int], key: int, words: list[int]) -> None:
    start, stream = counter
    np.testing.assert_array_equal(rng.philox(key, stream, 1, start)[0], words)


def test_a_block_depends_on_its_number_alone() -> None:
    whole = rng.philox(5, 6, 10)
    np.testing.assert_array_equal(rng.philox(5, 6, 4, start=3), whole[3:7])
    assert len(np.unique(whole)) == 40


def test_each_draw_is_a_new_stream_and_a_seed_starts_over() -> None:
    alpha.manual_seed(11)
    first, second = rng.uniform((5,)), rng.uniform((5,))
    assert (first != second).all()
    alpha.manual_seed(11)
    np.testing.assert_array_equal(rng.uniform((5,)), first)
    alpha.manual_seed(12)
    assert (rng.uniform((5,)) != first).all()


def test_distributions() -> None:
    alpha.manual_seed(0)
    u = rng.uniform((200, 500), -2.0, 3.0)
    assert u.dtype == np.float32
    assert u.min() >= -2
    assert u.max() <= 3
    assert abs(u.mean() - 0.5) < 0.02
    assert abs(u.std() - 5 / np.sqrt(12)) < 0.02
    n = rng.normal((200, 500), 1.0, 2.0)
    assert np.isfinite(n).all()
    assert abs(n.mean() - 1) < 0.03
    assert abs(n.std() - 2) < 0.03
    assert abs((np.abs(n - 1) < 2).mean() - 0.6827) < 0.01


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 0, 3)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    assert rng.uniform(shape).shape == shape
    assert rng.normal(shape).shape == shape


def test_a_state_brings_the_same_draws_back_through_json() -> None:
    alpha.manual_seed(2**63 + 5)
    rng.uniform((3,))
    state = json.loads(json.dumps(alpha.get_rng_state()))
    expected = rng.uniform((5,)), rng.normal((5,))
    alpha.manual_seed(1)
    alpha.set_rng_state(state)
    np.testing.assert_array_equal(rng.uniform((5,)), expected[0])
    np.testing.assert_array_equal(rng.normal((5,)), expected[1])


def test_a_state_brings_dropout_masks_back(device: str) -> None:
    x = alpha.tensor(np.ones(1000, np.float32), device=device)
    state = alpha.get_rng_state()
    masks = [alpha.nn.functional.dropout(x, 0.5, True).numpy() for _ in range(2)]
    alpha.set_rng_state(state)
    for mask in masks:
        np.testing.assert_array_equal(alpha.nn.functional.dropout(x, 0.5, True).numpy(), mask)
    assert (masks[0] != masks[1]).any()


@pytest.mark.parametrize(
    "state",
    [None, 3, {}, {"seed": 1}, {"seed": 1, "stream": -1}, {"seed": 1.0, "stream": 0}, {"seed": 2**64, "stream": 0}],
)
def test_a_state_that_is_none_changes_nothing(state: Any) -> None:
    before = alpha.get_rng_state()
    with pytest.raises(ValueError, match=r"set_rng_state: .* is not what get_rng_state returns"):
        alpha.set_rng_state(state)
    assert alpha.get_rng_state() == before
