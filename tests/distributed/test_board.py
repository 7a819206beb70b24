"""Board of texts: any text comes as it was given, and what is wrong is a `DistributedError` that says what to do."""

from __future__ import annotations

import socket
import threading
import xmlrpc.client
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alpha.distributed.membership.board import Board, Client, own_address
from alpha.errors import DistributedError

HOST, JOB, BRIEF = "127.0.0.1", "job 7", 0.2
TEXTS = st.text(st.characters(codec=None) | st.sampled_from("\x00\x1b\r\n<&>\ud800\U0001f600"), max_size=40)


@contextmanager
def serving(**functions: Callable[[int, str], str]) -> Iterator[tuple[Board, int]]:
    board = Board(JOB)
    with closing(board):
        yield board, board.serve(0, functions)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a board that has a function `reversed`."""
    with serving(reversed=lambda rank, text: f"{rank}:{text[::-1]}") as (_, port):
        yield port


def client(port: int, rank: int = 0, job: str = JOB) -> Client:
    return Client(HOST, port, job, rank)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(key=TEXTS, texts=st.lists(TEXTS, min_size=1, max_size=3))
def test_every_text_arrives_as_it_is(port: int, key: str, texts: list[str]) -> None:
    """Error messages go over the board: with colours of a terminal, and with names of files that are not UTF-8."""
    ranks = [client(port, rank) for rank in range(len(texts))]
    for rank, text in zip(ranks, texts, strict=True):
        rank.post(key, text)
        assert rank.call("reversed", text) == f"{ranks.index(rank)}:{text[::-1]}"
    assert ranks[-1].gather(key, range(len(texts)), 60) == texts


def test_the_last_text_of_a_rank_counts_and_keys_are_apart(port: int) -> None:
    first, second = client(port, 0), client(port, 1)
    first.post("a", "old")
    first.post("a", "new")
    second.post("b", "other")
    assert first.gather("a", range(1), 60) == ["new"]
    assert second.gather("b", range(1, 2), 60) == ["other"]
    with pytest.raises(DistributedError, match=r"rank 0: 1 of 2 ranks are missing after 0.2 s: 1$"):
        first.gather("a", range(2), BRIEF)


def test_all_ranks_at_once_get_the_same_texts_in_the_order_of_ranks(port: int) -> None:
    count, rounds = 16, 3
    together = threading.Barrier(count)

    def rank(number: int) -> list[list[str]]:
        own, found = client(port, number), []
        for turn in range(rounds):
            together.wait()
            own.post(f"turn {turn}", f"{number} {turn}")
            found.append(own.gather(f"turn {turn}", range(count), 600))
        return found

    with ThreadPoolExecutor(count) as pool:
        for found in pool.map(rank, range(count)):
            assert found == [[f"{number} {turn}" for number in range(count)] for turn in range(rounds)]


def test_gather_waits_for_who_is_late_and_names_who_is_missing(port: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client(port).gather, "late", range(2), 600)
        client(port, 1).post("late", "one")
        assert not waiting.done()
        client(port, 0).post("late", "zero")
        assert waiting.result() == ["zero", "one"]
    client(port, 3).post("many", "")
    with pytest.raises(DistributedError) as error:
        client(port, 3).gather("many", range(12), BRIEF)
    assert str(error.value) == "rank 3: 11 of 12 ranks are missing after 0.2 s: 0, 1, 2, 4, 5, 6, 7, 8 and 3 more"
    with pytest.raises(DistributedError, match="2 of 2 ranks are missing after 0 s: 0, 1"):
        client(port).gather("nothing", range(2), 0)
    assert client(port).gather("nothing", range(0), BRIEF) == []


def test_a_rank_that_waits_hears_of_the_last_text_at_once() -> None:
    """The board answers when the text is there: a client that asks again and again lets each epoch take longer."""
    asked = []

    class Counting(Client):
        def _ask(self, name: str, *arguments: object) -> object:
            asked.append(name)
            if name == "read":
                reading.set()
            return super()._ask(name, *arguments)

    reading = threading.Event()
    with serving() as (board, port), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Counting(HOST, port, JOB, 0).gather, "late", range(1, 2), 600)
        reading.wait()
        board.post("another", 1, "")
        board.post("late", 1, "text")
        assert waiting.result() == ["text"]
    assert asked == ["read"]


def test_a_client_of_another_job_is_refused(port: int) -> None:
    """Two trainings on one machine, with one port, do not mix; each call says so."""
    stranger, message = client(port, 1, "job 8"), "rank 1: this is the board of job 7, not of job 8"
    with pytest.raises(DistributedError, match=message):
        stranger.post("key", "text")
    with pytest.raises(DistributedError, match=message):
        stranger.gather("key", range(1), 60)
    with pytest.raises(xmlrpc.client.Fault, match="not of job 8"):
        stranger.call("reversed", "text")
    with pytest.raises(DistributedError, match="1 of 1 ranks are missing"):  # nothing was put there
        client(port).gather("key", range(1, 2), BRIEF)


def test_a_port_that_is_taken_is_an_error_that_says_what_to_set() -> None:
    with serving() as (_, port):
        second = Board(JOB)
        with pytest.raises(DistributedError, match=rf"cannot listen on port {port} .*set MASTER_PORT to another"):
            second.serve(port, {})
        second.close()
    again = Board(JOB)
    assert again.serve(port, {}) == port
    again.close()


def test_a_board_closes_twice_and_answers_no_more() -> None:
    board = Board(JOB)
    board.close()
    port = board.serve(0, {})
    client(port).post("key", "text")
    for _ in range(2):
        board.close()
    with pytest.raises(DistributedError):
        client(port).gather("key", range(1), BRIEF)


def free_port() -> int:
    with closing(socket.create_server((HOST, 0))) as taken:
        return int(taken.getsockname()[1])


class _Page(BaseHTTPRequestHandler):
    """A server of web pages, in place of a board."""

    status = 200

    def do_POST(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"<html><p>no board</html>")

    def log_message(self, *_: object) -> None: ...


@contextmanager
def pages(status: int) -> Iterator[int]:
    handler = type("Handler", (_Page,), {"status": status})
    server = HTTPServer((HOST, 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def babbler(answer: bytes) -> Iterator[int]:
    """Port of a server that says the same to everybody, such as a store of torchrun."""
    server = socket.create_server((HOST, 0))
    over = threading.Event()

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            with connection:
                if over.is_set():
                    return
                connection.recv(2**16)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        over.set()
        with closing(socket.create_connection(server.getsockname())):
            thread.join()
        server.close()


@contextmanager
def nobody() -> Iterator[int]:
    yield free_port()


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [nobody, lambda: pages(200), lambda: pages(404), lambda: babbler(b""), lambda: babbler(b"\x00\x01store\n")],
    ids=["nobody", "a page", "no page", "silence", "noise"],
)
def test_no_board_at_the_address_is_an_error_that_names_it(other: Callable[[], object]) -> None:
    with other() as port:  # type: ignore[attr-defined]
        message = rf"rank 2 finds no rank 0 at 127.0.0.1:{port} within 0.2 s .*MASTER_ADDR and MASTER_PORT"
        with pytest.raises(DistributedError, match=message):
            client(port, 2).gather("key", range(1), BRIEF)
        with pytest.raises(DistributedError, match=message):
            client(port, 2).post("key", "text", BRIEF)
        with pytest.raises((OSError, xmlrpc.client.Error)):  # what a rank that watches the others knows
            client(port, 2).call("report", "text")


def test_a_rank_may_be_there_before_rank_0(port: int) -> None:
    """Launchers start ranks in any order, so the first post waits for the board, as gather does."""
    place = free_port()
    board = Board(JOB)
    with ThreadPoolExecutor(1) as pool, closing(board):
        early = client(place, 1)

        def come() -> list[str]:
            early.post("key", "one", 600)
            return early.gather("key", range(2), 600)

        waiting = pool.submit(come)
        with pytest.raises(DistributedError, match="finds no rank 0"):  # meanwhile nobody is there
            client(place, 2).gather("key", range(1), BRIEF)
        assert not waiting.done()
        board.serve(place, {})
        client(place, 0).post("key", "zero")
        assert waiting.result() == ["zero", "one"]


def test_an_error_within_a_function_is_told_to_the_caller(port: int) -> None:
    def fail(rank: int, text: str) -> str:
        raise ValueError(f"{rank} {text}")

    with serving(fail=fail) as (_, port), pytest.raises(xmlrpc.client.Fault, match="3 no"):
        client(port, 3).call("fail", "no")


def test_the_own_address_is_one_that_is_heard() -> None:
    with closing(Board(JOB)) as board:
        port = board.serve(0, {})
        assert Client(own_address(), port, JOB, 0).gather("key", range(0), 60) == []
