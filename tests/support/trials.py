"""Many trials of one rule in one test, since a parametrized test costs more than a small trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

Trial = Callable[..., AbstractContextManager[None]]


@contextmanager
def trials() -> Iterator[Trial]:
    """Runs all trials, also after one that fails; the error at the end names each that failed.

    with trials() as trial:
        for value in VALUES:
            with trial(value):
                assert rule(value)
    """
    failed: list[str] = []

    @contextmanager
    def trial(*what: object) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{', '.join(map(str, what))}: {type(error).__name__}: {error}")

    yield trial
    assert not failed, f"{len(failed)} trials failed\n" + "\n".join(failed)
