"""Changes that `make mutate` tries, and a sample that stays the same when other code changes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mutmut")
from checkout import ROOT
from explained import EXPLAINED
from mutants import Mutant, mutants_of, sample

SOURCE = '''
"""A text with 1 number."""
__all__ = ["scale"]
if TYPE_CHECKING:
    LIMIT = 1

def scale(x: Literal[1], by: float = 2) -> float:
    """Scale 1 number."""
    if x < 0:
        raise ValueError(f"scale: {x + 1} is below 0")
    warnings.warn("slow", stacklevel=3)
    return clip(x * by, high=7)
'''


def changes(tmp_path: Path, source: str = SOURCE) -> list[Mutant]:
    (tmp_path / "source.py").write_text(source)
    return mutants_of(tmp_path, "source.py")


def test_only_what_changes_behaviour_is_changed(tmp_path: Path) -> None:
    assert sorted(m.texts for m in changes(tmp_path)) == [
        ("0", "1"),
        ("2", "3"),
        ("7", "8"),
        ("< 0", "<= 0"),
        ("clip(x * by, high=7)", "clip(x * by, )"),
        ('raise ValueError(f"scale: {x + 1} is below 0")', "pass"),
        ('warnings.warn("slow", stacklevel=3)', "pass"),
        ("x * by", "x / by"),
        ("x < 0", "not (x < 0)"),
    ]


def test_a_mutant_is_the_file_with_one_change(tmp_path: Path) -> None:
    for mutant in changes(tmp_path):
        before, after = SOURCE.splitlines(), mutant.code().splitlines()
        different = [n for n, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b]
        assert different == [mutant.line]
        assert mutant.first <= mutant.line <= mutant.last


def test_a_sample_takes_one_of_a_statement_and_stays_after_an_edit(tmp_path: Path) -> None:
    drawn = sample([changes(tmp_path)], 100, seed=0)
    assert [m.line for m in drawn] == [7, 9, 10, 11, 12]
    edited = sample([changes(tmp_path, SOURCE.replace("__all__", "FIRST = 5\n__all__"))], 100, seed=0)
    assert [m.name for m in edited if "FIRST" not in m.name and m.texts[0] != "5"] == [m.name for m in drawn]


def test_equal_changes_have_names_of_their_own(tmp_path: Path) -> None:
    names = [m.name for m in changes(tmp_path, "a = 1\nb = 1\n")]
    assert names == ["source.py:: 1 -> 2", "source.py:: 1 -> 2 #1"]


@pytest.mark.slow
def test_what_is_explained_is_a_mutant_of_today() -> None:
    names = {mutant.name for file in {name.split(":")[0] for name in EXPLAINED} for mutant in mutants_of(ROOT, file)}
    assert not set(EXPLAINED) - names
