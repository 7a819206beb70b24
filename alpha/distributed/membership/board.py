"""Board of short texts that all processes of a training can read: rank 0 serves it by the standard library's XML-RPC.

NCCL's unique id and the state of each rank go over it, so that a rank that is missing, has failed or hangs is known to
the others by name. Gradients never do. It takes texts and no objects, so nobody can run code through it. They travel as
JSON in ASCII, since XML has no place for some characters of error messages.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
import xmlrpc.client
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from xml.parsers.expat import ExpatError
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from alpha.errors import DistributedError, first_few

POLL_SECONDS = 0.05
CALL_SECONDS = 10.0  # a call that takes longer has failed
READ_SECONDS = 5.0  # that a call of `read` waits for texts, before it answers with those that are there


class _Handler(SimpleXMLRPCRequestHandler):
    rpc_paths = ("/board",)
    timeout = CALL_SECONDS  # of a connection that says nothing


class _Server(ThreadingMixIn, SimpleXMLRPCServer):
    daemon_threads = True
    request_queue_size = 1024  # so many ranks may come at once
    allow_reuse_address = True


class Board:
    """The texts on rank 0: `post` puts one, `read` gives those of all ranks.

    Args:
        job: names the training; a call of another one is refused, so two on one machine do not mix.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._texts: dict[str, dict[str, str]] = {}
        self._changed = threading.Condition()
        self._server: _Server | None = None

    def serve(self, port: int, functions: Mapping[str, Callable[..., Any]]) -> int:
        """Answer calls from now on, in threads, and return the port, which is a free one for port 0.

        Args:
            functions: what may be called beside `post` and `read`, each with the rank and a text.

        Raises:
            DistributedError: the port is taken.
        """
        try:
            self._server = _Server(("", port), _Handler, logRequests=False, allow_none=False)
        except OSError as error:
            raise DistributedError(
                f"rank 0 cannot listen on port {port} ({error}): another training has it, or one that has not ended; "
                "set MASTER_PORT to another number, the same on all ranks"
            ) from None
        own: dict[str, Callable[..., Any]] = {"post": self.post, "read": self.read}
        for name, function in {**own, **functions}.items():
            self._server.register_function(self._of_this_job(function), name)
        threading.Thread(target=self._server.serve_forever, name="alpha-board", daemon=True).start()
        return int(self._server.server_address[1])

    def _of_this_job(self, function: Callable[..., Any]) -> Any:
        def call(text: str) -> str:
            job, *arguments = json.loads(text)
            if job != self._job:
                raise DistributedError(f"this is the board of {self._job}, not of {job}")
            return json.dumps(function(*arguments))

        return call

    def post(self, key: str, rank: int, text: str) -> str:
        """Put the text of a rank under a key, in place of the one before."""
        with self._changed:
            self._texts.setdefault(key, {})[str(rank)] = text
            self._changed.notify_all()
        return ""

    def read(self, key: str, ranks: Sequence[int], seconds: float) -> dict[str, str]:
        """The texts under a key, by rank; waits up to `seconds` until those of `ranks` are there."""
        wanted = set(map(str, ranks))
        with self._changed:
            self._changed.wait_for(lambda: wanted <= self._texts.get(key, {}).keys(), seconds)
            return dict(self._texts.get(key, {}))

    def close(self) -> None:
        """Answer no more calls. Safe to call twice."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Transport(xmlrpc.client.Transport):
    def make_connection(self, host: object) -> object:  # type: ignore[override]
        connection = super().make_connection(host)  # type: ignore[arg-type]
        connection.timeout = CALL_SECONDS
        return connection


class Client:
    """The board as one rank sees it, over a connection of its own; used by one thread."""

    def __init__(self, address: str, port: int, job: str, rank: int) -> None:
        self._address, self._port, self._job, self._rank = address, port, job, rank
        self._proxy = xmlrpc.client.ServerProxy(f"http://{address}:{port}/board", transport=_Transport())

    def copy(self) -> Client:
        """A client for another thread."""
        return Client(self._address, self._port, self._job, self._rank)

    def call(self, name: str, text: str) -> str:
        """Call a function of rank 0 with this rank and a text.

        Raises:
            OSError: no board answers.
            xmlrpc.client.Fault: it refuses.
        """
        return str(self._ask(name, self._rank, text))

    def post(self, key: str, text: str, seconds: float = 0.0) -> None:
        """Put a text of this rank on the board; waits so long for rank 0 to serve it.

        Raises:
            DistributedError: nobody answers within `seconds`, or the board is that of another job.
        """
        self._reach(time.monotonic() + seconds, seconds, "post", key, self._rank, text)

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Answer of a function of rank 0; raises as `call`."""
        try:
            return json.loads(getattr(self._proxy, name)(json.dumps([self._job, *arguments])))
        except xmlrpc.client.Fault:
            raise
        except (xmlrpc.client.Error, http.client.HTTPException, ExpatError, ValueError, TypeError) as error:
            raise ConnectionError(f"what answers there is no board: {type(error).__name__}") from error

    def _reach(self, end: float, seconds: float, name: str, *arguments: Any) -> Any:
        """Answer of a function of rank 0, which is asked again up to the time `end`, after `seconds`."""
        while True:
            try:
                return self._ask(name, *arguments)
            except xmlrpc.client.Fault as error:
                raise DistributedError(f"rank {self._rank}: {error.faultString.partition(':')[2]}") from None
            except OSError as error:
                if time.monotonic() >= end:
                    raise DistributedError(
                        f"rank {self._rank} finds no rank 0 at {self._address}:{self._port} within {seconds:g} s "
                        f"({error}); it has not started or has ended, or MASTER_ADDR and MASTER_PORT name another place"
                    ) from None
            time.sleep(POLL_SECONDS)

    def gather(self, key: str, ranks: range, seconds: float) -> list[str]:
        """The texts of these ranks under a key; waits for them.

        Raises:
            DistributedError: some are missing after `seconds`, and it names them; or as `post`.
        """
        end = time.monotonic() + seconds
        found: dict[str, str] = {}
        while time.monotonic() < end:
            wait = min(READ_SECONDS, max(0.0, end - time.monotonic()))
            found = self._reach(end, seconds, "read", key, list(ranks), wait)
            if all(str(rank) in found for rank in ranks):
                return [found[str(rank)] for rank in ranks]
        missing = [str(rank) for rank in ranks if str(rank) not in found]
        raise DistributedError(
            f"rank {self._rank}: {len(missing)} of {len(ranks)} ranks are missing after {seconds:g} s: "
            f"{first_few(missing, 8)}"
        )


def own_address() -> str:
    """An address of this machine that others can reach: that from which it would send to another network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # of no machine (RFC 5737), and nothing is sent
        return str(probe.getsockname()[0])
    return "127.0.0.1"
