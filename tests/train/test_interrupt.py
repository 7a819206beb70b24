"""Ctrl-C waits for the end of a step, once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from alpha.train.interrupt import interrupt_between_steps


@pytest.fixture(autouse=True)
def _usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_raised_at_the_next_check() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupt_between_steps() as check:  # noqa: PT012
        for step in range(3):
            if step == 1:
                signal.raise_signal(signal.SIGINT)
            done.append(step)
            check()
    assert done == [0, 1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_after_the_last_check_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt), interrupt_between_steps():
        signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interrupt_between_steps():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one did not get through")


def test_without_ctrl_c_nothing_happens() -> None:
    with interrupt_between_steps() as check:
        check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_programs_own_stays() -> None:
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    with interrupt_between_steps() as check:
        signal.raise_signal(signal.SIGINT)
        check()
    assert seen == [signal.SIGINT]


def test_another_thread_is_left_alone() -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with interrupt_between_steps() as check:
                check()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not errors
