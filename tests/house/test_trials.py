"""A test of many trials runs all of them and names each that fails."""

from __future__ import annotations

import pytest
from trials import trials


def test_every_trial_runs_and_each_failure_is_named() -> None:
    done = []

    def three() -> None:
        with trials() as trial:
            for i in range(3):
                with trial("number", i):
                    done.append(i)
                    assert i != 0, "an assertion"
                with trial("raises", i), pytest.raises(ValueError, match="two"):
                    int("1" if i == 1 else "two")

    with pytest.raises(AssertionError) as failure:
        three()
    assert done == [0, 1, 2]
    text = str(failure.value)
    assert "2 trials failed" in text
    assert "number, 0: AssertionError: an assertion" in text
    assert "raises, 1: Failed: DID NOT RAISE" in text


def test_an_interrupt_is_no_failed_trial() -> None:
    with pytest.raises(KeyboardInterrupt), trials() as trial, trial("interrupted"):
        raise KeyboardInterrupt
