"""An application on a port, by uvicorn."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from alpha.errors import AlphaError

BACKLOG = 2048  # connections that the system keeps until they are accepted
GRACE_S = 10  # for requests that are being answered when the server is to end


class _Server(uvicorn.Server):
    """A server that prints its address once it answers and Ctrl-C ends it in order."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port, *_ = listener.getsockname()
            shown = f"[{host}]" if ":" in host else host
            print(f"http://{shown}:{port}   (Ctrl-C ends it)", flush=True)


def listen(app: Any, host: str, port: int, connections: int) -> None:
    """Answer requests until Ctrl-C or SIGTERM; prints the address when it is reached.

    Args:
        port: 0 takes a free one.
        connections: that are served at once; further ones get the status 503.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(BACKLOG)  # from here on clients may come
        except (OSError, OverflowError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise AlphaError(f"cannot listen on {host}, port {port}: {reason}; --port 0 takes a free one") from error
        config = uvicorn.Config(
            app, log_level="warning", limit_concurrency=connections, timeout_graceful_shutdown=GRACE_S
        )
        _Server(config).run([listener])
