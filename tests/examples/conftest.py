"""The rooms of examples/bench, which tests of the benchmarks share."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
Rooms = Callable[[str], ModuleType]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Rooms:
    """A module of examples/bench."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return lambda name: importlib.import_module(f"bench.{name}")
