"""A pytest plugin: which test runs which lines of alpha/, and for how long. MUTATE_RECORD names the file it writes.

Lines that run at import belong to no test. So do those of processes that a test starts.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).parents[2]
_coverage = coverage.Coverage(data_file=None, include=[f"{ROOT}/alpha/*"], config_file=False)
_coverage.start()  # before the first import of alpha
_output = Path(os.environ.pop("MUTATE_RECORD"))
del os.environ["PYTEST_PLUGINS"]  # not for processes that a test starts
_seconds: dict[str, float] = defaultdict(float)
_passed: set[str] = set()
_failed: list[str] = []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _coverage.switch_context(item.nodeid)
    yield
    _coverage.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.append(report.nodeid)
    if report.passed and report.when == "call":
        _passed.add(report.nodeid)
    _seconds[report.nodeid] += report.duration


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _failed.append(report.nodeid)


def pytest_sessionfinish() -> None:
    _coverage.stop()
    data = _coverage.get_data()
    lines = {
        Path(path).relative_to(ROOT).as_posix(): {
            number: [c for c in contexts if c] for number, contexts in data.contexts_by_lineno(path).items()
        }
        for path in data.measured_files()
    }
    seconds = {test: round(_seconds[test], 3) for test in _passed}
    record = {"seconds": seconds, "lines": lines, "failed": _failed}
    _output.write_text(json.dumps(record))
