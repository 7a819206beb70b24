"""default_collate: the structure of a batch, the dtypes, and when it is made of tensors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import alpha
from alpha.data import ArrayDataset, DataLoader, TensorDataset, default_collate
from alpha.data.collate import merged
from alpha.errors import DataError
from alpha.train.batches.host import as_arrays


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


WRONG: list[tuple[list[Any], str]] = [
    ([1, 2**63 + 1], r"item 1 is 9223372036854775809, which int64 cannot hold"),
    ([2**70, 1], r"item 0 is 1180591620717411303424, which int64 cannot hold"),
    ([True, -(2**63) - 1], r"item 1 is -9223372036854775809, which int64"),
    ([2**63 + 1], r"item 0 is 9223372036854775809, which int64"),
    ([0.5, 2**24 + 1], r"item 1 is 16777217, which would be rounded to float32"),
    ([0.5, -(2**1100)], r"item 1 is -\d+, which would be rounded to float32"),
    ([np.uint64(2**63 + 1), np.int64(1)], r"item 0 has 9223372036854775809, which would be rounded to float64"),
    ([np.float32(1), np.int64(2**53 + 1)], r"item 1 has 9007199254740993, .* dtype int64, beside float32 and int64"),
    ([np.zeros(2, np.int64), np.array([0, 2**64 - 1], np.uint64)], r"item 1 has 18446744073709551615, .* float64"),
    ([np.array([1, None]), np.array([1, 2])], r"item 0 has dtype object, which is no array of numbers"),
    ([np.array([1, 2]), np.array(["a", "b"])], r"item 0 has dtype int64, beside int64 and str32; all need one"),
    ([np.ma.array([1, 2], mask=[0, 1])] * 2, r"item 0 is a masked array, and its mask would be lost"),
    ([np.ones(2), np.ma.array([1, 2])], r"item 1 is a masked array"),
]


@pytest.mark.parametrize("place", ["", ", element 1", ", 'x'"])
def test_what_no_dtype_holds_is_refused(place: str) -> None:
    for values, reason in WRONG:
        items: list[Any] = {"": values, ", element 1": [(0, v) for v in values], ", 'x'": [{"x": v} for v in values]}[
            place
        ]
        number, rest = reason[:6], reason[6:]
        with pytest.raises(DataError, match=f"DataLoader: {number}{place}{rest}"):
            default_collate(items)


def test_whole_numbers_that_fit_are_kept() -> None:
    for values in ([2**63 - 1, -(2**63)], [True, 2], [np.uint64(2**53), np.int64(-1)], [0.5, -(2**24)], [2**24, 1.0]):
        assert default_collate(values).tolist() == values
    many = default_collate([np.uint64(2**64 - 1)] * 2)
    assert (many.dtype, many.tolist()) == (np.uint64, [2**64 - 1] * 2)


@pytest.mark.parametrize(
    "value", [np.zeros(2, np.uint64), np.complex64(1j), np.array(["a", "b"]), np.zeros(1, "M8[s]"), np.longdouble(1)]
)
def test_a_batch_of_tensors_has_only_dtypes_of_tensors(value: Any) -> None:
    name = re.escape(value.dtype.name)
    assert np.asarray(default_collate([value, value])).dtype == value.dtype
    for item, place in (
        ((alpha.ones(1), value), ", element 1"),
        ({"a": alpha.ones(1), "b": (value,)}, ", 'b', element 0"),
    ):
        with pytest.raises(DataError, match=f"item 0{place} has dtype {name}, which no tensor has, .*expected float32"):
            default_collate([item, item])
    with pytest.raises(DataError, match=f"item 1 has dtype {name}, |item 0 has dtype uint8, beside|cannot be joined"):
        default_collate([alpha.zeros(*value.shape, dtype="uint8"), value])
    with pytest.raises(DataError, match=f"has dtype {name}, which no tensor has"):
        TensorDataset(alpha.ones(2), np.broadcast_to(value, (2, *value.shape)))
    with pytest.raises(DataError, match=f"batch 1 has dtype {name}, which|cannot be joined|float32, beside"):
        merged([alpha.zeros(2, *value.shape), np.broadcast_to(value, (2, *value.shape))], np.arange(4))


def test_batches_are_joined_without_rounding() -> None:
    batches = [np.array([1]), np.array([2**63 + 1], np.uint64)]
    with pytest.raises(DataError, match=r"ConcatDataset: batch 1 has 9223372036854775809, which would be rounded"):
        merged(batches, np.arange(2))
    assert merged([batches[0], np.array([2], np.uint8)], np.arange(2)).tolist() == [1, 2]


def test_masks_are_not_lost(tmp_path: Path) -> None:
    masked = np.ma.array([[1.0], [2.0]], mask=[[0], [1]])
    for take in (
        lambda: ArrayDataset(masked, np.zeros(2)),
        lambda: ArrayDataset(np.zeros(2), masked),
        lambda: TensorDataset(masked),
        lambda: alpha.tensor(masked),
        lambda: alpha.as_tensor(masked),
        lambda: alpha.from_numpy(masked),
        lambda: alpha.tensor(np.ma.masked),
        lambda: alpha.save({"x": [masked]}, tmp_path / "x"),
        lambda: merged([masked, masked], np.arange(4)),
    ):
        with pytest.raises((DataError, TypeError), match=r"is a masked array, .* by its filled\(value\)"):
            take()
    assert not list(tmp_path.iterdir())


@pytest.mark.torch
def test_tensors_of_pytorch_of_any_kind_are_stacked() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1.5, 2.5])
    for value, dtype in (
        (x.bfloat16(), "bfloat16"),
        (x.clone().requires_grad_(), "float32"),
        (x.clone().requires_grad_() * 1, "float32"),
        (x.double().requires_grad_().bfloat16(), "bfloat16"),
    ):
        (batch, _) = next(iter(DataLoader([(value, 1), (value, 2)], 2)))
        assert (batch.dtype.name, batch.shape) == (dtype, (2, 2))
        whole = type("Whole", (), {"__len__": lambda self: 2, "batch": lambda self, i, v=value: (v, i)})()
        assert as_arrays(next(iter(DataLoader(whole, 2))))[0].dtype.name == dtype
    for value in (torch.tensor([1 + 1j, 2]).conj(), torch.eye(2).to_sparse(), torch.empty(2, device="meta")):
        with pytest.raises(DataError, match=r"DataLoader: item 0, element 1 is a tensor of PyTorch that numpy cannot"):
            default_collate([(1, value), (2, value)])


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
