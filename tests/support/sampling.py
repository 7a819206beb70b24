"""The sample of the tests that `make test` runs; `make gate` runs the others, so that `make test` takes minutes."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1] / "house"  # rules of the sources, whose cases are files: each of them counts
CASES = 2  # of a parametrized test that `make test` runs on each device
LONGER = ("slow", "gate", "sanitize", "parity")  # markers of what `make test` leaves out in any case
WHOLE = "not (gate or sanitize or parity)"  # for -m: the tests that `make test` takes its sample from


def leave_out(items: Iterable[pytest.Item]) -> None:
    """Give the marker `slow` to all cases of each test but CASES on each device.

    A checksum of the case's name decides, so the same cases run everywhere, and neighbours have no better chance.
    """
    cases: dict[tuple[str, object], list[pytest.Item]] = defaultdict(list)
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or item.path.is_relative_to(HOUSE) or any(map(item.get_closest_marker, LONGER)):
            continue
        cases[item.nodeid.partition("[")[0], callspec.params.get("device")].append(item)
    for others in cases.values():
        for item in sorted(others, key=lambda item: zlib.crc32(item.nodeid.encode()))[CASES:]:
            item.add_marker(pytest.mark.slow)
