"""Items become batches, and batches become one batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha.autograd.versions import array_of
from alpha.core.host_values import DTYPES, MASKED, host_array, is_masked, is_torch
from alpha.core.tensor import Tensor
from alpha.errors import DataError

_NO_TENSOR = (
    f"which no tensor has, and a batch with tensors has only them; expected {', '.join(DTYPES)}, or what is widened to "
    "these"
)
_EXACT = {"float16": 11, "float32": 24, "float64": 53, "complex64": 24, "complex128": 53}  # bits of whole numbers
_PLAIN = {str, bytes, int, float, bool, type(None)}
_WIDER = {"int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "float16": "float32"}


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch of items, of their structure: an array with one more axis for each array or number.

    Items are numpy arrays, Alpha's tensors on the cpu, numbers and strings, or tuples, lists and dicts of items.
    Python's floats become float32 and its integers int64, as in `alpha.tensor`. Strings stay a list. A tuple or list
    becomes a tuple, a named tuple one of its kind, and a dict a dict.

    The arrays are numpy's. If there is a tensor anywhere in the items, they are all tensors, so that `.to(device)` may
    be called on each; tensors have no int8, int16, uint16, uint32 and float16, which are widened.

    Raises:
        DataError: the items differ in structure or shape, or have other elements; whole numbers would be rounded, since
            no dtype holds them beside those of other items; or an item has a tensor, and an array of a dtype that no
            tensor has. It names the first such item by its index.
    """
    return collate(batch, range(len(batch)))


def collate(items: Sequence[Any], indices: Sequence[Any]) -> Any:
    """Batch as `default_collate` makes it; messages name an item by its index."""
    if not len(items):
        raise DataError("DataLoader: a batch of no items cannot be stacked")
    tensors = any(map(_has_tensor, items))
    batch = _column(items, indices, "", tensors)
    return with_tensors(batch) if tensors else batch


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


def leaves(batch: Any) -> Iterator[Any]:
    """The leaves of a structure in their order; lists, which are of strings, are leaves."""
    if isinstance(batch, (Mapping, tuple)):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from leaves(value)
    else:
        yield batch


_ALONE = 2  # references to what stands in one container, while they are counted


def owned(held_in: Any, place: Any, shared: bool = False) -> Any:
    """Value at a place of a list, a tuple or a dict, with a copy of each array that something else refers to, too.

    Such an array may be a buffer that its dataset writes again for the next batch. `shared` says that one of the
    containers around it is known elsewhere.
    """
    shared = shared or sys.getrefcount(held_in[place]) > _ALONE
    value = held_in[place]
    if isinstance(value, np.ndarray):
        return value.copy() if shared or _of_shared(value) else value
    if type(value) is Tensor:
        if not isinstance(value.array, np.ndarray) or value.requires_grad:
            return value
        again = shared or sys.getrefcount(value.array) > _ALONE or _of_shared(value.array)
        return Tensor(array_of(value).copy()) if again else value
    if isinstance(value, Mapping):
        parts = {name: owned(value, name, shared) for name in value}
        return value if all(parts[name] is value[name] for name in parts) else parts
    if not isinstance(value, (tuple, list)) or set(map(type, value)) <= _PLAIN:
        return list(value) if shared and type(value) is list else value
    found = [owned(value, number, shared) for number in range(len(value))]
    if all(part is given for part, given in zip(found, value, strict=True)):
        return value
    return _tuple_like(value, found) if isinstance(value, tuple) else found


def _of_shared(values: NDArray[Any]) -> bool:
    """True if an array is a part of memory that something else refers to, too."""
    if values.base is None:
        return False
    return sys.getrefcount(values.base) > _ALONE or not isinstance(values.base, np.ndarray) or _of_shared(values.base)


def wrong_length(batch: Any, count: int, place: str = "") -> str:
    """Text that names the first part of a batch that has not `count` items, and says how many; empty if all have.

    What has no length is no part of items. A list is a part, or else a structure of arrays.
    """
    if isinstance(batch, Mapping):
        parts = [(f"{place}, {name!r}", part) for name, part in batch.items()]
    elif isinstance(batch, tuple) or (isinstance(batch, list) and len(batch) != count and _of_arrays(batch)):
        parts = [(f"{place}, element {number}", part) for number, part in enumerate(batch)]
    else:
        shape = (len(batch),) if isinstance(batch, list) else getattr(batch, "shape", ())
        return f"the batch{place} has {shape[0]} items" if shape and shape[0] != count else ""
    return next(filter(None, (wrong_length(part, count, name) for name, part in parts)), "")


def _of_arrays(values: list[Any]) -> bool:
    return any(isinstance(value, (Mapping, tuple, list)) or getattr(value, "shape", ()) for value in values)


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
    joined = _joined(np.concatenate, arrays, tensors, lambda number: f"ConcatDataset: batch {number}")[order]
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
    if not isinstance(leaf, np.ndarray):
        return leaf
    values = widened(leaf)
    if values.dtype.name not in DTYPES:
        raise DataError(f"dataset: an array has dtype {leaf.dtype.name}, {_NO_TENSOR}")
    return Tensor(np.ascontiguousarray(values).reshape(leaf.shape))


def _column(items: Sequence[Any], indices: Sequence[Any], place: str, tensors: bool) -> Any:
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
        return {name: _column([item[name] for item in items], indices, f"{place}, {name!r}", tensors) for name in first}
    if not isinstance(first, (tuple, list)):
        return _stack(items, indices, place, tensors)
    for item, index in zip(items, indices, strict=True):
        if not isinstance(item, (tuple, list)) or len(item) != len(first):
            found = f"has {len(item)}" if isinstance(item, (tuple, list)) else f"is of type {type(item).__name__}"
            raise DataError(f"DataLoader: item {index}{place} {found}, item {indices[0]} has {len(first)} elements")
    columns = [
        _column(column, indices, f"{place}, element {number}", tensors)
        for number, column in enumerate(zip(*items, strict=True))
    ]
    return _tuple_like(first, columns) if isinstance(first, tuple) else tuple(columns)


def _require(items: Sequence[Any], indices: Sequence[Any], place: str, kind: Any, name: str) -> None:
    for item, index in zip(items, indices, strict=True):
        if not isinstance(item, kind):
            raise DataError(
                f"DataLoader: item {index}{place} is of type {type(item).__name__}, item {indices[0]} is {name}"
            )


def _stack(values: Sequence[Any], indices: Sequence[Any], place: str, tensors: bool) -> NDArray[Any]:
    if (kinds := set(map(type, values))) <= {bool, int, float}:
        return _of_numbers(values, kinds, indices, place)
    arrays = [_on_host(value, f"item {index}{place}") for value, index in zip(values, indices, strict=True)]
    for array, index in zip(arrays, indices, strict=True):
        if array.shape != arrays[0].shape:
            raise DataError(
                f"DataLoader: item {index}{place} has shape {array.shape}, item {indices[0]} {arrays[0].shape}"
            )
    return _joined(np.stack, arrays, tensors, lambda number: f"DataLoader: item {indices[number]}{place}")


def _of_numbers(values: Sequence[Any], kinds: set[type], indices: Sequence[Any], place: str) -> NDArray[Any]:
    """Array of Python's numbers."""
    dtype = np.dtype("float32" if float in kinds else "int64" if int in kinds else "bool")
    if int not in kinds or (len(kinds) == 1 and -(2**63) <= min(values) <= max(values) < 2**63):
        return np.array(values, dtype)
    for value, index in zip(values, indices, strict=True):
        if type(value) is int and not (-(2**63) <= value < 2**63 if dtype.kind == "i" else abs(value) <= 2**24):
            raise DataError(f"DataLoader: item {index}{place} is {value}, {_rounded(dtype)}")
    return np.array(values, dtype)


def _joined(
    join: Callable[[Any], NDArray[Any]], arrays: list[NDArray[Any]], tensors: bool, name: Callable[[int], str]
) -> NDArray[Any]:
    """Arrays as one, in which each value is what it was; `name(number)` is what messages call an array.

    Args:
        tensors: the result is to become a tensor.

    Raises:
        DataError: no dtype holds the values of all, or none that a tensor has.
    """
    dtypes = {array.dtype for array in arrays}
    try:
        values = join(arrays)
    except TypeError as error:  # numpy has no common dtype
        raise DataError(f"{name(0)} and others are of {_names(dtypes)}, which cannot be joined") from error
    if len(dtypes) > 1 or values.dtype.kind == "O" or (tensors and _wide(values.dtype) not in DTYPES):
        for number, array in enumerate(arrays):
            _check_kept(array, values.dtype, tensors, name(number), dtypes)
    return values


def _check_kept(
    array: NDArray[Any], dtype: np.dtype[Any], tensors: bool, name: str, dtypes: set[np.dtype[Any]]
) -> None:
    """Raises DataError if values change when their array is joined with those of `dtypes` to one of `dtype`."""
    if array.dtype.kind == "O":
        raise DataError(f"{name} has dtype object, which is no array of numbers; collate_fn may stack it")
    if tensors and _wide(array.dtype) not in DTYPES:
        raise DataError(f"{name} has dtype {array.dtype.name}, {_NO_TENSOR}")
    if array.dtype.kind != dtype.kind and dtype.kind not in "biufcV":
        raise DataError(f"{name} has dtype {array.dtype.name}, beside {_names(dtypes)}; all need one")
    if array.dtype.kind in "iu" and dtype.kind in "fcV" and array.size:
        largest = max(int(array.max()), int(array.min()), key=abs)
        if abs(largest) > 2 ** _EXACT.get(dtype.name, 8):
            raise DataError(
                f"{name} has {largest}, {_rounded(dtype)}: it has dtype {array.dtype.name}, beside {_names(dtypes)}"
            )


def _wide(dtype: np.dtype[Any]) -> str:
    return _WIDER.get(dtype.name, dtype.name)


def _names(dtypes: set[np.dtype[Any]]) -> str:
    return " and ".join(sorted(dtype.name for dtype in dtypes))


def _rounded(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "i":
        return f"which {dtype.name} cannot hold; give it as a string, or by a collate_fn"
    return f"which would be rounded to {dtype.name} in the batch; give all items one dtype that holds them"


def _on_host(value: Any, name: str) -> NDArray[Any]:
    if type(value) is np.ndarray:
        return value
    if is_masked(value):
        raise DataError(f"DataLoader: {name} {MASKED}")
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)):
        return np.asarray(value, np.float32 if type(value) is float else None)
    if not hasattr(value, "numpy"):  # which tensors have
        raise DataError(
            f"DataLoader: {name} is of type {type(value).__name__}, not an array, a tensor, a number or a string; "
            "collate_fn may stack it"
        )
    if is_torch(value):
        try:
            return host_array(value)
        except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
            raise DataError(f"DataLoader: {name} is a tensor of PyTorch that numpy cannot read: {error}") from error
    if isinstance(value, Tensor) and isinstance(value.array, np.ndarray):
        array: NDArray[Any] = array_of(value)
        return array
    device = getattr(value.device, "name", "cpu")
    if device != "cpu":
        raise DataError(f"DataLoader: {name} is a tensor on {device}; the loader takes those on the cpu")
    return np.asarray(value.numpy())
