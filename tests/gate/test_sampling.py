"""The sample of cases that `make test` runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sampling

TESTS = Path(__file__).parents[1]


class Item:
    """A case of a test as pytest collects it, with what the sample is chosen by."""

    def __init__(self, test: str, case: str = "", device: str | None = None, marker: str = "") -> None:
        parameters = [text for text in (device, case) if text]
        self.nodeid = f"{test}[{'-'.join(parameters)}]" if parameters else test
        self.path = TESTS / test.partition("::")[0]
        self.markers = {marker} - {""}
        if parameters:
            self.callspec = SimpleNamespace(params={"case": case} | ({"device": device} if device else {}))

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.markers.add(mark.name)


def sampled(items: list[Any]) -> list[str]:
    """The names of the items that `make test` runs."""
    sampling.leave_out(items)
    return sorted(item.nodeid for item in items if "slow" not in item.markers)


def cases(test: str, number: int, *devices: str) -> list[Item]:
    return [Item(test, f"case {i}", device) for i in range(number) for device in (devices or (None,))]


def test_each_device_keeps_its_cases() -> None:
    found = sampled(cases("nn/test_a.py::test_x", 40, "cpu", "cuda"))
    assert [sum(device in name for name in found) for device in ("[cpu-", "[cuda-")] == [sampling.CASES] * 2


def test_each_test_keeps_its_cases_whatever_stands_beside_it() -> None:
    first, second = cases("nn/test_a.py::test_x", 40), cases("nn/test_a.py::test_xy", 30)
    alone = sampled(first)
    assert len(alone) == sampling.CASES
    mixed = [*reversed(cases("nn/test_a.py::test_x", 40)), *second]
    assert [name for name in sampled(mixed) if "test_x[" in name] == alone


def test_few_cases_single_tests_and_rules_of_the_sources_are_whole() -> None:
    items = [*cases("nn/test_a.py::test_x", sampling.CASES), Item("nn/test_a.py::test_y")]
    items += cases("house/test_b.py::test_z", 40)
    assert len(sampled(items)) == len(items)


def test_cases_of_other_commands_take_no_place_in_the_sample() -> None:
    items = cases("nn/test_a.py::test_x", 5)
    marked = [Item("nn/test_a.py::test_x", f"long {i}", marker=name) for i, name in enumerate(sampling.LONGER)]
    found = sampled([*items, *marked])
    assert sum("case" in name for name in found) == sampling.CASES
    assert all(len(item.markers) == 1 for item in marked)
