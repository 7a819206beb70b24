"""Collection of the tests of the gate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the lists of mutants, which take seconds and are tests of `make gate` only."""
    deselected = re.match(r"not \(.*\bgate\b", config.option.markexpr)
    return True if deselected and collection_path.name in ("test_mutations.py", "test_index_mutants.py") else None
