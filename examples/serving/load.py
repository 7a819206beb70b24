"""Clients of a server, each of which sends a photo as soon as the one before is answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import perf_counter

import numpy as np


@dataclass(frozen=True)
class Load:
    """Results of some clients.

    Attributes:
        clients: that have asked at once.
        per_second: requests that were answered in a second.
        p50_ms, p99_ms: milliseconds within which 50 and 99 % of the requests were answered.
    """

    clients: int
    per_second: float
    p50_ms: float
    p99_ms: float


def ask(host: str, port: int, photo: bytes, clients: int, requests: int) -> Load:
    """Send `requests` photos by so many clients, each on a connection of its own.

    Raises RuntimeError if an answer has another status than 200.
    """
    return asyncio.run(_ask(host, port, photo, clients, requests))


async def _ask(host: str, port: int, photo: bytes, clients: int, requests: int) -> Load:
    message = f"POST /predict HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(photo)}\r\n\r\n".encode() + photo
    left, times = iter(range(requests)), []

    async def client() -> None:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            for _ in left:
                began = perf_counter()
                writer.write(message)
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().lower().split("\r\n")
                length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
                body = await reader.readexactly(length)
                if " 200 " not in lines[0]:
                    raise RuntimeError(f"{lines[0]}: {body.decode():.200}")
                times.append((perf_counter() - began) * 1e3)
        finally:
            writer.close()
            await writer.wait_closed()

    began = perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = perf_counter() - began
    p50, p99 = np.percentile(times, (50, 99))
    return Load(clients, requests / seconds, float(p50), float(p99))
