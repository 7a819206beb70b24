"""Files that texts name: each one exists, so that a reader who looks for it finds it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(?<![\w/.<>*-])((?:\w+/)*\w+\.(?:py|cu|cuh))\b")
MADE_UP = {  # in examples, and what Python's own library has
    *("one.py", "program.py", "step.py", "contextlib.py", "functools.py"),
    *("folder/source.cu", "_sm80.cu", "_ffma.cu", "conv_v2.cuh"),
}


@cache
def existing() -> set[str]:
    """The ends of the paths of all files, from the name alone to the whole path."""
    found = set()
    for folder in ("alpha", "cuda", "examples", "tests", "docs", "datasets"):
        for path in (ROOT / folder).rglob("*.*"):
            parts = path.relative_to(ROOT).parts
            found |= {"/".join(parts[start:]) for start in range(len(parts))}
    return found


def test_files_that_texts_name_exist() -> None:
    """The texts are the pages of docs/, and docstrings, comments and messages of alpha/ and cuda/."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    sources = [path for folder in ("alpha", "cuda") for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"]
    wrong = []
    for path in [*pages, *sources]:
        if path.name == "CHANGELOG.md" or path.suffix not in (".md", ".py", ".cu", ".cuh", ".h", ".cpp"):
            continue
        for name in NAME.findall(path.read_text()):
            if name not in MADE_UP and name not in existing():
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong, wrong
