"""Docstrings: each says what the thing returns or does, and begins with a verb or a noun."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# words that begin a fragment, such as "Whether it is so" or "Of the stages", which is no sentence
FRAGMENTS = (
    *(
        "What",
        "Whether",
        "Where",
        "Which",
        "Who",
        "Whose",
        "Why",
        "How",
        "When",
        "That",
        "Those",
        "This",
        "These",
        "It",
    ),
    *("Of", "As", "If", "In", "From", "To", "For", "With", "Without", "By", "On", "At", "Inside", "Before", "After"),
    *("And", "Or", "So", "Not", "But", "Because", "Since", "Until", "While"),
)
OPENING = re.compile(rf"({'|'.join(FRAGMENTS)})\b")
NAMED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def fragments(source: str) -> Iterator[str]:
    """The docstrings that begin with a fragment, with what they belong to."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, NAMED):
            text = ast.get_docstring(node) or ""
            if OPENING.match(text):
                yield f"{getattr(node, 'name', 'the file')}: {text.splitlines()[0]}"


@pytest.mark.parametrize("folder", ["alpha", "examples"])
def test_a_docstring_begins_with_a_verb_or_a_noun(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in (ROOT / folder).rglob("*.py")
        for each in fragments(path.read_text())
    ]
    assert not found, "\n".join(found)


SOURCE = """
'''Of a file.'''
class A:
    '''Where it is.'''
    def f(self):
        '''Whether x.'''
        def g():
            "As f."
"""


def test_a_fragment_is_found_anywhere() -> None:
    assert [each.split(":")[0] for each in fragments(SOURCE)] == ["the file", "A", "f", "g"]
    assert not list(fragments("'Ofset, Whetherby and `as` are other words.'"))
