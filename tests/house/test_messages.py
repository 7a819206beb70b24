"""Advice that works: nothing names a package that no index has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = [
    path
    for pattern in ("alpha/**/*.py", "examples/**/*.py", "datasets/*", "docs/**/*.md", "*.md")
    for path in ROOT.glob(pattern)
    if path.suffix in (".py", ".md")
]
ON_PYPI = {"matplotlib", "torch", "pillow", "tensorboardX"}  # that a message advises


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_advised_install_is_of_this_checkout_or_of_a_package_that_exists(path: Path) -> None:
    for found in re.findall(r"pip install +((?:--?\w[\w-]* +)*)['\"]?([^\s'\"`,;)]*)", path.read_text()):
        name = found[1]
        assert name.startswith(".") or name in ON_PYPI, f"pip install {' '.join(found)}"


def test_the_readme_says_how_to_install() -> None:
    text = (ROOT / "README.md").read_text()
    assert "`pip install .`" in text
    assert "`pip install -e '.[cuda]'`" in text


def test_the_extras_that_are_advised_exist() -> None:
    declared = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    advised = {
        extra
        for path in TEXTS
        for extras in re.findall(r"'\.\[([\w,]+)\]'", path.read_text())
        for extra in extras.split(",")
    }
    assert advised
    assert advised <= declared
