"""docs/coverage.md: what it lists, and how its tables of Alpha's names are written anew.

    python tests/house/coverage_page.py

writes the tables of what Alpha has from the package (this needs PyTorch), and drops each name that is there now from
the tables of what Alpha has not. The reasons, and the table of Dragon-Alpha, are written by hand.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import alpha
import alpha.nn.functional as F
from alpha import nn, optim

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coverage.md"
OWN = "Alpha's own names"
SECTIONS = (  # headings, of PyTorch's lists and of the others
    *("torch.nn", "torch.nn.functional", "torch.optim", "torch.optim.lr_scheduler"),
    *("torch", OWN),
)
# in the namespaces of PyTorch, but no functions, layers or schedules
NO_OPERATORS = re.compile(
    r"Optional|boolean_dispatch|assert_int_or_pair|(handle|has)_torch_function.*|Container|Module|Optimizer|LRScheduler"
)


def pytorchs(section: str) -> set[str]:
    """The public names of one of PyTorch's lists."""
    import torch

    space: Any = torch
    for name in section.split(".")[1:]:
        space = getattr(space, name)
    base: Any = {"torch.nn": torch.nn.Module, "torch.optim": torch.optim.Optimizer}.get(section, object)
    names = set()
    for name, value in vars(space).items():
        if name.startswith("_") or NO_OPERATORS.fullmatch(name) or not callable(value):
            continue
        if section == "torch.nn.functional":
            fits = not inspect.isclass(value)
        elif section == "torch.optim.lr_scheduler":
            fits = inspect.isclass(value) and value.__module__ == "torch.optim.lr_scheduler"
        else:
            fits = inspect.isclass(value) and issubclass(value, base)
        if fits:
            names.add(name)
    return names


def is_that_of_the_page(version: str) -> bool:
    """True if the page is of this version of PyTorch, or of an older one; older versions lack some of its names."""
    listed = re.search(r"PyTorch (\d+)\.(\d+)", PAGE.read_text())
    assert listed, "docs/coverage.md says of which PyTorch it is"
    return tuple(map(int, version.split(".")[:2])) >= (int(listed[1]), int(listed[2]))


def alphas() -> dict[str, set[str]]:
    """Alpha's names, by "layers", "functions" and "optim"."""
    layers = {
        name
        for name in nn.__all__
        if inspect.isclass(getattr(nn, name)) and issubclass(getattr(nn, name), nn.Module) and name != "Module"
    }
    functions = set(F.__all__) | {"einsum"}
    return {"layers": layers, "functions": functions, "optim": set(optim.__all__) - {"Optimizer", "LRScheduler"}}


def room_of(name: str) -> str:
    """The file or folder below alpha/ that has the name."""
    room = inspect.unwrap(value_of(name)).__module__.removeprefix("alpha.").replace(".", "/")
    return room + (".py" if (ROOT / "alpha" / f"{room}.py").exists() else "/")


def value_of(name: str) -> Any:
    """Value that Alpha has under a name that is not a module's, else None."""
    found = (getattr(space, name, None) for space in (nn, F, optim, alpha))
    return next((value for value in found if value is not None and not inspect.ismodule(value)), None)


# -- the page as it is ------------------------------------------------------------------------------------------


def section_of(text: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, f"docs/coverage.md has no section {heading}"
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table, without its heading."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.M)
    return [
        [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()[2:]] for table in found
    ]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def paths_in(cell: str) -> list[str]:
    return [path.removeprefix("tests/") for path in re.findall(r"[\w/]+\.py(?:::\w+)?", cell)]


def listed(text: str, heading: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The tests of each name that Alpha has, and the reason for each that it has not."""
    offered, *others = tables(section_of(text, heading))
    have = {name: paths_in(tests) for _, names, tests in offered for name in names_in(names)}
    return have, {name: reason for table in others for names, reason in table for name in names_in(names)}


# -- the page as it is written anew -----------------------------------------------------------------------------


def tests() -> dict[str, str]:
    """The text of each file of tests, with the names of its rows."""
    files = [*(ROOT / "tests" / "rows").glob("**/*.py"), *(ROOT / "tests").glob("**/test_*.py")]
    names = (
        str(file.relative_to(ROOT / "tests"))
        for file in sorted(files)
        if "parity" not in str(file) and file.stem not in ("every", "calls")
    )
    return {name: (ROOT / "tests" / name).read_text() + _names_of_rows(name) for name in names}


def _names_of_rows(name: str) -> str:
    """Names of the rows of a file, also if a loop makes the rows."""
    if not name.startswith("rows/"):
        return ""
    values = vars(importlib.import_module(name.removesuffix(".py").replace("/", "."))).values()
    rows = (row for value in values if isinstance(value, (list, tuple)) for row in value)
    return " ".join(f'"{row.name}"' for row in rows if isinstance(getattr(row, "name", None), str))


def tests_of(names: Iterable[str], texts: dict[str, str]) -> list[str]:
    """The fewest files of tests that mention all of the names, rows first."""

    def mentioned(path: str, left: Iterable[str]) -> list[str]:
        return [n for n in left if re.search(rf"(?:\w\.|\"){n}\b", texts[path])]

    left, chosen = sorted(names), []
    while left:
        best = max(texts, key=lambda path: (len(mentioned(path, left)), path.startswith("rows/")))
        hit = mentioned(best, left)
        if not hit:
            raise SystemExit(f"no test mentions {left}")
        chosen.append(best)
        left = [n for n in left if n not in hit]
    return chosen


def table_of(names: Iterable[str], texts: dict[str, str]) -> str:
    """A table with one row for each room."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for name in names:
        rooms[room_of(name)].append(name)
    lines = ["| in `alpha/` | names | tests |", "|---|---|---|"]
    for room, inside in sorted(rooms.items()):
        words = ", ".join(f"`{name}`" for name in sorted(inside, key=str.lower))
        lines.append(f"| {room} | {words} | {', '.join(tests_of(inside, texts))} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """The page with new tables of what Alpha has."""
    have, texts = alphas(), tests()
    everything = set().union(*have.values())
    left = set(everything)
    for heading in SECTIONS:
        if heading == "torch":
            import torch

            names = {n for n in left if hasattr(torch, n) or hasattr(torch.Tensor, n)}
        else:
            names = left if heading == OWN else left & pytorchs(heading)
        left = left - names
        section = section_of(text, heading)
        old = re.search(r"(?:^\|.*\n)+", section, re.M)
        assert old, heading
        rest = []
        for line in section[old.end() :].splitlines(keepends=True):
            cells = line.split("|")
            if len(cells) == 4 and "`" in cells[1]:
                kept = [n for n in names_in(cells[1]) if n not in everything]
                line = f"| {', '.join(f'`{n}`' for n in kept)} |{cells[2]}|\n" if kept else ""
            rest.append(line)
        before, after = text.split(f"\n## {heading}\n{section}")
        text = f"{before}\n## {heading}\n{section[: old.start()]}{table_of(names, texts)}{''.join(rest)}{after}"
    return text


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]
    PAGE.write_text(written(PAGE.read_text()))
