"""Errors that a user can act on: advice names packages that exist, and a program answers an error with a line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from alpha import installation

ROOT = Path(__file__).parents[2]
TEXTS = [
    path
    for pattern in ("alpha/**/*.py", "examples/**/*.py", "datasets/*", "docs/**/*.md", "*.md")
    for path in ROOT.glob(pattern)
    if path.suffix in (".py", ".md")
]
# that a message or a page advises
ON_PYPI = {"cuda-core", "einops", "jupyterlab", "matplotlib", "mpi4py", "nccl4py", "torch", "pillow", "tensorboardX"}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_advised_install_is_of_this_checkout_or_of_a_package_that_exists(path: Path) -> None:
    for found in re.findall(r"pip install +((?:--?\w[\w-]* +)*)['\"]?([^\s'\"`,;)]*)", path.read_text()):
        name = found[1].partition("[")[0]
        assert name.startswith((".", "{")) or name in {"", *ON_PYPI, installation.DISTRIBUTION}, (
            f"pip install {' '.join(found)}"
        )


def test_an_installed_alpha_never_speaks_of_a_checkout() -> None:
    """Hold that messages ask alpha/installation.py how this Alpha is installed. Docstrings and comments are free."""
    allowed = {"alpha/installation.py", "alpha/data/cifar/sample.py"}
    for path in ROOT.glob("alpha/**/*.py"):
        tree = ast.parse(path.read_text())
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
                about = re.search(r"checkout|pip install (-e )?['\"]?\.", node.value)
                assert not about or name_of(path) in allowed, f"{name_of(path)}:{node.lineno}: {node.value!r}"


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


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def mains() -> list[tuple[str, ast.FunctionDef]]:
    """The main functions of all programs of Alpha and of the examples."""
    files = [*ROOT.glob("alpha/**/*.py"), *ROOT.glob("examples/**/*.py")]
    found = ((path, node) for path in files for node in ast.parse(path.read_text()).body)
    return [
        (str(path.relative_to(ROOT)), n) for path, n in found if isinstance(n, ast.FunctionDef) and n.name == "main"
    ]


def test_every_program_answers_errors_ctrl_c_and_a_closed_output_alike() -> None:
    """Hold what `command` of alpha/train/commands/command_line.py does, for all of them."""
    programs = mains()
    assert len(programs) > 10
    for path, main in programs:
        calls = [node for node in main.decorator_list if isinstance(node, ast.Call)]
        assert [ast.unparse(call.func) for call in calls] == ["command"], path
        name = ast.literal_eval(calls[0].args[0])
        assert name.startswith("alpha-") or name == Path(path).stem, f"{path}: {name}"
