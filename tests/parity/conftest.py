"""Parity with PyTorch: the marker of these tests, and the table at the end of a run."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import compiled_quickly

from alpha.errors import AlphaError
from alpha.runtime import get_device

KINDS = ("operator", "layer", "optimizer", "schedule")


@pytest.hookimpl(tryfirst=True)  # before the sample of `make test` is chosen, which leaves these tests alone
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "parity" in item.path.parts[-2:]:
            item.add_marker(pytest.mark.parity)
            item.add_marker(pytest.mark.torch)
            # PyTorch's samples are meant to overflow, and its own lists warn when they are read
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def databases() -> Iterator[None]:
    """PyTorch with its lists of samples, on one thread; kernels of the emulated driver compiled quickly."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("expecttest", reason="torch.testing._internal needs expecttest: pip install '.[test]'")
    with warnings.catch_warnings(), compiled_quickly():
        warnings.simplefilter("ignore")
        import torch.testing._internal.common_methods_invocations
        import torch.testing._internal.common_modules
        import torch.testing._internal.common_optimizers

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)


@pytest.fixture
def on(request: pytest.FixtureRequest, databases: None) -> tuple[str, str]:
    """(device, dtype) of a comparison, as "cuda, float32"."""
    device, dtype = request.param.split(", ")
    try:
        get_device(device)
    except AlphaError as error:
        pytest.skip(str(error))
    return device, dtype


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line per operator: how many samples are right, wrong and refused, and what is not offered."""
    rows: dict[str, dict[str, dict[str, Any]]] = {kind: defaultdict(dict) for kind in KINDS}
    missing: dict[str, list[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "parity" and report.when == "call":
                    row = json.loads(value)
                    rows[row["kind"]][row["key"]][row["on"]] = row
                elif name == "not offered" and report.when == "call":
                    missing.update(json.loads(value))
    if not any(rows.values()) and not missing:
        return
    write = terminalreporter.write_line
    terminalreporter.section("parity with PyTorch: right / wrong / refused")
    for kind, table in rows.items():
        for key, cells in sorted(table.items()):
            line = "   ".join(
                f"{where} {row['right']} / {row['wrong']} / {sum(row['refused'].values())}"
                for where, row in cells.items()
            )
            write(f"{kind:9} {key:22} {line}")
    total = {
        outcome: sum(
            sum(row[outcome].values()) if outcome == "refused" else row[outcome]
            for table in rows.values()
            for cells in table.values()
            for row in cells.values()
        )
        for outcome in ("right", "wrong", "refused")
    }
    write(f"in all: {total['right']} right, {total['wrong']} wrong, {total['refused']} refused")
    if terminalreporter.config.getoption("verbose") > 0:
        _write_reasons(write, rows)
    for what, names in missing.items():
        write(f"not offered: {len(names)} {what}: {' '.join(names)}")


def _write_reasons(write: Any, rows: dict[str, dict[str, dict[str, Any]]]) -> None:
    for table in rows.values():
        for key, cells in sorted(table.items()):
            for where, row in cells.items():
                for message, count in row["refused"].items():
                    write(f"refused {count}x  {key}, {where}: {message}")
