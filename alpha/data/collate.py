"""Items become batches, and batches become one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.autograd.versions import array_of
from alpha.core.tensor import Tensor
from alpha.errors import DataError

_WIDER = {"int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "float16": "float32"}


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch of items, of their structure: an array with one more axis for each array or number.

    Items are numpy arrays, Alpha's tensors on the cpu, numbers and strings, or tuples, lists and dicts of items.
    Python's floats become float32 and its integers int64, as in `alpha.tensor`. Strings stay a list. A tuple or list
    becomes a tuple, a named tuple one of its kind, and a dict a dict.

    The arrays are numpy's. If there is a tensor anywhere in the items, they are all tensors, so that `.to(device)` may
    be called on each; tensors have no int8, int16, uint16, uint32 and float16, which are widened.

    Raises:
        DataError: the items differ in structure or shape, or have other elements; it names the first one by its index.
    """
    return collate(batch, range(len(batch)))


def collate(items: Sequence[Any], indices: Sequence[Any]) -> Any:
    """Batch as `default_collate` makes it; messages name an item by its index."""
    if not len(items):
        raise DataError("DataLoader: a batch of no items cannot be stacked")
    batch = _column(items, indices, "")
    return with_tensors(batch) if any(map(_has_tensor, items)) else batch


def widened(values: NDArray[Any]) -> NDArray[Any]:
    """The same values in the dtype that tensors have, if tensors lack that of the array."""
    wider = _WIDER.get(values.dtype.name)
    return values if wider is None else values.astype(wider)


def with_tensors(batch: Any) -> Any:
    """The batch with a tensor in place of each numpy array; they share the memory if the dtype is one of a tensor."""
    return mapped(batch, _as_tensor)


def mapped(batch: Any, change: Any) -> Any:
    """The structure with `change(leaf)` in place of each leaf; lists, which are of strings, are leaves."""
    if isinstance(batch, Mapping):
        return {name: mapped(value, change) for name, value in batch.items()}
    if isinstance(batch, tuple):
        return _tuple_like(batch, [mapped(value, change) for value in batch])
    return change(batch)


def merged(batches: Sequence[Any], order: NDArray[np.int64]) -> Any:
    """One batch of several of the same structure, its items in this order of those that stand one after another.

    Raises:
        DataError: the batches differ in structure or in the shape of an item.
    """
    first = batches[0]
    if isinstance(first, Mapping) and all(isinstance(b, Mapping) and b.keys() == first.keys() for b in batches):
        return {name: merged([batch[name] for batch in batches], order) for name in first}
    if isinstance(first, tuple) and all(isinstance(b, tuple) and len(b) == len(first) for b in batches):
        return _tuple_like(first, [merged(column, order) for column in zip(*batches, strict=True)])
    if all(isinstance(batch, list) for batch in batches):
        together = [value for batch in batches for value in batch]
        return [together[place] for place in order]
    tensors = any(isinstance(batch, Tensor) for batch in batches)
    if any(isinstance(batch, Tensor) and not isinstance(batch.array, np.ndarray) for batch in batches):
        raise DataError("ConcatDataset: batches on a device cannot be joined; join the tensors by alpha.cat")
    arrays = [_on_host(batch, "a batch") for batch in batches]
    if any(array.shape[1:] != arrays[0].shape[1:] for array in arrays):
        raise DataError(
            f"ConcatDataset: batches of shapes {', '.join(str(array.shape) for array in arrays)} cannot be joined; "
            "the items need one shape"
        )
    joined = np.concatenate(arrays)[order]
    return Tensor(widened(joined)) if tensors else joined


def _tuple_like(like: tuple[Any, ...], values: list[Any]) -> Any:
    return type(like)(*values) if hasattr(like, "_fields") else tuple(values)


def _has_tensor(item: Any) -> bool:
    if isinstance(item, (tuple, list)):
        return any(map(_has_tensor, item))
    if isinstance(item, Mapping):
        return any(map(_has_tensor, item.values()))
    return isinstance(item, Tensor)


def _as_tensor(leaf: Any) -> Any:
    return Tensor(np.ascontiguousarray(widened(leaf)).reshape(leaf.shape)) if isinstance(leaf, np.ndarray) else leaf


def _column(items: Sequence[Any], indices: Sequence[Any], place: str) -> Any:
    """The batch of the values that stand at one place of all items."""
    first = items[0]
    if isinstance(first, (str, bytes)):
        _require(items, indices, place, (str, bytes), "a string")
        return list(items)
    if isinstance(first, Mapping):
        _require(items, indices, place, Mapping, "a dict")
        for item, index in zip(items, indices, strict=True):
            if item.keys() != first.keys():
                raise DataError(
                    f"DataLoader: item {index}{place} has the keys {sorted(map(str, item))}, "
                    f"item {indices[0]} {sorted(map(str, first))}"
                )
        return {name: _column([item[name] for item in items], indices, f"{place}, {name!r}") for name in first}
    if not isinstance(first, (tuple, list)):
        return _stack(items, indices, place)
    for item, index in zip(items, indices, strict=True):
        if not isinstance(item, (tuple, list)) or len(item) != len(first):
            found = f"has {len(item)}" if isinstance(item, (tuple, list)) else f"is of type {type(item).__name__}"
            raise DataError(f"DataLoader: item {index}{place} {found}, item {indices[0]} has {len(first)} elements")
    columns = [
        _column(column, indices, f"{place}, element {number}") for number, column in enumerate(zip(*items, strict=True))
    ]
    return _tuple_like(first, columns) if isinstance(first, tuple) else tuple(columns)


def _require(items: Sequence[Any], indices: Sequence[Any], place: str, kind: Any, name: str) -> None:
    for item, index in zip(items, indices, strict=True):
        if not isinstance(item, kind):
            raise DataError(
                f"DataLoader: item {index}{place} is of type {type(item).__name__}, item {indices[0]} is {name}"
            )


def _stack(values: Sequence[Any], indices: Sequence[Any], place: str) -> NDArray[Any]:
    if all(type(value) in (bool, int, float) for value in values):
        return np.array(values, np.float32 if float in map(type, values) else None)
    arrays = [_on_host(value, f"item {index}{place}") for value, index in zip(values, indices, strict=True)]
    for array, index in zip(arrays, indices, strict=True):
        if array.shape != arrays[0].shape:
            raise DataError(
                f"DataLoader: item {index}{place} has shape {array.shape}, item {indices[0]} {arrays[0].shape}"
            )
    return np.stack(arrays)


def _on_host(value: Any, name: str) -> NDArray[Any]:
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return np.asarray(value, np.float32 if type(value) is float else None)
    if not hasattr(value, "numpy"):  # which tensors have
        raise DataError(
            f"DataLoader: {name} is of type {type(value).__name__}, not an array, a tensor, a number or a string; "
            "collate_fn may stack it"
        )
    if isinstance(value, Tensor) and isinstance(value.array, np.ndarray):
        array: NDArray[Any] = array_of(value)
        return array
    device = getattr(value.device, "name", "cpu")
    if device != "cpu":
        raise DataError(f"DataLoader: {name} is a tensor on {device}; the loader takes those on the cpu")
    return np.asarray(value.numpy())
