"""An exception of a data set says for which index, or for which indices, it was raised; its type stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from alpha.data import DataLoader, Dataset, ImageFolder, Subset
from alpha.data.checks import say_where
from alpha.errors import DataError


class Broken(Exception):
    """A type that wants two arguments."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)


class Items(Dataset[Any]):
    error: Exception = Broken(1, 2)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        if index == 13:
            raise self.error
        return index


class Batches(Items):
    def batch(self, indices: Any) -> Any:
        return np.array([self[index] for index in indices])


def notes(loader: Any, kind: type[Exception]) -> list[str]:
    with pytest.raises(kind) as raised:
        list(loader)
    assert type(raised.value) is kind
    return list(getattr(raised.value, "__notes__", []))


@pytest.mark.skipif(not hasattr(Exception, "add_note"), reason="Python 3.10 has no notes")
@pytest.mark.parametrize("workers", [0, 3])
def test_the_index_is_named(workers: int) -> None:
    def found(data: Any, size: int | None, error: Exception) -> list[str]:
        Items.error = error
        return notes(DataLoader(data, size, num_workers=workers), type(error))

    assert found(Items(), 4, Broken(1, 2)) == ["DataLoader: item 13 was asked for"]
    assert found(Items(), None, KeyError("x")) == ["DataLoader: item 13 was asked for"]
    assert found(Subset(Items(), range(13, 20)), 4, IndexError()) == ["DataLoader: item 0 was asked for"]
    assert found(Batches(), 4, DataError("x")) == ["DataLoader: the batch of items 12, 13, 14, 15 was asked for"]
    text = "DataLoader: the batch of items 10, 11, 12, 13, 14, 15, 16, 17 and 2 more was asked for"
    assert found(Batches(), 10, DataError("x")) == [text]


@pytest.mark.skipif(not hasattr(Exception, "add_note"), reason="Python 3.10 has no notes")
def test_the_file_of_a_transform_that_fails(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a", "b"):
        Image.fromarray(np.full((2, 2, 3), ord(name), np.uint8)).save(tmp_path / "a" / f"{name}.png")

    def transform(image: Image.Image) -> Any:
        if np.asarray(image).max() == ord("b"):
            raise ZeroDivisionError
        return image

    found = notes(DataLoader(ImageFolder(tmp_path, transform=transform), 2), ZeroDivisionError)
    assert found == [
        f"ImageFolder: item 1, {tmp_path / 'a' / 'b.png'}",
        "DataLoader: the batch of items 0, 1 was asked for",
    ]


def test_before_python_3_11(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.hasattr", lambda value, name: False)
    text, own, two, key = ValueError("x"), DataError("y"), Broken(1, 2), KeyError("x")
    for error in (text, own, two, key):
        say_where(error, "item 3")
    monkeypatch.undo()
    assert str(text) == "x (item 3)"
    assert str(own) == "y (item 3)"
    assert two.args == (1, 2)
    assert (str(two.__cause__), str(key.__cause__), key.args) == ("item 3", "item 3", ("x",))
