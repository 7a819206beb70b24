"""The limit of BLAS to one thread while workers run: set by the first, taken back by the last."""

from __future__ import annotations

import threading

import child

from alpha.runtime import blas
from alpha.runtime.blas import Library, OneThread


class Counted(Library):
    """A library without products."""

    def __init__(self, threads: int, of_a_thread: bool = False) -> None:
        self.threads = threads
        super().__init__(lambda: self.threads, lambda n: setattr(self, "threads", n), of_a_thread)


def test_the_first_sets_the_limit_and_the_last_takes_it_back() -> None:
    """The interleaving is one that left BLAS at one thread for good: A in, B in, A out, B out."""
    library, single = Counted(8), Counted(1)
    limit = OneThread(lambda: [library, single])
    steps = {name: threading.Event() for name in ("B in", "A out")}
    seen = []

    def b() -> None:
        with limit:
            steps["B in"].set()
            steps["A out"].wait(child.HANG_S)
            seen.append(library.threads)

    thread = threading.Thread(target=b)
    with limit:
        thread.start()
        steps["B in"].wait(child.HANG_S)
    seen.append(library.threads)
    steps["A out"].set()
    thread.join(child.HANG_S)
    assert seen == [1, 1]
    assert (library.threads, single.threads) == (8, 1)
    with limit, limit:
        assert library.threads == 1
    assert library.threads == 8


def test_a_number_that_somebody_else_set_meanwhile_stays() -> None:
    library = Counted(8)
    with OneThread(lambda: [library]):
        library.threads = 4
    assert library.threads == 4


def test_a_limit_of_a_thread_is_set_in_each() -> None:
    library = Counted(8, of_a_thread=True)
    limit = OneThread(lambda: [library])
    with limit:
        assert library.threads == 1
        library.threads = 5  # as another thread sees it
        with limit:
            assert library.threads == 1
        assert library.threads == 5
        library.threads = 1
    assert library.threads == 8


def test_the_library_of_numpy_is_found() -> None:
    assert blas._loaded(), "no BLAS with a limit of threads: products may depend on its threads"


def test_a_library_of_another_kind() -> None:
    """The library says nothing of its threads' kind, and has functions of its own."""

    class Plain:
        dynlib = object()

        def get_num_threads(self) -> int:
            return 7

        def set_num_threads(self, count: int) -> None: ...

    library = blas._library(Plain())
    assert library.get() == 7
    assert not library.of_a_thread
