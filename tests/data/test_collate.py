"""default_collate: the structure of a batch, the dtypes, and when it is made of tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import alpha
from alpha.data import DataLoader, default_collate
from alpha.data.collate import merged
from alpha.errors import DataError


class Point(NamedTuple):
    x: float
    y: float


def test_structures() -> None:
    batch = default_collate(
        [{"a": (1, [np.ones(2), "u"]), "b": Point(1.0, 2)}, {"b": Point(3.0, 4), "a": (2, [np.zeros(2), "v"])}]
    )
    assert list(batch) == ["a", "b"]
    numbers, (arrays, names) = batch["a"]
    np.testing.assert_array_equal(numbers, [1, 2])
    np.testing.assert_array_equal(arrays, [[1, 1], [0, 0]])
    assert names == ["u", "v"]
    assert type(batch["b"]) is Point
    np.testing.assert_array_equal(batch["b"].x, [1, 3])
    assert (batch["b"].x.dtype, batch["b"].y.dtype, arrays.dtype) == (np.float32, np.int64, np.float64)
    assert default_collate([b"u", b"v"]) == [b"u", b"v"]
    assert default_collate([True, False]).dtype == np.bool_
    assert default_collate([np.int8(3), np.int8(4)]).dtype == np.int8


@pytest.mark.torch
def test_structures_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")

    def plain(batch: Any) -> Any:
        if isinstance(batch, dict):
            return {name: plain(value) for name, value in batch.items()}
        if isinstance(batch, (tuple, list)):
            return [plain(value) for value in batch]
        return batch if isinstance(batch, str) else np.asarray(batch).tolist()

    items = [{"a": (i, [np.full(2, i), "x" * i]), "b": [[1.5, (i,)], True]} for i in range(3)]
    for given in (items, [item["a"] for item in items], [item["b"] for item in items]):
        assert plain(default_collate(given)) == plain(torch.utils.data.default_collate(given))


def test_a_tensor_makes_all_of_a_batch_tensors() -> None:
    items = [{"x": alpha.tensor([1.0, i]), "y": (i, np.int16(i), np.float16(i), "name")} for i in range(3)]
    batch = default_collate(items)
    parts = [batch["x"], *batch["y"][:3]]
    assert all(isinstance(part, alpha.Tensor) and part.to("cpu").shape[0] == 3 for part in parts)
    assert [part.dtype.name for part in parts] == ["float32", "int64", "int32", "float32"]
    assert batch["y"][3] == ["name"] * 3
    for part in parts[1:]:
        assert part.numpy().tolist() == [0, 1, 2]
    scalars = default_collate([alpha.tensor(2.0), alpha.tensor(3.0)])
    assert isinstance(scalars, alpha.Tensor)
    assert scalars.shape == (2,)
    half = default_collate([alpha.ones(2, dtype="bfloat16")] * 2)
    assert (half.dtype.name, half.shape) == ("bfloat16", (2, 2))


def test_batches_own_their_memory() -> None:
    x = alpha.ones(3, requires_grad=True)
    (batch,) = default_collate([(x,)])
    assert not batch.requires_grad
    batch.add_(1)
    assert x.numpy().tolist() == [1, 1, 1]


def test_no_items() -> None:
    with pytest.raises(DataError, match="a batch of no items cannot be stacked"):
        default_collate([])


def test_strings_in_a_loader() -> None:
    batches = list(DataLoader([("a", 1), ("b", 2), ("c", 3)], 2))
    assert [names for names, _ in batches] == [["a", "b"], ["c"]]
    assert [numbers.tolist() for _, numbers in batches] == [[1, 2], [3]]


def test_batches_that_are_merged() -> None:
    def batch(first: int, count: int) -> dict[str, Any]:
        numbers = np.arange(first, first + count)
        return {"x": (numbers, alpha.tensor(numbers)), "y": [str(n) for n in numbers], "z": Point(numbers, numbers / 2)}

    whole = merged([batch(0, 3), batch(3, 1)], np.array([3, 0, 2, 1]))
    expected = [3, 0, 2, 1]
    assert whole["x"][0].tolist() == expected
    assert isinstance(whole["x"][1], alpha.Tensor)
    assert whole["x"][1].numpy().tolist() == expected
    assert whole["y"] == ["3", "0", "2", "1"]
    assert type(whole["z"]) is Point
    assert whole["z"].y.tolist() == [1.5, 0, 1, 0.5]
    with pytest.raises(DataError, match=r"batches of shapes \(1, 2\), \(1, 3\) cannot be joined"):
        merged([np.ones((1, 2)), np.ones((1, 3))], np.arange(2))
    with pytest.raises(DataError, match="of type dict"):
        merged([np.ones(1), {"x": np.ones(1)}], np.arange(2))
