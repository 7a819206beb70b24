"""Shortened names fit and differ, and show where; broken lines fit."""

from __future__ import annotations

import random

import pytest

from alpha.step.profiling.table_text import shortened, wrapped


def test_short_names_stay() -> None:
    names = ["", "fc", "0123456789"]
    assert shortened(names, 10, 4) == names


@pytest.mark.parametrize(("head", "expected"), [(0, "..tion_projection"), (8, "encoder_..ojection")])
def test_a_long_name_keeps_its_ends(head: int, expected: str) -> None:
    assert shortened(["encoder_layers_attention_projection", "fc"], len(expected), head) == [expected, "fc"]


def test_names_that_differ_in_the_middle() -> None:
    """The differences are shown, also if there are two."""
    names = [f"encoder_layers_{i}.attention_inner.{j}.projection_group.0" for i in range(2) for j in range(2)]
    texts = shortened(names, 22)
    assert len(set(texts)) == 4
    for name, text in zip(names, texts, strict=True):
        assert len(text) <= 22
        shown = text.split("..")
        assert any(name[15] in part for part in shown)
        assert any(f"{name[33:35]}" in part for part in shown)


def test_any_names_differ() -> None:
    """Names of few letters, so that many are alike, one is the beginning of another, or looks like a shortened one."""
    source = random.Random(3)
    for _ in range(200):
        width = source.randrange(6, 24)
        letters = source.choice(["a", "ab", "a.", "ab.~2"])
        names = list({"".join(source.choices(letters, k=source.randrange(60))) for _ in range(30)})
        names += [text for text in shortened(names, width) if text not in names]
        texts = shortened(names, width, source.randrange(width // 2))
        assert len(set(texts)) == len(names)
        assert max(map(len, texts)) <= width
        assert all(text == name for name, text in zip(names, texts, strict=True) if len(name) <= width)


def test_lines_are_broken() -> None:
    for text in ("a word " * 30, "in the backward pass of " + "long_name." * 20, "short", ""):
        lines = wrapped(text)
        assert all(len(line) <= 80 for line in lines)
        assert "".join("".join(lines).split()) == "".join(text.split())
    assert [wrapped("short"), wrapped("")] == [["short"], [""]]
