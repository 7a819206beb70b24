"""docs/coverage.md lists what there is, and gives a reason for what there is not.

`python tests/house/coverage_page.py` writes its tables of Alpha's names anew.
"""

from __future__ import annotations

import re
from typing import Any

import coverage_page as page
import pytest

import alpha
import alpha.nn.functional as F
from alpha import data, models, nn, optim, train, transforms

TESTS = page.tests()
TEXT = page.PAGE.read_text()
HEADINGS = [heading for heading in page.SECTIONS]
AGAIN = "run python tests/house/coverage_page.py, which needs PyTorch"


def test_every_name_of_alpha_is_listed() -> None:
    names: list[str] = []
    for heading in HEADINGS:
        names += page.listed(TEXT, heading)[0]
    assert len(names) == len(set(names)), "a name is listed twice"
    assert set(names) == set().union(*page.alphas().values()), AGAIN


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_tests_of_a_name_are_about_it(heading: str) -> None:
    for name, paths in page.listed(TEXT, heading)[0].items():
        assert any(re.search(rf"\b{name}\b", TESTS[path]) for path in paths), f"{name}: {paths}; {AGAIN}"


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_name_is_listed_with_its_file(heading: str) -> None:
    offered = page.tables(page.section_of(TEXT, heading))[0]
    found = {name: room for room, names, _ in offered for name in page.names_in(names)}
    assert found == {name: page.room_of(name) for name in found}, AGAIN


@pytest.mark.parametrize("heading", HEADINGS)
def test_what_is_not_offered_is_not_there(heading: str) -> None:
    have, without = page.listed(TEXT, heading)
    assert not set(without) & set().union(*page.alphas().values()), AGAIN
    assert all(reason for reason in without.values())
    assert not set(have) & set(without)


@pytest.mark.torch
@pytest.mark.parametrize("heading", [h for h in HEADINGS if h.startswith("torch.")])
def test_every_name_of_pytorch_is_listed(heading: str) -> None:
    torch = pytest.importorskip("torch")
    have, without = page.listed(TEXT, heading)
    known = page.pytorchs(heading)
    assert known - set(have) - set(without) == set(), "each needs a reason"
    if page.is_that_of_the_page(torch.__version__):
        assert (set(have) | set(without)) - known == set(), f"PyTorch has no such names; {AGAIN}"


# -- Dragon-Alpha -----------------------------------------------------------------------------------------------

(ROWS,) = page.tables(page.section_of(TEXT, "Dragon-Alpha"))


def test_all_rows_of_dragon_alpha_are_there() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 83))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_of_dragon_alpha(row: list[str]) -> None:
    """A row has names that exist and tests that exist, or a reason why not."""
    _, feature, ours, tests = row
    spaces: dict[str, Any] = {
        "alpha": alpha,
        "F": F,
        "nn": nn,
        "optim": optim,
        "models": models,
        "data": data,
        "train": train,
        "transforms": transforms,
    }
    for space, path in re.findall(r"`(alpha|F|nn|optim|models|data|train|transforms)((?:\.\w+)+)", ours):
        value = spaces[space]
        for name in path.split(".")[1:]:
            assert hasattr(value, name), f"{feature}: {space}{path}"
            value = getattr(value, name)
    paths = page.paths_in(tests)
    assert paths or "not offered" in ours, feature
    for path in paths:
        file, _, function = path.partition("::")
        text = (page.ROOT / "tests" / file).read_text()
        assert not function or f"def {function}(" in text, path
