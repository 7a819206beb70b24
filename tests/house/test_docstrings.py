"""Docstrings of alpha/, examples/ and tests/ begin with a verb or a noun, and not with a fragment of a sentence.

A docstring says what the thing returns or does: "True if X is Y", "Number of X", "Return Y", "The gradient of X". An
article or an adjective may come before the noun. It does not begin with a question word ("How many", "Whether"), a
preposition ("Of the rows"), a conjunction ("So that"), a relative or a bare pronoun ("Those of", "It"), for a reader
must not have to find the subject of the sentence elsewhere.

The first word has a capital letter, unless it is code: a text in backticks, an expression such as `y = max(x, 0)`, or a
name in the code of the module, class or function, such as an argument.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAGMENT = re.compile(
    r"""(
    What|Whatever|When|Whenever|Where|Whether|Which|Who|Whoever|Whose|Why|How|
    About|Above|After|Among|At|Before|Below|Beside|Between|By|For|From|In|Inside|Into|Of|On|Through|To|Under|Until|
    With|Within|Without|
    And|As|Because|But|Either|Else|If|Neither|Nor|Not|Or|Otherwise|Since|So|Than|Though|Unless|While|
    It|Its|That|Their|They|These|This|Those|
    Also|Are|Even|Has|Here|Is|Once|Only
    )\b""",
    re.VERBOSE,
)
SMALL = re.compile(r"[a-z]+\b")
EXPRESSION = re.compile(r"[\w.]+( [-+*/^|<>=]|[(\[./^])")  # y = f(x), n / N, d^2, max(x, 0), docs/coverage.md

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def names_of(definition: ast.AST) -> set[str]:
    """All names in the code of a definition."""
    found: set[str] = set()
    for node in ast.walk(definition):
        for field in ("id", "arg", "attr", "name", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                found.update(name.split("."))
    return found


def fault(docstring: str, definition: ast.AST) -> str:
    """Text that says what is wrong with the beginning of a docstring; empty if nothing is."""
    if word := FRAGMENT.match(docstring):
        return f"begins with the fragment {word[0]!r}"
    word = SMALL.match(docstring)
    if word and not EXPRESSION.match(docstring) and word[0] not in names_of(definition):
        return f"begins with {word[0]!r}, which has no capital letter and is no name in its code"
    return ""


def faults(path: Path, source: str) -> Iterator[str]:
    """Faults of the docstrings of a file, each with its place."""
    for node in ast.walk(ast.parse(source)):
        docstring = ast.get_docstring(node) if isinstance(node, Documented) else None
        if docstring and (found := fault(docstring, node)):
            line = node.body[0].lineno  # type: ignore[attr-defined]
            yield f"{path}:{line} {found}: {docstring.splitlines()[0]}"


@pytest.mark.parametrize("folder", ["alpha", "examples", "tests"])
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str) -> None:
    paths = sorted(ROOT.joinpath(folder).glob("**/*.py"))
    assert paths
    wrong = [text for path in paths for text in faults(path.relative_to(ROOT), path.read_text())]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("place", ["module", "class", "method", "function", "coroutine"])
@pytest.mark.parametrize("text", ["What x is.", "Whether it holds.", "Of the rows.", "Its length.", "rows of x."])
def test_a_fragment_is_found_in_every_place(text: str, place: str) -> None:
    source = {
        "module": f'"""{text}"""',
        "class": f'class A:\n    """{text}"""',
        "method": f'class A:\n    """A class."""\n\n    def f(self):\n        """{text}"""',
        "function": f'def _f():\n    """{text}"""',
        "coroutine": f'async def f():\n    """{text}"""',
    }[place]
    (found,) = faults(Path("planted.py"), source)
    assert found.endswith(f": {text}")


@pytest.mark.parametrize(
    "text",
    ["True if x.", "The rows.", "Return x.", "`f` of x.", "y = f(x)", "x in float32.", "x.y twice.", "2 x.", "(N, C)"],
)
def test_a_verb_a_noun_or_code_may_begin(text: str) -> None:
    assert not list(faults(Path("planted.py"), f'def f(x):\n    """{text}"""'))
