"""Ctrl-C waits for the end of a step, once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator

import child
import pytest

from alpha.train.interrupt import Interrupted, interrupt_between_steps


@pytest.fixture(autouse=True)
def _usual_handlers() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


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


def test_the_second_one_is_no_place_to_save() -> None:
    """Interrupted, whose weights can be saved, is raised by the check only."""
    with pytest.raises(KeyboardInterrupt) as stop, interrupt_between_steps():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert not isinstance(stop.value, Interrupted)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_status_is_that_of_the_signal(number: signal.Signals, status: int) -> None:
    with pytest.raises(Interrupted) as stop, interrupt_between_steps(signal.SIGINT, signal.SIGTERM) as check:  # noqa: PT012
        signal.raise_signal(number)
        check()
    assert stop.value.status == status
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_block_inside_leaves_the_signals_to_the_outer_one() -> None:
    with pytest.raises(Interrupted), interrupt_between_steps(signal.SIGINT, signal.SIGTERM) as outer:  # noqa: PT012
        for _ in range(2):
            with interrupt_between_steps() as inner:
                inner()
        signal.raise_signal(signal.SIGTERM)
        outer_saw = False
        try:
            with interrupt_between_steps() as inner:
                inner()
        except Interrupted:
            outer_saw = True
        assert outer_saw
        outer()


SECOND = """
import signal
from alpha.train import interrupt_between_steps
with interrupt_between_steps(signal.SIGINT, signal.SIGTERM):
    signal.raise_signal(signal.SIGTERM)
    print("held", flush=True)
    signal.raise_signal(signal.SIGTERM)
    print("still there", flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_second_sigterm_ends_the_process_at_once() -> None:
    done = child.run([sys.executable, "-c", SECOND])
    assert done.stdout == "held\n"
    assert done.returncode == -signal.SIGTERM


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
